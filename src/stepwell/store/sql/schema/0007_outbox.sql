-- Outboxes: who takes the events that are emitted. A row is written by the first worker that serves the outbox, and says
-- which types it takes; each event is written as one task for each of them, in the queue of that outbox.
create table {outbox_route} (
    queue_id bigint primary key,
    tenant text not null default '',
    types {json} not null, -- names of types, and beginnings of such names: `order.*`
    after_dead text not null check (after_dead in ('stop', 'skip')), -- what the others of a subject do when one is dead
    max_attempts bigint not null,
    created_at bigint not null,
    updated_at bigint not null
);
create index {outbox_route_of} on {outbox_route} (tenant, queue_id);

-- The positions of a group are counted from here: 0, or when it was made, for those that others see as sequence numbers.
alter table {ordered_group} add column positions_after bigint not null default 0;
