-- What is read by callers that wait for runs.

-- name: endings
-- bound: 12 + 6 a row
-- Say how the runs with these ids, or the messages whose result is kept, stand and, of those that are finished, what came
-- of them; one that does not come back is not there any more, or never was. The ids are one text, so that a thousand who
-- wait cost one statement everywhere.
select task.id, task.kind, task.status, queue.name as workflow,
       case when task.finished_at is not null then task.output end as output,
       case when task.finished_at is not null then task.error end as error
  from {task} as task join {queue} as queue on queue.id = task.queue_id
 where task.id {among ids} and (task.kind = 'RUN' or task.keeps_result) is true and task.deleted_at is null
   and (queue.tenant = :tenant) is true;
