-- [postgres] all at once, and in the order in which everybody else locks them (see 0003).
lock table {worker}, {task}, {queue} in access exclusive mode;

-- What those who steer runs need: a run that an operator holds back, and how far a run says it has come.

-- Set while an operator holds the task back: whatever would make it ready leaves it PAUSED until it is let go.
alter table {task} add column held_at bigint;

-- Why, in the operator's words.
alter table {task} add column held_reason text;

-- What the task's own code says of how far it is, for people.
alter table {task} add column progress {json};

drop index {task_due};

-- The sweep walks this: what waits for a moment, and what was dequeued by hand and is to come back. What somebody holds
-- back is not in it: the sweep would find the same tasks again and again, and nothing behind them.
create index {task_due} on {task} (run_at)
    where not ready and owner is null and deleted_at is null and held_at is null
      and status in ('PENDING', 'PAUSED', 'RUNNING');

-- [sqlite]
drop view {tasks};

-- Every task with its queue's name, its state in words, and its holder; also that an operator holds it back, how far it
-- says it is, and what it came from.
{replace_view} {tasks} as
select task.id, task.kind, queue.tenant, queue.name as queue, task.status,
       case when task.deleted_at is not null then 'deleted'
            when task.status = 'SUCCESS' then 'succeeded'
            when task.status = 'ERROR' then 'failed'
            when task.status = 'CANCELLED' then 'cancelled'
            when task.status = 'RUNNING' and task.cancel_requested_at is not null then 'running, asked to cancel'
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
       {moment task.held_at} as held_at, task.held_reason, task.progress, task.cause
  from {task} as task
  join {queue} as queue on queue.id = task.queue_id
  left join {worker} as worker on worker.id = task.owner
  left join {heartbeats} as heard on heard.worker_id = task.owner;

-- [sqlite]
drop view {runs};

-- Executions of workflows; also how far each says it is, what it came from, and whether an operator holds it back.
{replace_view} {runs} as
select task.id, task.tenant, task.queue as workflow, task.status, task.state, task.until,
       task.held_by, task.held_by_name, task.held_by_host, task.held_by_pid, task.held_by_heard_of,
       task.attempt, task.max_attempts, task.turn, task.priority, task.key, task.last_error, task.input, task.output,
       task.error, task.tags, task.suspect, task.parent_id, task.delete_reason, task.run_at, task.created_at,
       task.claimed_at, task.started_at, task.paused_at, task.cancel_requested_at, task.finished_at, task.deleted_at,
       task.held_at, task.held_reason, task.progress, task.cause
  from {tasks} as task where task.kind = 'run';
