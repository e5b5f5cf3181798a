"""The table of `tx=`: for every library, verb and end of the transaction, whether what was promised is there."""

import asyncio
import itertools
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import pytest

from stepwell import StepwellError, StoreUnavailable, sync
from stepwell.store.driver import Call
from tests.queue.joining.users import User
from tests.queue.joining.verbs import VERBS, Desk, Verb

Fault = Literal["program", "refused", "failed"]
KINDS: tuple[Fault, ...] = get_args(Fault)
ENDS = ("commit", "rollback", "error caught")
FACTS = """
select 'task' as place, cast(id as text) as what from {task} where id > MARK
union all select 'status', cast(id as text) || status from {task} where id > MARK
union all select 'signal', cast(run_id as text) || name || cast(place as text) from {signal} where run_id > MARK
union all select 'instance', type || name || cast(version as text) from {instance} where id > MARK
union all select 'event', cast(instance_id as text) || ' ' || cast(version as text)
  from {event} where instance_id > MARK
union all select 'receipt', cast(instance_id as text) || ' ' || key from {receipt} where instance_id > MARK
union all select 'queue', name from {queue}
union all select 'order', label from orders
"""
UNFINISHED = """
select count(*) as open from {task} where status in ('PENDING', 'RUNNING') and kind <> 'TIMER'
   and queue_id not in (select id from {queue} where name = 'bodies')
"""
LAST = "select max(id) as id from {task}"  # what is added later has a higher number: a store reserves its own
ENOUGH = 10  # wrong cells, after which the table ends: a broken rule is seen soon, and told of
FAILED = "select count(*) as failed from {task} where status = 'ERROR'"


class Stop(Exception):  # noqa: N818 - what a defect of this program would raise
    """A fault that is no error of the database."""


@dataclass
class Table:
    """What was tried, and what of it was wrong."""

    store: sync.Store  # another one, through which the table looks
    is_alive: bool  # whether a worker lives
    faults_of: Literal["last", "each", "all"]  # statements: the last one, each in one transaction, all of every kind
    undoes_all: bool  # Turso undoes the whole transaction after an error that is no violated constraint
    mark: int = 0  # whatever has a number up to this is another library's
    _said: int = 0  # how many statements the call of this cell is
    _told: str = ""  # the error that was caught last
    cells: int = 0
    faults: int = 0
    wrong: list[str] = field(default_factory=list)
    statements: set[str] = field(default_factory=set)

    def fill(self, user: User, verbs: Sequence[Verb] = VERBS) -> None:
        """Try these verbs with every end, through one library."""
        user.run(self._filled(user, verbs))

    async def _filled(self, user: User, verbs: Sequence[Verb]) -> None:
        async with user:
            desk = Desk(user)
            self.mark = asked(self.store, LAST)[0]["id"]
            for verb, end in itertools.product(verbs, ENDS):
                self.cells += 1
                label = f"{type(user).__name__} {verb.name} {end}"
                try:
                    await self._cell(desk, verb, end, label)
                except Exception as error:  # noqa: BLE001 - the table tells of all that is wrong in it
                    self.wrong.append(f"{label}: {type(error).__name__}: {error} at {place_of(error)}")
                    if len(self.wrong) == ENOUGH:
                        pytest.fail("\n".join([*self.wrong, f"enough after {self.cells} cells"]))
                    await user.leave()

    async def _cell(self, desk: Desk, verb: Verb, end: str, label: str) -> None:
        await verb.before(desk, label)
        before = self._facts()
        if end == "commit":
            await self._in_transaction(desk, verb, label)
            self._check(verb, before, self._facts())
        elif end == "rollback":
            await self._in_transaction(desk, verb, label, undone=True)
            self._check_same(before)
        else:
            if self.faults_of != "last":
                await self._after_each_fault(desk, verb, label, before)
            for kind, at in self._places(self._said):
                await self._after_a_fault(desk, verb, label, kind, at)

    async def _after_each_fault(self, desk: Desk, verb: Verb, label: str, before: Counter[tuple[str, str]]) -> None:
        """A transaction in which the call fails at each of its statements, time after time, and then succeeds."""
        user = desk.user
        await user.begin()
        await user.ask(f"insert into orders values ('{label}')")
        for at in itertools.count(1):
            kind: Fault = "program" if at % 2 else "refused"  # the first is the savepoint: before it nothing is undone
            if not await self._faulty(desk, verb, label, kind, at):
                break
        await user.commit()
        self._check(verb, before, self._facts())
        assert at == self._said + 1

    async def _after_a_fault(self, desk: Desk, verb: Verb, label: str, kind: Fault, at: int) -> None:
        """The caller catches the error and commits: what is theirs is there, and nothing of the call."""
        label = f"{label} {kind} {at}"
        await verb.before(desk, label)
        before = self._facts()
        await desk.user.begin()
        await desk.user.ask(f"insert into orders values ('{label}')")
        assert await self._faulty(desk, verb, label, kind, at)
        if kind == "failed" and self.undoes_all:
            with pytest.raises(StoreUnavailable, match="undone by the database"):
                await desk.user.commit()
        else:
            await desk.user.commit()
            before["order", label] += 1
        self._check_same(before)

    async def _faulty(self, desk: Desk, verb: Verb, label: str, kind: Fault, at: int) -> bool:
        """Call with a fault at that statement; False if it has fewer."""
        desk.forget_workers()
        with fault(desk.user, kind, at, self.statements) as landed:
            try:
                await verb.call(desk, label)
            except (StepwellError, Stop) as error:
                self._told = f"after {error!r} (by {error.__cause__!r}) at {landed}"
                assert len(landed) >= at, self._told
                self.faults += 1
                return True
        assert len(landed) < at, "a fault was swallowed"
        return False

    def _places(self, said: int) -> Sequence[tuple[Fault, int]]:
        if self.faults_of == "all":
            return [("program", 1), *itertools.product(KINDS, range(2, said + 1))]
        return [("failed", said)]

    async def _in_transaction(self, desk: Desk, verb: Verb, label: str, *, undone: bool = False) -> None:
        user = desk.user
        await user.begin()
        await user.ask(f"insert into orders values ('{label}')")
        desk.forget_workers()
        with fault(user, "program", 0, self.statements) as told:
            await verb.call(desk, label)
        self._said = len(told)
        await (user.rollback() if undone else user.commit())

    def _check_same(self, before: Counter[tuple[str, str]]) -> None:
        after = self._facts()
        assert after == before, f"came: {sorted(after - before)}, went: {sorted(before - after)} {self._told}"

    def _check(self, verb: Verb, before: Counter[tuple[str, str]], after: Counter[tuple[str, str]]) -> None:
        """Exactly what a commit adds is there; and where a worker lives, whatever that led to as well."""
        added = Counter(place for place, _ in after - before)
        wanted = {**verb.adds, "order": 1}
        places = ("task", "signal", "instance", "event", "receipt", "queue", "order")
        found = {place: added[place] for place in places}
        if self.is_alive:
            assert all(found[place] >= wanted.get(place, 0) for place in places), f"{found} and not {wanted}"
        else:
            if "event" in wanted and "instance" not in wanted:
                wanted["instance"] = 1  # its version
            assert found == {place: wanted.get(place, 0) for place in places}

    def _facts(self) -> Counter[tuple[str, str]]:
        """All that is there, once nothing moves any more."""
        deadline = time.monotonic() + 20
        if self.is_alive:
            hint(self.store)
        while self.is_alive and asked(self.store, UNFINISHED)[0]["open"]:
            assert time.monotonic() < deadline, "the worker has not done what was committed"
            time.sleep(0.002)
        assert not asked(self.store, FAILED)[0]["failed"]
        return Counter((row["place"], row["what"]) for row in asked(self.store, FACTS.replace("MARK", str(self.mark))))


def place_of(error: BaseException) -> str:
    """Where it was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.name}: {last.line}"


def hint(store: sync.Store) -> None:
    """Have the worker look now: nobody tells it what the user's own connection has committed."""
    behind = store.async_store
    queues = {row["id"] for row in asked(store, "select id from {queue}")}
    behind.database.loop.call_soon_threadsafe(behind.database.wakeups.hint, queues)


def asked(store: sync.Store, question: str) -> list[Any]:
    """What the database answers somebody else."""
    text = store.async_store.database.statements._macros.fill(question)

    async def ask() -> list[Any]:
        driver: Any = store.async_store.database.driver
        if driver.name == "postgres":
            async with driver._spare_link() as link:
                return list(await link.fetch(text, ()))
        return list(
            await asyncio.wrap_future(driver._reader.submit(lambda connection: connection.execute(text).fetchall()))
        )

    return asyncio.run_coroutine_threadsafe(ask(), store.async_store.database.loop).result(20)


@contextmanager
def fault(user: User, kind: Fault, at: int, said: set[str]) -> Iterator[list[str]]:
    """Have the statement with this number fail: in the database, or in this program before it gets there.

    What was said up to then comes back; with the number 0 nothing fails.
    """
    driver = (user.store if user.is_async else user.store.async_store).database.driver
    landed: list[str] = []
    token = calling.set(True)

    def is_due(call: Call) -> bool:
        if call.statement in UNCOUNTED or (driver.name == "postgres" and not calling.get()):
            return False
        said.add(call.statement)
        landed.append(call.statement)
        if len(landed) != at:
            return False
        if kind == "program":
            raise Stop(call.statement)
        return True

    with pytest.MonkeyPatch.context() as patch:
        if driver.name == "postgres":
            compose = driver._composer.compose
            broken: tuple[str, list[Any]] = ("select 1 / 0" if kind == "refused" else "select nothing", [])
            patch.setattr(driver._composer, "compose", lambda calls: broken if is_due(calls[0]) else compose(calls))
            for verb in ("read", "write", "run", "transact"):
                patch.setattr(driver, verb, _uncounted(getattr(driver, verb)))
        else:
            each = driver._statements.each
            violation = "insert into stepwell_block (name, taken) values ('task', 1)"
            wrong: list[tuple[str, dict[str, Any]]] = [
                (violation if kind == "refused" else "select abs(-9223372036854775808)", {})
            ]
            patch.setattr(driver._statements, "each", lambda call, rows: wrong if is_due(call) else each(call, rows))
        try:
            yield landed
        finally:
            calling.reset(token)


def _uncounted(verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """What goes through a connection of the store's own is no part of the transaction: a queue that is looked for."""

    async def call(*args: Any, **options: Any) -> Any:
        token = calling.set(False)
        try:
            return await verb(*args, **options)
        finally:
            calling.reset(token)

    return call


calling = ContextVar("calling", default=False)  # not so in what a store does by itself; a file has one thread for all
UNCOUNTED = frozenset({"rollback_to_savepoint", "notify"})  # what undoes; and what the store tells by itself
