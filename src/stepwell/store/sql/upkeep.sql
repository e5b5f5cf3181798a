-- The upkeep of a store: remove expired rows, delete softly and restore, drain a queue, stop all claims, find work
-- that no worker serves. Each statement that removes many rows takes a bounded number of them in a transaction, along
-- an index, and skips rows that another transaction has locked.

-- name: moment
-- bound: 0
-- Tell the time by the clock that everything is judged by.
select {now} as now;

-- name: outlived_queues
-- unbounded: a look for each queue.
-- List the queues of a tenant whose oldest finished task was finished before the moment given: a look into the index
-- for each. Ordered and limited, because Turso would read all of the index for a minimum.
select queue.id from {queue} as queue
 where queue.tenant = :tenant
   and (select task.finished_at from {task} as task
         where task.queue_id = queue.id and task.status in ('SUCCESS', 'CANCELLED') and task.deleted_at is null
         order by task.finished_at limit 1) < :before
 order by queue.id;

-- name: remove_finished
-- bound: 12 + 6 a row
-- Remove up to :limit tasks of a queue that succeeded or were cancelled before the moment given, but none whose parent
-- may still ask for what came of it: one that restarted since asks for it no more.
with old as materialized (
    select task.id from {task} as task
     where task.queue_id = :queue_id and task.status in ('SUCCESS', 'CANCELLED') and task.deleted_at is null
       and task.finished_at < :before
       and (select parent.id from {task} as parent where parent.id = task.parent_id and parent.finished_at is null
               and task.created_at >= coalesce(parent.restarted_at, 0)) is null
     order by task.finished_at
     limit :limit
     {skip_locked}
)
delete from {task} where id {any_of old} returning id;

-- name: remove_dead
-- bound: 12 + 9 a row
-- Remove up to :limit tasks of a tenant that ended in ERROR before the moment given, but none whose parent may still
-- ask for what came of it, and none that others wait for in order: a person decides whether they go on without it.
with old as materialized (
    select task.id from {task} as task
     where task.status = 'ERROR' and task.finished_at < :before and task.deleted_at is null
       and (task.position is null) is true
       and (select queue.tenant from {queue} as queue where queue.id = task.queue_id) = :tenant
       and (select parent.id from {task} as parent where parent.id = task.parent_id and parent.finished_at is null
               and task.created_at >= coalesce(parent.restarted_at, 0)) is null
     order by task.finished_at, task.id
     limit :limit
     {skip_locked}
)
delete from {task} where id {any_of old} returning id;

-- name: remove_deleted
-- bound: 12 + 10 a row
-- Remove up to :limit tasks of a tenant that were deleted softly before the moment given: waiting ones too, which
-- cannot be claimed, but none that is being executed, was finished since, or has a parent that may still ask for it.
-- One taken by hand is not swept any more when it is deleted; it goes when its time has been up for as long.
with old as materialized (
    select task.id from {task} as task
     where task.deleted_at is not null and task.deleted_at < :before and task.owner is null
       and (task.status <> 'RUNNING' or task.run_at < :before)
       and (task.finished_at is null or task.finished_at < :before)
       and (select queue.tenant from {queue} as queue where queue.id = task.queue_id) = :tenant
       and (select parent.id from {task} as parent where parent.id = task.parent_id and parent.finished_at is null
               and task.created_at >= coalesce(parent.restarted_at, 0)) is null
     order by task.deleted_at
     limit :limit
     {skip_locked}
)
delete from {task} where id {any_of old} returning id;

-- name: count_outlived
-- unbounded: it counts for people, and looks at all that it counts.
-- Count what `remove_finished`, `remove_deleted` and, if asked, `remove_dead` would remove, along the same indexes: what
-- stays is not looked at.
with own as (select queue.id from {queue} as queue where queue.tenant = :tenant),
old as (
    select task.parent_id, task.created_at
      from {each_of own}{task} as task
     where {found_by task.queue_id own.id} and task.status in ('SUCCESS', 'CANCELLED') and task.deleted_at is null
       and task.finished_at < :before
    union all
    select task.parent_id, task.created_at from {task} as task
     where task.status = 'ERROR' and task.finished_at < :before and task.deleted_at is null and :dead_letters
       and (task.position is null) is true
       and (select queue.tenant from {queue} as queue where queue.id = task.queue_id) = :tenant
    union all
    select task.parent_id, task.created_at from {task} as task
     where task.deleted_at is not null and task.deleted_at < :before and task.owner is null
       and (task.status <> 'RUNNING' or task.run_at < :before)
       and (task.finished_at is null or task.finished_at < :before)
       and (select queue.tenant from {queue} as queue where queue.id = task.queue_id) = :tenant
)
select count(*) as tasks from old
 where (select parent.id from {task} as parent where parent.id = old.parent_id and parent.finished_at is null
           and old.created_at >= coalesce(parent.restarted_at, 0)) is null;

-- name: remove_steps
-- bound: 12 + 3 a row
-- Remove the recorded steps of tasks that are removed; with them, in their transaction.
delete from {step} where run_id {among ids};

-- name: remove_signals
-- bound: 12
-- Remove the signals of tasks that are removed; with them, in their transaction.
delete from {signal} where run_id {among ids};

-- name: remove_audit
-- bound: 12 + 3 a row
-- Remove the audit rows of tasks that are removed; with them, in their transaction. What is to be sealed, or is, stays.
delete from {audit} where task_id {among ids} and seal is null;

-- name: remove_sessions
-- bound: 12 + 8 a row
-- Remove up to :limit sessions of a tenant that ended before the moment given and own no task any more: one that does
-- is what recovery finds the task by.
with old as materialized (
    select worker.id from {worker} as worker
     where worker.stopped_at is not null and worker.stopped_at < :before and worker.tenant = :tenant
       and (select task.owner from {task} as task where task.owner is not null and task.owner = worker.id limit 1) is null
     order by worker.stopped_at
     limit :limit
     {skip_locked}
)
delete from {worker} where id {any_of old} returning id;

-- name: remove_rollup
-- bound: 12 + 5 a row
-- Remove up to :limit counts of minutes before the moment given.
with old as materialized (
    select rollup.{row_id} as id from {rollup} as rollup
     where rollup.minute < cast(:before as bigint) / 60000000
     order by rollup.minute
     limit :limit
     {skip_locked}
)
delete from {rollup} where {row_id} {any_of old} returning queue_id as id;

-- name: remove_old_audit
-- bound: 12 + 6 a row
-- Remove up to :limit audit rows that were recorded before the moment given, but none that is to be sealed, or is.
with old as materialized (
    select audit.{row_id} as id from {audit} as audit
     where audit.recorded_at < :before and (audit.seal is null) is true
     order by audit.recorded_at
     limit :limit
     {skip_locked}
)
delete from {audit} where {row_id} {any_of old} returning task_id as id;

-- name: delete_task
-- bound: 36
-- Delete a task softly: its status stays, it is never claimed again, and its key is free. What is being executed may
-- finish and say so; what is not leaves its ordered group at once.
update {task} set deleted_at = {now}, delete_reason = :reason, ready = false, updated_at = {now},
       position = case when owner is null then null else position end,
       waits_for_previous = waits_for_previous and owner is not null
 where id = :id and deleted_at is null
   and (select queue.tenant from {queue} as queue where queue.id = {task}.queue_id) = :tenant
returning id, queue_id, status, finished_at, parent_id, group_key, ends_children;

-- name: restore_task
-- bound: 36
-- Bring back a task that was deleted softly; one that waits for a moment which has come is ready at once. Refused by
-- the index of keys if its key has been taken again. One that has left its ordered group stays outside: others have gone on.
update {task} as task set deleted_at = null, delete_reason = null, updated_at = {now},
       ready = status = 'PENDING' and run_at is not null and run_at <= {now} and {may_be_ready task clears deleted_at}
 where id = :id and deleted_at is not null
   and (select queue.tenant from {queue} as queue where queue.id = task.queue_id) = :tenant
returning id, queue_id, ready;

-- name: key_holder
-- bound: 18
-- Say which task has the key of this one now.
with asked as materialized (
    select task.queue_id, task.key,
           (select holder.id from {task} as holder
             where holder.queue_id = task.queue_id and holder.key = task.key and {has_key holder}
               and holder.id <> task.id
             limit 1) as holder_id
      from {task} as task where task.id = :id
)
select queue.name as queue, asked.key, asked.holder_id as id
  from asked {one_of queue.id asked.queue_id}
 where queue.tenant = :tenant and asked.holder_id is not null;

-- name: drain_queue
-- bound: 22
-- Let a queue take no new tasks from outside, or let it again; what is there is worked off, with what that leads to. The
-- two queues of a decider go together: its effects lead to timers, and these to effects.
update {queue} set draining = :draining where tenant = :tenant and name in (:name, :other) returning id, name;

-- name: closed_queues
-- bound: 6 + 3 a row
-- Say which of these queues take no tasks: because they are being drained, or (null) are not there; and which take none but
-- in order.
with rows as ({rows id bigint})
select rows.id, queue.draining, queue.name, queue.ordered is not null as ordered
  from rows left join {queue} as queue on queue.id = rows.id
 where queue.id is null or queue.draining or queue.ordered is not null;

-- name: unfinished
-- unbounded: it looks at all that is being executed, in this queue or others: none of its own may be missed.
-- Count the tasks of a queue, or of both of a decider, that are ready, waiting or being executed, of each at most :most:
-- three walks over indexes that hold nothing else, in one snapshot: what moves from one queue to the other is in one. One
-- that is deleted counts while it is executed. `owner > 0` because Turso scans the table for `is not null` alone.
select (select count(*) from (select 1 as one from {task} as task
                               where task.queue_id in (:queue_id, :other_id) and task.ready limit :most) as ready)
     + (select count(*) from (select 1 as one from {task} as task
                               where task.queue_id in (:queue_id, :other_id) and not task.ready and task.owner is null
                                 and task.deleted_at is null and task.status in ('PENDING', 'PAUSED', 'RUNNING')
                               limit :most) as idle)
     + (select count(*) from {task} as task
         where task.owner is not null and task.owner > 0 and task.queue_id in (:queue_id, :other_id)) as tasks;

-- name: begin_maintenance
-- bound: 8
-- Stop all claims of a tenant; a second call only changes the reason.
insert into {maintenance} (tenant, reason, began_at) values (:tenant, :reason, {now})
on conflict (tenant) do update set reason = excluded.reason
returning tenant as id;

-- name: end_maintenance
-- bound: 8
-- Let everybody claim again.
delete from {maintenance} where tenant = :tenant returning tenant as id;

-- name: maintenance
-- bound: 66
-- Say since when and why nothing of a tenant is claimed, and how many of its tasks are still being executed: it looks at
-- no more than :most that are, of whatever tenant.
select maintenance.reason, maintenance.began_at,
       (select count(*) from (select 1 as one from {task} as task
                               where task.owner is not null and task.owner > 0 limit :most) as walk) as looked_at,
       (select count(*)
          from (select task.queue_id from {task} as task
                 where task.owner is not null and task.owner > 0 limit :most) as walk
         where (select queue.tenant from {queue} as queue where queue.id = walk.queue_id) = :tenant) as running
  from {maintenance} as maintenance where maintenance.tenant = :tenant;
