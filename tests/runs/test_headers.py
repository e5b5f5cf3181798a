"""Headers travel with work and with what it leads to; who has none pays nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from stepwell import (
    Context,
    Decider,
    Decision,
    EffectContext,
    Engine,
    InvalidName,
    InvalidOption,
    Store,
    Worker,
    current,
    handler,
    headers,
    on_event,
    step,
    sync,
    workflow,
)
from tests.queue.raw import ask
from tests.workflows.kit import drained

ACME = {"tenant": "acme", "trace": "t-1"}
seen: list[tuple[str, dict[str, str]]] = []
stores: list[Any] = []


@pytest.fixture(autouse=True)
def anew() -> None:
    seen.clear()
    stores.clear()


def note(what: str) -> None:
    seen.append((what, dict(current().headers)))


@handler("letters")
async def letter(text: str) -> None:
    note(text)


@handler("pairs", batch=2)
async def pair(texts: list[str]) -> None:
    await stores[0].enqueue(letter, "from a batch")


@step
async def mailed(text: str) -> None:
    note("step")
    await stores[0].enqueue(letter, text)
    await stores[0].enqueue(letter, f"{text} too", headers={"tenant": "other"})


@step
def signalled(run: int) -> None:
    stores[1].signal(run, "go")


@workflow
async def child(ctx: Context) -> dict[str, str]:
    return dict(ctx.headers)


@workflow
async def parent(ctx: Context) -> dict[str, str]:
    await mailed("hello")
    own = await child.trigger().options(headers={"part": "1"}).wait().execute(ctx)
    ctx.set_value("own", 1)
    return own


@workflow
async def looping(ctx: Context, number: int) -> dict[str, str]:
    if number:
        ctx.restart(number - 1)
    return dict(ctx.headers)


@pytest.mark.proves("headers-01")
async def test_a_run_has_them_and_what_it_leads_to_inherits_them(store: Store) -> None:
    stores.append(store)
    run = await parent.trigger().options(headers=ACME).execute(store)
    await drained(store, parent, child, letter)
    assert await store.result(run, timeout=0) == {**ACME, "part": "1"}
    assert (await store.get_run(run)).headers == ACME
    assert sorted(seen) == sorted([("step", ACME), ("hello", ACME), ("hello too", {**ACME, "tenant": "other"})])


@on_event("news")
@workflow(name="headers.reader")
async def reader(ctx: Context, news: dict[str, int]) -> dict[str, str]:
    return dict(ctx.headers)


@pytest.mark.proves("headers-01")
async def test_a_run_that_an_event_triggers_has_those_of_the_event(store: Store) -> None:
    await drained(store, reader)  # which declares what triggers it
    with headers(ACME):
        await store.broadcast("news", {"n": 1})
    await drained(store, reader)
    [run] = await store.runs("headers.reader")
    assert run.output() == ACME


@pytest.mark.proves("headers-01")
async def test_they_stay_over_restarts_and_in_forks(store: Store) -> None:
    run = await looping.trigger(2).options(headers=ACME).execute(store)
    await drained(store, looping)
    fork = await store.fork(run)
    await drained(store, looping)
    assert [await store.result(one, timeout=0) for one in (run, fork)] == [ACME, ACME]


@pytest.mark.proves("headers-01")
async def test_bulks_batches_and_blocks(store: Store) -> None:
    stores.append(store)
    await store.enqueue_many(letter, ["a", "b"], headers={"tenant": "x"})
    with headers({"tenant": "y"}), headers({"trace": "z"}):
        await store.enqueue_many(letter, ["c"], keys=["k"])
        await store.enqueue(letter, "d", headers={"trace": "own"})
        async with store.transaction() as tx:
            await store.enqueue(letter, "e", tx=tx)
    await store.enqueue_many(pair, ["1", "2"], headers={"tenant": "same"})
    await Worker(store, [letter, pair]).drain()
    block = {"tenant": "y", "trace": "z"}
    expected = {"a": {"tenant": "x"}, "b": {"tenant": "x"}, "c": block, "d": {**block, "trace": "own"}, "e": block}
    assert dict(seen) == {**expected, "from a batch": {"tenant": "same"}}
    seen.clear()
    await store.enqueue(pair, "3", headers={"tenant": "one"})
    await store.enqueue(pair, "4", headers={"tenant": "another"})
    await Worker(store, [letter, pair]).drain()
    assert dict(seen) == {"from a batch": {}}


@pytest.mark.proves("headers-01")
async def test_a_block_is_not_that_of_the_bodies_of_a_worker_in_it(store: Store) -> None:
    stores.append(store)
    run = await parent.trigger().options(headers={"tenant": "own"}).execute(store)
    with headers(ACME):
        await Worker(store, [parent, child, letter]).drain()
    assert await store.result(run, timeout=0) == {"tenant": "own", "part": "1"}
    assert ("hello", {"tenant": "own"}) in seen


@pytest.mark.proves("headers-02")
async def test_a_signal_keeps_them(store: Store) -> None:
    run = await child.trigger().options(delay="1h").execute(store)
    await store.signal(run, "go", headers=ACME)
    with headers({"user": "ann"}):
        await store.signal(run, "go")
    await store.signal(run, "go")
    assert [one.headers for one in await store.signals(run)] == [ACME, {"user": "ann"}, {}]


@dataclass(frozen=True)
class Pay:
    order: str


@dataclass(frozen=True)
class Paid: ...


@dataclass(frozen=True)
class Ship: ...


class Orders(Decider[int, Pay, Paid, Ship]):
    type = "order"

    def identify(self, input: Pay) -> str:
        return input.order

    def initial(self) -> int:
        return 0

    def decide(self, state: int, input: Pay, now: datetime) -> Decision[Paid, Ship, Pay]:
        return Decision.event(Paid()).with_effect(Ship())

    def evolve(self, state: int, event: Paid) -> int:
        return state + 1

    async def handle(self, effect: Ship, ctx: EffectContext) -> None:
        seen.append((ctx.id, dict(ctx.headers)))
        await stores[0].enqueue(letter, f"shipped {ctx.id}")


@pytest.mark.proves("headers-01")
async def test_effects_inherit_them_from_the_input(store: Store) -> None:
    stores.append(store)
    engine = Engine(store).register(Orders())
    with headers(ACME):
        await engine.execute(Pay("decided"))
        await engine.submit(Pay("submitted"))
    await engine.submit(Pay("submitted"))
    await engine.execute(Pay("without"))
    await Worker(store, [engine, letter]).drain()
    assert sorted(seen, key=str) == sorted(
        [
            ("decided", ACME),
            ("shipped decided", ACME),
            ("submitted", ACME),
            ("shipped submitted", ACME),
            ("submitted", {}),
            ("shipped submitted", {}),
            ("without", {}),
            ("shipped without", {}),
        ],
        key=str,
    )


@pytest.mark.proves("headers-03")
async def test_what_is_wrong_is_told_before_anything_is_written(store: Store) -> None:
    run = await child.trigger().execute(store)
    many = {f"h{number}": "x" for number in range(21)}
    for wrong in ({"a": 1}, {"a b": "x"}, {"a": "x" * 5000}, many, ["a"], {"a": "\x00"}):
        given: Any = wrong
        with pytest.raises((InvalidOption, InvalidName)):
            child.trigger().options(headers=given)
        with pytest.raises((InvalidOption, InvalidName)):
            await store.signal(run, "go", headers=given)
        with pytest.raises((InvalidOption, InvalidName)):
            await store.enqueue(letter, "x", headers=given)
    with (
        headers({f"h{number}": "x" for number in range(15)}),
        pytest.raises(InvalidOption, match="with those inherited"),
    ):
        await store.enqueue(letter, "x", headers={f"i{number}": "x" for number in range(10)})


@pytest.mark.proves("headers-03")
async def test_nothing_is_stored_where_there_are_none(store: Store) -> None:
    stores.append(store)
    await parent.trigger().execute(store)
    await store.enqueue(letter, "x", headers={})
    await Worker(store, [parent, child]).drain()
    rows = await ask(store, "select headers from {task} where headers is not null")
    assert sorted(str(headers) for [headers] in rows) == sorted(['{"tenant":"other"}', '{"part":"1"}'])


@pytest.mark.proves("headers-01")
def test_sync_programs_and_their_bodies_pass_them_on(store_url: str) -> None:
    with sync.connect(store_url) as store:
        stores.extend([store.async_store, store])
        target = child.trigger().options(delay="1h").execute(store)

        @workflow(name="sync_parent")
        def flow(ctx: sync.Context) -> dict[str, str]:
            ctx.step(signalled, int(target))
            return child.trigger().wait().execute(ctx)

        with headers({"user": "bob"}):
            run = flow.trigger().options(headers=ACME).execute(store)
        sync.Worker(store, [flow, child]).drain()
        assert store.result(run, timeout=0) == {**ACME, "user": "bob"}
        assert [one.headers for one in store.signals(target)] == [{**ACME, "user": "bob"}]
