-- What came after projections, subject by subject: ordered groups, builds, observations, outboxes, reports, inline projections,
-- seals of the audit, requests, schedules, data keys, limits and rates, conditions of adds, broadcasts, signals by arrival, the
-- search of runs by key and tag, headers.

-- Ordered groups: tasks of a queue that are executed one after the other, in the order in which they were committed. A task
-- has its place in its group, `position`, from when it is written until it is done; the first may be executed, the others
-- wait for the one before them.

-- One row per group that has been used lately. A transaction that adds to the group, or ends a task of it, locks the row
-- until it commits; that keeps the order of positions that of commits. A claim never locks it.
create table {ordered_group} (
    id {identity},
    queue_id bigint not null,
    group_key text not null,
    last_position bigint not null,
    after_failure text not null check (after_failure in ('wait', 'continue')), -- what the others do when one fails
    emptied_at bigint, -- since when it has no task
    repaired bigint not null default 0, -- how often its first task was found asleep: never, if nothing is wrong
    unique (queue_id, group_key)
);
create index {ordered_group_emptied} on {ordered_group} (emptied_at) where emptied_at is not null;

-- Only a group that something was wrong with is in it.
create index {ordered_group_repaired} on {ordered_group} (repaired) where repaired > 0;

-- A column of its own for the place: what is done has left its group, and keeps the name of it for people.
alter table {task} add column group_key text;
alter table {task} add column position bigint;
alter table {task} add column waits_for_previous boolean not null default false check (not (ready and waits_for_previous));

create index {task_in_order} on {task} (queue_id, group_key, position) where position is not null;

-- As before, without what waits for the one before it: the sweep would find all of a long group again and again, and a
-- worker would execute a suspect before its time.
drop index {task_due};
create index {task_due} on {task} (run_at)
    where not ready and owner is null and deleted_at is null and held_at is null and losses = 0
      and not waits_for_previous and status in ('PENDING', 'PAUSED', 'RUNNING');
drop index {task_suspect};
create index {task_suspect} on {task} (losses, run_at)
    where losses > 0 and owner is null and status = 'PENDING' and not waits_for_previous;

-- [sqlite] It is made anew below.
drop view {tasks};

-- Every task, as before; and whether it waits for the one before it.
{replace_view} {tasks} as
select task.id, task.kind, queue.tenant, queue.name as queue, task.status,
       case when task.deleted_at is not null then 'deleted'
            when task.status = 'SUCCESS' then 'succeeded'
            when task.status = 'ERROR' then 'failed'
            when task.status = 'CANCELLED' then 'cancelled'
            when task.status = 'RUNNING' and task.cancel_requested_at is not null then 'cancelling'
            when task.cancel_requested_at is not null then 'cancelling, cleans up when a worker claims it'
            when task.status = 'RUNNING' and task.owner is null then 'taken by hand, comes back if not settled'
            when task.status = 'RUNNING' and task.held_at is not null then 'running, asked to pause'
            when task.status = 'RUNNING' then 'running'
            when task.held_at is not null then 'paused by an operator, until it is unpaused'
            when task.ready and queue.paused then 'its queue is paused'
            when task.ready and queue.tenant in (select maintenance.tenant from {maintenance} as maintenance)
                 then 'the store is in maintenance'
            when task.ready then 'ready'
            when task.waits_for_previous then 'waits for the one before it in its group'
            when task.losses > 0 then 'was lost with others, is executed alone'
            when task.waiting > 0 then 'waiting for child runs'
            when task.status = 'PAUSED' and task.run_at = 253370764800000000
                 then 'held for its code, until it is accepted or other code is deployed'
            when task.status = 'PAUSED' and task.run_at is null then 'paused until a signal or an operator resumes it'
            when task.status = 'PAUSED' then 'paused until resumed, at the latest until run_at'
            when task.run_at is null then 'waiting for a signal'
            when task.last_error is not null then 'failed, waiting to be tried again at run_at'
            else 'waiting until run_at' end as state,
       case when task.ready or task.owner is not null or task.deleted_at is not null or task.finished_at is not null
                 or task.held_at is not null or task.losses > 0 or task.waits_for_previous
                 or (task.status = 'PAUSED' and task.run_at = 253370764800000000)
            then null else {moment task.run_at} end as until,
       task.owner as held_by, worker.name as held_by_name, worker.host as held_by_host, worker.pid as held_by_pid,
       heard.heard_of as held_by_heard_of, task.worker_id as last_worker, last.name as last_worker_name,
       task.attempt, task.max_attempts, task.turn, task.generation, task.priority, task.key, task.last_error, task.input,
       task.output, task.error, task.tags, task.progress, task.cause, task.suspect, task.losses, task.lost_by,
       task.parent_id, task.instance_id, task.held_reason, task.delete_reason, {moment task.run_at} as run_at,
       {moment task.created_at} as created_at, {moment task.updated_at} as updated_at,
       {moment task.claimed_at} as claimed_at, {moment task.started_at} as started_at,
       {moment task.restarted_at} as restarted_at, {moment task.paused_at} as paused_at,
       {moment task.held_at} as held_at, {moment task.cancel_requested_at} as cancel_requested_at,
       {moment task.cleanup_until} as cleanup_until, {moment task.finished_at} as finished_at,
       {moment task.deleted_at} as deleted_at, task.group_key, task.position
  from {task} as task
  join {queue} as queue on queue.id = task.queue_id
  left join {worker} as worker on worker.id = task.owner
  left join {heartbeats} as heard on heard.worker_id = task.owner
  left join {worker} as last on last.id = task.worker_id;

-- [sqlite] It is made anew below.
drop view {queue_counts};

-- As before; what waits for the one before it is due at no moment.
{replace_view} {queue_counts} as
select queue.tenant, queue.name as queue, queue.paused,
       coalesce(ready.tasks, 0) as ready, coalesce(idle.waiting, 0) as waiting,
       coalesce(owned.tasks, 0) + coalesce(idle.taken, 0) as running, coalesce(dead.tasks, 0) as dead,
       {moment ready.since} as oldest_ready, {moment idle.next_at} as next_due, queue.draining,
       coalesce(idle.suspects, 0) as suspects
  from {queue} as queue
  left join (select task.queue_id, count(*) as tasks, min(task.run_at) as since
               from {task} as task where task.ready group by task.queue_id) as ready on ready.queue_id = queue.id
  left join (select task.queue_id, count(case when task.status <> 'RUNNING' then 1 end) as waiting,
                    count(case when task.status = 'RUNNING' then 1 end) as taken,
                    count(case when task.losses > 0 then 1 end) as suspects,
                    min(case when task.losses = 0 and not task.waits_for_previous then task.run_at end) as next_at
               from {task} as task
              where not task.ready and task.owner is null and task.deleted_at is null
                and task.status in ('PENDING', 'PAUSED', 'RUNNING')
              group by task.queue_id) as idle on idle.queue_id = queue.id
  left join (select task.queue_id, count(*) as tasks
               from {task} as task where task.owner is not null and task.owner > 0 group by task.queue_id) as owned
         on owned.queue_id = queue.id
  left join (select task.queue_id, count(*) as tasks
               from {task} as task where task.status = 'ERROR' and task.deleted_at is null
              group by task.queue_id) as dead on dead.queue_id = queue.id;

-- [postgres]
-- Builds of a projection: while one is read, another is made beside it from the first event on, and they are swapped. A
-- build has its own position, its own tables, and what it has set aside.
alter table {projection}
    add build bigint not null default 1,
    add live boolean not null default true, -- its tables have their own names: this is the build that is read
    add tables text, -- the names of its tables, as JSON, each with its columns if stepwell has made it
    add swap_keep bigint, -- it is to become the live one, and the live one to be kept for so long
    add drop_at bigint, -- when it is dropped, with its tables
    drop constraint projection_pkey,
    add primary key (tenant, name, build);

-- [postgres]
alter table {parked}
    add build bigint not null default 1,
    drop constraint parked_pkey,
    add primary key (tenant, projection, build, instance_id);

-- [sqlite]
alter table {projection} rename to {projection_before};

-- [sqlite]
create table {projection} (
    tenant text not null default '',
    name text not null check (length(name) between 1 and 255),
    build bigint not null default 1,
    live boolean not null default true, -- its tables have their own names: this is the build that is read
    state text not null default 'running' check (state in ('running', 'paused', 'stopped')),
    position bigint not null default 0, -- every event up to here was handled, passed over or parked
    begun boolean not null default false, -- its `begin` was called since it was made or reset
    tables text, -- the names of its tables, as JSON, each with its columns if stepwell has made it
    owner bigint,
    turn bigint not null default 0,
    suspect boolean not null default false, -- its last owner died: the next events are handled one at a time
    tried bigint not null default 0, -- how often the event after `position` was begun alone
    failed_at bigint, -- the position of the event that failed last
    error text, -- why it failed, until the projection has passed it
    handled bigint not null default 0, -- events, since it was made
    failures bigint not null default 0,
    window_at bigint not null, -- since when `window_handled` was handled: what its rate is computed from
    window_handled bigint not null default 0,
    moved_at bigint, -- when its position last moved
    swap_keep bigint, -- it is to become the live one, and the live one to be kept for so long
    drop_at bigint, -- when it is dropped, with its tables
    created_at bigint not null,
    primary key (tenant, name, build)
);

-- [sqlite]
insert into {projection} (tenant, name, state, position, begun, owner, turn, suspect, tried, failed_at, error, handled,
                          failures, window_at, window_handled, moved_at, created_at)
select tenant, name, state, position, begun, owner, turn, suspect, tried, failed_at, error, handled, failures, window_at,
       window_handled, moved_at, created_at
  from {projection_before};

-- [sqlite]
drop table {projection_before};

-- [sqlite]
alter table {parked} rename to {parked_before};

-- [sqlite]
create table {parked} (
    tenant text not null default '',
    projection text not null,
    build bigint not null default 1,
    instance_id bigint not null,
    version bigint not null,
    error text not null,
    retried boolean not null default false, -- an operator has asked for it
    parked_at bigint not null,
    primary key (tenant, projection, build, instance_id)
);

-- [sqlite]
insert into {parked} (tenant, projection, instance_id, version, error, retried, parked_at)
select tenant, projection, instance_id, version, error, retried, parked_at from {parked_before};

-- [sqlite]
drop table {parked_before};

-- One build of a projection is live.
create unique index {projection_live} on {projection} (tenant, name) where live;

-- Observations: what became of the inputs of deciders that are registered with `observe`, written in the transaction that
-- answered them. By the instance's name, because an input that was refused may have none.
create table {observation} (
    id {identity},
    tenant text not null default '',
    type text not null,
    name text not null,
    input text not null, -- the name of its class
    input_version bigint not null,
    data {json}, -- null if it could not be stored
    outcome text not null check (outcome in ('applied', 'duplicate', 'completed', 'refused')),
    from_status text, -- null if the decider has no view of its states
    to_status text, -- of those that were applied
    first_version bigint,
    last_version bigint,
    error text, -- why it was refused, or why a column is null
    key text,
    cause text,
    recorded_at bigint not null
);
create index {observation_of} on {observation} (tenant, type, name, id);
create index {observation_recorded} on {observation} (tenant, recorded_at);

-- Outboxes: who takes the events that are emitted. A row is written by the first worker that serves the outbox, and says
-- which types it takes; each event is written as one task for each of them, in the queue of that outbox.
create table {outbox_route} (
    queue_id bigint primary key,
    tenant text not null default '',
    types {json} not null, -- names of types, and beginnings of such names: `order.*`
    after_dead text not null check (after_dead in ('stop', 'skip')), -- what the others of a subject do when one is dead
    max_attempts bigint not null,
    created_at bigint not null,
    updated_at bigint not null
);
create index {outbox_route_of} on {outbox_route} (tenant, queue_id);

-- The positions of a group are counted from here: 0, or when it was made, for those that others see as sequence numbers.
alter table {ordered_group} add column positions_after bigint not null default 0;

-- What runs report to their readers: named values, of which the last one counts, and the chunks of streams. Those of
-- one write stand in one row, as a JSON array; `place` is the number of its last chunk, counted from 1. No foreign key on
-- run_id, as for steps: a delete of a task deletes its reports in the same transaction.
create table {report} (
    run_id bigint not null,
    kind text not null check (kind in ('value', 'stream')),
    name text not null,
    place bigint not null,
    chunks bigint not null check (chunks > 0),
    data {json} not null,
    recorded_at bigint not null,
    primary key (run_id, kind, name, place)
);

-- A projection whose rows are written with the events, by the decisions themselves: no session drives it meanwhile, and
-- `position` is where that began.
alter table {projection} add inlined boolean not null default false;

-- It may be so: every process that decides knows the projection. People say that, or it was there before any decision.
alter table {projection} add may_inline boolean not null default false;

-- Who asked for what the audit notes, whose tenant it was, and the seal that it stands under: null if its store does not
-- seal the audit, 0 until it is sealed. Notes of the store itself, such as that a queue was paused, have the task number 0.
alter table {audit} add column actor text;
alter table {audit} add column tenant text;
alter table {audit} add column seal bigint;

-- Only where the audit is sealed is anything in it.
create index {audit_sealed} on {audit} (seal, task_id, place) where seal is not null;

-- The seals, each over some notes: a hash over them and over the hash before, so that a note which is changed or removed,
-- or a seal, is noticed. Retention removes the notes of the oldest seals, never a seal.
create table {audit_seal} (
    id bigint not null primary key,
    notes bigint not null check (notes > 0),
    hash text not null,
    previous text not null, -- the hash of the seal before; of the first one empty
    first_at bigint not null,
    last_at bigint not null,
    sealed_at bigint not null,
    dropped_at bigint -- since when its notes are removed
);
create index {audit_seal_whole} on {audit_seal} (id) where dropped_at is null;

-- A request is a signal whose sender waits for an answer: its name begins with a `?`. The answer is a reply, or the reason
-- why the run refused the request.
alter table {signal} add column reply {json};
alter table {signal} add column refused text;
alter table {signal} add column answered_at bigint;

-- Schedules: what triggers runs at moments. `plan` is what counts, of what code declares (`declared`; null if a verb made
-- it) and what an operator has changed (`edited`). A tick belongs to the one that moves `next_at` on; null if none will
-- come.
create table {schedule} (
    id {identity},
    tenant text not null default '',
    name text not null,
    queue_id bigint not null, -- of the workflow
    plan {json} not null,
    declared {json},
    edited {json},
    hashes {json}, -- of the last declarations, the newest last
    next_at bigint,
    buffered_at bigint, -- the tick that waits for the run before it
    paused_at bigint,
    pause_reason text,
    retired_at bigint, -- since when no worker declares it
    removed_at bigint, -- an operator has removed it: code that declares it does not bring it back
    version bigint not null default 0, -- grows with every change of the plan
    last_due_at bigint, -- the newest tick that was decided, ...
    last_outcome text,
    last_task_id bigint, -- ... and the last run
    created_at bigint not null,
    updated_at bigint not null,
    unique (tenant, name)
) {hot 70};
create index {schedule_due} on {schedule} (tenant, next_at) where next_at is not null and paused_at is null;
create index {schedule_buffered} on {schedule} (tenant, buffered_at) where buffered_at is not null and paused_at is null;

-- What became of the ticks of a schedule. A gap stands for `count` ticks from `due_at` on that were left out together.
create table {tick} (
    schedule_id bigint not null,
    due_at bigint not null,
    kind text not null check (kind in ('tick', 'gap', 'manual')),
    outcome text not null check (outcome in ('fired', 'skipped', 'buffered', 'missed')),
    count bigint not null default 1,
    task_id bigint,
    decided_at bigint not null,
    primary key (schedule_id, due_at, kind)
);
create index {tick_decided} on {tick} (decided_at);

-- The schedule that has triggered the run; those that are not finished are found by it.
alter table {task} add column schedule_id bigint;
create index {task_schedule} on {task} (schedule_id) where schedule_id is not null and finished_at is null;

-- The keys that values are sealed with, where a store is encrypted: one for each tenant, itself encrypted (`wrapped`, in
-- base64) with the key of the ring that `key_id` names.
create table {data_key} (
    id {identity},
    tenant text not null,
    key_id text not null,
    wrapped text not null,
    created_at bigint not null,
    unique (tenant)
);

-- Limits of a queue over all workers. A task has a place in a limited queue while it is RUNNING: nothing counts up or down,
-- so nothing can drift, and whatever takes a turn back takes the place back with it.

-- A queue without limits has no limiter, its tasks have no key here, and no index below has an entry for them. `key_path` is
-- where an input names its key; null if it is said with each task. `limit_key` is '' where none was named.
alter table {queue} add column limited boolean not null default false;
alter table {queue} add column key_path text;
alter table {task} add column limit_key text {bytewise};

-- The row that every claim of a limited queue locks. `turn` grows with each claim that took something: a claim whose snapshot
-- shows another turn than the row it has locked has missed one, and takes nothing.
create table {limiter} (
    queue_id bigint not null primary key,
    running bigint, -- how many at once in all
    per_key bigint, -- how many at once of each key
    declared {json}, -- what code says
    edited {json}, -- what people have said since, which goes before it
    adopted boolean not null default false, -- whether all tasks from before the limits have a key
    turn bigint not null default 0,
    admitted {numbers} not null default {no_numbers}, -- who was let in: where to look for who is RUNNING, never a count
    cursor text {bytewise} not null default '', -- the key that was served last
    remaining bigint not null default 0, -- how many more of that key belong to its turn
    updated_at bigint not null
) {hot 50};

-- What is said of single keys; a key of which nothing is said has no row.
create table {key_limit} (
    queue_id bigint not null,
    limit_key text {bytewise} not null,
    weight bigint not null default 1 check (weight between 1 and 1000), -- how many of it in each round
    running bigint, -- how many at once, instead of `per_key`
    paused_at bigint,
    pause_reason text,
    primary key (queue_id, limit_key)
);

-- The claim of a limited queue goes from key to key in it, and never through the tasks of one.
create index {task_limited} on {task} (queue_id, limit_key, priority desc, run_at, id) where ready and limit_key is not null;

-- Rates of limited queues: how many units begin in a period, in all and of each key. A rate is kept as one moment, until
-- which it is `paid`: a task that begins moves that on by what it costs, and may begin while it is not too far ahead. So
-- there is nothing to count, and nothing to forget.

-- Where an input names what its task costs; and what a task costs, 1 where this is null.
alter table {queue} add column cost_path text;
alter table {task} add column cost bigint;

-- Units in a period, of microseconds, and of those at once after a rest; the same of each key.
alter table {limiter} add column rate bigint;
alter table {limiter} add column period bigint;
alter table {limiter} add column burst bigint;
alter table {limiter} add column key_rate bigint;
alter table {limiter} add column key_period bigint;
alter table {limiter} add column key_burst bigint;

-- Whether a run that goes on costs again: a step with a queue goes on only to be tried again.
alter table {limiter} add column wakes_cost boolean not null default false;

-- Until when the rate in all is paid; and when the last task began, so that a clock that was set back is noticed.
alter table {limiter} add column paid bigint not null default 0;
alter table {limiter} add column paid_at bigint not null default 0;

-- Until when the rate of each key is paid; one that has rested for long has no row.
create table {key_paid} (
    queue_id bigint not null,
    limit_key text {bytewise} not null,
    paid bigint not null,
    primary key (queue_id, limit_key)
) {hot 50};

-- What may be said of a task when it is added: what its key is taken for, until when it may begin, whether its result is
-- kept. Of most nothing is.

-- A key of scope 'unfinished' may be free as soon as its task is claimed for the first time. No turn is ever taken back, so
-- the key never comes back either.
alter table {task} add column key_until_begun boolean not null default false;
-- The number that was reserved by the add which last replaced what the task says.
alter table {task} add column replaced_by bigint;
-- A task that was not claimed by then never is.
alter table {task} add column expires_at bigint;
-- Whether what the handler of a message returns is kept.
alter table {task} add column keeps_result boolean not null default false;

-- It is in the order of the bytes of the keys, which serves `=` as well: runs are found by the beginning of their key.
drop index {task_key};
create unique index {task_key} on {task} (queue_id, key {bytes_order})
    where key is not null and deleted_at is null and (key_scope = 'ever' or finished_at is null)
      and (turn = 0 or not key_until_begun);

-- An add whose reply was lost finds by it that it has replaced a task.
create index {task_replaced} on {task} (replaced_by) where replaced_by is not null;

-- Upkeep walks this.
create index {task_expires} on {task} (expires_at)
    where expires_at is not null and turn = 0 and finished_at is null and deleted_at is null;

-- Broadcasts: events that are told to every run and workflow that subscribed. The number of one is its place: it is given
-- under a lock, so a reader that has seen a place has seen all before it that will ever be.
create table {broadcast} (
    id {identity},
    tenant text not null default '',
    name text not null,
    task_id bigint not null, -- the task that publishes it, and fans it out
    data {json},
    published_at bigint not null,
    unique (task_id)
);
create index {broadcast_published} on {broadcast} (tenant, published_at);

-- By what a broadcast is found: a row for all of its name (`match` is `*`), and one for each field by which runs may choose.
create table {broadcast_key} (
    tenant text not null,
    name text not null,
    match text {bytewise} not null,
    broadcast_id bigint not null,
    primary key (tenant, name, match, broadcast_id)
);
create index {broadcast_key_of} on {broadcast_key} (broadcast_id);

-- A wait of a run for a broadcast: it takes the first one behind `after`, and behind all that waits of the run with the same
-- name and choice have `taken`. No foreign key on run_id, as with steps.
create table {subscription} (
    run_id bigint not null,
    generation bigint not null,
    key text not null, -- of the wait
    tenant text not null,
    name text not null,
    match text {bytewise} not null,
    after bigint not null,
    told bigint, -- the first broadcast for which the run was woken; it is kept until it is taken
    taken bigint,
    asked_at bigint not null,
    primary key (run_id, generation, key)
);
-- Whom a broadcast concerns; who was told, or has taken one, is not in it.
create index {subscription_open} on {subscription} (tenant, name, match, run_id) where told is null and taken is null;
create index {subscription_told} on {subscription} (told) where told is not null;

-- A workflow that is triggered for each broadcast.
create table {event_workflow} (
    tenant text not null,
    name text not null,
    match text {bytewise} not null,
    queue_id bigint not null,
    max_attempts bigint not null,
    priority bigint not null,
    declared_at bigint not null,
    primary key (tenant, name, match, queue_id)
);
create index {event_workflow_of} on {event_workflow} (queue_id);

-- The number of a signal among all that came for its run, so that a wait for several names takes the one that came first.
alter table {signal} add column arrival bigint;

-- Runs are found by the beginning of their key: in `task_key`, and here those whose key is free again; no run has an entry
-- in both.
create index {task_freed_key} on {task} (queue_id, key {bytes_order}, created_at desc, id desc)
    where kind = 'RUN' and key is not null
      and not (deleted_at is null and (key_scope = 'ever' or finished_at is null) and (turn = 0 or not key_until_begun));

-- Runs that have tags, in the order in which lists walk: a run without tags has no entry.
create index {task_tagged} on {task} (queue_id, status, created_at, id) where kind = 'RUN' and tags is not null;

-- Headers: a few texts that travel with work; null where there are none.
alter table {task} add column headers {json};
alter table {signal} add column headers {json};
