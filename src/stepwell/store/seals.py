"""Seals over the audit: a chain of hashes, by which a note that was changed or removed is noticed.

Upkeep seals what was noted since the last seal. A chain note by note would let all writers wait for each other; so
what was noted in the last minute is not protected yet.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from stepwell.base.durations import datetime_of
from stepwell.base.names import check_filter
from stepwell.errors import Refused
from stepwell.store.audit import UNSAID_BY, What
from stepwell.store.driver import Call, Row, Script

if TYPE_CHECKING:
    from stepwell.store.database import Database

PIECE: Final = 1000  # notes under a seal
ROUND: Final = 10  # seals that are written, or whose notes are removed, before other work has its turn
PAGE: Final = 100  # seals that are read at once
MOST_UNSEALED: Final = 100_000  # counted
NO_SUCH_HEAD: Final = "no seal has the hash that was given: seals were cut off, or made anew"
CUT_OFF: Final = "notes stand under it, but it is not there"


@dataclass(frozen=True, slots=True)
class AuditFault:
    """Something that does not fit a seal of the audit."""

    seal: int
    said: str


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """What became of the audit since it was sealed; true if nothing was changed."""

    seals: int
    notes: int  # that stand under them
    dropped: int  # seals whose notes retention has removed
    waiting: int  # notes that are not sealed yet, counted to 100,000
    head: str  # the hash of the newest seal: keep it elsewhere
    faults: tuple[AuditFault, ...]

    def __bool__(self) -> bool:
        return not self.faults


@dataclass(eq=False)
class Seals:
    """Seals the audit of one store and looks whether the seals still fit."""

    _db: Database

    async def round(self) -> bool:
        """Seal what waits for it and remove what is too old, a bounded number; True if there may be more."""
        for _ in range(ROUND):
            if await self._sealed() < PIECE:
                return False
        return True

    async def seal_all(self) -> str:
        """Seal all that waits for it; the hash of the newest seal, empty if there is none."""
        self._db.check()
        while await self._sealed() == PIECE:
            pass
        rows = await self._db.driver.read(Call("last_seal", {}))
        return str(rows[0]["hash"]) if rows else ""

    async def drop(self, before: int) -> bool:
        """Remove the notes under seals that are older than that, the oldest first; True if there may be more."""
        found = await self._db.driver.read(Call("old_seals", {"before": before, "limit": ROUND}))
        for row in found:
            await self._db.driver.transact(partial(self._dropping, row["id"]))
        return len(found) == ROUND

    async def verify(self, head: str | None) -> AuditVerdict:
        """Compare each seal with its notes and with the seal before."""
        self._db.check()
        check_filter("head", head)
        walk = _Walk(head)
        while seals := await self._db.driver.read(Call("seals_after", {"after": walk.at, "limit": PAGE})):
            for seal in seals:
                notes = await self._under(seal)
                if seal["dropped_at"] is None and walk.misfit(seal, notes):  # perhaps retention has just removed them
                    again = await self._db.driver.read(Call("seals_after", {"after": seal["id"] - 1, "limit": 1}))
                    walk.see(again[0], await self._under(again[0]))
                else:
                    walk.see(seal, notes)
        beyond = await self._db.driver.read(Call("notes_beyond_seals", {"seal": walk.at}))
        [waiting] = await self._db.driver.read(Call("unsealed_count", {"limit": MOST_UNSEALED}))
        return walk.verdict([row["seal"] for row in beyond], waiting["notes"])

    async def _under(self, seal: Row) -> Sequence[Row]:
        return await self._db.driver.read(Call("notes_under_seal", {"seal": seal["id"]}))

    async def _sealed(self) -> int:
        """Write one seal; how many notes are under it, or as many as fit if another session sealed just now."""
        try:
            return await self._db.driver.transact(self._sealing)
        except Refused:
            return PIECE

    def _sealing(self) -> Script[int]:
        notes = yield Call("unsealed_notes", {"limit": PIECE})
        if not notes:
            return 0
        last = yield Call("last_seal", {})
        number, previous = (last[0]["id"] + 1, last[0]["hash"]) if last else (1, "")
        times = [note["recorded_at"] for note in notes]
        yield Call(
            "add_seal",
            self._db.params(
                id=number,
                count=len(notes),
                hash=hash_of(number, previous, notes),
                previous=previous,
                first_at=min(times),
                last_at=max(times),
            ),
        )
        put = yield Call("put_under_seal", {"seal": number}, [(note["task_id"], note["place"]) for note in notes])
        if len(put) != len(notes):
            raise Refused("audit_seal")  # another session sealed some of them
        return len(notes)

    def _dropping(self, seal: int) -> Script[None]:
        for row in (yield Call("drop_seal", self._db.params(seal=seal))):
            yield Call("remove_notes_under_seal", {"seal": seal})
            about = f"{seal}, of {row['notes']} notes until {datetime_of(row['last_at']):%Y-%m-%d %H:%M}"
            yield from self._db.audit.of_store(self._db.params(), What.SEAL_DROPPED, about, UNSAID_BY)


def hash_of(number: int, previous: str, notes: Sequence[Row]) -> str:
    """The hash of a seal: over its number, the hash before, and each note with all that it says."""
    digest = hashlib.sha256(json.dumps([number, previous]).encode())
    for note in notes:
        digest.update(json.dumps([note[name] for name in _SEALED]).encode())
    return digest.hexdigest()


_SEALED: Final = (
    "task_id",
    "place",
    "what",
    "worker_id",
    "turn",
    "attempt",
    "detail",
    "actor",
    "tenant",
    "recorded_at",
)


class _Walk:
    """Walks along the seals and notes what does not fit."""

    def __init__(self, head: str | None) -> None:
        self.at, self._hash, self._head = 0, "", head
        self._seen = self._notes = self._dropped = 0
        self._whole = False  # a seal was seen that has its notes
        self._head_found = head is None or head == ""
        self._faults: list[AuditFault] = []

    def misfit(self, seal: Row, notes: Sequence[Row]) -> str | None:
        """What is wrong with the notes under a seal; None if they are what was sealed."""
        if len(notes) != seal["notes"]:
            between = f"{datetime_of(seal['first_at']):%Y-%m-%d %H:%M:%S} and {datetime_of(seal['last_at']):%H:%M:%S}"
            return f"{seal['notes']} notes between {between} were sealed, and {len(notes)} are there"
        if hash_of(seal["id"], seal["previous"], notes) != seal["hash"]:
            return "a note under it was changed, or the seal itself"
        return None

    def see(self, seal: Row, notes: Sequence[Row]) -> None:
        """Take in the next seal."""
        number, dropped = seal["id"], seal["dropped_at"] is not None
        if number != self.at + 1:
            self._fault(self.at + 1, "it is not there, and later ones are")
        elif seal["previous"] != self._hash:
            self._fault(number, "it does not go on from the seal before it: one of the two was changed")
        if dropped and self._whole:
            self._fault(number, "its notes are removed, but those of an older seal are there")
        if dropped and notes:
            self._fault(number, "it says that its notes are removed, but they are there")
        if not dropped and (wrong := self.misfit(seal, notes)):
            self._fault(number, wrong)
        self._whole |= not dropped
        self._dropped += dropped
        self._seen, self._notes = self._seen + 1, self._notes + len(notes)
        self.at, self._hash = number, seal["hash"]
        self._head_found |= seal["hash"] == self._head

    def verdict(self, beyond: Sequence[int], waiting: int) -> AuditVerdict:
        """What was found, after the last seal."""
        for seal in beyond:
            self._fault(seal, CUT_OFF)
        if not self._head_found:
            self._fault(self.at, NO_SUCH_HEAD)
        return AuditVerdict(self._seen, self._notes, self._dropped, waiting, self._hash, tuple(self._faults))

    def _fault(self, seal: int, said: str) -> None:
        self._faults.append(AuditFault(seal, said))
