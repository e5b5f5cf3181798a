"""A worker that is asked to lets Python collect garbage less often, and puts it back."""

import gc
from collections.abc import Iterator

import pytest

from stepwell import Store, Worker, handler
from stepwell.work.garbage import THRESHOLDS

PLAIN = (700, 10, 10)


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*PLAIN)
    yield
    gc.enable()
    gc.set_threshold(*before)


@pytest.mark.proves("W-04")
async def test_while_workers_run_garbage_is_collected_rarely_and_then_as_before(store: Store) -> None:
    seen = []

    @handler("q")
    async def look(number: int) -> None:
        seen.append(gc.get_threshold())

    async with Worker(store, [look], tune_gc=True):
        assert gc.get_threshold() == THRESHOLDS
        async with Worker(store, [], tune_gc=True):
            assert gc.get_threshold() == THRESHOLDS
        assert gc.get_threshold() == THRESHOLDS, "the first one still works"
    assert gc.get_threshold() == PLAIN
    await store.enqueue(look, 1)
    await Worker(store, [look], tune_gc=True).drain()
    assert (seen, gc.get_threshold()) == ([THRESHOLDS], PLAIN)


async def test_it_is_off_unless_asked_for(store: Store) -> None:
    async with Worker(store, []):
        assert gc.get_threshold() == PLAIN


async def test_what_the_program_has_set_is_respected(store: Store) -> None:
    gc.set_threshold(50_000, 5, 5)
    async with Worker(store, [], tune_gc=True):
        assert gc.get_threshold() == (50_000, 5, 5), "it is rarer already"
    gc.set_threshold(*PLAIN)
    gc.disable()
    async with Worker(store, [], tune_gc=True):
        assert gc.get_threshold() == PLAIN
    gc.enable()
    async with Worker(store, [], tune_gc=True):
        gc.set_threshold(900, 9, 9)
    assert gc.get_threshold() == (900, 9, 9), "it was changed meanwhile"
