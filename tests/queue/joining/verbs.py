"""Every verb that takes `tx=`, as a user of either face says it, and what it adds where no worker is alive."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stepwell import Context, Engine, Store, sync, workflow
from stepwell.store.rows import Claimed
from stepwell.store.transaction import Turns, executing
from tests.deciders.workbench import Bench, Do, double, post
from tests.queue.joining.users import User
from tests.store import seam


@workflow(name="awaiting_payment")
async def paid(ctx: Context) -> int:
    """Wait for a signal."""
    return await ctx.wait("paid", int)


class Desk:
    """A user with an engine of the same face; `subject` is a run or an instance of this cell alone."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.engine, self.other = self._engine(), self._engine()  # the other one's states are nothing to the first
        self.subject: Any = None

    def _engine(self) -> Any:
        return (Engine if self.user.is_async else sync.Engine)(self.user.store).register(Bench(), snapshot_every=2)

    async def do(self, verb: str, *args: Any, **options: Any) -> Any:
        """Use the store."""
        return await self.user.do(verb, *args, **options)

    async def ask(self, verb: str, *args: Any, **options: Any) -> Any:
        """Use the engine."""
        return await given(getattr(self.engine, verb)(*args, **options))

    def forget_workers(self) -> None:
        """Have the next trigger ask whether a worker lives: each call has as many statements as the one before."""
        store = self.user.store if self.user.is_async else self.user.store.async_store
        store.database.living._learned_at = None

    @property
    def tx(self) -> Any:
        """What is passed as `tx`."""
        return self.user.tx


Step = Callable[[Desk, str], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb; `before` is what has to be there, committed, and `adds` the rows that a commit adds to which table."""

    name: str
    call: Step
    adds: Mapping[str, int]
    before: Step


async def nothing(desk: Desk, label: str) -> None:
    """Need nothing."""


async def enqueue(desk: Desk, label: str) -> None:
    await desk.do("enqueue", post, label, key=label, tx=desk.tx)


async def enqueue_many(desk: Desk, label: str) -> None:
    await desk.do("enqueue_many", post, [label] * 3, keys=[f"{label} {n}" for n in range(3)], tx=desk.tx)


async def trigger(desk: Desk, label: str) -> None:
    await given(double.trigger(4).options(key=label).execute(desk.user.store, tx=desk.tx))


async def trigger_many(desk: Desk, label: str) -> None:
    asked = [double.trigger(1), double.trigger(2).options(key=label), paid.trigger()]
    await desk.do("trigger_many", asked, tx=desk.tx)


async def a_waiting_run(desk: Desk, label: str) -> None:
    desk.subject = await given(paid.trigger().options(require_worker="ignore").execute(desk.user.store))


async def signal(desk: Desk, label: str) -> None:
    assert await desk.do("signal", desk.subject, "paid", 4, key=label, tx=desk.tx)


async def execute(desk: Desk, label: str) -> None:
    """The first input of an instance, with all that a decision can lead to."""
    asked = Do(label, "one", ask="mail", after=3600, timer="k", run=2, message=label)
    assert (await desk.ask("execute", asked, key=label, tx=desk.tx)).outcome == "applied"


async def an_instance(desk: Desk, label: str) -> None:
    for number in range(3):  # one event more than its snapshot has
        await given(desk.other.execute(Do(label, f"{number}", after=3600, timer="k")))


async def execute_again(desk: Desk, label: str) -> None:
    asked = Do(label, "four", ask="mail", cancel="k", after=3600, timer="l")
    assert (await desk.ask("execute", asked, key=label, tx=desk.tx)).first == 4


async def execute_to_the_end(desk: Desk, label: str) -> None:
    await desk.ask("execute", Do(label, "last", end=True), tx=desk.tx)


async def execute_dynamic(desk: Desk, label: str) -> None:
    await desk.ask("execute_dynamic", "bench", {"Do": {"id": label, "label": "one"}}, tx=desk.tx)


async def submit(desk: Desk, label: str) -> None:
    await desk.ask("submit", Do(label, "later"), key=label, tx=desk.tx)


@dataclass
class Holding:
    """A session that has one task, and never beats: its lease is longer than any test."""

    id: int
    task: Claimed
    lost = False

    @property
    def held(self) -> Mapping[int, int]:
        """The turn of its task."""
        return {self.task.id: self.task.turn}


async def a_body(desk: Desk, label: str) -> None:
    """A task is executed, of a queue that no worker serves."""

    async def begun(store: Store) -> Holding:
        session = await seam.begin(store, 24 * 3600 * 1_000_000)
        return Holding(session, await seam.one(store, session, BODIES))

    store = desk.user.store
    desk.subject = await begun(store) if desk.user.is_async else store.wait_for(lambda: begun(store.async_store))


async def fence(desk: Desk, label: str) -> None:
    token = executing.set(Turns(desk.subject, [desk.subject.task]))
    try:
        await desk.do("fence", desk.tx)
    finally:
        executing.reset(token)


BODIES = "bodies"
VERBS = (
    Verb("enqueue", enqueue, {"task": 1}, nothing),
    Verb("enqueue_many", enqueue_many, {"task": 3}, nothing),
    Verb("trigger", trigger, {"task": 1}, nothing),
    Verb("trigger_many", trigger_many, {"task": 3}, nothing),
    Verb("signal", signal, {"signal": 1}, a_waiting_run),
    Verb("execute", execute, {"instance": 1, "event": 1, "receipt": 1, "task": 4}, nothing),
    Verb("execute again", execute_again, {"event": 2, "receipt": 1, "task": 2}, an_instance),
    Verb("execute to the end", execute_to_the_end, {"event": 2}, an_instance),
    Verb("execute_dynamic", execute_dynamic, {"instance": 1, "event": 1}, nothing),
    Verb("submit", submit, {"task": 1}, nothing),
    Verb("fence", fence, {}, a_body),
)


async def given(value: Any) -> Any:
    """The value, waited for where the face is async."""
    return await value if inspect.isawaitable(value) else value
