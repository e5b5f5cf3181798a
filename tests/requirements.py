"""docs/requirements.md read and written: which ids exist, what its last column says, and the counts at its top.

The last column is `sqlite, postgres` (proved), `partly (sqlite, postgres): what is missing`, `planned: what for` or
`dropped: why`. The backends come from the tests; what stands after the colon is written by hand and kept. A row with
such a note is never counted as proved, whatever its tests say.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

PATH = Path(__file__).parent.parent / "docs" / "requirements.md"
BACKENDS = ("pure", "sqlite", "turso", "postgres", "memory")

State = Literal["proved", "partly", "planned", "dropped"]
STATES: tuple[State, ...] = ("proved", "partly", "planned", "dropped")

ID = r"(?P<id>[A-Z]{1,2}-\d{2}|[a-z]+-\d{2})"
ROW = re.compile(rf"^\| {ID} \| (?P<text>.+?) \| (?P<proved>[^|]*?) \|$", re.MULTILINE)
NOTE = re.compile(r"(?:(?:partly \([a-z, ]+\)|planned): (?P<note>.+)|(?P<dropped>dropped: .+))")
NUMBERED, OTHERS = "requirements", "promises, security goals and rules"
COUNTS = re.compile(rf"^- \d+ ({NUMBERED}|{OTHERS}): .*$", re.MULTILINE)

Proved = dict[str, set[str]]
"""id -> the backends on which a collected test proves it"""


@dataclass(frozen=True)
class Requirement:
    id: str
    text: str
    proved: str

    @property
    def group(self) -> str:
        return self.id.rpartition("-")[0]

    @property
    def numbered(self) -> bool:
        """One of the numbered requirements; the rest are rules, promises and the like (in lower case)."""
        return self.group.isupper()

    @property
    def note(self) -> str:
        """What of the requirement does not hold, or has no test, in words written by hand; empty if nothing."""
        found = NOTE.fullmatch(self.proved)
        return (found["note"] or found["dropped"]) if found else ""

    def state(self, proved: Proved) -> State:
        if self.id not in proved:
            return "dropped" if self.note.startswith("dropped: ") else "planned"
        return "partly" if self.note else "proved"

    def cell(self, proved: Proved) -> str:
        """What the last column has to say."""
        backends = ", ".join(sorted(proved.get(self.id, ()), key=BACKENDS.index))
        match self.state(proved):
            case "proved":
                return backends
            case "partly":
                return f"partly ({backends}): {self.note}"
            case "planned":
                return f"planned: {self.note}" if self.note else "planned"
            case "dropped":
                return self.note


def parse(text: str) -> list[Requirement]:
    return [Requirement(**row.groupdict()) for row in ROW.finditer(text)]


def read(path: Path = PATH) -> list[Requirement]:
    return parse(path.read_text(encoding="utf-8"))


def with_proofs(text: str, proved: Proved) -> str:
    """The document with its last column and its counts taken from what the tests prove."""
    text = ROW.sub(lambda row: f"| {row['id']} | {row['text']} | {Requirement(**row.groupdict()).cell(proved)} |", text)
    lines = {kind: f"- {line}" for kind, line in counts(parse(text), proved).items()}
    return COUNTS.sub(lambda line: lines[line[1]], text)


def counts(requirements: list[Requirement], proved: Proved) -> dict[str, str]:
    """How many are proved, in part, or planned: of the requirements, and of the rest."""
    lines = {}
    for kind, numbered in ((NUMBERED, True), (OTHERS, False)):
        members = [member for member in requirements if member.numbered == numbered]
        lines[kind] = f"{len(members)} {kind}: {by_state(members, proved)}"
    return lines


def by_state(members: list[Requirement], proved: Proved) -> str:
    found = Counter(member.state(proved) for member in members)
    return ", ".join(f"{found[state]} {state}" for state in STATES)


def report(requirements: list[Requirement], proved: Proved) -> list[str]:
    """Per group what is proved and where, one line an id, then the sum."""
    groups: dict[str, list[Requirement]] = {}
    for requirement in requirements:
        groups.setdefault(requirement.group, []).append(requirement)
    lines = []
    for group, members in groups.items():
        lines.append(f"{group:<10} {len(members):>3}: {by_state(members, proved)}")
        lines += [f"  {member.id:<12} {member.cell(proved)}" for member in members if member.id in proved]
    return lines + list(counts(requirements, proved).values())
