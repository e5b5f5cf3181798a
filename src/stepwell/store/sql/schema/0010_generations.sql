-- [postgres] both at once, and in the order in which everybody else locks them (see 0003).
lock table {task}, {step} in access exclusive mode;

-- How often a run has restarted: its row stays, and what it records belongs to its generation.
alter table {task} add column generation bigint not null default 0;

-- When its generation began, if it is not the first: children that are older are of an earlier one.
alter table {task} add column restarted_at bigint;

-- [sqlite]
drop view {steps};

-- [postgres] a step is known by its generation too: what an earlier one records late is never read by a later one.
alter table {step} add column generation bigint not null default 0;
-- [postgres]
alter table {step} drop constraint step_pkey;
-- [postgres]
alter table {step} add primary key (run_id, generation, key);

-- [sqlite] the same; a primary key cannot be changed here, so the table is made anew.
create table {new_step} (
    run_id bigint not null,
    generation bigint not null default 0,
    key text not null,
    place bigint not null default 0,
    status text not null check (status in ('PENDING', 'RUNNING', 'PAUSED', 'SUCCESS', 'ERROR', 'CANCELLED')),
    attempt bigint not null default 1,
    input {json},
    output {json},
    error {json},
    started_at bigint,
    finished_at bigint,
    primary key (run_id, generation, key)
);
-- [sqlite]
insert into {new_step} (run_id, key, place, status, attempt, input, output, error, started_at, finished_at)
select run_id, key, place, status, attempt, input, output, error, started_at, finished_at from {step};
-- [sqlite]
drop table {step};
-- [sqlite]
alter table {new_step} rename to {step};

-- Recorded results of runs, in the order they were asked for: those of the run's generation.
{replace_view} {steps} as
select step.run_id, queue.tenant, queue.name as workflow, step.place, step.key, step.status, step.attempt, step.input,
       step.output, step.error, {moment step.started_at} as started_at, {moment step.finished_at} as finished_at,
       step.generation
  from {step} as step
  join {task} as task on task.id = step.run_id and task.generation = step.generation
  join {queue} as queue on queue.id = task.queue_id;

-- [sqlite]
drop view {runs};

-- Executions of workflows; also how often each has restarted, and when it did so last.
{replace_view} {runs} as
select task.id, task.tenant, task.queue as workflow, task.status, task.state, task.until,
       task.held_by, task.held_by_name, task.held_by_host, task.held_by_pid, task.held_by_heard_of,
       task.attempt, task.max_attempts, task.turn, task.priority, task.key, task.last_error, task.input, task.output,
       task.error, task.tags, task.suspect, task.parent_id, task.delete_reason, task.run_at, task.created_at,
       task.claimed_at, task.started_at, task.paused_at, task.cancel_requested_at, task.finished_at, task.deleted_at,
       task.held_at, task.held_reason, task.progress, task.cause, task.cleanup_until, own.generation,
       {moment own.restarted_at} as restarted_at
  from {tasks} as task join {task} as own on own.id = task.id
 where task.kind = 'run';
