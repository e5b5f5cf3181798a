-- Schedules: which are due, who fires them, and what became of their ticks. Who writes a run of a schedule holds the
-- schedule's row until that is committed, so a later statement under the same lock sees every unfinished run of it.

-- name: due_schedules
-- bound: 12 + 4 a row
-- Up to :limit schedules with a tick that has come, or that waits for the run before it; the first ones first.
select schedule.id, schedule.next_at, schedule.buffered_at, schedule.version, schedule.name,
       {text_of schedule.plan} as plan, {now} as now
  from {schedule} as schedule
 where schedule.tenant = :tenant and schedule.paused_at is null and schedule.next_at is not null
   and schedule.next_at <= {now}
 order by schedule.next_at
 limit :limit;

-- name: buffered_schedules
-- bound: 12 + 4 a row
-- scans schedule: the first entries of the index, and no more: what waits is in it.
-- Up to :limit schedules with a tick that waits for the run before it.
select schedule.id, schedule.buffered_at, schedule.version, schedule.name, {text_of schedule.plan} as plan,
       {now} as now
  from {schedule} as schedule
 where schedule.tenant = :tenant and schedule.paused_at is null and schedule.buffered_at is not null
 order by schedule.buffered_at
 limit :limit;

-- name: take_tick
-- bound: 10
-- Lock a schedule if its next tick is still the one that was seen, under the plan that was seen; if another worker is at
-- it, nothing comes back.
select schedule.id, schedule.queue_id, schedule.buffered_at, schedule.last_task_id, {now} as now
  from {schedule} as schedule
 where schedule.id = :id and schedule.next_at = :seen and schedule.version = :version and schedule.paused_at is null
 {skip_locked};

-- name: take_buffered
-- bound: 10
-- Lock a schedule if the tick that was seen still waits for the run before it.
select schedule.id, schedule.queue_id, schedule.next_at, schedule.last_task_id, {now} as now
  from {schedule} as schedule
 where schedule.id = :id and schedule.buffered_at = :seen and schedule.version = :version
   and schedule.paused_at is null
 {skip_locked};

-- name: lock_schedule
-- bound: 10
-- Lock a schedule, and return all that is known of it.
select schedule.id, schedule.name, schedule.queue_id, {text_of schedule.plan} as plan,
       {text_of schedule.declared} as declared, {text_of schedule.edited} as edited,
       {text_of schedule.hashes} as hashes, schedule.next_at, schedule.buffered_at, schedule.paused_at,
       schedule.pause_reason, schedule.retired_at, schedule.removed_at, schedule.version, {now} as now
  from {schedule} as schedule
 where schedule.tenant = :tenant and schedule.name = :name
 {for_update};

-- name: unfinished_of
-- bound: 10 + 3 a row
-- The runs of a schedule that are not finished, at most :most.
select task.id, task.status from {task} as task
 where task.schedule_id = :id and task.schedule_id is not null and task.finished_at is null
   and (task.deleted_at is null) is true
 limit :most;

-- name: last_status
-- bound: 8
-- How the last run of a schedule stands.
select task.status from {task} as task where task.id = :id;

-- name: mark_scheduled
-- bound: 6 + 14 a row
-- Say of new runs which schedule has triggered them.
with rows as ({rows id bigint})
update {task} as task set schedule_id = :schedule_id where task.id {any_of rows} returning {own task}id;

-- name: add_ticks
-- bound: 6 + 10 a row
-- Note what became of ticks. What had no run may get one; a tick that has one keeps it.
with rows as ({rows due_at bigint, kind name, outcome name, count bigint, task_id bigint})
insert into {tick} as tick (schedule_id, due_at, kind, outcome, count, task_id, decided_at)
select :schedule_id, rows.due_at, rows.kind, rows.outcome, rows.count, rows.task_id, {now} from rows where true
on conflict (schedule_id, due_at, kind) do update
   set outcome = excluded.outcome, task_id = excluded.task_id, decided_at = excluded.decided_at
 where tick.task_id is null
returning schedule_id as id, '' as answer;

-- name: move_schedule
-- bound: 16
-- Say which tick comes next, which one waits, and what became of the last.
update {schedule} as schedule
   set next_at = :next_at, buffered_at = :buffered_at, last_due_at = :last_due_at, last_outcome = :last_outcome,
       last_task_id = coalesce(cast(:last_task_id as bigint), {own schedule}last_task_id), updated_at = {now}
 where schedule.id = :id
returning {own schedule}id;

-- name: add_schedule
-- bound: 20
-- Make a schedule; nothing comes back if there is one of this name.
insert into {schedule} (tenant, name, queue_id, plan, declared, hashes, next_at, created_at, updated_at)
values (:tenant, :name, :queue_id, {json_of plan}, {json_of declared}, {json_of hashes}, :next_at, {now}, {now})
on conflict (tenant, name) do nothing
returning id;

-- name: change_schedule
-- bound: 20
-- Write what is known of a schedule anew. A tick that was seen under the plan before cannot be taken any more.
update {schedule} as schedule
   set queue_id = :queue_id, plan = {json_of plan}, declared = {json_of declared}, edited = {json_of edited},
       hashes = {json_of hashes}, next_at = :next_at, buffered_at = :buffered_at, paused_at = :paused_at,
       pause_reason = :reason, retired_at = :retired_at, removed_at = :removed_at,
       version = {own schedule}version + 1, updated_at = {now}
 where schedule.id = :id
returning {own schedule}id;

-- name: stop_schedule
-- bound: 16
-- Pause a schedule, with the reason.
update {schedule} as schedule set paused_at = {now}, pause_reason = :reason, version = {own schedule}version + 1
 where schedule.id = :id and schedule.paused_at is null
returning {own schedule}id;

-- name: schedules
-- bound: 12 + 6 a row
-- List the schedules of a tenant by name, or the one that is named.
select schedule.id, schedule.name, queue.name as workflow, {text_of schedule.plan} as plan,
       {text_of schedule.declared} as declared, {text_of schedule.edited} as edited, schedule.next_at,
       schedule.buffered_at, schedule.paused_at, schedule.pause_reason, schedule.last_due_at, schedule.last_outcome,
       schedule.last_task_id, schedule.created_at, schedule.updated_at, {now} as now
  from {schedule} as schedule {one_of queue.id schedule.queue_id}
 where schedule.tenant = :tenant and schedule.name > :after and schedule.removed_at is null
   and (cast(:name as text) is null or schedule.name = :name)
 order by schedule.name
 limit :limit;

-- name: ticks
-- bound: 10 + 3 a row
-- What became of the ticks of a schedule, the newest first.
select tick.due_at, tick.kind, tick.outcome, tick.count, tick.task_id, tick.decided_at
  from {tick} as tick
 where tick.schedule_id = :id and (tick.due_at < :before or (tick.due_at = :before and tick.kind < :kind))
 order by tick.due_at desc, tick.kind desc
 limit :limit;

-- name: ticks_with_runs
-- bound: 12 + 4 a row
-- The ticks of a span that have a run.
select tick.due_at from {tick} as tick
 where tick.schedule_id = :id and tick.due_at >= :since and tick.due_at <= :until and tick.kind = 'tick'
   and (tick.task_id is not null) is true;

-- name: declared_schedules
-- unbounded: it walks the schedules of the tenant, also those that a verb has made.
-- scans schedule: all that code declares are asked for.
-- The schedules that code declares and that fire, with their workflows.
select schedule.name, queue.name as workflow
  from {schedule} as schedule {one_of queue.id schedule.queue_id}
 where schedule.tenant = :tenant and schedule.declared is not null and schedule.removed_at is null
   and schedule.paused_at is null
 order by schedule.name;

-- name: remove_ticks
-- bound: 12 + 8 a row
-- Remove up to :limit ticks that were decided before the moment given.
with old as materialized (
    select tick.{row_id} as id from {tick} as tick
     where tick.decided_at < :before
     order by tick.decided_at
     limit :limit
     {skip_locked}
)
delete from {tick} where {row_id} {any_of old} returning schedule_id as id;
