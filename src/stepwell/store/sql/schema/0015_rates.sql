-- Rates of limited queues: how many units begin in a period, in all and of each key. A rate is kept as one moment, until
-- which it is `paid`: a task that begins moves that on by what it costs, and may begin while it is not too far ahead. So
-- there is nothing to count, and nothing to forget.

-- Where an input names what its task costs; and what a task costs, 1 where this is null.
alter table {queue} add column cost_path text;
alter table {task} add column cost bigint;

-- Units in a period, of microseconds, and of those at once after a rest; the same of each key.
alter table {limiter} add column rate bigint;
alter table {limiter} add column period bigint;
alter table {limiter} add column burst bigint;
alter table {limiter} add column key_rate bigint;
alter table {limiter} add column key_period bigint;
alter table {limiter} add column key_burst bigint;

-- Whether a run that goes on costs again: a step with a queue goes on only to be tried again.
alter table {limiter} add column wakes_cost boolean not null default false;

-- Until when the rate in all is paid; and when the last task began, so that a clock that was set back is noticed.
alter table {limiter} add column paid bigint not null default 0;
alter table {limiter} add column paid_at bigint not null default 0;

-- Until when the rate of each key is paid; one that has rested for long has no row.
create table {key_paid} (
    queue_id bigint not null,
    limit_key text {bytewise} not null,
    paid bigint not null,
    primary key (queue_id, limit_key)
) {hot 50};
