"""The keys of subjects that may be forgotten: which are known here, and for how long."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from stepwell.values.cipher import Key, unwrapped_subject

KNOWN_FOR: Final = 60.0  # seconds: as long may a process read a subject that another has forgotten
MOST: Final = 20_000  # of keys, and of tasks and instances whose subject is known; the oldest go first


class SubjectKey(NamedTuple):
    """The key of a subject; None if the subject was forgotten, or if its row was changed."""

    number: int
    key: Key | None
    is_forgotten: bool
    until: float


class SubjectKeys:
    """What one process knows of subjects: their keys for a minute, and whose each task and instance is."""

    def __init__(self) -> None:
        self._by_name: dict[str, SubjectKey] = {}
        self._by_number: dict[int, SubjectKey] = {}
        self._tasks: dict[int, int] = {}
        self._instances: dict[int, str] = {}

    def named(self, subject: str) -> SubjectKey | None:
        """The key of a subject, if it is known."""
        return _living(self._by_name.get(subject))

    def numbered(self, number: int) -> SubjectKey | None:
        """The key with a number, if it is known."""
        return _living(self._by_number.get(number))

    def learn(self, rows: Iterable[Mapping[str, Any]], tenant_key: Key) -> None:
        """Know the keys of these rows."""
        until = time.monotonic() + KNOWN_FOR
        for row in rows:
            wrapped = row["wrapped"]
            key = None if wrapped is None else unwrapped_subject(tenant_key, row["subject"], wrapped)
            known = SubjectKey(row["id"], key, wrapped is None, until)
            _put(self._by_name, row["subject"], known)
            _put(self._by_number, row["id"], known)

    def forget(self, subject: str) -> None:
        """Know nothing of the subject."""
        if (known := self._by_name.pop(subject, None)) is not None:
            self._by_number.pop(known.number, None)

    def own(self, task_id: int, number: int) -> None:
        """Know with which key the values of a task are sealed; 0 is that of its tenant."""
        _put(self._tasks, task_id, number)

    def owner(self, task_id: int) -> int | None:
        """The number of the key of a task, if it is known."""
        return self._tasks.get(task_id)

    def name_instance(self, instance_id: int, subject: str) -> None:
        """Know the subject of an instance."""
        _put(self._instances, instance_id, subject)

    def of_instance(self, instance_id: int) -> str | None:
        """The subject of an instance, if it has one."""
        return self._instances.get(instance_id)


class Scope:
    """What one exchange with the database knows of subjects.

    What a transaction has made may be rolled back with it: others must not seal with it, so it stays here.
    """

    def __init__(self, process: SubjectKeys, *, shares: bool, commits: bool) -> None:
        self.process = process
        self._here = SubjectKeys()
        self._shares = shares  # what it reads was committed, as long as it has written nothing
        self._commits = commits  # what it writes is committed at once

    def named(self, subject: str) -> SubjectKey | None:
        """The key of a subject, if it is known."""
        return self._here.named(subject) or self.process.named(subject)

    def numbered(self, number: int) -> SubjectKey | None:
        """The key with a number, if it is known."""
        return self._here.numbered(number) or self.process.numbered(number)

    def learn(self, rows: Iterable[Mapping[str, Any]], tenant_key: Key) -> None:
        """Know the keys of these rows."""
        (self.process if self._shares else self._here).learn(rows, tenant_key)

    def made(self) -> None:
        """Something was written."""
        self._shares &= self._commits


def _living(known: SubjectKey | None) -> SubjectKey | None:
    return known if known is not None and known.until > time.monotonic() else None


def _put(known: dict[Any, Any], name: Any, value: Any) -> None:
    known.pop(name, None)
    known[name] = value
    if len(known) > MOST:
        known.pop(next(iter(known)), None)
