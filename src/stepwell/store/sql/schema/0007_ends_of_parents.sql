-- How long a run may take, and what the end of a run means for those that it asked for.

-- Microseconds that the run may take, from its first start, as its trigger said; null if only its workflow says that.
alter table {task} add column timeout bigint;

-- The moment by which the run that asked for it has to be finished: so has this one.
alter table {task} add column deadline_at bigint;

-- Whether it ends with the run that asked for it, whatever the end of that is, or goes on; null: with its cancel and when
-- its time is over.
alter table {task} add column on_parent_end text check (on_parent_end in ('cancel', 'leave'));

-- Whether it has asked for a run that ends with it.
alter table {task} add column ends_children boolean not null default false;
