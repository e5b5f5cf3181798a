"""Several tenants in one database, kept apart by the schema or by the tenant that their stores say."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from stepwell import (
    Context,
    DeciderNotFound,
    Encrypted,
    Engine,
    Every,
    Keyring,
    Message,
    NoWorkerAvailable,
    PermanentError,
    ProjectionNotFound,
    QueueNotFound,
    RunId,
    RunNotFound,
    ScheduleNotFound,
    SignalAnswer,
    Store,
    SubjectForgotten,
    Timeout,
    Worker,
    WorkflowNotFound,
    connect,
    handler,
    headers,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.base.durations import EPOCH
from stepwell.store.subject_keys import SubjectKeys
from tests.deciders.workbench import Bench, Do, labels
from tests.queue.raw import ask
from tests.store.seam import do

done: list[tuple[str, Any]] = []


@handler("mail", retry=1)
async def mail(payload: str) -> None:
    if payload == "bad":
        raise PermanentError("no address")
    done.append(("mail", payload))


@workflow
async def approve(ctx: Context, what: str) -> str:
    if what == "trifle":
        return "of course"
    if what == "nothing":
        raise PermanentError("nothing to approve")
    ctx.set_value("paper", what)
    logging.getLogger("approve").warning(what)
    ctx.stream("log").write(what)
    return f"{what} by {await ctx.wait('approved', str)}"


@workflow
async def curious(ctx: Context, run_id: int) -> Any:
    return await ctx.results([RunId(run_id)])


@dataclass(frozen=True)
class Filled:
    """A store in which there is one of everything, and the ids of what is in it."""

    store: Store
    message: int
    taken: Message[Any]
    dead: int
    run: RunId[str]
    failed: RunId[str]
    done: RunId[str]
    deleted: RunId[str]


async def filled(store: Store, who: str) -> Filled:
    """Fill a store: what is waiting, done, dead, failed and deleted, each under the same names and keys everywhere."""
    engine = Engine(store).register(Bench())
    await store.enqueue(mail, "before")
    dead = await store.enqueue(mail, "bad", key="bad")
    papers = (who, "nothing", "trifle", "gone")
    approvals = [approve.trigger(what).options(key=what, require_worker="ignore") for what in papers]
    run, failed, finished, deleted = [await one.execute(store) for one in approvals]
    await store.delete(deleted, "for a test")
    receipt = await engine.execute(Do("a", who, ask="mail", after=60, timer="t"), key="click")
    await engine.submit(Do("b", who))
    await Worker(store, [mail, approve]).drain()
    message = await store.enqueue(mail, who, key="one")
    await store.database.projections.make("shelf")
    await do(store, """update {projection} set tables = '{"shelf": ""}'""")
    parked = "insert into {parked} (tenant, projection, instance_id, version, error, parked_at)"
    instances = "select tenant, 'shelf', id, 1, 'E', 1 from {instance} where true on conflict do nothing"
    await do(store, f"{parked} {instances}")
    await store.schedule("yearly", approve.trigger(who), Every("365d"))
    tick = "insert into {tick} (schedule_id, due_at, kind, outcome, decided_at)"
    await do(
        store, f"{tick} select id, 1, 'tick', 'skipped', {10**17} from {{schedule}} where true on conflict do nothing"
    )
    await store.create_queue("by_hand")
    await store.enqueue("by_hand", who)
    [taken] = await store.dequeue("by_hand", visibility="60d")
    assert (receipt.outcome, message.created, dead.created, run.created) == ("applied", True, True, True)
    return Filled(store, message, taken, dead, run, failed, finished, deleted)


async def seen(one: Filled) -> list[Any]:
    """What a store tells of itself, as far as tenants with the same contents tell the same."""
    store, engine = one.store, Engine(one.store).register(Bench())
    return [
        [(queue.name, await store.counts(queue.name)) for queue in await store.queues()],
        [(letter.queue, letter.last_error) for letter in await store.dead_letters()],
        [run.status for run in await store.runs("approve")],
        [(each.id, each.version) for each in await engine.instances()],
        len(await engine.outstanding("bench", "a")),
        len(await store.workers()),
    ]


SHARED = ("task", "step", "signal", "instance", "event", "receipt", "audit", "tick")
OWNED = ("queue", "worker", "maintenance", "projection", "parked", "schedule")


async def everything_of_ann(store: Store) -> list[Any]:
    """All that the tables have, where nobody else has any work."""
    rows = [await ask(store, f"select * from {{{table}}} order by 1, 2") for table in SHARED if table != "audit"]
    rows.append(await ask(store, "select * from {audit} where task_id > 0 or tenant = 'ann' order by 1, 2"))
    return rows + [await ask(store, f"select * from {{{table}}} where tenant = 'ann' order by 1") for table in OWNED]


Verb = Callable[[Store], Awaitable[object]]


def reading(one: Filled) -> dict[str, Verb]:
    """Every way to read of a store, asked for what another tenant has."""
    return {
        "get": lambda store: store.get(one.message, deleted=True),
        "get_run": lambda store: store.get_run(one.run, deleted=True),
        "get_workflow_run": lambda store: store.get_workflow_run(one.run),
        "steps": lambda store: store.steps(one.run),
        "result": lambda store: store.result(one.run, timeout=0),
        "value": lambda store: store.value(one.run, "paper", timeout=0),
        "values": lambda store: store.values(one.run),
        "stream": lambda store: anext(store.stream(one.run, "log")),
        "logs": lambda store: anext(store.logs(one.run)),
        "history": lambda store: store.history(one.failed),
        "audit": lambda store: store.audit(),
        "why": lambda store: store.why(one.run),
        "signals": lambda store: store.signals(one.run),
        "runs": lambda store: store.runs(),
        "runs of a parent": lambda store: store.runs(parent=one.run),
        "runs deleted": lambda store: store.runs(deleted=True),
        "find_run": lambda store: store.find_run("approve", "nothing"),
        "workflows": lambda store: store.workflows(),
        "get_workflow": lambda store: store.get_workflow("approve"),
        "queues": lambda store: store.queues(),
        "queue_stats": lambda store: store.queue_stats(),
        "counts": lambda store: store.counts("mail"),
        "dequeue": lambda store: store.dequeue("mail"),
        "taken": lambda store: store.taken(one.taken.id, one.taken.turn),
        "messages": lambda store: store.messages("mail"),
        "dead_letters": lambda store: store.dead_letters(),
        "queue_metrics": lambda store: store.queue_metrics(window="60d"),
        "dead_letter_counts": lambda store: store.dead_letter_counts(),
        "metrics": lambda store: store.metrics("approve"),
        "metrics_by_workflow": lambda store: store.metrics_by_workflow(),
        "prometheus": _told_of_approvals,
        "set_aside": lambda store: store.set_aside(),
        "stored_versions": lambda store: store.stored_versions(),
        "projections": lambda store: store.projections(),
        "ordered_groups": lambda store: store.ordered_groups(),
        "parked": lambda store: store.parked("shelf"),
        "schedules": lambda store: store.schedules(),
        "get_schedule": lambda store: store.get_schedule("yearly"),
        "next_ticks": lambda store: store.next_ticks("yearly"),
        "ticks": lambda store: store.ticks("yearly"),
        "events_since": _events_since,
        "unserved": lambda store: store.unserved(),
        "workers": lambda store: store.workers(),
        "maintenance": lambda store: store.maintenance(),
        "instances": lambda store: Engine(store).instances(),
        "events": lambda store: Engine(store).register(Bench()).events("bench", "a"),
        "state": lambda store: labels(Engine(store).register(Bench())),
        "outstanding": lambda store: Engine(store).outstanding("bench", "a"),
    }


async def _events_since(store: Store) -> object:
    return (await Engine(store).register(Bench()).events_since(0, 100)).events


async def _told_of_approvals(store: Store) -> list[str]:
    """The lines about a queue, a workflow or a worker."""
    text = await store.prometheus(events=False)
    return [line for line in text.splitlines() if "mail" in line or "approve" in line or "bench" in line]


def changing(one: Filled) -> dict[str, Verb]:
    """Every way to change by its number, or all at once, what another tenant has."""
    return {
        "cancel": lambda store: store.cancel(one.run),
        "cancel_runs": lambda store: store.cancel_runs(everything=True),
        "pause": lambda store: store.pause(one.run),
        "unpause": lambda store: store.unpause(one.run),
        "accept": lambda store: store.accept(one.run),
        "resolve": lambda store: store.resolve(one.run, "act", done=True),
        "retry": lambda store: store.retry(one.failed),
        "retry_runs": lambda store: store.retry_runs(everything=True),
        "fork": lambda store: store.fork(one.run, at="approved"),
        "ask": lambda store: store.ask(one.run, "paper", 1, timeout=0),
        "signal": lambda store: store.signal(one.run, "approved", "mallory"),
        "signal_many": lambda store: store.signal_many([(one.run, "approved", "mallory")]),
        "reschedule": lambda store: store.reschedule(one.message, priority=9),
        "resume": lambda store: store.resume(one.run, "approved", "mallory"),
        "delete": lambda store: store.delete(one.message),
        "release": lambda store: store.release(one.taken.id),
        "archive what waits": lambda store: store.archive(one.message),
        "archive": lambda store: store.archive(one.taken.id),
        "delete_runs": lambda store: store.delete_runs(everything=True),
        "restore": lambda store: store.restore(one.deleted),
        "requeue": lambda store: store.requeue(one.dead),
        "drop": lambda store: store.drop(one.dead),
        "requeue all": lambda store: store.requeue(queue="mail"),
        "drop all": lambda store: store.drop(error="PermanentError"),
        "prune": lambda store: store.prune(0, dead_letters=True),
        "prune for show": lambda store: store.prune(0, dead_letters=True, dry_run=True),
        "upkeep": lambda store: store.database.retention.round(),
        "purge": lambda store: store.purge("mail"),
        "resume_queue": lambda store: store.resume_queue("mail"),
        "pause_queue": lambda store: store.pause_queue("mail"),
        "reopen_queue": lambda store: store.reopen_queue("mail"),
        "drain_queue": lambda store: store.drain_queue("mail"),
        "end_maintenance": lambda store: store.end_maintenance(),
        "delete_queue": lambda store: store.delete_queue("mail"),
        "delete_workflow": lambda store: store.delete_workflow("approve"),
        "pause_projection": lambda store: store.pause_projection("shelf"),
        "resume_projection": lambda store: store.resume_projection("shelf"),
        "reset_projection": lambda store: store.reset_projection("shelf"),
        "inline_projection": lambda store: store.inline_projection("shelf", inline=False),
        "rebuild_projection": lambda store: store.rebuild_projection("shelf"),
        "swap_projection": lambda store: store.swap_projection("shelf"),
        "retry_projection": lambda store: store.retry_projection("shelf", ("bench", "a")),
        "update_schedule": lambda store: store.update_schedule("yearly", every="10d"),
        "reset_schedule": lambda store: store.reset_schedule("yearly"),
        "delete_schedule": lambda store: store.delete_schedule("yearly"),
        "backfill_schedule": lambda store: store.backfill_schedule("yearly", EPOCH, EPOCH),
        "pause_schedule": lambda store: store.pause_schedule("yearly"),
        "resume_schedule": lambda store: store.resume_schedule("yearly"),
        "run_schedule": lambda store: store.run_schedule("yearly"),
        "ticks of schedules": lambda store: store.database.ticks.fire(),
        "skip_in_projection": lambda store: store.skip_in_projection("shelf", ("bench", "a")),
    }


ADDING = {"create_queue", "create_workflow", "define", "register_workflow", "enqueue", "enqueue_many", "trigger"}
ADDING |= {"broadcast", "emit", "schedule", "trigger_many", "add", "add_in_this_thread", "begin_maintenance"}
SAME_AS_ANOTHER = {
    "consume",
    "signal_in_this_thread",
}  # `dequeue` again and again; `signal` in the caller's transaction
NO_VERBS = {"check", "close", "health", "joining", "known", "loop", "queue_id", "transaction", "workflow_id"}
NO_VERBS |= {"draft", "draft_children", "drafted_runs", "play_joined", "play_joined_here", "fence", "share"}
NO_VERBS |= {"rotate_keys"}  # of a store that is encrypted, and of its own tenant alone
OF_ENCRYPTED = {"forget_subject"}  # asked below
NO_VERBS |= {"seal_audit", "verify_audit"}  # seals stand over the notes of all, and tell how many there are
NO_VERBS |= {"limits"}  # a noun: its verbs name a queue, and queues are the tenant's
NO_VERBS |= {"fence_in_this_thread", "share_in_this_thread", "any_held", "let_go_held"}
NO_VERBS |= {
    "feed",
    "projection_verbs",
    "build_verbs",
    "rows",
    "appenders",
}  # the last tells of transactions of the whole server, not of rows


@asynccontextmanager
async def two(url: str, clock: TestClock, option: str, **more: Any) -> AsyncIterator[tuple[Store, Store]]:
    """Two stores in one database that say another schema or tenant."""
    ours: dict[str, Any] = {option: "ann", **more}
    theirs: dict[str, Any] = {option: "bob", **more}
    async with connect(url, clock=clock, audit="all", **ours) as one, connect(url, clock=clock, **theirs) as other:
        yield one, other


@pytest.mark.proves("MT-01")
async def test_stores_with_different_schemas_never_see_each_other(store_url: str, clock: TestClock) -> None:
    await _apart(store_url, clock, "schema")


@pytest.mark.proves("MT-02")
async def test_stores_of_different_tenants_never_see_each_other_and_have_their_own_keys(
    store_url: str, clock: TestClock
) -> None:
    await _apart(store_url, clock, "tenant")


async def _apart(url: str, clock: TestClock, option: str) -> None:
    """Equal names and keys are no meeting: each has all of its own, and its workers take no other's."""
    async with two(url, clock, option) as (ann, bob):
        ours, theirs = await filled(ann, "ann"), await filled(bob, "bob")
        assert await seen(ours) == await seen(theirs)
        done.clear()
        assert await Worker(bob, [mail, approve]).drain() == 1
        assert done == [("mail", "bob")]
        assert await ann.counts("mail") == {"PENDING": 1, "ERROR": 1, "SUCCESS": 1}
        assert await bob.signal(theirs.run, "approved", "boss") is SignalAnswer.WOKE
        assert await Worker(ann, [approve]).drain() == 0
        await Worker(bob, [approve]).drain()
        assert await bob.result(theirs.run, timeout=5) == "bob by boss"
        engines = [Engine(store).register(Bench()) for store in (ann, bob)]
        assert await Worker(bob, [engines[1]]).drain() == 2
        assert [await labels(engine) for engine in engines] == [["ann"], ["bob", "mail answered"]]
        await bob.begin_maintenance("of bob's")
        assert await ann.maintenance() is None
        assert await Worker(ann, [mail]).drain() == 1


@pytest.mark.proves("MT-02")
async def test_no_verb_tells_or_changes_anything_of_another_tenant(store_url: str, clock: TestClock) -> None:
    async with two(store_url, clock, "tenant") as (ann, bob):
        ours = await filled(ann, "ann")
        await ann.begin_maintenance("of ann's")
        clock.advance("30d")  # longer than finished work is kept
        before = await everything_of_ann(ann)
        told = {name: await _answer(verb, bob) for name, verb in (reading(ours) | changing(ours)).items()}
        assert {name: answer for name, answer in told.items() if answer} == {}
        assert await everything_of_ann(ann) == before
        answers = {name: await _answer(verb, ann) for name, verb in reading(ours).items()}
        unheard = {name for name, answer in answers.items() if not answer}
        assert unheard == {"runs of a parent", "dequeue", "signals"}, (
            "it has no children and no signals, and in maintenance nothing is taken"
        )


@pytest.mark.proves("MT-02")
async def test_a_tenant_with_the_same_names_changes_only_its_own_and_has_its_own_workers(
    store_url: str, clock: TestClock
) -> None:
    async with two(store_url, clock, "tenant") as (ann, bob):
        ours = await filled(ann, "ann")
        await ann.begin_maintenance("its worker is to change nothing meanwhile")
        async with Worker(ann, [mail, approve]):
            run = await approve.trigger("bob").options(require_worker="ignore").execute(bob)
            with pytest.raises(NoWorkerAvailable):
                await approve.trigger("bob").options(require_worker="error").execute(bob)
            assert (await bob.why(run)).reason == "UNSERVED"
            assert (await bob.metrics("approve")).workers.live == 0
            assert (await ann.metrics("approve")).workers.live == 1
            await bob.cancel(run)
            curiosity = await curious.trigger(ours.done).options(require_worker="ignore").execute(bob)
            await Worker(bob, [curious]).drain()
            assert f"there is no run {int(ours.done)}" in str((await bob.get_run(curiosity)).last_error)
        clock.advance("30d")  # without its worker, which would look after what is due by then
        assert await bob.prune(0, dead_letters=True) == 2
        await bob.create_queue("mail")
        before = await everything_of_ann(ann)
        for name, verb in changing(ours).items():
            assert not await _answer(verb, bob), name
        assert await everything_of_ann(ann) == before


@pytest.mark.proves("MT-02", "security-15")
async def test_a_subject_of_the_same_name_is_forgotten_in_its_own_tenant_alone(
    store_url: str, clock: TestClock
) -> None:
    codec = Encrypted(keys=Keyring({"old": os.urandom(32)}, "old"))
    async with two(store_url, clock, "tenant", codec=codec) as (ann, bob):
        await ann.create_queue("mail")
        await bob.create_queue("mail")
        with headers({"subject": "customer/ada"}):
            of_ann = await ann.enqueue("mail", "of ann")
            before = await subjects_of_ann(ann)
            assert len(before) == 1
            assert not await bob.forget_subject("customer/ada"), "it has no such subject, although another tenant has"
            assert await subjects_of_ann(ann) == before
            of_bob = await bob.enqueue("mail", "of bob")
            assert await bob.forget_subject("customer/ada")
            assert await subjects_of_ann(ann) == before
            with pytest.raises(SubjectForgotten):
                await bob.enqueue("mail", "more")
            forget_known_keys(ann)
            forget_known_keys(bob)
            assert await ann.enqueue("mail", "more")
        told, unread = await ann.get(of_ann), await bob.get(of_bob)
        assert told is not None
        assert told.input == "of ann"
        assert unread is None or unread.input != "of bob"


async def subjects_of_ann(store: Store) -> list[Any]:
    return await ask(store, "select * from {subject_key} where tenant = 'ann' order by id")


def forget_known_keys(store: Store) -> None:
    """Let it read them from its tables again."""
    driver: Any = store.database.driver
    driver.subjects = SubjectKeys()


def test_every_verb_of_a_store_is_among_them() -> None:
    nobody: Any = None
    asked = reading(nobody).keys() | changing(nobody).keys() | ADDING | SAME_AS_ANOTHER | OF_ENCRYPTED | NO_VERBS
    assert {name for name in dir(Store) if not name.startswith("_")} - asked == set()


async def _answer(verb: Verb, store: Store) -> object:
    """What it answers; None if it says that there is no such thing."""
    try:
        return await verb(store)
    except (DeciderNotFound, ProjectionNotFound, RunNotFound, ScheduleNotFound, WorkflowNotFound, QueueNotFound):
        return None
    except Timeout as error:
        return error  # it is there, and not finished
