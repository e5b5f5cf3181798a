-- Observations: what became of the inputs of deciders that are registered with `observe`, written in the transaction that
-- answered them. By the instance's name, because an input that was refused may have none.
create table {observation} (
    id {identity},
    tenant text not null default '',
    type text not null,
    name text not null,
    input text not null, -- the name of its class
    input_version bigint not null,
    data {json}, -- null if it could not be stored
    outcome text not null check (outcome in ('applied', 'duplicate', 'completed', 'refused')),
    from_status text, -- null if the decider has no view of its states
    to_status text, -- of those that were applied
    first_version bigint,
    last_version bigint,
    error text, -- why it was refused, or why a column is null
    key text,
    cause text,
    recorded_at bigint not null
);
create index {observation_of} on {observation} (tenant, type, name, id);
create index {observation_recorded} on {observation} (tenant, recorded_at);
