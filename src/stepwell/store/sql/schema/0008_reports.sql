-- What runs report to their readers: named values, of which the last one counts, and the chunks of streams. Those of
-- one write stand in one row, as a JSON array; `place` is the number of its last chunk, counted from 1. No foreign key on
-- run_id, as for steps: a delete of a task deletes its reports in the same transaction.
create table {report} (
    run_id bigint not null,
    kind text not null check (kind in ('value', 'stream')),
    name text not null,
    place bigint not null,
    chunks bigint not null check (chunks > 0),
    data {json} not null,
    recorded_at bigint not null,
    primary key (run_id, kind, name, place)
);
