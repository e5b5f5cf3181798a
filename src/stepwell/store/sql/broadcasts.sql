-- Broadcasts: they are published in the order of their places, wake the runs that wait for them, and trigger workflows. A
-- run takes them by itself, under its own lock, so to wake it twice does no harm.

-- name: lock_publishing
-- bound: 8
-- Let one broadcast of a tenant be published at a time: their places are in the order of their commits. Who sends one goes
-- on.
select queue.id from {queue} as queue where queue.id = :queue_id {for_no_key_update};

-- name: publish
-- bound: 6 + 20 a row
-- Give broadcasts their places; one that has a place keeps it.
with rows as ({rows task_id bigint, name name, data json})
insert into {broadcast} (tenant, name, task_id, data, published_at)
select :tenant, rows.name, rows.task_id, rows.data, {now} from rows where true
on conflict (task_id) do nothing
returning task_id as id, '' as answer;

-- name: published
-- bound: 8
-- The place of the broadcast that a task publishes.
select broadcast.id as place from {broadcast} as broadcast where broadcast.task_id = :id;

-- name: add_broadcast_keys
-- bound: 6 + 10 a row
-- Note by what a broadcast is found.
with rows as ({rows match name})
insert into {broadcast_key} (tenant, name, match, broadcast_id)
select :tenant, :name, rows.match, :place from rows where true
on conflict do nothing
returning broadcast_id as id, match as answer;

-- name: subscribed
-- bound: 6 + 12 a row
-- Of these choices, those by which runs wait for a name, or workflows are triggered.
with rows as ({rows match name}),
found as materialized (
    select rows.match,
           (select 1 from {subscription} as subscription
             where subscription.tenant = :tenant and subscription.name = :name and subscription.match = rows.match
               and subscription.told is null and subscription.taken is null limit 1) as runs,
           (select 1 from {event_workflow} as event_workflow
             where event_workflow.tenant = :tenant and event_workflow.name = :name
               and event_workflow.match = rows.match limit 1) as workflows
      from rows
)
select found.match, found.runs, found.workflows from found
 where found.runs is not null or found.workflows is not null
 order by found.match;

-- name: open_subscriptions
-- bound: 12 + 9 a row
-- Up to :limit waits for a name and a choice that began before a place, by the numbers of their runs; with whether the run
-- has ended, or has begun anew without the wait.
select subscription.run_id, subscription.generation, subscription.key, subscription.after,
       coalesce((select task.finished_at is not null or task.generation <> subscription.generation
                   from {task} as task where task.id = subscription.run_id), true) as over
  from {subscription} as subscription
 where subscription.tenant = :tenant and subscription.name = :name and subscription.match = :match
   and subscription.told is null and subscription.taken is null and subscription.run_id > :after
 order by subscription.run_id
 limit :limit;

-- name: lock_subscribers
-- bound: 6 + 5 a row
-- Lock those of these runs that no other transaction has locked, in the order of their numbers.
with rows as ({rows id bigint})
select task.id from {task} as task where task.id {any_of rows} order by task.id {skip_locked};

-- name: tell_subscriptions
-- bound: 6 + 12 a row
-- Note that these waits were told of a broadcast, once; their runs are locked.
with rows as ({rows run_id bigint, generation bigint, key name}),
found as materialized (
    select (select open.{row_id} from {subscription} as open
             where open.run_id = rows.run_id and open.generation = rows.generation and open.key = rows.key
               and (open.told is null and open.taken is null) is true) as id
      from rows
)
update {subscription} as subscription set told = :place where subscription.{row_id} {any_of found}
returning run_id as id, '' as answer;

-- name: wake_runs
-- bound: 6 + 20 a row
-- Note that something came for these runs, which are locked: one that checked before will see it when it pauses. One that
-- waits, and is not held back, is ready.
with rows as ({rows id bigint})
update {task} as task
   set wakes = task.wakes + 1,
       status = case when task.status = 'PAUSED' and task.held_at is null then 'PENDING' else task.status end,
       ready = task.ready or (task.status = 'PAUSED' and {may_be_ready task}),
       run_at = case when task.status = 'PAUSED' and task.held_at is null then {now} else task.run_at end,
       updated_at = {now}
  from rows
 where task.id = rows.id and task.id {any_of rows} and (task.finished_at is null) is true
returning {own task}id, {own task}queue_id, {own task}ready;

-- name: subscribe
-- bound: 6 + 30 a row
-- Begin waits: each takes what is published from a moment on, or from where a wait like it has ended. A wait that has begun
-- stays as it is.
with rows as ({rows run_id bigint, generation bigint, key name, name name, match name, since bigint}),
placed as materialized (
    select rows.run_id, rows.generation, rows.key, rows.name, rows.match,
           coalesce((select broadcast.id from {broadcast} as broadcast
                      where broadcast.tenant = :tenant and broadcast.published_at < rows.since
                      order by broadcast.published_at desc, broadcast.id desc limit 1), 0) as first,
           coalesce((select max(before.taken) from {subscription} as before
                      where before.run_id = rows.run_id and before.name = rows.name and before.match = rows.match), 0)
               as taken
      from rows
)
insert into {subscription} (run_id, generation, key, tenant, name, match, after, asked_at)
select placed.run_id, placed.generation, placed.key, :tenant, placed.name, placed.match,
       case when placed.taken > placed.first then placed.taken else placed.first end, {now}
  from placed where true
on conflict do nothing
returning run_id as id, key as answer;

-- name: first_broadcasts
-- bound: 6 + 40 a row
-- The first broadcast that each of these waits may take: behind the place where it began, and behind all that waits of its
-- run with the same name and choice have taken.
with rows as ({rows run_id bigint, generation bigint, key name}),
asked as materialized (
    select rows.run_id, rows.key,
           (select one.{row_id} from {subscription} as one
             where one.run_id = rows.run_id and one.generation = rows.generation and one.key = rows.key
               and one.taken is null) as id
      from rows
),
wanted as materialized (
    select asked.run_id, asked.key,
           (select chosen.broadcast_id from {broadcast_key} as chosen
             where chosen.tenant = :tenant and chosen.name = subscription.name and chosen.match = subscription.match
               and chosen.broadcast_id > subscription.after
               and chosen.broadcast_id > coalesce((select max(before.taken) from {subscription} as before
                                                    where before.run_id = subscription.run_id
                                                      and before.name = subscription.name
                                                      and before.match = subscription.match), 0)
             order by chosen.broadcast_id limit 1) as place
      from asked join {subscription} as subscription on subscription.{row_id} = asked.id
     where subscription.{row_id} {any_of asked}
)
select wanted.run_id, wanted.key, wanted.place, broadcast.task_id, broadcast.data
  from wanted {one_of broadcast.id wanted.place};

-- name: take_broadcasts
-- bound: 6 + 14 a row
-- Note which broadcast each of these waits has taken; their runs are locked.
with rows as ({rows run_id bigint, generation bigint, key name, place bigint}),
found as materialized (
    select rows.place,
           (select one.{row_id} from {subscription} as one
             where one.run_id = rows.run_id and one.generation = rows.generation and one.key = rows.key) as id
      from rows
)
update {subscription} as subscription set taken = found.place, told = null
  from found where subscription.{row_id} = found.id and subscription.{row_id} {any_of found}
returning {own subscription}run_id as id, '' as answer;

-- name: ask_again
-- bound: 6 + 14 a row
-- Let these waits go on behind a broadcast that they have taken and could not read; their runs are locked.
with rows as ({rows run_id bigint, generation bigint, key name}),
found as materialized (
    select (select one.{row_id} from {subscription} as one
             where one.run_id = rows.run_id and one.generation = rows.generation and one.key = rows.key) as id
      from rows
)
update {subscription} as subscription set after = coalesce(taken, after), taken = null
 where subscription.{row_id} {any_of found}
returning run_id as id, '' as answer;

-- name: unsubscribe
-- bound: 6 + 10 a row
-- Forget waits that are over and have taken nothing.
with rows as ({rows run_id bigint, generation bigint, key name}),
found as materialized (
    select (select one.{row_id} from {subscription} as one
             where one.run_id = rows.run_id and one.generation = rows.generation and one.key = rows.key
               and one.taken is null) as id
      from rows
)
delete from {subscription} where {row_id} {any_of found}
returning run_id as id, '' as answer;

-- name: forget_taken
-- bound: 6 + 24 a row
-- Forget what waits of these runs took before the last broadcast of a name and choice: only that counts from now on.
with rows as ({rows run_id bigint, name name, match name, place bigint}),
found as materialized (
    select old.{row_id} as id from rows
      join {subscription} as old on old.run_id = rows.run_id and old.run_id {any_of rows.run_id}
     where (old.name = rows.name and old.match = rows.match and old.taken < rows.place) is true
)
delete from {subscription} where {row_id} {any_of found}
returning run_id as id, '' as answer;

-- name: event_workflows
-- bound: 10 + 3 a row
-- Up to :limit workflows that are triggered for a name and a choice, by the numbers of their queues.
select event_workflow.queue_id, event_workflow.max_attempts, event_workflow.priority
  from {event_workflow} as event_workflow
 where event_workflow.tenant = :tenant and event_workflow.name = :name and event_workflow.match = :match
   and event_workflow.queue_id > :after
 order by event_workflow.queue_id
 limit :limit;

-- name: declare_event_workflows
-- bound: 6 + 14 a row
-- Say which workflows are triggered for which broadcasts, those of the future; one that is known stays.
with rows as ({rows name name, match name, queue_id bigint, max_attempts bigint, priority bigint})
insert into {event_workflow} as event_workflow (tenant, name, match, queue_id, max_attempts, priority, declared_at)
select :tenant, rows.name, rows.match, rows.queue_id, rows.max_attempts, rows.priority, {now} from rows where true
on conflict (tenant, name, match, queue_id) do update
   set max_attempts = excluded.max_attempts, priority = excluded.priority
returning queue_id as id, '' as answer;

-- name: declared_events
-- bound: 8 + 4 a row
-- For which broadcasts a workflow is triggered.
select event_workflow.name, event_workflow.match from {event_workflow} as event_workflow
 where event_workflow.queue_id = :queue_id;

-- name: withdraw_events
-- bound: 6 + 10 a row
-- Trigger a workflow for these broadcasts no more.
with rows as ({rows name name, match name}),
found as materialized (
    select (select one.{row_id} from {event_workflow} as one
             where one.tenant = :tenant and one.name = rows.name and one.match = rows.match
               and one.queue_id = :queue_id) as id
      from rows
)
delete from {event_workflow} where {row_id} {any_of found}
returning queue_id as id, name as answer;

-- name: remove_broadcasts
-- bound: 12 + 30 a row
-- Remove up to :limit broadcasts that were published before the moment given, but for those of which a run was told that has
-- not taken it yet.
with old as materialized (
    select broadcast.id from {broadcast} as broadcast
     where broadcast.tenant = :tenant and broadcast.published_at < :before
       and (not exists (select 1 from {subscription} as subscription
                         where subscription.told is not null and subscription.told = broadcast.id)) is true
     order by broadcast.published_at
     limit :limit
     {skip_locked}
)
delete from {broadcast} where id {any_of old} returning id, task_id;

-- name: remove_broadcast_keys
-- bound: 12 + 6 a row
-- Remove that by which broadcasts were found; with them, in their transaction.
delete from {broadcast_key} where broadcast_id {among ids};

-- name: remove_subscriptions
-- bound: 12 + 3 a row
-- Remove the waits of tasks that are removed; with them, in their transaction.
delete from {subscription} where run_id {among ids};
