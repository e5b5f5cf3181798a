-- Hints that there may be something to claim; nothing relies on them.

-- name: notify [postgres]
-- bound: 0
-- Say a word to every process that listens; alone, in a transaction of its own.
select pg_notify(cast(:channel as text), cast(:word as text));

-- name: mark [postgres]
-- bound: 0
-- Say which mark this session was opened with; nothing if a pooler kept it to itself.
select current_setting('stepwell.mark', true) as mark;

-- name: ready_queues
-- unbounded: a look for each queue.
-- scans queue: a look for each.
-- The queues that have something to claim, by one look into the index for each.
select queue.id from {queue} as queue
 where not queue.paused
   and (select task.queue_id from {task} as task where task.queue_id = queue.id and task.ready limit 1) is not null;
