-- Queues, and what people do with tasks that have ended in ERROR.

-- name: add_queue
-- bound: 44
-- scans task: SQLite plans it, for a row that is replaced; none is.
-- Make the queue, unless it is there.
insert into {queue} (tenant, name, created_at) values (:tenant, :name, {now})
on conflict (tenant, name) do nothing returning id;

-- name: find_queue
-- bound: 8
-- Find a queue by its name.
select id, name, paused, ordered is not null as ordered from {queue} where tenant = :tenant and name = :name;

-- name: queues
-- bound: 12 + 3 a row
-- List the queues of a tenant.
select id, name, paused, draining, created_at from {queue} where tenant = :tenant order by name;

-- name: pause_queue
-- bound: 26
-- Stop or resume all claims from the queue; tasks that are being executed continue.
update {queue} set paused = :paused where tenant = :tenant and name = :name returning id;

-- name: purgeable
-- unbounded: it steps over the tasks of other queues: an index of all tasks by their queue would cost every one.
-- List up to :limit tasks of a queue that no worker is executing, after the id given and not added since :started.
select task.id, {now} as now from {task} as task
 where task.queue_id = (select queue.id from {queue} as queue where queue.tenant = :tenant and queue.name = :name)
   and task.owner is null
   and task.id > :after and task.created_at <= coalesce(cast(:started as bigint), {now})
 order by task.id
 limit :limit;

-- name: purge
-- bound: 6 + 3 a row
-- Remove tasks of a queue, whatever their status, except those a worker is executing.
with rows as ({rows id bigint})
delete from {task} where id {any_of rows} and owner is null
returning id, queue_id, status, finished_at, parent_id, group_key, ends_children;

-- name: lock_queues
-- bound: 8
-- Refuse adds to a queue, or to both of a decider, until this transaction ends; waits for transactions that are
-- adding.
select queue.id, queue.draining from {queue} as queue
 where queue.tenant = :tenant and queue.name in (:name, :other) order by queue.id {for_update};

-- name: uses_of_queue
-- unbounded: it steps over what is executed and what is deleted in other queues: none of its own may be missed.
-- Count what keeps a queue from being deleted: its tasks, of each sort at most :most, and its workflow.
-- A task is ready, waits, is executed, has succeeded or was cancelled, is dead, or was deleted: an index for each.
select queue.id,
       (select count(*) from (select 1 as one from {task} as task
                               where task.queue_id = queue.id and task.ready limit :most) as ready)
     + (select count(*) from (select 1 as one from {task} as task
                               where task.queue_id = queue.id and not task.ready and task.owner is null
                                 and task.deleted_at is null and task.status in ('PENDING', 'PAUSED', 'RUNNING')
                               limit :most) as idle)
     + (select count(*) from {task} as task
         where task.owner is not null and task.owner > 0 and task.queue_id = queue.id)
     + (select count(*) from (select 1 as one from {task} as task
                               where task.queue_id = queue.id and task.status in ('SUCCESS', 'CANCELLED')
                                 and task.deleted_at is null limit :most) as finished)
     + (select count(*) from (select 1 as one from {task} as task
                               where task.queue_id = queue.id and (task.status = 'ERROR') is true and task.deleted_at is null
                               limit :most) as dead)
     + (select count(*) from {task} as task
         where task.deleted_at is not null and task.deleted_at > 0 and task.owner is null
           and task.queue_id = queue.id) as tasks,
       (select count(*) from {workflow} as workflow where workflow.queue_id = queue.id) as workflows
  from {queue} as queue where queue.tenant = :tenant and queue.name = :name;

-- name: delete_queue
-- bound: 12
-- scans task: SQLite, for the foreign key; an operator deletes a queue seldom.
-- Remove a queue; the foreign keys refuse it while anything stands in it.
delete from {queue} where id = :id returning id;

-- name: dead_letters
-- bound: 12 + 7 a row
-- List tasks that ended in ERROR, oldest first, after the place given; what each took, and what went wrong in it, only if
-- they are to be :whole.
select task.id, task.kind, queue.name as queue, task.key, task.attempt, task.max_attempts,
       case when :whole then task.input end as input, case when :whole then task.error end as error,
       task.last_error, task.created_at, task.finished_at, task.worker_id,
       (select worker.name from {worker} as worker where worker.id = task.worker_id) as worker_name
  from {task} as task {one_of queue.id task.queue_id}
 where task.status = 'ERROR' and task.deleted_at is null and queue.tenant = :tenant
   and task.finished_at >= cast(:after_time as bigint)
   and (task.finished_at, task.id) > (cast(:after_time as bigint), cast(:after_id as bigint))
   and (cast(:queue as text) is null or queue.name = :queue)
   and (cast(:kind as text) is null or task.kind = :kind)
   and (cast(:error as text) is null or task.error ->> 'type' = :error)
 order by task.finished_at, task.id
 limit :limit;

-- name: dead_letters_of
-- unbounded: it looks at the dead letters of one type of decider, until enough of them are the instance's.
-- List the effects, timers and inputs of an instance that ended in ERROR, oldest first, after the place given. The instance
-- stands in their input: what was submitted may have come before its instance.
with places as materialized (
    select queue.id, queue.name from {queue} as queue where queue.tenant = :tenant and queue.name in (:effects, :inputs)
)
select task.id, task.kind, (select places.name from places where places.id = task.queue_id) as queue, task.key,
       task.attempt, task.max_attempts, task.input, task.error, task.last_error, task.created_at, task.finished_at,
       task.worker_id, (select worker.name from {worker} as worker where worker.id = task.worker_id) as worker_name
  from {task} as task
 where task.queue_id in (select places.id from places) and (task.status = 'ERROR') is true and task.deleted_at is null
   and task.finished_at >= cast(:after_time as bigint)
   and (task.finished_at > cast(:after_time as bigint) or task.id > cast(:after_id as bigint))
   and (task.kind in ('EFFECT', 'TIMER', 'INPUT') and task.input ->> 'id' = :instance
        and (cast(:kind as text) is null or task.kind = :kind)
        and (cast(:error as text) is null or task.error ->> 'type' = :error)) is true
 order by task.finished_at, task.id
 limit :limit;

-- name: dead_by_error
-- unbounded: it looks at the :most oldest tasks that ended in ERROR.
-- scans task: the index of dead letters, so far.
-- Count the :most oldest tasks in ERROR, of a queue or of all, by queue and type of error, the most frequent first; and say
-- how many were looked at.
with oldest as (
    select task.queue_id, task.error ->> 'type' as type from {task} as task
     where task.status = 'ERROR' and task.deleted_at is null
       and (cast(:queue_id as bigint) is null or task.queue_id = :queue_id)
     order by task.finished_at, task.id
     limit cast(:most as bigint)
)
select queue.name as queue, oldest.type, count(*) as counted, (select count(*) from oldest) as looked_at
  from oldest {one_of queue.id oldest.queue_id}
 where queue.tenant = :tenant
 group by queue.name, oldest.type
 order by 3 desc, 1, 2
 limit cast(:limit as bigint);

-- name: dead_ids
-- bound: 12 + 5 a row
-- scans task: the index of dead letters, until enough of them fit.
-- List up to :limit tasks in ERROR that fit the filter, for `requeue` and `drop`.
select task.id from {task} as task {one_of queue.id task.queue_id}
 where task.status = 'ERROR' and task.deleted_at is null and queue.tenant = :tenant
   and (cast(:queue as text) is null or queue.name = :queue)
   and (cast(:error as text) is null or task.error ->> 'type' = :error)
 order by task.finished_at, task.id
 limit :limit;

-- name: requeue
-- bound: 6 + 26 a row
-- Put tasks that ended in ERROR back to the beginning, with all their attempts, and with :succeeded messages that ended
-- in SUCCESS; no other task is touched. One that is held back waits to be let go, and a deadline of its parent that has
-- passed counts no more.
with rows as ({rows id bigint})
update {task} as task
   set status = case when task.held_at is null then 'PENDING' else 'PAUSED' end,
       ready = {may_be_ready task clears losses},
       run_at = {now}, attempt = 0, losses = 0, lost_by = null, error = null, last_error = null,
       suspect = false, worker_id = null, started_at = null, claimed_at = null, finished_at = null, updated_at = {now},
       deadline_at = case when task.deadline_at > {now} then task.deadline_at end
  from rows
 where task.id = rows.id and task.id {any_of rows}
   and ((task.status = 'ERROR' or (:succeeded and task.status = 'SUCCESS' and task.kind = 'MESSAGE'))
        and task.deleted_at is null) is true
   and (select queue.tenant from {queue} as queue where queue.id = task.queue_id) = :tenant
returning {own task}id, {own task}queue_id;

-- name: drop
-- bound: 6 + 9 a row
-- Remove tasks that ended in ERROR; no other task is touched, nor one that was deleted softly.
with rows as ({rows id bigint})
delete from {task}
 where id {any_of rows} and (status = 'ERROR' and deleted_at is null) is true
   and (select queue.tenant from {queue} as queue where queue.id = {task}.queue_id) = :tenant
returning id, queue_id, group_key;

-- name: task
-- bound: 6 + 14 a row
-- Read tasks as they stand; those that were deleted softly only if asked for.
with rows as ({rows id bigint})
select task.id, task.kind, queue.name as queue, task.status, task.ready, task.priority, task.run_at, task.owner, task.turn,
       task.attempt, task.max_attempts, task.key, task.input, task.output, task.error, task.last_error, task.suspect,
       task.created_at, task.started_at, task.finished_at, task.deleted_at, task.delete_reason, task.parent_id,
       task.worker_id, task.tags, task.progress, task.headers,
       (select worker.name from {worker} as worker where worker.id = task.worker_id) as worker_name
  from rows join {task} as task on task.id = rows.id join {queue} as queue on queue.id = task.queue_id
 where task.id {any_of rows.id} and queue.tenant = :tenant and (:deleted or task.deleted_at is null);

-- name: messages_ready
-- bound: 14 + 6 a row
-- List up to :limit messages of a queue that are ready, in the order in which they are claimed, behind the place given.
select walk.id, walk.priority, walk.run_at as moment
  from (select same.id, same.priority, same.run_at
          from (select task.id, task.priority, task.run_at from {task} as task
                 where task.queue_id = :queue_id and task.ready and (task.kind = 'MESSAGE') is true
                   and task.priority = cast(:after_priority as bigint) and task.run_at >= cast(:after_moment as bigint)
                   and (task.run_at > cast(:after_moment as bigint) or task.id > cast(:after_id as bigint))
                 order by task.run_at, task.id
                 limit cast(:limit as bigint)) as same
        union all
        select lower.id, lower.priority, lower.run_at
          from (select task.id, task.priority, task.run_at from {task} as task
                 where task.queue_id = :queue_id and task.ready and (task.kind = 'MESSAGE') is true
                   and task.priority < cast(:after_priority as bigint)
                 order by task.priority desc, task.run_at, task.id
                 limit cast(:limit as bigint)) as lower) as walk
 order by walk.priority desc, walk.run_at, walk.id
 limit cast(:limit as bigint);

-- name: messages_waiting
-- bound: 14 + 6 a row
-- List up to :limit messages of a queue that wait for their moment, or are taken by hand, the first first, behind the place
-- given.
select task.id, task.priority, task.run_at as moment
  from {task} as task
 where task.queue_id = :queue_id and not task.ready and task.owner is null and task.deleted_at is null
   and task.status in ('PENDING', 'PAUSED', 'RUNNING') and (task.kind = 'MESSAGE') is true
   and task.run_at >= cast(:after_moment as bigint)
   and (task.run_at > cast(:after_moment as bigint) or task.id > cast(:after_id as bigint))
 order by task.run_at, task.id
 limit cast(:limit as bigint);

-- name: messages_finished
-- bound: 14 + 6 a row
-- List up to :limit messages of a queue that ended well or were cancelled, the newest first, behind the place given.
select task.id, task.priority, task.finished_at as moment
  from {task} as task
 where task.queue_id = :queue_id and task.status in ('SUCCESS', 'CANCELLED') and task.deleted_at is null
   and (task.kind = 'MESSAGE') is true and task.finished_at <= cast(:after_moment as bigint)
   and (task.finished_at < cast(:after_moment as bigint) or task.id < cast(:after_id as bigint))
 order by task.finished_at desc, task.id desc
 limit cast(:limit as bigint);

-- name: messages_running
-- unbounded: it looks at all that workers execute just now.
-- List up to :limit tasks of a queue that workers execute, behind the place given.
select task.id, task.priority, task.claimed_at as moment
  from {task} as task
 where task.owner is not null and task.owner > 0 and (task.queue_id = :queue_id) is true
   and (task.id > cast(:after_id as bigint)) is true
 order by task.id + 0
 limit cast(:limit as bigint);

-- name: counts
-- bound: 48
-- Count the tasks of a queue by status: each part looks at no more than :most, along an index that holds nothing else. A
-- part without a status is what was looked at and is not counted.
with named as (select queue.id from {queue} as queue where queue.tenant = :tenant and queue.name = :queue)
select 'ready' as part, 'PENDING' as status, count(*) as tasks
  from (select 1 as one from {task} as task
         where task.queue_id = (select named.id from named) and task.ready
         limit :most) as walk
union all
select 'idle' as part, walk.status, count(*) as tasks
  from (select task.status from {task} as task
         where task.queue_id = (select named.id from named) and not task.ready and task.owner is null
           and task.deleted_at is null and task.status in ('PENDING', 'PAUSED', 'RUNNING')
         order by task.run_at
         limit :most) as walk
 group by walk.status
union all
select 'owned' as part, walk.status, count(*) as tasks
  from (select case when task.queue_id = (select named.id from named) and task.deleted_at is null
                    then 'RUNNING' end as status
          from {task} as task where task.owner is not null and task.owner > 0
         limit :most) as walk
 group by walk.status
union all
select 'finished' as part, walk.status, count(*) as tasks
  from (select task.status from {task} as task
         where task.queue_id = (select named.id from named) and task.status in ('SUCCESS', 'CANCELLED')
           and task.deleted_at is null
         order by task.finished_at desc
         limit :most) as walk
 group by walk.status
union all
select 'dead' as part, 'ERROR' as status, count(*) as tasks
  from (select 1 as one from {task} as task
         where task.queue_id = (select named.id from named) and (task.status = 'ERROR') is true and task.deleted_at is null
         limit :most) as walk;
