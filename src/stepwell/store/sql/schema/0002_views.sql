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

-- Every task with its queue's name, its state in words, and its holder.
create view {tasks} as
select task.id, task.kind, queue.tenant, queue.name as queue, task.status,
       case when task.deleted_at is not null then 'deleted'
            when task.status = 'SUCCESS' then 'succeeded'
            when task.status = 'ERROR' then 'failed'
            when task.status = 'CANCELLED' then 'cancelled'
            when task.status = 'RUNNING' and task.cancel_requested_at is not null then 'running, asked to cancel'
            when task.status = 'RUNNING' and task.owner is null then 'taken by hand, comes back if not settled'
            when task.status = 'RUNNING' then 'running'
            when task.ready and queue.paused then 'its queue is paused'
            when task.ready then 'ready'
            when task.waiting > 0 then 'waiting for child runs'
            when task.status = 'PAUSED' and task.run_at is null then 'paused until a signal or an operator resumes it'
            when task.status = 'PAUSED' then 'paused until resumed, at the latest until run_at'
            when task.run_at is null then 'waiting for a signal'
            when task.last_error is not null then 'failed, waiting to be tried again at run_at'
            else 'waiting until run_at' end as state,
       case when task.ready or task.owner is not null or task.deleted_at is not null or task.finished_at is not null
            then null else {moment task.run_at} end as until,
       task.owner as held_by, worker.name as held_by_name, worker.host as held_by_host, worker.pid as held_by_pid,
       heard.heard_of as held_by_heard_of,
       task.attempt, task.max_attempts, task.turn, task.priority, task.key, task.last_error, task.input, task.output,
       task.error, task.tags, task.suspect, task.parent_id, task.instance_id, task.delete_reason,
       {moment task.run_at} as run_at, {moment task.created_at} as created_at, {moment task.updated_at} as updated_at,
       {moment task.claimed_at} as claimed_at, {moment task.started_at} as started_at,
       {moment task.paused_at} as paused_at, {moment task.cancel_requested_at} as cancel_requested_at,
       {moment task.finished_at} as finished_at, {moment task.deleted_at} as deleted_at
  from {task} as task
  join {queue} as queue on queue.id = task.queue_id
  left join {worker} as worker on worker.id = task.owner
  left join {heartbeats} as heard on heard.worker_id = task.owner;

-- Plain tasks of queues.
create view {messages} as
select task.id, task.tenant, task.queue, task.status, task.state, task.until,
       task.held_by, task.held_by_name, task.held_by_host, task.held_by_pid, task.held_by_heard_of,
       task.attempt, task.max_attempts, task.turn, task.priority, task.key, task.last_error, task.input, task.output,
       task.error, task.tags, task.suspect, task.delete_reason, task.run_at, task.created_at, task.claimed_at,
       task.started_at, task.cancel_requested_at, task.finished_at, task.deleted_at
  from {tasks} as task where task.kind = 'message';

-- Executions of workflows.
create view {runs} as
select task.id, task.tenant, task.queue as workflow, task.status, task.state, task.until,
       task.held_by, task.held_by_name, task.held_by_host, task.held_by_pid, task.held_by_heard_of,
       task.attempt, task.max_attempts, task.turn, task.priority, task.key, task.last_error, task.input, task.output,
       task.error, task.tags, task.suspect, task.parent_id, task.delete_reason, task.run_at, task.created_at,
       task.claimed_at, task.started_at, task.paused_at, task.cancel_requested_at, task.finished_at, task.deleted_at
  from {tasks} as task where task.kind = 'run';

-- Recorded results of runs, in the order they were asked for.
create view {steps} as
select step.run_id, queue.tenant, queue.name as workflow, step.place, step.key, step.status, step.attempt, step.input,
       step.output, step.error, {moment step.started_at} as started_at, {moment step.finished_at} as finished_at
  from {step} as step
  join {task} as task on task.id = step.run_id
  join {queue} as queue on queue.id = task.queue_id;

-- Side effects of decisions, with the instance that decided.
create view {effects} as
select task.id, task.tenant, task.queue, instance.type as instance_type, instance.name as instance, task.status,
       task.state, task.until, task.held_by, task.held_by_name, task.held_by_host, task.held_by_pid,
       task.held_by_heard_of, task.attempt, task.max_attempts, task.key, task.last_error, task.input, task.output,
       task.error, task.run_at, task.created_at, task.started_at, task.finished_at, task.deleted_at
  from {tasks} as task left join {instance} as instance on instance.id = task.instance_id
 where task.kind = 'effect';

-- Inputs that are due later, with the instance they are for.
create view {timers} as
select task.id, task.tenant, task.queue, instance.type as instance_type, instance.name as instance, task.status,
       task.state, task.run_at as due_at, task.held_by, task.held_by_name, task.held_by_host, task.held_by_pid,
       task.held_by_heard_of, task.attempt, task.max_attempts, task.key, task.last_error, task.input, task.error,
       task.created_at, task.finished_at, task.deleted_at
  from {tasks} as task left join {instance} as instance on instance.id = task.instance_id
 where task.kind = 'timer';

-- Events for the outside world and how far their delivery has come.
create view {outbox} as
select task.id, task.tenant, task.queue as destination, task.status, task.state, task.until,
       task.held_by, task.held_by_name, task.held_by_host, task.held_by_pid, task.held_by_heard_of,
       task.attempt, task.max_attempts, task.key, task.last_error, task.input as event, task.error, task.run_at,
       task.created_at, task.finished_at, task.deleted_at
  from {tasks} as task where task.kind = 'outbox';

-- Tasks of any kind that ended in ERROR and were not removed.
create view {dead_letters} as
select task.id, task.kind, task.tenant, task.queue, task.attempt, task.max_attempts, task.key, task.last_error,
       task.error, task.input, task.suspect, task.parent_id, task.instance_id, task.created_at, task.started_at,
       task.finished_at
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

-- How much of each queue is ready, waiting, running and dead. Each part walks an index that holds nothing else, so
-- tasks that succeeded cost nothing; `owner > 0` because Turso scans the table for `is not null` alone.
create view {queue_counts} as
select queue.tenant, queue.name as queue, queue.paused,
       coalesce(ready.tasks, 0) as ready, coalesce(idle.waiting, 0) as waiting,
       coalesce(owned.tasks, 0) + coalesce(idle.taken, 0) as running, coalesce(dead.tasks, 0) as dead,
       {moment ready.since} as oldest_ready, {moment idle.next_at} as next_due
  from {queue} as queue
  left join (select task.queue_id, count(*) as tasks, min(task.run_at) as since
               from {task} as task where task.ready group by task.queue_id) as ready on ready.queue_id = queue.id
  left join (select task.queue_id, count(case when task.status <> 'RUNNING' then 1 end) as waiting,
                    count(case when task.status = 'RUNNING' then 1 end) as taken, min(task.run_at) as next_at
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
