-- [postgres] all at once, and in the order in which everybody else locks them (see 0003).
lock table {worker}, {task}, {queue} in access exclusive mode;

-- The session that claimed the task last, for people; also after it was settled, when it has no owner any more. Null if none
-- has, or if somebody has taken it by hand since. Sessions that have ended are removed after a time, and it is not changed
-- then: no foreign key, and no index, so that the claim pays for a number more in a row that it writes anyway.
alter table {task} add column worker_id bigint;

-- [sqlite]
drop view {messages};

-- Plain tasks of queues; also the worker that had each last.
{replace_view} {messages} as
select task.id, task.tenant, task.queue, task.status, task.state, task.until,
       task.held_by, task.held_by_name, task.held_by_host, task.held_by_pid, task.held_by_heard_of,
       task.attempt, task.max_attempts, task.turn, task.priority, task.key, task.last_error, task.input, task.output,
       task.error, task.tags, task.suspect, task.delete_reason, task.run_at, task.created_at, task.claimed_at,
       task.started_at, task.cancel_requested_at, task.finished_at, task.deleted_at,
       own.worker_id as last_worker, last.name as last_worker_name
  from {tasks} as task
  join {task} as own on own.id = task.id
  left join {worker} as last on last.id = own.worker_id
 where task.kind = 'message';

-- [sqlite]
drop view {dead_letters};

-- Tasks of any kind that ended in ERROR and were not removed; also the worker that had each last.
{replace_view} {dead_letters} as
select task.id, task.kind, task.tenant, task.queue, task.attempt, task.max_attempts, task.key, task.last_error,
       task.error, task.input, task.suspect, task.parent_id, task.instance_id, task.created_at, task.started_at,
       task.finished_at, own.worker_id as last_worker, last.name as last_worker_name
  from {tasks} as task
  join {task} as own on own.id = task.id
  left join {worker} as last on last.id = own.worker_id
 where task.status = 'ERROR' and task.deleted_at is null;
