-- The keys that values are sealed with, and what a fork has copied from a run of another number.

-- name: data_keys
-- bound: 8
-- The keys of a tenant's values.
select data_key.id, data_key.key_id, data_key.wrapped from {data_key} as data_key where data_key.tenant = :tenant;

-- name: add_data_key
-- bound: 8
-- Write the key of a tenant's values; nothing if another process was faster.
insert into {data_key} (tenant, key_id, wrapped, created_at) values (:tenant, :key_id, :wrapped, {now})
on conflict (tenant) do nothing
returning id;

-- name: wrap_anew
-- bound: 12
-- Encrypt a key with another key of the ring, unless another process has just done so.
update {data_key} set key_id = :key_id, wrapped = :wrapped where id = :id and wrapped = :previous returning id;

-- name: sealed_task
-- bound: 8
-- The input and the headers of a run as they are stored.
select task.id, task.input, task.headers from {task} as task where task.id = :id;

-- name: reseal_task
-- bound: 20
-- Give a fork its input and headers, sealed for it; in the transaction that makes it. Its page may be full: then
-- every index gets an entry, too.
update {task} set input = :input, headers = :headers where id = :id returning id;

-- name: sealed_steps
-- bound: 12
-- The steps of a fork as they are stored.
select step.key, step.input, step.output, step.error from {step} as step where step.run_id = :id and step.generation = 0;

-- name: reseal_steps
-- bound: 12 + 16 a row
-- Give a fork its steps, sealed for it; in the transaction that makes it.
with rows as ({rows id bigint, key name, input json, output json, error json})
update {step} as step set input = rows.input, output = rows.output, error = rows.error
  from rows
 where step.run_id = rows.id and step.run_id {any_of rows} and step.generation = 0 and step.key = rows.key
returning run_id as id;

-- name: subject_keys
-- bound: 4 + 8 a row
-- The keys of these subjects; `wrapped` is null for one that was forgotten.
with rows as ({rows subject text}),
named as materialized (
    select (select subject_key.id from {subject_key} as subject_key
             where subject_key.tenant = :tenant and subject_key.subject = rows.subject
             limit 1) as id
      from rows
)
select subject_key.id, subject_key.subject, subject_key.wrapped from named {one_of subject_key.id named.id};

-- name: subject_keys_by_number
-- bound: 4 + 6 a row
-- The keys of this tenant with these numbers.
with rows as ({rows id bigint})
select subject_key.id, subject_key.subject, subject_key.wrapped, subject_key.tenant from rows {one_of subject_key.id rows.id}
 where (subject_key.tenant = :tenant) is true;

-- name: add_subject_keys
-- bound: 6 + 24 a row
-- Write the keys of these subjects; one that another process has made is left as it is.
with rows as ({rows subject text, wrapped text})
insert into {subject_key} (tenant, subject, wrapped, created_at)
select :tenant, rows.subject, rows.wrapped, {now} from rows where true
on conflict (tenant, subject) do nothing
returning id;

-- name: seals_of_tasks
-- bound: 4 + 6 a row
-- The beginning of the input of these tasks as it is stored: it says which key they are sealed with.
with rows as ({rows id bigint})
select task.id, substr({text_of task.input}, 1, 64) as sealed
  from rows
  join {task} as task on task.id = rows.id and task.id {any_of rows};

-- name: forget_subject
-- bound: 16
-- Destroy the key of a subject; nothing if it has none, or was forgotten.
update {subject_key} set wrapped = null, forgotten_at = {now}
 where tenant = :tenant and subject = :subject and forgotten_at is null
returning id;

-- name: end_forgotten_instance
-- bound: 24
-- End the instance that was forgotten: its events cannot be read any more.
update {instance} set completed_at = coalesce(completed_at, {now}), snapshot = null, snapshot_version = null,
       snapshot_schema = null
 where tenant = :tenant and type = :type and name = :name
returning id;

-- name: forget_receipts
-- unbounded: all that one instance remembers
-- Remove what tells whether a guess is an input that the forgotten instance was given.
delete from {receipt} where instance_id = :id;
