-- [postgres]
create schema if not exists {schema};
create table if not exists {migration} (number bigint not null primary key, name text not null, applied_at bigint not null);
