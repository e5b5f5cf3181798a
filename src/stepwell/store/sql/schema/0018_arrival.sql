-- The number of a signal among all that came for its run, so that a wait for several names takes the one that came first.
alter table {signal} add column arrival bigint;
