-- The statements of a decision, in the order in which it is made: read the instance under its lock, find out what was
-- decided before, advance it, and write what that leads to. A decision is one transaction. Every transaction that
-- writes about an instance locks its row first, so nothing about it changes in between.

-- name: lock_instances
-- bound: 6 + 6 a row
-- Lock these instances, everybody in the same order, and say how each stands; one that is not there is left out. Its
-- snapshot comes along where nothing is known of it.
with rows as ({rows type name, name text, known bigint}),
named as materialized (
    select rows.known, (select instance.id from {instance} as instance
                         where instance.tenant = :tenant and instance.type = rows.type and instance.name = rows.name
                         limit 1) as id
      from rows
)
select instance.id, instance.type, instance.name, instance.version, instance.completed_at, {now} as now,
       case when named.known is null then {text_of instance.snapshot} end as snapshot, instance.snapshot_version,
       instance.snapshot_schema
  from named join {instance} as instance on instance.id = named.id and instance.id {any_of named}
 order by instance.id
 {for_update_of_instance};

-- name: look_at_instances
-- bound: 6 + 8 a row
-- Read the state of these instances, as `lock_instances` does, without a lock.
with rows as ({rows type name, name text, known bigint}),
named as materialized (
    select rows.known, (select instance.id from {instance} as instance
                         where instance.tenant = :tenant and instance.type = rows.type and instance.name = rows.name
                         limit 1) as id
      from rows
)
select instance.id, instance.type, instance.name, instance.version, instance.completed_at, {now} as now,
       case when named.known is null then {text_of instance.snapshot} end as snapshot, instance.snapshot_version,
       instance.snapshot_schema, instance.created_at, instance.updated_at
  from named {one_of instance.id named.id};

-- name: make_instances
-- bound: 6 + 12 a row
-- Create these instances, with no event yet; one that another transaction has created is left out.
with rows as ({rows id bigint, type name, name text})
insert into {instance} (id, tenant, type, name, version, created_at, updated_at)
select rows.id, :tenant, rows.type, rows.name, 0, {now}, {now} from rows where true
on conflict (tenant, type, name) do nothing
returning id, type, name, version, completed_at, created_at as now, null as snapshot, null as snapshot_version,
          null as snapshot_schema;

-- name: unmake_instances
-- bound: 6 + 2 a row
-- Remove instances that were made in this transaction and have not come to an event: nothing was decided.
with rows as ({rows id bigint})
delete from {instance} where id {any_of rows} and version = 0;

-- name: events_after
-- bound: 6 + 6 a row
-- The events of these instances after the version given, in their order, up to another one.
with rows as ({rows instance_id bigint, after bigint, until bigint})
select event.instance_id, event.version, event.position, event.type, event.type_version, {text_of event.data} as data,
       event.cause, event.recorded_at
  from rows
  join {event} as event on event.instance_id = rows.instance_id and event.version > rows.after
   and event.version <= rows.until and event.instance_id {any_of rows.instance_id}
 order by event.instance_id, event.version;

-- name: receipts_of
-- bound: 6 + 4 a row
-- What was answered to inputs with these keys.
with rows as ({rows instance_id bigint, key text})
select receipt.instance_id, receipt.key, receipt.outcome, receipt.first_version, receipt.last_version,
       receipt.recorded_at
  from rows
  join {receipt} as receipt on receipt.instance_id = rows.instance_id and receipt.key = rows.key
   and receipt.instance_id {any_of rows.instance_id};

-- name: events_caused_by
-- bound: 6 + 7 a row
-- The events after the version given that an input led to: what became of it when its reply was lost.
with rows as ({rows instance_id bigint, after bigint, cause text})
select event.instance_id, event.cause, min(event.version) as first_version, max(event.version) as last_version
  from rows
  join {event} as event on event.instance_id = rows.instance_id and event.version > rows.after
   and event.cause = rows.cause and event.instance_id {any_of rows.instance_id}
 group by event.instance_id, event.cause;

-- name: open_turns
-- bound: 6 + 7 a row
-- Of these turns those that are still their sessions', locked until the transaction ends; and where they stand in order.
with rows as ({rows id bigint, worker bigint, turn bigint}),
fence as (
    select worker_id from {fence} where slot = :slot and worker_id {any_of rows.worker}
     order by worker_id {for_share}
)
select task.id, task.position from rows join {task} as task on task.id = rows.id and task.id {any_of rows}
 where (task.status = 'RUNNING' and task.owner = rows.worker and task.turn = rows.turn) is true
   and task.cancel_requested_at is null and rows.worker in (select fence.worker_id from fence)
 order by task.id
 {for_update_of_task};

-- name: pending_timers
-- bound: 6 + 6 a row
-- Which of these keys have a timer that is not finished.
with rows as ({rows queue_id bigint, key text}),
keyed as materialized (
    select rows.key, (select task.id from {task} as task
                       where task.queue_id = rows.queue_id and task.key = rows.key and {has_key task}
                         and task.kind = 'TIMER' and (task.finished_at is null) is true
                       limit 1) as id
      from rows
)
select keyed.id, keyed.key from keyed where keyed.id is not null;

-- name: move_instances
-- bound: 6 + 3 a row
-- Move instances on to their new versions, those that are where they were when it was decided.
with rows as ({rows id bigint, before bigint, after bigint, snapshot json, snapshot_version bigint,
                    snapshot_schema bigint, completed bigint})
update {instance} as instance
   set version = rows.after, updated_at = {now},
       snapshot = coalesce(rows.snapshot, instance.snapshot),
       snapshot_version = coalesce(rows.snapshot_version, instance.snapshot_version),
       snapshot_schema = coalesce(rows.snapshot_schema, instance.snapshot_schema),
       completed_at = case when rows.completed = 1 then {now} else instance.completed_at end
  from rows
 where instance.id = rows.id and instance.id {any_of rows} and instance.version = rows.before
   and instance.completed_at is null
returning {own instance}id;

-- name: append_events [postgres]
-- bound: 8 + 9 a row
-- Append events; their positions are numbered here, by the transaction that commits them. Before the first is numbered, the
-- transaction holds the low-water lock (see `horizon`), once for all of its appends: a user's transaction may have
-- thousands, and each lock takes shared memory. The mark goes with a savepoint that is rolled back, and so does the lock.
with rows as ({rows instance_id bigint, version bigint, type name, type_version bigint, data json, cause text}),
low_water as materialized (
    select case when coalesce(current_setting({low_water_mark}, true), '') = ''
                then set_config({low_water_mark}, '1', true) || cast({low_water_lock} as text) end as held
)
insert into {event} (tenant, instance_id, version, type, type_version, data, cause, recorded_at)
select :tenant, rows.instance_id, rows.version, rows.type, rows.type_version, rows.data, rows.cause, {now}
  from low_water cross join rows
 order by rows.instance_id, rows.version;

-- name: append_events [sqlite]
-- Append events; their positions are numbered here, in the order of commits: there is one writer.
with rows as ({rows instance_id bigint, version bigint, type name, type_version bigint, data json, cause text})
insert into {event} (tenant, instance_id, version, type, type_version, data, cause, recorded_at)
select :tenant, rows.instance_id, rows.version, rows.type, rows.type_version, rows.data, rows.cause, {now}
  from rows where true
 order by rows.instance_id, rows.version;

-- name: add_receipts
-- bound: 6 + 11 a row
-- Note what was answered, in place of what was answered to the same key when that does not count any more.
with rows as ({rows instance_id bigint, key text, outcome name, first_version bigint, last_version bigint})
insert into {receipt} (instance_id, key, outcome, first_version, last_version, recorded_at)
select rows.instance_id, rows.key, rows.outcome, rows.first_version, rows.last_version, {now} from rows where true
on conflict (instance_id, key) do update
   set outcome = excluded.outcome, first_version = excluded.first_version, last_version = excluded.last_version,
       recorded_at = excluded.recorded_at;

-- name: forget_contents
-- bound: 12 + 40 a row
-- Of the receipts that stand for contents, keep the last ones of each instance, as many as its decider remembers.
with rows as ({rows instance_id bigint, most bigint}),
counted as (
    select receipt.{row_id} as id, rows.most,
           row_number() over (partition by receipt.instance_id
                              order by receipt.recorded_at desc, receipt.last_version desc, receipt.key) as nth
      from rows
      join {receipt} as receipt on receipt.instance_id = rows.instance_id and receipt.instance_id {any_of rows.instance_id}
     where (substr(receipt.key, 1, 8) = 'content:') is true
),
old as materialized (select counted.id from counted where counted.nth > counted.most)
delete from {receipt} where {row_id} {any_of old} returning instance_id as id;

-- name: cancel_timers
-- bound: 6 + 14 a row
-- Cancel these timers: none is delivered, and a worker that has claimed one finds it gone.
with rows as ({rows id bigint})
update {task} as task
   set status = 'CANCELLED', ready = false, owner = null, finished_at = {now}, updated_at = {now}
  from rows
 where task.id = rows.id and task.id {any_of rows} and task.kind = 'TIMER' and task.finished_at is null
returning {own task}id;

-- name: end_timers
-- bound: 6 + 16 a row
-- Let no timer of these instances be delivered any more: they have ended.
with rows as ({rows instance_id bigint})
update {task} as task
   set status = 'CANCELLED', ready = false, owner = null, finished_at = {now}, updated_at = {now}
  from rows
 where task.instance_id = rows.instance_id and task.instance_id {any_of rows.instance_id}
   and task.instance_id is not null and task.finished_at is null
   and task.kind = 'TIMER'
returning {own task}id;

-- name: add_of_instances
-- bound: 6 + 15 a row
-- Write effects and timers; one for a queue that is gone is not written and does not come back, nor one that an input from
-- outside led to, for a queue that is being drained. What a delivered task led to (`inside`) is worked off with it.
with rows as ({rows id bigint, kind name, queue_id bigint, run_at bigint, max_attempts bigint, key text, input json,
                    instance_id bigint, inside bigint, headers json}),
taking as materialized (
    select queue.id, queue.draining from {queue} as queue where queue.id {any_of rows.queue_id} {for_key_share}
)
insert into {task} (id, kind, queue_id, ready, run_at, max_attempts, key, key_scope, input, instance_id, created_at,
                    updated_at, headers)
select rows.id, rows.kind, rows.queue_id, coalesce(rows.run_at, {now}) <= {now} and {may_be_ready new},
       coalesce(rows.run_at, {now}), rows.max_attempts, rows.key, 'unfinished', rows.input, rows.instance_id, {now}, {now},
       rows.headers
  from rows
 where rows.queue_id in (select taking.id from taking where not taking.draining)
    or rows.inside = 1 and rows.queue_id in (select taking.id from taking)
returning id;

-- name: keep_answer
-- bound: 6 + 23 a row
-- Keep the answer of an effect's handler before it is decided; nothing comes back if the worker no longer holds the
-- task.
with rows as ({rows id bigint, worker bigint, turn bigint, output json}),
fence as (
    select worker_id from {fence} where slot = :slot and worker_id {any_of rows.worker}
     order by worker_id {for_share}
)
update {task} as task set output = rows.output, updated_at = {now}
  from rows
 where task.id = rows.id and task.id {any_of rows}
   and (task.status = 'RUNNING' and task.owner = rows.worker and task.turn = rows.turn) is true
   and rows.worker in (select fence.worker_id from fence)
returning {own task}id;

-- name: dead_effects
-- bound: 6 + 10 a row
-- Of these tasks, the effects that ended in ERROR, with their instances' names and the queue of their decider's inputs.
with rows as ({rows id bigint}),
failed as materialized (
    select task.id, task.queue_id, task.input ->> 'id' as instance from {task} as task
     where task.id {any_of rows} and (task.kind = 'EFFECT' and task.status = 'ERROR') is true
)
select failed.id, failed.instance, inputs.id as inputs_queue_id
  from failed {one_of queue.id failed.queue_id}
 cross join {queue} as inputs
 where inputs.tenant = queue.tenant
   and inputs.name = substr(queue.name, 1, length(queue.name) - length('effects')) || 'inputs';

-- name: instances
-- bound: 12 + 1 a row
-- List instances of a type, or all, by type and name, after the place given.
select instance.id, instance.type, instance.name, instance.version, instance.created_at, instance.updated_at,
       instance.completed_at
  from {instance} as instance
 where instance.tenant = :tenant and (cast(:type as text) is null or instance.type = :type)
   and (instance.type, instance.name) > (cast(:after_type as text), cast(:after_name as text))
 order by instance.type, instance.name
 limit :limit;

-- name: open_tasks_of
-- bound: 14
-- What an instance still waits for: its effects and timers that are not finished, the first due first.
select task.id, task.kind, task.key, task.status, task.run_at, task.attempt, task.last_error, task.input,
       task.instance_id
  from {task} as task
 where task.instance_id = (select instance.id from {instance} as instance
                            where instance.tenant = :tenant and instance.type = :type and instance.name = :name)
   and task.instance_id is not null and task.finished_at is null and task.deleted_at is null
 order by task.run_at, task.id;

-- name: open_inputs_of
-- unbounded: it looks at what waits in the queue of the decider's inputs, until enough of it is for the instance.
-- scans task: of what is being executed, all.
-- The submitted inputs of an instance that are not finished, the oldest first. They may have come before the instance, so
-- it stands in the input.
with inputs as materialized (
    select queue.id from {queue} as queue where queue.tenant = :tenant and queue.name = :inputs
),
waiting as (
    select task.id, task.kind, task.key, task.status, task.run_at, task.attempt, task.last_error, task.input
      from {task} as task
     where task.queue_id = (select inputs.id from inputs) and task.ready
       and (task.kind = 'INPUT' and task.input ->> 'id' = :name) is true
    union all
    select task.id, task.kind, task.key, task.status, task.run_at, task.attempt, task.last_error, task.input
      from {task} as task
     where task.queue_id = (select inputs.id from inputs) and not task.ready and task.owner is null
       and task.deleted_at is null and task.status in ('PENDING', 'PAUSED', 'RUNNING')
       and (task.kind = 'INPUT' and task.input ->> 'id' = :name) is true
    union all
    select task.id, task.kind, task.key, task.status, task.run_at, task.attempt, task.last_error, task.input
      from {task} as task
     where task.owner is not null
       and (task.queue_id = (select inputs.id from inputs) and task.kind = 'INPUT' and task.input ->> 'id' = :name) is true
)
select * from waiting order by id limit :limit;

-- name: remove_receipts
-- bound: 12 + 9 a row
-- Remove up to :limit receipts of a tenant that are older than the moment given.
with old as materialized (
    select receipt.{row_id} as id from {receipt} as receipt
     where receipt.recorded_at < :before
       and (select instance.tenant from {instance} as instance where instance.id = receipt.instance_id) = :tenant
     order by receipt.recorded_at
     limit :limit
     {skip_locked}
)
delete from {receipt} where {row_id} {any_of old} returning instance_id as id;

-- name: all_events
-- unbounded: only tests ask, and they ask for everything.
-- scans event: only tests ask, and they ask for everything.
-- Every event of a tenant, by instance and version: what a test compares.
select instance.type, instance.name, event.version, event.type as event, event.data
  from {event} as event {one_of instance.id event.instance_id}
 where instance.tenant = :tenant
 order by instance.type, instance.name, event.version;

-- name: tasks_of_deciders
-- unbounded: only tests ask, of a small store.
-- scans task: only tests ask, of a small store.
-- How many effects, timers and inputs of a tenant ended how: what a test compares.
select task.kind, task.status, count(*) as tasks
  from {task} as task {one_of queue.id task.queue_id}
 where queue.tenant = :tenant and task.kind in ('EFFECT', 'TIMER', 'INPUT')
 group by task.kind, task.status
 order by task.kind, task.status;

-- name: tasks_of_instance
-- unbounded: only tests ask, of a small store.
-- scans task: only tests ask, of a small store.
-- The effects and timers of an instance, finished or not, in the order in which they were added.
select task.id, task.kind, task.key, task.run_at, task.finished_at, task.input, task.instance_id
  from {task} as task
 where task.instance_id = (select instance.id from {instance} as instance
                            where instance.tenant = :tenant and instance.type = :type and instance.name = :name)
   and task.kind in ('EFFECT', 'TIMER')
 order by task.id;

-- name: decide_at_once [postgres]
-- bound: 12 + 32 a row
-- A batch of decisions that were made on states at hand, in one statement. Of an instance that has moved on since, or
-- whose key was used before, or whose queue takes nothing, nothing is written, and it does not come back. The receipts
-- are looked for in this statement's own snapshot: if the version is still the one at hand, none was added since.
-- The instances are locked first, everybody in the same order; all else waits for that. Then, before an event is numbered,
-- it takes the low-water lock (see `horizon`).
with move as materialized (
    select * from json_to_recordset(cast(:moves as json))
        as given (id bigint, before bigint, after bigint, completed int, snapshot json, snapshot_version bigint,
                  snapshot_schema bigint)
),
noted as materialized (
    select * from json_to_recordset(cast(:receipts as json))
        as given (instance_id bigint, key text, outcome text, first_version bigint, last_version bigint)
),
wanted as materialized (
    select * from json_to_recordset(cast(:tasks as json))
        as given (id bigint, kind text, queue_id bigint, run_at bigint, max_attempts bigint, input json,
                  instance_id bigint, headers json)
),
taking as materialized (
    select queue.id from {queue} as queue
     where queue.id = any(array(select distinct wanted.queue_id from wanted)) and not queue.draining for key share
),
blocked as materialized (
    select noted.instance_id as id from noted
     where (select receipt.key from {receipt} as receipt
             where receipt.instance_id = noted.instance_id and receipt.key = noted.key limit 1) is not null
    union all
    select wanted.instance_id from wanted where wanted.queue_id <> all(array(select taking.id from taking))
),
locked as materialized (
    select instance.id from {instance} as instance
     where instance.id = any(array(select move.id from move)) order by instance.id for update
),
moved as (
    update {instance} as instance
       set version = move.after, updated_at = {now},
           snapshot = coalesce(move.snapshot, instance.snapshot),
           snapshot_version = coalesce(move.snapshot_version, instance.snapshot_version),
           snapshot_schema = coalesce(move.snapshot_schema, instance.snapshot_schema),
           completed_at = case when move.completed = 1 then {now} else instance.completed_at end
      from move
     where instance.id = move.id and instance.id = any(array(select locked.id from locked))
       and instance.version = move.before and instance.completed_at is null
       and move.id <> all(array(select blocked.id from blocked))
    returning instance.id
),
low_water as materialized (
    select {low_water_lock} as held from (select count(*) from moved) as ready
),
appended as (
    insert into {event} (tenant, instance_id, version, type, type_version, data, cause, recorded_at)
    select :tenant, given.instance_id, given.version, given.type, given.type_version, given.data, given.cause, {now}
      from low_water cross join json_to_recordset(cast(:events as json))
        as given (instance_id bigint, version bigint, type text, type_version bigint, data json, cause text)
     where given.instance_id = any(array(select moved.id from moved))
     order by given.instance_id, given.version
),
kept as (
    insert into {receipt} (instance_id, key, outcome, first_version, last_version, recorded_at)
    select noted.instance_id, noted.key, noted.outcome, noted.first_version, noted.last_version, {now}
      from noted where noted.instance_id = any(array(select moved.id from moved))
),
added as (
    insert into {task} (id, kind, queue_id, ready, run_at, max_attempts, key_scope, input, instance_id, created_at,
                        updated_at, headers)
    select wanted.id, wanted.kind, wanted.queue_id, coalesce(wanted.run_at, {now}) <= {now} and {may_be_ready new},
           coalesce(wanted.run_at, {now}), wanted.max_attempts, 'unfinished', wanted.input, wanted.instance_id,
           {now}, {now}, wanted.headers
      from wanted where wanted.instance_id = any(array(select moved.id from moved))
)
select moved.id, {now} as now from moved;
