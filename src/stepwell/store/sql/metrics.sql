-- What workflows did in a window of time, and how they stand now; nothing here writes. How long things took is told in
-- groups: the first two digits of the microseconds, and how many digits there are. So a window of any size comes back as
-- few rows, and those of several workflows can be added up.

-- name: workflow_queues
-- bound: 12 + 5 a row
-- scans workflow: all of them are asked for.
-- List the workflows of a tenant with the numbers of their queues.
select queue.id, queue.name from {workflow} as workflow {one_of queue.id workflow.queue_id}
 where queue.tenant = :tenant
 order by queue.name;

-- name: ended_runs
-- unbounded: it looks at all that ended since the moment given, and at nothing else.
-- Count, by length, the tasks of these queues that ended since the moment given; what ended before it is not looked at.
-- `kind` is told and not asked for: with it the index of runs, which knows no moment of their end, would do as well.
with rows as ({rows queue_id bigint}),
ended as (
    select task.queue_id, task.kind, task.status,
           case when task.finished_at > task.started_at then task.finished_at - task.started_at
                when task.started_at is not null then 0 end as took
      from {each_of rows}{task} as task
     where {found_by task.queue_id rows.queue_id}
       and task.status in ('SUCCESS', 'CANCELLED') and task.deleted_at is null and task.finished_at >= :since
    union all
    select task.queue_id, task.kind, task.status, null as took
      from {task} as task
     where task.status = 'ERROR' and task.finished_at >= :since and task.deleted_at is null
       and task.queue_id {any_of rows.queue_id}
),
lengths as (select ended.queue_id, ended.kind, ended.status, ended.took, cast(ended.took as text) as digits from ended)
select lengths.queue_id, lengths.kind, lengths.status, substr(lengths.digits, 1, 2) as first_two,
       length(lengths.digits) as places, count(*) as counted, cast(sum(lengths.took) as bigint) as total,
       max(lengths.took) as longest
  from lengths
 group by lengths.queue_id, lengths.kind, lengths.status, first_two, places;

-- name: live_runs
-- unbounded: it counts for people, and looks at all that it counts.
-- Count the runs of these queues that are not finished, by status.
with rows as ({rows queue_id bigint, status name})
select task.queue_id, task.status, count(*) as counted
  from {each_of rows}{task} as task
 where {found_by task.queue_id rows.queue_id} and {found_by task.status rows.status} and task.kind = 'RUN'
   and task.deleted_at is null
 group by task.queue_id, task.status;

-- name: ended_steps
-- unbounded: it looks at all that ended since the moment given, and at nothing else.
-- Count, by name and length, the steps of the runs of these queues that ended since the moment given. A step's name is
-- what its key has after the path of its branch and before the number of the call. Its length is that of the attempt that
-- succeeded, from its beginning to its record; what is recorded in a moment has none.
with rows as ({rows queue_id bigint}),
ended as materialized (
    select task.id
      from {each_of rows}{task} as task
     where {found_by task.queue_id rows.queue_id}
       and task.status in ('SUCCESS', 'CANCELLED') and task.deleted_at is null and task.finished_at >= :since
    union all
    select task.id
      from {task} as task
     where task.status = 'ERROR' and task.finished_at >= :since and task.deleted_at is null
       and task.queue_id {any_of rows.queue_id}
),
lengths as (
    select (select task.queue_id from {task} as task where task.id = step.run_id) as queue_id, step.status,
           substr(step.key, length(rtrim(step.key, replace(step.key, '/', ''))) + 1) as call,
           case when step.status = 'SUCCESS' and step.finished_at > step.started_at
                then step.finished_at - step.started_at end as took
      from {each_of ended}{step} as step
     where {found_by step.run_id ended.id} and step.status in ('SUCCESS', 'ERROR') and step.place > 0
)
select lengths.queue_id, rtrim(rtrim(lengths.call, '0123456789'), '#') as name, lengths.status,
       substr(cast(lengths.took as text), 1, 2) as first_two, length(cast(lengths.took as text)) as places,
       count(*) as counted, cast(sum(lengths.took) as bigint) as total, max(lengths.took) as longest
  from lengths
 group by lengths.queue_id, name, lengths.status, first_two, places;

-- name: settled_since
-- unbounded: it looks at the minutes since the moment given, and at nothing else.
-- Add up, by queue and by how long they waited and took, the turns that workers and people closed since the minute of the
-- moment given: a few rows for a minute and queue, however many tasks that were.
with settled as materialized (
    select rollup.queue_id, rollup.wait_bucket, rollup.run_bucket, cast(sum(rollup.turns) as bigint) as turns,
           cast(sum(rollup.succeeded) as bigint) as succeeded, cast(sum(rollup.failed) as bigint) as failed,
           cast(sum(rollup.retried) as bigint) as retried, cast(sum(rollup.wait_us) as bigint) as wait_us,
           cast(sum(rollup.run_us) as bigint) as run_us
      from {rollup} as rollup where rollup.minute >= cast(:since as bigint) / 60000000
     group by rollup.queue_id, rollup.wait_bucket, rollup.run_bucket
)
select queue.name as queue, settled.wait_bucket, settled.run_bucket, settled.turns, settled.succeeded, settled.failed,
       settled.retried, settled.wait_us, settled.run_us
  from settled {one_of queue.id settled.queue_id}
 where queue.tenant = :tenant
 order by queue.name;

-- name: dead_counts
-- unbounded: it counts for people, and looks at all that it counts.
-- scans task: the index of dead letters; those are counted.
-- Count the dead letters of a tenant by queue and kind.
with dead as materialized (
    select task.queue_id, task.kind, count(*) as counted
      from {task} as task where task.status = 'ERROR' and task.deleted_at is null
     group by task.queue_id, task.kind
)
select queue.name as queue, dead.kind, dead.counted
  from dead join {queue} as queue on queue.id = dead.queue_id
 where queue.tenant = :tenant
 order by queue.name, dead.kind;

-- name: serving_sessions
-- bound: 12 + 4 a row
-- scans beat: a row for each session that lives.
-- List the sessions of a tenant that have not ended: what each serves, its lease, for how long it has been silent, and
-- when it was heard of.
select worker.handlers, worker.lease, {beat_now} - beat.beat_at as silent, beat.heard_at
  from {beat} as beat {one_of worker.id beat.worker_id}
 where worker.tenant = :tenant;
