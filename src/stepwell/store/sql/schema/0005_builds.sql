-- [postgres]
-- Builds of a projection: while one is read, another is made beside it from the first event on, and they are swapped. A
-- build has its own position, its own tables, and what it has set aside.
alter table {projection}
    add build bigint not null default 1,
    add live boolean not null default true, -- its tables have their own names: this is the build that is read
    add tables text, -- the names of its tables, as JSON, each with its columns if stepwell has made it
    add swap_keep bigint, -- it is to become the live one, and the live one to be kept for so long
    add drop_at bigint, -- when it is dropped, with its tables
    drop constraint projection_pkey,
    add primary key (tenant, name, build);

-- [postgres]
alter table {parked}
    add build bigint not null default 1,
    drop constraint parked_pkey,
    add primary key (tenant, projection, build, instance_id);

-- [sqlite]
alter table {projection} rename to {projection_before};

-- [sqlite]
create table {projection} (
    tenant text not null default '',
    name text not null check (length(name) between 1 and 255),
    build bigint not null default 1,
    live boolean not null default true, -- its tables have their own names: this is the build that is read
    state text not null default 'running' check (state in ('running', 'paused', 'stopped')),
    position bigint not null default 0, -- every event up to here was handled, passed over or parked
    begun boolean not null default false, -- its `begin` was called since it was made or reset
    tables text, -- the names of its tables, as JSON, each with its columns if stepwell has made it
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
    swap_keep bigint, -- it is to become the live one, and the live one to be kept for so long
    drop_at bigint, -- when it is dropped, with its tables
    created_at bigint not null,
    primary key (tenant, name, build)
);

-- [sqlite]
insert into {projection} (tenant, name, state, position, begun, owner, turn, suspect, tried, failed_at, error, handled,
                          failures, window_at, window_handled, moved_at, created_at)
select tenant, name, state, position, begun, owner, turn, suspect, tried, failed_at, error, handled, failures, window_at,
       window_handled, moved_at, created_at
  from {projection_before};

-- [sqlite]
drop table {projection_before};

-- [sqlite]
alter table {parked} rename to {parked_before};

-- [sqlite]
create table {parked} (
    tenant text not null default '',
    projection text not null,
    build bigint not null default 1,
    instance_id bigint not null,
    version bigint not null,
    error text not null,
    retried boolean not null default false, -- an operator has asked for it
    parked_at bigint not null,
    primary key (tenant, projection, build, instance_id)
);

-- [sqlite]
insert into {parked} (tenant, projection, instance_id, version, error, retried, parked_at)
select tenant, projection, instance_id, version, error, retried, parked_at from {parked_before};

-- [sqlite]
drop table {parked_before};

-- One build of a projection is live.
create unique index {projection_live} on {projection} (tenant, name) where live;
