-- The dead letters of one queue: counts walk as many of these as they tell, whatever lies in other queues. Written only
-- when a task ends in ERROR. `is true` keeps it apart from the index of all dead letters: a plan that may take both takes
-- the wrong one when few queues have any.
create index {task_dead_in_queue} on {task} (queue_id, finished_at, id)
    where (status = 'ERROR') is true and deleted_at is null;
