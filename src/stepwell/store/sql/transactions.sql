-- What a transaction script may say besides its statements.

-- name: begin_writing [sqlite]
-- bound: 8
-- Write nothing, as the first statement in a transaction of the user's own: it begins with its first write, by the
-- settings of its connection, and what is read afterwards is read under the write lock, so no other writer comes
-- between.
update {block} set taken = taken where name = 'task' returning taken;

-- name: begin_writing [postgres]
-- bound: 8
-- Nothing to do: a transaction has begun before its first statement, and its locks are on rows.
select 1;

-- name: savepoint
-- bound: 0
-- From here on the transaction can be undone without losing what came before.
savepoint stepwell;

-- name: rollback_to_savepoint
-- bound: 0
-- Undo what came after the savepoint; the transaction goes on.
rollback to savepoint stepwell;

-- name: release_savepoint
-- bound: 0
-- Keep what came after the savepoint.
release savepoint stepwell;

-- name: patience [postgres]
-- bound: 0
-- Wait for no lock for longer than this in the rest of the transaction.
select set_config('lock_timeout', :locks, true) as locks;

-- name: held_tasks [postgres]
-- bound: 8 + 5 a row
-- Of these tasks, those whose rows another transaction holds; this transaction holds the others from now on.
with rows as ({rows id bigint}),
free as materialized (
    select task.id from {task} as task where task.id {any_of rows} order by task.id for no key update skip locked
)
select task.id from {task} as task where task.id {any_of rows} and task.id not in (select free.id from free);

-- name: use_tables [postgres]
-- bound: 0
-- Wait until the tables of a flush may be written at all: a migration, or `lock table`, holds every row at once.
lock table {queue}, {task}, {step}, {fence}, {rollup} in row exclusive mode;

-- name: isolation [postgres]
-- bound: 0
-- Say how much of what others commit this transaction sees.
select current_setting('transaction_isolation') as level;

-- name: end_if_idle [postgres]
-- bound: 0
-- Have the server end this transaction when nothing was said in it for so long.
select set_config('idle_in_transaction_session_timeout', :longest, true) as longest;

-- name: keep_turns
-- bound: 6 + 7 a row
-- Of these turns, those that stand. They cannot be taken from their session until the transaction ends. That is why
-- it is the last statement of one, and not the first: a cancel or a recovery of the task waits no longer than for a
-- commit.
-- It locks the task's row and not the fence: a process that is frozen here does not block the recovery of other
-- tasks.
with rows as ({rows id bigint, worker bigint, turn bigint})
select task.id from {task} as task join rows on rows.id = task.id
 where task.id {any_of rows}
   and (task.status = 'RUNNING' and task.owner = rows.worker and task.turn = rows.turn) is true
 order by task.id
 {for_share};

-- name: check_turns [postgres]
-- bound: 6 + 6 a row
-- Of these turns, those that stand now, for a transaction that the user commits: nothing is locked.
with rows as ({rows id bigint, worker bigint, turn bigint})
select task.id from {task} as task join rows on rows.id = task.id
 where task.id {any_of rows}
   and (task.status = 'RUNNING' and task.owner = rows.worker and task.turn = rows.turn) is true;

-- name: check_turns [sqlite]
-- Of these turns, those that stand now. Written as it is: here a transaction begins with its first write, and what is
-- read before it may be out of date.
with rows as ({rows id bigint, worker bigint, turn bigint})
update {task} as task set turn = task.turn
  from rows
 where task.id = rows.id
   and (task.status = 'RUNNING' and task.owner = rows.worker and task.turn = rows.turn) is true
returning id;

-- name: oldest_writer [postgres]
-- bound: 6
-- Say which process of the server has had a transaction open for longest that changed tasks, and for how long; no row if
-- this user may not see the sessions of others.
select activity.pid,
       cast(extract(epoch from clock_timestamp() - activity.xact_start) as double precision) as seconds
  from pg_stat_activity as activity
 where activity.xact_start is not null and activity.pid <> pg_backend_pid()
   and exists (select 1 from pg_locks as held where held.pid = activity.pid and held.mode = 'RowExclusiveLock'
                  and held.relation = to_regclass('{task}'))
 order by activity.xact_start
 limit 1;
