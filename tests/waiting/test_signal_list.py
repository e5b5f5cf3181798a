"""The signals that a run has are listed page by page, with which wait has taken each."""

from __future__ import annotations

import pytest

from stepwell import Context, InvalidOption, RunNotFound, Store, sync, workflow
from tests.workflows.kit import drained


@workflow
async def desk(ctx: Context, waits: int) -> None:
    for _ in range(waits):
        await ctx.wait("note")
    await ctx.wait("end")


@pytest.mark.proves("ST-07")
async def test_signals_are_listed_with_the_wait_that_took_them(store: Store) -> None:
    run = await desk.trigger(1).options(key="k").execute(store)
    for number in range(3):
        await store.signal(run, "note", {"n": number}, key=None if number else "first")
    await store.signal(run, "other")
    await drained(store, desk)
    listed = await store.signals(desk.with_key("k"))
    assert [(one.name, one.data, one.key, one.taken_by) for one in listed] == [
        ("note", {"n": 0}, "first", "note#1"),
        ("note", {"n": 1}, None, None),
        ("note", {"n": 2}, None, None),
        ("other", None, None, None),
    ]
    assert (listed[0].taken_at is not None, listed[1].taken_at) == (True, None)
    assert [one.data for one in await store.signals(run, "note", state="waiting")] == [{"n": 1}, {"n": 2}]
    assert [one.data for one in await store.signals(run, state="taken")] == [{"n": 0}]


@pytest.mark.proves("ST-07")
async def test_page_by_page(store: Store) -> None:
    run = await desk.trigger(0).execute(store)
    await store.signal_many([(run, name, number) for name in ("a", "b") for number in range(3)])
    found, after = [], None
    while True:
        page = await store.signals(run, limit=2, after=after)
        found += [(one.name, one.data) for one in page]
        if (after := page.next) is None:
            break
    assert found == [(name, number) for name in ("a", "b") for number in range(3)]
    with pytest.raises(InvalidOption, match="pass the `next`"):
        await store.signals(run, after="x")
    with pytest.raises(InvalidOption, match="'waiting' or 'taken'"):
        await store.signals(run, state="gone")  # type: ignore[arg-type]
    with pytest.raises(RunNotFound):
        await store.signals(10**9)


@pytest.mark.proves("ST-07")
def test_a_sync_store_lists_them_too(store_url: str) -> None:
    with sync.connect(store_url) as store:
        run = desk.trigger(0).execute(store)
        store.signal(run, "note", 1)
        assert [one.name for one in store.signals(run)] == ["note"]
