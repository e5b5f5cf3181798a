-- Recorded results of a run's steps. A statement that can share a flush with others returns exactly (id, answer) first;
-- here the answer is the step's key.

-- rows new_step: run_id bigint, worker bigint, generation bigint, key name, place bigint, status name, attempt bigint,
--     took bigint, input json, output json, error json, accepts json

-- name: add_steps
-- bound: 6 + 6 a row
-- Record steps that have no row yet, for sessions whose fence stands; a step that does not come back was not recorded.
-- The turn is checked in the process when a step is submitted: a session writes only for a run it still holds, and
-- whatever it submits for one run goes through one connection, in order.
with rows as ({rows new_step}),
fence as (
    select worker_id from {fence} where slot = :slot and worker_id {any_of rows.worker}
     order by worker_id {for_share}
)
insert into {step} (run_id, generation, key, place, status, attempt, input, output, error, accepts, started_at,
                    finished_at)
select rows.run_id, rows.generation, rows.key, rows.place, rows.status, rows.attempt, rows.input, rows.output, rows.error,
       rows.accepts, {now} - rows.took, case when rows.status in ('RUNNING', 'PAUSED') then null else {now} end
  from rows where rows.worker in (select fence.worker_id from fence)
returning run_id as id, key as answer;

-- name: change_steps
-- bound: 6 + 12 a row
-- Record what became of steps that may have a row; one that has a result keeps it, and does not come back. The clock is
-- read once: a wait ends when it begins, as it is recorded, and not some microseconds later.
with rows as ({rows new_step}),
fence as (
    select worker_id from {fence} where slot = :slot and worker_id {any_of rows.worker}
     order by worker_id {for_share}
),
clock as materialized (select {now} as now)
insert into {step} as step (run_id, generation, key, place, status, attempt, input, output, error, accepts,
                            started_at, finished_at)
select rows.run_id, rows.generation, rows.key, rows.place, rows.status, rows.attempt, rows.input, rows.output, rows.error,
       rows.accepts, (select clock.now from clock) - rows.took,
       case when rows.status in ('RUNNING', 'PAUSED') then null else (select clock.now from clock) end
  from rows where rows.worker in (select fence.worker_id from fence)
on conflict (run_id, generation, key) do update
   set status = excluded.status, attempt = excluded.attempt, output = excluded.output, error = excluded.error,
       accepts = excluded.accepts, started_at = excluded.started_at, finished_at = excluded.finished_at
 where step.status not in ('SUCCESS', 'ERROR')
returning {own step}run_id as id, {own step}key as answer;

-- name: record_late
-- bound: 6 + 13 a row
-- Record what the bodies of steps returned after their run was cancelled or has failed, if the run was not claimed
-- since: the turn is the fence, and the task is locked, so that a claim comes before this or finds it. A step that
-- has a result keeps it.
with rows as ({rows run_id bigint, turn bigint, generation bigint, key name, place bigint, attempt bigint, took bigint,
                    input json, output json}),
stopped as materialized (
    select task.id from rows join {task} as task on task.id = rows.run_id
     where task.id {any_of rows.run_id}
       and (task.turn = rows.turn and task.generation = rows.generation
            and (task.status in ('CANCELLED', 'ERROR')
                 or (task.status = 'RUNNING' and task.cancel_requested_at is not null))) is true
     {for_update_of_task}
)
insert into {step} as step (run_id, generation, key, place, status, attempt, input, output, started_at, finished_at)
select rows.run_id, rows.generation, rows.key, rows.place, 'SUCCESS', rows.attempt, rows.input, rows.output,
       {now} - rows.took, {now}
  from rows where rows.run_id in (select stopped.id from stopped)
on conflict (run_id, generation, key) do update
   set status = 'SUCCESS', attempt = excluded.attempt, output = excluded.output, error = null,
       accepts = null, started_at = excluded.started_at, finished_at = excluded.finished_at
 where step.status not in ('SUCCESS', 'ERROR')
returning {own step}run_id as id, {own step}key as answer;

-- name: record_in_turn
-- bound: 12 + 24 a row
-- Record the results of steps in the transaction that their bodies have written in, if the turns of their runs stand,
-- and say what is asked of those runs. It locks the run and not the fence: a process that is frozen between this and
-- its commit does not block the recovery of other runs. A step that has a result keeps it, and does not come back.
with rows as ({rows run_id bigint, worker bigint, turn bigint, generation bigint, key name, place bigint, attempt bigint,
                    took bigint, input json, output json}),
stands as materialized (
    select task.id from {task} as task join rows on rows.run_id = task.id
     where task.id {any_of rows.run_id}
       and (task.status = 'RUNNING' and task.owner = rows.worker and task.turn = rows.turn
            and task.generation = rows.generation) is true
     order by task.id
     {for_share}
)
insert into {step} as step (run_id, generation, key, place, status, attempt, input, output, started_at, finished_at)
select rows.run_id, rows.generation, rows.key, rows.place, 'SUCCESS', rows.attempt, rows.input, rows.output,
       {now} - rows.took, {now}
  from rows where rows.run_id in (select stands.id from stands)
on conflict (run_id, generation, key) do update
   set status = 'SUCCESS', attempt = excluded.attempt, output = excluded.output, error = null,
       accepts = null, started_at = excluded.started_at, finished_at = excluded.finished_at
 where step.status not in ('SUCCESS', 'ERROR')
returning {own step}run_id as id, {own step}key as answer;

-- name: outlast_turns
-- bound: 6 + 7 a row
-- Of these turns, those that stand, once every transaction that has recorded a step in them has ended: what is read
-- after this tells what became of it.
with rows as ({rows id bigint, worker bigint, turn bigint})
select task.id from {task} as task join rows on rows.id = task.id
 where task.id {any_of rows}
   and (task.status = 'RUNNING' and task.owner = rows.worker and task.turn = rows.turn) is true
 order by task.id
 {for_update_of_task};

-- name: end_steps
-- bound: 6 + 12 a row
-- Close the steps that were being executed when their runs ended, so that none is shown at work for ever; in the
-- transaction that ended the runs, or fed by it. Not those of the keys given: `settle_steps` writes them in this very
-- statement, and one statement cannot change a row twice.
with rows as ({rows id bigint, answer name, key name})
update {step} as step set status = 'CANCELLED', finished_at = {now}
 where step.run_id {any_of rows} and (step.status = 'RUNNING') is true
   and exists (select 1 from rows where rows.id = step.run_id and rows.answer in ('CANCELLED', 'ERROR'))
   and not exists (select 1 from rows where rows.id = step.run_id and rows.key = step.key)
returning {own step}run_id as id, '' as answer;

-- name: settle_steps
-- bound: 6 + 12 a row
-- Record what became of steps with the end of their run's turn: fed by the settle, whose fence and turn are theirs, so
-- that both are written or neither. A step that has a result keeps it.
with rows as ({rows id bigint, answer name, generation bigint, key name, place bigint, status name, attempt bigint,
                    took bigint, input json, output json, error json, accepts json}),
clock as materialized (select {now} as now)
insert into {step} as step (run_id, generation, key, place, status, attempt, input, output, error, accepts,
                            started_at, finished_at)
select rows.id, rows.generation, rows.key, rows.place, rows.status, rows.attempt, rows.input, rows.output, rows.error,
       rows.accepts, (select clock.now from clock) - rows.took,
       case when rows.status = 'PAUSED' then null else (select clock.now from clock) end
  from rows where true
on conflict (run_id, generation, key) do update
   set status = excluded.status, attempt = excluded.attempt, output = excluded.output, error = excluded.error,
       accepts = excluded.accepts, started_at = excluded.started_at, finished_at = excluded.finished_at
 where step.status not in ('SUCCESS', 'ERROR')
returning {own step}run_id as id, '' as answer;

-- name: steps_of
-- bound: 6 + 5 a row
-- List what these runs have recorded in a generation, in the order in which they asked for it.
with rows as ({rows id bigint, generation bigint})
select step.run_id, step.generation, step.key, step.place, step.status, step.attempt, step.input, step.output, step.error,
       step.accepts, step.started_at, step.finished_at
  from rows join {step} as step on step.run_id = rows.id and step.generation = rows.generation
 where step.run_id {any_of rows}
 order by step.run_id, step.place;

-- name: forget_generations
-- bound: 8 + 8 a row
-- Remove what earlier generations of runs have recorded; fed by the settle that restarts some of them, in its transaction.
-- What this very transaction records of them is not seen by it, and goes with the next restart.
with rows as ({rows id bigint, generation bigint})
delete from {step}
 where run_id {any_of rows} and generation < (select rows.generation from rows where rows.id = run_id)
returning run_id as id, '' as answer;

-- name: forget_steps
-- bound: 6 + 3 a row
-- Remove the steps of tasks that were removed; fed by the statement that removed them, in its transaction.
with rows as ({rows id bigint, answer name})
delete from {step} where run_id {any_of rows} returning run_id as id, '' as answer;
