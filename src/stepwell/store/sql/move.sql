-- Work that comes from another store, with its times, states and records as they are there.

-- name: moved_before
-- bound: 6 + 8 a row
-- Say when the tasks with these keys were made; null where there is none, which has not come before.
with rows as ({rows queue_id bigint, key text})
select rows.key,
       (select task.created_at from {task} as task
         where task.queue_id = rows.queue_id and task.key = rows.key and {has_key task}
         limit 1) as created_at
  from rows;

-- name: move_tasks
-- bound: 6 + 27 a row
-- Write tasks with the lives that they have had; one whose key is there has come before, and does not come back. The queue
-- is locked as by every add; that it is being drained is no reason to lose what waits elsewhere.
with rows as ({rows id bigint, kind name, queue_id bigint, status name, run_at bigint, turn bigint, attempt bigint,
                    max_attempts bigint, key text, created_at bigint, updated_at bigint, claimed_at bigint,
                    started_at bigint, paused_at bigint, finished_at bigint, last_error text, error json, input json,
                    output json}),
taking as materialized (
    select queue.id, queue.limited, queue.key_path, queue.cost_path from {queue} as queue
     where queue.id {any_of rows.queue_id} {for_key_share}
)
insert into {task} (id, kind, queue_id, status, ready, run_at, turn, attempt, max_attempts, key, created_at, updated_at,
                    claimed_at, started_at, paused_at, finished_at, last_error, error, input, output,
                    limit_key, cost)
select rows.id, rows.kind, rows.queue_id, rows.status,
       rows.status = 'PENDING' and rows.run_at <= {now} and {may_be_ready new}, rows.run_at, rows.turn, rows.attempt,
       rows.max_attempts, rows.key, rows.created_at, rows.updated_at, rows.claimed_at, rows.started_at, rows.paused_at,
       rows.finished_at, rows.last_error, rows.error, rows.input, rows.output,
       {limit_key_in_input}, {cost_in_input}
  from rows
 where rows.queue_id in (select taking.id from taking)
on conflict do nothing
returning id;

-- name: move_steps
-- bound: 6 + 6 a row
-- Write what runs that have just come had recorded.
with rows as ({rows run_id bigint, key text, place bigint, status name, attempt bigint, started_at bigint,
                    finished_at bigint, input json, output json, error json})
insert into {step} (run_id, key, place, status, attempt, started_at, finished_at, input, output, error)
select rows.run_id, rows.key, rows.place, rows.status, rows.attempt, rows.started_at, rows.finished_at, rows.input,
       rows.output, rows.error
  from rows
returning run_id as id;
