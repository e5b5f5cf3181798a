"""Requests: signals whose senders wait for the answer of the run; both are kept, so either may come back later."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec

from stepwell.base.durations import Duration, seconds_of
from stepwell.base.names import REQUEST, check_id, check_key, check_name
from stepwell.errors import RequestRefused, RequestUnanswered, RunNotFound, Timeout
from stepwell.records import RunStatus
from stepwell.store.audit import UNSAID_BY, By
from stepwell.store.driver import Call, Row
from stepwell.store.results import Awaiting
from stepwell.store.run_key import WhichRun
from stepwell.values.stamp import read_value

Sent = tuple[int, str, str]  # a run, the name of a request as it is kept, and its key
OWN_KEY: Final = "~"


class ReplyRead(msgspec.Struct, frozen=True):
    """What became of a request: a reply as JSON, a reason why not, or neither, since its run does not answer it."""

    status: RunStatus
    reply: str | None
    refused: str | None
    answered: bool


class Asks(Awaiting[Sent, ReplyRead]):
    """Sends requests to runs, and all callers in this process that wait for an answer."""

    _name = "asks"

    async def ask(
        self,
        run: WhichRun,
        name: str,
        data: Any,
        as_: Any,
        by: By = UNSAID_BY,
        *,
        timeout: Duration | None,
        key: str | None,
        check: bool,
    ) -> Any:
        """Send a request, unless one of this key was sent before, and wait for its answer."""
        self._db.check()
        check_name("request", name)
        seconds = None if timeout is None else seconds_of(timeout, "timeout")
        key = f"{OWN_KEY}{uuid.uuid4().hex}" if key is None else check_key(key)
        run_id = check_id(await self._db.run_id(run))
        await self._db.signals.request(run_id, name, data, key, by, check=check)
        return await self._answer((int(run_id), REQUEST + name, key), name, as_, seconds)

    async def _answer(self, sent: Sent, name: str, as_: Any, seconds: float | None) -> Any:
        run_id, _, key = sent
        try:
            found = await self._awaited(sent, seconds)
        except RunNotFound:
            raise await self._db.no_run(run_id) from None
        if found is None:
            told = (
                f"run {run_id} has not answered the request {name!r} in {seconds:g} s; the request stays: ask again "
                f"with `key={key!r}` to wait for the same answer"
            )
            raise Timeout(told, seconds=seconds) from self._trouble
        if not found.answered:
            raise RequestUnanswered(run_id, name, found.status)
        if found.refused is not None:
            raise RequestRefused(run_id, name, found.refused)
        return read_value(found.reply or "null", as_, what=f"reply of run {run_id} to {name}")

    def _waited_of(self, run_ids: frozenset[int]) -> Collection[Sent]:
        return [sent for sent in self._waiting if sent[0] in run_ids]

    def _asking(self, some: Sequence[Sent]) -> Call:
        return Call("answers", self._db.params(), some)

    def _learn(self, some: Sequence[Sent], rows: list[Row]) -> bool:
        found = {(row["run_id"], row["name"], row["key"]): row for row in rows}
        heard = False
        for sent in some:
            row = found.get(sent)
            if row is None:
                self._end(sent, RunNotFound(sent[0]))
            elif row["answered_at"] is not None or row["ended"] or row["place"] is None:
                answered = row["answered_at"] is not None
                self._end(sent, ReplyRead(RunStatus(row["status"]), row["reply"], row["refused"], answered))
            else:
                continue
            heard = True
        return heard
