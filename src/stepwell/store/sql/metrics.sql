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
-- bound: 12 + 9 a row
-- Count, by length, the tasks of these queues that ended since the moment given: of each queue the newest :most that
-- succeeded or were cancelled, and the newest :most dead letters. What ended before is not looked at.
-- `kind` is told and not asked for: with it the index of runs, which knows no moment of their end, would do as well.
with rows as ({row queue_id bigint}),
ended as (
    select {its rows.queue_id} as queue_id, walk.kind, walk.status, walk.took
      from {walk_of rows} (
               select task.kind, task.status,
                      case when task.finished_at > task.started_at then task.finished_at - task.started_at
                           when task.started_at is not null then 0 end as took
                 from {task} as task
                where task.queue_id = {its rows.queue_id}
                  and task.status in ('SUCCESS', 'CANCELLED') and task.deleted_at is null and task.finished_at >= :since
                order by task.finished_at desc
                limit :most) as walk
    union all
    select {its rows.queue_id} as queue_id, walk.kind, 'ERROR' as status, null as took
      from {walk_of rows} (
               select task.kind
                 from {task} as task
                where task.queue_id = {its rows.queue_id}
                  and (task.status = 'ERROR') is true and task.deleted_at is null and task.finished_at >= :since
                order by task.finished_at desc
                limit :most) as walk
),
lengths as (select ended.queue_id, ended.kind, ended.status, ended.took, cast(ended.took as text) as digits from ended)
select lengths.queue_id, lengths.kind, lengths.status, substr(lengths.digits, 1, 2) as first_two,
       length(lengths.digits) as places, count(*) as counted, cast(sum(lengths.took) as bigint) as total,
       max(lengths.took) as longest
  from lengths
 group by lengths.queue_id, lengths.kind, lengths.status, first_two, places;

-- name: live_runs
-- bound: 8 + 9 a row
-- Count the runs of these queues that are not finished, by status: of each at most :most are looked at.
with rows as ({row queue_id bigint, status name})
select {its rows.queue_id} as queue_id, {its rows.status} as status, walk.looked_at, walk.counted
  from {walk_of rows} (
           select count(*) as looked_at, count(case when part.deleted_at is null then 1 end) as counted
             from (select task.deleted_at from {task} as task
                    where task.queue_id = {its rows.queue_id} and task.status = {its rows.status} and task.kind = 'RUN'
                    limit :most) as part) as walk;

-- name: ended_steps
-- bound: 150 + 9 a row
-- Count, by name and length, the steps of the runs of these queues that ended since the moment given: of each queue's
-- newest :most, ten times as many steps at most. A step's name is what its key has after the path of its branch and before
-- the number of the call. Its length is that of the attempt that succeeded, from its beginning to its record; what is
-- recorded in a moment has none.
with rows as ({row queue_id bigint}),
ended as materialized (
    select walk.id
      from {walk_of rows} (
               select task.id from {task} as task
                where task.queue_id = {its rows.queue_id}
                  and task.status in ('SUCCESS', 'CANCELLED') and task.deleted_at is null and task.finished_at >= :since
                order by task.finished_at desc
                limit :most) as walk
    union all
    select walk.id
      from {walk_of rows} (
               select task.id from {task} as task
                where task.queue_id = {its rows.queue_id}
                  and (task.status = 'ERROR') is true and task.deleted_at is null and task.finished_at >= :since
                order by task.finished_at desc
                limit :most) as walk
),
lengths as (
    select (select task.queue_id from {task} as task where task.id = step.run_id) as queue_id, step.status,
           substr(step.key, length(rtrim(step.key, replace(step.key, '/', ''))) + 1) as call,
           case when step.status = 'SUCCESS' and step.finished_at > step.started_at
                then step.finished_at - step.started_at end as took
      from {each_of ended}{step} as step
     where {found_by step.run_id ended.id} and step.status in ('SUCCESS', 'ERROR') and step.place > 0
     limit 10 * cast(:most as bigint)
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
-- bound: 8 + 8 a row
-- Count the dead letters of these queues by kind: of each queue at most :most.
with rows as ({row queue_id bigint})
select {its rows.queue_id} as queue_id, walk.kind, count(*) as counted
  from {walk_of rows} (
           select task.kind from {task} as task
            where task.queue_id = {its rows.queue_id} and (task.status = 'ERROR') is true and task.deleted_at is null
            limit :most) as walk
 group by {its rows.queue_id}, walk.kind;

-- name: serving_sessions
-- bound: 12 + 4 a row
-- scans beat: a row for each session that lives.
-- List the sessions of a tenant that have not ended: what each serves, its lease, for how long it has been silent, and
-- when it was heard of.
select worker.handlers, worker.lease, {beat_now} - beat.beat_at as silent, beat.heard_at
  from {beat} as beat {one_of worker.id beat.worker_id}
 where worker.tenant = :tenant;
