-- The statements of a worker's session: begin, beat, end, and what others do when it is found dead.

-- name: begin_worker
-- Write a new session; its id was never used before.
insert into {worker} (tenant, name, host, pid, port, version, handlers, lease, started_at)
values (:tenant, :name, :host, :pid, :port, :version, {json_of handlers}, :lease, {now})
returning id;

-- name: begin_fence
-- Let this session write, through each of the connections it will use.
with rows as ({rows worker bigint, slot bigint})
insert into {fence} (worker_id, slot) select rows.worker, rows.slot from rows where true
returning worker_id as id, '' as answer;

-- name: begin_beat
-- Give this session its heartbeat.
insert into {beat} (worker_id, beat_at, heard_at) values (:worker, {beat_now}, {now}) returning worker_id as id;

-- name: beat
-- Keep these sessions alive; one that does not come back has been declared dead.
with rows as ({rows worker bigint})
update {beat} as beat set beat_at = {beat_now}, heard_at = {now} from rows
 where beat.worker_id = rows.worker and beat.worker_id {any_of rows.worker}
returning {own beat}worker_id as id, '' as answer;

-- name: owned
-- List what the database says these sessions are executing, and which of it somebody asked to cancel or to pause.
with rows as ({rows worker bigint})
select task.owner as worker, task.id, task.turn, task.cancel_requested_at is not null as cancel,
       task.held_at is not null as pause
  from rows join {task} as task on task.owner = rows.worker and task.owner {any_of rows.worker}
 where task.owner is not null;

-- name: living_workers
-- List every session that has not ended, and whether its last beat is older than its lease, or lies in the future, by
-- the database's clock. That alone proves nothing: see `recovery.py`.
select beat.worker_id, beat.beat_at,
       beat.beat_at < {beat_now} - worker.lease or beat.beat_at > {beat_now} + worker.lease as silent
  from {beat} as beat {one_of worker.id beat.worker_id};

-- name: patience [postgres]
-- Let recovery give up on a lock quickly: it is tried again, and nothing else may wait behind it.
set local lock_timeout = '500ms';

-- name: stop_beat
-- Declare a session dead, if it has not beaten since it was looked at. Its own next beat waits for this row,
-- then finds it gone.
delete from {beat} where worker_id = :worker and beat_at = :seen returning worker_id;

-- name: end_beat
-- End a session by its own wish.
delete from {beat} where worker_id = :worker returning worker_id;

-- name: lower_fence
-- From here on the session writes nothing. Waits for its flushes and claims in flight: they hold these rows.
delete from {fence} where worker_id = :worker;

-- name: end_worker
-- Note when and why the session ended.
update {worker} set stopped_at = {now}, stop_reason = :reason where id = :worker and stopped_at is null;

-- name: return_tasks
-- Give back up to :limit tasks that are RUNNING under a session with no fence. Run after `lower_fence`, as a
-- statement of its own: only a new snapshot sees the claim that `lower_fence` waited for. The lost attempt
-- counts; the last one ends the task in ERROR, and a task somebody asked to cancel is not run again, nor one that is
-- held back before it is let go.
-- Ordered by an expression: a plan made on an empty table would walk the whole primary key for the bare column.
with lost as materialized (
    select task.id from {task} as task
     where task.owner is not null and task.owner = :worker
       and not exists (select 1 from {fence} as fence where fence.worker_id = task.owner)
     order by task.id + 0
     limit :limit
     {skip_locked}
)
update {task} as task
   set status = case when task.cancel_requested_at is not null then 'CANCELLED'
                     when task.attempt >= task.max_attempts then 'ERROR'
                     when task.held_at is not null then 'PAUSED' else 'PENDING' end,
       ready = task.cancel_requested_at is null and task.attempt < task.max_attempts and {may_be_ready task},
       owner = null, suspect = true,
       error = case when task.cancel_requested_at is not null then task.error
                    else cast('{"type":"WorkerLost","message":"worker_lost: its worker died or was cut off"}' as {json}) end,
       last_error = case when task.cancel_requested_at is not null then task.last_error else 'worker_lost' end,
       finished_at = case when task.cancel_requested_at is not null or task.attempt >= task.max_attempts
                          then {now} else null end,
       updated_at = {now}
 where task.id {any_of lost}
returning {own task}id, {own task}queue_id, {own task}status, {own task}parent_id as parent_id, {own task}turn,
          {own task}attempt;

-- name: stranded_owners
-- List sessions that have no fence and still own tasks: what a recovery that skipped a locked row left behind.
-- Steps from owner to owner in the index, so what each of them owns costs nothing.
with recursive holder as (
    select (select task.owner from {task} as task
             where task.owner is not null and task.owner > 0 order by task.owner limit 1) as id
    union all
    select (select task.owner from {task} as task
             where task.owner is not null and task.owner > holder.id order by task.owner limit 1) as id
      from holder where holder.id is not null
)
select holder.id as worker from holder
 where holder.id is not null
   and (select fence.worker_id from {fence} as fence where fence.worker_id = holder.id limit 1) is null;

-- name: workers
-- List sessions, newest first, with how long ago each was heard of; one without a beat has ended.
select worker.id, worker.name, worker.host, worker.pid, worker.port, worker.version, worker.handlers, worker.lease,
       worker.started_at, worker.stopped_at, worker.stop_reason, {beat_now} - beat.beat_at as silent
  from {worker} as worker left join {beat} as beat on beat.worker_id = worker.id
 where worker.tenant = :tenant
 order by worker.id desc limit :limit;

-- name: patience [sqlite]
-- One writer at a time: there is nothing to wait for inside a transaction.
select 1;
