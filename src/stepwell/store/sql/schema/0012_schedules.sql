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
