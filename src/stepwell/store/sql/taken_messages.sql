-- Messages taken by hand: RUNNING with no owner until `run_at`, when the sweep (`wake_due`) brings them back.
-- The turn alone is the fence: a later claim of the message has a higher one.

-- name: take [postgres]
-- bound: 12 + 18 a row
-- Hand out up to :limit ready tasks of the queues and priorities named, each for :visibility microseconds. None of an
-- ordered group: who takes it could not let the next go.
with rows as ({rows queue_id bigint, capacity bigint, least bigint, most bigint}),
picked as materialized (
    select walk.place
      from rows
     cross join lateral (
        select task.ctid as place from {task} as task
         where task.queue_id = rows.queue_id and task.ready and task.priority between rows.least and rows.most
           and task.position is null and {in_time task} is true
         order by task.priority desc, task.run_at, task.id
         limit rows.capacity
           for update skip locked
     ) as walk
     where (select not queue.paused and not queue.limited
                   and not exists (select 1 from {maintenance} as maintenance where maintenance.tenant = queue.tenant)
              from {queue} as queue where queue.id = rows.queue_id)
     limit :limit
)
update {task} as task
   set status = 'RUNNING', ready = false, owner = null, worker_id = null, turn = task.turn + 1,
       attempt = task.attempt + 1,
       scheduled_for = task.run_at, run_at = {now} + cast(:visibility as bigint), claimed_at = {now},
       started_at = coalesce(task.started_at, {now}), updated_at = {now}
 where task.ctid = any(array(select picked.place from picked))
returning task.id, task.queue_id, task.turn, task.attempt, task.max_attempts, task.priority,
          task.scheduled_for as run_at, task.key, task.input, task.parent_id, task.created_at;

-- name: take [sqlite]
-- scans maintenance: Turso; a row for each tenant in which nothing is claimed.
-- Hand out up to :limit ready tasks of one queue, each for :visibility microseconds; one queue a statement, as `claim`.
update {task} as task
   set status = 'RUNNING', ready = false, owner = null, worker_id = null, turn = task.turn + 1,
       attempt = task.attempt + 1,
       scheduled_for = task.run_at, run_at = {now} + :visibility, claimed_at = {now},
       started_at = coalesce(task.started_at, {now}), updated_at = {now}
 where task.id in (select walk.id from {task} as walk
                    where walk.queue_id = :queue_id and walk.ready and walk.priority between :least and :most
                      and walk.position is null and {in_time walk}
                    order by walk.priority desc, walk.run_at, walk.id
                    limit :limit)
   and exists (select 1 from {queue} where id = :queue_id and not paused and not limited
                  and tenant not in (select maintenance.tenant from {maintenance} as maintenance))
returning id, queue_id, turn, attempt, max_attempts, priority, scheduled_for as run_at, key, input, parent_id,
          created_at;

-- name: take_suspect
-- bound: 46
-- scans maintenance: Turso; a row for each tenant in which nothing is claimed.
-- Hand out one suspect of these queues, if no worker executes it alone. The consumer controls what runs beside it,
-- and a message that it does not acknowledge costs an attempt. So it is no longer a suspect. Of limited queues only the one
-- that was :admitted.
with picked as materialized (
    select task.id from {task} as task
     where task.losses > 0 and task.owner is null and task.status = 'PENDING' and not task.waits_for_previous
       and task.deleted_at is null and task.position is null
       and task.held_at is null and task.run_at <= {now} and task.queue_id {among queues}
       and exists (select 1 from {queue} as queue
                    where queue.id = task.queue_id and not queue.paused
                      and (not queue.limited or task.id = cast(:admitted as bigint))
                      and queue.tenant not in (select maintenance.tenant from {maintenance} as maintenance))
     order by task.losses, task.run_at
     limit 1
     {skip_locked}
)
update {task} as task
   set status = 'RUNNING', ready = false, owner = null, worker_id = null, turn = task.turn + 1,
       attempt = task.attempt + 1,
       losses = 0, lost_by = null,
       scheduled_for = task.run_at, run_at = {now} + cast(:visibility as bigint), claimed_at = {now},
       started_at = coalesce(task.started_at, {now}), updated_at = {now}
 where task.id {any_of picked}
returning {own task}id, {own task}queue_id, {own task}turn, {own task}attempt, {own task}max_attempts,
          {own task}priority, {own task}scheduled_for as run_at, {own task}key, {own task}input, {own task}parent_id,
          {own task}created_at;

-- name: close_taken
-- bound: 6 + 18 a row
-- Close what was taken by hand: archived (SUCCESS), or given back (PENDING) after a delay. What does not come back was
-- no longer the taker's, and is left as it is.
with rows as ({rows id bigint, turn bigint, status name, delay bigint, attempt_back bigint})
update {task} as task
   set status = case when task.cancel_requested_at is not null then 'CANCELLED' else rows.status end,
       ready = rows.status = 'PENDING' and rows.delay = 0
               and task.cancel_requested_at is null and {may_be_ready task},
       run_at = case when rows.status = 'PENDING' then {now} + rows.delay else task.scheduled_for end,
       attempt = task.attempt - rows.attempt_back,
       error = null, last_error = null,
       finished_at = case when rows.status = 'PENDING' and task.cancel_requested_at is null then null else {now} end,
       updated_at = {now}
  from rows
 where task.id = rows.id and task.id {any_of rows} and task.status = 'RUNNING' and task.owner is null
   and task.turn = rows.turn
returning {own task}id, {own task}status as answer, {own task}queue_id, {own task}updated_at / 60000000 as minute,
          case when {own task}status = 'SUCCESS' then 1 else 0 end as succeeded,
          0 as failed,
          case when {own task}status = 'PENDING' then 1 else 0 end as retried,
          case when {own task}status = 'PENDING' then null else {own task}claimed_at - {own task}run_at end as wait_us,
          {own task}updated_at - {own task}claimed_at as run_us, {own task}parent_id as parent_id;

-- name: archive_waiting
-- bound: 36
-- Archive a message that is not held, for an operator; the turn proves that it was not claimed since it was read.
update {task} set status = 'SUCCESS', ready = false, error = null, last_error = null, finished_at = {now},
       updated_at = {now}
 where id = :id and turn = :turn and kind = 'MESSAGE' and status = 'PENDING' and owner is null and deleted_at is null
   and (select queue.tenant from {queue} as queue where queue.id = {task}.queue_id) = :tenant
returning id, status, parent_id;

-- name: extend_taken
-- bound: 6 + 15 a row
-- Keep what was taken by hand for this long from now; not longer than before, if that is shorter.
with rows as ({rows id bigint, turn bigint, visibility bigint})
update {task} as task
   set run_at = {now} + rows.visibility, updated_at = {now}
  from rows
 where task.id = rows.id and task.id {any_of rows} and task.status = 'RUNNING' and task.owner is null
   and task.turn = rows.turn
returning {own task}id, {own task}status as answer;

-- name: delete_taken
-- bound: 6 + 3 a row
-- Remove what was taken by hand.
with rows as ({rows id bigint, turn bigint})
delete from {task}
 where id {any_of rows} and status = 'RUNNING' and owner is null
   and turn = (select rows.turn from rows where rows.id = {task}.id)
returning id, 'DELETED' as answer, parent_id;
