-- [postgres] all at once, and in the order in which a decision locks them.
lock table {instance}, {event}, {task} in access exclusive mode;

-- What was answered to an input that has a key, or that came after its instance had ended: whoever sends it again is
-- told the same. The receipt of any other input are its events, by their `cause`, or the task that it was.
create table {receipt} (
    instance_id bigint not null,
    key text not null,
    outcome text not null check (outcome in ('applied', 'completed')),
    first_version bigint,
    last_version bigint,
    recorded_at bigint not null,
    primary key (instance_id, key)
);
create index {receipt_recorded} on {receipt} (recorded_at);

-- What an instance still waits for: its timers, when it ends.
create index {task_instance} on {task} (instance_id) where instance_id is not null and finished_at is null;

-- [postgres] its check would lock the instance once for every event; whoever appends has locked it already.
alter table {event} drop constraint event_instance_id_fkey;

-- [postgres] every decision changes a row of it, in place where its page has room.
alter table {instance} set (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02,
                            autovacuum_analyze_scale_factor = 0.05);
