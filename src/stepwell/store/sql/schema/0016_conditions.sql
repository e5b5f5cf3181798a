-- What may be said of a task when it is added: what its key is taken for, until when it may begin, whether its result is
-- kept. Of most nothing is.

-- A key of scope 'unfinished' may be free as soon as its task is claimed for the first time. No turn is ever taken back, so
-- the key never comes back either.
alter table {task} add column key_until_begun boolean not null default false;
-- The number that was reserved by the add which last replaced what the task says.
alter table {task} add column replaced_by bigint;
-- A task that was not claimed by then never is.
alter table {task} add column expires_at bigint;
-- Whether what the handler of a message returns is kept.
alter table {task} add column keeps_result boolean not null default false;

drop index {task_key};
create unique index {task_key} on {task} (queue_id, key)
    where key is not null and deleted_at is null and (key_scope = 'ever' or finished_at is null)
      and (turn = 0 or not key_until_begun);

-- An add whose reply was lost finds by it that it has replaced a task.
create index {task_replaced} on {task} (replaced_by) where replaced_by is not null;

-- Upkeep walks this.
create index {task_expires} on {task} (expires_at)
    where expires_at is not null and turn = 0 and finished_at is null and deleted_at is null;
