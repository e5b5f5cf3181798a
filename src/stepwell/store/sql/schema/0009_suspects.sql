-- [postgres] all at once, and in the order in which everybody else locks them (see 0003).
lock table {worker}, {task}, {queue} in access exclusive mode;

-- What is known of tasks that were lost with their worker: one of them may have killed it.

-- How often the task was lost with a worker since it last survived one: above 0 it is a suspect, which is not claimed
-- beside others. Losses in company count as one.
alter table {task} add column losses bigint not null default 0;

-- The session with which it was last lost: should that session not have died, it undoes the loss.
alter table {task} add column lost_by bigint;

-- How many tasks the session held when it was declared dead. None if it ended by its own wish, lives, or was alive all
-- the time.
alter table {worker} add column held bigint;

-- The task whose death its death was: the only one it held, or the suspect that it executed before it began others.
alter table {worker} add column blamed bigint;

-- Those who execute suspects walk this: the least suspect first. Next to always it is empty.
create index {task_suspect} on {task} (losses, run_at) where losses > 0 and owner is null and status = 'PENDING';

drop index {task_due};

-- The sweep walks this: what waits for a moment, and what was dequeued by hand and is to come back. What somebody holds
-- back is not in it, nor what is executed alone: the sweep would find the same tasks again and again, and nothing behind
-- them.
create index {task_due} on {task} (run_at)
    where not ready and owner is null and deleted_at is null and held_at is null and losses = 0
      and status in ('PENDING', 'PAUSED', 'RUNNING');

-- [postgres] what `ready` means, but for the moment: the macro `may_be_ready` says the same. An embedded database can
-- change a check only by making the table anew, so there the first one stands, which says less; the next schema that is
-- made from nothing has this one.
alter table {task} drop constraint task_check1;

-- [postgres] in place of the one before.
alter table {task} add constraint task_may_be_ready
    check (not ready or (status = 'PENDING' and deleted_at is null and held_at is null and losses = 0));

-- [sqlite]
drop view {tasks};

-- Every task with its queue's name, its state in words, and its holder; also that it was lost with others.
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
            when task.status = 'PAUSED' and task.run_at is null then 'paused until a signal or an operator resumes it'
            when task.status = 'PAUSED' then 'paused until resumed, at the latest until run_at'
            when task.run_at is null then 'waiting for a signal'
            when task.last_error is not null then 'failed, waiting to be tried again at run_at'
            else 'waiting until run_at' end as state,
       case when task.ready or task.owner is not null or task.deleted_at is not null or task.finished_at is not null
                 or task.held_at is not null or task.losses > 0
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
drop view {queue_counts};

-- How much of each queue is ready, waiting, running and dead, and how much of what waits is executed alone.
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
