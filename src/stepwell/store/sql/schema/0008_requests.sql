-- [postgres] all at once, and in the order in which everybody else locks them (see 0003).
lock table {worker}, {task}, {queue}, {workflow} in access exclusive mode;

-- What the session that executes a task has not heard yet: that somebody asked to cancel or to pause it. A row concerns one
-- turn: what is executed again later is not stopped by what was asked of it before. No foreign keys: whoever asks locks the
-- task and nothing else. Rows go with their turn, at the next beat of the session, and with the session.
create table {control_request} (
    worker_id bigint not null,
    task_id bigint not null,
    turn bigint not null,
    request text not null check (request in ('cancel', 'pause')),
    primary key (worker_id, task_id, turn, request)
);

-- How long a run may clean up after it was cancelled, in microseconds; null for a workflow that does not.
alter table {workflow} add column cleanup bigint;

-- Until when a run that was cancelled may clean up; null for one that may not.
alter table {task} add column cleanup_until bigint;

-- [sqlite]
drop view {tasks};

-- Every task with its queue's name, its state in words, and its holder; also that it is being cancelled, and until when it
-- may clean up.
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
            when task.waiting > 0 then 'waiting for child runs'
            when task.status = 'PAUSED' and task.run_at is null then 'paused until a signal or an operator resumes it'
            when task.status = 'PAUSED' then 'paused until resumed, at the latest until run_at'
            when task.run_at is null then 'waiting for a signal'
            when task.last_error is not null then 'failed, waiting to be tried again at run_at'
            else 'waiting until run_at' end as state,
       case when task.ready or task.owner is not null or task.deleted_at is not null or task.finished_at is not null
                 or task.held_at is not null
            then null else {moment task.run_at} end as until,
       task.owner as held_by, worker.name as held_by_name, worker.host as held_by_host, worker.pid as held_by_pid,
       heard.heard_of as held_by_heard_of,
       task.attempt, task.max_attempts, task.turn, task.priority, task.key, task.last_error, task.input, task.output,
       task.error, task.tags, task.suspect, task.parent_id, task.instance_id, task.delete_reason,
       {moment task.run_at} as run_at, {moment task.created_at} as created_at, {moment task.updated_at} as updated_at,
       {moment task.claimed_at} as claimed_at, {moment task.started_at} as started_at,
       {moment task.paused_at} as paused_at, {moment task.cancel_requested_at} as cancel_requested_at,
       {moment task.finished_at} as finished_at, {moment task.deleted_at} as deleted_at,
       {moment task.held_at} as held_at, task.held_reason, task.progress, task.cause,
       {moment task.cleanup_until} as cleanup_until
  from {task} as task
  join {queue} as queue on queue.id = task.queue_id
  left join {worker} as worker on worker.id = task.owner
  left join {heartbeats} as heard on heard.worker_id = task.owner;

-- [sqlite]
drop view {runs};

-- Executions of workflows; also until when each may clean up after it was cancelled.
{replace_view} {runs} as
select task.id, task.tenant, task.queue as workflow, task.status, task.state, task.until,
       task.held_by, task.held_by_name, task.held_by_host, task.held_by_pid, task.held_by_heard_of,
       task.attempt, task.max_attempts, task.turn, task.priority, task.key, task.last_error, task.input, task.output,
       task.error, task.tags, task.suspect, task.parent_id, task.delete_reason, task.run_at, task.created_at,
       task.claimed_at, task.started_at, task.paused_at, task.cancel_requested_at, task.finished_at, task.deleted_at,
       task.held_at, task.held_reason, task.progress, task.cause, task.cleanup_until
  from {tasks} as task where task.kind = 'run';
