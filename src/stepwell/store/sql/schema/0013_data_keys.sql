-- The keys that values are sealed with, where a store is encrypted: one for each tenant, itself encrypted (`wrapped`, in
-- base64) with the key of the ring that `key_id` names.
create table {data_key} (
    id {identity},
    tenant text not null,
    key_id text not null,
    wrapped text not null,
    created_at bigint not null,
    unique (tenant)
);
