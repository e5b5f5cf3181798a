-- What runs report to their readers: named values and the chunks of streams.

-- name: add_reports
-- bound: 6 + 22 a row
-- Write what runs report, behind what they have reported under the same name, for sessions whose fence stands and turns
-- that are still theirs. It returns the number of the last chunk.
with rows as ({rows id bigint, worker bigint, turn bigint, kind name, name name, chunks bigint, data json}),
fence as (
    select worker_id from {fence} where slot = :slot and worker_id {any_of rows.worker}
     order by worker_id {for_share}
)
insert into {report} (run_id, kind, name, place, chunks, data, recorded_at)
select rows.id, rows.kind, rows.name,
       coalesce((select last.place from {report} as last
                  where last.run_id = rows.id and last.kind = rows.kind and last.name = rows.name
                  order by last.place desc limit 1), 0) + rows.chunks,
       rows.chunks, rows.data, {now}
  from rows
 where rows.worker in (select fence.worker_id from fence)
   and (select task.status = 'RUNNING' and task.owner = rows.worker and task.turn = rows.turn
          from {task} as task where task.id = rows.id)
returning run_id as id, kind || '/' || name as answer, place as number;

-- name: trim_reports
-- bound: 12 + 3 a row
-- Remove what a run reported under a name until this place: it is older than what is kept.
delete from {report} where run_id = :id and kind = :kind and name = :name and place <= :before
returning run_id as id;

-- name: remove_reports
-- bound: 12
-- Remove the reports of tasks that are removed; with them, in their transaction.
delete from {report} where run_id {among ids};

-- name: news
-- bound: 12 + 13 a row
-- Say of these runs whether they are finished, how far they have reported under these names, and whether they have
-- reported progress; a run that does not come back is not there. In one snapshot: what is finished reports no more.
with rows as ({rows run_id bigint, kind name, name name, after bigint})
select rows.run_id, rows.kind, rows.name, rows.after, task.status, task.finished_at is not null as ended,
       task.progress is not null as has_progress,
       coalesce((select last.place from {report} as last
                  where last.run_id = rows.run_id and last.kind = rows.kind and last.name = rows.name
                  order by last.place desc limit 1), 0) as place
  from rows join {task} as task on task.id = rows.run_id join {queue} as queue on queue.id = task.queue_id
 where task.id {any_of rows.run_id} and (task.kind = 'RUN') is true and task.deleted_at is null
   and (queue.tenant = :tenant) is true;

-- name: reports_after
-- bound: 20 + 4 a row
-- Read what a run of this tenant has reported under a name after a place, in order; :limit is the maximum number of writes.
select report.place, report.chunks, report.data from {report} as report
 where report.run_id = :id and report.kind = :kind and report.name = :name and report.place > :after
   and (select queue.tenant = :tenant
          from {task} as task join {queue} as queue on queue.id = task.queue_id where task.id = :id)
 order by report.place
 limit :limit;

-- name: reports_before
-- bound: 12 + 4 a row
-- Read what a run has reported under a name before a place, the newest first; :limit is the maximum number of writes.
select report.place, report.chunks, report.data from {report} as report
 where report.run_id = :id and report.kind = :kind and report.name = :name and report.place < :before
 order by report.place desc
 limit :limit;

-- name: last_report
-- bound: 12
-- Read what a run has last reported under a name.
select report.place, report.chunks, report.data, report.recorded_at from {report} as report
 where report.run_id = :id and report.kind = :kind and report.name = :name
 order by report.place desc
 limit 1;

-- name: stream_after
-- bound: 16
-- The first stream of a run behind a name, and how far it has come.
select first.name,
       (select last.place from {report} as last
         where last.run_id = :id and last.kind = 'stream' and last.name = first.name
         order by last.place desc limit 1) as place
  from (select report.name from {report} as report
         where report.run_id = :id and report.kind = 'stream' and report.name > cast(:after as text)
         order by report.name
         limit 1) as first;

-- name: values_of
-- bound: 12 + 8 a row
-- Read the last value under each name that a run has set, by name.
select report.name, report.data, report.recorded_at from {report} as report
 where report.run_id = :id and report.kind = 'value'
   and report.place = (select last.place from {report} as last
                        where last.run_id = :id and last.kind = 'value' and last.name = report.name
                        order by last.place desc limit 1)
 order by report.name;
