-- [postgres] the order of a task's audit rows. Taken under the task's lock, so whoever locks it later has a higher one; a
-- count of the rows would not see what was committed while the statement waited for that lock.
create sequence {audit_place};
