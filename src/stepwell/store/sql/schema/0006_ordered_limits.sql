-- Limits that keep the tasks of each key in order. Null: no order. Otherwise nothing is added to the queue but at the end of
-- its ordered group, and the word says what the others of the key do when one is dead.
alter table {queue} add column ordered text check (ordered in ('skip', 'stop'));
