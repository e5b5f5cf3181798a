-- Ordered groups: tasks of a queue that are executed one after the other, in the order in which they were committed. A task
-- has its place in its group, `position`, from when it is written until it is done; the first may be executed, the others
-- wait for the one before them.

-- One row per group that has been used lately. A transaction that adds to the group, or ends a task of it, locks the row
-- until it commits; that keeps the order of positions that of commits. A claim never locks it.
create table {ordered_group} (
    id {identity},
    queue_id bigint not null,
    group_key text not null,
    last_position bigint not null,
    after_failure text not null check (after_failure in ('wait', 'continue')), -- what the others do when one fails
    emptied_at bigint, -- since when it has no task
    repaired bigint not null default 0, -- how often its first task was found asleep: never, if nothing is wrong
    unique (queue_id, group_key)
);
create index {ordered_group_emptied} on {ordered_group} (emptied_at) where emptied_at is not null;

-- Only a group that something was wrong with is in it.
create index {ordered_group_repaired} on {ordered_group} (repaired) where repaired > 0;

-- A column of its own for the place: what is done has left its group, and keeps the name of it for people.
alter table {task} add column group_key text;
alter table {task} add column position bigint;
alter table {task} add column waits_for_previous boolean not null default false check (not (ready and waits_for_previous));

create index {task_in_order} on {task} (queue_id, group_key, position) where position is not null;

-- As before, without what waits for the one before it: the sweep would find all of a long group again and again, and a
-- worker would execute a suspect before its time.
drop index {task_due};
create index {task_due} on {task} (run_at)
    where not ready and owner is null and deleted_at is null and held_at is null and losses = 0
      and not waits_for_previous and status in ('PENDING', 'PAUSED', 'RUNNING');
drop index {task_suspect};
create index {task_suspect} on {task} (losses, run_at)
    where losses > 0 and owner is null and status = 'PENDING' and not waits_for_previous;

-- [sqlite] It is made anew below.
drop view {tasks};

-- Every task, as before; and whether it waits for the one before it.
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
            when task.waits_for_previous then 'waits for the one before it in its group'
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
                 or task.held_at is not null or task.losses > 0 or task.waits_for_previous
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
       {moment task.deleted_at} as deleted_at, task.group_key, task.position
  from {task} as task
  join {queue} as queue on queue.id = task.queue_id
  left join {worker} as worker on worker.id = task.owner
  left join {heartbeats} as heard on heard.worker_id = task.owner
  left join {worker} as last on last.id = task.worker_id;

-- [sqlite] It is made anew below.
drop view {queue_counts};

-- As before; what waits for the one before it is due at no moment.
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
                    min(case when task.losses = 0 and not task.waits_for_previous then task.run_at end) as next_at
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
