"""What a crash test knows without asking stepwell: the ledger, and the tables read with plain SQL."""

import asyncio
import json
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import turso

from tests.ground.databases import run_apart

Line = dict[str, Any]


class Witness:
    """The ledger of a test, read on from where it was read last."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._read_to = 0
        self._lines: list[Line] = []

    def lines(self, phase: str, **where: Any) -> list[Line]:
        """The lines of a phase so far whose fields have these values."""
        self._read_on()
        return [
            line
            for line in self._lines
            if line["phase"] == phase and all(line.get(name) == value for name, value in where.items())
        ]

    def starts(self, **where: Any) -> list[Line]:
        """Bodies that were entered."""
        return self.lines("start", **where)

    def ends(self, **where: Any) -> list[Line]:
        """Bodies that came to their end."""
        return self.lines("end", **where)

    def events(self, event: str, **where: Any) -> list[Line]:
        """Events that the engine of some process told."""
        return self.lines("event", event=event, **where)

    def ended(self) -> set[int]:
        """The messages whose body came to its end at least once."""
        return {line["n"] for line in self.ends()}

    def executions(self) -> Counter[int]:
        """How often the body of each message was entered."""
        return Counter(line["n"] for line in self.starts())

    def in_flight(self, pid: int) -> set[int]:
        """The messages whose body this process has entered and not left."""
        left = {(line["n"], line["turn"]) for phase in ("end", "stopped") for line in self.lines(phase, pid=pid)}
        return {line["n"] for line in self.starts(pid=pid) if (line["n"], line["turn"]) not in left}

    def _read_on(self) -> None:
        if not self._ledger.exists():
            return
        with self._ledger.open("rb") as file:
            file.seek(self._read_to)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read_to += len(whole)
        self._lines += [json.loads(line) for line in whole.splitlines()]


@dataclass(frozen=True, slots=True)
class Row:
    """A task as the database has it."""

    id: int
    n: int
    status: str
    owner: int | None
    turn: int
    attempt: int
    updated_at: int
    finished_at: int | None
    last_error: str | None


class Tables:
    """A store's tables, read with plain SQL beside stepwell."""

    def __init__(self, url: str) -> None:
        self._url = url

    def rows(self) -> list[Row]:
        """Every task, by id."""
        found = self.ask(
            "select id, input, status, owner, turn, attempt, updated_at, finished_at, last_error"
            " from {task} order by id"
        )
        return [Row(task_id, json.loads(payload)["n"], *rest) for task_id, payload, *rest in found]

    def statuses(self) -> Counter[str]:
        """How many tasks have each status."""
        return Counter(dict(self.ask("select status, count(*) from {task} group by status")))

    def acknowledgements(self) -> int:
        """How often a settle has ended a task in SUCCESS, counted by the settle statement itself."""
        [[count]] = self.ask("select coalesce(sum(succeeded), 0) from {rollup}")
        return int(count)

    def sessions(self) -> list[tuple[int, bool]]:
        """Every worker session there ever was, and whether it lives."""
        return [
            (session, beat is not None)
            for session, beat in self.ask(
                "select worker.id, beat.worker_id from {worker} as worker"
                " left join {beat} as beat on beat.worker_id = worker.id order by worker.id"
            )
        ]

    def ask(self, question: str) -> list[list[Any]]:
        """The rows that answer a question in which `{name}` stands for a table of the store."""
        kind, _, path = self._url.partition(":///")
        if kind == "sqlite":
            return _asked(sqlite3.connect(path, timeout=30), question)
        if kind == "turso":
            return _asked(turso.connect(path), question)
        return run_apart(_asked_postgres(self._url, _named(question, "stepwell.")))


def executed_more_than_once(executions: Counter[int]) -> int:
    """How many messages have more than one execution."""
    return sum(1 for times in executions.values() if times > 1)


def _asked(connection: Any, question: str) -> list[list[Any]]:
    with closing(connection):
        return [list(row) for row in connection.execute(_named(question, "stepwell_")).fetchall()]


async def _asked_postgres(url: str, question: str) -> list[list[Any]]:
    async with asyncio.timeout(30):
        connection = await asyncpg.connect(url)
        try:
            return [list(row) for row in await connection.fetch(question)]
        finally:
            await connection.close()


def _named(question: str, prefix: str) -> str:
    return question.format(**{name: prefix + name for name in ("task", "worker", "beat", "rollup")})
