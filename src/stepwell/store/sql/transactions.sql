-- What a transaction script may say besides its statements.

-- name: savepoint
-- From here on the transaction can be undone without losing what came before.
savepoint stepwell;

-- name: rollback_to_savepoint
-- Undo what came after the savepoint; the transaction goes on.
rollback to savepoint stepwell;

-- name: release_savepoint
-- Keep what came after the savepoint.
release savepoint stepwell;

-- name: patience [postgres]
-- Wait for no lock for longer than this in the rest of the transaction.
select set_config('lock_timeout', :locks, true) as locks;

-- name: held_tasks [postgres]
-- Of these tasks, those whose rows somebody else's transaction holds; the others are held by this one from now on.
with rows as ({rows id bigint}),
free as materialized (
    select task.id from {task} as task where task.id {any_of rows} order by task.id for no key update skip locked
)
select task.id from {task} as task where task.id {any_of rows} and task.id not in (select free.id from free);

-- name: use_tables [postgres]
-- Wait until the tables of a flush may be written at all: a migration, or `lock table`, holds every row at once.
lock table {queue}, {task}, {step}, {fence}, {rollup} in row exclusive mode;

-- name: isolation [postgres]
-- Say how much of what others commit this transaction sees.
select current_setting('transaction_isolation') as level;
