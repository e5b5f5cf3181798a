-- [sqlite]
drop view {tasks};

-- Every task with its queue's name, its state in words, and its holder; also that it is held for its code: it is due in the
-- year 9999, which is never.
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
       heard.heard_of as held_by_heard_of,
       task.attempt, task.max_attempts, task.turn, task.priority, task.key, task.last_error, task.input, task.output,
       task.error, task.tags, task.suspect, task.parent_id, task.instance_id, task.delete_reason,
       {moment task.run_at} as run_at, {moment task.created_at} as created_at, {moment task.updated_at} as updated_at,
       {moment task.claimed_at} as claimed_at, {moment task.started_at} as started_at,
       {moment task.paused_at} as paused_at, {moment task.cancel_requested_at} as cancel_requested_at,
       {moment task.finished_at} as finished_at, {moment task.deleted_at} as deleted_at,
       {moment task.held_at} as held_at, task.held_reason, task.progress, task.cause,
       {moment task.cleanup_until} as cleanup_until, task.losses, task.lost_by
  from {task} as task
  join {queue} as queue on queue.id = task.queue_id
  left join {worker} as worker on worker.id = task.owner
  left join {heartbeats} as heard on heard.worker_id = task.owner;

-- [sqlite]
drop view {steps};

-- Recorded results of runs, in the order they were asked for: those of the run's generation. What begins with # is no step
-- but a mark: what was accepted of a run's code, and for which code it was held.
{replace_view} {steps} as
select step.run_id, queue.tenant, queue.name as workflow, step.place, step.key, step.status, step.attempt, step.input,
       step.output, step.error, {moment step.started_at} as started_at, {moment step.finished_at} as finished_at,
       step.generation
  from {step} as step
  join {task} as task on task.id = step.run_id and task.generation = step.generation
  join {queue} as queue on queue.id = task.queue_id
 where step.key not like '#%';
