"""A database of pgqrs 0.15: its messages, runs and steps, read page by page and taken away from its workers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

from stepwell.base.durations import moment_of
from stepwell.errors import InvalidOption
from stepwell.store.driver import Call, Row, Script
from stepwell.store.postgres.driver import Postgres
from stepwell.store.sql import Statements

PAGE: Final = 200  # messages; each may be as long as pgqrs lets it be
COLUMNS: Final = 6  # that `pgqrs_shape` looks for
LONGEST: Final = 600.0  # seconds to take what is open, by the million
TAKEN: Final = "{stepwell_moved}"
NONE_TAKEN: Final = "(select cast(null as bigint) as message_id, cast(null as timestamptz) as moved_at limit 0)"


@dataclass(frozen=True, slots=True)
class MessagePage:
    """Some messages, each with its run if it has one, and the steps of these runs."""

    messages: Sequence[dict[str, Any]]
    steps: Sequence[dict[str, Any]]


class Pgqrs:
    """The tables of pgqrs in one schema of a Postgres database, through connections of their own."""

    def __init__(self, url: str, schema: str) -> None:
        self._statements = Statements("postgres", schema)
        self._driver = Postgres(url, self._statements, pool=4, timeout=30.0)

    async def __aenter__(self) -> Self:
        await self._driver.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._driver.close()

    async def has_taken(self) -> bool:
        """Whether something was taken before; raises unless the tables are those of pgqrs."""
        schema = self._statements.schema
        [row] = await self._driver.read(self._call("pgqrs_shape", schema=schema, taken=f'"{schema}".stepwell_moved'))
        if row["found"] < COLUMNS:
            why = "it has not the tables of pgqrs 0.15; an older release brings its tables up to date with `install()`"
            raise InvalidOption("schema", schema, why)
        taken: bool = row["has_taken"]
        return taken

    async def queues(self) -> dict[str, bool]:
        """The queues by name; True for that of a workflow."""
        return {row["name"]: row["of_workflow"] for row in await self._driver.read(self._call("pgqrs_names"))}

    async def take(self, *, anyway: bool) -> None:
        """Take every message that is not done, in one transaction; refused while workers of pgqrs are at work."""
        await self._driver.transact(lambda: self._taking(anyway=anyway), timeout=LONGEST)

    async def pages(self, *, taken: bool) -> AsyncIterator[MessagePage]:
        """All messages that have not arrived yet, by id."""
        after, shown = 0, TAKEN if taken else NONE_TAKEN
        while True:
            found = await self._driver.read(self._call("pgqrs_page", shown, after=after, limit=PAGE))
            if not found:
                return
            runs = [(row["run_id"],) for row in found if row["run_id"] is not None]
            asked = self._call("pgqrs_steps")
            steps = await self._driver.read(Call(asked.statement, {}, runs)) if runs else []
            yield MessagePage([_plain(row) for row in found], [_plain(row) for row in steps])
            after = found[-1]["id"]

    async def arrived(self, page: MessagePage) -> None:
        """Note that those of a page which were taken have arrived."""
        ids = [(row["id"],) for row in page.messages if row["is_open"]]
        if ids:
            await self._driver.write(Call(self._call("pgqrs_arrived").statement, {}, ids))

    def _taking(self, *, anyway: bool) -> Script[None]:
        yield self._call("pgqrs_lock")
        [row] = yield self._call("pgqrs_busy")
        if not anyway and (busy := _busy(row)) is not None:
            raise InvalidOption(
                "source", "pgqrs", f"{busy}; stop its workers first, or say that they are gone: `anyway`"
            )
        yield self._call("pgqrs_begin")
        yield self._call("pgqrs_take")

    def _call(self, template: str, taken: str | None = None, **params: str | int) -> Call:
        name = template if taken in (None, TAKEN) else f"{template}_before"
        self._statements.add(template, name, {} if taken is None else {"taken": taken})
        return Call(name, params)


def _plain(row: Row) -> dict[str, Any]:
    """A row with its moments as microseconds since 1970."""
    return {name: moment_of(cell) if isinstance(cell, datetime) else cell for name, cell in row.items()}


def _busy(row: Row) -> str | None:
    if row["taken"]:
        return f"{row['taken']} of its messages are with a consumer"
    return f"{row['polling']} of its workers have polled within two minutes" if row["polling"] else None
