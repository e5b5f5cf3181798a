-- The audit: what happened to tasks, each row in the transaction that did it. Nothing changes one; retention removes it.

-- rows new_note: id bigint, answer name, nth bigint, what name, worker bigint, turn bigint, attempt bigint, detail json

-- name: note [postgres]
-- bound: 6 + 26 a row
-- Write audit rows for tasks that this transaction has changed, after the earlier rows of the same tasks. The
-- transaction holds the lock of each task, so later rows get a higher place. A failed step does not lock its run,
-- only the fence of its session: its row comes after the claim and before the rows of a lost session, but it may come
-- before or after an operator's change at the same moment.
-- A row that belongs to an answer is written once a turn: a step may be recorded, or a cancel requested, a second
-- time if the first reply was lost.
with rows as ({rows new_note})
insert into {audit} (task_id, place, what, worker_id, turn, attempt, detail, recorded_at)
select rows.id, nextval('{audit_place}'), rows.what, rows.worker, coalesce(rows.turn, task.turn),
       coalesce(rows.attempt, task.attempt), rows.detail, {now}
  from rows left join {task} as task on task.id = rows.id and task.id {any_of rows}
 where rows.answer is null
    or (select same.task_id from {audit} as same
         where same.task_id = rows.id and same.what = rows.what
           and same.turn = coalesce(rows.turn, task.turn)
           and same.attempt = coalesce(rows.attempt, task.attempt)
           and coalesce(cast(same.detail as text), '') = coalesce(cast(rows.detail as text), '')
         limit 1) is null
 order by rows.id, rows.nth
returning task_id as id, '' as answer;

-- name: note [sqlite]
-- Note what happened to tasks that this transaction has changed, behind what was noted of them before: there is one
-- writer, so what is there is all there is. Said row by row, the places of one task may have gaps. What
-- is noted for an answer is noted once a turn, as there.
with rows as ({rows new_note})
insert into {audit} (task_id, place, what, worker_id, turn, attempt, detail, recorded_at)
select rows.id,
       rows.nth + coalesce((select last.place from {audit} as last where last.task_id = rows.id
                             order by last.place desc limit 1), 0),
       rows.what, rows.worker, coalesce(rows.turn, task.turn), coalesce(rows.attempt, task.attempt), rows.detail, {now}
  from rows left join {task} as task on task.id = rows.id
 where rows.answer is null
    or (select same.task_id from {audit} as same
         where same.task_id = rows.id and same.what = rows.what
           and same.turn = coalesce(rows.turn, task.turn)
           and same.attempt = coalesce(rows.attempt, task.attempt)
           and coalesce(same.detail, '') = coalesce(rows.detail, '')
         limit 1) is null
returning task_id as id, '' as answer;

-- name: history
-- bound: 16
-- List what was noted of a task, deleted or not, in the order in which it happened: one row without anything if it was
-- nothing, and none if there is no such task.
select audit.what, audit.worker_id, audit.turn, audit.attempt, audit.detail, audit.recorded_at
  from {task} as task
  join {queue} as queue on queue.id = task.queue_id
  left join {audit} as audit on audit.task_id = task.id
 where task.id = :id and queue.tenant = :tenant
 order by audit.place;
