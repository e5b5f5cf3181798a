-- What a helper tells of a session. Both in `beat`: one table is locked, so no order of locks can be wrong.

-- Set when the session's process was seen to end: proof of its death, as a free file lock is.
alter table {beat} add column gone boolean not null default false;

-- Which helper it has, 'supervisor' or 'child', else in a word why it has none; null if an older release began it.
alter table {beat} add column helper text;
