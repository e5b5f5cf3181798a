-- Workflows, and their runs as callers and operators see them; a run's life is that of every task (`tasks.sql`).

-- name: find_workflow
-- bound: 10
-- Find the queue of a workflow by its name; a queue that is none does not count.
select queue.id, queue.ordered is not null as ordered
  from {workflow} as workflow join {queue} as queue on queue.id = workflow.queue_id
 where queue.tenant = :tenant and queue.name = :name;

-- name: hold_queue
-- bound: 8
-- Find a queue and keep others from deleting it until this transaction ends.
select queue.id from {queue} as queue where queue.tenant = :tenant and queue.name = :name {for_key_share};

-- name: add_workflow
-- bound: 8
-- Make the queue a workflow's, unless it is.
insert into {workflow} (queue_id, created_at) values (:queue_id, {now})
on conflict (queue_id) do nothing returning queue_id as id;

-- name: delete_workflow
-- bound: 8
-- Remove a workflow; its queue goes with it, in the same transaction.
delete from {workflow} where queue_id = :id returning queue_id as id;

-- name: workflows
-- bound: 12 + 5 a row
-- scans workflow: all of them are asked for.
-- List the workflows of a tenant, or the one that is named.
select queue.name, workflow.options, workflow.created_at
  from {workflow} as workflow {one_of queue.id workflow.queue_id}
 where queue.tenant = :tenant and (cast(:name as text) is null or queue.name = :name)
 order by queue.name;

-- name: living_handlers
-- bound: 12 + 4 a row
-- scans beat: a row for each session that lives.
-- List what the living sessions of a tenant serve: those whose last beat is younger than their lease; and whether their
-- process is known to be gone all the same.
select worker.id, beat.gone, {text_of worker.handlers} as handlers from {beat} as beat {one_of worker.id beat.worker_id}
 where worker.tenant = :tenant
   and beat.beat_at >= {beat_now} - worker.lease and beat.beat_at <= {beat_now} + worker.lease;

-- name: runs
-- bound: 6 + 6 a row
-- Read these runs as they stand; one that was deleted softly only if asked for, and what each took and returned only if
-- they are to be :whole.
with rows as ({rows id bigint})
select task.id, queue.name as workflow, task.status, task.key, task.attempt, task.max_attempts, task.priority,
       case when :whole then task.input end as input, case when :whole then task.output end as output, task.error,
       task.last_error, task.tags, task.parent_id, task.owner, task.run_at, task.created_at, task.updated_at,
       task.started_at, task.paused_at, task.finished_at, task.deleted_at, task.cause, task.held_at, task.progress,
       task.cancel_requested_at, task.generation, task.headers
  from rows join {task} as task on task.id = rows.id join {queue} as queue on queue.id = task.queue_id
 where task.id {any_of rows} and (task.kind = 'RUN') is true and (queue.tenant = :tenant) is true
   and (:deleted or task.deleted_at is null);

-- name: run_of_key
-- bound: 16
-- Find the run of a workflow that has the key now: null if none has; nothing comes back if there is no such workflow.
select (select task.id from {task} as task
         where task.queue_id = workflow.queue_id and task.key = :key and {has_key task}
           and (task.kind = 'RUN') is true
         limit 1) as id
  from {queue} as queue join {workflow} as workflow on workflow.queue_id = queue.id
 where queue.tenant = :tenant and queue.name = :name;

-- name: workflows_with_runs
-- bound: 20
-- scans workflow: a look for each.
-- List the queues of a tenant's workflows that have runs.
select workflow.queue_id as id from {workflow} as workflow {one_of queue.id workflow.queue_id}
 where queue.tenant = :tenant
   and (select task.queue_id from {task} as task
         where task.kind = 'RUN' and task.queue_id = workflow.queue_id limit 1) is not null;

-- name: find_runs [postgres]
-- bound: 12 + 12 a row
-- Find up to :limit runs that fit, newest first, after the place given: a walk of its own for each workflow and status. The
-- bound is of walks of ten runs that lie on ten pages.
with rows as ({rows queue_id bigint, status name})
select walk.id, walk.created_at
  from rows
 cross join lateral (
    select task.id, task.created_at from {task} as task
     where task.kind = 'RUN' and task.queue_id = rows.queue_id and task.status = rows.status
       and task.created_at >= cast(:since as bigint) and task.created_at < cast(:until as bigint)
       and (task.created_at, task.id) < (cast(:after_time as bigint), cast(:after_id as bigint))
       and (cast(:deleted as boolean) or task.deleted_at is null)
       and (cast(:key as text) is null or task.key = :key)
       and (cast(:prefix as text) is null or substr(task.key, 1, length(cast(:prefix as text))) = :prefix)
     order by task.created_at desc, task.id desc
     limit cast(:limit as bigint)
 ) as walk
 order by walk.created_at desc, walk.id desc
 limit cast(:limit as bigint);

-- name: find_runs [sqlite]
-- Find up to :limit runs that fit, newest first, after the place given; where a statement takes one row at a time, that
-- many for each workflow and status. There is no lateral here: for each of them the last run that could be wanted is
-- found first, and what is no older than that is read.
with rows as ({rows queue_id bigint, status name}),
line as (
    select rows.queue_id, rows.status,
           (select task.id from {task} as task
             where task.kind = 'RUN' and task.queue_id = rows.queue_id and task.status = rows.status
               and task.created_at >= :since and task.created_at < :until and task.created_at <= :after_time
               and (task.created_at < :after_time or task.id < :after_id)
               and (:deleted or task.deleted_at is null)
               and (:key is null or task.key = :key)
               and (:prefix is null or substr(task.key, 1, length(:prefix)) = :prefix)
                     order by task.created_at desc, task.id desc
             limit 1 offset :limit - 1) as last
      from rows
)
select task.id, task.created_at
  from line
  left join {task} as last on last.id = line.last
 cross join {task} as task
 where task.kind = 'RUN' and task.queue_id = line.queue_id and task.status = line.status
   and task.created_at >= coalesce(last.created_at, :since)
   and (last.id is null or task.created_at > last.created_at or task.id >= last.id)
   and task.created_at < :until and task.created_at <= :after_time
   and (task.created_at < :after_time or task.id < :after_id)
   and (:deleted or task.deleted_at is null)
   and (:key is null or task.key = :key)
   and (:prefix is null or substr(task.key, 1, length(:prefix)) = :prefix)
 order by task.created_at desc, task.id desc
 limit :limit;

-- name: find_tagged_runs [postgres]
-- bound: 12 + 8 a row
-- As `find_runs`, of runs that have all of the tags: a walk of its own for each workflow and status, over runs with tags and
-- no others. The bound is of a walk whose first runs fit; what does not fit is looked at too.
with rows as ({rows queue_id bigint, status name})
select walk.id, walk.created_at
  from rows
 cross join lateral (
    select task.id, task.created_at from {task} as task
     where task.kind = 'RUN' and task.tags is not null and task.queue_id = rows.queue_id and task.status = rows.status
       and task.created_at >= cast(:since as bigint) and task.created_at < cast(:until as bigint)
       and (task.created_at, task.id) < (cast(:after_time as bigint), cast(:after_id as bigint))
       and (cast(:deleted as boolean) or task.deleted_at is null)
       and (cast(:key as text) is null or task.key = :key)
       and (cast(:prefix as text) is null or substr(task.key, 1, length(cast(:prefix as text))) = :prefix)
       and {has_tags}
     order by task.created_at desc, task.id desc
     limit cast(:limit as bigint)
 ) as walk
 order by walk.created_at desc, walk.id desc
 limit cast(:limit as bigint);

-- name: find_tagged_runs [sqlite]
-- As `find_runs`, of runs that have all of the tags.
with rows as ({rows queue_id bigint, status name}),
line as (
    select rows.queue_id, rows.status,
           (select task.id from {task} as task
             where task.kind = 'RUN' and task.tags is not null and task.queue_id = rows.queue_id and task.status = rows.status
               and task.created_at >= :since and task.created_at < :until and task.created_at <= :after_time
               and (task.created_at < :after_time or task.id < :after_id)
               and (:deleted or task.deleted_at is null)
               and (:key is null or task.key = :key)
               and (:prefix is null or substr(task.key, 1, length(:prefix)) = :prefix)
               and {has_tags}
             order by task.created_at desc, task.id desc
             limit 1 offset :limit - 1) as last
      from rows
)
select task.id, task.created_at
  from line
  left join {task} as last on last.id = line.last
 cross join {task} as task
 where task.kind = 'RUN' and task.tags is not null and task.queue_id = line.queue_id and task.status = line.status
   and task.created_at >= coalesce(last.created_at, :since)
   and (last.id is null or task.created_at > last.created_at or task.id >= last.id)
   and task.created_at < :until and task.created_at <= :after_time
   and (task.created_at < :after_time or task.id < :after_id)
   and (:deleted or task.deleted_at is null)
   and (:key is null or task.key = :key)
   and (:prefix is null or substr(task.key, 1, length(:prefix)) = :prefix)
   and {has_tags}
 order by task.created_at desc, task.id desc
 limit :limit;

-- name: find_runs_by_key
-- bound: 4 + 10 a row
-- Find up to :limit runs whose key is between two, in the order of their keys, the newest of one key first, after the place
-- given: a walk for each workflow through the keys that are taken, and one through those that are free again.
with rows as ({row queue_id bigint})
select walk.id, walk.key, walk.created_at
  from {walk_of rows} (
      select taken.id, taken.key, taken.created_at
        from (select task.id, task.key, task.created_at from {task} as task
                         where task.queue_id = {its rows.queue_id} and (task.kind = 'RUN') is true
                           and task.key {from_key} :key_from and task.key {before_key} :key_until
                           and (task.key <> :after_key or task.created_at < cast(:after_time as bigint)
                                or (task.created_at = cast(:after_time as bigint) and task.id < cast(:after_id as bigint)))
                           and task.status {of_types} and task.created_at >= cast(:since as bigint)
                           and task.created_at < cast(:until as bigint) and (cast(:deleted as boolean) or task.deleted_at is null)
                           and {has_tags}
                           and {has_key task}
                         order by task.key {in_bytes}
                         limit cast(:limit as bigint)) as taken
      union all
      select freed.id, freed.key, freed.created_at
        from (select task.id, task.key, task.created_at from {task} as task
                         where task.queue_id = {its rows.queue_id} and (task.kind = 'RUN')
                           and task.key {from_key} :key_from and task.key {before_key} :key_until
                           and (task.key <> :after_key or task.created_at < cast(:after_time as bigint)
                                or (task.created_at = cast(:after_time as bigint) and task.id < cast(:after_id as bigint)))
                           and task.status {of_types} and task.created_at >= cast(:since as bigint)
                           and task.created_at < cast(:until as bigint) and (cast(:deleted as boolean) or task.deleted_at is null)
                           and {has_tags}
                           and task.key is not null
                           and not (task.deleted_at is null and (task.key_scope = 'ever' or task.finished_at is null)
                                    and (task.turn = 0 or not task.key_until_begun))
                         order by task.key {in_bytes}, task.created_at desc, task.id desc
                         limit cast(:limit as bigint)) as freed
 ) as walk
 order by walk.key {in_bytes}, walk.created_at desc, walk.id desc
 limit cast(:limit as bigint);

-- name: find_children
-- bound: 10 + 1 a row
-- Find up to :limit runs that a run asked for and that fit, newest first, after the place given: all of them are looked at.
with rows as ({rows queue_id bigint, status name})
select task.id, task.created_at
  from {task} as task join rows on rows.queue_id = task.queue_id and rows.status = task.status
 where task.parent_id = :parent and task.parent_id is not null and (task.kind = 'RUN') is true
   and task.created_at >= :since and task.created_at < :until and task.created_at <= :after_time
   and (task.created_at < :after_time or task.id < :after_id)
   and (:deleted or task.deleted_at is null)
   and (cast(:key as text) is null or task.key = :key)
   and (cast(:prefix as text) is null or substr(task.key, 1, length(cast(:prefix as text))) = :prefix)
   and {has_tags}
 order by task.created_at desc, task.id desc
 limit :limit;

-- name: failed_runs
-- bound: 6 + 2 a row
-- Say with which error these runs ended, and keep them so until this transaction ends; what is no run in ERROR is left out.
with rows as ({rows id bigint})
select task.id, task.error, task.generation, task.ends_children from {task} as task
 where task.id {any_of rows} and (task.kind = 'RUN' and task.status = 'ERROR') is true
 order by task.id
 {for_update};

-- name: reopen_steps
-- bound: 10 + 12 a row
-- Let steps that failed for good be executed again, with all their attempts; what has succeeded stays.
with rows as ({rows run_id bigint, generation bigint, key text})
update {step} as step set status = 'PENDING', attempt = 0, error = null, finished_at = null
  from rows
 where step.run_id = rows.run_id and step.generation = rows.generation and step.key = rows.key
   and step.run_id {any_of rows.run_id} and step.status = 'ERROR'
returning {own step}run_id as id;

-- name: describe_workflow
-- bound: 10
-- Note what a workflow says of itself; nothing is written if it says the same as before.
update {workflow} set options = {json_of options}, cleanup = cast(:cleanup as bigint)
 where queue_id = :queue_id and (coalesce(cast(options as text), '') <> coalesce(cast(:options as text), '')
                                 or coalesce(cleanup, 0) <> coalesce(cast(:cleanup as bigint), 0))
returning queue_id as id;

-- name: told_of
-- bound: 6 + 14 a row
-- Of these runs, those whose workflow has said whom to tell of their ends: with its options, and with the queue of the
-- workflow that is told of those that failed for good.
with rows as ({rows id bigint}),
settled as materialized (
    select task.id, task.queue_id, task.key, task.status, task.attempt, task.input, task.error, task.last_error, task.headers,
           (select workflow.options from {workflow} as workflow
             where workflow.queue_id = task.queue_id and workflow.options is not null) as options
      from {task} as task
     where task.id {any_of rows} and (task.kind = 'RUN') is true
)
select settled.id, queue.name as workflow, settled.key, settled.status, settled.attempt, settled.input, settled.error,
       settled.last_error, settled.headers, settled.options,
       (select letter.id from {queue} as letter
         where letter.tenant = queue.tenant and letter.name = settled.options ->> 'dead_letter') as letter_queue_id
  from settled {one_of queue.id settled.queue_id}
 where settled.options is not null
 order by settled.id;
