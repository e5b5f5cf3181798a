-- What a store and its database say of themselves; nothing here writes.

-- name: queue_stats
-- Count, for each queue of a tenant, what is ready, waiting, running and dead, and say how long the oldest has been
-- ready. Each part walks an index that holds nothing else, so what has succeeded costs nothing; `owner > 0` because
-- Turso scans the table for `is not null` alone.
select queue.name, queue.paused, queue.draining, coalesce(ready.tasks, 0) as ready, coalesce(idle.waiting, 0) as waiting,
       coalesce(owned.tasks, 0) + coalesce(idle.taken, 0) as running, coalesce(dead.tasks, 0) as dead,
       {now} - ready.since as oldest
  from {queue} as queue
  left join (select task.queue_id, count(*) as tasks, min(task.run_at) as since
               from {task} as task where task.ready group by task.queue_id) as ready on ready.queue_id = queue.id
  left join (select task.queue_id, count(case when task.status <> 'RUNNING' then 1 end) as waiting,
                    count(case when task.status = 'RUNNING' then 1 end) as taken
               from {task} as task
              where not task.ready and task.owner is null and task.deleted_at is null
                and task.status in ('PENDING', 'PAUSED', 'RUNNING')
              group by task.queue_id) as idle on idle.queue_id = queue.id
  left join (select task.queue_id, count(*) as tasks
               from {task} as task where task.owner is not null and task.owner > 0 group by task.queue_id) as owned
         on owned.queue_id = queue.id
  left join (select task.queue_id, count(*) as tasks
               from {task} as task where task.status = 'ERROR' and task.deleted_at is null
              group by task.queue_id) as dead on dead.queue_id = queue.id
 where queue.tenant = :tenant
 order by queue.name;

-- name: condition [postgres]
-- Say what decides whether a commit survives a power cut, and for how long the oldest transaction of this database has
-- kept dead rows from being cleaned up.
select current_setting('server_version') as version, current_setting('fsync') as fsync,
       current_setting('synchronous_commit') as synchronous_commit,
       current_setting('full_page_writes') as full_page_writes,
       cast(extract(epoch from clock_timestamp()) * 1000000 as bigint) as clock,
       (select cast(max(extract(epoch from clock_timestamp() - activity.xact_start)) as double precision)
          from pg_stat_activity as activity
         where activity.datname = current_database() and activity.pid <> pg_backend_pid()
           and (activity.backend_xmin is not null or activity.backend_xid is not null)) as held;

-- name: condition [sqlite]
-- Say which library this is, and the time by the clock that everything is judged by.
select sqlite_version() as version, {now} as clock;

-- name: journal_mode [sqlite]
-- Say how this connection's file is kept whole.
pragma journal_mode;

-- name: synchronous [sqlite]
-- Say how far this connection lets a commit get before it answers.
pragma synchronous;
