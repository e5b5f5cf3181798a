-- What lists and pages show of runs and queues: parts of rows, without what they took and returned.

-- name: step_outline
-- unbounded: it looks at the steps of one run, however many that has recorded.
-- List up to :limit steps of a run in a generation behind the first :skip, in the order in which it asked for them, without
-- what they took and returned: of a sleep until when it is, of a wait for what, and of a failure its error.
select step.key, step.status, step.attempt, step.started_at, step.finished_at, null as input,
       case when step.status = 'PAUSED' or step.key like '%sleep#%' then step.output end as output,
       case when step.status <> 'SUCCESS' then step.error end as error
  from {step} as step
 where step.run_id = :id and step.generation = :generation and step.key not like '#%'
 order by step.place, step.key
 limit :limit offset :skip;

-- name: step_counts
-- unbounded: it looks at the steps of one run, however many that has recorded.
-- Count the steps of a run in a generation by status; and the one that was asked for first with each.
select step.status, count(*) as counted, min(step.place) as first_place
  from {step} as step
 where step.run_id = :id and step.generation = :generation and step.key not like '#%'
 group by step.status;

-- name: steps_before
-- unbounded: it looks at the steps of one run, however many that has recorded.
-- Count the steps of a run in a generation that were asked for before a place.
select count(*) as counted
  from {step} as step
 where step.run_id = :id and step.generation = :generation and step.key not like '#%' and step.place < :place;

-- name: step
-- bound: 8
-- Read one step of a run in a generation, with all that it has recorded.
select step.key, step.place, step.status, step.attempt, step.started_at, step.finished_at, step.input, step.output,
       step.error, step.accepts
  from {step} as step
 where step.run_id = :id and step.generation = :generation and step.key = :key;

-- name: step_spans
-- bound: 8 + 6 a row
-- Say of these runs when up to :most of their steps began and ended, and how.
with rows as ({row id bigint, generation bigint})
select {its rows.id} as run_id, walk.status, walk.attempt, walk.started_at, walk.finished_at, walk.key
  from {walk_of rows} (
           select step.status, step.attempt, step.started_at, step.finished_at, step.key from {step} as step
            where step.run_id = {its rows.id} and step.generation = {its rows.generation} and step.key not like '#%'
            order by step.key
            limit :most) as walk;

-- name: searched_runs
-- unbounded: it walks up to :most runs of each workflow and status.
-- Say when the oldest of the :most newest runs of each of these workflows and statuses was asked for, where there are more.
with rows as ({rows queue_id bigint, status name})
select (select task.created_at from {task} as task
         where task.kind = 'RUN' and task.queue_id = rows.queue_id and task.status = rows.status
         order by task.created_at desc, task.id desc
         limit 1 offset cast(:most as bigint)) as since
  from rows;

-- name: runs_failed_with
-- bound: 20 + 8 a row
-- Among the :most tasks that failed last, find up to :limit runs whose last error has a text, after the place given. The
-- bound is of a search whose first tasks fit; what does not fit is looked at too, and so is every task of another kind.
select newest.id, newest.finished_at
  from (select task.id, task.kind, task.queue_id, task.finished_at, task.last_error from {task} as task
         where task.status = 'ERROR' and task.deleted_at is null
           and task.finished_at <= cast(:after_time as bigint)
           and (task.finished_at < cast(:after_time as bigint) or task.id < cast(:after_id as bigint))
         order by task.finished_at desc, task.id desc
         limit cast(:most as bigint)) as newest
 {one_of queue.id newest.queue_id}
 where newest.kind = 'RUN' and queue.tenant = :tenant and lower(coalesce(newest.last_error, '')) like :text escape '\'
 order by newest.finished_at desc, newest.id desc
 limit cast(:limit as bigint);

-- name: recent_notes
-- bound: 30 + 14 a row
-- List up to :limit notes of the audit, the newest first, after the place given, each with its task, if that is there, and
-- whether it is this tenant's.
with newest as (
    select audit.task_id, audit.place, audit.what, audit.worker_id, audit.attempt, audit.detail, audit.actor,
           audit.tenant, audit.recorded_at
      from {audit} as audit
     where audit.recorded_at <= cast(:after_time as bigint)
       and (audit.recorded_at < cast(:after_time as bigint) or audit.task_id < cast(:after_id as bigint)
            or (audit.task_id = cast(:after_id as bigint) and audit.place < cast(:after_place as bigint)))
     order by audit.recorded_at desc, audit.task_id desc, audit.place desc
     limit cast(:limit as bigint)
)
select newest.task_id, newest.place, newest.what, newest.worker_id, newest.attempt, newest.detail, newest.actor,
       newest.recorded_at, task.kind, queue.name as queue, task.key, coalesce(newest.tenant, queue.tenant) = :tenant as own
  from newest
  left join {task} as task on task.id = newest.task_id and task.id {any_of newest.task_id}
  left join {queue} as queue on queue.id = task.queue_id
 order by newest.recorded_at desc, newest.task_id desc, newest.place desc;

-- name: settled_by_time
-- unbounded: it looks at the minutes since the moment given, and at nothing else.
-- Add up what was settled since the minute of the moment given, by spans of :width minutes: of one queue, or of all.
with settled as (
    select rollup.minute / cast(:width as bigint) as span, rollup.queue_id,
           cast(sum(rollup.turns) as bigint) as turns, cast(sum(rollup.succeeded) as bigint) as succeeded,
           cast(sum(rollup.failed) as bigint) as failed, cast(sum(rollup.retried) as bigint) as retried,
           cast(sum(rollup.wait_us) as bigint) as wait_us, cast(sum(rollup.run_us) as bigint) as run_us
      from {rollup} as rollup
     where rollup.minute >= cast(:since as bigint) / 60000000
       and (cast(:queue_id as bigint) is null or rollup.queue_id = :queue_id)
     group by 1, rollup.queue_id
)
select settled.span, cast(sum(settled.turns) as bigint) as turns, cast(sum(settled.succeeded) as bigint) as succeeded,
       cast(sum(settled.failed) as bigint) as failed, cast(sum(settled.retried) as bigint) as retried,
       cast(sum(settled.wait_us) as bigint) as wait_us, cast(sum(settled.run_us) as bigint) as run_us
  from settled {one_of queue.id settled.queue_id}
 where queue.tenant = :tenant
 group by settled.span
 order by settled.span;

-- name: ready_in
-- bound: 12 + 8 a row
-- List up to :limit tasks of a queue that are ready, in the order in which they are claimed.
select task.id, task.kind, task.status, task.priority, task.run_at, task.attempt, task.max_attempts, task.key,
       task.last_error, task.created_at, task.finished_at, substr(cast(task.input as text), 1, 300) as input
  from {task} as task
 where task.queue_id = :queue_id and task.ready
 order by task.priority desc, task.run_at, task.id
 limit cast(:limit as bigint);

-- name: waiting_in
-- bound: 12 + 8 a row
-- List up to :limit tasks of a queue that wait for their moment, or are taken by hand, the first first.
select task.id, task.kind, task.status, task.priority, task.run_at, task.attempt, task.max_attempts, task.key,
       task.last_error, task.created_at, task.finished_at, substr(cast(task.input as text), 1, 300) as input
  from {task} as task
 where task.queue_id = :queue_id and not task.ready and task.owner is null and task.deleted_at is null
   and task.status in ('PENDING', 'PAUSED', 'RUNNING')
 order by task.run_at, task.id
 limit cast(:limit as bigint);

-- name: finished_in
-- bound: 12 + 8 a row
-- List up to :limit tasks of a queue that ended well or were cancelled, the newest first.
select task.id, task.kind, task.status, task.priority, task.run_at, task.attempt, task.max_attempts, task.key,
       task.last_error, task.created_at, task.finished_at, substr(cast(task.input as text), 1, 300) as input
  from {task} as task
 where task.queue_id = :queue_id and task.status in ('SUCCESS', 'CANCELLED') and task.deleted_at is null
 order by task.finished_at desc, task.id desc
 limit cast(:limit as bigint);
