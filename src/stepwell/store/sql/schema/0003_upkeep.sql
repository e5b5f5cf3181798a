-- [postgres] all at once, and in the order in which everybody else locks them: an index made on one table while a
-- worker that stops holds the next, and waits for the first, is a deadlock.
lock table {worker}, {task}, {queue} in access exclusive mode;

-- What looking after a store needs: walks over what has outlived its time, queues that take nothing new, and a store
-- in which nothing is claimed.

-- What waits in one queue: scheduled, set aside, or taken by hand. A task that is claimed at once is never in it.
-- By `run_at` too: Turso would take a partial index on `queue_id` alone for one of the foreign key, and miss tasks.
create index {task_idle} on {task} (queue_id, run_at)
    where not ready and owner is null and deleted_at is null and status in ('PENDING', 'PAUSED', 'RUNNING');

create index {worker_stopped} on {worker} (stopped_at) where stopped_at is not null;

drop index {task_finished};

-- Retention walks this, queue by queue. Dead letters and what was deleted softly are kept for other times and have
-- indexes of their own; in the index before this one the walk would have stepped over all of them.
create index {task_finished} on {task} (queue_id, finished_at)
    where status in ('SUCCESS', 'CANCELLED') and deleted_at is null;

-- [postgres] its check is a third of what adding a task costs; whoever adds tasks locks their queue once instead, and
-- whoever deletes a queue counts its tasks under that lock. An embedded database checks it for next to nothing.
alter table {task} drop constraint task_queue_id_fkey;

-- A tenant that stands here is in maintenance: nobody claims anything of it.
create table {maintenance} (
    tenant text not null primary key,
    reason text,
    began_at bigint not null
);

-- A queue that is being drained takes no new tasks; what is there is worked off.
alter table {queue} add column draining boolean not null default false;

-- [sqlite]
drop view {tasks};

-- Every task with its queue's name, its state in words, and its holder; also that the store is in maintenance.
{replace_view} {tasks} as
select task.id, task.kind, queue.tenant, queue.name as queue, task.status,
       case when task.deleted_at is not null then 'deleted'
            when task.status = 'SUCCESS' then 'succeeded'
            when task.status = 'ERROR' then 'failed'
            when task.status = 'CANCELLED' then 'cancelled'
            when task.status = 'RUNNING' and task.cancel_requested_at is not null then 'running, asked to cancel'
            when task.status = 'RUNNING' and task.owner is null then 'taken by hand, comes back if not settled'
            when task.status = 'RUNNING' then 'running'
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

-- [sqlite]
drop view {queue_counts};

-- How much of each queue is ready, waiting, running and dead, and whether it is being drained.
{replace_view} {queue_counts} as
select queue.tenant, queue.name as queue, queue.paused,
       coalesce(ready.tasks, 0) as ready, coalesce(idle.waiting, 0) as waiting,
       coalesce(owned.tasks, 0) + coalesce(idle.taken, 0) as running, coalesce(dead.tasks, 0) as dead,
       {moment ready.since} as oldest_ready, {moment idle.next_at} as next_due, queue.draining
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
