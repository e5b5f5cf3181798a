"""A run that fails for good asks for a run of the workflow that is to hear of it, in the transaction that ends it."""

from typing import Any

import pytest

from stepwell import PermanentError, RunStatus, Store, Worker, workflow
from stepwell.store.rows import SeenWorker
from tests.store.seam import begin, claim


@workflow
async def undertaker(letter: dict[str, Any]) -> dict[str, Any]:
    return letter


@workflow(dead_letter="undertaker", retry=2)
async def dies(number: int) -> int:
    raise PermanentError("no way")


@workflow(dead_letter="undertaker")
async def lives(number: int) -> int:
    return number


@pytest.mark.proves("E-11")
async def test_a_run_that_fails_for_good_is_told_with_its_input_and_error(store: Store) -> None:
    worker = Worker(store, [undertaker, dies, lives])
    run_id = await dies.trigger(7).options(key="k").execute(store)
    await lives.trigger(7).execute(store)
    await worker.drain()
    [letter] = await store.runs("undertaker")
    assert letter.status == RunStatus.SUCCESS
    told = letter.output()
    assert (told["run_id"], told["workflow"], told["key"], told["input"]) == (run_id, "dies", "k", 7)
    assert told["error"]["message"] == "no way"
    assert (await store.get_workflow("dies")).options == {"dead_letter": "undertaker"}


@pytest.mark.proves("E-11", "E-07")
async def test_a_run_that_lost_its_last_worker_is_told_too(store: Store) -> None:
    async with Worker(store, [undertaker, dies]):
        pass  # the definitions are there now
    run_id = await dies.trigger(7).options(max_attempts=1).execute(store)
    session = await begin(store)
    assert await claim(store, session, "dies")
    [seen] = [one for one in await store.database.sessions.living() if one.worker_id == session]
    assert await store.database.sessions.bury(SeenWorker(session, seen.beat_at))
    assert (await store.get_run(run_id)).status == RunStatus.ERROR
    [letter] = await store.runs("undertaker")
    assert letter.input()["error"]["type"] == "WorkerLost"


@pytest.mark.proves("E-11")
async def test_a_workflow_that_names_nobody_any_more_tells_nobody(store: Store) -> None:
    @workflow(name="dies", retry=1)
    async def reformed(number: int) -> int:
        raise PermanentError("no way")

    async with Worker(store, [undertaker, dies]):
        pass
    await reformed.trigger(7).execute(store)
    await Worker(store, [reformed]).drain()
    assert await store.runs("undertaker") == []
    assert (await store.get_workflow("dies")).options == {}
