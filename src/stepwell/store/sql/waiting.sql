-- What runs wait for: signals that others send them, and the runs that they asked for.

-- name: lock_turns
-- bound: 6 + 5 a row
-- Of these turns, those that stand and were not asked to cancel, or clean up. Their runs are locked until the
-- transaction ends: no signal, cancel, end of a child or recovery changes them meanwhile. That is their fence: a
-- statement of its own, so that what follows sees all that was committed before the lock.
-- The fences of their sessions come first, as everywhere: the end of a session takes them before its tasks.
with rows as ({rows id bigint, worker bigint, turn bigint}),
fence as materialized (
    select worker_id from {fence} where slot = :slot and worker_id {any_of rows.worker}
     order by worker_id {for_share}
)
select task.id, task.wakes, task.waiting, {now} as now, task.cancel_requested_at is not null as cancelled
  from {task} as task join rows on rows.id = task.id
 where task.id {any_of rows} and rows.worker in (select fence.worker_id from fence)
   and (task.status = 'RUNNING' and task.owner = rows.worker and task.turn = rows.turn) is true
   and (task.cancel_requested_at is null or task.cleanup_until is not null)
 order by task.id
 {for_update_of_task};

-- name: first_signals
-- bound: 6 + 21 a row
-- The first signal of a name that each of these waits may take: the one behind the last that was taken. They are taken in
-- their order, so what a run that lives for years has taken is not looked at.
with rows as ({rows run_id bigint, name name, key name}),
wanted as materialized (
    select rows.run_id, rows.name, rows.key,
           (select free.place from {signal} as free
             where free.run_id = rows.run_id and free.name = rows.name
               and free.place > coalesce((select taken.place from {signal} as taken
                                           where taken.run_id = rows.run_id and taken.name = rows.name
                                             and taken.taken_at is not null
                                           order by taken.place desc limit 1), 0)
             order by free.place limit 1) as place
      from rows
)
select wanted.run_id, wanted.name, wanted.key, wanted.place,
       (select signal.data from {signal} as signal
         where signal.run_id = wanted.run_id and signal.name = wanted.name and signal.place = wanted.place) as data,
       (select signal.arrival from {signal} as signal
         where signal.run_id = wanted.run_id and signal.name = wanted.name and signal.place = wanted.place) as arrival,
       (select signal.sent_at from {signal} as signal
         where signal.run_id = wanted.run_id and signal.name = wanted.name and signal.place = wanted.place) as sent_at
  from wanted where wanted.place is not null;

-- name: take_signals
-- bound: 6 + 9 a row
-- Note which wait has taken each signal: no other will. Each is looked up by its whole key; its run is locked, so it stays
-- where it was found.
with rows as ({rows run_id bigint, name name, place bigint, key name}),
found as materialized (
    select (select free.{row_id} from {signal} as free
             where free.run_id = rows.run_id and free.name = rows.name and free.place = rows.place
               and free.taken_at is null) as id
      from rows
)
update {signal} as signal
   set taken_by = (select rows.key from rows
                    where rows.run_id = signal.run_id and rows.name = signal.name and rows.place = signal.place),
       taken_at = {now}
 where signal.{row_id} {any_of found}
returning run_id as id;

-- name: forget_signals
-- bound: 12 + 4 a row
-- Remove the oldest signals of a name, :limit at most, that a run took before the moment given; with them goes the memory
-- of their keys. A request is kept as long after it was answered.
delete from {signal}
 where run_id = :id and name = :name
   and case when substr(name, 1, 1) = '?' then answered_at else taken_at end < :before
   and place < (select first.place from {signal} as first where first.run_id = :id and first.name = :name
                 order by first.place limit 1) + :limit
returning run_id as id;

-- name: answer_requests
-- bound: 6 + 15 a row
-- Answer requests that runs have taken, with a reply or a reason why not; the first answer stands. Their runs are locked.
with rows as ({rows run_id bigint, name name, place bigint, reply json, refused name}),
found as materialized (
    select (select free.{row_id} from {signal} as free
             where free.run_id = rows.run_id and free.name = rows.name and free.place = rows.place
               and free.answered_at is null) as id
      from rows
)
update {signal} as signal
   set reply = (select rows.reply from rows
                 where rows.run_id = signal.run_id and rows.name = signal.name and rows.place = signal.place),
       refused = (select rows.refused from rows
                   where rows.run_id = signal.run_id and rows.name = signal.name and rows.place = signal.place),
       answered_at = {now}
 where signal.{row_id} {any_of found}
returning run_id as id;

-- name: answers
-- bound: 12 + 25 a row
-- Say of these requests whether they are answered, and whether their runs are finished; a run that does not come back is
-- not there. In one snapshot: what is finished answers no more.
with rows as ({rows run_id bigint, name name, key name})
select rows.run_id, rows.name, rows.key, task.status, task.finished_at is not null as ended,
       (select sent.place from {signal} as sent
         where sent.run_id = rows.run_id and sent.name = rows.name and sent.key = rows.key) as place,
       (select sent.answered_at from {signal} as sent
         where sent.run_id = rows.run_id and sent.name = rows.name and sent.key = rows.key) as answered_at,
       (select {text_of sent.reply} from {signal} as sent
         where sent.run_id = rows.run_id and sent.name = rows.name and sent.key = rows.key) as reply,
       (select sent.refused from {signal} as sent
         where sent.run_id = rows.run_id and sent.name = rows.name and sent.key = rows.key) as refused
  from rows join {task} as task on task.id = rows.run_id join {queue} as queue on queue.id = task.queue_id
 where task.id {any_of rows.run_id} and (task.kind = 'RUN') is true and task.deleted_at is null
   and queue.tenant = :tenant;

-- name: untaken_signals
-- bound: 12
-- Say how many signals of a name are kept for a run, and whether one with this key was ever sent.
select (select count(*) from {signal} as kept
         where kept.run_id = :id and kept.name = :name
           and kept.place > coalesce((select taken.place from {signal} as taken
                                       where taken.run_id = :id and taken.name = :name and taken.taken_at is not null
                                       order by taken.place desc limit 1), 0)) as kept,
       (select count(*) from {signal} as same
         where same.run_id = :id and same.name = :name and same.key = :key) as repeated,
       (select count(*) from {signal} as same
         where same.run_id = :id and same.name = :name and same.key = :key and same.taken_at is not null) as taken;

-- name: paused_steps
-- bound: 8
-- List the calls of a run that wait: for a signal (their output is when it is over, if ever), or for other runs (it says
-- which), which type of signal they take, where that is known, and in the error what else they ask.
select step.key, {text_of step.output} as output, {text_of step.accepts} as accepts, {text_of step.error} as error
  from {step} as step
 where step.run_id = :id and step.generation = :generation and step.status = 'PAUSED'
 order by step.place;

-- name: add_signal
-- bound: 14
-- Keep a signal for a run, behind those of its name, with its number among all that came for the run; the run is locked,
-- so two never get one place or one number.
insert into {signal} (run_id, name, place, key, data, sent_at, arrival, headers)
select :id, :name, coalesce(max(signal.place), 0) + 1, :key, {json_of data}, {now}, :arrival, {json_of headers}
  from {signal} as signal where signal.run_id = :id and signal.name = :name
returning run_id as id;

-- name: signals_of
-- bound: 12 + 4 a row
-- List up to :limit signals of a run, behind the place given: by name, and those of one name in the order in which they came.
-- Those that are taken or wait, if only these are asked for, are found among all.
select signal.name, signal.place, signal.key, signal.data, signal.sent_at, signal.taken_by, signal.taken_at,
       signal.answered_at, signal.headers
  from {signal} as signal
 where signal.run_id = :id and signal.name >= cast(:after_name as text)
   and (signal.name > cast(:after_name as text) or signal.place > cast(:after as bigint))
   and (cast(:name as text) is null or signal.name = :name or signal.name = '?' || cast(:name as text))
   and not (cast(:waiting as boolean) and signal.taken_at is not null)
   and not (cast(:taken as boolean) and signal.taken_at is null)
 order by signal.name, signal.place
 limit cast(:limit as bigint);

-- name: wake_run
-- bound: 20
-- Note that a signal came: a run that checked before will see it when it pauses. One that waits for it, and is not
-- held back, is ready.
update {task} as task set wakes = wakes + 1,
       status = case when :waits and status = 'PAUSED' and held_at is null then 'PENDING' else status end,
       ready = ready or (:waits and status = 'PAUSED' and {may_be_ready task}),
       run_at = case when :waits and status = 'PAUSED' and held_at is null then {now} else run_at end,
       updated_at = {now}
 where id = :id
returning id, queue_id, ready;

-- name: wake_parents
-- bound: 6 + 23 a row
-- Count ended runs off their parents; a parent that needed as many is ready, unless it is held back. Fed by the rows
-- of a statement that ended tasks, in its transaction; parents are locked in order.
with rows as ({rows id bigint, answer name, parent_id bigint}),
ended as materialized (
    select rows.parent_id as id, count(*) as children from rows
     where rows.parent_id is not null and rows.answer not in ('PENDING', 'PAUSED', 'RUNNING')
     group by rows.parent_id
),
locked as materialized (
    select task.id from {task} as task where task.id {any_of ended} order by task.id {for_update}
)
update {task} as task
   set waiting = task.waiting - ended.children,
       status = case when task.status = 'PAUSED' and task.waiting > 0 and task.waiting <= ended.children
                          and task.held_at is null then 'PENDING' else task.status end,
       ready = task.ready or (task.status = 'PAUSED' and task.waiting > 0 and task.waiting <= ended.children
                              and {may_be_ready task}),
       run_at = case when task.status = 'PAUSED' and task.waiting > 0 and task.waiting <= ended.children
                          and task.held_at is null then {now} else task.run_at end,
       updated_at = {now}
  from ended join locked on locked.id = ended.id
 where task.id = ended.id and task.id {any_of ended} and task.finished_at is null
returning {own task}queue_id as id, case when {own task}ready then 'READY' else '' end as answer;

-- name: ends_of
-- bound: 6 + 5 a row
-- Say how these runs stand, whose they are and, of those that are finished, what came of them.
with rows as ({rows id bigint})
select task.id, task.parent_id, task.deleted_at,
       case when task.finished_at is not null then task.status end as ended, queue.name as workflow,
       case when task.finished_at is not null then task.output end as output,
       case when task.finished_at is not null then task.error end as error
  from rows join {task} as task on task.id = rows.id
  join {queue} as queue on queue.id = task.queue_id and queue.tenant = :tenant
 where task.id {any_of rows};

-- name: lock_tasks
-- bound: 12 + 4 a row
-- Lock tasks that are to end, and those that asked for them, for their sessions: the fences first, then all of them in
-- the order of their ids, as every statement does. A flush whose tasks have parents begins with this.
with rows as ({rows id bigint, worker bigint}),
fence as materialized (
    select worker_id from {fence} where slot = :slot and worker_id {any_of rows.worker}
     order by worker_id {for_share}
),
family as (
    select rows.id from rows
    union
    select task.parent_id as id from {task} as task
     where task.id {any_of rows} and (task.parent_id is not null) is true
)
select task.id, '' as answer from {task} as task
 where task.id {any_of family} and (select count(*) from fence) >= 0
 order by task.id
 {for_update};

-- name: lock_ending [postgres]
-- bound: 12 + 32 a row
-- As `lock_tasks`, with all that these tasks asked for and that is unfinished: some of it ends with them.
with recursive rows as ({rows id bigint, worker bigint}),
fence as (
    select worker_id from {fence} where slot = :slot and worker_id {any_of rows.worker}
     order by worker_id for share
),
tree as (
    select rows.id from rows
    union
    select task.id
      from tree
     cross join lateral (select child.id from {task} as child
                          where child.parent_id = tree.id and child.parent_id is not null and child.finished_at is null
                         offset 0) as task
),
family as (
    select tree.id from tree
    union
    select task.parent_id as id from {task} as task
     where task.id {any_of tree} and (task.parent_id is not null) is true
)
select task.id from {task} as task
 where task.id {any_of family} and (select count(*) from fence) >= 0
 order by task.id for update;

-- name: lock_ending [sqlite]
-- One writer: there is nothing to lock.
with rows as ({rows id bigint, worker bigint}) select rows.id from rows;

-- name: lock_families [postgres]
-- bound: 8 + 4 a row
-- Lock tasks that are to be changed, those that asked for them and what ends with them, in the order of their ids, as all
-- of them do; before them the ordered groups in which they stand, in the order of these.
with recursive rows as ({rows id bigint}),
named as materialized (
    select task.id, task.parent_id, task.queue_id, task.group_key, task.position, task.ends_children
      from {task} as task where task.id {any_of rows}
),
groups as materialized (
    select ordered_group.id from {ordered_group} as ordered_group
     where ordered_group.id = any(array(select (select found.id from {ordered_group} as found
                                                 where found.queue_id = named.queue_id
                                                   and found.group_key = named.group_key limit 1)
                                          from named where named.position is not null))
     order by ordered_group.queue_id + 0, ordered_group.group_key
       for update
),
tree as (
    select named.id from named where named.ends_children
    union
    select task.id
      from tree
     cross join lateral (select child.id from {task} as child
                          where child.parent_id = tree.id and child.parent_id is not null and child.finished_at is null
                         offset 0) as task
),
family as (
    select rows.id from rows
    union
    select named.parent_id as id from named where named.parent_id is not null
    union
    select tree.id from tree
)
select task.id from {task} as task
 where task.id {any_of family} and (select count(*) from groups) >= 0
 order by task.id for update;

-- name: lock_families [sqlite]
-- One writer: there is nothing to lock.
with rows as ({rows id bigint}) select rows.id from rows;

-- name: lock_trees [postgres]
-- bound: 6 + 32 a row
-- Lock runs, all that they asked for and that is unfinished, and those that asked for any of them, in the order of their
-- ids, as every statement does.
with recursive rows as ({rows id bigint}),
tree as (
    select rows.id from rows
    union
    select task.id
      from tree
     cross join lateral (select child.id from {task} as child
                          where child.parent_id = tree.id and child.parent_id is not null and child.finished_at is null
                         offset 0) as task
),
family as (
    select tree.id from tree
    union
    select task.parent_id as id from {task} as task
     where task.id {any_of tree} and (task.parent_id is not null) is true
)
select task.id from {task} as task where task.id {any_of family} order by task.id for update;

-- name: lock_trees [sqlite]
-- One writer: there is nothing to lock.
with rows as ({rows id bigint}) select rows.id from rows;
