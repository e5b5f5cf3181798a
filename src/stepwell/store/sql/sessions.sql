-- The statements of a worker's session: begin, beat, end, and what others do when it is found dead.

-- name: begin_worker
-- bound: 24
-- Write a new session; its id was never used before. Say too whether there are broadcasts, so that it fans them out.
insert into {worker} (tenant, name, host, pid, port, version, handlers, lease, started_at)
values (:tenant, :name, :host, :pid, :port, :version, {json_of handlers}, :lease, {now})
returning id, (select queue.id from {queue} as queue
                where queue.tenant = :tenant and queue.name = 'stepwell.broadcasts') as broadcasts;

-- name: serve_also
-- bound: 10
-- Say what a session serves besides what it began with.
update {worker} set handlers = {json_of handlers} where id = :worker returning id;

-- name: begin_fence
-- bound: 6 + 4 a row
-- Let this session write, through each of the connections it will use.
with rows as ({rows worker bigint, slot bigint})
insert into {fence} (worker_id, slot) select rows.worker, rows.slot from rows where true
returning worker_id as id, '' as answer;

-- name: begin_beat
-- bound: 6
-- Give this session its heartbeat, and note which helper it has or why it has none.
insert into {beat} (worker_id, beat_at, heard_at, helper) values (:worker, {beat_now}, {now}, :helper)
returning worker_id as id;

-- name: beat
-- bound: 6 + 4 a row
-- Keep these sessions alive; one that does not come back has been declared dead.
with rows as ({rows worker bigint})
update {beat} as beat set beat_at = {beat_now}, heard_at = {now} from rows
 where beat.worker_id = rows.worker and beat.worker_id {any_of rows.worker}
returning {own beat}worker_id as id, '' as answer;

-- name: owned
-- bound: 6 + 14 a row
-- List what the database says these sessions are executing.
with rows as ({rows worker bigint})
select task.owner as worker, task.id, task.turn
  from rows join {task} as task on task.owner = rows.worker and task.owner {any_of rows.worker}
 where task.owner is not null;

-- name: note_gone
-- bound: 6 + 4 a row
-- Note that the process of these sessions is gone: recovery takes it as proof. Their helper says so, from outside.
with rows as ({rows worker bigint})
update {beat} as beat set gone = true from rows
 where beat.worker_id = rows.worker and beat.worker_id {any_of rows.worker}
returning {own beat}worker_id as id, '' as answer;

-- name: note_helper
-- bound: 6 + 4 a row
-- Note which helper these sessions have from now on, or why they have none.
with rows as ({rows worker bigint, helper name})
update {beat} as beat set helper = rows.helper from rows
 where beat.worker_id = rows.worker and beat.worker_id {any_of rows.worker}
returning {own beat}worker_id as id, '' as answer;

-- name: living_workers
-- bound: 12 + 6 a row
-- scans beat: a row for each session that lives.
-- List every session that has not ended; whether its last beat is older than its lease, or lies in the future, by the
-- database's clock, which alone proves nothing (see `recovery.py`); and whether its process is known to be gone.
select beat.worker_id, beat.beat_at, beat.gone, worker.lease,
       beat.beat_at < {beat_now} - worker.lease or beat.beat_at > {beat_now} + worker.lease as silent
  from {beat} as beat {one_of worker.id beat.worker_id};

-- name: stop_beat
-- bound: 8
-- Declare a session dead, if it has not beaten since it was looked at. Its own next beat waits for this row,
-- then finds it gone.
delete from {beat} where worker_id = :worker and beat_at = :seen returning worker_id;

-- name: end_beat
-- bound: 8
-- End a session by its own wish.
delete from {beat} where worker_id = :worker returning worker_id;

-- name: lower_fence
-- bound: 12 + 3 a row
-- From here on the session writes nothing. Waits for its flushes and claims in flight: they hold these rows.
delete from {fence} where worker_id = :worker;

-- name: end_worker
-- bound: 22
-- Note when and why the session ended.
update {worker} set stopped_at = {now}, stop_reason = :reason where id = :worker and stopped_at is null;

-- name: note_loss
-- unbounded: it looks at all that the session held.
-- scans worker: for the other sessions of its process; sessions die seldom.
-- Note what a session held that was declared dead: how many tasks, and the one whose death its own was, if one can be
-- told: the only one, or the only suspect, if that was begun before all others. Another session of its worker, which has
-- another lease and died with it, is company too, before or after; but not for a suspect, which is executed alone in all of
-- its worker. Run after `lower_fence`, and kept: what `return_tasks` has to skip because it is locked is judged later by
-- the same.
update {worker} as worker
   set held = (select count(*) from {task} as task where task.owner is not null and task.owner = :worker),
       blamed = (select task.id from {task} as task
                  where task.owner is not null and task.owner = :worker
                    and (task.losses > 0 or not exists (
                         select 1 from {worker} as other
                          where other.host = worker.host and other.pid = worker.pid and other.name = worker.name
                            and other.tenant = worker.tenant and other.id <> :worker
                            and (other.stopped_at is null or other.stopped_at >= worker.started_at)
                            and (other.held > 0 or exists (select 1 from {task} as beside
                                                            where beside.owner is not null and beside.owner = other.id))))
                    and not exists (select 1 from {task} as beside
                                     where beside.owner is not null and beside.owner = :worker and beside.id <> task.id
                                       and (task.losses = 0 or beside.losses > 0
                                            or beside.claimed_at <= task.claimed_at)))
 where worker.id = :worker;

-- name: return_tasks
-- unbounded: it looks at all that the session held, to begin with the first.
-- Give back up to :limit tasks that are RUNNING under a session with no fence. Run after `lower_fence`, as a
-- statement of its own: only a new snapshot sees the claim that `lower_fence` waited for.
-- A task that was lost with others gets its attempt back and is a suspect: not ready, `claim_alone` takes it. A task
-- that was lost alone keeps the loss, and ends in ERROR when it has no attempt left or was lost as often as it may be
-- executed. A task that a session left when it ended normally makes no suspect, and ends in ERROR after its last
-- attempt. With one attempt there is no second execution. A task with a requested cancel is not executed again,
-- unless it may still clean up: only time ends that. A task with a requested pause is PAUSED until it is unpaused,
-- its attempt given back: the operator was told that it is paused.
-- A task whose end would change a parent, or let the next of its ordered group go, is left to a later call while another
-- transaction has locked the parent or the group: this statement holds the fence and the tasks, and must not wait for them.
-- Ordered by an expression: a plan made on an empty table would walk the whole primary key for the bare column.
with death as materialized (
    select coalesce((select worker.held is not null from {worker} as worker where worker.id = :worker), false) as died,
           coalesce((select worker.blamed from {worker} as worker where worker.id = :worker), 0) as blamed
),
lost as materialized (
    select task.id, death.died, death.died and task.id <> death.blamed as in_company,
           case when death.died and task.id <> death.blamed then task.max_attempts = 1
                else task.attempt >= task.max_attempts or (death.died and task.losses + 1 >= task.max_attempts)
                end as spent
      from death cross join {task} as task
     where task.owner is not null and task.owner = :worker
       and not exists (select 1 from {fence} as fence where fence.worker_id = task.owner)
       and ((task.attempt < task.max_attempts and task.losses + 1 < task.max_attempts and task.max_attempts > 1
             and task.cancel_requested_at is null and task.deleted_at is null)
            or ({parent_is_free task} and {group_is_free}))
     order by task.id + 0
     limit :limit
     {skip_locked}
)
update {task} as task
   set status = case when task.cleanup_until > {now} then 'PENDING'
                     when task.cancel_requested_at is not null then 'CANCELLED'
                     when task.held_at is not null then 'PAUSED'
                     when lost.spent then 'ERROR' else 'PENDING' end,
       ready = case when task.cancel_requested_at is null then not lost.spent
                    else coalesce(task.cleanup_until > {now}, false) end and not lost.died and {may_be_ready task},
       owner = null, suspect = true,
       position = case when task.position is null then null
                       when task.deleted_at is not null
                            or (task.cancel_requested_at is not null and coalesce(task.cleanup_until <= {now}, true))
                            or (lost.spent and task.held_at is null and {continues_after_dead}) then null
                       else task.position end,
       attempt = case when lost.in_company and task.max_attempts > 1 then task.attempt - 1
                      when task.cancel_requested_at is null and task.held_at is not null then task.attempt - 1
                      else task.attempt end,
       losses = case when not lost.died then task.losses
                     when lost.in_company and task.losses > 0 then task.losses
                     else task.losses + 1 end,
       lost_by = case when lost.died then :worker else task.lost_by end,
       error = case when task.cancel_requested_at is not null then task.error
                    else cast('{"type":"WorkerLost","message":"worker_lost: its worker died or was cut off"}' as {json}) end,
       last_error = case when task.cancel_requested_at is null then 'worker_lost'
                         when task.cleanup_until <= {now} then task.last_error || '; its cleanup was not finished in time'
                         else task.last_error end,
       finished_at = case when task.cleanup_until > {now} then null
                          when task.cancel_requested_at is not null then {now}
                          when lost.spent and task.held_at is null then {now} else null end,
       updated_at = {now}
  from lost
 where task.id = lost.id and task.id {any_of lost}
returning {own task}id, {own task}queue_id, {own task}status, {own task}parent_id as parent_id, {own task}turn,
          {own task}attempt, {own task}losses, {own task}group_key as group_key, {own task}position as position,
          {own task}ends_children as ends_children;

-- name: acquit
-- bound: 12 + 20 a row
-- Undo the loss of up to :limit tasks that were last lost with this session: it was declared dead, and its process lives.
-- Each has the attempt that it cost; what was no suspect before is none now, and ready.
with cleared as materialized (
    select task.id, (select count(*) from {worker} as worker
                      where worker.id = :worker and worker.blamed = task.id) as blamed
      from {task} as task
     where task.losses > 0 and task.owner is null and task.status = 'PENDING' and not task.waits_for_previous
       and task.lost_by = :worker
     order by task.id + 0
     limit :limit
     {skip_locked}
)
update {task} as task
   set losses = case when task.losses = 1 then 0 else task.losses - cleared.blamed end, lost_by = null,
       attempt = task.attempt - cleared.blamed,
       ready = task.losses = 1 and coalesce(task.run_at <= {now}, false) and {may_be_ready task clears losses},
       updated_at = {now}
  from cleared
 where task.id = cleared.id and task.id {any_of cleared}
returning {own task}id, {own task}queue_id;

-- name: forget_loss
-- bound: 12
-- Let the tasks that this session left behind, and that were not given back yet, make no suspects either.
update {worker} set held = null, blamed = null where id = :worker and held is not null;

-- name: stranded_owners
-- unbounded: a look for each session that owns tasks.
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
-- bound: 12 + 6 a row
-- scans worker: from the newest on, and no more than :limit.
-- List sessions, newest first, with how long ago each was heard of; one without a beat has ended.
select worker.id, worker.name, worker.host, worker.pid, worker.port, worker.version, worker.handlers, worker.lease,
       worker.started_at, worker.stopped_at, worker.stop_reason, {beat_now} - beat.beat_at as silent,
       beat.helper, beat.gone
  from {worker} as worker left join {beat} as beat on beat.worker_id = worker.id
 where worker.tenant = :tenant
 order by worker.id desc limit :limit;
