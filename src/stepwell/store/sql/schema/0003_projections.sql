-- Projections: how far each has come, which session drives it, and what it has set aside. Their own rows, the read models,
-- are in tables of the user.

-- A session that drives a projection is its `owner`, until it gives it up or has no fence any more. `turn` is raised whenever
-- that changes, and by what an operator changes: a batch commits only with the turn and the position that it began with.
create table {projection} (
    tenant text not null default '',
    name text not null check (length(name) between 1 and 255),
    state text not null default 'running' check (state in ('running', 'paused', 'stopped')),
    position bigint not null default 0, -- every event up to here was handled, passed over or parked
    begun boolean not null default false, -- its `begin` was called since it was made or reset
    owner bigint,
    turn bigint not null default 0,
    suspect boolean not null default false, -- its last owner died: the next events are handled one at a time
    tried bigint not null default 0, -- how often the event after `position` was begun alone
    failed_at bigint, -- the position of the event that failed last
    error text, -- why it failed, until the projection has passed it
    handled bigint not null default 0, -- events, since it was made
    failures bigint not null default 0,
    window_at bigint not null, -- since when `window_handled` was handled: what its rate is computed from
    window_handled bigint not null default 0,
    moved_at bigint, -- when its position last moved
    created_at bigint not null,
    primary key (tenant, name)
) {hot 50};

-- Instances that a projection has set aside, from the event of this version on.
create table {parked} (
    tenant text not null default '',
    projection text not null,
    instance_id bigint not null,
    version bigint not null,
    error text not null,
    retried boolean not null default false, -- an operator has asked for it
    parked_at bigint not null,
    primary key (tenant, projection, instance_id)
);
