-- Ordered groups: tasks of a queue that are executed one after the other, in the order in which they were committed. Who
-- adds to a group, and who ends a task of one, locks the group first and looks at its tasks in a statement of its own:
-- a snapshot that is older than the lock does not show what the lock waited for.

-- name: join_groups
-- bound: 6 + 11 a row
-- Lock these groups until the transaction ends, in one order for all, and give each as many positions as it gets
-- tasks. A group that is not there is made; if others see its positions (`by_time`), they begin after the time, so that
-- they rise even if it is removed and made again.
with rows as ({rows queue_id bigint, group_key text, after_failure name, added bigint, by_time bigint})
insert into {ordered_group} as ordered_group (queue_id, group_key, last_position, after_failure, positions_after)
select rows.queue_id, rows.group_key, rows.added, rows.after_failure, rows.by_time * {now} from rows where true
 order by rows.queue_id, rows.group_key
on conflict (queue_id, group_key) do update
   set last_position = ordered_group.last_position + excluded.last_position, after_failure = excluded.after_failure,
       emptied_at = null
returning queue_id as id, '' as answer;

-- name: add_in_order
-- bound: 6 + 36 a row
-- Write those of the tasks whose id and key are not there yet, at the last positions of their groups, which `join_groups`
-- has locked: `behind` is how many of the same group come after it in this statement. The first of an empty group may be
-- executed, all others wait for the one before them. Queues as in `add_tasks`.
with rows as ({rows id bigint, kind name, queue_id bigint, priority bigint, delay bigint, run_at bigint,
                    max_attempts bigint, key text, key_scope name, payload_hash name, input json, tags json,
                    parent_id bigint, inside bigint, limit_key text, cost bigint, headers json, until_begun bigint,
                    expires_after bigint, expires_at bigint, keeps_result bigint, timeout bigint, deadline_at bigint,
                    on_parent_end name, group_key text, behind bigint, is_first bigint}),
taking as materialized (
    select queue.id, queue.draining, queue.limited, queue.key_path, queue.cost_path from {queue} as queue
     where queue.id {any_of rows.queue_id} {for_key_share}
),
placed as materialized (
    select rows.id,
           (select ordered_group.positions_after + ordered_group.last_position from {ordered_group} as ordered_group
             where ordered_group.queue_id = rows.queue_id and ordered_group.group_key = rows.group_key limit 1)
             - rows.behind as position,
           rows.is_first = 0
             or (select before.id from {task} as before
                  where before.queue_id = rows.queue_id and before.group_key = rows.group_key
                    and before.position is not null
                  order by before.position limit 1) is not null as waits
      from rows
)
insert into {task} (id, kind, queue_id, ready, priority, run_at, max_attempts, key, key_scope, payload_hash, input, tags,
                    parent_id, created_at, updated_at, group_key, position, waits_for_previous, limit_key, cost, headers,
                    key_until_begun, expires_at, keeps_result, timeout, deadline_at, on_parent_end)
select rows.id, rows.kind, rows.queue_id,
       coalesce(rows.run_at, {now} + rows.delay) <= {now} and not placed.waits and {may_be_ready new},
       rows.priority, coalesce(rows.run_at, {now} + rows.delay), rows.max_attempts, rows.key, rows.key_scope,
       rows.payload_hash, rows.input, rows.tags, rows.parent_id, {now}, {now}, rows.group_key, placed.position,
       placed.waits, {limit_key}, {cost}, rows.headers, rows.until_begun = 1,
       coalesce(rows.expires_at, {now} + rows.expires_after), rows.keeps_result = 1, rows.timeout, rows.deadline_at,
       rows.on_parent_end
  from rows join placed on placed.id = rows.id
 where rows.queue_id in (select taking.id from taking where not taking.draining)
    or rows.inside = 1 and rows.queue_id in (select taking.id from taking)
on conflict do nothing
returning id, status as answer;

-- name: order_keys
-- bound: 6 + 5 a row
-- Of these new tasks, those whose queue keeps the order of its keys, and the key of each.
with rows as ({rows id bigint, queue_id bigint, input json, limit_key text}),
taking as materialized (
    select queue.id, queue.limited, queue.key_path from {queue} as queue
     where queue.id {any_of rows.queue_id} and (queue.ordered is not null) is true
)
select rows.id, {limit_key} as limit_key from rows where rows.queue_id in (select taking.id from taking);

-- name: tasks_without_order
-- unbounded: it steps over the tasks of other queues, once, when the tasks of a queue get an order.
-- Tasks of a queue whose keys are in order, after the id given, that have no place in it and are not being executed.
select task.id, task.limit_key from {task} as task
 where task.queue_id = :queue_id and task.id > :after and task.limit_key is not null and task.group_key is null
   and exists (select 1 from {queue} as queue where queue.id = :queue_id and queue.ordered is not null)
   and task.owner is null and task.status in ('PENDING', 'PAUSED') and task.deleted_at is null
 order by task.id
 limit :limit;

-- name: place_in_order
-- bound: 6 + 29 a row
-- Put these tasks, which were added before their queue had an order, into the groups of their keys, which are locked: before
-- all that was added since, in the order of their ids. Each waits until `next_in_group` finds it to be the first.
with rows as ({rows id bigint, group_key text})
update {task} as task
   set group_key = rows.group_key, position = task.id - 4611686018427387904, waits_for_previous = true, ready = false,
       updated_at = {now}
  from rows
 where task.id = rows.id and task.id {any_of rows}
   and (task.group_key is null and task.owner is null and task.status in ('PENDING', 'PAUSED')
        and task.deleted_at is null) is true
returning {own task}id;

-- name: hold_back
-- bound: 6 + 29 a row
-- Let those of these tasks wait that are ready and not the first of their group any more.
with rows as ({rows queue_id bigint, group_key text}),
later as materialized (
    select (select task.id from {task} as task
             where task.queue_id = rows.queue_id and task.group_key = rows.group_key and task.position > 0
               and task.position is not null
             order by task.position limit 1) as id
      from rows
)
update {task} as task set waits_for_previous = true, ready = false, updated_at = {now}
 where task.id {any_of later} and (task.owner is null and task.status in ('PENDING', 'PAUSED')) is true
returning {own task}id;

-- name: lock_groups
-- bound: 6 + 6 a row
-- Lock these groups until the transaction ends, in one order for all. By an expression: for the bare columns a plan
-- made on an empty table would walk the whole index.
with rows as ({rows queue_id bigint, group_key text}),
named as materialized (
    select (select found.id from {ordered_group} as found
             where found.queue_id = rows.queue_id and found.group_key = rows.group_key limit 1) as id
      from rows
)
select ordered_group.queue_id as id, '' as answer from {ordered_group} as ordered_group
 where ordered_group.id {any_of named}
 order by ordered_group.queue_id + 0, ordered_group.group_key
 {for_update};

-- name: take_along
-- bound: 12 + 30 a row
-- scans maintenance: a row for each tenant in which nothing is claimed.
-- Take, for the sessions that hold the first tasks of these groups, up to :most of those behind each: all that may be
-- executed, up to the first that may not, or is long. The groups are locked and the turns of the first stand, so no other
-- session takes any of them.
with rows as ({row worker bigint, queue_id bigint, group_key text, position bigint}),
ahead as materialized (
    select {its rows.worker} as worker, walk.id, walk.queue_id, walk.group_key, walk.position, walk.is_open
      from {walk_of rows} (
               select task.id, task.queue_id, task.group_key, task.position,
                      task.status = 'PENDING' and task.deleted_at is null and task.held_at is null and task.losses = 0
                      and task.run_at <= {now} and length(cast(task.input as text)) <= :longest as is_open
                 from {task} as task
                where task.queue_id = {its rows.queue_id} and task.group_key = {its rows.group_key}
                  and task.position > {its rows.position} and task.position is not null
                order by task.position
                limit :most) as walk
),
ends as materialized (
    select ahead.queue_id, ahead.group_key, min(ahead.position) as position from ahead where not ahead.is_open
     group by ahead.queue_id, ahead.group_key
),
walk as materialized (
    select ahead.worker, ahead.id
      from ahead left join ends on ends.queue_id = ahead.queue_id and ends.group_key = ahead.group_key
     where ends.position is null or ahead.position < ends.position
)
update {task} as task
   set status = 'RUNNING', ready = false, owner = walk.worker, worker_id = walk.worker, turn = task.turn + 1,
       attempt = task.attempt + 1, claimed_at = {now}, started_at = coalesce(task.started_at, {now}), updated_at = {now}
  from walk
 where task.id = walk.id and task.id {any_of walk}
   and (select not queue.paused and not queue.limited
               and queue.tenant not in (select maintenance.tenant from {maintenance} as maintenance)
          from {queue} as queue where queue.id = task.queue_id)
returning {own task}id, {own task}queue_id, {own task}group_key, {own task}position, {own task}owner, {own task}turn,
          {own task}attempt, {own task}input, {own task}headers;

-- name: next_in_group
-- bound: 6 + 22 a row
-- Let the first task of each of these groups be executed, if it still waits for one before it. The groups are locked, and
-- what has left them was written by an earlier statement.
with rows as ({rows queue_id bigint, group_key text}),
first as materialized (
    select (select task.id from {task} as task
             where task.queue_id = rows.queue_id and task.group_key = rows.group_key and task.position is not null
             order by task.position limit 1) as id
      from rows
)
update {task} as task
   set waits_for_previous = false,
       ready = task.status = 'PENDING' and task.run_at <= {now} and {may_be_ready task clears waits_for_previous},
       updated_at = {now}
 where task.id {any_of first} and (task.waits_for_previous) is true
returning queue_id as id, case when ready then 'READY' else '' end as answer, group_key;

-- name: note_empty_groups
-- bound: 6 + 13 a row
-- Note which of these groups have no task any more. It changes the row, and that tells a transaction with an older snapshot
-- which is about to add to the group that its snapshot is too old.
with rows as ({rows queue_id bigint, group_key text}),
empty as materialized (
    select (select found.id from {ordered_group} as found
             where found.queue_id = rows.queue_id and found.group_key = rows.group_key limit 1) as id
      from rows
     where (select task.id from {task} as task
             where task.queue_id = rows.queue_id and task.group_key = rows.group_key and task.position is not null
             order by task.position limit 1) is null
)
update {ordered_group} set emptied_at = {now} where id {any_of empty} and (emptied_at is null) is true
returning queue_id as id, '' as answer;

-- name: asleep_groups
-- unbounded: a look for each group of these queues that has tasks.
-- List groups whose first task waits for one before it: there is none, and nothing would ever wake it. Steps from group to
-- group in the index of what is in order.
with recursive rows as ({rows queue_id bigint}),
step as (
    select rows.queue_id,
           (select task.group_key from {task} as task
             where task.queue_id = rows.queue_id and task.position is not null
             order by task.group_key limit 1) as group_key
      from rows
    union all
    select step.queue_id,
           (select task.group_key from {task} as task
             where task.queue_id = step.queue_id and task.group_key > step.group_key and task.position is not null
             order by task.group_key limit 1) as group_key
      from step where step.group_key is not null
)
select step.queue_id, step.group_key from step
 where step.group_key is not null
   and (select task.waits_for_previous from {task} as task
         where task.queue_id = step.queue_id and task.group_key = step.group_key and task.position is not null
         order by task.position limit 1)
 limit :limit;

-- name: note_repaired
-- bound: 6 + 14 a row
-- Count that the first task of these groups was found asleep: people look for what is wrong.
with rows as ({rows queue_id bigint, group_key text}),
named as materialized (
    select (select found.id from {ordered_group} as found
             where found.queue_id = rows.queue_id and found.group_key = rows.group_key limit 1) as id
      from rows
)
update {ordered_group} set repaired = repaired + 1 where id {any_of named} returning queue_id as id;

-- name: remove_groups
-- bound: 12 + 8 a row
-- Remove up to :limit groups of a tenant that have had no task since the moment given; their positions begin anew. One
-- that was found asleep is kept, to be looked into.
with old as materialized (
    select ordered_group.id from {ordered_group} as ordered_group
     where ordered_group.emptied_at is not null and ordered_group.emptied_at < :before and ordered_group.repaired = 0
       and coalesce((select queue.tenant from {queue} as queue where queue.id = ordered_group.queue_id), :tenant) = :tenant
     order by ordered_group.emptied_at
     limit :limit
     {skip_locked}
)
delete from {ordered_group} where id {any_of old} returning queue_id as id;

-- name: queues_in_order
-- unbounded: a look for each queue.
-- List the queues of a tenant that have ordered groups, and how often the first task of one was found asleep.
select queue.id, queue.name,
       (select coalesce(cast(sum(ordered_group.repaired) as bigint), 0) from {ordered_group} as ordered_group
         where ordered_group.repaired > 0 and ordered_group.queue_id = queue.id) as repaired
  from {queue} as queue
 where queue.tenant = :tenant
   and (select ordered_group.id from {ordered_group} as ordered_group
         where ordered_group.queue_id = queue.id order by ordered_group.group_key limit 1) is not null
 order by queue.name;

-- name: group_stats
-- bound: 12 + 30 a row
-- Say of these queues how many tasks stand in ordered groups, in how many, since when the first does, and how many groups
-- wait for a dead letter: it looks at no more than :most tasks of each.
with rows as ({row queue_id bigint})
select {its rows.queue_id} as queue_id, walk.tasks, walk.groups, {now} - walk.since as oldest, walk.stopped
  from {walk_of rows} (
           select count(*) as tasks, count(distinct part.group_key) as groups, min(part.created_at) as since,
                  count(case when part.status = 'ERROR' then 1 end) as stopped
             from (select task.group_key, task.created_at, task.status from {task} as task
                    where task.queue_id = {its rows.queue_id} and task.position is not null
                    order by task.group_key
                    limit :most) as part) as walk;
