-- Observations of inputs: written with the decisions, listed for an instance, counted for a type, removed when they are old.

-- name: add_observations
-- bound: 6 + 14 a row
-- Record how these inputs were answered.
with rows as ({rows type name, name text, input name, input_version bigint, data json, outcome name, from_status text,
                    to_status text, first_version bigint, last_version bigint, error text, key text, cause text})
insert into {observation} (tenant, type, name, input, input_version, data, outcome, from_status, to_status, first_version,
                           last_version, error, key, cause, recorded_at)
select :tenant, rows.type, rows.name, rows.input, rows.input_version, rows.data, rows.outcome, rows.from_status,
       rows.to_status, rows.first_version, rows.last_version, rows.error, rows.key, rows.cause, {now}
  from rows where true;

-- name: observations_of
-- bound: 12 + 2 a row
-- The observations of one instance after a place, in the order in which they were recorded.
select observation.id, observation.input, observation.input_version, observation.data, observation.outcome,
       observation.from_status, observation.to_status, observation.first_version, observation.last_version,
       observation.error, observation.key, observation.cause, observation.recorded_at
  from {observation} as observation
 where observation.tenant = :tenant and observation.type = :type and observation.name = :name
   and observation.id > cast(:after_id as bigint)
 order by observation.id
 limit :limit;

-- name: observed_transitions
-- unbounded: it reads the observations of one type, as many as are kept.
-- How often inputs led from one status to another, and when first and last.
select observation.from_status, observation.input, observation.to_status, count(*) as times,
       min(observation.recorded_at) as first_at, max(observation.recorded_at) as last_at
  from {observation} as observation
 where observation.tenant = :tenant and observation.type = :type
   and (observation.outcome = 'applied' and observation.from_status is not null and observation.to_status is not null
        and observation.recorded_at >= cast(:since as bigint)) is true
 group by observation.from_status, observation.input, observation.to_status
 order by observation.from_status, observation.input, observation.to_status;

-- name: remove_observations
-- bound: 12 + 8 a row
-- Remove up to :limit observations of a tenant that were recorded before the moment given.
with old as materialized (
    select observation.id from {observation} as observation
     where observation.tenant = :tenant and observation.recorded_at < :before
     order by observation.recorded_at
     limit :limit
     {skip_locked}
)
delete from {observation} where id {any_of old} returning id;
