"""docs/requirements.md read and written: which ids exist, and what its last column says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PATH = Path(__file__).parent.parent / "docs" / "requirements.md"
BACKENDS = ("pure", "sqlite", "turso", "postgres", "memory")
PLANNED = "planned"

ID = r"(?P<id>[A-Z]{1,2}-\d{2}|[a-z]+-\d{2})"
ROW = re.compile(rf"^\| {ID} \| (?P<text>.+?) \| (?P<proved>[^|]*?) \|$", re.MULTILINE)

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
        """One of the 417 requirements; the rest are rules, promises and the like (in lower case)."""
        return self.group.isupper()


def read(path: Path = PATH) -> list[Requirement]:
    return [Requirement(**row.groupdict()) for row in ROW.finditer(path.read_text(encoding="utf-8"))]


def cell(backends: set[str]) -> str:
    return ", ".join(sorted(backends, key=BACKENDS.index)) or PLANNED


def with_proofs(text: str, proved: Proved) -> str:
    """The document with its last column taken from what the tests prove."""
    return ROW.sub(lambda row: f"| {row['id']} | {row['text']} | {cell(proved.get(row['id'], set()))} |", text)


def report(requirements: list[Requirement], proved: Proved) -> list[str]:
    """Per group what is proved and where, one line an id, then the sum."""
    groups: dict[str, list[Requirement]] = {}
    for requirement in requirements:
        groups.setdefault(requirement.group, []).append(requirement)
    lines = []
    for group, members in groups.items():
        done = [member for member in members if member.id in proved]
        lines.append(f"{group:<10} {len(done):>3} of {len(members):>3} proved")
        lines += [f"  {member.id:<12} {cell(proved[member.id])}" for member in done]
    for name, members in (
        ("requirements", [member for member in requirements if member.numbered]),
        ("rules and promises", [member for member in requirements if not member.numbered]),
    ):
        done = [member for member in members if member.id in proved]
        lines.append(f"{name}: {len(done)} proved, {len(members) - len(done)} planned, {len(members)} in all")
    return lines
