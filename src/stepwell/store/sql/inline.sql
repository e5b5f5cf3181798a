-- The statements of inline projections: their rows are written in the transactions of the decisions. Whether they are, or a
-- session still drives the projection, must not change between the append of a decision and its commit. So what changes
-- it locks the table of events first: it waits for every transaction that has appended, and those that append later wait
-- for it. A decision asks after its append, in a statement of its own, and then knows until its commit.

-- name: inline_builds
-- bound: 4 + 6 a row
-- Of these projections, whether decisions write their rows, and which tables they have; and whether this transaction sees
-- what others commit meanwhile, without which it cannot know.
with rows as ({rows name name})
select rows.name, coalesce(projection.inlined, false) as inlined, projection.tables, {sees_commits} as sees_commits
  from rows left join {projection} as projection
    on projection.tenant = :tenant and projection.name = rows.name and projection.live
   and projection.name {any_of rows.name};

-- name: lock_rows_of_keys [postgres]
-- bound: 0
-- Let no other decision read or write the rows of these keys until the transaction ends: two that have no row yet would
-- each begin one. Everybody takes them in one order. They are numbers in which keys share places, so that a transaction
-- holds few of them, however many rows it writes.
with rows as ({rows place bigint, part bigint}),
ordered as (select rows.place, rows.part from rows order by rows.place, rows.part offset 0)
select count(cast(pg_advisory_xact_lock(cast(ordered.place as int), cast(ordered.part as int)) as text)) as held
  from ordered;

-- name: lock_events [postgres]
-- bound: 0
-- Wait until no transaction has appended that is still open, and let none append until this one ends.
lock table {event} in share row exclusive mode;

-- name: inline_projection
-- bound: 14
-- The last statement of the transaction that has caught up under the lock of the events: from its commit on, decisions
-- write the rows. Nothing comes back, and it must not be committed, if another session has taken the projection.
update {projection}
   set inlined = true, may_inline = true, position = :position, handled = handled + :handled, owner = null,
       turn = turn + 1, tried = 0, error = null, failed_at = null, suspect = false, moved_at = {now}
 where tenant = :tenant and name = :name and build = :build and turn = :turn and position = :before and live
   and state = 'running'
returning position;

-- name: may_be_inline
-- bound: 16
-- Whether a projection may become inline: people have said that every process which decides knows it, or nothing was decided
-- yet by the deciders of these types, so that none does without.
select projection.may_inline
       or (select instance.id from {instance} as instance
            where instance.tenant = projection.tenant and instance.type {of_types} limit 1) is null as allowed
  from {projection} as projection
 where projection.tenant = :tenant and projection.name = :name and projection.live and not projection.inlined;

-- name: let_inline
-- bound: 12
-- Let a projection become inline as soon as it has caught up; nothing comes back if it may already.
update {projection} set may_inline = true
 where tenant = :tenant and name = :name and live and not may_inline
returning name;

-- name: leave_inline
-- bound: 12
-- Have a session follow the events again, from the last one on; nothing comes back if one may only under the lock of the
-- events, or if that is so already.
update {projection}
   set position = case when inlined then :head else position end, inlined = false, may_inline = false, owner = null,
       turn = turn + 1
 where tenant = :tenant and name = :name and live and may_inline and (not inlined or :locked)
returning name;

-- name: take_projection
-- bound: 18
-- Drive a projection for one transaction, without a session, if none drives it; nothing comes back if one does.
update {projection} as projection set turn = turn + 1
 where projection.tenant = :tenant and projection.name = :name and projection.live and projection.state = 'running'
   and not projection.inlined and not projection.suspect and projection.tried = 0
   and (projection.owner is null
        or (select fence.worker_id from {fence} as fence where fence.worker_id = projection.owner limit 1) is null)
returning build, turn, position, begun, tables;
