"""Subjects of an encrypted store: those whose values have a key of their own, so that they can be forgotten."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from stepwell.store.audit import By, What
from stepwell.store.driver import Call, Script

if TYPE_CHECKING:
    from stepwell.store.database import Database


class Subjects:
    """Knows which subjects may be added to, and forgets them."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._driver: Any = database.driver  # the one that seals

    def forgettable(self, type: str) -> None:
        """From now on each instance of this type is a subject."""
        self._driver.calls.forgettable.add(type)

    async def admit(self, headers: Iterable[str | None]) -> None:
        """Raise `SubjectForgotten` if one of these headers names a forgotten subject."""
        await self._db.repeat(lambda: self._driver.admit(headers))

    async def forget(self, subject: str, by: By) -> bool:
        """Destroy the key of a subject, end the instance that it is, and note who asked for that, or none of it."""
        done = await self._db.transact_again(lambda *, again: self._forgetting(subject, by, again=again))
        self._driver.subjects.forget(subject)
        return done

    def _forgetting(self, subject: str, by: By, *, again: bool) -> Script[bool]:
        params = self._db.params()
        done = yield Call("forget_subject", {**params, "subject": subject})
        if not done:  # the first try may have been committed, and only its reply be lost
            found = (yield Call("subject_keys", params, [(subject,)])) if again else []
            return any(row["wrapped"] is None for row in found)
        type_, _, name = subject.partition("/")
        for row in (yield Call("end_forgotten_instance", {**params, "type": type_, "name": name})):
            yield Call("forget_receipts", {"id": row["id"]})
        yield from self._db.audit.of_store(params, What.SUBJECT_FORGOTTEN, subject, by)
        return True
