"""Every pair of verbs, at the same time, on the same rows: nobody waits for one who waits for them.

Every row that is changed takes a few milliseconds more here, so that what two verbs lock in different orders meets; and
the server looks for deadlocks at once, before a lock's timeout hides them.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import asyncpg
import pytest

from stepwell import Engine, Store, connect, workflow
from stepwell.errors import StepwellError, StoreBusy, StoreUnavailable
from stepwell.records import RunStatus, TaskKind
from stepwell.store.postgres import connection as links
from stepwell.store.postgres.connection import meaning
from stepwell.store.rows import NEVER, Claimed, Settlement, StepRow
from stepwell.store.settle import Following
from stepwell.store.transaction import Turns, executing
from stepwell.store.wait_query import TakeSignal
from tests.deciders.workbench import Bench, Do
from tests.ground.scale import Scale
from tests.ground.waiting import until
from tests.store.seam import DONE, FAILED, begin

# A family whose numbers do not rise from parent to child, and to whom they belong.
ROOT, PARENT, FIRST, SECOND, LOST, DEAD, GIVEN_UP = 1050, 1040, 1010, 1060, 1020, 1005, 1070
SUSPECT, HELD, STOPPED, STOPPED_CHILD = 1030, 1035, 1015, 1008
PARENTS: Final = {
    ROOT: None, PARENT: ROOT, FIRST: PARENT, SECOND: PARENT, LOST: PARENT, DEAD: PARENT, GIVEN_UP: ROOT,
    SUSPECT: PARENT, HELD: PARENT, STOPPED: PARENT, STOPPED_CHILD: STOPPED,
}  # fmt: skip
OURS, THEIRS, DIES = ("ours", "theirs", "dies")
OWNERS: Final = {PARENT: OURS, FIRST: OURS, ROOT: THEIRS, SECOND: THEIRS, LOST: DIES}
AGAIN: Final = Settlement(RunStatus.PENDING, attempt_back=True, input="2")
KEYS: Final = [f"k{number}" for number in range(6)]


@workflow(name="tree")
async def tree() -> None:
    """Nobody executes it."""


@dataclass
class Stage:
    """Two stores over one database, each with a session, and the family that both change."""

    stores: dict[str, Store]
    engines: dict[str, Engine]
    queue_id: int
    raw: Any
    sessions: dict[str, int] = field(default_factory=dict)
    chance: random.Random = field(default_factory=lambda: random.Random(16))

    async def begin(self) -> None:
        """The family as it was, and sessions of which any may be found dead."""
        self.sessions = {of: await begin(self.stores.get(of, self.stores[OURS])) for of in (OURS, THEIRS, DIES)}
        await self.raw.execute("delete from stepwell.task; delete from stepwell.step; delete from stepwell.signal")
        await self.raw.execute("update stepwell.queue set draining = false, paused = false")
        await self.stores[OURS].end_maintenance()
        await self.stores[OURS].create_queue("q")  # it, or the workflow, may have been deleted
        self.queue_id = await self.stores[OURS].database.workflow_id("tree", create=True)
        for task, parent in PARENTS.items():
            owner = self.sessions.get(OWNERS.get(task, ""))
            await self.raw.execute(
                "insert into stepwell.task (id, kind, queue_id, status, ready, run_at, owner, turn, attempt,"
                " max_attempts, parent_id, waiting, error, claimed_at, started_at, created_at, updated_at, finished_at)"
                " values ($1, 'RUN', $2, $3, false, 1, $4, 1, 1, 1, $5, 3, $6, 1, 1, 1, 1, $7)",
                task,
                self.queue_id,
                "ERROR" if owner is None else "RUNNING",
                owner,
                parent,
                '{"type":"E"}' if owner is None else None,
                -task if owner is None else None,  # the later ones ended first
            )
        await self.raw.execute(
            "update stepwell.task set status = 'PENDING', losses = 1, lost_by = $1, error = null, finished_at = null"
            " where id = $2",
            self.sessions[DIES],
            SUSPECT,
        )
        await self.raw.execute(
            "update stepwell.task set status = 'PAUSED', run_at = $1, error = $2, finished_at = null where id = $3",
            NEVER,
            '{"names":["one"]}',
            HELD,
        )
        await self.raw.execute(
            "update stepwell.task set status = 'CANCELLED', cancel_requested_at = 1 where id = any($1::bigint[])",
            [STOPPED, STOPPED_CHILD],
        )
        await self.raw.execute(
            "insert into stepwell.step (run_id, key, place, status, attempt, output, started_at, finished_at)"
            " values ($1, 'one#1', 0, 'SUCCESS', 1, '1', 1, 2)",
            PARENT,
        )

    def claimed(self, task: int, of: str) -> Claimed:
        """A turn of the family, as its session has it."""
        # fmt: off
        return Claimed(task, TaskKind.RUN, self.queue_id, self.sessions[of], 1, 1, 1, 0, 1, None, "null", 0,
                       False, 1, parent_id=PARENTS[task])
        # fmt: on

    def owned(self, of: str) -> list[int]:
        """What a session executes, in any order."""
        tasks = [task for task, owner in OWNERS.items() if owner == of]
        self.chance.shuffle(tasks)
        return tasks


Verb = Callable[[Stage, str], Awaitable[Any]]


def on_store(name: str, *args: Any, **options: Any) -> Verb:
    """A verb of the store."""
    return lambda stage, of: getattr(stage.stores[of], name)(*args, **options)


async def settle(stage: Stage, of: str) -> None:
    tasks, session = stage.stores[of].database.tasks, stage.sessions[of]
    await gathered(tasks.settle(task, session, 1, DONE, parent=PARENTS[task]) for task in stage.owned(of))


async def restart(stage: Stage, of: str) -> None:
    tasks, session = stage.stores[of].database.tasks, stage.sessions[of]
    await gathered(tasks.settle(task, session, 1, AGAIN, parent=PARENTS[task]) for task in stage.owned(of))


async def fail(stage: Stage, of: str) -> None:
    tasks, session = stage.stores[of].database.tasks, stage.sessions[of]
    await gathered(tasks.settle_with(task, session, 1, FAILED, Following(tells=True)) for task in stage.owned(of))


async def ask(stage: Stage, of: str) -> None:
    store = stage.stores[of]
    rows = {task: StepRow(task, 0, "go#1", 1, RunStatus.PAUSED) for task in stage.owned(of)}
    await gathered(
        store.database.run_waits.ask(TakeSignal(stage.claimed(task, of), row, ("go",), 1, True))
        for task, row in rows.items()
    )


async def signal_many(stage: Stage, of: str) -> None:
    runs = stage.chance.sample([ROOT, PARENT, FIRST, SECOND], 4)
    await stage.stores[of].signal_many([(run, "go", 1) for run in runs])


async def retag(stage: Stage, of: str) -> None:
    edits = stage.stores[of].database.task_edits
    await gathered(edits.retag(stage.claimed(task, of), "vip", on=True) for task in stage.owned(of))


async def progress(stage: Stage, of: str) -> None:
    store, session = stage.stores[of], stage.sessions[of]
    operations = [store.database.tasks.note_progress(task, session, 1, "1", None) for task in stage.owned(of)]
    await until(lambda: all(one is None or one.answered for one in operations), every=0.005)


async def enqueue(stage: Stage, of: str) -> None:
    keys = stage.chance.sample(KEYS, len(KEYS))
    await gathered(stage.stores[of].enqueue("q", 1, key=key) for key in keys)


async def enqueue_many(stage: Stage, of: str) -> None:
    await stage.stores[of].enqueue_many("q", [1] * len(KEYS), keys=stage.chance.sample(KEYS, len(KEYS)))


async def replace(stage: Stage, of: str) -> None:
    keys = stage.chance.sample(KEYS, len(KEYS))
    await stage.stores[of].enqueue_many("q", [2] * len(KEYS), keys=keys, unique="waiting", on_conflict="replace")


async def supersede(stage: Stage, of: str) -> None:
    keys = stage.chance.sample(KEYS, len(KEYS))
    await stage.stores[of].enqueue_many("q", [3] * len(KEYS), keys=keys, newest=True)


async def trigger_many(stage: Stage, of: str) -> None:
    keys = stage.chance.sample(KEYS, len(KEYS))
    await stage.stores[of].trigger_many([tree.trigger().options(key=key, require_worker="ignore") for key in keys])


async def claim(stage: Stage, of: str) -> None:
    await stage.stores[of].database.tasks.claim(stage.sessions[of], [(stage.queue_id, 5)], 5)


async def claim_alone(stage: Stage, of: str) -> None:
    await stage.stores[of].database.suspects.claim(stage.sessions[of], [stage.queue_id], beside=True)


async def acquit(stage: Stage, of: str) -> None:
    await stage.stores[of].database.sessions.acquit(stage.sessions[DIES])


async def body(stage: Stage, of: str) -> None:
    """A transaction of a body, which asks for its turns last."""
    tasks = [stage.claimed(task, of) for task in stage.owned(of)]
    session: Any = SimpleNamespace(
        id=stage.sessions[of], held={task.id: task.turn for task in tasks}, lost=False, lease=60.0
    )
    executing.set(Turns(session, tasks))
    async with stage.stores[of].transaction() as tx:
        await stage.stores[of].enqueue("q", 1, key=KEYS[0], tx=tx)


def recover(*whose: str) -> Verb:
    """Take sessions for dead: one that is, or the other's, which is just about to write."""

    async def verb(stage: Stage, of: str) -> None:
        store = stage.stores[of]
        dead = {stage.sessions[one] for one in whose if one != of}
        for one in await store.database.sessions.living():
            if one.worker_id in dead:
                await store.database.sessions.bury(one)
        await store.database.sessions.return_stranded()

    return verb


async def decide(stage: Stage, of: str) -> None:
    ids = stage.chance.sample(["a", "b", "c", "d"], 4)
    await gathered(stage.engines[of].execute(Do(name, timer="t", after=60)) for name in ids)


async def submit(stage: Stage, of: str) -> None:
    """Inputs of several instances, in any order, some in one transaction; then decide those that are first."""
    engine, ids = stage.engines[of], stage.chance.sample(["a", "b", "c", "d"], 4)
    await gathered(engine.submit(Do(name)) for name in ids)
    queue = await stage.stores[of].database.queue_id("bench:inputs")
    claimed = await stage.stores[of].database.tasks.claim(stage.sessions[of], [(queue, 10)], 10)
    settle = stage.stores[of].database.tasks.settle
    await gathered(settle(one.id, one.owner, one.turn, DONE, group=(queue, str(one.group_key))) for one in claimed)


async def let_go(stage: Stage, of: str) -> None:
    await stage.stores[of].database.control.let_go_held([stage.queue_id], "other code")


async def tidy(stage: Stage, of: str) -> None:
    await stage.stores[of].database.retention.round()


async def wake(stage: Stage, of: str) -> None:
    await stage.stores[of].database.tasks.wake()


VERBS: Final[dict[str, Verb]] = {
    "settle": settle,
    "restart": restart,
    "fail": fail,
    "ask": ask,
    "progress": progress,
    "cancel root": on_store("cancel", ROOT),
    "cancel parent": on_store("cancel", PARENT),
    "cancel child": on_store("cancel", FIRST),
    "cancel all": on_store("cancel_runs", workflow="tree"),
    "pause": on_store("pause", PARENT),
    "unpause": on_store("unpause", PARENT),
    "signal": on_store("signal", PARENT, "go", 1),
    "resume": on_store("resume", PARENT, "go", 1),
    "accept": on_store("accept", HELD),
    "retry": on_store("retry", DEAD),
    "retry cancelled": on_store("retry", STOPPED),
    "reschedule": on_store("reschedule", SUSPECT, delay=0),
    "signal many": signal_many,
    "tag": retag,
    "retry all": on_store("retry_runs", workflow="tree"),
    "requeue": on_store("requeue", queue="tree"),
    "drop": on_store("drop", queue="tree"),
    "fork": on_store("fork", PARENT, at="one"),
    "delete": on_store("delete", SECOND),  # whose parent has the lower number
    "restore": on_store("restore", SECOND),
    "delete all": on_store("delete_runs", workflow="tree"),
    "purge": on_store("purge", "tree"),
    "prune": on_store("prune", 0, dead_letters=True),
    "drain": on_store("drain_queue", "tree"),
    "reopen": on_store("reopen_queue", "tree"),
    "pause queue": on_store("pause_queue", "tree"),
    "resume queue": on_store("resume_queue", "tree"),
    "delete queue": on_store("delete_queue", "q"),
    "delete workflow": on_store("delete_workflow", "tree"),
    "begin maintenance": on_store("begin_maintenance"),
    "end maintenance": on_store("end_maintenance"),
    "dequeue": on_store("dequeue", "q"),
    "enqueue": enqueue,
    "enqueue many": enqueue_many,
    "trigger many": trigger_many,
    "replace": replace,
    "supersede": supersede,
    "claim": claim,
    "claim alone": claim_alone,
    "acquit": acquit,
    "a transaction in a body": body,
    "recover": recover(DIES),
    "recover the other": recover(OURS, THEIRS),
    "let go": let_go,
    "tidy": tidy,
    "wake": wake,
    "decide": decide,
    "submit": submit,
    "drop inputs": on_store("drop", queue="bench:inputs"),
    "purge inputs": on_store("purge", "bench:inputs"),
}


async def gathered(calls: Any) -> None:
    """All of them at once; raises the first error after the last of them is over."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer


@asynccontextmanager
async def stage(url: str) -> AsyncIterator[Stage]:
    raw = await asyncpg.connect(url)
    try:
        name = await raw.fetchval("select current_database()")
        await raw.execute(f"alter database {name} set deadlock_timeout = '5ms'")
        async with connect(url, listen=False) as ours, connect(url, listen=False) as theirs:
            stores = {OURS: ours, THEIRS: theirs}
            await ours.create_queue("q")
            queue_id = await ours.database.workflow_id("tree", create=True)
            engines = {of: Engine(store).register(Bench()) for of, store in stores.items()}
            await engines[OURS].execute(Do("a"))
            for table in ("task", "instance"):
                await raw.execute(
                    "create function stepwell.late() returns trigger language plpgsql as"
                    " $$ begin perform pg_sleep(0.003); return coalesce(new, old); end $$"
                    if table == "task"
                    else "select 1"
                )
                await raw.execute(
                    f"create trigger late before update or delete on stepwell.{table}"
                    " for each row execute function stepwell.late()"
                )
            yield Stage(stores, engines, queue_id, raw)
        # Those who have left have told the server what they counted.
        assert not await raw.fetchval("select deadlocks from pg_stat_database where datname = current_database()")
    finally:
        await raw.close()


TOGETHER: Final = 5  # verbs in one test, which makes its stage once


@pytest.mark.timeout(600)
@pytest.mark.proves("rule-23", "protocol-15")
@pytest.mark.backends(
    "postgres", reason="an embedded database has one writer: nobody holds one row and waits for another"
)
@pytest.mark.parametrize("begin", range(0, len(VERBS), TOGETHER), ids=lambda begin: list(VERBS)[begin])
async def test_no_two_verbs_wait_for_each_other(
    store_url: str, begin: int, scale: Scale, monkeypatch: pytest.MonkeyPatch, measured: Callable[..., None]
) -> None:
    met = list[str]()

    def noted(state: str, error: object) -> StepwellError:
        met.append(state)
        return meaning(state, error)

    monkeypatch.setattr(links, "meaning", noted)
    async with stage(store_url) as on:
        for place, first in list(enumerate(VERBS))[begin : begin + TOGETHER]:
            # Small: all with the one that everybody does, twice, and of the other pairs a sixth.
            every, times = scale.of((1, 2) if place == 0 else (6, 1), (1, 5))
            chosen = [name for at, name in enumerate(VERBS) if at >= place and (at + place) % every == 0]
            for second, time in itertools.product(chosen, range(times)):
                met.clear()
                await _play(on, first, second, swapped=time % 2 == 1)
                assert "40P01" not in met, f"{first} and {second} waited for each other"
            measured("deadlocks", first=first, pairs=len(chosen) * times)


async def _play(on: Stage, first: str, second: str, *, swapped: bool) -> None:
    """Both at once, by one side each."""
    await on.begin()
    ours, theirs = (THEIRS, OURS) if swapped else (OURS, THEIRS)
    calls = [VERBS[first](on, ours), VERBS[second](on, theirs)]
    answers = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 20)
    wrong = [one for one in answers if isinstance(one, StoreBusy | StoreUnavailable) or _is_strange(one)]
    assert not wrong, f"{first} beside {second}"


@pytest.mark.proves("rule-23", "protocol-15")
@pytest.mark.backends("postgres", reason="an embedded database has one writer")
@pytest.mark.parametrize("name", ["settle", "delete", "delete all"])
async def test_who_waits_for_a_parent_holds_none_of_its_children(store_url: str, name: str) -> None:
    """Its number is the lower one, so that it is locked first; each try for it ends soon, and then begins anew."""
    asking = (
        "with free as (select id from stepwell.task where id = $1 for update skip locked)"
        " select (select count(*) from free) as free, (select count(*) from pg_stat_activity"
        " where wait_event_type = 'Lock' and $2 = any(pg_blocking_pids(pid))) as waiting"
    )
    async with stage(store_url) as on:
        await on.begin()
        holder = await asyncpg.connect(store_url)
        async with holder.transaction():
            await holder.execute("select 1 from stepwell.task where id = $1 for update", PARENT)
            verb = asyncio.ensure_future(VERBS[name](on, THEIRS))
            seen: list[int] = []
            while len(seen) < 3:
                row = await on.raw.fetchrow(asking, SECOND, holder.get_server_pid())
                seen += [row["free"]] if row["waiting"] else []
                assert not verb.done(), "it needs nothing of what is held: void"
        await asyncio.wait_for(verb, 20)
        await holder.close()
    assert seen == [1, 1, 1]


def _is_strange(answer: object) -> bool:
    return isinstance(answer, BaseException) and not isinstance(answer, StepwellError)
