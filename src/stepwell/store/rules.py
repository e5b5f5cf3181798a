"""Rules that several statements or columns follow, over the row of a task as it stands when it is changed.

Each is a macro of the `.sql` files, the same text for every database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

# What a row must have to be `ready`, besides being PENDING and due, which each statement that sets it knows for itself.
# The CHECKs of the table say the same.
_READY = {"deleted_at": "is null", "held_at": "is null", "losses": "= 0", "waits_for_previous": "= false"}

# Rules that several columns of a statement follow, over the row as it stands when it is changed. For a turn that ends:
# whether the task is cancelled with it, and if not, whether it was cancelled and this turn knew nothing of it. For a
# cancel: whether the run is to clean up first, and until when.
_CANCELLED = (
    "(task.cancel_requested_at is not null"
    " and (rows.status not in ('PENDING', 'PAUSED') or coalesce(task.cleanup_until <= {now}, true)))"
)
_IS_TO_CLEAN_UP = "(task.cleanup_until is not null and rows.cleans_up = 0)"
_CLEANUP_UNTIL = (
    "coalesce(task.cleanup_until,"
    " {now} + (select workflow.cleanup from {workflow} as workflow where workflow.queue_id = task.queue_id))"
)
_CLEANS_UP = f"(task.kind = 'RUN' and task.turn > 0 and coalesce({_CLEANUP_UNTIL} > {{now}}, false))"
# When a task that waits is due, once another add has replaced what it says: a debounced one not later than `latest`
# after the first add.
_DUE_AGAIN = (
    "case when task.created_at + rows.latest < {now} + rows.delay then task.created_at + rows.latest"
    " else coalesce(rows.run_at, {now} + rows.delay) end"
)
# Whether the run restarts with it.
_RESTARTS = "rows.input is not null and task.cancel_requested_at is null and task.held_at is null"
# Whether a task in an ordered group leaves it with the end of its turn, and the others go on: it is done, or it failed
# where the others do not wait for that, or it is a dead letter of an outbox whose subjects go on without it, or of a
# queue whose keys do.
_SKIPS_DEAD = (
    "coalesce((select route.after_dead = 'skip' from {outbox_route} as route"
    " where route.queue_id = task.queue_id limit 1), false)"
)
_SKIPS_DEAD_OF_KEY = (
    "coalesce((select queue.ordered = 'skip' from {queue} as queue where queue.id = task.queue_id), false)"
)
_CONTINUES_AFTER_FAILURE = (
    "coalesce((select ordered_group.after_failure = 'continue' from {ordered_group} as ordered_group"
    " where ordered_group.queue_id = task.queue_id and ordered_group.group_key = task.group_key limit 1), false)"
)
GROUP: Final = (
    "select 1 from {ordered_group} as ordered_group"
    " where ordered_group.queue_id = task.queue_id and ordered_group.group_key = task.group_key"
)
_LEAVES_GROUP = (
    f"(task.deleted_at is not null or {_CANCELLED} or rows.status = 'CANCELLED'"
    " or (rows.status = 'SUCCESS' and task.held_at is null)"
    f" or (rows.error is not null and rows.attempt_back = 0 and task.held_at is null and {_CONTINUES_AFTER_FAILURE})"
    f" or (rows.status = 'ERROR' and task.held_at is null and ({_SKIPS_DEAD} or {_SKIPS_DEAD_OF_KEY})))"
)

# By the name of the macro.
RULES: Final[Mapping[str, str]] = {
    "cancelled": _CANCELLED,
    "is_to_clean_up": _IS_TO_CLEAN_UP,
    "cleanup_until": _CLEANUP_UNTIL,
    "cleans_up": _CLEANS_UP,
    "due_again": f"({_DUE_AGAIN})",
    "restarts": _RESTARTS,  # whether a row of `settle` lets its task restart
    "leaves_group": _LEAVES_GROUP,
    "continues_after_dead": f"({_CONTINUES_AFTER_FAILURE} or {_SKIPS_DEAD} or {_SKIPS_DEAD_OF_KEY})",
}

# Where a queue says that the key of its limits stands in an input; and what a row of `new_task` gets of it.
_KEY_IN = (
    "substr(%s #>> string_to_array(substr(%s.key_path, 3), '.'), 1, 255)",
    "substr(cast(json_extract(%s, %s.key_path) as text), 1, 255)",
)
_LIMIT_KEY = "(select coalesce(rows.limit_key, %s, '') from taking where taking.id = rows.queue_id and taking.limited)"
_KEY_IN_INPUT = _LIMIT_KEY.replace("rows.limit_key, ", "")  # of rows that name no key themselves

# The same of what a task costs: a whole number from 1 on; whatever else stands there is 1, and too much is the most.
_COST_IN = (
    (
        "(select case when cost.at ~ '^[0-9]{1,9}$' then greatest(1, cast(cost.at as bigint))"
        " when cost.at ~ '^[0-9]+$' then 1000000000 else 1 end"
        " from (select {input} #>> string_to_array(substr({of}.cost_path, 3), '.') as at) as cost"
        " where {of}.cost_path is not null)"
    ),
    (
        "(case when {of}.cost_path is null then null"
        " when typeof(json_extract({input}, {of}.cost_path)) = 'integer'"
        " then min(max(json_extract({input}, {of}.cost_path), 1), 1000000000) else 1 end)"
    ),
)
_COST = "(select coalesce(rows.cost, %s) from taking where taking.id = rows.queue_id and taking.limited)"
_COST_IN_INPUT = "(select %s from taking where taking.id = rows.queue_id and taking.limited)"
# What a task costs when it begins now. What waking costs, a run that goes on where it was, has been paid.
_COST_NOW = (
    "case when {task}.kind = 'RUN' and {task}.started_at is not null and not {wakes_cost}"
    " and not ({task}.attempt > 0 and {task}.error is not null) then 0 else coalesce({task}.cost, 1) end"
)
_PAID_BY = (
    "coalesce((select paid.paid from {key_paid} as paid"
    " where paid.queue_id = open.queue_id and paid.limit_key = {key}), 0)"
)
_RATES = "rate", "period", "burst", "key_rate", "key_period", "key_burst", "paid", "paid_at", "wakes_cost"
_LONGEST_DEBT = 315_360_000_000_000  # microseconds: ten years


def _costs(form: str, text: str, of: str) -> tuple[str, str]:
    first, second = (form % each.replace("{input}", text).replace("{of}", of) for each in _COST_IN)
    return first, second


_ADMITTED_AND_FOUND = (
    "(select json_group_array(each.id) from (select value as id from json_each(admitted)"
    " union select found.id from found) as each)"
)
# What limits need, in the spelling for Postgres and in that for SQLite and Turso.
LIMITS: Final[Mapping[str, tuple[str, str]]] = {
    # Text that is compared as SQLite compares it: a walk from key to key is the same everywhere.
    "bytewise": ('collate "C"', ""),
    # Numbers in one column: what they begin as, those of tasks, one more, and all that the set `found` has.
    "numbers": ("bigint[]", "text"),
    "no_numbers": ("'{}'", "'[]'"),
    "admitted_tasks": (
        "join {task} as task on task.id = any(limiter.admitted)",
        "cross join json_each(limiter.admitted) as let_in join {task} as task on task.id = let_in.value",
    ),
    "admitted_and_one": ("array_append(admitted, cast(:id as bigint))", "json_insert(admitted, '$[#]', :id)"),
    "admitted_and_found": (
        "array(select unnest(admitted) union select found.id from found)",
        _ADMITTED_AND_FOUND,
    ),
    "key_of_task": (_KEY_IN[0] % ("task.input", "queue"), _KEY_IN[1] % ("task.input", "queue")),
    "cost_in_task": _costs("%s", "task.input", "queue"),
    "cost_in_input": _costs(_COST_IN_INPUT, "rows.input", "taking"),
    "cost": _costs(_COST, "rows.input", "taking"),
    "limit_key_in_input": (
        _KEY_IN_INPUT % (_KEY_IN[0] % ("rows.input", "taking")),
        _KEY_IN_INPUT % (_KEY_IN[1] % ("rows.input", "taking")),
    ),
    "limit_key": (
        _LIMIT_KEY % (_KEY_IN[0] % ("rows.input", "taking")),
        _LIMIT_KEY % (_KEY_IN[1] % ("rows.input", "taking")),
    ),
}


def has_key(row: str) -> str:
    """Whether the task has its key now: the words of the index `task_key`, without which a plan does not use it."""
    return (
        f"{row}.key is not null and {row}.deleted_at is null"
        f" and ({row}.key_scope = 'ever' or {row}.finished_at is null)"
        f" and ({row}.turn = 0 or not {row}.key_until_begun)"
    )


def in_time(row: str) -> str:
    """Whether the task may be claimed: it has begun before, or it is not too late to begin."""
    return f"({row}.expires_at is null or {row}.turn > 0 or {row}.expires_at > {{now}})"


def may_be_ready(argument: str) -> str:
    """Whether the row `ROW` may be ready, once the statement has made it what it `clears`; a `new` one may."""
    row, _, cleared = argument.partition(" clears ")
    if row == "new":
        return "true"
    left = {column: state for column, state in _READY.items() if column not in cleared.split(", ")}
    return "(" + " and ".join(f"{row}.{column} {state}" for column, state in left.items()) + ")"


def cost_of(argument: str) -> str:
    """What a task costs if it begins now: `cost_of task WAKES_COST`."""
    task, _, wakes_cost = argument.partition(" ")
    return _COST_NOW.replace("{task}", task).replace("{wakes_cost}", wakes_cost)


def rates(limiter: str) -> str:
    """The rates of a limiter, until when they are paid, and the time."""
    return ", ".join(f"{limiter}.{column}" for column in _RATES) + ", {now} as now"


def price(argument: str) -> str:
    """By how much units move the moment until which a rate is paid: `price all UNITS` or `price key UNITS`.

    The rate is that of the row `open`; numbers of any size are divided, so that nothing is rounded down.
    """
    which, _, units = argument.partition(" ")
    own = "" if which == "all" else "key_"
    priced = f"div(cast({units} as numeric) * open.{own}period + open.{own}flow - 1, open.{own}flow)"
    return f"cast(least({priced}, {_LONGEST_DEBT}) as bigint)"


def wait(argument: str) -> str:
    """How long a task waits for a rate, as `Meter.wait` says it: `wait all PAID COST ALL`, ALL with those before it."""
    which, paid, cost, units = argument.split()
    own = "" if which == "all" else "key_"
    burst, rate = f"open.{own}burst", f"open.{own}rate"
    return (
        f"(case when {cost} <= {burst} then greatest({paid}, open.now) + {price(f'{which} {units}')}"
        f" - {price(f'{which} {burst}')} - open.now"
        f" when {units} > {cost} then greatest({paid}, open.now) + {price(f'{which} {units}')} - open.now"
        f" else {paid} + {price(f'{which} (least({cost}, {rate}) - {burst})')} - open.now end)"
    )


def paid_by(key: str) -> str:
    """Until when the rate of a key is paid, for the queue of the row `open`."""
    return _PAID_BY.replace("{key}", key)


# Rules with an argument, by the name of the macro: `{in_time task}`.
SPELLED: Final[Mapping[str, Callable[[str], str]]] = {
    "may_be_ready": may_be_ready,
    "has_key": has_key,
    "in_time": in_time,
    "cost_of": cost_of,
    "rates": rates,
    "price": price,
    "wait": wait,
    "paid_by": paid_by,
}
