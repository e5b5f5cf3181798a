-- Subjects that may be forgotten: whose values are sealed with a key of their own.

-- One row for each subject of a tenant. `wrapped` is its key, encrypted with the data key of the tenant, in base64. It is
-- null once the subject was forgotten: then no value of it can be read again, and the name is never used again.
create table {subject_key} (
    id {identity},
    tenant text not null,
    subject text not null,
    wrapped text,
    created_at bigint not null,
    forgotten_at bigint,
    check ((wrapped is null) = (forgotten_at is not null)),
    unique (tenant, subject)
);
