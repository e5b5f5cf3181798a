"""What people are told of versions: by `why`, by `doctor`, and by a worker that is registered."""

import gc
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from stepwell import Engine, InvalidOption, Store, UnknownRecord, Worker, handler, step, upcast, workflow
from stepwell.base.clock import TestClock
from stepwell.base.program import declared
from stepwell.operate.doctor import findings
from stepwell.operate.facts import facts_of
from tests.deciders import test_upcasting
from tests.deciders.workbench import Bench, Do, asked
from tests.versions import shop_1, shop_3
from tests.versions.test_shop import engine_of, worked


async def found(store: Store) -> list[str]:
    facts = await facts_of(store, "here")
    return [one.said for one in findings(facts) if one.about == "versions"]


@pytest.mark.proves("U-04")
async def test_doctor_names_every_stored_version_that_no_living_worker_reads(store: Store, clock: TestClock) -> None:
    new, old = engine_of(store, shop_3), engine_of(store, shop_1)
    await new.execute(shop_3.Open("n", 100, "EUR"))
    await worked(store, shop_3, new)  # a deploy that is rolled back
    await new.execute(shop_3.Buy("n", 1, "EUR"))
    await store.enqueue(shop_3.letters, shop_3.Letter(to="new", cents=1, currency="EUR"))
    run_id = await shop_3.sale.trigger(shop_3.Order("new", 1, "EUR")).options(require_worker="ignore").execute(store)
    await worked(store, shop_1, old)
    async with Worker(store, [shop_1.letters, shop_1.sale, old]):
        said = await found(store)
        assert "1 event of account stored as AccountOpened, version 2, and no living worker reads that" in said
        assert "1 task of letters stored as Letter, version 3, and no living worker reads that" in said
        assert "1 task of sale stored as Order, version 3, and no living worker reads that" in said
        assert "1 task of account:effects stored as Tell, version 3, and no living worker reads that" in said
    why = await store.why(run_id)
    assert "it was stored as Order, version 3, and this code has version 1" in str(why)
    async with Worker(store, [shop_3.letters, shop_3.sale, new]) as worker:
        assert await found(store) == []
        [session] = [one for one in await store.workers() if one.id == worker.id]
        assert {"/Letter@3", "/Order@3", "/Charge@3", "account/Opened@1", "account/PaidAndShipped@2"} <= {
            *session.reads
        }
        assert not any("/" in name for name in session.handlers)


@pytest.mark.proves("U-04")
async def test_doctor_takes_a_worker_that_registers_no_version_for_one_that_reads_the_first(store: Store) -> None:
    new, old = (Engine(store).register(shop.Till()) for shop in (test_upcasting.TWO, test_upcasting.ONE))
    await old.execute(test_upcasting.ONE.Pay("a", 1))
    async with Worker(store, [new]):
        await new.execute(test_upcasting.TWO.Pay("a", 100))
        assert await found(store) == []
    async with Worker(store, [old]):
        assert await found(store) == ["1 event of till stored as Paid, version 2, and no living worker reads that"]


@pytest.mark.proves("U-01", "U-07")
async def test_where_no_version_is_used_nothing_is_written_and_nothing_is_asked(store: Store) -> None:
    engine = Engine(store).register(Bench())
    await engine.execute(Do("n"))
    await store.enqueue(shop_1.letters, shop_1.Letter(to="ann", euros=1.0), key="ann")
    await shop_1.sale.trigger(shop_1.Order("new", 1.0)).options(key="new", require_worker="ignore").execute(store)
    async with Worker(store, [shop_1.letters, engine]) as worker:
        facts = await facts_of(store, "here")
        assert facts.versions == ()
        assert [one.reads for one in facts.workers if one.id == worker.id] == [()]
    rows = await asked(store, "select cast(input as text) as input, payload_hash from {task} where key is not null")
    assert not any("$sw" in row["input"] or ":" in (row["payload_hash"] or "") for row in rows)


@dataclass(frozen=True)
class Gap:
    __stepwell_version__: ClassVar[int] = 3
    id: int


upcast(Gap, 1)(lambda old: old)


async def test_a_worker_refuses_a_class_whose_upcasters_have_a_gap(store: Store) -> None:
    @handler("gaps")
    async def takes(gap: Gap) -> None:
        pass

    @workflow
    async def asks(gap: Gap) -> None:
        pass

    @workflow
    async def calls() -> None:
        pass

    for served in (takes, asks):
        with pytest.raises(InvalidOption, match="of Gap cannot be 3: an upcaster of Gap 2 is missing"):
            Worker(store, [served])

    @step
    async def gives() -> Gap:
        return Gap(1)

    with pytest.raises(InvalidOption, match="an upcaster of Gap 2 is missing"):
        Worker(store, [calls])
    del gives
    gc.collect()  # a step is declared until it is freed, and the workers of later tests read what every step returns
    assert not any(getattr(one, "name", "").endswith("gives") for one in declared())


@pytest.mark.proves("U-04")
async def test_a_message_taken_by_hand_says_that_it_is_newer_and_can_be_given_back(store: Store) -> None:
    await store.enqueue(shop_3.letters, shop_3.Letter(to="new", cents=1, currency="EUR"))
    [message] = await store.dequeue("letters", type=shop_1.Letter)
    with pytest.raises(UnknownRecord, match="stored as Letter, version 3, and this code has version 1"):
        _ = message.payload
    assert await message.release()
    [again] = await store.dequeue("letters", type=shop_3.Letter)
    read: Any = again.payload
    assert (read.currency, again.attempt) == ("EUR", 1)
