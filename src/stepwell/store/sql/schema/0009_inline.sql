-- A projection whose rows are written with the events, by the decisions themselves: no session drives it meanwhile, and
-- `position` is where that began.
alter table {projection} add inlined boolean not null default false;

-- It may be so: every process that decides knows the projection. People say that, or it was there before any decision.
alter table {projection} add may_inline boolean not null default false;
