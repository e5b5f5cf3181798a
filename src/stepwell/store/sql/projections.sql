-- The statements of projections. A batch ends with `move_projection`, which is its fence: it comes last, so that a process
-- that is frozen in its batch holds no row that others need for longer than a commit takes.

-- name: make_projection
-- bound: 12
-- Create a projection that has seen nothing yet; nothing happens if it is there, in whichever build.
insert into {projection} (tenant, name, window_at, created_at)
select :tenant, :name, {now}, {now}
 where not exists (select 1 from {projection} as other where other.tenant = :tenant and other.name = :name)
on conflict do nothing;

-- name: projection_is_free
-- bound: 10
-- Say which build of a projection a session may take, the live one or another: it has no owner, or one that has no fence,
-- because it ended or was declared dead, or it is the session's own, whose last batch may have been committed or not.
select projection.build, projection.inlined from {projection} as projection
 where projection.tenant = :tenant and projection.name = :name and projection.live = :live
   and projection.state = 'running'
   and (projection.owner is null or projection.owner = :worker
        or (select fence.worker_id from {fence} as fence where fence.worker_id = projection.owner limit 1) is null);

-- name: claim_projection
-- bound: 18
-- Drive a build of a projection from now on, if it is free, decisions do not write its rows and this session lives; nothing
-- comes back if not. One that
-- was left by a dead session is suspect: an event may have killed it. Code that does not know it as inline takes back that it
-- may be so: then not every process does.
update {projection} as projection
   set owner = :worker, turn = turn + 1, may_inline = projection.may_inline and :inline,
       suspect = projection.owner is not null and projection.owner <> :worker
 where projection.tenant = :tenant and projection.name = :name and projection.build = :build
   and projection.live = :live and projection.state = 'running' and not projection.inlined
   and (projection.owner is null or projection.owner = :worker
        or (select fence.worker_id from {fence} as fence where fence.worker_id = projection.owner limit 1) is null)
   and (select fence.worker_id from {fence} as fence where fence.worker_id = :worker limit 1) is not null
returning turn, position, begun, suspect, tried, tables;

-- name: release_projection
-- bound: 12
-- Give a projection up, so that another session may take it at once.
update {projection} set owner = null
 where tenant = :tenant and name = :name and build = :build and turn = :turn
returning name;

-- name: move_projection
-- bound: 12
-- Move a projection on after a batch; nothing comes back, and the batch must not be committed, if another session has
-- taken it, an operator has changed it, or it is not where it was when the batch began.
update {projection}
   set position = :position, tried = 0, error = null, failed_at = null, handled = handled + :handled,
       suspect = suspect and :alone,
       window_handled = case when window_at < {now} - 60000000 then :handled else window_handled + :handled end,
       window_at = case when window_at < {now} - 60000000 then coalesce(moved_at, {now}) else window_at end,
       moved_at = {now}
 where tenant = :tenant and name = :name and build = :build and turn = :turn and position = :before
returning position;

-- name: begin_projection
-- bound: 12
-- Note that a projection has prepared its tables, and which they are, in the transaction in which it did.
update {projection} set begun = true, tables = :tables
 where tenant = :tenant and name = :name and build = :build and turn = :turn
returning name;

-- name: try_projection
-- bound: 12
-- Count an attempt of the event after the position before it begins: it is counted even if it kills its process.
update {projection} set tried = tried + 1, failed_at = :failed_at
 where tenant = :tenant and name = :name and build = :build and turn = :turn and position = :before
returning tried, error;

-- name: note_projection_failure
-- bound: 12
-- Note why an event could not be handled.
update {projection} set failures = failures + 1, error = :error, failed_at = :failed_at
 where tenant = :tenant and name = :name and build = :build and turn = :turn and position = :before
returning tried;

-- name: stop_projection
-- bound: 12
-- Stop a projection before an event that has failed too often; an operator lets it go on.
update {projection} set state = 'stopped', owner = null, turn = turn + 1
 where tenant = :tenant and name = :name and build = :build and turn = :turn and position = :before
returning name;

-- name: park_instance
-- bound: 12
-- Set an instance aside for a projection, from the event of this version on.
insert into {parked} (tenant, projection, build, instance_id, version, error, parked_at)
values (:tenant, :name, :build, :id, :version, :error, {now})
on conflict (tenant, projection, build, instance_id) do nothing;

-- name: parked_instances
-- bound: 12 + 1 a row
-- Which instances a projection has set aside, from which version on, and whether an operator has asked to retry them.
select parked.instance_id, parked.version, parked.retried from {parked} as parked
 where parked.tenant = :tenant and parked.projection = :name and parked.build = :build
 order by parked.instance_id;

-- name: parked_events
-- bound: 12 + 9 a row
-- The events of an instance from a version on that a projection has passed over.
select event.position, event.instance_id, instance.type as instance_type, instance.name, event.version, event.type,
       event.type_version, {text_of event.data} as data, event.cause, event.recorded_at
  from {event} as event {one_of instance.id event.instance_id}
 where event.instance_id = :id and event.version >= :version and event.position <= :until
 order by event.version
 limit :limit;

-- name: move_parked
-- bound: 12
-- Note that an instance's events before this version were handled after all, in the transaction in which they were.
update {parked} set version = :version
 where tenant = :tenant and projection = :name and build = :build and instance_id = :id
returning version;

-- name: fail_parked
-- bound: 12
-- Leave an instance set aside: its first event failed again.
update {parked} set error = :error, retried = false
 where tenant = :tenant and projection = :name and build = :build and instance_id = :id
returning version;

-- name: unpark
-- bound: 12
-- An instance has caught up: its next events are handled with all others.
delete from {parked} where tenant = :tenant and projection = :name and build = :build and instance_id = :id
returning version;

-- name: projections
-- unbounded: it counts what is parked, for people.
-- scans projection: a row for each projection.
-- Every build of every projection of a tenant with its owner, by name; the live one first.
select projection.name, projection.build, projection.live, projection.swap_keep, projection.tables, projection.state,
       projection.inlined, projection.position, projection.tried, projection.failed_at, projection.error,
       projection.handled, projection.failures, projection.window_at, projection.window_handled, projection.moved_at,
       projection.created_at, projection.owner, worker.name as worker, worker.host, worker.pid,
       (select fence.worker_id from {fence} as fence where fence.worker_id = projection.owner limit 1) as living,
       (select count(*) from {parked} as parked
         where parked.tenant = projection.tenant and parked.projection = projection.name
           and parked.build = projection.build) as parked, {now} as now
  from {projection} as projection left join {worker} as worker on worker.id = projection.owner
 where projection.tenant = :tenant and (cast(:name as text) is null or projection.name = :name)
 order by projection.name, case when projection.live then 0 else 1 end;

-- name: parked
-- unbounded: it sorts all that a projection has parked, for people.
-- What the live build of a projection has set aside, the oldest first.
select instance.type, instance.name, parked.version, parked.error, parked.retried, parked.parked_at
  from {parked} as parked {one_of instance.id parked.instance_id}
 where parked.tenant = :tenant and parked.projection = :name
   and parked.build = (select projection.build from {projection} as projection
                        where projection.tenant = :tenant and projection.name = :name and projection.live)
 order by parked.parked_at, parked.instance_id
 limit :limit;

-- name: pause_projection
-- bound: 12
-- Keep a projection from going on until it is resumed; a batch under way is not committed. One whose rows decisions write
-- cannot be.
update {projection} set state = 'paused', owner = null, turn = turn + 1
 where tenant = :tenant and name = :name and live and state = 'running' and not inlined returning name;

-- name: resume_projection
-- bound: 12
-- Let a projection go on that was paused, or has stopped; the event at which it stopped has all its attempts again.
update {projection} set state = 'running', tried = 0, owner = null, turn = turn + 1
 where tenant = :tenant and name = :name and live and state <> 'running' returning name;

-- name: skip_failed_event
-- bound: 12
-- Let a projection that has stopped go on after the event at which it did.
update {projection}
   set state = 'running', position = failed_at, tried = 0, error = null, failed_at = null, turn = turn + 1
 where tenant = :tenant and name = :name and live and state = 'stopped' and failed_at > position returning name;

-- name: reset_projection
-- bound: 12
-- Let a projection begin again with the first event; a batch under way is not committed. One whose rows decisions write is
-- driven by a session again: only under the lock of the events.
update {projection}
   set position = 0, begun = false, tried = 0, error = null, failed_at = null, owner = null, turn = turn + 1,
       suspect = false, inlined = false, state = case when state = 'stopped' then 'running' else state end
 where tenant = :tenant and name = :name and live and (not inlined or :locked) returning name, build;

-- name: unpark_all
-- bound: 12 + 3 a row
-- Forget what a build has set aside: it begins again, or is dropped.
delete from {parked} where tenant = :tenant and projection = :name and build = :build returning version;

-- name: retry_parked
-- bound: 18
-- Ask for another try of what a projection has set aside of an instance, without its first :skipped events.
update {parked} as parked set retried = true, version = version + :skipped
 where parked.tenant = :tenant and parked.projection = :name
   and parked.build = (select projection.build from {projection} as projection
                        where projection.tenant = :tenant and projection.name = :name and projection.live)
   and parked.instance_id = (select instance.id from {instance} as instance
                              where instance.tenant = :tenant and instance.type = :type and instance.name = :instance)
returning version;

-- name: note_tables
-- bound: 12
-- Note which tables a build has, as the code says that drives it.
update {projection} set tables = :tables
 where tenant = :tenant and name = :name and build = :build and turn = :turn
returning name;

-- name: build_beside
-- bound: 10
-- The build beside the live one: whether it is to be dropped by now, for how long the live one is to be kept when it is
-- swapped with it, and whether decisions write the rows of that.
select projection.build, projection.swap_keep, coalesce(projection.drop_at <= {now}, false) as is_over,
       live.position as live_position, live.inlined as live_inlined
  from {projection} as projection
  join {projection} as live on live.tenant = projection.tenant and live.name = projection.name and live.live
 where projection.tenant = :tenant and projection.name = :name and not projection.live;

-- name: builds
-- bound: 12
-- Every build of a projection, the live one first.
select projection.build, projection.live, projection.tables, projection.inlined from {projection} as projection
 where projection.tenant = :tenant and projection.name = :name
 order by case when projection.live then 0 else 1 end;

-- name: lock_builds
-- bound: 16
-- Every build of a projection, the live one first, locked until the transaction ends.
select projection.build, projection.turn, projection.position, projection.inlined
  from {projection} as projection
 where projection.tenant = :tenant and projection.name = :name
 order by case when projection.live then 0 else 1 end
{for_update};

-- name: add_build
-- bound: 12
-- Begin a build beside the live one, with the first event.
insert into {projection} (tenant, name, build, live, window_at, created_at)
values (:tenant, :name, :build, false, {now}, {now})
returning build;

-- name: remove_build
-- bound: 12
-- Forget a build that is not the live one, and say which tables it had.
delete from {projection} where tenant = :tenant and name = :name and build = :build and not live returning tables;

-- name: ask_for_swap
-- bound: 12
-- Have the build beside the live one become the live one once it has caught up, and the live one kept for so long.
update {projection} set swap_keep = :keep, drop_at = null
 where tenant = :tenant and name = :name and not live returning build;

-- name: retire_build
-- bound: 14
-- A build is the live one no more; it goes on beside the other until it is dropped. A batch under way is not committed. If
-- decisions wrote its rows, it has seen every event up to :head.
update {projection}
   set position = case when inlined then :head else position end, inlined = false, may_inline = false, live = false,
       owner = null, turn = turn + 1, suspect = false, drop_at = {now} + :keep
 where tenant = :tenant and name = :name and build = :build returning build;

-- name: promote_build
-- bound: 14
-- A build is the live one from now on, and its rows are written as those of the other were. A batch under way is not
-- committed.
update {projection}
   set live = true, inlined = :inlined, may_inline = :inlined, owner = null, turn = turn + 1, suspect = false,
       swap_keep = null, drop_at = null
 where tenant = :tenant and name = :name and build = :build returning build;
