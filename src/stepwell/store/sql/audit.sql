-- The audit: what happened to tasks, each row in the transaction that did it. Nothing changes one; retention removes it.

-- rows new_note: id bigint, answer name, nth bigint, what name, worker bigint, turn bigint, attempt bigint, detail json,
--     actor text, tenant text, seal bigint

-- name: note [postgres]
-- bound: 6 + 26 a row
-- Write audit rows for tasks that this transaction has changed, after the earlier rows of the same tasks. The
-- transaction holds the lock of each task, so later rows get a higher place. A failed step does not lock its run,
-- only the fence of its session: its row comes after the claim and before the rows of a lost session, but it may come
-- before or after an operator's change at the same moment.
-- A row that belongs to an answer is written once a turn: a step may be recorded, or a cancel requested, a second
-- time if the first reply was lost.
with rows as ({rows new_note})
insert into {audit} (task_id, place, what, worker_id, turn, attempt, detail, actor, tenant, seal, recorded_at)
select rows.id, nextval('{audit_place}'), rows.what, rows.worker, coalesce(rows.turn, task.turn),
       coalesce(rows.attempt, task.attempt), rows.detail, rows.actor, rows.tenant, rows.seal, {now}
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
insert into {audit} (task_id, place, what, worker_id, turn, attempt, detail, actor, tenant, seal, recorded_at)
select rows.id,
       rows.nth + coalesce((select last.place from {audit} as last where last.task_id = rows.id
                             order by last.place desc limit 1), 0),
       rows.what, rows.worker, coalesce(rows.turn, task.turn), coalesce(rows.attempt, task.attempt), rows.detail,
       rows.actor, rows.tenant, rows.seal, {now}
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
select audit.what, audit.worker_id, audit.turn, audit.attempt, audit.detail, audit.actor, audit.recorded_at
  from {task} as task
  join {queue} as queue on queue.id = task.queue_id
  left join {audit} as audit on audit.task_id = task.id
 where task.id = :id and queue.tenant = :tenant
 order by audit.place;

-- name: last_seal
-- bound: 4
-- scans audit_seal: from its end, and no more than the last row.
-- The newest seal, which the next one goes on from.
select seal.id, seal.hash from {audit_seal} as seal order by seal.id desc limit 1;

-- name: unsealed_notes
-- bound: 8 + 3 a row
-- Up to :limit notes that are to be sealed. What is being written now is not seen, and is sealed the next time.
select audit.task_id, audit.place, audit.what, audit.worker_id, audit.turn, audit.attempt,
       {text_of audit.detail} as detail, audit.actor, audit.tenant, audit.recorded_at
  from {audit} as audit
 where audit.seal = 0 and audit.seal is not null
 order by audit.task_id, audit.place
 limit :limit;

-- name: add_seal
-- bound: 8
-- Write a seal. Of two sessions that seal at the same moment one is refused: both would have the same number.
insert into {audit_seal} (id, notes, hash, previous, first_at, last_at, sealed_at)
values (:id, :count, :hash, :previous, :first_at, :last_at, {now})
returning id;

-- name: put_under_seal
-- bound: 20 + 16 a row
-- Name the seal that these notes stand under, in the transaction that writes it.
with rows as ({rows id bigint, place bigint})
update {audit} as audit set seal = :seal
  from rows
 where audit.task_id = rows.id and audit.task_id {any_of rows} and audit.place = rows.place and (audit.seal = 0) is true
returning task_id as id;

-- name: seals_after
-- bound: 8 + 2 a row
-- Up to :limit seals after the one given, in their order.
select seal.id, seal.notes, seal.hash, seal.previous, seal.first_at, seal.last_at, seal.sealed_at, seal.dropped_at
  from {audit_seal} as seal
 where seal.id > :after
 order by seal.id
 limit :limit;

-- name: notes_under_seal
-- bound: 8 + 3 a row
-- The notes that stand under a seal, in the order in which they were sealed.
select audit.task_id, audit.place, audit.what, audit.worker_id, audit.turn, audit.attempt,
       {text_of audit.detail} as detail, audit.actor, audit.tenant, audit.recorded_at
  from {audit} as audit
 where audit.seal = :seal and audit.seal is not null
 order by audit.task_id, audit.place;

-- name: notes_beyond_seals
-- bound: 8
-- A note that stands under a seal which is not there, if there is one.
select audit.seal from {audit} as audit where audit.seal > :seal and audit.seal is not null order by audit.seal limit 1;

-- name: unsealed_count
-- bound: 8 + 1 a row
-- How many notes wait to be sealed, counted up to :limit.
select count(*) as notes
  from (select audit.seal from {audit} as audit where audit.seal = 0 and audit.seal is not null limit :limit) as waiting;

-- name: old_seals
-- bound: 8 + 2 a row
-- scans audit_seal: from the oldest one whose notes are there, and no more than :limit of them.
-- Up to :limit seals, the oldest first, whose notes are there and were all recorded before the moment given.
select oldest.id from (
    select seal.id, seal.last_at from {audit_seal} as seal where seal.dropped_at is null order by seal.id limit :limit
) as oldest
 where oldest.last_at < :before
 order by oldest.id;

-- name: drop_seal
-- bound: 8
-- Note that the notes under a seal are removed; nothing if another session has removed them.
update {audit_seal} set dropped_at = {now}
 where id = :seal and dropped_at is null
returning id, notes, last_at;

-- name: remove_notes_under_seal
-- bound: 8 + 6 a row
-- Remove the notes under a seal; in the transaction that says so in the seal.
delete from {audit} where seal = :seal and seal is not null returning task_id as id;
