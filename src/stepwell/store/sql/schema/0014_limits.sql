-- Limits of a queue over all workers. A task has a place in a limited queue while it is RUNNING: nothing counts up or down,
-- so nothing can drift, and whatever takes a turn back takes the place back with it.

-- A queue without limits has no limiter, its tasks have no key here, and no index below has an entry for them. `key_path` is
-- where an input names its key; null if it is said with each task. `limit_key` is '' where none was named.
alter table {queue} add column limited boolean not null default false;
alter table {queue} add column key_path text;
alter table {task} add column limit_key text {bytewise};

-- The row that every claim of a limited queue locks. `turn` grows with each claim that took something: a claim whose snapshot
-- shows another turn than the row it has locked has missed one, and takes nothing.
create table {limiter} (
    queue_id bigint not null primary key,
    running bigint, -- how many at once in all
    per_key bigint, -- how many at once of each key
    declared {json}, -- what code says
    edited {json}, -- what people have said since, which goes before it
    adopted boolean not null default false, -- whether all tasks from before the limits have a key
    turn bigint not null default 0,
    admitted {numbers} not null default {no_numbers}, -- who was let in: where to look for who is RUNNING, never a count
    cursor text {bytewise} not null default '', -- the key that was served last
    remaining bigint not null default 0, -- how many more of that key belong to its turn
    updated_at bigint not null
) {hot 50};

-- What is said of single keys; a key of which nothing is said has no row.
create table {key_limit} (
    queue_id bigint not null,
    limit_key text {bytewise} not null,
    weight bigint not null default 1 check (weight between 1 and 1000), -- how many of it in each round
    running bigint, -- how many at once, instead of `per_key`
    paused_at bigint,
    pause_reason text,
    primary key (queue_id, limit_key)
);

-- The claim of a limited queue goes from key to key in it, and never through the tasks of one.
create index {task_limited} on {task} (queue_id, limit_key, priority desc, run_at, id) where ready and limit_key is not null;
