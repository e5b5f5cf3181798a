-- The first schema. One text for every database; what must differ is a macro or a statement
-- marked [postgres] or [sqlite] (Turso reads the SQLite spelling). Times are integer microseconds
-- since 1970, UTC, by the database's clock. Columns that nothing uses yet belong to runs, deciders,
-- schedules and operators: they are here so that `task` and its claim never have to be rewritten.

create table {queue} (
    id {identity},
    tenant text not null default '',
    name text not null check (length(name) between 1 and 255),
    paused boolean not null default false,
    created_at bigint not null,
    unique (tenant, name)
);

-- A workflow is its queue, one to one: the name stands in `queue`, once.
create table {workflow} (
    queue_id bigint not null primary key references {queue} (id),
    options {json},
    created_at bigint not null
);

-- One row per session of a worker; the id is never used again.
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
    started_at bigint not null,
    stopped_at bigint,
    stop_reason text
);

-- The fence: a session may write while its rows stand here. One row per connection that flushes or claims,
-- because shared locks of several connections on one row make multixacts.
create table {fence} (
    worker_id bigint not null references {worker} (id),
    slot bigint not null,
    primary key (worker_id, slot)
);

-- The heartbeat, apart from the fence so that a flush, which locks the fence, never makes a beat wait.
create table {beat} (
    worker_id bigint not null primary key references {worker} (id),
    beat_at bigint not null, -- what is judged: on SQLite and Turso by the host's boot clock, which nobody can set
    heard_at bigint not null -- what people read: the same moment by the clock on the wall
) {hot};

-- Everything that waits or has waited: messages, runs, effects, timers, inputs, outbox events.
-- `owner` has no foreign key: a claim proves its session by locking the fence, once for all rows it takes.
create table {task} (
    id bigint not null primary key,
    kind text not null check (kind in ('message', 'run', 'effect', 'timer', 'input', 'outbox')),
    queue_id bigint not null references {queue} (id),
    status text not null default 'PENDING'
        check (status in ('PENDING', 'RUNNING', 'PAUSED', 'SUCCESS', 'ERROR', 'CANCELLED')),
    ready boolean not null,
    priority bigint not null default 0,
    run_at bigint,
    owner bigint,
    turn bigint not null default 0,
    attempt bigint not null default 0 check (attempt >= 0),
    max_attempts bigint not null check (max_attempts >= 1),
    wakes bigint not null default 0,
    waiting bigint not null default 0,
    key text,
    key_scope text not null default 'ever' check (key_scope in ('ever', 'unfinished')),
    payload_hash text,
    codec text not null default 'json',
    payload_version bigint not null default 1,
    input {json},
    output {json},
    error {json},
    last_error text,
    tags {json},
    cause text,
    code_version text,
    parent_id bigint,
    instance_id bigint,
    suspect boolean not null default false,
    scheduled_for bigint,
    cancel_requested_at bigint,
    deleted_at bigint,
    delete_reason text,
    created_at bigint not null,
    updated_at bigint not null,
    claimed_at bigint,
    started_at bigint,
    paused_at bigint,
    finished_at bigint,
    check (owner is null or status = 'RUNNING'),
    check (not ready or (status = 'PENDING' and deleted_at is null)),
    check ((finished_at is null) = (status in ('PENDING', 'RUNNING', 'PAUSED')))
) {hot};

-- The claim walks this and nothing else: what is scheduled, running or finished is not in it.
create index {task_ready} on {task} (queue_id, priority desc, run_at, id) where ready;

-- The sweep walks this: what waits for a moment, and what was dequeued by hand and is to come back.
create index {task_due} on {task} (run_at)
    where not ready and owner is null and deleted_at is null and status in ('PENDING', 'PAUSED', 'RUNNING');

-- Recovery and the beat's count of what a session owns.
create index {task_owner} on {task} (owner) where owner is not null;

-- Idempotent triggers, message dedupe, keyed timers and keyed inputs are this index. A key with scope
-- 'unfinished' is free again when its task is finished, with no write of its own.
create unique index {task_key} on {task} (queue_id, key)
    where key is not null and deleted_at is null and (key_scope = 'ever' or finished_at is null);

create index {task_parent} on {task} (parent_id) where parent_id is not null;
create index {task_dead} on {task} (finished_at, id) where status = 'ERROR';
create index {task_finished} on {task} (finished_at) where finished_at is not null;
create index {task_deleted} on {task} (deleted_at) where deleted_at is not null;

-- Recorded results of a run's steps. No foreign key on run_id: its check would lock the run's row for every
-- step, about as dear as the step itself; whoever deletes a task deletes its steps in the same transaction.
create table {step} (
    run_id bigint not null,
    key text not null,
    place bigint not null default 0,
    status text not null check (status in ('PENDING', 'RUNNING', 'PAUSED', 'SUCCESS', 'ERROR', 'CANCELLED')),
    attempt bigint not null default 1,
    input {json},
    output {json},
    error {json},
    started_at bigint,
    finished_at bigint,
    primary key (run_id, key)
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
);

-- `position` is numbered by the transaction that appends, never from a reserved block.
create table {event} (
    position {identity},
    xid {xid},
    tenant text not null default '',
    instance_id bigint not null references {instance} (id),
    version bigint not null,
    type text not null,
    type_version bigint not null default 1,
    codec text not null default 'json',
    data {json},
    cause text,
    recorded_at bigint not null,
    unique (instance_id, version)
);

create table {projection} (
    name text not null primary key,
    xid {xid},
    position bigint not null default 0,
    error {json},
    updated_at bigint not null
);

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

create table {schedule} (
    id {identity},
    tenant text not null default '',
    name text not null,
    queue_id bigint not null references {queue} (id),
    cron text,
    every bigint,
    tz text not null default 'UTC',
    input {json},
    options {json},
    overlap text not null default 'skip' check (overlap in ('skip', 'allow')),
    catch_up text not null default 'last' check (catch_up in ('none', 'last', 'all')),
    next_at bigint not null,
    created_at bigint not null,
    unique (tenant, name),
    check ((cron is null) <> (every is null))
);

-- What was settled, per minute; `shard` keeps processes from waiting for each other's row.
create table {rollup} (
    minute bigint not null,
    queue_id bigint not null,
    shard bigint not null,
    succeeded bigint not null default 0,
    failed bigint not null default 0,
    retried bigint not null default 0,
    wait_us bigint not null default 0,
    run_us bigint not null default 0,
    primary key (minute, queue_id, shard)
);

create table {log} (
    id {identity},
    task_id bigint,
    worker_id bigint,
    level text not null,
    line text not null,
    logged_at bigint not null
);
create index {log_task} on {log} (task_id);

-- [postgres] a sequence is taken outside transactions, so reserving ids never waits for another writer.
create sequence {block};

-- [sqlite] no sequences here; one writer at a time, so a row does the same.
create table {block} (name text not null primary key, taken bigint not null);
-- [sqlite]
insert into {block} (name, taken) values ('task', 0);
