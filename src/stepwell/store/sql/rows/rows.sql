-- Templates of the statements on a table that a projection makes of a dataclass (`rows=`). What stands in `<...>` are names
-- and types that were checked, never values; `row_table.py` fills it in.

-- name: make_rows
-- Make the table.
create table <table> (<columns>, primary key (<key>));

-- name: index_rows
-- Make an index of one of its columns.
create index <index> on <table> (<column>);

-- name: drop_rows
-- Drop a table that a projection has made.
drop table <table>;

-- name: rename_rows
-- Rename a table of a projection, with its indexes and rights; who reads it waits until the transaction ends.
alter table <table> rename to <other>;

-- name: look_at_rows
-- Of these keys, the rows that are there.
with rows as ({rows <key_set>})
select <read> from <table> as given where given.<key> {any_of rows.c_a};

-- name: keep_rows
-- Insert or replace whole rows.
with rows as ({rows <row_set>})
insert into <table> (<names>)
select <cells> from rows where true
 order by rows.c_a
on conflict (<key>) do update set <changes>;

-- name: remove_rows
-- Delete the rows of these keys.
with rows as ({rows <key_set>})
delete from <table> where <key> {any_of rows.c_a};

-- name: query_rows
-- A page of the rows that meet these conditions.
select <read> from <table> as given where <conditions> order by <order> limit :limit;
