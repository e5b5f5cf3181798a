"""Every statement, alone and in flushes, on Postgres: plans made on an empty database, and their cost in a full one.

What a statement may cost stands below its name (`bounds.py`). `make soak` fills the store to full size.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pytest

from stepwell import Store
from stepwell.store.driver import Call
from stepwell.store.flush_calls import PARTS
from stepwell.store.sql import Statement
from tests.ground.scale import Scale
from tests.store.bounds import Bound, bounds
from tests.store.flushes import alone, composed, together
from tests.store.plans import Prepared, drawn, looked_at, rows_of, scanned, touched
from tests.store.samples import sample
from tests.store.seam import do
from tests.store.world import Size, Subjects, found, load

pytestmark = pytest.mark.backends("postgres", reason="an embedded store tells its plans in another way: test_scans.py")

TABLES: Final = (
    "task", "step", "signal", "audit", "instance", "event", "receipt", "rollup", "worker", "beat", "fence",
    "queue", "workflow", "maintenance", "control_request", "projection", "parked", "ordered_group", "schedule", "tick",
    "limiter", "key_limit", "key_paid", "subscription", "broadcast", "data_key",
)  # fmt: skip
# Rows that may be gone through for each page of a bound: a loop over a whole table costs time in memory too.
ROWS_A_PAGE: Final = 25
MORE: Final = 1.25  # what a statement may touch is so many times its bound, ...
MORE_COMPOSED: Final = 1.5  # (as part of a flush: by then hundreds of others have left dead versions of the same rows)
SLACK: Final = 4  # ... and so many pages
NOTHING: Final = frozenset(
    ("held_tasks", "oldest_writer", "appenders")
)  # what finds only what another transaction holds

Asked = dict[str, list[Call]]


@pytest.mark.proves("protocol-16")
def test_every_statement_says_what_it_may_cost() -> None:
    unsaid = [name for name, bound in bounds("postgres").items() if not bound.is_said]
    assert not unsaid, "a line below the name says either `-- bound: 12 + 8 a row` or `-- unbounded: why`"


@pytest.mark.proves("protocol-16", "promise-18", "PR-15", "messages-03")
@pytest.mark.parametrize("analysed", [False, True], ids=["never analysed", "analysed while empty"])
async def test_with_plans_made_on_an_empty_database_every_statement_keeps_to_its_bound(
    live_store: Store, prepared: Prepared, scale: Scale, measured: Callable[..., None], analysed: bool
) -> None:
    store, size = live_store, scale.of(Size(20_000, 40_000, 2_000, 20_000), Size(200_000, 400_000, 20_000, 200_000))
    of = await found(store)
    await do(store, *(f"alter table {{{table}}} set (autovacuum_enabled = false)" for table in TABLES))
    if analysed:
        await analyse(store)
    statements, flushes = every_statement(store, of), every_flush(store, of)
    asked = {**statements, **flushes}
    for name, calls in asked.items():
        await prepared.prepare(name, calls)
    await load(store, size, of)
    costs = await counted(prepared, asked)
    if not analysed:  # then every plan is made anew, by who knows the full tables
        await prepared.vacuum(store, TABLES)
        await counted(prepared, statements)
    measured(
        "plans",
        analysed=analysed,
        **dataclasses.asdict(size),
        statements=len(statements),
        flushes=len(flushes),
        **few_of(costs),
    )


@pytest.mark.proves("protocol-16")
async def test_the_clock_of_the_database_bounds_the_walk_over_what_is_scheduled(
    live_store: Store, prepared: Prepared
) -> None:
    """It is asked once, before the index is read: asked for each row, it could not end the walk at what is due."""
    of = await found(live_store)
    call = sample(live_store.database.statements["wake_due"], of)
    calls = [dataclasses.replace(call, params={**call.params, "now": None})]  # so it asks the database's clock
    await prepared.prepare("due", calls)
    await live_store.create_queue("later")
    await live_store.enqueue_many("later", range(5_000), delay="1d")
    plan = await prepared.explain("due", calls)
    assert touched(plan) < 40, drawn("wake_due\n", plan)


async def analyse(store: Store) -> None:
    await do(store, *(f"analyze {{{table}}}" for table in TABLES))


def every_statement(store: Store, of: Subjects) -> Asked:
    """Every statement that can be planned, with several rows and with one."""
    said = bounds("postgres")
    asked: Asked = {}
    for name, statement in store.database.statements._statements.items():
        if name not in said or _is_command(statement):
            continue
        call = sample(statement, of)
        asked[name] = [call]
        if call.rows is not None:
            asked[f"{name}__one"] = [dataclasses.replace(call, rows=call.rows[:1])]
    return asked


def every_flush(store: Store, of: Subjects) -> Asked:
    """The flushes of which all others are made up, with several rows in each part, and with one."""
    rows = {part: sample(store.database.statements[part], of).rows or () for part in PARTS}
    one = {part: given[:1] for part, given in rows.items()}
    flushes = [*alone(), *((parts, True, True) for parts in together())]
    asked: Asked = {}
    for number, (parts, parent, noted) in enumerate(flushes):
        for given, many in ((rows, "many"), (one, "one")):
            asked[f"flush_{number}_{many}"] = composed(given, parts, of.worker, parent=parent, noted=noted)
    return asked


def few_of(costs: Mapping[str, int]) -> dict[str, Any]:
    """What a report tells of the costs: the dearest flush, and those of reads that were dear once."""
    told = ("endings", "runs__one", "lock_instances__one", "find_added__one", "run_of_key", "owned__one")
    reads = {name.removesuffix("__one"): costs[name] for name in told}
    return {"reads": reads, "dearest": max(cost for name, cost in costs.items() if name.startswith("flush"))}


async def counted(prepared: Prepared, asked: Asked, more: float = MORE) -> dict[str, int]:
    """What each cost; fails with the plans of those that went over their bound, or that found nothing."""
    said, costs, trouble = bounds("postgres"), {}, []
    for name, calls in asked.items():
        plan = await prepared.explain(name, calls)
        many = more if len(calls) == 1 else MORE_COMPOSED
        if wrong(said, calls, plan, many):
            # The first time a connection executes it, it also reads of the catalogue what the tables and indexes are.
            plan = await prepared.explain(name, calls)
        costs[name] = touched(plan)
        if told := wrong(said, calls, plan, many):
            trouble.append(drawn(f"{'+'.join(call.statement for call in calls)}: {told}\n", plan))
    assert not trouble, f"{len(trouble)} of {len(asked)}:\n" + "\n\n".join(trouble)
    return costs


def wrong(said: Mapping[str, Bound], calls: Sequence[Call], plan: dict[str, Any], more: float) -> str | None:
    """What is wrong with a plan, by the bounds of all its parts, each taken so many times."""
    parts = [said[call.statement] for call in calls]
    if not rows_of(plan) and not NOTHING.issuperset(call.statement for call in calls):
        return "it found nothing, so that it proves nothing: see samples.py"
    if unexcused := scanned(plan).difference(*(part.scans for part in parts)) & set(TABLES):
        return f"it reads all of {', '.join(sorted(unexcused))}"
    if any(part.unbounded is not None for part in parts):
        return None
    # Each explain is rolled back and leaves dead versions of the same few rows behind, which a vacuum would remove, and
    # with them the plans; and in a fuller store an index may be a page deeper. What the test is for, a walk over what
    # the store holds, touches thousands.
    bound = SLACK + more * sum(part.of(rows) for part, rows in zip(parts, rows_in(calls, plan), strict=True))
    if touched(plan) > bound:
        return f"{touched(plan)} buffers, and its bound is {bound:g}"
    if looked_at(plan) > ROWS_A_PAGE * (1 + bound):
        return f"it went through {looked_at(plan):g} rows, with a bound of {bound:g} buffers"
    return None


def rows_in(calls: Sequence[Call], plan: dict[str, Any]) -> list[float]:
    """How many rows each part is about: those given, those of the part that feeds it, or those found."""
    given: list[float] = []
    for call in calls:
        given.append(len(call.rows) if call.rows is not None else 0.0 if call.fed_by is None else given[call.fed_by])
    return given if len(calls) > 1 else [max(given[0], rows_of(plan))]


def _is_command(statement: Statement) -> bool:
    """True for what has no plan."""
    first = statement.tokens[0]
    return isinstance(first, str) and first.split()[0] in ("savepoint", "rollback", "release", "set", "lock")
