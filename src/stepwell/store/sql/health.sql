-- What a store and its database say of themselves; nothing here writes.

-- name: queue_stats
-- unbounded: it counts for people, and looks at all that it counts.
-- scans task: the indexes of what is ready, idle and dead; that is counted.
-- Count, for each queue of a tenant, what is ready, waiting, running and dead, and say how long the oldest has been
-- ready. Each part walks an index that holds nothing else, so what has succeeded costs nothing; `owner > 0` because
-- Turso scans the table for `is not null` alone.
select queue.name, queue.paused, queue.draining, coalesce(ready.tasks, 0) as ready, coalesce(idle.waiting, 0) as waiting,
       coalesce(owned.tasks, 0) + coalesce(idle.taken, 0) as running, coalesce(dead.tasks, 0) as dead,
       {now} - ready.since as oldest, coalesce(idle.suspects, 0) as suspects,
       coalesce(idle.set_aside, 0) as set_aside, coalesce(idle.unreadable, 0) as unreadable
  from {queue} as queue
  left join (select task.queue_id, count(*) as tasks, min(task.run_at) as since
               from {task} as task where task.ready group by task.queue_id) as ready on ready.queue_id = queue.id
  left join (select task.queue_id, count(case when task.status <> 'RUNNING' then 1 end) as waiting,
                    count(case when task.status = 'RUNNING' then 1 end) as taken,
                    count(case when task.losses > 0 and task.status = 'PENDING' then 1 end) as suspects,
                    count(case when task.status = 'PAUSED' then 1 end) as set_aside,
                    count(case when task.last_error like 'NotThisCode: %' then 1 end) as unreadable
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

-- name: set_aside
-- unbounded: it counts for people, and looks at every run that is paused.
-- scans workflow: a look for each.
-- Count the runs of a tenant that continue only on request, by what they need: an operator has paused them, they are
-- held for their code, or they wait for a signal without a deadline; and say since when the first of each has waited.
with own as (
    select queue.id from {workflow} as workflow {one_of queue.id workflow.queue_id} where queue.tenant = :tenant
)
select case when task.held_at is not null then 'unpause' when task.run_at = :never then 'accept' else 'signal' end as needs,
       count(*) as runs, {now} - min(coalesce(task.held_at, task.paused_at, task.updated_at)) as longest
  from {each_of own}{task} as task
 where {found_by task.queue_id own.id} and task.status = 'PAUSED' and task.kind = 'RUN' and task.deleted_at is null
   and (task.held_at is not null or task.run_at = :never or (task.run_at is null and task.waiting <= 0))
 group by needs
 order by needs desc;

-- name: health [postgres]
-- bound: 6
-- Say the time, what decides whether a commit survives a power cut, for how long the oldest transaction of this database
-- has kept dead rows from being cleaned up, and how many positions of events a session takes at once: 1, or events get
-- lost to readers.
select {now} as clock, current_setting('server_version') as version, current_setting('fsync') as fsync,
       current_setting('synchronous_commit') as synchronous_commit,
       current_setting('full_page_writes') as full_page_writes,
       (select cast(max(extract(epoch from clock_timestamp() - activity.xact_start)) as double precision)
          from pg_stat_activity as activity
         where activity.datname = current_database() and activity.pid <> pg_backend_pid()
           and (activity.backend_xmin is not null or activity.backend_xid is not null)) as held,
       (select sequence.seqcache from pg_sequence as sequence
         where sequence.seqrelid = cast(to_regclass('{event_position_seq}') as oid)) as numbered_ahead;

-- name: health [sqlite]
-- Say the time, and what decides whether a commit of this connection survives a power cut.
select {now} as clock, sqlite_version() as version, journal.journal_mode,
       case safety.synchronous when 0 then 'off' when 1 then 'normal' when 2 then 'full' else 'extra' end as synchronous,
       null as held, 1 as numbered_ahead
  from pragma_journal_mode as journal, pragma_synchronous as safety;
