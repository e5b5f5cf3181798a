"""Exceptions as JSON, for people: cleaned and cut where necessary, and never refused."""

from __future__ import annotations

import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from stepwell.base.durations import seconds_of
from stepwell.base.names import UNSTORABLE
from stepwell.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Mapping

ERROR_LIMIT: Final = 65_536
TRACEBACK_LIMIT: Final = 16_384
LINE_LIMIT: Final = 500
DEEPEST_GROUP: Final = 3  # depth of nested exception groups ...
MOST_TOLD: Final = 5  # ... and the number of errors shown of each


def error_of(error: BaseException) -> dict[str, Any]:
    """The error as JSON: type, message and traceback, with `code` and `retry_after` if it has them.

    Never refuses: what cannot be stored is replaced, and texts are cut with a mark.
    """
    told: dict[str, Any] = {"type": _clean(type(error).__name__), "message": _cut(_message_of(error), ERROR_LIMIT)}
    code = _attribute(error, "code")
    if isinstance(code, str | int) and not isinstance(code, bool) and (isinstance(code, str) or abs(code) < 2**63):
        told["code"] = _cut(code, LINE_LIMIT) if isinstance(code, str) else int(code)
    with suppress(InvalidOption):
        told["retry_after"] = seconds_of(_attribute(error, "retry_after"), "retry_after")
    told["traceback"] = _cut(_traceback_of(error), TRACEBACK_LIMIT)
    return told


def one_line(error: Mapping[str, Any]) -> str:
    """The error in at most 500 printable characters of one line."""
    text = f"{error.get('type', 'error')}: {error.get('message', '')}"[: 4 * LINE_LIMIT]
    words = "".join(letter if letter.isprintable() else " " for letter in text).split()
    line = " ".join(words).removesuffix(":")
    return line if len(line) <= LINE_LIMIT else f"{line[: LINE_LIMIT - 3]}..."


def _message_of(error: BaseException, depth: int = DEEPEST_GROUP) -> str:
    """The message of the error; for an exception group, with the messages of its errors."""
    try:
        message = str(error)
    except Exception as failure:  # noqa: BLE001 - an exception that cannot say its message is still recorded
        message = f"(its message could not be read: {type(failure).__name__})"
    if not isinstance(error, BaseExceptionGroup) or depth == 0:
        return message
    parts = [f"{type(one).__name__}: {_message_of(one, depth - 1)}" for one in error.exceptions[:MOST_TOLD]]
    return f"{message}: {'; '.join(parts)}"


def _attribute(error: BaseException, name: str) -> Any:
    try:
        return getattr(error, name, None)
    except Exception:  # noqa: BLE001 - a property of the user's class may raise anything
        return None


def _traceback_of(error: BaseException, depth: int = DEEPEST_GROUP) -> str:
    """The last frames of the error, of the first error of a group, and of up to three causes; the error first."""
    parts: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(parts) < 4:
        headline = f"{type(cause).__name__}: {_message_of(cause)[:LINE_LIMIT]}\n"
        headline += "".join(f"{note}\n"[:LINE_LIMIT] for note in _attribute(cause, "__notes__") or ())
        parts.append(headline + "".join(traceback.format_tb(cause.__traceback__, limit=-10)))
        if isinstance(cause, BaseExceptionGroup) and depth > 0:
            parts[-1] += "".join(f"in it\n{_traceback_of(one, depth - 1)}" for one in cause.exceptions[:MOST_TOLD])
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return "because of\n".join(parts)


def _cut(text: str, limit: int) -> str:
    data = _clean(text[: limit + 1]).encode()  # a character is at least one byte, so the rest cannot fit
    if len(data) <= limit:
        return data.decode()
    mark = f" ... (cut, {len(text)} characters in all)"
    return data[: limit - len(mark)].decode(errors="ignore") + mark


def _clean(text: str) -> str:
    return UNSTORABLE.sub("\ufffd", text)
