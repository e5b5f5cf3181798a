"""What is kept of published events, how far publishing lags, and what is off where nothing is emitted."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import Context, PermanentError, Store, connect, workflow
from stepwell.base.clock import TestClock
from stepwell.operate.doctor import findings
from stepwell.operate.facts import facts_of
from tests.outbox.kit import Sink, drained, outbox, statuses
from tests.store.seam import ask


@pytest.mark.proves("SD-07")
@pytest.mark.parametrize("ordered", [False, True])
async def test_a_published_event_is_kept_for_seven_days_and_one_that_is_not_published_for_ever(
    store: Store, clock: TestClock, ordered: bool
) -> None:
    sink = Sink()
    sink.refuses = {"bad": PermanentError("no"), "later": OSError("away")}
    crm = outbox(sink, "a.*", retry=1000)
    await drained(store, crm)
    for subject in ("good", "bad", "later"):
        await store.emit("a.b", subject, subject=subject, ordered=ordered)
    await store.emit("kept", 1)
    await drained(store, crm)
    clock.advance("6d23h")
    await store.database.retention.round()
    assert await statuses(store) == {"SUCCESS": 1, "ERROR": 1, "PENDING": 1}
    clock.advance("2h")
    await store.database.retention.round()
    assert await statuses(store) == {"ERROR": 1, "PENDING": 1}
    assert await statuses(store, "outbox:kept") == {"PENDING": 1}


@pytest.mark.proves("SD-07")
async def test_how_long_a_published_event_is_kept_can_be_set(store_url: str, clock: TestClock) -> None:
    sink = Sink()
    async with connect(store_url, clock=clock, keep="1h") as store:
        await drained(store, outbox(sink))
        await store.emit("a", 1)
        await drained(store, outbox(sink))
        clock.advance("59m")
        await store.database.retention.round()
        assert await statuses(store) == {"SUCCESS": 1}
        clock.advance("2m")
        await store.database.retention.round()
        assert await statuses(store) == {}


@pytest.mark.proves("MM-06", "MM-07")
async def test_the_metrics_tell_how_far_publishing_lags(store: Store, clock: TestClock) -> None:
    sink = Sink()
    sink.refuses = {"a0": OSError("away"), "b0": PermanentError("no")}
    await drained(store, outbox(sink, "t"))
    for number in range(3):
        await store.emit("t", f"a{number}", subject="a", ordered=True)
    await store.emit("t", "b0")
    await store.emit("t", "b1")
    await store.emit("strange", 1)
    assert {'stepwell_outbox_lag{outbox="crm"} 5', 'stepwell_outbox_kept{type="strange"} 1'} <= await told(store)
    await drained(store, outbox(sink, "t"))
    assert {
        'stepwell_outbox_lag{outbox="crm"} 3',  # one is tried again, and two come after it
        'stepwell_dead_letters{queue="outbox.crm",kind="OUTBOX"} 1',
    } <= await told(store)
    sink.refuses.clear()
    clock.advance(60)
    assert {'stepwell_outbox_lag{outbox="crm"} 3'} <= await told(store)
    await drained(store, outbox(sink, "t"))
    assert {'stepwell_outbox_lag{outbox="crm"} 0'} <= await told(store)


async def told(store: Store) -> set[str]:
    """The lines that Prometheus reads."""
    return set((await store.prometheus(events=False)).splitlines())


@pytest.mark.proves("CF-06", "O-14")
async def test_a_store_that_emits_nothing_has_no_row_of_an_outbox(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    @workflow(retry=1)
    async def order(ctx: Context, number: int) -> int:
        await ctx.step("pack", lambda: "packed", returns=str)
        if number:
            raise OSError("away")
        return number

    asked = list[Any]()
    for verb in ("reading", "writing", "routes", "adopt"):
        monkeypatch.setattr(store.database.outboxes, verb, asked.append)
    await drained(store, order)
    for number in (0, 1):
        await order.trigger(number).execute(store)
    await drained(store, order)
    assert asked == []
    assert await ask(store, "select queue_id from {outbox_route}") == []
    assert "stepwell_outbox" not in await store.prometheus(events=False)


@pytest.mark.proves("MM-06", "O-12", "O-14")
async def test_doctor_tells_of_a_sink_that_fails_a_subject_that_stands_still_and_what_is_kept(
    store: Store, clock: TestClock
) -> None:
    sink = Sink()
    crm = outbox(sink, "t")
    await drained(store, crm)
    await store.emit("t", "a0")
    assert await doctored(store) == {("good", "crm has 1 event to publish")}
    sink.refuses = {"a1": OSError("away"), "b0": PermanentError("no")}
    await store.emit("t", "a1")
    for number in range(2):
        await store.emit("t", f"b{number}", subject="b", ordered=True)
    await store.emit("strange", 1)
    await drained(store, crm)
    assert await doctored(store) == {
        ("warning", "crm has 0 events to publish, and 2 events to try again, or behind one that is"),
        ("warning", "in outbox.crm 1 subject waits for an event that failed for good"),
        ("warning", "1 event of the type strange kept: no outbox takes it"),
        ("warning", "1 in outbox.crm"),
    }


async def doctored(store: Store) -> set[tuple[str, str]]:
    """What doctor says of outboxes."""
    found = findings(await facts_of(store, "here"))
    return {(one.level, one.said) for one in found if one.about in ("outbox", "order", "dead letters")}
