"""A full store, written by the thousand behind its back: every sort of task, step, signal, instance and event in it.

Whatever index a plan may take by mistake holds a share of all tasks, so that a walk over it costs thousands of pages.
A few tasks of each sort, `Subjects`, stand above all others: they are what the statements are asked about.
"""

from dataclasses import dataclass

from stepwell import Store
from stepwell.store.rows import NEVER
from tests.store.seam import begin, do

NOW = 2 * 10**15  # the moment at which the statements are asked
FAR = 10**17  # a moment that will not come
CHUNK = 50_000  # rows of one transaction: what a busy machine writes well within a call's deadline
FIRST = 10**9  # of the ids of what is asked about
FEW = 20
CROWD = 50  # sessions that execute tasks of their own
TYPE = "till"  # of the instances


@dataclass(frozen=True, slots=True)
class Size:
    """How much lies in the store."""

    tasks: int
    steps: int
    instances: int
    events: int


def _few(block: int) -> range:
    return range(FIRST + 100 * block, FIRST + 100 * block + FEW)


@dataclass(frozen=True, slots=True)
class Subjects:
    """The ids of what is asked about, and of the queues and the session that have it."""

    worker: int
    flow: int
    messages: int
    effects: int
    inputs: int
    timers: int
    idle: int
    limited: int

    # Tasks of the session, and their parents.
    running = _few(0)
    parents = _few(1)
    progressing = _few(2)
    # Taken by hand, to be closed, kept for longer or deleted, and the parents of those that are.
    taken = _few(3)
    parents_of_taken = _few(4)
    extended = _few(5)
    removed = _few(6)
    parents_of_removed = _few(7)
    failed = _few(8)
    ended = _few(9)
    deleted = _few(10)
    set_timers = _few(11)
    dead_effects = _few(12)
    held = _few(13)
    suspects = _few(14)
    accepting = _few(15)  # held for their code
    placed = _few(21)  # tasks with a place in the limited queue, whose keys take turns
    ready_of_keys = _few(22)
    lost_of_keys = _few(23)
    cancelled = _few(24)
    cancelled_children = _few(25)
    heads = _few(16)  # the first of ordered groups, executed by the session; behind each stand others
    instances = _few(0)
    bare = _few(1)  # instances without an event

    @property
    def stranded(self) -> int:
        """A session that has lost its fence and owns tasks."""
        return self.worker + 1


COLUMNS = """id, kind, queue_id, status, ready, priority, run_at, owner, turn, max_attempts, waiting, key, key_scope,
             input, parent_id, instance_id, deleted_at, created_at, updated_at, claimed_at, finished_at"""
NUMBERS = """with recursive numbers (n) as (
    select cast(%(first)s as bigint) union all select n + 1 from numbers where n < %(last)s
)"""
# What a task is goes by the last two digits of its number.
TASKS = f"""
insert into {{task}} ({COLUMNS})
{NUMBERS}
select n,
       case when n %% 20 < 13 then 'RUN' when n %% 20 = 17 then 'TIMER' when n %% 20 = 18 then 'EFFECT'
            else 'MESSAGE' end,
       case when n %% 20 < 13 then %(flow)s when n %% 20 = 17 then %(timers)s when n %% 20 = 18 then %(effects)s
            else %(messages)s end,
       case when n %% 20 < 7 or n %% 20 in (13, 18, 19) then 'SUCCESS' when n %% 20 = 7 then 'CANCELLED'
            when n %% 20 < 10 then 'ERROR' when n %% 20 = 11 then 'PAUSED'
            when n %% 20 in (12, 16) then 'RUNNING' else 'PENDING' end,
       n %% 20 in (10, 14), n %% 3,
       case when n %% 20 = 11 then null when n %% 20 in (15, 16, 17) then {FAR} + n else n end,
       case when n %% 20 = 12 then %(crowd)s + (n / 20) %% %(crowd_size)s end,
       case when n %% 20 = 10 then 0 else 1 end, 3,
       case when n %% 20 = 11 then 1 else 0 end,
       case when n %% 3 < 2 or n %% 20 = 17 then 'key-' || n end,
       case when n %% 20 = 17 then 'unfinished' else 'ever' end, '0',
       case when n %% 20 in (2, 3, 11) then n - 1 end,
       case when n %% 20 in (17, 18) then 1 + n %% %(instances)s end,
       case when n %% 20 = 19 then n end, n, n, n,
       case when n %% 20 < 10 or n %% 20 in (13, 18, 19) then n end
  from numbers
"""
STEPS = f"""
insert into {{step}} (run_id, key, place, status, attempt, output, started_at, finished_at)
{NUMBERS}
select n, 'one#1', 1, 'SUCCESS', 1, cast('0' as {{json}}), n, n + 5 from numbers
union all
select n, 'two#1', 2, case when n %% 20 = 11 then 'PAUSED' else 'SUCCESS' end, 1, cast('0' as {{json}}), n,
       case when n %% 20 = 11 then null else n + 5 end
  from numbers
"""
SIGNALS = f"""
insert into {{signal}} (run_id, name, place, data, sent_at)
{NUMBERS}
select n, 'word', 1, '1', 1 from numbers where n %% 10 = 1
"""
REPORTS = f"""
insert into {{report}} (run_id, kind, name, place, chunks, data, recorded_at)
{NUMBERS}
select n, case n %% 2 when 0 then 'value' else 'stream' end, 'word', 1, 1, '[1]', 1 from numbers where n %% 10 = 1
"""
AUDIT = f"""
insert into {{audit}} (task_id, place, what, turn, attempt, seal, recorded_at)
{NUMBERS}
select n, n, 'failed', 1, 1, case n %% 40 when 0 then 0 when 20 then 1 + n / 80 end, n from numbers where n %% 4 = 0
"""
SEALS = f"""
insert into {{audit_seal}} (id, notes, hash, previous, first_at, last_at, sealed_at, dropped_at)
{NUMBERS}
select n, 2, 'hash-' || n, 'hash-' || (n - 1), 1, 1, 1, case when n < 20 then 1 end from numbers
"""
DATA_KEYS = f"""
insert into {{data_key}} (tenant, key_id, wrapped, created_at)
{NUMBERS}
select case n when 1 then 'other' else 'tenant-' || n end, 'old', 'hash-1', 1 from numbers
"""
SUBJECT_KEYS = f"""
insert into {{subject_key}} (tenant, subject, wrapped, created_at, forgotten_at)
{NUMBERS}
select 'other', 'name-' || n, case when n %% 10 < 9 then 'wrapped' end, 1, case when n %% 10 = 9 then n end from numbers
"""
INSTANCES = f"""
insert into {{instance}} (id, tenant, type, name, version, created_at, updated_at)
{NUMBERS}
select n, '', '{TYPE}', 'name-' || n, %(each)s, 1, 1 from numbers
"""
EVENTS = f"""
insert into {{event}} (tenant, instance_id, version, type, data, cause, recorded_at)
{NUMBERS}
select '', 1 + n %% %(instances)s, 1 + n / %(instances)s, 'Rung', '1', 'cause-' || n, n from numbers
"""
RECEIPTS = f"""
insert into {{receipt}} (instance_id, key, outcome, recorded_at)
{NUMBERS}
select n, 'key-' || n, 'applied', n from numbers
"""
SUBMITTED = range(3 * 10**9, 3 * 10**9 + 1)  # an input that waits for the instance `asked`
OBSERVATIONS = f"""
insert into {{observation}}
  (type, name, input, input_version, data, outcome, from_status, to_status, cause, recorded_at)
{NUMBERS}
select '{TYPE}', 'name-' || n, 'Ring', 1, '1', 'applied', 'off', 'on', 'cause-' || n, n from numbers
"""
PROJECTIONS = f"""
insert into {{projection}} (name, state, position, begun, turn, failed_at, window_at, created_at)
{NUMBERS}
select case n when 1 then 'flow' when 2 then 'paused' when 3 then 'stopped' else 'projection-' || n end,
       case n when 2 then 'paused' when 3 then 'stopped' else 'running' end, 1000, true, 1, 2000, 1, 1
  from numbers where n <= 20
"""
BUILDS = """
insert into {projection} (name, build, live, position, begun, window_at, created_at)
values ('rebuilt', 1, true, 1000, true, 1, 1), ('rebuilt', 2, false, 1000, true, 1, 1)
"""
MAY_BE_INLINE = "update {projection} set may_inline = true where name = 'projection-4'"
PARKED = f"""
insert into {{parked}} (projection, instance_id, version, error, parked_at)
{NUMBERS}
select 'projection-' || (4 + n %% 10), n, 1, 'error', n from numbers
"""
# Ten tasks in each group; and groups that have none.
GROUPS = f"""
insert into {{ordered_group}} (queue_id, group_key, last_position, after_failure, emptied_at)
{NUMBERS}
select %(inputs)s, case when n %% 10 = 0 then 'crowd-' || (n / 10) else 'old-' || n end, 10, 'wait',
       case when n %% 10 = 0 then null else n end
  from numbers
"""
IN_ORDER = f"""
insert into {{task}} ({COLUMNS}, group_key, position, waits_for_previous)
{NUMBERS}
select -n, 'INPUT', %(inputs)s, 'PENDING', n %% 10 = 0, 0, n, null, 0, 3, 0, null, 'ever', '0', null, null, null, n, n,
       null, null, 'crowd-' || (n / 10), 1 + n %% 10, n %% 10 > 0
  from numbers
"""
# A limited queue: nine of ten tasks are of one noisy key, and each of the others has its own.
LIMITED = f"""
insert into {{task}} ({COLUMNS}, limit_key)
{NUMBERS}
select -10000000000 - n, 'MESSAGE', %(limited)s, 'PENDING', true, 0, n, null, 0, 3, 0, null, 'ever', '0', null, null,
       null, n, n, null, null, case when n %% 10 > 0 then 'noisy' else 'other-' || n end
  from numbers
"""
SCHEDULES = f"""
insert into {{schedule}} (tenant, name, queue_id, plan, declared, next_at, buffered_at, created_at, updated_at)
{NUMBERS}
select '', 'schedule-' || n, %(flow)s, '{{}}', case when n %% 100 = 1 then cast('{{}}' as {{json}}) end,
       case when n %% 500 = 1 then n else {FAR} + n end,
       case when n %% 500 = 1 then n end, n, n
  from numbers
"""
TICKS = f"""
insert into {{tick}} (schedule_id, due_at, kind, outcome, task_id, decided_at)
{NUMBERS}
select 1 + n %% 100, n, 'tick', 'skipped', case when n %% 3 = 0 then n end, n from numbers
"""
BROADCASTS = (
    f"""
insert into {{broadcast}} (tenant, name, task_id, data, published_at)
{NUMBERS}
select '', 'word', n, '1', n from numbers
""",
    f"""
insert into {{broadcast_key}} (tenant, name, match, broadcast_id)
{NUMBERS}
select '', 'word', '*', n from numbers union all select '', 'word', 'one-' || n, n from numbers
""",
    f"""
insert into {{subscription}} (run_id, generation, key, tenant, name, match, after, told, taken, asked_at)
{NUMBERS}
select n, 0, '@word#1', '', 'word', case when n %% 2 = 0 then '*' else 'one-' || n end, 0,
       case n %% 10 when 3 then n end, case n %% 10 when 5 then n end, 1
  from numbers
""",
    f"""
insert into {{event_workflow}} (tenant, name, match, queue_id, max_attempts, priority, declared_at)
{NUMBERS}
select '', 'word', '*', n, 3, 0, 1 from numbers
""",
)
ROLLUP = f"""
insert into {{rollup}} (minute, queue_id, shard)
{NUMBERS}
select n, %(flow)s, 0 from numbers
"""
QUEUES = f"""
insert into {{queue}} (tenant, name, created_at)
{NUMBERS}
select case when n %% 2 = 0 then '' else 'other' end, 'empty-' || n, 1 from numbers
"""
SESSIONS = f"""
insert into {{worker}} (name, host, pid, version, handlers, lease, started_at, stopped_at)
{NUMBERS}
select 'w', 'h', 1, '', '[]', 1, 1, n from numbers
"""


async def found(store: Store) -> Subjects:
    """Make the queues and the session of the world, where there is nothing else."""
    await store.create_workflow("flow")
    await store.create_workflow("letters")
    names = ("q", f"{TYPE}.effects", f"{TYPE}.inputs", f"{TYPE}.timers", "idle", "limited")
    for name in names:
        await store.create_queue(name)
    await do(store, 'update {workflow} set options = \'{"dead_letter": "letters"}\'')
    ids = [await store.database.queue_id(name) for name in ("flow", *names)]
    return Subjects(await begin(store), *ids)


async def load(store: Store, size: Size, of: Subjects) -> None:
    """Fill the store, and leave what its planner knows of it as it was."""
    given = {
        "flow": of.flow,
        "messages": of.messages,
        "effects": of.effects,
        "timers": of.timers,
        "inputs": of.inputs,
        "limited": of.limited,
        "instances": size.instances,
        "each": size.events // size.instances,
        "crowd": of.worker + 1,
        "crowd_size": CROWD,
    }
    tenth, hundredth = size.tasks // 10, size.tasks // 100
    parts = (
        (QUEUES, hundredth),
        (SESSIONS, CROWD + hundredth),
        (TASKS, size.tasks),
        (STEPS, size.steps // 2),
        (SIGNALS, size.tasks),
        *((each, tenth) for each in BROADCASTS),
        (REPORTS, size.tasks),
        (AUDIT, size.tasks),
        (SEALS, hundredth),
        (DATA_KEYS, hundredth),
        (SUBJECT_KEYS, hundredth),
        (INSTANCES, size.instances),
        (EVENTS, size.events - 1),
        (RECEIPTS, size.instances),
        (OBSERVATIONS, size.instances),
        (PROJECTIONS, 20),
        (BUILDS, 1),
        (MAY_BE_INLINE, 1),
        (PARKED, size.instances),
        (GROUPS, tenth),
        (IN_ORDER, tenth),
        (LIMITED, tenth),
        (ROLLUP, tenth),
        (SCHEDULES, tenth),
        (TICKS, tenth),
    )
    for text, rows in parts:
        for first in range(1, rows + 1, CHUNK):
            await do(store, text % {**given, "first": first, "last": min(first + CHUNK - 1, rows)})
    await do(
        store, *_crowd(of), *_tasks(of), *_groups(of), *_limits(of), *_outboxes(of), *_belongings(of), *_instances(of)
    )


def _crowd(of: Subjects) -> list[str]:
    """Sessions whose tasks are under way; the first has lost its fence."""
    crowd = f"between {of.worker + 1} and {of.worker + CROWD}"
    return [
        f"update {{worker}} set stopped_at = null, lease = 1000000 where id {crowd}",
        f"insert into {{fence}} (worker_id, slot) select id, 0 from {{worker}} where id {crowd}",
        f"delete from {{fence}} where worker_id = {of.stranded}",
        f"insert into {{beat}} (worker_id, beat_at, heard_at) select id, {NOW}, {NOW} from {{worker}} where id {crowd}",
        "insert into {maintenance} (tenant, began_at) values ('other', 1)",
    ]


def _tasks(of: Subjects) -> list[str]:
    by_hand = {"run_at": str(NOW - 1), "scheduled": "1"}
    keyed = "'key-' || n"
    # A deleted task has the key of one that is there, but for the last.
    keys_of_deleted = f"'key-' || (n - case when n = {of.deleted[-1]} then 0 else {of.deleted[0] - of.ended[0]} end)"
    instance = f"n - {of.set_timers[0] - of.instances[0]}"
    return [
        *(
            _rows(parents, "RUN", of.flow, "PAUSED", waiting="1")
            for parents in (of.parents, of.parents_of_taken, of.parents_of_removed)
        ),
        _rows(of.running, "RUN", of.flow, "RUNNING", owner=str(of.worker), run_at="1", parent="n + 100", key=keyed),
        _rows(of.progressing, "RUN", of.flow, "RUNNING", owner=str(of.worker), run_at="1"),
        f"update {{task}} set schedule_id = 1 where id between {of.progressing[0]} and {of.progressing[-1]}",
        _rows(of.taken, "MESSAGE", of.messages, "RUNNING", parent="n + 100", **by_hand),
        _rows(of.extended, "MESSAGE", of.messages, "RUNNING", **by_hand),
        _rows(of.removed, "MESSAGE", of.messages, "RUNNING", parent="n + 100", **by_hand),
        _rows(of.failed, "RUN", of.flow, "ERROR", finished="n", key=keyed),
        _rows(of.cancelled, "RUN", of.flow, "CANCELLED", finished="n"),
        _rows(of.cancelled_children, "RUN", of.flow, "CANCELLED", finished="n", parent="n - 100"),
        f"update {{task}} set cancel_requested_at = 1 where id in ({_listed(of.cancelled)})",
        f"update {{task}} set cancel_requested_at = id where id in ({_listed(of.cancelled_children)})",
        _rows(of.ended, "RUN", of.flow, "SUCCESS", finished=str(NOW), key=keyed),
        f"update {{task}} set tags = '[\"vip\"]' where id in ({_listed(of.ended)})",
        _rows(of.deleted, "RUN", of.flow, "SUCCESS", finished="n", key=keys_of_deleted, deleted="n"),
        _rows(of.set_timers, "TIMER", of.timers, "PENDING", key=keyed, run_at=str(FAR), instance=instance),
        f"update {{task}} set turn = 0, expires_at = 1, replaced_by = id + {FIRST} where id {_between(of.set_timers)}",
        _rows(SUBMITTED, "INPUT", of.inputs, "PENDING", run_at=str(FAR)),
        f'update {{task}} set input = \'{{"id": "asked"}}\' where id = {SUBMITTED[0]}',
        _rows(of.dead_effects, "EFFECT", of.effects, "ERROR", finished="n"),
        f'update {{task}} set input = \'{{"id": "asked"}}\' where id = {of.dead_effects[0]}',
        _rows(of.held, "RUN", of.flow, "PAUSED"),
        _rows(of.suspects, "MESSAGE", of.messages, "PENDING", run_at="1"),
        _rows(of.accepting, "RUN", of.flow, "PAUSED", run_at=str(NEVER)),
        f"update {{task}} set last_error = 'NotThisCode: it is newer' where id in ({_listed(of.accepting)})",
        f"update {{task}} set held_at = 1 where id in ({_listed(of.held)})",
        f"update {{task}} set losses = 1, lost_by = {of.worker + 2} where id in ({_listed(of.suspects)})",
        f"update {{worker}} set held = 1 where id = {of.worker + 2}",
        (
            "insert into {signal} (run_id, name, place, key, data, sent_at, taken_at)"
            f" values ({of.held[0]}, 'word', 1, 'k', '1', 1, 1)"
        ),
        f"update {{task}} set cancel_requested_at = 1 where id in ({_listed(of.parents)})",
        (
            "insert into {control_request} (worker_id, task_id, turn, request)"
            " select owner, id, 1, 'cancel' from {task} where owner is not null"
        ),
        # What the sessions of the crowd were asked of a turn that they do not have any more.
        (
            "insert into {control_request} (worker_id, task_id, turn, request)"
            f" select id, {of.ended[0]}, 2, 'pause' from {{worker}} where stopped_at is null"
        ),
    ]


def _groups(of: Subjects) -> list[str]:
    """Groups of which the first is executed, and groups of which it is asleep: nothing would wake it."""
    heads, behind = of.heads, [range(first, first + FEW) for first in range(FIRST + 1700, FIRST + 2100, 100)]
    texts = [_rows(heads, "INPUT", of.inputs, "RUNNING", owner=str(of.worker), run_at="1")]
    texts += [_rows(one, "INPUT", of.inputs, "PENDING", run_at="1") for one in behind]
    for place, ids in enumerate([heads, *behind], 1):
        group = f"'{'asleep' if place == 5 else 'name'}-' || (id - {ids[0] - of.instances[0]})"
        texts.append(
            f"update {{task}} set group_key = {group}, position = {place}, waits_for_previous = {place > 1}"
            f" where id between {ids[0]} and {ids[-1]}"
        )
    numbers = NUMBERS % {"first": of.instances[0], "last": of.instances[-1]}
    texts += [
        "insert into {ordered_group} (queue_id, group_key, last_position, after_failure)"
        f" {numbers} select {of.inputs}, '{name}-' || n, 5, 'wait' from numbers"
        for name in ("name", "asleep", "empty")
    ]
    return texts


def _limits(of: Subjects) -> list[str]:
    """The limiter of the limited queue; keys of which something is said, and who has a place."""
    return [
        _rows(of.placed, "MESSAGE", of.limited, "RUNNING", owner=str(of.worker), run_at="1"),
        _rows(of.ready_of_keys, "MESSAGE", of.limited, "PENDING", run_at="1"),
        _rows(of.lost_of_keys, "MESSAGE", of.limited, "PENDING", run_at="1"),
        f"update {{task}} set losses = 1, limit_key = 'lost' where id in ({_listed(of.lost_of_keys)})",
        f"update {{task}} set limit_key = 'few-' || id where id between {of.placed[0]} and {of.ready_of_keys[-1]}",
        f"update {{task}} set ready = true where id between {of.ready_of_keys[0]} and {of.ready_of_keys[-1]}",
        f"update {{queue}} set limited = true, ordered = 'skip', key_path = '$.tenant' where id = {of.limited}",
        (
            "insert into {limiter} (queue_id, per_key, running, declared, edited, cursor, updated_at,"
            " rate, period, burst, key_rate, key_period, key_burst)"
            f" values ({of.limited}, 5, 100, '{{}}', '{{}}', 'few-', 1,"
            " 1000000, 1000000, 100000, 1000000, 1000000, 100000)"
        ),
        (
            f"insert into {{key_paid}} (queue_id, limit_key, paid) {NUMBERS % {'first': 1, 'last': FEW}}"
            f" select {of.limited}, 'paid-' || n, 1 from numbers"
        ),
        (
            f"with found as (select id from {{task}} where id between {of.placed[0]} and {of.placed[-1]})"
            " update {limiter} set admitted = {admitted_and_found}"
        ),
        (
            f"insert into {{key_limit}} (queue_id, limit_key, paused_at) {NUMBERS % {'first': 1, 'last': FEW}}"
            f" select {of.limited}, 'said-' || n, case when n < {FEW} then 1 end from numbers"
        ),
    ]


def _outboxes(of: Subjects) -> list[str]:
    """Outboxes of this tenant and of the other, and queues of events that none of them takes."""
    route = "insert into {outbox_route} (queue_id, tenant, types, after_dead, max_attempts, created_at, updated_at)"
    said = "'[\"a.*\"]', 'stop', 3, 1, 1"
    return [
        f"{route} select id, tenant, {said} from {{queue}} where tenant = 'other'",
        f"{route} values ({of.idle}, '', {said})",
        *(f"insert into {{queue}} (tenant, name, created_at) values ('', 'outbox:{end}', 1)" for end in "abc"),
    ]


def _listed(ids: range) -> str:
    return ", ".join(str(number) for number in ids)


def _belongings(of: Subjects) -> list[str]:
    """Steps, signals, reports and notes."""
    steps = (
        (of.running, "one#1", 1, "SUCCESS"),
        (of.running, "two#1", 2, "PAUSED"),
        (of.failed, "one#1", 1, "SUCCESS"),
        (of.failed, "two#1", 2, "ERROR"),
        (of.failed, "three#1", 3, "RUNNING"),
        (of.ended, "one#1", 1, "SUCCESS"),
        (of.ended, "two#1", 2, "SUCCESS"),
        (of.removed, "one#1", 1, "SUCCESS"),
    )
    return [
        *(
            "insert into {step} (run_id, key, place, status, attempt, output, started_at, finished_at)"
            f" select id, '{key}', {place}, '{status}', 1, '0', 1, 2 from {{task}}"
            f" where id between {runs[0]} and {runs[-1]}"
            for runs, key, place, status in steps
        ),
        (
            "insert into {signal} (run_id, name, place, key, data, sent_at) select id, 'word', 1, 'k', '1', 1"
            f" from {{task}} where id between {of.running[0]} and {of.running[-1]}"
        ),
        (
            "insert into {subscription} (run_id, generation, key, tenant, name, match, after, asked_at)"
            f" select id, 0, 'own#1', '', 'word', '*', 5, 1 from {{task}}"
            f" where id between {of.running[0]} and {of.running[-1]}"
        ),
        (
            "insert into {subscription} (run_id, generation, key, tenant, name, match, after, taken, asked_at)"
            f" select id, 0, 'old#1', '', 'word', 'old', 0, 3, 1 from {{task}}"
            f" where id between {of.running[0]} and {of.running[-1]}"
        ),
        *(
            "insert into {report} (run_id, kind, name, place, chunks, data, recorded_at)"
            f" select id, '{kind}', 'word', {place}, 1, '[1]', 1 from {{task}}"
            f" where id between {of.running[0]} and {of.running[-1]}"
            for kind in ("value", "stream")
            for place in (1, 2, 3)
        ),
        (
            "insert into {audit} (task_id, place, what, turn, attempt, recorded_at)"
            f" select id, id, 'failed', 1, 1, {NOW} from {{task}} where id >= {FIRST}"
        ),
    ]


def _instances(of: Subjects) -> list[str]:
    numbers = NUMBERS % {"first": of.instances[0], "last": of.instances[-1]}
    bare = NUMBERS % {"first": of.bare[0], "last": of.bare[-1]}
    new = "insert into {instance} (id, tenant, type, name, version, created_at, updated_at)"
    event = "insert into {event} (tenant, instance_id, version, type, data, cause, recorded_at)"
    return [
        f"{new} {numbers} select n, '', '{TYPE}', 'name-' || n, 2, 1, 1 from numbers",
        f"{new} {bare} select n, '', '{TYPE}', 'name-' || n, 0, 1, 1 from numbers",
        f"{event} {numbers} select '', n, 1, 'Rung', '1', 'cause', 1 from numbers",
        f"{event} {numbers} select '', n, 2, 'Rung', '1', 'cause', 1 from numbers",
        (
            f"insert into {{receipt}} (instance_id, key, outcome, recorded_at)"
            f" {numbers} select n, 'key', 'applied', {NOW} from numbers"
        ),
        (
            f"insert into {{receipt}} (instance_id, key, outcome, recorded_at)"
            f" {numbers} select n, 'content:' || n, 'applied', {NOW} from numbers"
        ),
        (
            "insert into {parked} (projection, instance_id, version, error, parked_at)"
            f" {numbers} select 'flow', n, 1, 'error', n from numbers"
        ),
    ]


def _between(ids: range) -> str:
    return f"between {ids[0]} and {ids[-1]}"


def _rows(
    ids: range,
    kind: str,
    queue: int,
    status: str,
    *,
    run_at: str = "null",
    owner: str = "null",
    waiting: str = "0",
    key: str = "null",
    parent: str = "null",
    instance: str = "null",
    deleted: str = "null",
    finished: str = "null",
    scheduled: str = "null",
) -> str:
    numbers = NUMBERS % {"first": ids[0], "last": ids[-1]}
    return (
        f"insert into {{task}} ({COLUMNS}, scheduled_for) {numbers} select n, '{kind}', {queue}, '{status}', false, 0,"
        f" cast({run_at} as bigint), cast({owner} as bigint), 1, 3, {waiting}, cast({key} as text), 'ever', '0',"
        f" cast({parent} as bigint), cast({instance} as bigint), cast({deleted} as bigint), n, n, 1,"
        f" cast({finished} as bigint), cast({scheduled} as bigint) from numbers"
    )
