"""What the statements say of their own cost, in lines below their names in the .sql files.

`-- bound: 12 + 8 a row`: on Postgres it touches at most this many buffers, however full the store is; a row is one that
is given to it, or that it finds. The numbers are fitted to what was measured, and the test allows a quarter more
and four: they catch growth. A statement that counts up to `:most` counts to twenty there. `-- unbounded: why` stands
where no such number can.
`-- scans task: why`: it reads all of that table, or all of an index of it.
"""

import re
from dataclasses import dataclass, field
from typing import Self

from stepwell.store.sql import Dialect, _files

_BOUND = re.compile(r"^-- bound: (\d+)(?: \+ (\d+) a row)?$", re.MULTILINE)
_UNBOUNDED = re.compile(r"^-- unbounded: (.+)$", re.MULTILINE)
_SCANS = re.compile(r"^-- scans (\w+): (.+)$", re.MULTILINE)
_NAME = re.compile(r"^-- name: (\w+)(?: \[(\w+)\])?\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Bound:
    """The lines of one statement."""

    fixed: int | None = None
    each: int = 0
    unbounded: str | None = None
    scans: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> Self:
        bound, unbounded = _BOUND.search(text), _UNBOUNDED.search(text)
        return cls(
            int(bound[1]) if bound else None,
            int(bound[2] or 0) if bound else 0,
            unbounded[1] if unbounded else None,
            dict(_SCANS.findall(text)),
        )

    @property
    def is_said(self) -> bool:
        """Whether it has a bound, or says why it has none."""
        return (self.fixed is None) != (self.unbounded is None)

    def of(self, rows: float) -> float:
        """How many buffers so many rows may touch."""
        assert self.fixed is not None
        return self.fixed + self.each * rows


def bounds(dialect: Dialect) -> dict[str, Bound]:
    """What every statement of a dialect says."""
    said = {}
    for _, text in _files("sql"):
        _, *pieces = _NAME.split(text)
        for name, only, body in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
            if only in (None, dialect):
                said[name] = Bound.read(body)
    return said
