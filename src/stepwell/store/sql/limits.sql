-- Limits: how many tasks of a queue run at once and how many begin in a period, in all and of each key, over all workers.
-- What makes a task of a limited queue RUNNING holds its limiter to the commit, writes the task's id on `admitted`, pays what
-- the task costs and adds to `turn`.

-- name: claim_limited [postgres]
-- bound: 60 + 40 a row
-- Take up to :limit ready tasks of a limited queue: for a session whose fence stands, or by hand (without :worker) for
-- :visibility microseconds. From key to key, beginning after the one served last, each as many as its weight says; the place
-- in a round is never saved up. No one waits for a limiter, and no round trip happens while it is locked.
-- `held` is the limiter as it is, `seen` as the snapshot has it: with the same turn, the snapshot shows every task that was
-- let in, and whatever it does not show can only have ended. Ranges of one key, and an order by the key, keep a plan that was
-- made on an empty table on the index of keys.
-- Of a key whose rate its first task exceeds nothing is picked, and of those picked what the rates allow is taken.
-- A row without a task says why none was taken: `busy` and `stale`, others were claiming just now; `gone`, there is no
-- limiter; `wait`, a rate allows none for so many microseconds; `back`, the clock was set back since the last one began.
with recursive fence as materialized (
    select worker_id from {fence} where worker_id = cast(:worker as bigint) and slot = :slot for share
),
clock as materialized (select {now} as now),
waiting as materialized (
    select 1 as one from {task} as task where task.queue_id = :queue_id and task.ready and task.limit_key is not null limit 1
),
held as materialized (
    select limiter.* from {limiter} as limiter
     where limiter.queue_id = :queue_id and exists (select 1 from waiting)
       for update skip locked
),
seen as materialized (select limiter.turn from {limiter} as limiter where limiter.queue_id = :queue_id),
places as materialized (
    select task.id, task.limit_key
      from held join {task} as task on task.id = any(held.admitted)
     where task.status = 'RUNNING'
),
busy as materialized (
    select coalesce(jsonb_object_agg(each.limit_key, each.places), '{}') as keys,
           coalesce(cast(sum(each.places) as bigint), 0) as places
      from (select coalesce(places.limit_key, '') as limit_key, count(*) as places from places group by 1) as each
),
rated as materialized (
    select held.*, clock.now as now, held.rate - held.burst + 1 as flow, held.key_rate - held.key_burst + 1 as key_flow
      from held cross join clock
),
open as materialized (
    select open.*, busy.keys,
           least(cast(:limit as bigint), coalesce(open.running, 1000000) - busy.places,
                 case when open.rate is not null
                      then greatest(1, div((open.now + {price all open.burst} - greatest(open.paid, open.now))
                                           * open.flow, open.period)) end) as room
      from rated as open join seen on seen.turn = open.turn cross join busy
     where (cast(:worker as bigint) is null or exists (select 1 from fence)) and open.now >= open.paid_at
       and (select not queue.paused
                   and not exists (select 1 from {maintenance} as maintenance where maintenance.tenant = queue.tenant)
              from {queue} as queue where queue.id = open.queue_id)
),
walk (limit_key, lap, free, weight, fit, steps, wait) as (
    select open.cursor, 0, cast(0 as bigint), cast(1 as bigint), 0, 0, cast(0 as bigint) from open
     where open.room > 0
       and (open.rate is null or greatest(open.paid, open.now) < open.now + {price all open.burst})
    union all
    select next.limit_key, case when next.wrapped then 1 else walk.lap end, own.free, own.weight,
           walk.fit + case when own.free > 0 then 1 else 0 end, walk.steps + 1, own.wait
      from walk cross join open
     cross join lateral (
        select ahead.* from (
            (select task.limit_key, false as wrapped from {task} as task
              where walk.steps = 0 and open.remaining > 0
                and task.queue_id = :queue_id and task.ready and task.limit_key is not null
                and task.limit_key = walk.limit_key limit 1)
            union all
            (select task.limit_key, false from {task} as task
              where task.queue_id = :queue_id and task.ready and task.limit_key is not null
                and task.limit_key > walk.limit_key order by task.limit_key limit 1)
            union all
            (select task.limit_key, true from {task} as task
              where walk.lap = 0 and task.queue_id = :queue_id and task.ready and task.limit_key is not null
              order by task.limit_key limit 1)) as ahead
         limit 1) as next
     cross join lateral (
        select coalesce((
            select {wait key head.paid head.cost head.cost}
              from (select (select {cost_of task open.wakes_cost} from {task} as task
                             where task.queue_id = :queue_id and task.ready and task.limit_key is not null
                               and task.limit_key >= next.limit_key and task.limit_key <= next.limit_key
                             order by task.limit_key, task.priority desc, task.run_at, task.id limit 1) as cost,
                           {paid_by next.limit_key} as paid
                     where open.key_rate is not null) as head), 0) as wait) as due
     cross join lateral (
        select case when said.paused_at is not null or due.wait > 0 then 0
                    when coalesce(said.running, open.per_key) is null then :limit
                    else coalesce(said.running, open.per_key)
                         - coalesce(cast(open.keys ->> next.limit_key as bigint), 0) end as free,
               case when walk.steps = 0 and open.remaining > 0 and next.limit_key = open.cursor then open.remaining
                    else coalesce(said.weight, 1) end as weight,
               case when said.paused_at is null then due.wait else 0 end as wait
          from (select 1) as one
          left join {key_limit} as said on said.queue_id = :queue_id and said.limit_key = next.limit_key) as own
     where walk.fit < open.room and walk.steps < :visits
       and not ((next.wrapped or walk.lap = 1)
                and (next.limit_key > open.cursor or (open.remaining > 0 and next.limit_key = open.cursor)))
),
line as materialized (
    select walk.limit_key, walk.free, walk.weight, walk.steps as place,
           cast(sum(walk.weight) over () as bigint) as weights
      from walk where walk.steps > 0 and walk.free > 0
),
picked as materialized (
    select walked.spot, walked.id, line.limit_key, line.place, line.weight, walked.cost,
           row_number() over same_key as nth, sum(walked.cost) over same_key as key_cost
      from open cross join line
     cross join lateral (
        select task.id, task.ctid as spot, task.priority, task.run_at, {cost_of task open.wakes_cost} as cost from {task} as task
         where task.queue_id = :queue_id and task.ready and task.limit_key is not null
           and task.limit_key >= line.limit_key and task.limit_key <= line.limit_key
           and (cast(:worker as bigint) is not null or task.position is null) is true and {in_time task} is true
         order by task.limit_key, task.priority desc, task.run_at, task.id
         limit least(line.free, line.weight * ((open.room + line.weights - 1) / line.weights))
           for update skip locked) as walked
    window same_key as (partition by line.limit_key order by walked.priority desc, walked.run_at, walked.id)
),
ranked as (
    select picked.*, row_number() over turns as rank, sum(picked.cost) over turns as all_cost
      from picked cross join open
     where open.key_rate is null
        or (select {wait key own.paid picked.cost picked.key_cost}
              from (select {paid_by picked.limit_key} as paid) as own) <= 0
    window turns as (order by (picked.nth - 1) / picked.weight, picked.place, picked.nth)
),
taken as materialized (
    select ranked.* from ranked cross join open
     where ranked.rank <= open.room
       and (open.rate is null or {wait all open.paid ranked.cost ranked.all_cost} <= 0)
),
kept as (
    update {limiter} as limiter
       set turn = limiter.turn + 1,
           admitted = array(select places.id from places union all select taken.id from taken),
           cursor = coalesce((select taken.limit_key from taken order by taken.rank desc limit 1),
                             (select walk.limit_key from walk order by walk.steps desc limit 1), limiter.cursor),
           remaining = coalesce((select taken.weight - 1 - (taken.nth - 1) % taken.weight
                                   from taken order by taken.rank desc limit 1), 0),
           paid = case when open.rate is null then limiter.paid
                       else greatest(open.paid, open.now) + {price all (select sum(taken.cost) from taken)} end,
           paid_at = case when open.rate is null and open.key_rate is null then limiter.paid_at else open.now end
      from open
     where limiter.queue_id = open.queue_id
       and (exists (select 1 from taken) or (select max(walk.steps) from walk) >= :visits)
),
charged as (
    insert into {key_paid} (queue_id, limit_key, paid)
    select open.queue_id, spent.limit_key, greatest({paid_by spent.limit_key}, open.now) + {price key spent.cost}
      from (select taken.limit_key, sum(taken.cost) as cost from taken group by taken.limit_key) as spent cross join open
     where open.key_rate is not null and spent.cost > 0
    on conflict (queue_id, limit_key) do update set paid = excluded.paid
),
done as (
    update {task} as task
       set status = 'RUNNING', ready = false, owner = cast(:worker as bigint), worker_id = cast(:worker as bigint),
           turn = task.turn + 1, attempt = task.attempt + 1,
           scheduled_for = case when cast(:worker as bigint) is null then task.run_at else task.scheduled_for end,
           run_at = case when cast(:worker as bigint) is null then open.now + cast(:visibility as bigint)
                         else task.run_at end,
           claimed_at = open.now, started_at = coalesce(task.started_at, open.now), updated_at = open.now
      from open
     where task.ctid = any(array(select taken.spot from taken))
    returning task.id, task.kind, task.queue_id, task.turn, task.attempt, task.max_attempts, task.priority,
              case when cast(:worker as bigint) is null then task.scheduled_for else task.run_at end as run_at,
              task.key, task.input, task.wakes, task.parent_id, task.suspect, task.created_at, task.claimed_at,
              task.started_at, task.cleanup_until, task.generation, task.group_key, task.keeps_result, task.headers,
              task.timeout, task.deadline_at, task.ends_children
)
select done.* from done
union all
select 0, case when exists (select 1 from held) then 'stale' when exists (select 1 from seen) then 'busy' else 'gone' end,
       :queue_id, 0, 0, 0, 0, 0, null, null, 0, null, false, 0, 0, 0, null, 0, null,
       false, null, null, null, false
 where exists (select 1 from waiting)
   and not exists (select 1 from held join seen on seen.turn = held.turn)
union all
select 0, 'back', :queue_id, 0, 0, 0, 0, 0, null, null, 0, null, false, 0, 0, 0, null, 0, null, false, null, null,
       null, false
  from rated where rated.now < rated.paid_at
union all
select 0, 'wait', :queue_id, 0, 0, 0, 0, until.wait, null, null, 0, null, false, 0, 0, 0, null, 0, null, false, null, null,
       null, false
  from (select coalesce((select {wait all open.paid ranked.cost ranked.all_cost} from ranked
                          where ranked.rank = 1 and open.rate is not null),
                        (select min(walk.wait) from walk where walk.wait > 0),
                        greatest(open.paid, open.now) + {price all 1} - {price all open.burst} - open.now) as wait
          from open where open.room > 0) as until
 where until.wait > 0 and not exists (select 1 from taken);

-- name: open_limiter [sqlite]
-- scans maintenance: Turso; a row for each tenant in which nothing is claimed.
-- The limiter of a queue that has ready tasks and is not paused, for a session whose fence stands, or for none.
select limiter.running, limiter.per_key, limiter.admitted, limiter.cursor, limiter.remaining, {rates limiter}
  from {limiter} as limiter
 where limiter.queue_id = :queue_id
   and exists (select 1 from {task} as task
                where task.queue_id = :queue_id and task.ready and task.limit_key is not null)
   and (:worker is null or exists (select 1 from {fence} where worker_id = :worker and slot = :slot))
   and exists (select 1 from {queue} where id = :queue_id and not paused
                  and tenant not in (select maintenance.tenant from {maintenance} as maintenance));

-- name: lock_limiter
-- bound: 8
-- Lock the limiter of a queue until the transaction ends: who waits for it sees in a later statement who was let in.
select limiter.running, limiter.per_key, limiter.declared, limiter.edited, limiter.adopted, {rates limiter}
  from {limiter} as limiter where limiter.queue_id = :queue_id {for_update};

-- name: places
-- bound: 12 + 6 a row
-- Who has a place in a limited queue, of those let in.
select task.id, coalesce(task.limit_key, '') as limit_key
  from {limiter} as limiter {admitted_tasks}
 where limiter.queue_id = :queue_id and (task.status = 'RUNNING') is true;

-- name: keys_ahead [sqlite]
-- Keys of a limited queue that have ready tasks, from the one given on, and what is said of each.
with recursive step (limit_key, nth) as (
    select (select task.limit_key from {task} as task
             where task.queue_id = :queue_id and task.ready and task.limit_key is not null and task.limit_key >= :after
             order by task.limit_key limit 1), 1
    union all
    select (select task.limit_key from {task} as task
             where task.queue_id = :queue_id and task.ready and task.limit_key is not null
               and task.limit_key > step.limit_key
             order by task.limit_key limit 1), step.nth + 1
      from step where step.limit_key is not null and step.nth < :most
)
select step.limit_key,
       (select said.weight from {key_limit} as said
         where said.queue_id = :queue_id and said.limit_key = step.limit_key) as weight,
       (select said.running from {key_limit} as said
         where said.queue_id = :queue_id and said.limit_key = step.limit_key) as running,
       (select said.paused_at from {key_limit} as said
         where said.queue_id = :queue_id and said.limit_key = step.limit_key) as paused_at,
       case when :rated then (select paid.paid from {key_paid} as paid
         where paid.queue_id = :queue_id and paid.limit_key = step.limit_key) end as paid,
       case when :rated then (select {cost_of task :wakes_cost} from {task} as task
         where task.queue_id = :queue_id and task.ready and task.limit_key is not null and task.limit_key = step.limit_key
         order by task.priority desc, task.run_at, task.id limit 1) end as cost
  from step where step.limit_key is not null;

-- name: ready_of_key [sqlite]
-- The ready tasks of a key, in the order in which they are taken, and what each costs; by hand none of an ordered group.
select task.id, {cost_of task :wakes_cost} as cost from {task} as task
 where task.queue_id = :queue_id and task.ready and task.limit_key is not null and task.limit_key = :limit_key
   and (:worker is not null or task.position is null) and {in_time task}
 order by task.priority desc, task.run_at, task.id
 limit :limit;

-- name: take_picked [sqlite]
-- Take these tasks, for a session or by hand.
update {task}
   set status = 'RUNNING', ready = false, owner = :worker, worker_id = :worker, turn = turn + 1, attempt = attempt + 1,
       scheduled_for = case when :worker is null then run_at else scheduled_for end,
       run_at = case when :worker is null then {now} + :visibility else run_at end,
       claimed_at = {now}, started_at = coalesce(started_at, {now}), updated_at = {now}
 where id {among ids}
returning id, kind, queue_id, turn, attempt, max_attempts, priority,
          case when :worker is null then scheduled_for else run_at end as run_at, key, input, wakes, parent_id, suspect,
          created_at, claimed_at, started_at, cleanup_until, generation, group_key, keeps_result, headers,
          timeout, deadline_at, ends_children;

-- name: keep_limiter [sqlite]
-- Note who was let in, where the next claim begins, and until when the rate is paid.
update {limiter} set turn = turn + 1, admitted = :admitted, cursor = :cursor, remaining = :remaining, paid = :paid,
                     paid_at = :paid_at
 where queue_id = :queue_id returning turn;

-- name: admit
-- bound: 16
-- Let one more task in, where the limiter is locked.
update {limiter} set turn = turn + 1, admitted = {admitted_and_one} where queue_id = :queue_id returning turn;

-- name: pay
-- bound: 12
-- Note until when the rate of a queue is paid, where its limiter is locked.
update {limiter} set turn = turn + 1, paid = :paid, paid_at = :paid_at where queue_id = :queue_id returning turn;

-- name: paid_of_keys
-- bound: 6 + 6 a row
-- Until when the rates of these keys are paid.
with rows as ({rows queue_id bigint, limit_key text})
select rows.limit_key, paid.paid
  from rows join {key_paid} as paid on paid.queue_id = rows.queue_id and paid.limit_key = rows.limit_key;

-- name: pay_keys
-- bound: 6 + 12 a row
-- Note until when the rates of these keys are paid, where their limiter is locked.
with rows as ({rows queue_id bigint, limit_key text, paid bigint})
insert into {key_paid} (queue_id, limit_key, paid)
select rows.queue_id, rows.limit_key, rows.paid from rows where true
on conflict (queue_id, limit_key) do update set paid = excluded.paid
returning queue_id;

-- name: set_back_keys
-- unbounded: one row for each key of one queue that was served lately, when the clock was set back.
-- Set back until when the rates of a queue's keys are paid, as the clock was.
update {key_paid} set paid = paid - cast(:by as bigint) where queue_id = :queue_id returning queue_id;

-- name: paid_after
-- bound: 10 + 2 a row
-- Keys of a queue after the one given, and until when the rate of each is paid.
select paid.limit_key, paid.paid from {key_paid} as paid
 where paid.queue_id = :queue_id and paid.limit_key > cast(:after as text)
 order by paid.limit_key limit :limit;

-- name: forget_paid
-- unbounded: the keys of one queue between two of them; the caller names those that it has just looked at.
-- Forget those of a range of keys whose rates have rested since a moment.
delete from {key_paid}
 where queue_id = :queue_id and limit_key > cast(:after as text) and limit_key <= cast(:last as text)
   and (paid < {now} - cast(:rested as bigint)) is true
returning limit_key;

-- name: costs_of
-- bound: 6 + 8 a row
-- Lock tasks of limited queues that tell what they have cost, in turns that are the last; and what is known so far.
with rows as ({rows id bigint, turn bigint, cost bigint})
select task.id, task.queue_id, task.limit_key, coalesce(task.cost, 1) as cost
  from rows join {task} as task on task.id = rows.id
 where task.id {any_of rows} and (task.turn = rows.turn and task.limit_key is not null) is true
 order by task.id + 0
 {for_update_of_task};

-- name: note_costs
-- bound: 6 + 16 a row
-- Note what these tasks have cost: the next attempt costs that too.
with rows as ({rows id bigint, turn bigint, cost bigint})
update {task} as task set cost = rows.cost from rows
 where task.id = rows.id and task.id {any_of rows} and (task.turn = rows.turn and task.limit_key is not null) is true
returning {own task}id;

-- name: admit_running
-- unbounded: what workers execute, by their sessions; once or twice, when a queue gets limits.
-- scans task: SQLite and Turso, the index of what is executed.
-- Let in whatever is executed and was not let in: what was claimed just before the queue had limits.
with found as materialized (
    select task.id from {task} as task
     where task.owner is not null and task.owner > 0 and task.queue_id = :queue_id
    union all
    select task.id from {task} as task
     where not task.ready and task.owner is null and task.deleted_at is null and task.status = 'RUNNING'
       and task.queue_id = :queue_id
)
update {limiter} set turn = turn + 1, admitted = {admitted_and_found}
 where queue_id = :queue_id returning queue_id;

-- name: limiters
-- unbounded: one row for each queue that has limits.
-- scans limiter: all of them.
-- scans key_limit: Turso; what is said of keys.
-- The queues that have limits, and what is said of them.
select queue.id, queue.name, limiter.running, limiter.per_key, limiter.declared, limiter.edited, {rates limiter},
       (select count(*) from {key_limit} as said where said.queue_id = limiter.queue_id and said.paused_at is not null)
         as paused_keys
  from {limiter} as limiter {one_of queue.id limiter.queue_id}
 where queue.tenant = :tenant
 order by queue.name;

-- name: limited_among
-- bound: 6 + 4 a row
-- Which of these queues have limits, whether code declares them, and whether their earlier tasks have keys.
with rows as ({rows queue_id bigint})
select limiter.queue_id, limiter.declared, limiter.adopted, limiter.key_rate, limiter.key_period, limiter.key_burst
  from rows join {limiter} as limiter on limiter.queue_id = rows.queue_id
 where limiter.queue_id {any_of rows.queue_id};

-- name: put_limiter
-- bound: 16
-- Make or change the limiter of a queue. If its tasks get an order, those from before it are to be placed.
insert into {limiter} as limiter (queue_id, running, per_key, declared, edited, updated_at, rate, period, burst, key_rate,
                                  key_period, key_burst, wakes_cost)
values (cast(:queue_id as bigint), cast(:running as bigint), cast(:per_key as bigint), {json_of declared}, {json_of edited},
        {now}, cast(:rate as bigint), cast(:period as bigint), cast(:burst as bigint), cast(:key_rate as bigint),
        cast(:key_period as bigint), cast(:key_burst as bigint), :wakes_cost)
on conflict (queue_id) do update
   set running = excluded.running, per_key = excluded.per_key, declared = excluded.declared, edited = excluded.edited,
       turn = limiter.turn + 1, updated_at = excluded.updated_at, rate = excluded.rate, period = excluded.period,
       burst = excluded.burst, key_rate = excluded.key_rate, key_period = excluded.key_period,
       key_burst = excluded.key_burst, wakes_cost = excluded.wakes_cost,
       adopted = limiter.adopted and not cast(:begins_order as boolean)
returning queue_id;

-- name: lock_queue
-- bound: 8
-- Lock a queue that is about to get limits: it waits for adds that are under way, and what is added afterwards has a key.
select queue.id, queue.ordered is not null as ordered from {queue} as queue where queue.id = :queue_id {for_update};

-- name: limit_queue
-- bound: 16
-- Let the tasks of a queue be claimed through its limiter, or no more.
update {queue} set limited = :limited, key_path = cast(:path as text), cost_path = cast(:cost_path as text),
                   ordered = cast(:ordered as text)
 where id = :queue_id returning id;

-- name: adopt_tasks
-- unbounded: it steps over the tasks of other queues, once, when a queue gets limits.
-- Give a key to up to :limit tasks that were added before their queue had limits, after the id given.
with found as materialized (
    select task.id from {task} as task
     where task.queue_id = :queue_id and task.limit_key is null and task.id > :after
     order by task.id
     limit :limit
)
update {task} as task
   set limit_key = (select coalesce({key_of_task}, '') from {queue} as queue where queue.id = :queue_id),
       cost = (select coalesce(task.cost, {cost_in_task}) from {queue} as queue where queue.id = :queue_id)
 where task.id {any_of found}
returning id;

-- name: note_adopted
-- bound: 12
-- All tasks from before the limits have a key, and no claim is under way any more that knew of none.
update {limiter} set adopted = true
 where queue_id = :queue_id and updated_at <= {now} - cast(:settled as bigint)
returning queue_id;

-- name: drop_limiter
-- bound: 10
-- Remove the limiter of a queue.
delete from {limiter} where queue_id = :queue_id returning queue_id;

-- name: drop_key_limits
-- unbounded: what was said of each key of one queue.
-- Remove what was said of the keys of a queue.
delete from {key_limit} where queue_id = :queue_id returning queue_id;

-- name: put_key_limit
-- bound: 16
-- Say of a key how many of it run at once and how often it comes; what is not said stays.
insert into {key_limit} as key_limit (queue_id, limit_key, weight, running)
values (cast(:queue_id as bigint), cast(:limit_key as text), coalesce(cast(:weight as bigint), 1), cast(:running as bigint))
on conflict (queue_id, limit_key) do update
   set weight = coalesce(cast(:weight as bigint), key_limit.weight),
       running = case when :keeps then key_limit.running else excluded.running end
returning queue_id;

-- name: pause_key
-- bound: 16
-- Start nothing of a key until it is resumed.
insert into {key_limit} as key_limit (queue_id, limit_key, paused_at, pause_reason)
values (cast(:queue_id as bigint), cast(:limit_key as text), {now}, cast(:reason as text))
on conflict (queue_id, limit_key) do update
   set paused_at = coalesce(key_limit.paused_at, excluded.paused_at), pause_reason = excluded.pause_reason
returning queue_id;

-- name: resume_key
-- bound: 16
-- Let tasks of a key begin again.
update {key_limit} set paused_at = null, pause_reason = null
 where queue_id = :queue_id and limit_key = cast(:limit_key as text) and paused_at is not null
returning queue_id;

-- name: forget_key
-- bound: 12
-- Forget a key of which nothing is said any more.
delete from {key_limit}
 where queue_id = :queue_id and limit_key = cast(:limit_key as text) and weight = 1 and running is null and paused_at is null
returning queue_id;

-- name: keys
-- bound: 40 + 40 a row
-- The keys of a limited queue after the one given: those with ready tasks, or of which something is said.
with recursive step (limit_key, nth) as (
    select (select task.limit_key from {task} as task
             where task.queue_id = :queue_id and task.ready and task.limit_key is not null
               and task.limit_key >= cast(:after as text) and (task.limit_key > cast(:after as text) or :first)
             order by task.limit_key limit 1), 1
    union all
    select (select task.limit_key from {task} as task
             where task.queue_id = :queue_id and task.ready and task.limit_key is not null
               and task.limit_key > step.limit_key
             order by task.limit_key limit 1), step.nth + 1
      from step where step.limit_key is not null and step.nth < :limit
),
named as materialized (
    select step.limit_key from step where step.limit_key is not null
    union
    select listed.limit_key
      from (select said.limit_key from {key_limit} as said
             where said.queue_id = :queue_id and said.limit_key >= cast(:after as text)
               and (said.limit_key > cast(:after as text) or :first)
             order by said.limit_key limit :limit) as listed
)
select named.limit_key,
       (select said.weight from {key_limit} as said
         where said.queue_id = :queue_id and said.limit_key = named.limit_key) as weight,
       (select said.running from {key_limit} as said
         where said.queue_id = :queue_id and said.limit_key = named.limit_key) as running,
       (select said.paused_at from {key_limit} as said
         where said.queue_id = :queue_id and said.limit_key = named.limit_key) as paused_at,
       (select said.pause_reason from {key_limit} as said
         where said.queue_id = :queue_id and said.limit_key = named.limit_key) as pause_reason,
       (select count(*) from (select 1 as one from {task} as task
                               where task.queue_id = :queue_id and task.ready and task.limit_key is not null
                                 and task.limit_key = named.limit_key
                               limit :most) as counted) as ready,
       (select task.run_at from {task} as task
         where task.queue_id = :queue_id and task.ready and task.limit_key is not null
           and task.limit_key >= named.limit_key and task.limit_key <= named.limit_key
         order by task.limit_key, task.priority desc, task.run_at, task.id limit 1) as since
  from named
 order by named.limit_key
 limit :limit;

-- name: limits_on
-- bound: 60
-- What is said of the queue and the key of a task, and how many ready tasks of its key there are, and come before it, of the
-- first :most.
select limiter.running, limiter.per_key, task.queue_id, coalesce(task.limit_key, '') as limit_key, {rates limiter},
       {cost_of task limiter.wakes_cost} as cost, own.paid as key_paid,
       said.running as key_running, said.paused_at, said.pause_reason,
       (select count(*) from (
            select 1 as one from {task} as other
             where other.queue_id = task.queue_id and other.ready and other.limit_key is not null
               and other.limit_key >= task.limit_key and other.limit_key <= task.limit_key
             order by other.limit_key, other.priority desc, other.run_at, other.id
             limit :most) as counted) as waiting,
       (select count(case when line.priority > task.priority or (line.priority = task.priority
                                and (line.run_at, line.id) < (task.run_at, task.id)) then 1 end)
          from (select first.priority, first.run_at, first.id from {task} as first
                 where first.queue_id = task.queue_id and first.ready and first.limit_key is not null
                   and first.limit_key >= task.limit_key and first.limit_key <= task.limit_key
                 order by first.limit_key, first.priority desc, first.run_at, first.id
                 limit :most) as line) as before
  from {task} as task
  join {limiter} as limiter on limiter.queue_id = task.queue_id
  left join {key_limit} as said on said.queue_id = task.queue_id and said.limit_key = task.limit_key
  left join {key_paid} as own on own.queue_id = task.queue_id and own.limit_key = task.limit_key
 where task.id = :id;

-- name: limited_suspects
-- bound: 20
-- scans maintenance: Turso; a row for each tenant in which nothing is claimed.
-- The suspect of limited queues that is to be executed alone next, and its key.
select task.id, task.queue_id, coalesce(task.limit_key, '') as limit_key, coalesce(task.cost, 1) as cost
  from {task} as task
 where task.losses > 0 and task.owner is null and task.status = 'PENDING' and not task.waits_for_previous
   and task.deleted_at is null and task.held_at is null and task.run_at <= {now} and task.queue_id {among queues}
   and (select queue.limited and not queue.paused
               and queue.tenant not in (select maintenance.tenant from {maintenance} as maintenance)
          from {queue} as queue where queue.id = task.queue_id)
 order by task.losses, task.run_at
 limit 1;

-- name: forget_all_paid
-- unbounded: one row for each key of one queue that was served lately.
-- Forget until when the rates of a queue's keys are paid.
delete from {key_paid} where queue_id = :queue_id returning queue_id;

-- name: key_limit
-- bound: 8
-- What is said of a key.
select said.running, said.paused_at from {key_limit} as said
 where said.queue_id = :queue_id and said.limit_key = cast(:limit_key as text);
