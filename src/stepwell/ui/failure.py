"""An error for people: the place in the application's own code, and the whole traceback folded. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

_FRAME: Final = re.compile(r'\s*File "(?P<file>[^"]*)", line (?P<line>\d+)(?:, in (?P<name>.*))?')
_FOREIGN: Final = ("/site-packages/", "/dist-packages/", "/stepwell/", "/lib/python", "<frozen")
MOST_TRACEBACK: Final = 16_384


@dataclass(frozen=True, slots=True)
class TraceFrame:
    """A line of a traceback; `own` if it is the application's."""

    file: str
    line: int
    name: str
    code: str
    own: bool

    @property
    def short(self) -> str:
        """The file with its folder, and the line."""
        return f"{'/'.join(PurePath(self.file).parts[-2:])}:{self.line}"


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong: `place` is the last frame of the application's own code."""

    type: str
    message: str
    frames: Sequence[TraceFrame]
    place: TraceFrame | None
    traceback: str

    @property
    def title(self) -> str:
        """Type and message on one line."""
        first = " ".join(self.message.split())[:300]
        return f"{self.type}: {first}" if first else self.type


def failure_of(error: Mapping[str, Any] | None) -> Failure | None:
    """The failure that a step or run has recorded; None if it has recorded none."""
    if error is None or not ("type" in error or "message" in error):
        return None
    traceback = str(error.get("traceback") or "")
    frames = _frames(traceback)
    own = [frame for frame in frames if frame.own]
    return Failure(
        type=str(error.get("type") or "error"),
        message=str(error.get("message") or ""),
        frames=frames,
        place=own[-1] if own else frames[-1] if frames else None,
        traceback=traceback[-MOST_TRACEBACK:],
    )


def _frames(traceback: str) -> list[TraceFrame]:
    lines, found = traceback.splitlines(), []
    for at, line in enumerate(lines):
        if (place := _FRAME.match(line)) is None:
            continue
        code = lines[at + 1].strip() if at + 1 < len(lines) and not _FRAME.match(lines[at + 1]) else ""
        own = not any(part in place["file"] for part in _FOREIGN)
        found.append(TraceFrame(place["file"], int(place["line"]), place["name"] or "", code, own))
    return found
