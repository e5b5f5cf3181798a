-- The order of all events. A position is numbered by the transaction that appends, and on Postgres transactions commit in
-- another order than they took their numbers. So each holds, from before its first number until its end, a shared advisory
-- lock that names a position below all that it will take: the low-water lock. Up to the least of these nothing can come
-- any more; that is the horizon, and readers go no further.

-- name: horizon [postgres]
-- bound: 40
-- Up to which position every event is there or never will be. The head is read before the locks: a transaction that took
-- a number up to it holds its lock now, or has ended and is seen by the next statement, not by this one. That is why
-- events are read by a statement of their own.
with head as materialized (
    select case when is_called then last_value else 0 end as at from {event_position_seq}
)
select least(head.at, coalesce(held.low_water, head.at)) as horizon, head.at as head,
       pg_is_in_recovery() as standby
  from head cross join lateral (
    select min(((cast(lock.classid as bigint) & 65535) << 32) | cast(lock.objid as bigint)) as low_water
      from pg_locks as lock
     where lock.locktype = 'advisory' and lock.objsubid = 1 and cast(lock.classid as bigint) >> 16 = {space}
       and head.at >= 0
       and lock.database = (select oid from pg_database where datname = current_database())) as held;

-- name: horizon [sqlite]
-- scans event: from its end, and no more than the last row.
-- Up to which position every event is there: all of them, as there is one writer.
with last as materialized (select event.position as at from {event} as event order by event.position desc limit 1)
select coalesce((select at from last), 0) as horizon, coalesce((select at from last), 0) as head, false as standby;

-- name: events_between
-- bound: 12 + 9 a row
-- A tenant's events after a position and up to another one, in their order, of the types asked for, with their instances.
select event.position, event.instance_id, instance.type as instance_type, instance.name, event.version, event.type,
       event.type_version, {text_of event.data} as data, event.cause, event.recorded_at
  from {event} as event {one_of instance.id event.instance_id}
 where event.position > :after and event.position <= :until and event.tenant = :tenant
   and (cast(:types as text) is null or event.type {of_types})
 order by event.position
 limit :limit;

-- name: appenders [postgres]
-- unbounded: it looks at every lock and session of the server, for people.
-- Which transactions have appended events and are open, the one that holds the horizon up first; one that is prepared has no
-- process.
select ((cast(lock.classid as bigint) & 65535) << 32) | cast(lock.objid as bigint) as low_water, lock.pid,
       coalesce(cast(activity.usename as text), cast(prepared.owner as text)) as by_user,
       activity.application_name as application, prepared.gid as prepared,
       cast(extract(epoch from clock_timestamp() - coalesce(activity.xact_start, prepared.prepared))
            as double precision) as seconds
  from pg_locks as lock
  left join pg_stat_activity as activity on activity.pid = lock.pid
  left join pg_prepared_xacts as prepared
         on lock.pid is null and prepared.transaction = (
            select own.transactionid from pg_locks as own
             where own.locktype = 'transactionid' and own.virtualtransaction = lock.virtualtransaction limit 1)
 where lock.locktype = 'advisory' and lock.objsubid = 1 and cast(lock.classid as bigint) >> 16 = {space}
   and lock.database = (select oid from pg_database where datname = current_database())
 order by 1, seconds desc
 limit :limit;

-- name: appenders [sqlite]
-- None: there is one writer, and what it has not committed has no position yet.
select 0 as low_water, null as pid, null as by_user, null as application, null as prepared, null as seconds
 where :limit < 0;
