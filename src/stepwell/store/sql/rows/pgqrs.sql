-- The statements on the tables of pgqrs 0.15 in a Postgres database: what `move_from_pgqrs` reads there, and the one thing
-- that it changes. `<taken>` is the table of what it has taken, or nothing where there is none yet.

-- name: pgqrs_shape
-- Say how many of the columns that matter are there, of six, and whether something was taken before.
select count(*) as found, to_regclass(:taken) is not null as has_taken
  from information_schema.columns
 where table_schema = :schema
   and table_name || '.' || column_name in (
       'pgqrs_messages.archived_at', 'pgqrs_messages.consumer_worker_id', 'pgqrs_workflows.queue_id',
       'pgqrs_workflow_runs.message_id', 'pgqrs_workflow_runs.completed_at', 'pgqrs_workflow_steps.retry_at');

-- name: pgqrs_lock
-- Let no other transaction change messages until this one ends; all may read them.
lock table {pgqrs_messages} in share row exclusive mode;

-- name: pgqrs_busy
-- Who may be at work: messages whose time with a consumer is not over, and workers that have polled lately.
select (select count(*) from {pgqrs_messages}
         where archived_at is null and consumer_worker_id is not null and vt > now()) as taken,
       (select count(*) from {pgqrs_workers}
         where status = 'polling' and shutdown_at is null and heartbeat_at > now() - interval '2 minutes') as polling;

-- name: pgqrs_names
-- Every queue, and whether it is that of a workflow.
select queue.queue_name as name, workflow.id is not null as of_workflow
  from {pgqrs_queues} as queue left join {pgqrs_workflows} as workflow on workflow.queue_id = queue.id
 order by queue.id;

-- name: pgqrs_begin
-- Make the table of what was taken.
create table if not exists {stepwell_moved} (message_id bigint primary key, moved_at timestamptz);

-- name: pgqrs_take
-- Take every message that is not done: archived, no consumer there gets it any more. It is listed until it has arrived.
with open as (
    update {pgqrs_messages} set archived_at = now() where archived_at is null returning id
)
insert into {stepwell_moved} as moved (message_id) select open.id from open
on conflict (message_id) do update set moved_at = null
returning moved.message_id;

-- name: pgqrs_page
-- A page of messages, each with its run if it has one; what was taken and has arrived is not in it.
select message.id, queue.queue_name as queue, workflow.id is not null as is_run,
       moved.message_id is not null or message.archived_at is null as is_open,
       cast(message.payload as text) as payload, message.read_ct as reads,
       message.consumer_worker_id is not null as has_consumer,
       message.vt as due_at, message.enqueued_at as created_at,
       message.dequeued_at as claimed_at, message.archived_at,
       run.id as run_id, cast(run.status as text) as status, cast(run.output as text) as output,
       cast(run.error as text) as error, run.updated_at, run.started_at,
       run.paused_at, run.completed_at
  from {pgqrs_messages} as message
  join {pgqrs_queues} as queue on queue.id = message.queue_id
  left join {pgqrs_workflows} as workflow on workflow.queue_id = queue.id
  left join {pgqrs_workflow_runs} as run on run.message_id = message.id
  left join <taken> as moved on moved.message_id = message.id
 where message.id > :after and moved.moved_at is null
 order by message.id
 limit :limit;

-- name: pgqrs_steps
-- The steps of these runs, in the order in which they were first asked for.
with rows as ({rows id bigint})
select step.run_id, step.step_name as name, cast(step.status as text) as status, cast(step.output as text) as output,
       cast(step.error as text) as error, step.retry_count as retries, step.retry_at,
       step.started_at, step.completed_at,
       step.created_at
  from {pgqrs_workflow_steps} as step
 where step.run_id {any_of rows}
 order by step.run_id, step.id;

-- name: pgqrs_arrived
-- Note that these have arrived: they are not moved again.
with rows as ({rows id bigint})
update {stepwell_moved} set moved_at = now() where message_id {any_of rows} returning message_id;
