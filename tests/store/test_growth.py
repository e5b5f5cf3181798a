"""A store with ten million finished runs: every statement, and what callers and people ask, as in a small one.

`make soak` loads it to full size; `make test` to a few thousand.
"""

import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from typing import Any

import pytest

from stepwell import Store, connect
from stepwell.operate.facts import facts_of
from stepwell.operate.run_view import view_of
from stepwell.operate.status import overview_of
from stepwell.store.driver import Call
from tests.ground.scale import Scale
from tests.store.bounds import bounds
from tests.store.growth import FIRST, Growth, grow_file, grow_server
from tests.store.plans import Prepared, touched
from tests.store.samples import sample
from tests.store.seam import do
from tests.store.steps import Stepped
from tests.store.test_bounds import MORE, MORE_COMPOSED, Asked, counted, every_statement
from tests.store.world import Size, found, load

FEW = Size(4_000, 8_000, 400, 4_000)
TABLES = ("task", "step")
FLAT = 1.3
DEEPER = 2  # pages: an index of millions is a level deeper than one of thousands
# What stands for a claim, a step, a settle, a result, a list, a look and the removal of what is old.
TOLD = {
    "claim": "claim of ten", "add_steps__one": "step", "settle__one": "settle", "endings": "result",
    "find_runs": "runs", "run_of_key": "run by key", "standing": "why", "queue_stats__one": "queue",
    "remove_finished": "retention of ten",
}  # fmt: skip
# What reads by id or by key are made of: each touches the same pages, but for those of a deeper index.
READS = {
    "result": ("endings",), "get_run": ("runs__one",), "find_run": ("run_of_key", "runs__one"), "get": ("task",),
    "why": ("standing",), "history": ("history",), "an instance": ("lock_instances__one",),
    "a key that is taken": ("find_added__one",), "who has a key": ("key_holder",),
}  # fmt: skip
Ask = Callable[[], Awaitable[object]]


@pytest.fixture
def growth(scale: Scale) -> Growth:
    return scale.of(Growth(20_000, 2_000, 2_000), Growth(10_000_000, 1_000_000, 1_000_000))


@pytest.mark.timeout(3000)
@pytest.mark.proves("PR-15", "promise-18", "protocol-16", "MM-08")
@pytest.mark.backends("postgres", reason="an embedded store counts instructions, not pages: below")
async def test_at_full_size_every_statement_keeps_to_its_bound_and_reads_are_flat(
    live_store: Store, prepared: Prepared, store_url: str, growth: Growth, measured: Callable[..., None]
) -> None:
    store = live_store
    of = await found(store)
    await do(store, *(f"alter table {{{table}}} set (autovacuum_enabled = false)" for table in TABLES))
    asked = {name: [ten_of(call) for call in calls] for name, calls in every_statement(store, of).items()}
    for name, calls in asked.items():
        await prepared.prepare(name, calls)
    await load(store, FEW, of)
    few = await counted_warm(prepared, asked, MORE)
    began = time.monotonic()
    await grow_server(store, store_url, growth, of)
    loaded = time.monotonic() - began
    full = await counted_warm(prepared, asked)  # what was explained before has left dead versions, too
    assert_flat(few, full)
    await prepared.vacuum(store, TABLES)
    assert_flat(few, await counted_warm(prepared, asked))
    told = {words: (few[name], full[name]) for name, words in TOLD.items()}
    told |= {name: (sum(few[part] for part in its), sum(full[part] for part in its)) for name, its in READS.items()}
    times = await times_of(store, store_url)
    measured(
        "growth",
        **asdict(growth),
        steps=growth.steps,
        statements=len(asked),
        loaded=loaded,
        told=told,
        unit="pages",
        times=times,
    )


@pytest.mark.timeout(1200)
@pytest.mark.proves("PR-15", "promise-18", "MM-08")
@pytest.mark.backends("sqlite", reason="SQLite counts its machine's instructions; Turso counts nothing")
async def test_on_sqlite_a_million_runs_cost_no_statement_more(
    live_store: Store, store_url: str, scale: Scale, measured: Callable[..., None]
) -> None:
    growth = scale.of(Growth(10_000, 1_000, 1_000), Growth(1_000_000, 100_000, 100_000))
    store, of, stepped = live_store, await found(live_store), Stepped(live_store)
    await load(store, FEW, of)
    said = {**bounds("sqlite"), **bounds("postgres")}
    calls = {
        name: call
        for name, statement in store.database.statements._statements.items()
        if said[name].unbounded is None and not said[name].scans and (call := plannable(sample(statement, of), store))
    }
    few = {name: await stepped.steps([ten_of(call)]) for name, call in calls.items()}
    began = time.monotonic()
    await grow_file(store, growth, of)
    loaded = time.monotonic() - began
    full = {name: await stepped.steps([ten_of(call)]) for name, call in calls.items()}
    grown = {name: (few[name], steps) for name, steps in full.items() if steps > FLAT * few[name] + 400}
    assert not grown
    names = {name.removesuffix("__one"): words for name, words in TOLD.items()}
    told = {words: (few[name], full[name]) for name, words in names.items() if name in few}
    measured(
        "growth",
        **asdict(growth),
        steps=growth.steps,
        statements=len(calls),
        loaded=loaded,
        told=told,
        unit="instructions",
        times=await times_of(store, store_url),
    )


def ten_of(call: Call) -> Call:
    """The same call, of ten where it takes a limit; and about what was finished by then, where it removes that."""
    changes: dict[str, Any] = {"limit": 10} if "limit" in call.params else {}
    return replace(call, params={**call.params, **changes})


def plannable(call: Call, store: Store) -> Call | None:
    first = store.database.statements[call.statement].tokens[0]
    return None if isinstance(first, str) and first.split()[0] in ("savepoint", "rollback", "release") else call


async def counted_warm(prepared: Prepared, asked: Asked, more: float = MORE_COMPOSED) -> dict[str, int]:
    """What each costs; the reads once more, without what the catalogue was asked at first."""
    costs = await counted(prepared, asked, more)
    for part in {part for parts in READS.values() for part in parts}:
        costs[part] = touched(await prepared.explain(part, asked[part]))
    return costs


def assert_flat(few: dict[str, int], full: dict[str, int]) -> None:
    """Fail if a statement of a read touches more pages than deeper indexes explain: one for each of two of them."""
    for name, parts in READS.items():
        for part in parts:
            before, after = few[part], full[part]
            assert after < FLAT * before or after <= before + DEEPER, f"{name}, {part}: {before} pages, then {after}"


async def times_of(store: Store, url: str) -> dict[str, float]:
    """The median milliseconds of what callers and people ask of a full store."""
    run = FIRST + 1_002
    asks: dict[str, Ask] = {
        "result": lambda: store.result(run, int, timeout=5),
        "runs": lambda: store.runs("flow", limit=20),
        "show": lambda: shown(store, run),
        "doctor": lambda: facts_of(store, "here"),
        "top": lambda: overview_of(store, 10),
        "counts": lambda: store.counts("flow"),
        "metrics": lambda: store.metrics("flow", window="1h"),
        "prometheus": lambda: store.prometheus(window="5m"),
    }
    times = {name: await _median(ask) for name, ask in asks.items()}
    async with connect(url, keep="1s") as other:
        return {**times, "retention of 10,000": await _median(other.database.retention.round, rounds=1)}


async def shown(store: Store, run: int) -> object:
    return await view_of(store, await store.get_run(run))


async def _median(ask: Ask, rounds: int = 5) -> float:
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        await ask()
        times.append(1000 * (time.perf_counter() - begun))
    return statistics.median(times)
