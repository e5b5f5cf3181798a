-- Who asked for what the audit notes, whose tenant it was, and the seal that it stands under: null if its store does not
-- seal the audit, 0 until it is sealed. Notes of the store itself, such as that a queue was paused, have the task number 0.
alter table {audit} add column actor text;
alter table {audit} add column tenant text;
alter table {audit} add column seal bigint;

-- Only where the audit is sealed is anything in it.
create index {audit_sealed} on {audit} (seal, task_id, place) where seal is not null;

-- The seals, each over some notes: a hash over them and over the hash before, so that a note which is changed or removed,
-- or a seal, is noticed. Retention removes the notes of the oldest seals, never a seal.
create table {audit_seal} (
    id bigint not null primary key,
    notes bigint not null check (notes > 0),
    hash text not null,
    previous text not null, -- the hash of the seal before; of the first one empty
    first_at bigint not null,
    last_at bigint not null,
    sealed_at bigint not null,
    dropped_at bigint -- since when its notes are removed
);
create index {audit_seal_whole} on {audit_seal} (id) where dropped_at is null;
