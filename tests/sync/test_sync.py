"""The sync face: the same verbs, waited for; and an error instead of a hang where waiting could never end."""

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stepwell
from stepwell import ForkError, InvalidOption, PermanentError, StoreClosed, WrongLoop, handler, sync
from tests.deciders.workbench import Bench, Do
from tests.ground.processes import wait_for


@pytest.fixture
def store(store_url: str) -> Iterator[sync.Store]:
    with sync.connect(store_url) as opened:
        yield opened


@pytest.fixture
def memory() -> Iterator[sync.Store]:
    with sync.connect("memory:") as opened:
        yield opened


def background_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "stepwell-sync"]


def ignore(payload: object) -> None:
    """A handler that does nothing."""


def parameters(function: Callable[..., Any], without: tuple[str, ...] = ()) -> list[tuple[str, object, object]]:
    found = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, one.default) for one in found if one.name not in without]


def test_the_store_has_every_verb_with_the_same_signature() -> None:
    verbs = {
        name
        for name, member in inspect.getmembers(stepwell.Store, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }
    assert {"enqueue", "get", "prune"} <= verbs
    for name in sorted(verbs):
        ours, theirs = getattr(sync.Store, name), getattr(stepwell.Store, name)
        assert not inspect.iscoroutinefunction(ours), name
        assert parameters(ours) == parameters(theirs), name
        assert ours.__doc__, name


def test_the_worker_has_the_same_signatures() -> None:
    for name in ("__init__", "run", "poll_forever", "drain", "stop"):
        ours, theirs = getattr(sync.Worker, name), getattr(stepwell.Worker, name)
        # There is no awaitable to pass in sync code; `stop()` from another thread does what it did.
        assert parameters(ours) == parameters(theirs, without=("shutdown",)), name
    assert parameters(sync.connect) == parameters(stepwell.connect)


def test_the_engine_has_the_same_signatures() -> None:
    reading = ("dry_run", "state", "events", "instances", "outstanding")
    for name in ("register", "execute", "execute_dynamic", "submit", *reading):
        ours, theirs = getattr(sync.Engine, name), getattr(stepwell.Engine, name)
        assert parameters(ours) == parameters(theirs), name


def test_an_instance_is_looked_at(store: sync.Store) -> None:
    engine = sync.Engine(store).register(Bench())
    engine.execute(Do("a", "one"))
    assert engine.state("bench", "a", at=1) == {"labels": ["one"], "has_ended": False}
    assert engine.state("bench", "a")["labels"] == list(engine.state(Bench, "a").labels)
    assert store.dead_letters(instance=("bench", "a")) == []


def test_messages_go_through(store: sync.Store) -> None:
    seen: list[int] = []

    @handler("numbers")
    def take(number: int) -> None:
        seen.append(number)

    first = store.enqueue(take, 1, key="one")
    again = store.enqueue(take, 1, key="one")
    assert (again, again.created) == (first, False)
    ids = store.enqueue_many(take, (number for number in (2, 3)), keys=["two", "three"])
    assert len({first, *ids}) == 3
    assert [queue.name for queue in store.queues()] == ["numbers"]
    assert store.counts("numbers") == {"PENDING": 3}
    assert sync.Worker(store, [take]).drain() == 3
    assert sorted(seen) == [1, 2, 3]
    assert store.counts("numbers") == {"SUCCESS": 3}
    task = store.get(first)
    assert task is not None
    assert (task.status, task.key, task.attempt) == ("SUCCESS", "one", 1)
    assert [worker.stop_reason for worker in store.workers()] == ["stopped"]


def test_dead_letters_are_requeued_and_dropped(store: sync.Store) -> None:
    broken = True

    @handler("doomed")
    def fail(number: int) -> None:
        if broken:
            raise PermanentError(f"never {number}")

    ids = store.enqueue_many(fail, range(3))
    assert sync.Worker(store, [fail]).drain() == 3
    assert sorted(letter.id for letter in store.dead_letters(queue="doomed")) == ids
    (letter,) = store.dead_letters(error="PermanentError", limit=1)
    assert letter.last_error == f"PermanentError: never {letter.payload}"
    assert store.drop(ids[0]) == 1
    broken = False
    assert store.requeue(ids[1]) == 1
    assert store.requeue(queue="doomed") == 1
    assert sync.Worker(store, [fail]).drain() == 2
    assert store.counts("doomed") == {"SUCCESS": 2}


def test_sync_and_async_handlers_are_served_by_one_worker(store: sync.Store) -> None:
    seen: dict[str, str] = {}

    @handler("plain")
    def plain(text: str) -> None:
        store.enqueue(coloured, text)  # a thread of its own: it may use the store
        seen["plain"] = threading.current_thread().name

    @handler("coloured")
    async def coloured(text: str) -> None:
        await asyncio.sleep(0)
        seen["coloured"] = threading.current_thread().name

    with sync.Worker(store, [plain, coloured], name="w") as worker:
        assert worker.id == store.workers()[0].id
        store.enqueue(plain, "x")
        worker.drain()
        assert len(seen) == 2
    assert seen["plain"].startswith("stepwell-w-")
    assert seen["coloured"] == "stepwell-sync"


def test_a_worker_in_a_thread_runs_until_it_is_stopped(store: sync.Store) -> None:
    seen: list[str] = []

    @handler("numbers")
    def take(text: str) -> None:
        seen.append(text)

    for name in ("run", "poll_forever"):
        worker = sync.Worker(store, [take])
        thread = threading.Thread(target=getattr(worker, name))
        thread.start()
        store.enqueue(take, "done")
        wait_for(lambda: "done" in seen, 60)
        seen.clear()
        assert thread.is_alive()
        worker.stop()
        thread.join(20)
        assert not thread.is_alive()


def test_many_threads_use_one_store(store: sync.Store) -> None:
    store.create_queue("busy")
    threads = [threading.Thread(target=lambda: [store.enqueue("busy", n) for n in range(20)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.counts("busy") == {"PENDING": 160}


def test_payloads_are_listed_in_the_callers_thread(memory: sync.Store) -> None:
    memory.create_queue("lazy")
    threads: list[threading.Thread] = []

    def rows() -> Iterator[int]:
        for number in range(2):
            threads.append(threading.current_thread())
            yield number

    assert len(memory.enqueue_many("lazy", rows())) == 2
    assert set(threads) == {threading.current_thread()}


def test_bad_arguments_and_errors_reach_the_caller(memory: sync.Store) -> None:
    with pytest.raises(stepwell.QueueNotFound):
        memory.enqueue("missing", 1)
    with pytest.raises(TypeError):
        memory.enqueue()  # type: ignore[call-overload]
    with pytest.raises(stepwell.UnknownStore):
        sync.connect("mongodb://x/y")
    with pytest.raises(InvalidOption):
        sync.Worker(memory, [], concurrency=0)


@pytest.mark.proves("protocol-23")
def test_on_its_own_loop_it_raises(store: sync.Store) -> None:
    raised: list[BaseException] = []

    @handler("selfish", retry=1)
    async def ask(number: int) -> None:
        for call in (store.queues, store.close):
            try:
                call()
            except WrongLoop as error:
                raised.append(error)

    store.enqueue(ask, 1)
    sync.Worker(store, [ask]).drain()
    assert ["would never end" in str(error) for error in raised] == [True, True]
    assert store.counts("selfish") == {"SUCCESS": 1}


async def test_in_a_running_loop_it_raises(memory: sync.Store) -> None:
    with pytest.raises(WrongLoop, match=r"await stepwell\.connect"):
        memory.queues()
    before = background_threads()
    with pytest.raises(WrongLoop):
        sync.connect("memory:")
    assert background_threads() == before
    assert await asyncio.to_thread(memory.queues) == []


@pytest.mark.proves("protocol-23")
def test_after_a_fork_it_raises(store: sync.Store) -> None:
    store.create_queue("shared")
    worker = sync.Worker(store, [handler("shared")(ignore)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # later Pythons warn of a fork beside threads, which is what is tried here
        child = os.fork()
    if child == 0:
        code = 1
        try:
            calls: list[Callable[[], object]] = [
                lambda: store.enqueue("shared", 1),
                store.queues,
                worker.drain,
                worker.run,
                worker.__enter__,
                worker.stop,
            ]
            refused = [_raises(ForkError, call) for call in calls]
            store.close()  # nothing of the child's to close, and nothing to hang on
            code = 0 if all(refused) else 2
        finally:
            os._exit(code)
    assert wait_for(lambda: os.waitpid(child, os.WNOHANG)[1:] if _ended(child) else None, 60) == (0,)
    assert store.enqueue("shared", 1)
    assert store.counts("shared") == {"PENDING": 1}


def _raises(error: type[BaseException], call: Callable[[], object]) -> bool:
    try:
        call()
    except error:
        return True
    return False


def _ended(child: int) -> bool:
    found = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return found is not None


@pytest.mark.proves("protocol-23")
async def test_connect_can_be_awaited_or_entered(store_url: str) -> None:
    opening = stepwell.connect(store_url)
    assert not isinstance(opening, stepwell.Store)
    store = await opening
    assert isinstance(store, stepwell.Store)
    await store.create_queue("first")
    await store.close()
    async with stepwell.connect(store_url) as entered:
        assert [queue.name for queue in await entered.queues()] == ["first"]
    with pytest.raises(StoreClosed):
        await entered.queues()


def test_closing_ends_the_threads_and_may_be_repeated(store_url: str) -> None:
    before = background_threads()
    store = sync.connect(store_url)
    assert len(background_threads()) > len(before)
    store.close()
    store.close()
    wait_for(lambda: background_threads() == before, 10)
    with pytest.raises(StoreClosed, match=r"stepwell\.sync\.connect"):
        store.queues()


def test_a_store_that_cannot_open_leaves_no_thread() -> None:
    before = background_threads()
    with pytest.raises(stepwell.StepwellError):
        sync.connect("sqlite:////nowhere/at/all/x.db")
    wait_for(lambda: background_threads() == before, 10)


def test_closing_stops_the_workers_first(store_url: str) -> None:
    seen: list[str] = []

    @handler("slow")
    def slow(number: int) -> None:
        time.sleep(0.3)
        opened.create_queue("still-open")
        seen.append("done")

    opened = sync.connect(store_url)
    entered = sync.Worker(opened, [slow])
    running = sync.Worker(opened, [slow])
    thread = threading.Thread(target=running.run)
    opened.enqueue_many(slow, range(2))
    entered.__enter__()
    thread.start()
    wait_for(lambda: opened.counts("slow").get("RUNNING") == 2, 10)
    opened.close()
    thread.join(10)
    assert seen == ["done", "done"]
    with sync.connect(store_url) as again:
        assert again.counts("slow") == {"SUCCESS": 2}
        assert {worker.stop_reason for worker in again.workers()} == {"stopped"}


def test_a_handler_that_asks_to_exit_harms_nobody_else(memory: sync.Store) -> None:
    @handler("quitter", retry=1)
    async def leave(number: int) -> None:
        sys.exit(3)

    memory.enqueue(leave, 1)
    with sync.Worker(memory, [leave]):
        wait_for(lambda: memory.counts("quitter").get("ERROR"), 10)


def test_signals_are_for_the_main_thread(memory: sync.Store) -> None:
    raised: list[InvalidOption] = []

    def attempt() -> None:
        try:
            sync.Worker(memory, [handler("q")(ignore)]).run(signals=True)
        except InvalidOption as error:
            raised.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join(10)
    assert "main thread" in str(raised[0])


WORKER = """
import signal, sys, threading, time
from stepwell import handler, sync

@handler("numbers")
def take(seconds: float) -> None:
    print("began", flush=True)
    time.sleep(seconds)
    print("ended", flush=True)

with sync.connect(sys.argv[1]) as store:
    before = signal.getsignal(signal.SIGTERM)
    try:
        sync.Worker(store, [take], grace=30).run(signals=sys.argv[2] == "signals")
    except KeyboardInterrupt:
        print("interrupted")
    assert signal.getsignal(signal.SIGTERM) is before
    print(store.counts("numbers"))
"""
EXITING = """
import sys, threading, time
from stepwell import handler, sync

begun = []  # not what is claimed: its body may not have begun

@handler("numbers")
def take(seconds: float) -> None:
    begun.append(seconds)
    print("began", flush=True)
    time.sleep(seconds)

store = sync.connect(sys.argv[1])  # never closed
worker = sync.Worker(store, [take]).__enter__()
threading.Thread(target=sync.Worker(store, [take]).run, daemon=True).start()
store.enqueue_many(take, [60, 60])
while len(begun) < 2 or len(store.workers()) < 2:
    time.sleep(0.02)
"""


def python(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("number", "how", "said"),
    [(signal.SIGTERM, "signals", ""), (signal.SIGINT, "signals", ""), (signal.SIGINT, "none", "interrupted\n")],
)
def test_a_signal_ends_the_worker_after_what_is_under_way(
    tmp_path: Path, number: signal.Signals, how: str, said: str
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with sync.connect(url) as store:
        store.create_queue("numbers")
        store.enqueue("numbers", 0.5)
        process = python(WORKER, url, how)
        assert process.stdout is not None
        assert process.stdout.readline() == "began\n"
        process.send_signal(number)
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error) == (0, f"ended\n{said}{{'SUCCESS': 1}}\n", "")


@pytest.mark.proves("rule-32")
@pytest.mark.parametrize(("number", "how"), [("SIGTERM", "signals"), ("SIGINT", "none")])
def test_a_signal_that_reaches_another_thread_ends_the_worker(tmp_path: Path, number: str, how: str) -> None:
    sending = WORKER.replace(
        "time.sleep(seconds)", f"time.sleep(seconds); signal.pthread_kill(threading.get_ident(), signal.{number})"
    )
    url = f"sqlite:///{tmp_path}/store.db"
    with sync.connect(url) as store:
        store.create_queue("numbers")
        store.enqueue("numbers", 0.5)  # the main thread waits for the worker's end by then
        with python(sending, url, how) as process:
            try:
                out, _ = process.communicate(timeout=60)
            finally:
                process.kill()
    assert out.splitlines()[-1] == "{'SUCCESS': 1}"


def test_a_second_signal_gives_back_what_is_under_way(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with sync.connect(url) as store:
        store.create_queue("numbers")
        store.enqueue("numbers", 60)
        process = python(WORKER, url, "signals")
        assert process.stdout is not None
        assert process.stdout.readline() == "began\n"
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        out, error = process.communicate(timeout=60)
        assert (process.returncode, out, error) == (0, "{'PENDING': 1}\n", "")


def test_a_program_that_ends_without_closing_gives_its_work_back(store_url: str) -> None:
    process = python(EXITING, store_url)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (0, "")
    assert out.count("began") >= 2
    with sync.connect(store_url) as store:
        assert store.counts("numbers") == {"PENDING": 2}
        assert {worker.stop_reason for worker in store.workers()} == {"stopped"}
