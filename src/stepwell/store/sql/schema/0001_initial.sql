-- The schema. One text for every database; what must differ is a macro or a statement marked [postgres] or [sqlite] (Turso
-- reads the SQLite spelling). Times are integer microseconds since 1970, UTC, by the database's clock.
-- From here on every change is a migration of its own: a numbered file beside this one.

create table {queue} (
    id {identity},
    tenant text not null default '',
    name text not null check (length(name) between 1 and 255),
    paused boolean not null default false,
    draining boolean not null default false, -- it takes no new tasks; what is there is worked off
    created_at bigint not null,
    unique (tenant, name)
);

-- A workflow is its queue, one to one: the name stands in `queue`, once.
create table {workflow} (
    queue_id bigint not null primary key references {queue} (id),
    cleanup bigint, -- how long a run may clean up after it was cancelled; null for a workflow that does not
    options {json},
    created_at bigint not null
);

-- A tenant that stands here is in maintenance: nothing of it is claimed.
create table {maintenance} (
    tenant text not null primary key,
    reason text,
    began_at bigint not null
);

-- One row per session of a worker; the id is never used again. `held` is how many tasks the session held when it was
-- declared dead, null if it ended by its own wish, lives, or was alive all the time. `blamed` is the task whose death its
-- death was: the only one it held, or the suspect that it executed before it began others.
create table {worker} (
    id {identity},
    tenant text not null default '',
    name text not null,
    host text not null,
    pid bigint not null,
    port bigint,
    version text not null,
    handlers {json} not null,
    lease bigint not null check (lease > 0),
    held bigint,
    blamed bigint,
    started_at bigint not null,
    stopped_at bigint,
    stop_reason text
);
create index {worker_stopped} on {worker} (stopped_at) where stopped_at is not null;

-- The fence: a session may write while its rows stand here. One row per connection that flushes or claims, because shared
-- locks of several connections on one row make multixacts.
create table {fence} (
    worker_id bigint not null references {worker} (id),
    slot bigint not null,
    primary key (worker_id, slot)
);

-- The heartbeat, apart from the fence so that a flush, which locks the fence, never makes a beat wait. What a helper tells
-- of a session stands here too: one table is locked, so no order of locks can be wrong.
create table {beat} (
    worker_id bigint not null primary key references {worker} (id),
    beat_at bigint not null, -- what is judged: on SQLite and Turso by the host's boot clock, which cannot be set
    heard_at bigint not null, -- what people read: the same moment by the clock on the wall
    gone boolean not null default false, -- the session's process was seen to end: proof of its death
    helper text -- 'supervisor' or 'child', else in a word why it has none
) {hot 80};

-- Requests to cancel or pause a task that the session which executes it has not heard yet. A row concerns one turn: what
-- is executed again later is not stopped by an earlier request. No foreign keys: a request locks the task and nothing else.
-- Rows go with their turn, at the next beat of the session, and with the session.
create table {control_request} (
    worker_id bigint not null,
    task_id bigint not null,
    turn bigint not null,
    request text not null check (request in ('cancel', 'pause')),
    primary key (worker_id, task_id, turn, request)
);

-- Everything that waits or has waited: messages, runs, effects, timers, inputs, outbox events. What may be long stands last.
-- On Postgres `queue_id` has no foreign key: its check is a third of what adding a task costs. An add locks its queue once
-- instead, and a delete of a queue counts its tasks under that lock. `owner` has none on any database: a claim proves its
-- session by locking the fence, once for all rows it takes.
create table {task} (
    id bigint not null primary key,
    queue_id bigint not null {of_a_queue},
    kind text not null check (kind in ('MESSAGE', 'RUN', 'EFFECT', 'TIMER', 'INPUT', 'OUTBOX')),
    status text not null default 'PENDING'
        check (status in ('PENDING', 'RUNNING', 'PAUSED', 'SUCCESS', 'ERROR', 'CANCELLED')),
    ready boolean not null,
    suspect boolean not null default false, -- it is executed alone
    priority bigint not null default 0,
    run_at bigint,
    owner bigint, -- the session that executes it
    worker_id bigint, -- the session that claimed it last, for people; null if it was taken by hand since
    turn bigint not null default 0,
    attempt bigint not null default 0 check (attempt >= 0),
    max_attempts bigint not null check (max_attempts >= 1),
    losses bigint not null default 0, -- how often it was lost with a worker since it last survived one
    lost_by bigint, -- the session with which it was last lost: should that not have died, it undoes the loss
    generation bigint not null default 0, -- how often the run has restarted; its steps belong to their generation
    wakes bigint not null default 0, -- how many signals came
    waiting bigint not null default 0, -- how many children have to end before it goes on
    parent_id bigint,
    instance_id bigint,
    scheduled_for bigint, -- its `run_at` before it was taken by hand
    created_at bigint not null,
    updated_at bigint not null,
    claimed_at bigint,
    started_at bigint,
    restarted_at bigint, -- when its generation began, if it is not the first: older children are of an earlier one
    paused_at bigint,
    held_at bigint, -- since when an operator holds it back: what would make it ready leaves it PAUSED
    cancel_requested_at bigint,
    cleanup_until bigint, -- until when a run that was cancelled may clean up
    finished_at bigint,
    deleted_at bigint,
    key text,
    key_scope text not null default 'ever' check (key_scope in ('ever', 'unfinished')),
    payload_hash text,
    cause text,
    held_reason text,
    delete_reason text,
    tags {json},
    progress {json}, -- how far its own code says it is, for people
    last_error text,
    error {json},
    input {json},
    output {json},
    constraint task_owned_while_running check (owner is null or status = 'RUNNING'),
    constraint task_may_be_ready
        check (not ready or (status = 'PENDING' and deleted_at is null and held_at is null and losses = 0)),
    constraint task_finished_at_its_end
        check ((finished_at is null) = (status in ('PENDING', 'RUNNING', 'PAUSED')))
) {hot 80};

-- The claim walks this and nothing else: what is scheduled, running or finished is not in it.
create index {task_ready} on {task} (queue_id, priority desc, run_at, id) where ready;

-- The sweep walks this: what waits for a moment, and what was dequeued by hand and is to come back. What an operator holds
-- back is not in it, nor what is executed alone: the sweep would find the same tasks again and again, and nothing behind
-- them.
create index {task_due} on {task} (run_at)
    where not ready and owner is null and deleted_at is null and held_at is null and losses = 0
      and status in ('PENDING', 'PAUSED', 'RUNNING');

-- What waits in one queue: scheduled, set aside, or taken by hand. A task that is claimed at once is never in it.
-- By `run_at` too: Turso would take a partial index on `queue_id` alone for one of the foreign key, and miss tasks.
create index {task_idle} on {task} (queue_id, run_at)
    where not ready and owner is null and deleted_at is null and status in ('PENDING', 'PAUSED', 'RUNNING');

-- Workers that execute suspects walk this: the least suspect first. Next to always it is empty.
create index {task_suspect} on {task} (losses, run_at) where losses > 0 and owner is null and status = 'PENDING';

-- Recovery and the beat's count of what a session owns.
create index {task_owner} on {task} (owner) where owner is not null;

-- Idempotent triggers, message dedupe, keyed timers and keyed inputs are this index. A key with scope
-- 'unfinished' is free again when its task is finished, with no write of its own.
create unique index {task_key} on {task} (queue_id, key)
    where key is not null and deleted_at is null and (key_scope = 'ever' or finished_at is null);

create index {task_parent} on {task} (parent_id) where parent_id is not null;

-- What an instance still waits for: its timers, when it ends.
create index {task_instance} on {task} (instance_id) where instance_id is not null and finished_at is null;

-- Lists of runs, newest first, walk this: the runs of one workflow and status in the order they were made. Whatever else
-- there is, of other workflows, statuses and kinds, is not looked at; messages are not in it.
create index {task_run} on {task} (queue_id, status, created_at, id) where kind = 'RUN';

create index {task_dead} on {task} (finished_at, id) where status = 'ERROR';

-- Retention walks this, queue by queue. Dead letters and what was deleted softly are kept for other times and have indexes
-- of their own.
create index {task_finished} on {task} (queue_id, finished_at)
    where status in ('SUCCESS', 'CANCELLED') and deleted_at is null;

create index {task_deleted} on {task} (deleted_at) where deleted_at is not null;

-- Recorded results of a run's steps; a key that begins with # is no step but a mark. No foreign key on run_id: its check
-- would lock the run's row for every step, about as dear as the step itself; a delete of a task deletes its steps in the
-- same transaction.
create table {step} (
    run_id bigint not null,
    generation bigint not null default 0,
    key text not null,
    place bigint not null default 0,
    status text not null check (status in ('PENDING', 'RUNNING', 'PAUSED', 'SUCCESS', 'ERROR', 'CANCELLED')),
    attempt bigint not null default 1,
    started_at bigint,
    finished_at bigint,
    input {json},
    output {json},
    error {json},
    accepts {json}, -- which type of data a call that waits takes, and that type's name
    primary key (run_id, generation, key)
);

create table {signal} (
    run_id bigint not null,
    name text not null,
    place bigint not null,
    key text,
    data {json},
    sent_at bigint not null,
    taken_by text,
    taken_at bigint,
    primary key (run_id, name, place)
);
create unique index {signal_key} on {signal} (run_id, name, key) where key is not null;

-- On Postgres every decision changes a row of it, in place where its page has room.
create table {instance} (
    id bigint not null primary key,
    tenant text not null default '',
    type text not null,
    name text not null,
    version bigint not null default 0,
    snapshot {json},
    snapshot_version bigint,
    snapshot_schema bigint,
    completed_at bigint,
    created_at bigint not null,
    updated_at bigint not null,
    unique (tenant, type, name)
) {hot 70};

-- `position` is numbered by the transaction that appends, never from a reserved block. On Postgres `instance_id` has no
-- foreign key: its check would lock the instance once for every event, and an append has locked it already.
create table {event} (
    position {identity},
    tenant text not null default '',
    instance_id bigint not null {of_an_instance},
    version bigint not null,
    type text not null,
    type_version bigint not null default 1,
    data {json},
    cause text,
    recorded_at bigint not null,
    unique (instance_id, version)
);

-- The answer to an input that has a key, or that came after its instance had ended: the same input, sent again, gets the
-- same answer. The receipt of any other input are its events, by their `cause`, or the task that it was.
create table {receipt} (
    instance_id bigint not null,
    key text not null,
    outcome text not null check (outcome in ('applied', 'completed')),
    first_version bigint,
    last_version bigint,
    recorded_at bigint not null,
    primary key (instance_id, key)
);
create index {receipt_recorded} on {receipt} (recorded_at);

create table {audit} (
    task_id bigint not null,
    place bigint not null,
    what text not null,
    worker_id bigint,
    turn bigint,
    attempt bigint,
    detail {json},
    recorded_at bigint not null,
    primary key (task_id, place)
);
create index {audit_recorded} on {audit} (recorded_at);

-- [postgres] the order of a task's audit rows. Taken under the task's lock, so a later holder of the lock has a higher one; a
-- count of the rows would not see what was committed while the statement waited for that lock.
create sequence {audit_place};

-- What was settled, per minute and by how long it took: a row for each pair of buckets (the macro `bucket`) that a minute
-- has. `shard` keeps processes from waiting for each other's row.
create table {rollup} (
    minute bigint not null,
    queue_id bigint not null,
    shard bigint not null,
    wait_bucket bigint not null default 0, -- from due to claimed; 0 for turns after which the task is not finished
    run_bucket bigint not null default 0, -- from claimed to settled
    turns bigint not null default 0,
    succeeded bigint not null default 0,
    failed bigint not null default 0,
    retried bigint not null default 0,
    wait_us bigint not null default 0,
    run_us bigint not null default 0,
    primary key (minute, queue_id, shard, wait_bucket, run_bucket)
);

-- [postgres] a sequence is taken outside transactions, so reserving ids never waits for another writer.
create sequence {block};

-- [sqlite] no sequences here; one writer at a time, so a row does the same.
create table {block} (name text not null primary key, taken bigint not null);
-- [sqlite]
insert into {block} (name, taken) values ('task', 0);

-- Views for people, the same names and columns on every database. Moments are timestamptz on Postgres and UTC text
-- elsewhere; stepwell itself reads none of them. A view that names a task says why it waits (`state`), until when
-- (`until`) and who holds it (`held_by...`).

-- Instances of deciders.
create view {instances} as
select instance.id, instance.tenant, instance.type, instance.name, instance.version,
       case when instance.completed_at is null then 'open' else 'completed' end as state,
       instance.snapshot, instance.snapshot_version, {moment instance.created_at} as created_at,
       {moment instance.updated_at} as updated_at, {moment instance.completed_at} as completed_at
  from {instance} as instance;

-- When each living session was last heard of.
create view {heartbeats} as
select beat.worker_id, {moment beat.heard_at} as heard_of from {beat} as beat;

-- Every task with its queue's name, its state in words, its holder, and the worker that had it last. One that is held for
-- its code is due in the year 9999, which is never.
create view {tasks} as
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
                 or task.held_at is not null or task.losses > 0
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
       {moment task.deleted_at} as deleted_at
  from {task} as task
  join {queue} as queue on queue.id = task.queue_id
  left join {worker} as worker on worker.id = task.owner
  left join {heartbeats} as heard on heard.worker_id = task.owner
  left join {worker} as last on last.id = task.worker_id;

-- Plain tasks of queues.
create view {messages} as
select task.id, task.tenant, task.queue, task.status, task.state, task.until,
       task.held_by, task.held_by_name, task.held_by_host, task.held_by_pid, task.held_by_heard_of, task.last_worker,
       task.last_worker_name, task.attempt, task.max_attempts, task.turn, task.priority, task.key, task.last_error,
       task.input, task.output, task.error, task.tags, task.suspect, task.delete_reason, task.run_at, task.created_at,
       task.claimed_at, task.started_at, task.cancel_requested_at, task.finished_at, task.deleted_at
  from {tasks} as task where task.kind = 'MESSAGE';

-- Executions of workflows.
create view {runs} as
select task.id, task.tenant, task.queue as workflow, task.status, task.state, task.until,
       task.held_by, task.held_by_name, task.held_by_host, task.held_by_pid, task.held_by_heard_of,
       task.attempt, task.max_attempts, task.turn, task.generation, task.priority, task.key, task.last_error, task.input,
       task.output, task.error, task.tags, task.progress, task.cause, task.suspect, task.parent_id, task.held_reason,
       task.delete_reason, task.run_at, task.created_at, task.claimed_at, task.started_at, task.restarted_at,
       task.paused_at, task.held_at, task.cancel_requested_at, task.cleanup_until, task.finished_at, task.deleted_at
  from {tasks} as task where task.kind = 'RUN';

-- Recorded results of runs, in the order they were asked for: those of the run's generation. What begins with # is no step
-- but a mark: what was accepted of a run's code, and for which code it was held.
create view {steps} as
select step.run_id, queue.tenant, queue.name as workflow, step.generation, step.place, step.key, step.status,
       step.attempt, step.input, step.output, step.error, step.accepts, {moment step.started_at} as started_at,
       {moment step.finished_at} as finished_at
  from {step} as step
  join {task} as task on task.id = step.run_id and task.generation = step.generation
  join {queue} as queue on queue.id = task.queue_id
 where step.key not like '#%';

-- Side effects of decisions, with the instance that decided.
create view {effects} as
select task.id, task.tenant, task.queue, instance.type as instance_type, instance.name as instance, task.status,
       task.state, task.until, task.held_by, task.held_by_name, task.held_by_host, task.held_by_pid,
       task.held_by_heard_of, task.attempt, task.max_attempts, task.key, task.last_error, task.input, task.output,
       task.error, task.run_at, task.created_at, task.started_at, task.finished_at, task.deleted_at
  from {tasks} as task left join {instance} as instance on instance.id = task.instance_id
 where task.kind = 'EFFECT';

-- Inputs that are due later, with the instance they are for.
create view {timers} as
select task.id, task.tenant, task.queue, instance.type as instance_type, instance.name as instance, task.status,
       task.state, task.run_at as due_at, task.held_by, task.held_by_name, task.held_by_host, task.held_by_pid,
       task.held_by_heard_of, task.attempt, task.max_attempts, task.key, task.last_error, task.input, task.error,
       task.created_at, task.finished_at, task.deleted_at
  from {tasks} as task left join {instance} as instance on instance.id = task.instance_id
 where task.kind = 'TIMER';

-- Events for the outside world and how far their delivery has come.
create view {outbox} as
select task.id, task.tenant, task.queue as destination, task.status, task.state, task.until,
       task.held_by, task.held_by_name, task.held_by_host, task.held_by_pid, task.held_by_heard_of,
       task.attempt, task.max_attempts, task.key, task.last_error, task.input as event, task.error, task.run_at,
       task.created_at, task.finished_at, task.deleted_at
  from {tasks} as task where task.kind = 'OUTBOX';


-- Tasks of any kind that ended in ERROR and were not removed.
create view {dead_letters} as
select task.id, task.kind, task.tenant, task.queue, task.attempt, task.max_attempts, task.key, task.last_error,
       task.error, task.input, task.suspect, task.parent_id, task.instance_id, task.last_worker, task.last_worker_name,
       task.created_at, task.started_at, task.finished_at
  from {tasks} as task where task.status = 'ERROR' and task.deleted_at is null;

-- Sessions of workers; one with a heartbeat lives, or has not been found dead yet.
create view {workers} as
select worker.id, worker.name, worker.host, worker.pid, worker.port, worker.version,
       case when heard.worker_id is not null then 'living' when worker.stopped_at is not null then 'ended'
            else 'lost' end as state,
       heard.heard_of, worker.lease / 1000000.0 as lease_seconds,
       (select count(*) from {task} as task where task.owner = worker.id) as holds,
       worker.stop_reason, worker.handlers, {moment worker.started_at} as started_at,
       {moment worker.stopped_at} as stopped_at
  from {worker} as worker left join {heartbeats} as heard on heard.worker_id = worker.id;

-- How much of each queue is ready, waiting, running and dead, and how much of what waits is executed alone. Each part walks
-- an index that holds nothing else, so tasks that succeeded cost nothing; `owner > 0` because Turso scans the table for
-- `is not null` alone.
create view {queue_counts} as
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
                    min(case when task.losses = 0 then task.run_at end) as next_at
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
