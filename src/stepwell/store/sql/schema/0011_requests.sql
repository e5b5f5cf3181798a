-- A request is a signal whose sender waits for an answer: its name begins with a `?`. The answer is a reply, or the reason
-- why the run refused the request.
alter table {signal} add column reply {json};
alter table {signal} add column refused text;
alter table {signal} add column answered_at bigint;
