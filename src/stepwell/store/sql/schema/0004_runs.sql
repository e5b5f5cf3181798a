-- Lists of runs, newest first, walk this: the runs of one workflow and status in the order they were made. Whatever else
-- there is, of other workflows, statuses and kinds, is not looked at; messages are not in it.
create index {task_run} on {task} (queue_id, status, created_at, id) where kind = 'run';
