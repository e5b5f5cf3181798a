-- The keys that values are sealed with, and what a fork has copied from a run of another number.

-- name: data_keys
-- bound: 8
-- The keys of a tenant's values.
select data_key.id, data_key.key_id, data_key.wrapped from {data_key} as data_key where data_key.tenant = :tenant;

-- name: add_data_key
-- bound: 34
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
-- bound: 12
-- Give a fork its input and headers, sealed for it; in the transaction that makes it.
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
