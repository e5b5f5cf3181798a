"""A number of things that was counted so far and no further."""

from __future__ import annotations

from typing import Final

MOST_COUNTED: Final = 10_000  # of one sort in one queue; what there is beyond is not looked at
ALL: Final = 2**50  # more than there can be of anything


class Count(int):
    """A number of rows: exact, or the least that there are if `is_floor`, and then it prints as `10k+`."""

    is_floor: bool

    def __new__(cls, number: int = 0, *, is_floor: bool = False) -> Count:  # noqa: PYI034 - `Self` of an int is none
        """A number that was counted, to the end or not."""
        count = super().__new__(cls, number)
        count.is_floor = is_floor
        return count

    @classmethod
    def of(cls, number: int, looked_at: int, most: int) -> Count:
        """What a walk over `looked_at` rows has counted; a floor if it ended early, with more than `most`."""
        return cls(min(number, most), is_floor=looked_at > most)

    def __add__(self, other: int) -> Count:
        return Count(int(self) + int(other), is_floor=self.is_floor or getattr(other, "is_floor", False))

    __radd__ = __add__

    def __str__(self) -> str:
        if not self.is_floor:
            return int.__repr__(self)
        return f"{self // 1000}k+" if self >= 1000 else f"{int(self)}+"

    def __repr__(self) -> str:
        return f"{int(self)}+" if self.is_floor else int.__repr__(self)

    def __format__(self, spec: str) -> str:
        return format(str(self), spec) if self.is_floor else int.__format__(self, spec)


NONE: Final = Count()


def limit_of(*, exact: bool) -> int:
    """How many a walk may look at: one more than are counted, which tells that there are more."""
    return (ALL if exact else MOST_COUNTED) + 1
