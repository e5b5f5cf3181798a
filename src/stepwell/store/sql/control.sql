-- What people do with runs: cancel them, hold them back, make new ones of them; and what is told of how they stand.

-- name: lock_run
-- bound: 14
-- Read the state of a run, or of a message if that may be one, and lock it until this transaction ends.
select task.id, task.status, task.owner, task.turn, task.finished_at, task.cancel_requested_at, task.cleanup_until,
       task.held_at, task.queue_id, task.parent_id, task.generation, task.wakes, task.kind, task.ready, task.last_error,
       task.losses, task.group_key, queue.name as workflow
  from {task} as task join {queue} as queue on queue.id = task.queue_id
 where task.id = :id and (task.kind = 'RUN' or (:or_message and task.kind = 'MESSAGE')) is true
   and task.deleted_at is null and queue.tenant = :tenant
 {for_update_of_task};

-- name: cancel_tasks
-- bound: 6 + 21 a row
-- Cancel tasks: at once those that no worker executes, and ask the workers of the others; finished tasks stay as they
-- are. A run that was begun, of a workflow that cleans up, is ready instead, to do so until `cleanup_until`; it is no
-- longer paused. A second request changes nothing: the cleanup continues until the time is over.
-- Decided in one statement over the current row: it sees a claim or a settle that came first. One that comes later
-- waits for this row, and finds the request or the end.
with rows as ({rows id bigint})
update {task} as task
   set status = case when task.owner is not null then task.status
                     when not {cleans_up} then 'CANCELLED'
                     when task.cancel_requested_at is null then 'PENDING' else task.status end,
       ready = task.owner is null and {cleans_up} and (task.ready or task.cancel_requested_at is null)
               and {may_be_ready task clears held_at},
       run_at = case when task.owner is null and task.cancel_requested_at is null and {cleans_up}
                     then {now} else task.run_at end,
       cancel_requested_at = coalesce(task.cancel_requested_at, {now}),
       cleanup_until = case when {cleans_up} then {cleanup_until} else task.cleanup_until end,
       held_at = case when {cleans_up} then null else task.held_at end,
       held_reason = case when {cleans_up} then null else task.held_reason end,
       finished_at = case when task.owner is null and not {cleans_up} then {now} else null end,
       position = case when task.owner is null and not {cleans_up} then null else task.position end,
       waits_for_previous = task.waits_for_previous and (task.owner is not null or {cleans_up}),
       error = {json_of error}, last_error = :last_error, updated_at = {now}
  from rows
 where task.id = rows.id and task.id {any_of rows} and task.finished_at is null
returning {own task}id, {own task}status, {own task}queue_id, {own task}parent_id as parent_id, {own task}owner,
          {own task}turn, {own task}ready, {own task}group_key;

-- name: request_control
-- bound: 6 + 5 a row
-- Ask the sessions that execute these turns to stop them; in the transaction that has locked the tasks.
with rows as ({rows worker bigint, task_id bigint, turn bigint})
insert into {control_request} (worker_id, task_id, turn, request)
select rows.worker, rows.task_id, rows.turn, cast(:request as text) from rows where true
on conflict do nothing;

-- name: take_back_request
-- bound: 8
-- Do not ask a session any more to stop this turn.
delete from {control_request} where worker_id = :worker and task_id = :id and turn = :turn and request = :request;

-- name: control_requests
-- bound: 6 + 1 a row
-- The tasks that these sessions are asked to stop, each with the request and its turn. The table is empty as long as
-- there are no requests: a probe of its key for each session, and no lock.
with rows as ({rows worker bigint})
select request.task_id as id, request.request as answer, request.turn as number
  from {control_request} as request where request.worker_id {any_of rows.worker};

-- name: forget_requests
-- bound: 6 + 1054 a row
-- Remove what these sessions were asked of turns that they do not have any more.
with rows as ({rows worker bigint})
delete from {control_request}
 where worker_id {any_of rows.worker}
   and (select task.owner = {control_request}.worker_id and task.turn = {control_request}.turn
          from {task} as task where task.id = {control_request}.task_id limit 1) is not true
returning task_id as id, '' as answer;

-- name: forget_requests_of
-- bound: 12 + 2 a row
-- Remove whatever a session that has ended was asked.
delete from {control_request} where worker_id = :worker;

-- name: cancelled_before
-- bound: 6 + 1 a row
-- Of these tasks, those for which a cancel was requested before.
with rows as ({rows id bigint})
select task.id from {task} as task where task.id {any_of rows} and task.cancel_requested_at is not null;

-- name: unfinished_children
-- bound: 6 + 8 a row
-- List the unfinished children of these tasks, except for those that are left alone when these end, and for which of them
-- a cancel was requested before.
with rows as ({rows id bigint})
select task.id, task.cancel_requested_at is not null as requested from rows join {task} as task on task.parent_id = rows.id
 where task.parent_id is not null and task.parent_id {any_of rows} and task.finished_at is null
   and coalesce(task.on_parent_end, 'cancel') = 'cancel';

-- name: children_to_end
-- bound: 6 + 8 a row
-- List the unfinished children of these tasks that end with them, and for which of them a cancel was requested before: all
-- that are not left alone, of one whose time was over.
with rows as ({rows id bigint, timed_out bigint})
select task.id, task.cancel_requested_at is not null as requested from rows join {task} as task on task.parent_id = rows.id
 where task.parent_id is not null and task.parent_id {any_of rows} and task.finished_at is null
   and (task.on_parent_end = 'cancel' or (rows.timed_out = 1 and task.on_parent_end is null));

-- name: note_ends_children
-- bound: 20
-- Note that a run has asked for one that ends with it; the transaction has locked it.
update {task} set ends_children = true, updated_at = {now} where id = :id and not ends_children returning id;

-- name: cancelled_runs
-- bound: 6 + 4 a row
-- Of these tasks, the runs of a tenant that were cancelled.
with rows as ({rows id bigint})
select task.id, task.cleanup_until, task.finished_at is null as stopping
  from rows join {task} as task on task.id = rows.id
 where task.id {any_of rows} and (task.kind = 'RUN' and task.status = 'CANCELLED' and task.deleted_at is null) is true
   and (select queue.tenant from {queue} as queue where queue.id = task.queue_id) = :tenant;

-- name: cancelled_with
-- bound: 6 + 12 a row
-- The runs that these asked for and that were cancelled with them; not those that were cancelled before, by themselves.
with rows as ({rows id bigint})
select child.id, child.cleanup_until, child.finished_at is null as stopping
  from rows
  join {task} as task on task.id = rows.id
  join {task} as child on child.parent_id = task.id
 where task.id {any_of rows} and child.parent_id is not null and child.parent_id {any_of rows}
   and (child.kind = 'RUN' and child.deleted_at is null and child.cancel_requested_at >= task.cancel_requested_at) is true;

-- name: ended_with
-- bound: 6 + 14 a row
-- The runs that these, which failed, asked for and that were cancelled by their ends: those of `children_to_end`.
with rows as ({rows id bigint, timed_out bigint})
select child.id, task.id as parent_id, child.cleanup_until, child.finished_at is null as stopping
  from rows
  join {task} as task on task.id = rows.id
  join {task} as child on child.parent_id = task.id
 where task.id {any_of rows} and child.parent_id is not null and child.parent_id {any_of rows}
   and (child.kind = 'RUN' and child.deleted_at is null and child.cancel_requested_at >= task.finished_at
        and (child.on_parent_end = 'cancel' or (rows.timed_out = 1 and child.on_parent_end is null))) is true;

-- name: retry_cancelled
-- bound: 6 + 33 a row
-- Let runs that were cancelled go on, with all their attempts, and without a deadline of their parent that has passed. One that was to clean up begins anew, as its next
-- generation: what its steps have done may be undone. One that is held back waits to be let go.
with rows as ({rows id bigint})
update {task} as task
   set status = case when task.held_at is null then 'PENDING' else 'PAUSED' end,
       ready = {may_be_ready task clears losses},
       generation = case when task.cleanup_until is null then task.generation else task.generation + 1 end,
       restarted_at = case when task.cleanup_until is null then task.restarted_at else {now} end,
       run_at = {now}, attempt = 0, losses = 0, lost_by = null, error = null, last_error = null, waiting = 0,
       cancel_requested_at = null, cleanup_until = null, suspect = false, worker_id = null, started_at = null,
       claimed_at = null, finished_at = null, updated_at = {now},
       deadline_at = case when task.deadline_at > {now} then task.deadline_at end
  from rows
 where task.id = rows.id and task.id {any_of rows}
   and (task.status = 'CANCELLED' and task.kind = 'RUN' and task.deleted_at is null) is true
returning {own task}id, {own task}queue_id;

-- name: reschedule
-- bound: 30
-- Move a task to another moment, or to another priority; the transaction has locked it, and no worker executes it.
update {task} as task
   set priority = coalesce(cast(:priority as bigint), task.priority),
       ready = case when :moves then task.status = 'PENDING' and {may_be_ready task}
                                     and coalesce(cast(:run_at as bigint), {now} + :delay) <= {now}
                    else task.ready end,
       run_at = case when :moves then coalesce(cast(:run_at as bigint), {now} + :delay) else task.run_at end,
       updated_at = {now}
 where id = :id
returning id, queue_id, ready, run_at - {now} as wait;

-- name: tags_of
-- bound: 6
-- Read the tags of a task.
select task.tags from {task} as task where task.id = :id;

-- name: put_tags
-- bound: 20
-- Give a task these tags; the transaction has locked it for the turn that asks.
update {task} set tags = {json_of tags}, updated_at = {now} where id = :id returning id;

-- name: hold_run
-- bound: 26
-- Hold a run back: PAUSED at once if no worker executes it, else its worker is asked to stop it. What is finished, or is
-- being cancelled, stays so.
update {task} set held_at = coalesce(held_at, {now}), held_reason = coalesce(cast(:reason as text), held_reason),
       status = case when owner is null then 'PAUSED' else status end, ready = false,
       paused_at = case when owner is null and status <> 'PAUSED' then {now} else paused_at end, updated_at = {now}
 where id = :id and finished_at is null and cancel_requested_at is null
returning id, queue_id, status, owner, turn;

-- name: let_go_run
-- bound: 32
-- Let a run that is held back go on. One that was begun is ready now, since what it waits for may have come meanwhile:
-- if not, it will wait again. One that was not begun is ready when it is due. One that has paused itself, outside of its
-- steps, is one of them: it says why in its error.
update {task} as task set held_at = null, held_reason = null,
       status = case when status = 'PAUSED' then 'PENDING' else status end,
       ready = status = 'PAUSED' and (turn > 0 or run_at <= {now}) and {may_be_ready task clears held_at},
       run_at = case when status = 'PAUSED' and turn > 0 then {now} else run_at end, updated_at = {now}
 where id = :id and (held_at is not null or (status = 'PAUSED' and error is not null)) and finished_at is null
returning id, queue_id, ready;

-- name: standing
-- bound: 26
-- Say how a run or an input stands, deleted or not: beside each step that it has begun and not ended, and with its queue,
-- its worker and whether that was heard of in time; and which task it waits for, if it waits for one before it in order.
select task.id, task.kind, task.key, task.waits_for_previous,
       case when task.waits_for_previous then
           (select before.id from {task} as before
             where before.queue_id = task.queue_id and before.group_key = task.group_key and before.position is not null
             order by before.position limit 1) end as first_id,
       case when task.waits_for_previous then
           (select before.status from {task} as before
             where before.queue_id = task.queue_id and before.group_key = task.group_key and before.position is not null
             order by before.position limit 1) end as first_status,
       case when task.waits_for_previous then
           (select before.last_error from {task} as before
             where before.queue_id = task.queue_id and before.group_key = task.group_key and before.position is not null
             order by before.position limit 1) end as first_error,
       task.status, task.ready, task.run_at, task.owner, task.turn, task.attempt, task.max_attempts, task.waiting,
       task.losses, task.error, task.last_error, task.cancel_requested_at, task.cleanup_until, task.held_at,
       task.held_reason, task.deleted_at,
       task.delete_reason, task.finished_at, queue.name as workflow, queue.paused as queue_paused, queue.limited, {now} as now,
       maintenance.began_at as maintenance_at, maintenance.reason as maintenance_reason,
       worker.name as worker_name, worker.host as worker_host, worker.pid as worker_pid,
       worker.lease as worker_lease,
       beat.beat_at < {beat_now} - worker.lease or beat.beat_at > {beat_now} + worker.lease as silent,
       case when task.waiting > 0
            then (select count(*) from {task} as child
                   where child.parent_id is not null and child.parent_id = task.id and child.finished_at is null)
            else 0 end as children,
       step.key as step_key, step.status as step_status, step.attempt as step_attempt, step.output as step_output,
       step.error as step_error, step.input as step_input, {text_of step.accepts} as step_accepts
  from {task} as task
  join {queue} as queue on queue.id = task.queue_id
  left join {maintenance} as maintenance on maintenance.tenant = queue.tenant
  left join {worker} as worker on worker.id = task.owner
  left join {beat} as beat on beat.worker_id = task.owner
  left join {step} as step on step.run_id = task.id and step.generation = task.generation
       and step.status not in ('SUCCESS', 'ERROR', 'CANCELLED')
 where task.id = :id and (task.kind in ('RUN', 'INPUT')) is true and queue.tenant = :tenant
 order by step.place
 limit 1000;

-- name: serving_now
-- unbounded: it counts for people, and looks at all that is being executed.
-- scans beat: a row for each session that lives.
-- List the living workers of a tenant, what they serve, and how many tasks each executes; and whether their process is
-- known to be gone all the same.
select worker.id, beat.gone, worker.name, worker.handlers,
       (select count(*) from {task} as task where task.owner is not null and task.owner = worker.id) as holds
  from {beat} as beat {one_of worker.id beat.worker_id}
 where worker.tenant = :tenant
   and beat.beat_at >= {beat_now} - worker.lease and beat.beat_at <= {beat_now} + worker.lease
 order by worker.id;

-- name: note_progress
-- bound: 6 + 12 a row
-- Note how far tasks say they are, for sessions whose fence stands and turns that are still theirs.
with rows as ({rows id bigint, worker bigint, turn bigint, progress json}),
fence as (
    select worker_id from {fence} where slot = :slot and worker_id {any_of rows.worker}
     order by worker_id {for_share}
)
update {task} as task set progress = rows.progress, updated_at = {now}
  from rows
 where task.id = rows.id
   and (task.status = 'RUNNING' and task.owner = rows.worker and task.turn = rows.turn) is true
   and rows.worker in (select fence.worker_id from fence)
returning {own task}id, {own task}status as answer;

-- name: fork_run
-- bound: 26
-- Write a copy of a run without a key: it continues from steps that are copied. Its turns are counted from one,
-- because a run's records are read from its second turn on. Nothing comes back if it was written before.
insert into {task} (id, kind, queue_id, ready, priority, run_at, turn, max_attempts, input, tags,
                    cause, created_at, updated_at, limit_key, cost, headers, timeout)
select cast(:fork_id as bigint), task.kind, task.queue_id, {may_be_ready new}, task.priority, {now}, 1, task.max_attempts,
       task.input, task.tags, cast(:cause as text), {now}, {now}, task.limit_key, task.cost, task.headers, task.timeout
  from {task} as task where task.id = :id
on conflict (id) do nothing
returning id;

-- name: copy_steps
-- bound: 16
-- Copy the steps of a run's generation that have ended, or that the run itself has cancelled, and that it asked for before
-- a place.
insert into {step} (run_id, key, place, status, attempt, input, output, error, started_at, finished_at)
select cast(:fork_id as bigint), step.key, step.place, step.status, step.attempt, step.input, step.output, step.error,
       step.started_at, step.finished_at
  from {step} as step
 where step.run_id = :id and step.generation = :generation and step.place < :place
   and (step.status in ('SUCCESS', 'ERROR') or (step.status = 'CANCELLED' and step.error is not null))
returning run_id as id;

-- name: edit_steps
-- bound: 6 + 11 a row
-- Let steps of a run have returned something else.
with rows as ({rows run_id bigint, key text, output json})
update {step} as step set status = 'SUCCESS', output = rows.output, error = null
  from rows
 where step.run_id = rows.run_id and step.key = rows.key and step.run_id {any_of rows.run_id}
returning {own step}run_id as id;

-- name: delete_runs
-- bound: 6 + 24 a row
-- Delete runs softly, as `delete_task` does.
with rows as ({rows id bigint})
update {task} as task set deleted_at = {now}, delete_reason = :reason, ready = false, updated_at = {now},
       position = case when task.owner is null then null else task.position end,
       waits_for_previous = task.waits_for_previous and task.owner is not null
  from rows
 where task.id = rows.id and task.id {any_of rows} and task.deleted_at is null and (task.kind = 'RUN') is true
returning {own task}id, {own task}queue_id, {own task}status, {own task}finished_at, {own task}parent_id as parent_id,
          {own task}group_key, {own task}ends_children as ends_children;
