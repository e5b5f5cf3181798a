-- Runs are found by the beginning of their key: the index of the keys that are taken is in the order of their bytes, which
-- serves `=` as well ...
drop index {task_key};
create unique index {task_key} on {task} (queue_id, key {bytes_order})
    where key is not null and deleted_at is null and (key_scope = 'ever' or finished_at is null)
      and (turn = 0 or not key_until_begun);

-- ... and the runs whose key is free again stand here instead: no run has an entry in both.
create index {task_freed_key} on {task} (queue_id, key {bytes_order}, created_at desc, id desc)
    where kind = 'RUN' and key is not null
      and not (deleted_at is null and (key_scope = 'ever' or finished_at is null) and (turn = 0 or not key_until_begun));

-- Runs that have tags, in the order in which lists walk: a run without tags has no entry.
create index {task_tagged} on {task} (queue_id, status, created_at, id) where kind = 'RUN' and tags is not null;

-- Headers: a few texts that travel with work; null where there are none.
alter table {task} add column headers {json};
alter table {signal} add column headers {json};
