-- Runs that are held for their code: due at a time that never comes (`:never`), by which the index of due tasks finds
-- them, until an operator accepts them or other code releases them.

-- name: any_held
-- bound: 6 + 1 a row
-- Say whether a run of these queues is held for its code.
with rows as ({rows queue_id bigint})
select 1 as found from {task} as task
 where not task.ready and task.owner is null and task.deleted_at is null and task.losses = 0 and task.held_at is null
   and not task.waits_for_previous and task.status in ('PENDING', 'PAUSED', 'RUNNING') and task.run_at = :never
   and (task.queue_id {any_of rows.queue_id}) is true
 limit 1;

-- name: let_go_held
-- bound: 12 + 24 a row
-- Let up to :limit runs of these queues go on that are held for other code than this: none that this one has held, by its
-- mark among their steps.
with rows as ({rows queue_id bigint}),
held as materialized (
    select task.id from {task} as task
     where not task.ready and task.owner is null and task.deleted_at is null and task.losses = 0 and task.held_at is null
       and not task.waits_for_previous and task.status in ('PENDING', 'PAUSED', 'RUNNING') and task.run_at = :never
       and (task.queue_id {any_of rows.queue_id}) is true
       and (select 1 from {step} as mark where mark.run_id = task.id
               and mark.generation = task.generation and mark.key = :mark limit 1) is null
     limit :limit
     {skip_locked}
)
update {task} as task set status = 'PENDING', ready = {may_be_ready task}, run_at = {now}, updated_at = {now}
 where task.id {any_of held}
returning {own task}id, {own task}queue_id;

-- name: hold_of
-- bound: 10
-- Say what a run is held for, if that is its code; its row is locked.
select task.id, task.queue_id, task.error from {task} as task
 where task.id = :id and (task.status = 'PAUSED' and task.run_at = :never and task.finished_at is null) is true;

-- name: mark_run
-- bound: 6 + 9 a row
-- Write marks among the steps of a run; one that is there stays. They have no place: no step has asked for them.
with rows as ({rows run_id bigint, generation bigint, key text})
insert into {step} (run_id, generation, key, place, status, started_at, finished_at)
select rows.run_id, rows.generation, rows.key, 0, 'SUCCESS', {now}, {now} from rows where true
on conflict do nothing
returning run_id as id;

-- name: let_go_accepted
-- bound: 22
-- Let a run go on that was held for its code; one that an operator holds back, too, waits on for that.
update {task} as task set status = case when held_at is null then 'PENDING' else status end,
       ready = {may_be_ready task}, run_at = {now}, error = null, last_error = null, updated_at = {now}
 where id = :id and (status = 'PAUSED' and run_at = :never and finished_at is null) is true
returning id, queue_id;
