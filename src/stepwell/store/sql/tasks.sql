-- The statements of a task's life, in the order it lives it: add, claim, settle, come back.
-- A statement that can share a flush with others returns exactly (id, answer) first.

-- rows new_task: id bigint, kind name, queue_id bigint, priority bigint, delay bigint, run_at bigint, max_attempts bigint,
--     key text, key_scope name, payload_hash name, input json, tags json, parent_id bigint, inside bigint,
--     limit_key text, cost bigint, headers json
-- rows waiting_task: id bigint, asked bigint, queue_id bigint, priority bigint, delay bigint, run_at bigint,
--     max_attempts bigint, payload_hash name, input json, tags json, limit_key text, cost bigint, headers json,
--     latest bigint,
--     expires_after bigint, expires_at bigint, keeps_result bigint, timeout bigint

-- name: reserve_blocks [postgres]
-- bound: 12 + 9 a row
-- Hand out :count blocks of ids to this process and to no other, ever.
select nextval('{block}') as block from generate_series(1, cast(:count as int));

-- name: reserve_blocks [sqlite]
-- Hand out :count blocks of ids to this process and to no other, ever; the highest comes back.
update {block} set taken = taken + :count where name = 'task' returning taken as block;

-- name: add_tasks
-- bound: 6 + 20 a row
-- Write new tasks; they may be claimed from `run_at` on, at once if that is not in the future.
-- A row that cannot be written fails the statement. A row for a queue that is gone is not written, nor one from
-- outside for a queue that is being drained; what pending work leads to (`inside`) is accepted. The queue is locked,
-- so that a transaction that deletes or drains it waits for this one. That does once for a statement what a foreign
-- key would do for every row, which would be a third of the cost of adding a task.
-- Nor is one for a queue whose tasks stand in order: `add_in_order` writes it, at the end of the group of its key.
with rows as ({rows new_task}),
taking as materialized (
    select queue.id, queue.draining, queue.limited, queue.key_path, queue.cost_path from {queue} as queue
     where queue.id {any_of rows.queue_id} and (queue.ordered is null) is true {for_key_share}
)
insert into {task} (id, kind, queue_id, ready, priority, run_at, max_attempts, key, key_scope, payload_hash, input, tags,
                    parent_id, created_at, updated_at, limit_key, cost, headers)
select rows.id, rows.kind, rows.queue_id, coalesce(rows.run_at, {now} + rows.delay) <= {now} and {may_be_ready new},
       rows.priority,
       coalesce(rows.run_at, {now} + rows.delay), rows.max_attempts, rows.key, rows.key_scope, rows.payload_hash,
       rows.input, rows.tags, rows.parent_id, {now}, {now}, {limit_key}, {cost}, rows.headers
  from rows
 where rows.queue_id in (select taking.id from taking where not taking.draining)
    or rows.inside = 1 and rows.queue_id in (select taking.id from taking)
returning id, status as answer;

-- name: add_tasks_once
-- bound: 6 + 27 a row
-- Write those of the tasks whose id and key are not there yet; what does not come back was there before, or its queue is
-- being drained.
-- Used for keys, and to repeat an `add_tasks` whose reply was lost. Twice the cost of `add_tasks` a row.
with rows as ({rows new_task}),
taking as materialized (
    select queue.id, queue.draining, queue.limited, queue.key_path, queue.cost_path from {queue} as queue
     where queue.id {any_of rows.queue_id} and (queue.ordered is null) is true {for_key_share}
)
insert into {task} (id, kind, queue_id, ready, priority, run_at, max_attempts, key, key_scope, payload_hash, input, tags,
                    parent_id, created_at, updated_at, limit_key, cost, headers)
select rows.id, rows.kind, rows.queue_id, coalesce(rows.run_at, {now} + rows.delay) <= {now} and {may_be_ready new},
       rows.priority,
       coalesce(rows.run_at, {now} + rows.delay), rows.max_attempts, rows.key, rows.key_scope, rows.payload_hash,
       rows.input, rows.tags, rows.parent_id, {now}, {now}, {limit_key}, {cost}, rows.headers
  from rows
 where rows.queue_id in (select taking.id from taking where not taking.draining)
    or rows.inside = 1 and rows.queue_id in (select taking.id from taking)
on conflict do nothing
returning id, status as answer;

-- name: add_with_conditions
-- bound: 6 + 29 a row
-- As `add_tasks_once`, of tasks of which more is said: a key that is free as soon as the task has begun, until when it is
-- worth beginning, that its result is kept, how long it may take, what the end of its parent means for it.
with rows as ({rows id bigint, kind name, queue_id bigint, priority bigint, delay bigint, run_at bigint,
                    max_attempts bigint, key text, key_scope name, payload_hash name, input json, tags json,
                    parent_id bigint, inside bigint, limit_key text, cost bigint, headers json, until_begun bigint,
                    expires_after bigint, expires_at bigint, keeps_result bigint, timeout bigint, deadline_at bigint,
                    on_parent_end name}),
taking as materialized (
    select queue.id, queue.draining, queue.limited, queue.key_path, queue.cost_path from {queue} as queue
     where queue.id {any_of rows.queue_id} and (queue.ordered is null) is true {for_key_share}
)
insert into {task} (id, kind, queue_id, ready, priority, run_at, max_attempts, key, key_scope, payload_hash, input, tags,
                    parent_id, created_at, updated_at, limit_key, cost, headers, key_until_begun, expires_at,
                    keeps_result, timeout, deadline_at, on_parent_end)
select rows.id, rows.kind, rows.queue_id, coalesce(rows.run_at, {now} + rows.delay) <= {now} and {may_be_ready new},
       rows.priority,
       coalesce(rows.run_at, {now} + rows.delay), rows.max_attempts, rows.key, rows.key_scope, rows.payload_hash,
       rows.input, rows.tags, rows.parent_id, {now}, {now}, {limit_key}, {cost}, rows.headers, rows.until_begun = 1,
       coalesce(rows.expires_at, {now} + rows.expires_after), rows.keeps_result = 1, rows.timeout, rows.deadline_at,
       rows.on_parent_end
  from rows
 where rows.queue_id in (select taking.id from taking where not taking.draining)
    or rows.inside = 1 and rows.queue_id in (select taking.id from taking)
on conflict do nothing
returning id, status as answer;

-- name: added_before
-- bound: 6 + 14 a row
-- Which of these numbers an earlier try whose reply was lost has used: for a task of its own, or to replace one.
with rows as ({rows id bigint}),
used as materialized (
    select rows.id as asked, (select task.id from {task} as task where task.id = rows.id) as id from rows
    union all
    select rows.id as asked,
           (select task.id from {task} as task
             where task.replaced_by = rows.id and task.replaced_by is not null limit 1) as id
      from rows
)
select used.asked, used.id from used where used.id is not null;

-- name: lock_waiting
-- bound: 6 + 17 a row
-- Lock the tasks that have these keys and have not begun: from here on none of them is claimed before this transaction ends.
-- One that was claimed meanwhile does not come back.
with rows as ({rows id bigint, queue_id bigint, key text}),
there as materialized (
    select rows.id as asked,
           (select task.id from {task} as task
             where task.queue_id = rows.queue_id and task.key = rows.key and {has_key task} limit 1) as id
      from rows
)
select there.asked, task.id from there join {task} as task on task.id = there.id and task.id {any_of there}
 where (task.turn = 0 and task.finished_at is null) is true
 order by task.id
 {for_update_of_task};

-- name: replace_waiting
-- bound: 6 + 29 a row
-- Let these tasks, which `lock_waiting` has locked, be what was added last: its input and its options. One that an operator
-- holds back stays so, and one in order keeps its place.
with rows as ({rows waiting_task}),
taking as materialized (
    select queue.id, queue.limited, queue.key_path, queue.cost_path from {queue} as queue
     where queue.id {any_of rows.queue_id} {for_key_share}
)
update {task} as task
   set input = rows.input, payload_hash = rows.payload_hash, priority = rows.priority, tags = rows.tags,
       max_attempts = rows.max_attempts,
       limit_key = case when task.position is null then {limit_key} else task.limit_key end, cost = {cost}, headers = rows.headers, run_at = {due_again},
       ready = {due_again} <= {now} and task.status = 'PENDING' and {may_be_ready task},
       expires_at = coalesce(rows.expires_at, {now} + rows.expires_after), keeps_result = rows.keeps_result = 1,
       timeout = rows.timeout,
       replaced_by = rows.asked, updated_at = {now}
  from rows
 where task.id = rows.id and task.id {any_of rows}
   and (task.turn = 0 and task.finished_at is null) is true
returning {own task}id, {own task}status as answer;

-- name: hand_over
-- bound: 9 + 15 a row
-- scans maintenance: Turso; a row for each tenant in which nothing is claimed.
-- Write new tasks that are due at once as those of sessions that have a free place for them: as if each had been added
-- and claimed. For a session whose fence is down, or a queue that is paused or limited, it is added like any other.
with rows as ({rows id bigint, kind name, queue_id bigint, priority bigint, delay bigint, run_at bigint,
                    max_attempts bigint, key text, key_scope name, payload_hash name, input json, tags json,
                    parent_id bigint, inside bigint, limit_key text, cost bigint, headers json, worker bigint}),
taking as materialized (
    select queue.id, queue.limited, queue.key_path, queue.cost_path,
           queue.paused or queue.limited or queue.tenant in (select maintenance.tenant from {maintenance} as maintenance)
                     as paused
      from {queue} as queue
     where queue.id {any_of rows.queue_id} and not queue.draining and (queue.ordered is null) is true {for_key_share}
),
fence as materialized (
    select worker_id from {fence} where slot = :slot and worker_id {any_of rows.worker}
     order by worker_id {for_share}
),
fit as materialized (
    select rows.id, case when taking.paused then null else fence.worker_id end as worker, {now} as now
      from rows join taking on taking.id = rows.queue_id left join fence on fence.worker_id = rows.worker
)
insert into {task} (id, kind, queue_id, status, ready, priority, run_at, owner, worker_id, turn, attempt, max_attempts,
                    key_scope, input, tags, parent_id, created_at, updated_at, claimed_at, started_at, limit_key, cost, headers)
select rows.id, rows.kind, rows.queue_id, case when fit.worker is null then 'PENDING' else 'RUNNING' end,
       fit.worker is null and {may_be_ready new}, rows.priority, fit.now, fit.worker, fit.worker,
       case when fit.worker is null then 0 else 1 end,
       case when fit.worker is null then 0 else 1 end, rows.max_attempts, rows.key_scope, rows.input, rows.tags,
       rows.parent_id, fit.now, fit.now, case when fit.worker is null then null else fit.now end,
       case when fit.worker is null then null else fit.now end, {limit_key}, {cost}, rows.headers
  from rows join fit on fit.id = rows.id
returning id, status as answer, claimed_at as number;

-- name: open_queue
-- bound: 8
-- Say the time, and lock a queue that takes tasks so that it goes on doing so until they are there. Not a limited one: its
-- tasks need keys.
select queue.id, {now} as now from {queue} as queue
 where queue.id = :queue_id and not queue.draining and not queue.limited {for_key_share};

-- name: load_task
-- bound: 6 + 13 a row
-- Write tasks as they are, one of many: the fastest way there is, on Postgres COPY with the columns of this row set.
insert into {task} (id, kind, queue_id, ready, priority, run_at, max_attempts, key_scope, tags, headers, created_at,
                    updated_at, input)
{rows id bigint, kind name, queue_id bigint, ready bool, priority bigint, run_at bigint, max_attempts bigint,
      key_scope name, tags json, headers json, created_at bigint, updated_at bigint, input json};

-- name: find_added
-- bound: 6 + 11 a row
-- Say which task stands where each of these was to be written: itself (our own write, its reply lost) or an
-- earlier one with the key. Run after `add_tasks_once` and in a new snapshot, or a rival's row is not seen.
with rows as ({rows id bigint, queue_id bigint, key text}),
there as materialized (
    select rows.id as asked, rows.id from rows
    union
    select rows.id as asked,
           (select task.id from {task} as task
             where task.queue_id = rows.queue_id and task.key = rows.key and {has_key task}
             limit 1) as id
      from rows
)
select there.asked, task.id, task.payload_hash, task.turn = 0 and task.finished_at is null as waits
  from there {one_of task.id there.id};

-- name: claim [postgres]
-- bound: 12 + 18 a row
-- Take up to :limit ready tasks of the queues and priorities named, an index walk for each in the order given, for a
-- session whose fence stands. The fence is locked, so no task can be taken for a session that is being declared dead.
-- A picked row is locked, so its place in the table identifies it as surely as its id, without another lookup. A row
-- that was changed after this statement's snapshot is at another place, and is left to the next claim.
-- The pause is checked by a sub-select: given a join, the planner would choose the order of the queues.
with rows as ({rows queue_id bigint, capacity bigint, least bigint, most bigint}),
fence as (
    select worker_id from {fence} where worker_id = :worker and slot = :slot for share
),
picked as materialized (
    select walk.place
      from fence
     cross join rows
     cross join lateral (
        select task.ctid as place from {task} as task
         where task.queue_id = rows.queue_id and task.ready and task.priority between rows.least and rows.most
           and {in_time task} is true
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
   set status = 'RUNNING', ready = false, owner = :worker, worker_id = :worker, turn = task.turn + 1,
       attempt = task.attempt + 1, claimed_at = {now}, started_at = coalesce(task.started_at, {now}), updated_at = {now}
 where task.ctid = any(array(select picked.place from picked))
returning task.id, task.kind, task.queue_id, task.turn, task.attempt, task.max_attempts, task.priority, task.run_at,
          task.key, task.input, task.wakes, task.parent_id, task.suspect,
          task.created_at, task.claimed_at, task.started_at, task.cleanup_until, task.generation, task.group_key,
          task.keeps_result, task.headers, task.timeout, task.deadline_at, task.ends_children;

-- name: claim_above [postgres]
-- bound: 12 + 22 a row
-- The claim for a backlog: walk each (queue, priority) from the last place claimed there, because with an old
-- snapshot held open anywhere the dead index entries before it stay and every claim would step over them all.
-- Misses what was added behind that place; the plain claim, once a second, finds it.
with rows as ({rows queue_id bigint, capacity bigint, priority bigint, run_at bigint, id bigint}),
fence as (
    select worker_id from {fence} where worker_id = :worker and slot = :slot for share
),
picked as materialized (
    select walk.place
      from fence
     cross join rows
     cross join lateral (
        select task.ctid as place from {task} as task
         where task.queue_id = rows.queue_id and task.ready
           and task.priority = rows.priority and (task.run_at, task.id) > (rows.run_at, rows.id)
           and {in_time task} is true
         order by task.run_at, task.id
         limit rows.capacity
           for update skip locked
     ) as walk
     where (select not queue.paused and not queue.limited
                   and not exists (select 1 from {maintenance} as maintenance where maintenance.tenant = queue.tenant)
              from {queue} as queue where queue.id = rows.queue_id)
     limit :limit
)
update {task} as task
   set status = 'RUNNING', ready = false, owner = :worker, worker_id = :worker, turn = task.turn + 1,
       attempt = task.attempt + 1, claimed_at = {now}, started_at = coalesce(task.started_at, {now}), updated_at = {now}
 where task.ctid = any(array(select picked.place from picked))
returning task.id, task.kind, task.queue_id, task.turn, task.attempt, task.max_attempts, task.priority, task.run_at,
          task.key, task.input, task.wakes, task.parent_id, task.suspect,
          task.created_at, task.claimed_at, task.started_at, task.cleanup_until, task.generation, task.group_key,
          task.keeps_result, task.headers, task.timeout, task.deadline_at, task.ends_children;

-- name: claim [sqlite]
-- scans maintenance: Turso; a row for each tenant in which nothing is claimed.
-- Take up to :limit ready tasks of one queue and some priorities for a session whose fence stands. One queue a statement, several
-- in a transaction: there is no lateral here, and `queue_id in (...)` would sort the whole backlog.
update {task} as task
   set status = 'RUNNING', ready = false, owner = :worker, worker_id = :worker, turn = task.turn + 1,
       attempt = task.attempt + 1, claimed_at = {now}, started_at = coalesce(task.started_at, {now}), updated_at = {now}
 where task.id in (select walk.id from {task} as walk
                    where walk.queue_id = :queue_id and walk.ready and walk.priority between :least and :most
                      and {in_time walk}
                    order by walk.priority desc, walk.run_at, walk.id
                    limit :limit)
   and exists (select 1 from {fence} where worker_id = :worker and slot = :slot)
   and exists (select 1 from {queue} where id = :queue_id and not paused and not limited
                  and tenant not in (select maintenance.tenant from {maintenance} as maintenance))
returning id, kind, queue_id, turn, attempt, max_attempts, priority, run_at,
          key, input, wakes, parent_id, suspect, created_at, claimed_at, started_at,
          cleanup_until, generation, group_key, keeps_result, headers, timeout, deadline_at, ends_children;

-- name: has_suspects
-- bound: 12
-- scans maintenance: Turso; a row for each tenant in which nothing is claimed.
-- Say whether a suspect of one of these queues waits to be executed alone. Next to always its index is empty.
select 1 as found from {task} as task
 where task.losses > 0 and task.owner is null and task.status = 'PENDING' and not task.waits_for_previous
   and task.deleted_at is null and task.held_at is null and task.run_at <= {now} and task.queue_id {among queues}
   and exists (select 1 from {queue} as queue
                where queue.id = task.queue_id and not queue.paused
                  and queue.tenant not in (select maintenance.tenant from {maintenance} as maintenance))
 limit 1;

-- name: claim_alone
-- bound: 38
-- scans maintenance: Turso; a row for each tenant in which nothing is claimed.
-- Take one suspect of these queues, the least suspect first, for a session whose fence stands and that has nothing else;
-- `beside` what it has if that is :beside. Of limited queues only the one that was :admitted.
with fence as materialized (
    select worker_id from {fence} where worker_id = :worker and slot = :slot {for_share}
),
picked as materialized (
    select task.id from fence cross join {task} as task
     where task.losses > 0 and task.owner is null and task.status = 'PENDING' and not task.waits_for_previous
       and task.deleted_at is null and task.held_at is null and task.run_at <= {now} and task.queue_id {among queues}
       and exists (select 1 from {queue} as queue
                    where queue.id = task.queue_id and not queue.paused
                      and (not queue.limited or task.id = cast(:admitted as bigint))
                      and queue.tenant not in (select maintenance.tenant from {maintenance} as maintenance))
       and (cast(:beside as boolean)
            or not exists (select 1 from {task} as held where held.owner is not null and held.owner = :worker))
     order by task.losses, task.run_at
     limit 1
     {skip_locked}
)
update {task} as task
   set status = 'RUNNING', ready = false, owner = :worker, worker_id = :worker, turn = task.turn + 1,
       attempt = task.attempt + 1, claimed_at = {now}, started_at = coalesce(task.started_at, {now}), updated_at = {now}
 where task.id {any_of picked}
returning {own task}id, {own task}kind, {own task}queue_id, {own task}turn, {own task}attempt, {own task}max_attempts,
          {own task}priority, {own task}run_at, {own task}key, {own task}input, {own task}wakes,
          {own task}parent_id, {own task}suspect, {own task}created_at, {own task}claimed_at,
          {own task}started_at, {own task}cleanup_until, {own task}generation, {own task}group_key,
          {own task}keeps_result, {own task}headers, {own task}timeout, {own task}deadline_at,
          {own task}ends_children;

-- name: has_ready
-- bound: 8
-- Say whether a queue has a task to claim: asked before the claim of each of many, which costs far more where the
-- statement is prepared every time (Turso: 2 ms a queue against 0.04).
select 1 as found from {task} as task where task.queue_id = :queue_id and task.ready limit 1;

-- name: oldest
-- bound: 6 + 9 a row
-- Say of each queue which priority has the task that has been ready for longest. Steps from priority to priority in the
-- index of the claim, so a backlog costs nothing; a queue with nothing ready has no priority.
with recursive rows as ({rows queue_id bigint}),
level as (
    select rows.queue_id,
           (select task.priority from {task} as task where task.queue_id = rows.queue_id and task.ready
             order by task.priority desc limit 1) as priority
      from rows
    union all
    select level.queue_id,
           (select task.priority from {task} as task
             where task.queue_id = level.queue_id and task.ready and task.priority < level.priority
             order by task.priority desc limit 1) as priority
      from level where level.priority is not null
)
select level.queue_id, level.priority,
       (select task.run_at from {task} as task
         where task.queue_id = level.queue_id and task.ready and task.priority = level.priority
         order by task.run_at, task.id limit 1) as run_at
  from level where level.priority is not null;

-- name: settle
-- bound: 6 + 29 a row
-- Close the turns of these tasks with their outcomes, for sessions whose fence stands and turns that are still
-- theirs; a task that does not come back was no longer theirs and is not changed. A task with a requested cancel ends
-- CANCELLED whatever its outcome, unless it is not finished and may still clean up (`{cancelled}`): then it is ready
-- for that, and if this turn has begun its cleanup, when that continues. A task with a requested pause is PAUSED
-- whatever its outcome, its attempt given back and nothing of this turn's end kept: it comes to the same end when it
-- is unpaused. A deleted one is not made ready again.
-- One that is PAUSED is ready at once if a signal came since it checked (`wakes` is what it saw), or if the children
-- it needs to end before it can continue (`needed`) have all been counted off since.
-- One that pauses by itself for a `delay`, a message or an effect, is due when that is over.
-- One with an `input` restarts: its next generation begins with that, at attempt 0 and with a deadline of its own;
-- unless it is cancelled or paused: then it is replayed as it is, and will restart.
-- One in an ordered group that is done, or failed where the others do not wait for that, leaves it: the group is locked
-- before, and its next is let go after this, each by a statement of its own.
-- `is true` keeps the planner from finding each task among all that its session owns, by the index of the owner.
with rows as ({rows id bigint, worker bigint, turn bigint, status name, delay bigint, run_at bigint,
                    attempt_back bigint, alone bigint, wakes bigint, needed bigint, output json, error json,
                    last_error text, cleans_up bigint, input json}),
fence as (
    select worker_id from {fence} where slot = :slot and worker_id {any_of rows.worker}
     order by worker_id {for_share}
)
update {task} as task
   set status = case when {cancelled} then 'CANCELLED'
                     when {is_to_clean_up} then 'PENDING'
                     when task.held_at is not null then 'PAUSED'
                     when rows.status = 'PAUSED' and (task.wakes <> rows.wakes or task.waiting + rows.needed <= 0)
                     then 'PENDING'
                     else rows.status end,
       ready = case when {is_to_clean_up} then true
               when rows.status = 'PENDING'
               then case when rows.run_at is null then rows.delay = 0 else rows.run_at <= {now} end
               when rows.status = 'PAUSED' then coalesce(task.wakes <> rows.wakes, false)
                                  or coalesce(task.waiting + rows.needed <= 0, false)
               else false end
               and not {cancelled} and {may_be_ready task clears losses},
       run_at = case when {cancelled} then task.run_at
                     when {is_to_clean_up} then {now}
                     when rows.status = 'PENDING' and task.cleanup_until < coalesce(rows.run_at, {now} + rows.delay)
                     then task.cleanup_until
                     when rows.status = 'PENDING' then coalesce(rows.run_at, {now} + rows.delay)
                     when rows.status = 'PAUSED' and (task.wakes <> rows.wakes or task.waiting + rows.needed <= 0)
                     then {now}
                     when rows.status = 'PAUSED' and task.cleanup_until < coalesce(rows.run_at, task.cleanup_until + 1)
                     then task.cleanup_until
                     when rows.status = 'PAUSED'
                     then coalesce(rows.run_at, case when rows.delay > 0 then {now} + rows.delay end)
                     else task.run_at end,
       waiting = coalesce(task.waiting + rows.needed, 0),
       paused_at = case when rows.status = 'PAUSED' or task.held_at is not null then {now} else task.paused_at end,
       owner = null,
       attempt = case when {restarts} then 0 when task.held_at is null then task.attempt - rows.attempt_back
                      else task.attempt - 1 end,
       input = case when {restarts} then rows.input else task.input end,
       generation = case when {restarts} then task.generation + 1 else task.generation end,
       restarted_at = case when {restarts} then {now} else task.restarted_at end,
       started_at = case when {restarts} then null else task.started_at end,
       suspect = task.suspect or rows.alone = 1,
       position = case when task.position is null or {leaves_group} then null else task.position end,
       waits_for_previous = task.waits_for_previous and rows.status not in ('SUCCESS', 'CANCELLED'),
       losses = 0, lost_by = null,
       output = case when {cancelled} then null
                     when task.held_at is null then coalesce(rows.output, task.output) else task.output end,
       error = case when task.cancel_requested_at is null and task.held_at is null then rows.error else task.error end,
       last_error = case when {cancelled} and task.cleanup_until is not null
                         then task.last_error || coalesce('; its cleanup: ' || rows.last_error,
                              case when rows.status in ('PENDING', 'PAUSED') then '; its cleanup was not finished in time'
                                   else '' end)
                         when task.cancel_requested_at is null and task.held_at is null then rows.last_error
                         else task.last_error end,
       finished_at = case when {cancelled} then {now}
                          when rows.status in ('PENDING', 'PAUSED') or task.held_at is not null then null
                          else {now} end,
       updated_at = {now}
  from rows
 where task.id = rows.id
   and (task.status = 'RUNNING' and task.owner = rows.worker and task.turn = rows.turn) is true
   and rows.worker in (select fence.worker_id from fence)
returning {own task}id, {own task}status as answer, {own task}queue_id, {own task}updated_at / 60000000 as minute,
          case when {own task}status = 'SUCCESS' then 1 else 0 end as succeeded,
          case when {own task}status = 'ERROR' then 1 else 0 end as failed,
          case when {own task}status = 'PENDING' and {own task}error is not null then 1 else 0 end as retried,
          case when {own task}status in ('PENDING', 'PAUSED') then null
               else {own task}claimed_at - {own task}run_at end as wait_us,
          {own task}updated_at - {own task}claimed_at as run_us, {own task}parent_id as parent_id,
          {own task}generation as generation;

-- name: count_settled [postgres]
-- bound: 10 + 1 a row
-- Add what was settled to this minute's counts, by how long it waited and took; fed by the rows `settle` returned, in its
-- transaction. One task is one row, as without buckets.
with rows as ({rows id bigint, answer name, queue_id bigint, minute bigint, succeeded bigint, failed bigint,
                    retried bigint, wait_us bigint, run_us bigint})
insert into {rollup} as rollup (minute, queue_id, shard, wait_bucket, run_bucket, turns, succeeded, failed, retried,
                                wait_us, run_us)
select rows.minute, rows.queue_id, cast(:shard as bigint), {bucket rows.wait_us} as wait_bucket,
       {bucket rows.run_us} as run_bucket, count(*), sum(rows.succeeded), sum(rows.failed), sum(rows.retried),
       coalesce(sum(rows.wait_us), 0), sum(rows.run_us)
  from rows where true
 group by rows.minute, rows.queue_id, wait_bucket, run_bucket
 order by rows.minute, rows.queue_id, wait_bucket, run_bucket
on conflict (minute, queue_id, shard, wait_bucket, run_bucket) do update
   set turns = rollup.turns + excluded.turns,
       succeeded = rollup.succeeded + excluded.succeeded, failed = rollup.failed + excluded.failed,
       retried = rollup.retried + excluded.retried, wait_us = rollup.wait_us + excluded.wait_us,
       run_us = rollup.run_us + excluded.run_us
returning rollup.queue_id as id, '' as answer;

-- name: count_settled [sqlite]
-- Add what was settled to this minute's counts, by how long it waited and took. A row may be changed several times in one
-- statement here, so nothing is added up first: Turso, which says each task by itself, takes a quarter less for that.
with rows as ({rows id bigint, answer name, queue_id bigint, minute bigint, succeeded bigint, failed bigint,
                    retried bigint, wait_us bigint, run_us bigint})
insert into {rollup} as rollup (minute, queue_id, shard, wait_bucket, run_bucket, turns, succeeded, failed, retried,
                                wait_us, run_us)
select rows.minute, rows.queue_id, :shard, {bucket rows.wait_us}, {bucket rows.run_us}, 1, rows.succeeded, rows.failed,
       rows.retried, coalesce(rows.wait_us, 0), rows.run_us
  from rows where true
on conflict (minute, queue_id, shard, wait_bucket, run_bucket) do update
   set turns = rollup.turns + 1, succeeded = rollup.succeeded + excluded.succeeded,
       failed = rollup.failed + excluded.failed, retried = rollup.retried + excluded.retried,
       wait_us = rollup.wait_us + excluded.wait_us, run_us = rollup.run_us + excluded.run_us
returning queue_id as id, '' as answer;

-- name: turns_of
-- bound: 6 + 3 a row
-- Read the current turns of these tasks: for a settle whose reply was lost, and to explain a refusal.
with rows as ({rows id bigint})
select task.id, task.turn, task.owner, task.status, task.generation from rows join {task} as task on task.id = rows.id
 where task.id {any_of rows};

-- name: wake_due
-- bound: 12 + 18 a row
-- Make ready up to :limit tasks that are due and not paused. One dequeued by hand whose time is up has used an
-- attempt: it comes back, or ends in ERROR when that was the last.
with due as materialized (
    select task.id from {task} as task
     where not task.ready and task.owner is null and task.deleted_at is null and task.losses = 0 and task.held_at is null
       and not task.waits_for_previous and task.status in ('PENDING', 'PAUSED', 'RUNNING') and task.run_at <= {now}
       and (cast(:taken as boolean) or task.status <> 'RUNNING')
     order by task.run_at
     limit :limit
     {skip_locked}
)
update {task} as task
   set status = case when task.status = 'RUNNING' and task.attempt >= task.max_attempts then 'ERROR' else 'PENDING' end,
       ready = not (task.status = 'RUNNING' and task.attempt >= task.max_attempts) and {may_be_ready task},
       error = case when task.status = 'RUNNING' and task.attempt >= task.max_attempts
                    then cast('{"type":"VisibilityTimeout","message":"not acknowledged in time"}' as {json})
                    else task.error end,
       last_error = case when task.status = 'RUNNING' then 'VisibilityTimeout: not acknowledged in time'
                         else task.last_error end,
       finished_at = case when task.status = 'RUNNING' and task.attempt >= task.max_attempts then {now} else null end,
       updated_at = {now}
 where task.id {any_of due}
returning {own task}id, {own task}status as answer, {own task}queue_id, {own task}parent_id as parent_id,
          coalesce({own task}last_error = 'VisibilityTimeout: not acknowledged in time', false) as unacknowledged;

-- name: expired
-- bound: 12 + 6 a row
-- Up to :limit tasks that were not begun in time, the first first.
select task.id from {task} as task
 where task.expires_at is not null and task.turn = 0 and task.finished_at is null and task.deleted_at is null
   and task.expires_at <= {now}
 order by task.expires_at
 limit :limit;

-- name: lock_expired
-- bound: 6 + 6 a row
-- Lock those of these tasks that have not begun: none of them is claimed any more.
with rows as ({rows id bigint})
select task.id from {task} as task
 where task.id {any_of rows} and (task.turn = 0 and task.finished_at is null and task.expires_at <= {now}) is true
 order by task.id
 {for_update_of_task};

-- name: next_due
-- bound: 16
-- scans task: Turso; the first entries of the index, and no more.
-- scans schedule: Turso; the first entry of each index, and no more.
-- scans limiter: the first row, and no more.
-- Say how many microseconds from now the next waiting task is due, nothing if none waits for a moment; and whether one
-- that was taken by hand is to be taken back. That looks at the first eight, so that one which another transaction holds
-- hides none behind it. A search for the first that was taken, with a condition on the status, has a plan for parallel
-- workers once the table is analysed: 127 pages instead of 4.
-- Of schedules it says when the next tick comes, and whether one waits for the run before it; of limits, whether any queue
-- has some; and when the next task is to be given up because it has not begun.
select min(first.run_at) - {now} as wait,
       count(case when first.status = 'RUNNING' and first.run_at <= {now} then 1 end) > 0 as taken,
       (select schedule.next_at from {schedule} as schedule
         where schedule.tenant = :tenant and schedule.next_at is not null and schedule.paused_at is null
         order by schedule.next_at limit 1) - {now} as tick,
       exists (select 1 from {schedule} as schedule
                where schedule.tenant = :tenant and schedule.buffered_at is not null
                  and schedule.paused_at is null) as buffered,
       exists (select 1 from {limiter}) as limited,
       (select task.expires_at from {task} as task
         where task.expires_at is not null and task.turn = 0 and task.finished_at is null and task.deleted_at is null
         order by task.expires_at limit 1) - {now} as expires
  from (select task.run_at, task.status from {task} as task
         where not task.ready and task.owner is null and task.deleted_at is null and task.held_at is null
           and task.losses = 0 and not task.waits_for_previous and task.status in ('PENDING', 'PAUSED', 'RUNNING')
           and task.run_at is not null
         order by task.run_at limit 8) as first;

-- name: task_again
-- bound: 8
-- What is known of a task besides its claim: the answer that an earlier turn kept, or why it came back or was given up.
select task.input, task.output, task.error, task.last_error, task.status from {task} as task where task.id = :id;
