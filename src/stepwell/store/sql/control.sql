-- What people do with runs that are not finished.

-- name: lock_run
-- Read how a run stands and let nobody change it until this transaction ends.
select task.id, task.status, task.owner, task.finished_at, task.queue_id
  from {task} as task join {queue} as queue on queue.id = task.queue_id
 where task.id = :id and task.kind = 'run' and task.deleted_at is null and queue.tenant = :tenant
 {for_update_of_task};

-- name: cancel_tasks
-- Cancel tasks: at once those that no worker executes, and ask the workers of the others; what is finished stays so.
-- Decided in one statement over the row as it stands: a claim or a settle that came first is seen, one that comes later
-- waits for this row, and finds the request or the end.
with rows as ({rows id bigint})
update {task} as task
   set status = case when task.owner is null then 'CANCELLED' else task.status end,
       ready = false,
       cancel_requested_at = coalesce(task.cancel_requested_at, {now}),
       finished_at = case when task.owner is null then {now} else null end,
       error = cast(:error as {json}), last_error = :last_error, updated_at = {now}
  from rows
 where task.id = rows.id and task.id {any_of rows} and task.finished_at is null
returning {own task}id, {own task}status, {own task}queue_id;

-- name: unfinished_children
-- List the unfinished tasks that these tasks asked for.
with rows as ({rows id bigint})
select task.id from rows join {task} as task on task.parent_id = rows.id
 where task.parent_id is not null and task.finished_at is null;
