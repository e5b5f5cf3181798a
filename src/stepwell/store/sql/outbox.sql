-- The outbox: who takes which events, and those that none takes yet.

-- name: outboxes
-- bound: 8 + 6 a row
-- List the outboxes of a tenant, with the types that each takes.
select route.queue_id, queue.name as queue, {text_of route.types} as types, route.after_dead, route.max_attempts
  from {outbox_route} as route {one_of queue.id route.queue_id}
 where route.tenant = :tenant
 order by route.queue_id;

-- name: put_outbox
-- bound: 30
-- Say what an outbox takes from now on; what it took before is as it was.
insert into {outbox_route} as route (queue_id, tenant, types, after_dead, max_attempts, created_at, updated_at)
values (:queue_id, :tenant, {json_of types}, :after_dead, :most, {now}, {now})
on conflict (queue_id) do update
   set types = excluded.types, after_dead = excluded.after_dead, max_attempts = excluded.max_attempts,
       updated_at = excluded.updated_at
returning queue_id as id;

-- name: remove_outbox
-- bound: 12
-- Let an outbox take no more events; those that it has stay in its queue.
delete from {outbox_route} where queue_id = :queue_id returning queue_id as id;

-- name: kept_queues
-- bound: 10 + 3 a row
-- The queues of events that no outbox takes; the name of each ends with their type. Locked against other sessions that
-- move such events, so that these keep their order; who adds an event goes on.
select queue.id, queue.name from {queue} as queue
 where queue.tenant = :tenant and queue.name >= 'outbox:' and queue.name < 'outbox;'
 order by queue.id
 {for_no_key_update};

-- name: kept_events
-- bound: 24 + 14 a row
-- Up to :limit events of a queue that no outbox takes, in the order in which they were emitted, to be written anew.
select task.id, task.input, task.created_at, task.headers from {task} as task
 where task.queue_id = :queue_id and task.ready
 order by task.priority desc, task.run_at, task.id
 limit :limit
 {for_update};

-- name: remove_kept
-- bound: 6 + 9 a row
-- Remove events that were written anew for an outbox.
with rows as ({rows id bigint})
delete from {task} where id {any_of rows} returning id;

-- name: positions_of
-- bound: 6 + 4 a row
-- Where these tasks stand in their groups.
with rows as ({rows id bigint})
select task.id, task.position from rows join {task} as task on task.id = rows.id and task.id {any_of rows};
