-- Broadcasts: events that are told to every run and workflow that subscribed. The number of one is its place: it is given
-- under a lock, so a reader that has seen a place has seen all before it that will ever be.
create table {broadcast} (
    id {identity},
    tenant text not null default '',
    name text not null,
    task_id bigint not null, -- the task that publishes it, and fans it out
    data {json},
    published_at bigint not null,
    unique (task_id)
);
create index {broadcast_published} on {broadcast} (tenant, published_at);

-- By what a broadcast is found: a row for all of its name (`match` is `*`), and one for each field by which runs may choose.
create table {broadcast_key} (
    tenant text not null,
    name text not null,
    match text {bytewise} not null,
    broadcast_id bigint not null,
    primary key (tenant, name, match, broadcast_id)
);
create index {broadcast_key_of} on {broadcast_key} (broadcast_id);

-- A wait of a run for a broadcast: it takes the first one behind `after`, and behind all that waits of the run with the same
-- name and choice have `taken`. No foreign key on run_id, as with steps.
create table {subscription} (
    run_id bigint not null,
    generation bigint not null,
    key text not null, -- of the wait
    tenant text not null,
    name text not null,
    match text {bytewise} not null,
    after bigint not null,
    told bigint, -- the first broadcast for which the run was woken; it is kept until it is taken
    taken bigint,
    asked_at bigint not null,
    primary key (run_id, generation, key)
);
-- Whom a broadcast concerns; who was told, or has taken one, is not in it.
create index {subscription_open} on {subscription} (tenant, name, match, run_id) where told is null and taken is null;
create index {subscription_told} on {subscription} (told) where told is not null;

-- A workflow that is triggered for each broadcast.
create table {event_workflow} (
    tenant text not null,
    name text not null,
    match text {bytewise} not null,
    queue_id bigint not null,
    max_attempts bigint not null,
    priority bigint not null,
    declared_at bigint not null,
    primary key (tenant, name, match, queue_id)
);
create index {event_workflow_of} on {event_workflow} (queue_id);
