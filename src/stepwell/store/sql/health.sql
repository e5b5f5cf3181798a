-- What a store and its database say of themselves; nothing here writes.

-- name: queue_stats
-- bound: 20 + 36 a row
-- Count, for each of these queues, what is ready, waiting, running and dead. Each part looks at no more than :most, along
-- an index that holds nothing else, in one snapshot: what moves from one part to another is in one. `owner > 0` because
-- Turso scans the table for `is not null` alone.
with rows as ({row queue_id bigint}),
owned as materialized (
    select task.queue_id from {task} as task where task.owner is not null and task.owner > 0 limit :most
)
select {its rows.queue_id} as queue_id, ready.tasks as ready, dead.tasks as dead, owned_here.tasks as owned,
       (select count(*) from owned) as owned_in_all, idle.tasks as idle, idle.taken, idle.suspects, idle.set_aside,
       idle.unreadable
  from {walk_of rows} (
           select count(*) as tasks
             from (select 1 as one from {task} as task
                    where task.queue_id = {its rows.queue_id} and task.ready
                    limit :most) as walk) as ready
  {beside} (
           select count(*) as tasks
             from (select 1 as one from {task} as task
                    where task.queue_id = {its rows.queue_id} and (task.status = 'ERROR') is true and task.deleted_at is null
                    limit :most) as walk) as dead
  {beside} (select count(*) as tasks from owned where owned.queue_id = {its rows.queue_id}) as owned_here
  {beside} (
           select count(*) as tasks, count(case when walk.status = 'RUNNING' then 1 end) as taken,
                  count(case when walk.losses > 0 and walk.status = 'PENDING' then 1 end) as suspects,
                  count(case when walk.status = 'PAUSED' then 1 end) as set_aside,
                  count(case when walk.last_error like 'NotThisCode: %' then 1 end) as unreadable
             from (select task.status, task.losses, task.last_error from {task} as task
                    where task.queue_id = {its rows.queue_id} and not task.ready and task.owner is null
                      and task.deleted_at is null and task.status in ('PENDING', 'PAUSED', 'RUNNING')
                    order by task.run_at
                    limit :most) as walk) as idle;

-- name: set_aside
-- bound: 8 + 14 a row
-- Count, of each of these workflows, the runs that continue only on request, by what they need: an operator has paused
-- them, they are held for their code, or they wait for a signal without a deadline; and say since when the first of each
-- has waited. It looks at the :most that were made first of those that are PAUSED, and says at how many.
with rows as ({row queue_id bigint})
select {its rows.queue_id} as queue_id, walk.needs, count(*) as runs, {now} - min(walk.since) as longest
  from {walk_of rows} (
           select case when task.deleted_at is not null then 'nothing' when task.held_at is not null then 'unpause'
                       when task.run_at = :never then 'accept'
                       when task.run_at is null and task.waiting <= 0 then 'signal' else 'nothing' end as needs,
                  coalesce(task.held_at, task.paused_at, task.updated_at) as since
             from {task} as task
            where task.queue_id = {its rows.queue_id} and task.status = 'PAUSED' and task.kind = 'RUN'
            order by task.created_at
            limit :most) as walk
 group by {its rows.queue_id}, walk.needs;

-- name: stored_versions
-- unbounded: it reads the newest events for a person who asks, at most :most of them.
-- scans event: the newest of them.
-- scans instance: perhaps a look for each.
-- Say under which names and versions the newest events of a tenant are stored, by decider.
with newest as (
    select event.instance_id, event.type, event.type_version
      from {event} as event order by event.position desc limit :most
)
select instance.type as decider, newest.type as name, newest.type_version as version, count(*) as number
  from newest {one_of instance.id newest.instance_id}
 where instance.tenant = :tenant
 group by instance.type, newest.type, newest.type_version
 order by instance.type, newest.type, newest.type_version;

-- name: unread_tasks
-- unbounded: it counts for people, and looks at all that waits.
-- scans task: the index of what is idle.
-- Say of the tasks that no code could read which error tells why, by queue.
select queue.name as queue, task.last_error as error, count(*) as number
  from {task} as task {one_of queue.id task.queue_id}
 where not task.ready and task.owner is null and task.deleted_at is null
   and task.status in ('PENDING', 'PAUSED', 'RUNNING') and task.last_error like 'NotThisCode: %' and queue.tenant = :tenant
 group by queue.name, task.last_error
 order by queue.name, task.last_error
 limit 1000;

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
