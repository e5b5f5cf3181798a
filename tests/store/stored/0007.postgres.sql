CREATE SCHEMA stepwell;
CREATE TABLE stepwell.audit (
    task_id bigint NOT NULL,
    place bigint NOT NULL,
    what text NOT NULL,
    worker_id bigint,
    turn bigint,
    attempt bigint,
    detail json,
    recorded_at bigint NOT NULL,
    actor text,
    tenant text,
    seal bigint
);
CREATE SEQUENCE stepwell.audit_place
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE stepwell.audit_seal (
    id bigint NOT NULL,
    notes bigint NOT NULL,
    hash text NOT NULL,
    previous text NOT NULL,
    first_at bigint NOT NULL,
    last_at bigint NOT NULL,
    sealed_at bigint NOT NULL,
    dropped_at bigint,
    CONSTRAINT audit_seal_notes_check CHECK ((notes > 0))
);
CREATE TABLE stepwell.beat (
    worker_id bigint NOT NULL,
    beat_at bigint NOT NULL,
    heard_at bigint NOT NULL,
    gone boolean DEFAULT false NOT NULL,
    helper text
)
WITH (fillfactor='80', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');
CREATE SEQUENCE stepwell.block
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE stepwell.broadcast (
    id bigint NOT NULL,
    tenant text DEFAULT ''::text NOT NULL,
    name text NOT NULL,
    task_id bigint NOT NULL,
    data json,
    published_at bigint NOT NULL
);
ALTER TABLE stepwell.broadcast ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME stepwell.broadcast_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE stepwell.broadcast_key (
    tenant text NOT NULL,
    name text NOT NULL,
    match text NOT NULL COLLATE pg_catalog."C",
    broadcast_id bigint NOT NULL
);
CREATE TABLE stepwell.control_request (
    worker_id bigint NOT NULL,
    task_id bigint NOT NULL,
    turn bigint NOT NULL,
    request text NOT NULL,
    CONSTRAINT control_request_request_check CHECK ((request = ANY (ARRAY['cancel'::text, 'pause'::text])))
);
CREATE TABLE stepwell.data_key (
    id bigint NOT NULL,
    tenant text NOT NULL,
    key_id text NOT NULL,
    wrapped text NOT NULL,
    created_at bigint NOT NULL
);
ALTER TABLE stepwell.data_key ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME stepwell.data_key_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE VIEW stepwell.heartbeats AS
 SELECT worker_id,
    to_timestamp((((heard_at)::numeric / 1000000.0))::double precision) AS heard_of
   FROM stepwell.beat beat;
CREATE TABLE stepwell.maintenance (
    tenant text NOT NULL,
    reason text,
    began_at bigint NOT NULL
);
CREATE TABLE stepwell.queue (
    id bigint NOT NULL,
    tenant text DEFAULT ''::text NOT NULL,
    name text NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    draining boolean DEFAULT false NOT NULL,
    created_at bigint NOT NULL,
    limited boolean DEFAULT false NOT NULL,
    key_path text,
    cost_path text,
    ordered text,
    CONSTRAINT queue_name_check CHECK (((length(name) >= 1) AND (length(name) <= 255))),
    CONSTRAINT queue_ordered_check CHECK ((ordered = ANY (ARRAY['skip'::text, 'stop'::text])))
);
CREATE TABLE stepwell.task (
    id bigint NOT NULL,
    queue_id bigint NOT NULL,
    kind text NOT NULL,
    status text DEFAULT 'PENDING'::text NOT NULL,
    ready boolean NOT NULL,
    suspect boolean DEFAULT false NOT NULL,
    priority bigint DEFAULT 0 NOT NULL,
    run_at bigint,
    owner bigint,
    worker_id bigint,
    turn bigint DEFAULT 0 NOT NULL,
    attempt bigint DEFAULT 0 NOT NULL,
    max_attempts bigint NOT NULL,
    losses bigint DEFAULT 0 NOT NULL,
    lost_by bigint,
    generation bigint DEFAULT 0 NOT NULL,
    wakes bigint DEFAULT 0 NOT NULL,
    waiting bigint DEFAULT 0 NOT NULL,
    parent_id bigint,
    instance_id bigint,
    scheduled_for bigint,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    claimed_at bigint,
    started_at bigint,
    restarted_at bigint,
    paused_at bigint,
    held_at bigint,
    cancel_requested_at bigint,
    cleanup_until bigint,
    finished_at bigint,
    deleted_at bigint,
    key text,
    key_scope text DEFAULT 'ever'::text NOT NULL,
    payload_hash text,
    cause text,
    held_reason text,
    delete_reason text,
    tags json,
    progress json,
    last_error text,
    error json,
    input json,
    output json,
    group_key text,
    "position" bigint,
    waits_for_previous boolean DEFAULT false NOT NULL,
    schedule_id bigint,
    limit_key text COLLATE pg_catalog."C",
    cost bigint,
    key_until_begun boolean DEFAULT false NOT NULL,
    replaced_by bigint,
    expires_at bigint,
    keeps_result boolean DEFAULT false NOT NULL,
    headers json,
    timeout bigint,
    deadline_at bigint,
    on_parent_end text,
    ends_children boolean DEFAULT false NOT NULL,
    CONSTRAINT task_attempt_check CHECK ((attempt >= 0)),
    CONSTRAINT task_check CHECK ((NOT (ready AND waits_for_previous))),
    CONSTRAINT task_finished_at_its_end CHECK (((finished_at IS NULL) = (status = ANY (ARRAY['PENDING'::text, 'RUNNING'::text, 'PAUSED'::text])))),
    CONSTRAINT task_key_scope_check CHECK ((key_scope = ANY (ARRAY['ever'::text, 'unfinished'::text]))),
    CONSTRAINT task_kind_check CHECK ((kind = ANY (ARRAY['MESSAGE'::text, 'RUN'::text, 'EFFECT'::text, 'TIMER'::text, 'INPUT'::text, 'OUTBOX'::text]))),
    CONSTRAINT task_max_attempts_check CHECK ((max_attempts >= 1)),
    CONSTRAINT task_may_be_ready CHECK (((NOT ready) OR ((status = 'PENDING'::text) AND (deleted_at IS NULL) AND (held_at IS NULL) AND (losses = 0)))),
    CONSTRAINT task_on_parent_end_check CHECK ((on_parent_end = ANY (ARRAY['cancel'::text, 'leave'::text]))),
    CONSTRAINT task_owned_while_running CHECK (((owner IS NULL) OR (status = 'RUNNING'::text))),
    CONSTRAINT task_status_check CHECK ((status = ANY (ARRAY['PENDING'::text, 'RUNNING'::text, 'PAUSED'::text, 'SUCCESS'::text, 'ERROR'::text, 'CANCELLED'::text])))
)
WITH (fillfactor='80', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');
CREATE TABLE stepwell.worker (
    id bigint NOT NULL,
    tenant text DEFAULT ''::text NOT NULL,
    name text NOT NULL,
    host text NOT NULL,
    pid bigint NOT NULL,
    port bigint,
    version text NOT NULL,
    handlers json NOT NULL,
    lease bigint NOT NULL,
    held bigint,
    blamed bigint,
    started_at bigint NOT NULL,
    stopped_at bigint,
    stop_reason text,
    CONSTRAINT worker_lease_check CHECK ((lease > 0))
);
CREATE VIEW stepwell.tasks AS
 SELECT task.id,
    task.kind,
    queue.tenant,
    queue.name AS queue,
    task.status,
        CASE
            WHEN (task.deleted_at IS NOT NULL) THEN 'deleted'::text
            WHEN (task.status = 'SUCCESS'::text) THEN 'succeeded'::text
            WHEN (task.status = 'ERROR'::text) THEN 'failed'::text
            WHEN (task.status = 'CANCELLED'::text) THEN 'cancelled'::text
            WHEN ((task.status = 'RUNNING'::text) AND (task.cancel_requested_at IS NOT NULL)) THEN 'cancelling'::text
            WHEN (task.cancel_requested_at IS NOT NULL) THEN 'cancelling, cleans up when a worker claims it'::text
            WHEN ((task.status = 'RUNNING'::text) AND (task.owner IS NULL)) THEN 'taken by hand, comes back if not settled'::text
            WHEN ((task.status = 'RUNNING'::text) AND (task.held_at IS NOT NULL)) THEN 'running, asked to pause'::text
            WHEN (task.status = 'RUNNING'::text) THEN 'running'::text
            WHEN (task.held_at IS NOT NULL) THEN 'paused by an operator, until it is unpaused'::text
            WHEN (task.ready AND queue.paused) THEN 'its queue is paused'::text
            WHEN (task.ready AND (queue.tenant IN ( SELECT maintenance.tenant
               FROM stepwell.maintenance maintenance))) THEN 'the store is in maintenance'::text
            WHEN task.ready THEN 'ready'::text
            WHEN task.waits_for_previous THEN 'waits for the one before it in its group'::text
            WHEN (task.losses > 0) THEN 'was lost with others, is executed alone'::text
            WHEN (task.waiting > 0) THEN 'waiting for child runs'::text
            WHEN ((task.status = 'PAUSED'::text) AND (task.run_at = '253370764800000000'::bigint)) THEN 'held for its code, until it is accepted or other code is deployed'::text
            WHEN ((task.status = 'PAUSED'::text) AND (task.run_at IS NULL)) THEN 'paused until a signal or an operator resumes it'::text
            WHEN (task.status = 'PAUSED'::text) THEN 'paused until resumed, at the latest until run_at'::text
            WHEN (task.run_at IS NULL) THEN 'waiting for a signal'::text
            WHEN (task.last_error IS NOT NULL) THEN 'failed, waiting to be tried again at run_at'::text
            ELSE 'waiting until run_at'::text
        END AS state,
        CASE
            WHEN (task.ready OR (task.owner IS NOT NULL) OR (task.deleted_at IS NOT NULL) OR (task.finished_at IS NOT NULL) OR (task.held_at IS NOT NULL) OR (task.losses > 0) OR task.waits_for_previous OR ((task.status = 'PAUSED'::text) AND (task.run_at = '253370764800000000'::bigint))) THEN NULL::timestamp with time zone
            ELSE to_timestamp((((task.run_at)::numeric / 1000000.0))::double precision)
        END AS until,
    task.owner AS held_by,
    worker.name AS held_by_name,
    worker.host AS held_by_host,
    worker.pid AS held_by_pid,
    heard.heard_of AS held_by_heard_of,
    task.worker_id AS last_worker,
    last.name AS last_worker_name,
    task.attempt,
    task.max_attempts,
    task.turn,
    task.generation,
    task.priority,
    task.key,
    task.last_error,
    task.input,
    task.output,
    task.error,
    task.tags,
    task.progress,
    task.cause,
    task.suspect,
    task.losses,
    task.lost_by,
    task.parent_id,
    task.instance_id,
    task.held_reason,
    task.delete_reason,
    to_timestamp((((task.run_at)::numeric / 1000000.0))::double precision) AS run_at,
    to_timestamp((((task.created_at)::numeric / 1000000.0))::double precision) AS created_at,
    to_timestamp((((task.updated_at)::numeric / 1000000.0))::double precision) AS updated_at,
    to_timestamp((((task.claimed_at)::numeric / 1000000.0))::double precision) AS claimed_at,
    to_timestamp((((task.started_at)::numeric / 1000000.0))::double precision) AS started_at,
    to_timestamp((((task.restarted_at)::numeric / 1000000.0))::double precision) AS restarted_at,
    to_timestamp((((task.paused_at)::numeric / 1000000.0))::double precision) AS paused_at,
    to_timestamp((((task.held_at)::numeric / 1000000.0))::double precision) AS held_at,
    to_timestamp((((task.cancel_requested_at)::numeric / 1000000.0))::double precision) AS cancel_requested_at,
    to_timestamp((((task.cleanup_until)::numeric / 1000000.0))::double precision) AS cleanup_until,
    to_timestamp((((task.finished_at)::numeric / 1000000.0))::double precision) AS finished_at,
    to_timestamp((((task.deleted_at)::numeric / 1000000.0))::double precision) AS deleted_at,
    task.group_key,
    task."position"
   FROM ((((stepwell.task task
     JOIN stepwell.queue queue ON ((queue.id = task.queue_id)))
     LEFT JOIN stepwell.worker worker ON ((worker.id = task.owner)))
     LEFT JOIN stepwell.heartbeats heard ON ((heard.worker_id = task.owner)))
     LEFT JOIN stepwell.worker last ON ((last.id = task.worker_id)));
CREATE VIEW stepwell.dead_letters AS
 SELECT id,
    kind,
    tenant,
    queue,
    attempt,
    max_attempts,
    key,
    last_error,
    error,
    input,
    suspect,
    parent_id,
    instance_id,
    last_worker,
    last_worker_name,
    created_at,
    started_at,
    finished_at
   FROM stepwell.tasks task
  WHERE ((status = 'ERROR'::text) AND (deleted_at IS NULL));
CREATE TABLE stepwell.instance (
    id bigint NOT NULL,
    tenant text DEFAULT ''::text NOT NULL,
    type text NOT NULL,
    name text NOT NULL,
    version bigint DEFAULT 0 NOT NULL,
    snapshot json,
    snapshot_version bigint,
    snapshot_schema bigint,
    completed_at bigint,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');
CREATE VIEW stepwell.effects AS
 SELECT task.id,
    task.tenant,
    task.queue,
    instance.type AS instance_type,
    instance.name AS instance,
    task.status,
    task.state,
    task.until,
    task.held_by,
    task.held_by_name,
    task.held_by_host,
    task.held_by_pid,
    task.held_by_heard_of,
    task.attempt,
    task.max_attempts,
    task.key,
    task.last_error,
    task.input,
    task.output,
    task.error,
    task.run_at,
    task.created_at,
    task.started_at,
    task.finished_at,
    task.deleted_at
   FROM (stepwell.tasks task
     LEFT JOIN stepwell.instance instance ON ((instance.id = task.instance_id)))
  WHERE (task.kind = 'EFFECT'::text);
CREATE TABLE stepwell.event (
    "position" bigint NOT NULL,
    tenant text DEFAULT ''::text NOT NULL,
    instance_id bigint NOT NULL,
    version bigint NOT NULL,
    type text NOT NULL,
    type_version bigint DEFAULT 1 NOT NULL,
    data json,
    cause text,
    recorded_at bigint NOT NULL
);
ALTER TABLE stepwell.event ALTER COLUMN "position" ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME stepwell.event_position_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE stepwell.event_workflow (
    tenant text NOT NULL,
    name text NOT NULL,
    match text NOT NULL COLLATE pg_catalog."C",
    queue_id bigint NOT NULL,
    max_attempts bigint NOT NULL,
    priority bigint NOT NULL,
    declared_at bigint NOT NULL
);
CREATE TABLE stepwell.fence (
    worker_id bigint NOT NULL,
    slot bigint NOT NULL
);
CREATE VIEW stepwell.instances AS
 SELECT id,
    tenant,
    type,
    name,
    version,
        CASE
            WHEN (completed_at IS NULL) THEN 'open'::text
            ELSE 'completed'::text
        END AS state,
    snapshot,
    snapshot_version,
    to_timestamp((((created_at)::numeric / 1000000.0))::double precision) AS created_at,
    to_timestamp((((updated_at)::numeric / 1000000.0))::double precision) AS updated_at,
    to_timestamp((((completed_at)::numeric / 1000000.0))::double precision) AS completed_at
   FROM stepwell.instance instance;
CREATE TABLE stepwell.key_limit (
    queue_id bigint NOT NULL,
    limit_key text NOT NULL COLLATE pg_catalog."C",
    weight bigint DEFAULT 1 NOT NULL,
    running bigint,
    paused_at bigint,
    pause_reason text,
    CONSTRAINT key_limit_weight_check CHECK (((weight >= 1) AND (weight <= 1000)))
);
CREATE TABLE stepwell.key_paid (
    queue_id bigint NOT NULL,
    limit_key text NOT NULL COLLATE pg_catalog."C",
    paid bigint NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');
CREATE TABLE stepwell.limiter (
    queue_id bigint NOT NULL,
    running bigint,
    per_key bigint,
    declared json,
    edited json,
    adopted boolean DEFAULT false NOT NULL,
    turn bigint DEFAULT 0 NOT NULL,
    admitted bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    cursor text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    remaining bigint DEFAULT 0 NOT NULL,
    updated_at bigint NOT NULL,
    rate bigint,
    period bigint,
    burst bigint,
    key_rate bigint,
    key_period bigint,
    key_burst bigint,
    wakes_cost boolean DEFAULT false NOT NULL,
    paid bigint DEFAULT 0 NOT NULL,
    paid_at bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');
CREATE VIEW stepwell.messages AS
 SELECT id,
    tenant,
    queue,
    status,
    state,
    until,
    held_by,
    held_by_name,
    held_by_host,
    held_by_pid,
    held_by_heard_of,
    last_worker,
    last_worker_name,
    attempt,
    max_attempts,
    turn,
    priority,
    key,
    last_error,
    input,
    output,
    error,
    tags,
    suspect,
    delete_reason,
    run_at,
    created_at,
    claimed_at,
    started_at,
    cancel_requested_at,
    finished_at,
    deleted_at
   FROM stepwell.tasks task
  WHERE (kind = 'MESSAGE'::text);
CREATE TABLE stepwell.migration (
    number bigint NOT NULL,
    name text NOT NULL,
    applied_at bigint NOT NULL
);
CREATE TABLE stepwell.observation (
    id bigint NOT NULL,
    tenant text DEFAULT ''::text NOT NULL,
    type text NOT NULL,
    name text NOT NULL,
    input text NOT NULL,
    input_version bigint NOT NULL,
    data json,
    outcome text NOT NULL,
    from_status text,
    to_status text,
    first_version bigint,
    last_version bigint,
    error text,
    key text,
    cause text,
    recorded_at bigint NOT NULL,
    CONSTRAINT observation_outcome_check CHECK ((outcome = ANY (ARRAY['applied'::text, 'duplicate'::text, 'completed'::text, 'refused'::text])))
);
ALTER TABLE stepwell.observation ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME stepwell.observation_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE stepwell.ordered_group (
    id bigint NOT NULL,
    queue_id bigint NOT NULL,
    group_key text NOT NULL,
    last_position bigint NOT NULL,
    after_failure text NOT NULL,
    emptied_at bigint,
    repaired bigint DEFAULT 0 NOT NULL,
    positions_after bigint DEFAULT 0 NOT NULL,
    CONSTRAINT ordered_group_after_failure_check CHECK ((after_failure = ANY (ARRAY['wait'::text, 'continue'::text])))
);
ALTER TABLE stepwell.ordered_group ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME stepwell.ordered_group_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE VIEW stepwell.outbox AS
 SELECT id,
    tenant,
    queue AS destination,
    status,
    state,
    until,
    held_by,
    held_by_name,
    held_by_host,
    held_by_pid,
    held_by_heard_of,
    attempt,
    max_attempts,
    key,
    last_error,
    input AS event,
    error,
    run_at,
    created_at,
    finished_at,
    deleted_at
   FROM stepwell.tasks task
  WHERE (kind = 'OUTBOX'::text);
CREATE TABLE stepwell.outbox_route (
    queue_id bigint NOT NULL,
    tenant text DEFAULT ''::text NOT NULL,
    types json NOT NULL,
    after_dead text NOT NULL,
    max_attempts bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    CONSTRAINT outbox_route_after_dead_check CHECK ((after_dead = ANY (ARRAY['stop'::text, 'skip'::text])))
);
CREATE TABLE stepwell.parked (
    tenant text DEFAULT ''::text NOT NULL,
    projection text NOT NULL,
    instance_id bigint NOT NULL,
    version bigint NOT NULL,
    error text NOT NULL,
    retried boolean DEFAULT false NOT NULL,
    parked_at bigint NOT NULL,
    build bigint DEFAULT 1 NOT NULL
);
CREATE TABLE stepwell.projection (
    tenant text DEFAULT ''::text NOT NULL,
    name text NOT NULL,
    state text DEFAULT 'running'::text NOT NULL,
    "position" bigint DEFAULT 0 NOT NULL,
    begun boolean DEFAULT false NOT NULL,
    owner bigint,
    turn bigint DEFAULT 0 NOT NULL,
    suspect boolean DEFAULT false NOT NULL,
    tried bigint DEFAULT 0 NOT NULL,
    failed_at bigint,
    error text,
    handled bigint DEFAULT 0 NOT NULL,
    failures bigint DEFAULT 0 NOT NULL,
    window_at bigint NOT NULL,
    window_handled bigint DEFAULT 0 NOT NULL,
    moved_at bigint,
    created_at bigint NOT NULL,
    build bigint DEFAULT 1 NOT NULL,
    live boolean DEFAULT true NOT NULL,
    tables text,
    swap_keep bigint,
    drop_at bigint,
    inlined boolean DEFAULT false NOT NULL,
    may_inline boolean DEFAULT false NOT NULL,
    CONSTRAINT projection_name_check CHECK (((length(name) >= 1) AND (length(name) <= 255))),
    CONSTRAINT projection_state_check CHECK ((state = ANY (ARRAY['running'::text, 'paused'::text, 'stopped'::text])))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');
CREATE VIEW stepwell.queue_counts AS
 SELECT queue.tenant,
    queue.name AS queue,
    queue.paused,
    COALESCE(ready.tasks, (0)::bigint) AS ready,
    COALESCE(idle.waiting, (0)::bigint) AS waiting,
    (COALESCE(owned.tasks, (0)::bigint) + COALESCE(idle.taken, (0)::bigint)) AS running,
    COALESCE(dead.tasks, (0)::bigint) AS dead,
    to_timestamp((((ready.since)::numeric / 1000000.0))::double precision) AS oldest_ready,
    to_timestamp((((idle.next_at)::numeric / 1000000.0))::double precision) AS next_due,
    queue.draining,
    COALESCE(idle.suspects, (0)::bigint) AS suspects
   FROM ((((stepwell.queue queue
     LEFT JOIN ( SELECT task.queue_id,
            count(*) AS tasks,
            min(task.run_at) AS since
           FROM stepwell.task task
          WHERE task.ready
          GROUP BY task.queue_id) ready ON ((ready.queue_id = queue.id)))
     LEFT JOIN ( SELECT task.queue_id,
            count(
                CASE
                    WHEN (task.status <> 'RUNNING'::text) THEN 1
                    ELSE NULL::integer
                END) AS waiting,
            count(
                CASE
                    WHEN (task.status = 'RUNNING'::text) THEN 1
                    ELSE NULL::integer
                END) AS taken,
            count(
                CASE
                    WHEN (task.losses > 0) THEN 1
                    ELSE NULL::integer
                END) AS suspects,
            min(
                CASE
                    WHEN ((task.losses = 0) AND (NOT task.waits_for_previous)) THEN task.run_at
                    ELSE NULL::bigint
                END) AS next_at
           FROM stepwell.task task
          WHERE ((NOT task.ready) AND (task.owner IS NULL) AND (task.deleted_at IS NULL) AND (task.status = ANY (ARRAY['PENDING'::text, 'PAUSED'::text, 'RUNNING'::text])))
          GROUP BY task.queue_id) idle ON ((idle.queue_id = queue.id)))
     LEFT JOIN ( SELECT task.queue_id,
            count(*) AS tasks
           FROM stepwell.task task
          WHERE ((task.owner IS NOT NULL) AND (task.owner > 0))
          GROUP BY task.queue_id) owned ON ((owned.queue_id = queue.id)))
     LEFT JOIN ( SELECT task.queue_id,
            count(*) AS tasks
           FROM stepwell.task task
          WHERE ((task.status = 'ERROR'::text) AND (task.deleted_at IS NULL))
          GROUP BY task.queue_id) dead ON ((dead.queue_id = queue.id)));
ALTER TABLE stepwell.queue ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME stepwell.queue_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE stepwell.receipt (
    instance_id bigint NOT NULL,
    key text NOT NULL,
    outcome text NOT NULL,
    first_version bigint,
    last_version bigint,
    recorded_at bigint NOT NULL,
    CONSTRAINT receipt_outcome_check CHECK ((outcome = ANY (ARRAY['applied'::text, 'completed'::text])))
);
CREATE TABLE stepwell.report (
    run_id bigint NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    place bigint NOT NULL,
    chunks bigint NOT NULL,
    data json NOT NULL,
    recorded_at bigint NOT NULL,
    CONSTRAINT report_chunks_check CHECK ((chunks > 0)),
    CONSTRAINT report_kind_check CHECK ((kind = ANY (ARRAY['value'::text, 'stream'::text])))
);
CREATE TABLE stepwell.rollup (
    minute bigint NOT NULL,
    queue_id bigint NOT NULL,
    shard bigint NOT NULL,
    wait_bucket bigint DEFAULT 0 NOT NULL,
    run_bucket bigint DEFAULT 0 NOT NULL,
    turns bigint DEFAULT 0 NOT NULL,
    succeeded bigint DEFAULT 0 NOT NULL,
    failed bigint DEFAULT 0 NOT NULL,
    retried bigint DEFAULT 0 NOT NULL,
    wait_us bigint DEFAULT 0 NOT NULL,
    run_us bigint DEFAULT 0 NOT NULL
);
CREATE VIEW stepwell.runs AS
 SELECT id,
    tenant,
    queue AS workflow,
    status,
    state,
    until,
    held_by,
    held_by_name,
    held_by_host,
    held_by_pid,
    held_by_heard_of,
    attempt,
    max_attempts,
    turn,
    generation,
    priority,
    key,
    last_error,
    input,
    output,
    error,
    tags,
    progress,
    cause,
    suspect,
    parent_id,
    held_reason,
    delete_reason,
    run_at,
    created_at,
    claimed_at,
    started_at,
    restarted_at,
    paused_at,
    held_at,
    cancel_requested_at,
    cleanup_until,
    finished_at,
    deleted_at
   FROM stepwell.tasks task
  WHERE (kind = 'RUN'::text);
CREATE TABLE stepwell.schedule (
    id bigint NOT NULL,
    tenant text DEFAULT ''::text NOT NULL,
    name text NOT NULL,
    queue_id bigint NOT NULL,
    plan json NOT NULL,
    declared json,
    edited json,
    hashes json,
    next_at bigint,
    buffered_at bigint,
    paused_at bigint,
    pause_reason text,
    retired_at bigint,
    removed_at bigint,
    version bigint DEFAULT 0 NOT NULL,
    last_due_at bigint,
    last_outcome text,
    last_task_id bigint,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');
ALTER TABLE stepwell.schedule ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME stepwell.schedule_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE stepwell.signal (
    run_id bigint NOT NULL,
    name text NOT NULL,
    place bigint NOT NULL,
    key text,
    data json,
    sent_at bigint NOT NULL,
    taken_by text,
    taken_at bigint,
    reply json,
    refused text,
    answered_at bigint,
    arrival bigint,
    headers json
);
CREATE TABLE stepwell.step (
    run_id bigint NOT NULL,
    generation bigint DEFAULT 0 NOT NULL,
    key text NOT NULL,
    place bigint DEFAULT 0 NOT NULL,
    status text NOT NULL,
    attempt bigint DEFAULT 1 NOT NULL,
    started_at bigint,
    finished_at bigint,
    input json,
    output json,
    error json,
    accepts json,
    CONSTRAINT step_status_check CHECK ((status = ANY (ARRAY['PENDING'::text, 'RUNNING'::text, 'PAUSED'::text, 'SUCCESS'::text, 'ERROR'::text, 'CANCELLED'::text])))
);
CREATE VIEW stepwell.steps AS
 SELECT step.run_id,
    queue.tenant,
    queue.name AS workflow,
    step.generation,
    step.place,
    step.key,
    step.status,
    step.attempt,
    step.input,
    step.output,
    step.error,
    step.accepts,
    to_timestamp((((step.started_at)::numeric / 1000000.0))::double precision) AS started_at,
    to_timestamp((((step.finished_at)::numeric / 1000000.0))::double precision) AS finished_at
   FROM ((stepwell.step step
     JOIN stepwell.task task ON (((task.id = step.run_id) AND (task.generation = step.generation))))
     JOIN stepwell.queue queue ON ((queue.id = task.queue_id)))
  WHERE (step.key !~~ '#%'::text);
CREATE TABLE stepwell.subject_key (
    id bigint NOT NULL,
    tenant text NOT NULL,
    subject text NOT NULL,
    wrapped text,
    created_at bigint NOT NULL,
    forgotten_at bigint,
    CONSTRAINT subject_key_check CHECK (((wrapped IS NULL) = (forgotten_at IS NOT NULL)))
);
ALTER TABLE stepwell.subject_key ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME stepwell.subject_key_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE stepwell.subscription (
    run_id bigint NOT NULL,
    generation bigint NOT NULL,
    key text NOT NULL,
    tenant text NOT NULL,
    name text NOT NULL,
    match text NOT NULL COLLATE pg_catalog."C",
    after bigint NOT NULL,
    told bigint,
    taken bigint,
    asked_at bigint NOT NULL
);
CREATE TABLE stepwell.tick (
    schedule_id bigint NOT NULL,
    due_at bigint NOT NULL,
    kind text NOT NULL,
    outcome text NOT NULL,
    count bigint DEFAULT 1 NOT NULL,
    task_id bigint,
    decided_at bigint NOT NULL,
    CONSTRAINT tick_kind_check CHECK ((kind = ANY (ARRAY['tick'::text, 'gap'::text, 'manual'::text]))),
    CONSTRAINT tick_outcome_check CHECK ((outcome = ANY (ARRAY['fired'::text, 'skipped'::text, 'buffered'::text, 'missed'::text])))
);
CREATE VIEW stepwell.timers AS
 SELECT task.id,
    task.tenant,
    task.queue,
    instance.type AS instance_type,
    instance.name AS instance,
    task.status,
    task.state,
    task.run_at AS due_at,
    task.held_by,
    task.held_by_name,
    task.held_by_host,
    task.held_by_pid,
    task.held_by_heard_of,
    task.attempt,
    task.max_attempts,
    task.key,
    task.last_error,
    task.input,
    task.error,
    task.created_at,
    task.finished_at,
    task.deleted_at
   FROM (stepwell.tasks task
     LEFT JOIN stepwell.instance instance ON ((instance.id = task.instance_id)))
  WHERE (task.kind = 'TIMER'::text);
ALTER TABLE stepwell.worker ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME stepwell.worker_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE VIEW stepwell.workers AS
 SELECT worker.id,
    worker.name,
    worker.host,
    worker.pid,
    worker.port,
    worker.version,
        CASE
            WHEN (heard.worker_id IS NOT NULL) THEN 'living'::text
            WHEN (worker.stopped_at IS NOT NULL) THEN 'ended'::text
            ELSE 'lost'::text
        END AS state,
    heard.heard_of,
    ((worker.lease)::numeric / 1000000.0) AS lease_seconds,
    ( SELECT count(*) AS count
           FROM stepwell.task task
          WHERE (task.owner = worker.id)) AS holds,
    worker.stop_reason,
    worker.handlers,
    to_timestamp((((worker.started_at)::numeric / 1000000.0))::double precision) AS started_at,
    to_timestamp((((worker.stopped_at)::numeric / 1000000.0))::double precision) AS stopped_at
   FROM (stepwell.worker worker
     LEFT JOIN stepwell.heartbeats heard ON ((heard.worker_id = worker.id)));
CREATE TABLE stepwell.workflow (
    queue_id bigint NOT NULL,
    cleanup bigint,
    options json,
    created_at bigint NOT NULL
);
INSERT INTO stepwell.audit VALUES (2, 1, 'failed', 1, 1, 1, '"PermanentError: no such address"', 1767225600000000, NULL, '', NULL);
INSERT INTO stepwell.audit VALUES (3, 2, 'failed', 1, 1, 1, '"PermanentError: nothing is ordered"', 1767225600000000, NULL, '', NULL);
INSERT INTO stepwell.event OVERRIDING SYSTEM VALUE VALUES (1, '', 9, 1, 'Added', 1, '{"amount":3}', 'c50c9665a67ae2c7-1', 1767225600000000);
INSERT INTO stepwell.instance VALUES (9, '', 'account', 'a', 1, NULL, NULL, NULL, NULL, 1767225600000000, 1767225600000000);
INSERT INTO stepwell.migration VALUES (1, 'initial', 1795137444314150);
INSERT INTO stepwell.migration VALUES (2, 'dead_in_queue', 1795137444316324);
INSERT INTO stepwell.migration VALUES (3, 'projections', 1795137444319620);
INSERT INTO stepwell.migration VALUES (4, 'records_and_flow', 1795137444451993);
INSERT INTO stepwell.migration VALUES (5, 'subject_keys', 1795137444466599);
INSERT INTO stepwell.migration VALUES (6, 'ordered_limits', 1795137444468643);
INSERT INTO stepwell.migration VALUES (7, 'ends_of_parents', 1795137444475313);
INSERT INTO stepwell.queue OVERRIDING SYSTEM VALUE VALUES (1, '', 'mail', false, false, 1767225600000000, false, NULL, NULL, NULL);
INSERT INTO stepwell.queue OVERRIDING SYSTEM VALUE VALUES (2, '', 'order', false, false, 1767225600000000, false, NULL, NULL, NULL);
INSERT INTO stepwell.queue OVERRIDING SYSTEM VALUE VALUES (3, '', 'basket', false, false, 1767225600000000, false, NULL, NULL, NULL);
INSERT INTO stepwell.queue OVERRIDING SYSTEM VALUE VALUES (5, '', 'account:effects', false, false, 1767225600000000, false, NULL, NULL, NULL);
INSERT INTO stepwell.queue OVERRIDING SYSTEM VALUE VALUES (6, '', 'account:inputs', false, false, 1767225600000000, false, NULL, NULL, NULL);
INSERT INTO stepwell.rollup VALUES (29453760, 1, 1819223053859171876, 3, 3, 2, 1, 1, 0, 0, 0);
INSERT INTO stepwell.rollup VALUES (29453760, 2, 1819223053859171876, 3, 3, 1, 0, 1, 0, 0, 0);
INSERT INTO stepwell.rollup VALUES (29453760, 3, 1819223053859171876, 0, 3, 1, 0, 0, 0, 0, 0);
INSERT INTO stepwell.rollup VALUES (29453760, 2, 1819223053859171876, 0, 3, 2, 0, 0, 0, 0, 0);
INSERT INTO stepwell.signal VALUES (4, 'unheard', 1, '~b2d5a3c19f134076b6cedbb146dad0b6', '1', 1767225600000000, NULL, NULL, NULL, NULL, NULL, 1, NULL);
INSERT INTO stepwell.step VALUES (5, 0, 'order()#1', 1, 'PAUSED', 1, 1767225600000000, NULL, '7', '{"ids": [6], "until": null}', NULL, NULL);
INSERT INTO stepwell.step VALUES (4, 0, 'charge#1', 1, 'SUCCESS', 1, 1767225599999970, 1767225600000000, '5', '5', NULL, NULL);
INSERT INTO stepwell.step VALUES (6, 0, 'charge#1', 1, 'SUCCESS', 1, 1767225599999966, 1767225600000000, '7', '7', NULL, NULL);
INSERT INTO stepwell.step VALUES (4, 0, 'approved#1', 2, 'PAUSED', 1, 1767225600000000, NULL, NULL, NULL, NULL, '{"schema":{"$ref":"#/$defs/Approval","$defs":{"Approval":{"title":"Approval","description":"What an order waits for.","type":"object","properties":{"by":{"type":"string"}},"required":["by"]}}},"named":"Approval"}');
INSERT INTO stepwell.step VALUES (6, 0, 'approved#1', 2, 'PAUSED', 1, 1767225600000000, NULL, NULL, NULL, NULL, '{"schema":{"$ref":"#/$defs/Approval","$defs":{"Approval":{"title":"Approval","description":"What an order waits for.","type":"object","properties":{"by":{"type":"string"}},"required":["by"]}}},"named":"Approval"}');
INSERT INTO stepwell.task VALUES (1, 1, 'MESSAGE', 'SUCCESS', false, false, 0, 1767225600000000, NULL, 1, 1, 1, 1, 0, NULL, 0, 0, 0, NULL, NULL, NULL, 1767225600000000, 1767225600000000, 1767225600000000, 1767225600000000, NULL, NULL, NULL, NULL, NULL, 1767225600000000, NULL, NULL, 'ever', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '"ann"', NULL, NULL, NULL, false, NULL, NULL, NULL, false, NULL, NULL, false, NULL, NULL, NULL, NULL, false);
INSERT INTO stepwell.task VALUES (2, 1, 'MESSAGE', 'ERROR', false, false, 0, 1767225600000000, NULL, 1, 1, 1, 1, 0, NULL, 0, 0, 0, NULL, NULL, NULL, 1767225600000000, 1767225600000000, 1767225600000000, 1767225600000000, NULL, NULL, NULL, NULL, NULL, 1767225600000000, NULL, NULL, 'ever', NULL, NULL, NULL, NULL, NULL, NULL, 'PermanentError: no such address', '{"type":"PermanentError","message":"no such address","traceback":"PermanentError: no such address\n  File \"/app/src/stepwell/work/execution.py\", line 236, in _outcome\n    return self._interrupted() if is_over else await self._called(self._served.body(tasks, threads, self))\n                                               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/app/src/stepwell/queue.py\", line 118, in _body\n    result: Any = await self.fn(argument)  # type: ignore[misc]\n                  ^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/app/tests/store/stored/__init__.py\", line 44, in send\n    raise PermanentError(\"no such address\")\n"}', '"nobody"', NULL, NULL, NULL, false, NULL, NULL, NULL, false, NULL, NULL, false, NULL, NULL, NULL, NULL, false);
INSERT INTO stepwell.task VALUES (3, 2, 'RUN', 'ERROR', false, false, 0, 1767225600000000, NULL, 1, 1, 1, 3, 0, NULL, 0, 0, 0, NULL, NULL, NULL, 1767225600000000, 1767225600000000, 1767225600000000, 1767225600000000, NULL, NULL, NULL, NULL, NULL, 1767225600000000, NULL, 'order-0', 'ever', '1240a4684403b160e6597a653a88f56c', NULL, NULL, NULL, NULL, NULL, 'PermanentError: nothing is ordered', '{"type":"PermanentError","message":"nothing is ordered","traceback":"PermanentError: nothing is ordered\n  File \"/app/src/stepwell/work/execution.py\", line 236, in _outcome\n    return self._interrupted() if is_over else await self._called(self._served.body(tasks, threads, self))\n                                               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/app/src/stepwell/runs/body.py\", line 104, in _execute\n    return _set_aside(run, error, workflow.retry or slot.database.options.retry)\n           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/app/src/stepwell/runs/body.py\", line 154, in _set_aside\n    raise error\n  File \"/app/src/stepwell/runs/body.py\", line 92, in _execute\n    returned = await run.execute(workflow.fn, _context(workflow, run), arguments)\n               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/app/src/stepwell/runs/turn.py\", line 96, in execute\n    result = await fn(*args, **kwargs)\n             ^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/app/tests/store/stored/__init__.py\", line 63, in order\n    raise PermanentError(\"nothing is ordered\")\n"}', '0', NULL, NULL, NULL, false, NULL, NULL, NULL, false, NULL, NULL, false, NULL, NULL, NULL, NULL, false);
INSERT INTO stepwell.task VALUES (5, 3, 'RUN', 'PAUSED', false, false, 0, NULL, NULL, 1, 1, 0, 3, 0, NULL, 0, 0, 1, NULL, NULL, NULL, 1767225600000000, 1767225600000000, 1767225600000000, 1767225600000000, NULL, 1767225600000000, NULL, NULL, NULL, NULL, NULL, 'basket', 'ever', '9e287f590d2dcbbf387bfb70928e621d', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '7', NULL, NULL, NULL, false, NULL, NULL, NULL, false, NULL, NULL, false, NULL, NULL, NULL, NULL, false);
INSERT INTO stepwell.task VALUES (6, 2, 'RUN', 'PAUSED', false, false, 0, NULL, NULL, 1, 1, 0, 3, 0, NULL, 0, 0, 0, 5, NULL, NULL, 1767225600000000, 1767225600000000, 1767225600000000, 1767225600000000, NULL, 1767225600000000, NULL, NULL, NULL, NULL, NULL, NULL, 'ever', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '7', NULL, NULL, NULL, false, NULL, NULL, NULL, false, NULL, NULL, false, NULL, NULL, NULL, NULL, false);
INSERT INTO stepwell.task VALUES (7, 1, 'MESSAGE', 'PENDING', true, false, 0, 1767225600000000, NULL, NULL, 0, 0, 1, 0, NULL, 0, 0, 0, NULL, NULL, NULL, 1767225600000000, 1767225600000000, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'bob', 'ever', '8c82efa3d21a0d76f37fd1dfb6997efe', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '"bob"', NULL, NULL, NULL, false, NULL, NULL, NULL, false, NULL, NULL, false, NULL, NULL, NULL, NULL, false);
INSERT INTO stepwell.task VALUES (8, 1, 'MESSAGE', 'PENDING', false, false, 0, 1767229200000000, NULL, NULL, 0, 0, 1, 0, NULL, 0, 0, 0, NULL, NULL, NULL, 1767225600000000, 1767225600000000, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'ever', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '"later"', NULL, NULL, NULL, false, NULL, NULL, NULL, false, NULL, NULL, false, NULL, NULL, NULL, NULL, false);
INSERT INTO stepwell.task VALUES (4, 2, 'RUN', 'PAUSED', false, false, 0, NULL, NULL, 1, 1, 0, 3, 0, NULL, 0, 1, 0, NULL, NULL, NULL, 1767225600000000, 1767225600000000, 1767225600000000, 1767225600000000, NULL, 1767225600000000, NULL, NULL, NULL, NULL, NULL, 'order-5', 'ever', '6152bc863269f1d04b4d21185d6bb25e', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '5', NULL, NULL, NULL, false, NULL, NULL, NULL, false, NULL, NULL, false, NULL, NULL, NULL, NULL, false);
INSERT INTO stepwell.task VALUES (10, 5, 'EFFECT', 'PENDING', true, false, 0, 1767225600000000, NULL, NULL, 0, 0, 5, 0, NULL, 0, 0, 0, NULL, 9, NULL, 1767225600000000, 1767225600000000, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'unfinished', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"id":"a","type":"Tell","data":{"amount":3}}', NULL, NULL, NULL, false, NULL, NULL, NULL, false, NULL, NULL, false, NULL, NULL, NULL, NULL, false);
INSERT INTO stepwell.task VALUES (11, 6, 'TIMER', 'PENDING', false, false, 0, 1767312000000000, NULL, NULL, 0, 0, 5, 0, NULL, 0, 0, 0, NULL, 9, NULL, 1767225600000000, 1767225600000000, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '9:daily', 'unfinished', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"id":"a","type":"Add","data":{"id":"a","amount":1}}', NULL, NULL, NULL, false, NULL, NULL, NULL, false, NULL, NULL, false, NULL, NULL, NULL, NULL, false);
INSERT INTO stepwell.worker OVERRIDING SYSTEM VALUE VALUES (1, '', 'w', 'vm', 11741, NULL, '0.1.0.dev0', '["mail", "order", "basket", "zones/2025b/"]', 30000000, NULL, NULL, 1767225600000000, 1767225600000000, 'stopped');
INSERT INTO stepwell.workflow VALUES (2, NULL, NULL, 1767225600000000);
INSERT INTO stepwell.workflow VALUES (3, NULL, NULL, 1767225600000000);
SELECT pg_catalog.setval('stepwell.audit_place', 2, true);
SELECT pg_catalog.setval('stepwell.block', 1, true);
SELECT pg_catalog.setval('stepwell.broadcast_id_seq', 1, false);
SELECT pg_catalog.setval('stepwell.data_key_id_seq', 1, false);
SELECT pg_catalog.setval('stepwell.event_position_seq', 1, true);
SELECT pg_catalog.setval('stepwell.observation_id_seq', 1, false);
SELECT pg_catalog.setval('stepwell.ordered_group_id_seq', 1, false);
SELECT pg_catalog.setval('stepwell.queue_id_seq', 6, true);
SELECT pg_catalog.setval('stepwell.schedule_id_seq', 1, false);
SELECT pg_catalog.setval('stepwell.subject_key_id_seq', 1, false);
SELECT pg_catalog.setval('stepwell.worker_id_seq', 1, true);
ALTER TABLE ONLY stepwell.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (task_id, place);
ALTER TABLE ONLY stepwell.audit_seal
    ADD CONSTRAINT audit_seal_pkey PRIMARY KEY (id);
ALTER TABLE ONLY stepwell.beat
    ADD CONSTRAINT beat_pkey PRIMARY KEY (worker_id);
ALTER TABLE ONLY stepwell.broadcast_key
    ADD CONSTRAINT broadcast_key_pkey PRIMARY KEY (tenant, name, match, broadcast_id);
ALTER TABLE ONLY stepwell.broadcast
    ADD CONSTRAINT broadcast_pkey PRIMARY KEY (id);
ALTER TABLE ONLY stepwell.broadcast
    ADD CONSTRAINT broadcast_task_id_key UNIQUE (task_id);
ALTER TABLE ONLY stepwell.control_request
    ADD CONSTRAINT control_request_pkey PRIMARY KEY (worker_id, task_id, turn, request);
ALTER TABLE ONLY stepwell.data_key
    ADD CONSTRAINT data_key_pkey PRIMARY KEY (id);
ALTER TABLE ONLY stepwell.data_key
    ADD CONSTRAINT data_key_tenant_key UNIQUE (tenant);
ALTER TABLE ONLY stepwell.event
    ADD CONSTRAINT event_instance_id_version_key UNIQUE (instance_id, version);
ALTER TABLE ONLY stepwell.event
    ADD CONSTRAINT event_pkey PRIMARY KEY ("position");
ALTER TABLE ONLY stepwell.event_workflow
    ADD CONSTRAINT event_workflow_pkey PRIMARY KEY (tenant, name, match, queue_id);
ALTER TABLE ONLY stepwell.fence
    ADD CONSTRAINT fence_pkey PRIMARY KEY (worker_id, slot);
ALTER TABLE ONLY stepwell.instance
    ADD CONSTRAINT instance_pkey PRIMARY KEY (id);
ALTER TABLE ONLY stepwell.instance
    ADD CONSTRAINT instance_tenant_type_name_key UNIQUE (tenant, type, name);
ALTER TABLE ONLY stepwell.key_limit
    ADD CONSTRAINT key_limit_pkey PRIMARY KEY (queue_id, limit_key);
ALTER TABLE ONLY stepwell.key_paid
    ADD CONSTRAINT key_paid_pkey PRIMARY KEY (queue_id, limit_key);
ALTER TABLE ONLY stepwell.limiter
    ADD CONSTRAINT limiter_pkey PRIMARY KEY (queue_id);
ALTER TABLE ONLY stepwell.maintenance
    ADD CONSTRAINT maintenance_pkey PRIMARY KEY (tenant);
ALTER TABLE ONLY stepwell.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (number);
ALTER TABLE ONLY stepwell.observation
    ADD CONSTRAINT observation_pkey PRIMARY KEY (id);
ALTER TABLE ONLY stepwell.ordered_group
    ADD CONSTRAINT ordered_group_pkey PRIMARY KEY (id);
ALTER TABLE ONLY stepwell.ordered_group
    ADD CONSTRAINT ordered_group_queue_id_group_key_key UNIQUE (queue_id, group_key);
ALTER TABLE ONLY stepwell.outbox_route
    ADD CONSTRAINT outbox_route_pkey PRIMARY KEY (queue_id);
ALTER TABLE ONLY stepwell.parked
    ADD CONSTRAINT parked_pkey PRIMARY KEY (tenant, projection, build, instance_id);
ALTER TABLE ONLY stepwell.projection
    ADD CONSTRAINT projection_pkey PRIMARY KEY (tenant, name, build);
ALTER TABLE ONLY stepwell.queue
    ADD CONSTRAINT queue_pkey PRIMARY KEY (id);
ALTER TABLE ONLY stepwell.queue
    ADD CONSTRAINT queue_tenant_name_key UNIQUE (tenant, name);
ALTER TABLE ONLY stepwell.receipt
    ADD CONSTRAINT receipt_pkey PRIMARY KEY (instance_id, key);
ALTER TABLE ONLY stepwell.report
    ADD CONSTRAINT report_pkey PRIMARY KEY (run_id, kind, name, place);
ALTER TABLE ONLY stepwell.rollup
    ADD CONSTRAINT rollup_pkey PRIMARY KEY (minute, queue_id, shard, wait_bucket, run_bucket);
ALTER TABLE ONLY stepwell.schedule
    ADD CONSTRAINT schedule_pkey PRIMARY KEY (id);
ALTER TABLE ONLY stepwell.schedule
    ADD CONSTRAINT schedule_tenant_name_key UNIQUE (tenant, name);
ALTER TABLE ONLY stepwell.signal
    ADD CONSTRAINT signal_pkey PRIMARY KEY (run_id, name, place);
ALTER TABLE ONLY stepwell.step
    ADD CONSTRAINT step_pkey PRIMARY KEY (run_id, generation, key);
ALTER TABLE ONLY stepwell.subject_key
    ADD CONSTRAINT subject_key_pkey PRIMARY KEY (id);
ALTER TABLE ONLY stepwell.subject_key
    ADD CONSTRAINT subject_key_tenant_subject_key UNIQUE (tenant, subject);
ALTER TABLE ONLY stepwell.subscription
    ADD CONSTRAINT subscription_pkey PRIMARY KEY (run_id, generation, key);
ALTER TABLE ONLY stepwell.task
    ADD CONSTRAINT task_pkey PRIMARY KEY (id);
ALTER TABLE ONLY stepwell.tick
    ADD CONSTRAINT tick_pkey PRIMARY KEY (schedule_id, due_at, kind);
ALTER TABLE ONLY stepwell.worker
    ADD CONSTRAINT worker_pkey PRIMARY KEY (id);
ALTER TABLE ONLY stepwell.workflow
    ADD CONSTRAINT workflow_pkey PRIMARY KEY (queue_id);
CREATE INDEX audit_recorded ON stepwell.audit USING btree (recorded_at);
CREATE INDEX audit_seal_whole ON stepwell.audit_seal USING btree (id) WHERE (dropped_at IS NULL);
CREATE INDEX audit_sealed ON stepwell.audit USING btree (seal, task_id, place) WHERE (seal IS NOT NULL);
CREATE INDEX broadcast_key_of ON stepwell.broadcast_key USING btree (broadcast_id);
CREATE INDEX broadcast_published ON stepwell.broadcast USING btree (tenant, published_at);
CREATE INDEX event_workflow_of ON stepwell.event_workflow USING btree (queue_id);
CREATE INDEX observation_of ON stepwell.observation USING btree (tenant, type, name, id);
CREATE INDEX observation_recorded ON stepwell.observation USING btree (tenant, recorded_at);
CREATE INDEX ordered_group_emptied ON stepwell.ordered_group USING btree (emptied_at) WHERE (emptied_at IS NOT NULL);
CREATE INDEX ordered_group_repaired ON stepwell.ordered_group USING btree (repaired) WHERE (repaired > 0);
CREATE INDEX outbox_route_of ON stepwell.outbox_route USING btree (tenant, queue_id);
CREATE UNIQUE INDEX projection_live ON stepwell.projection USING btree (tenant, name) WHERE live;
CREATE INDEX receipt_recorded ON stepwell.receipt USING btree (recorded_at);
CREATE INDEX schedule_buffered ON stepwell.schedule USING btree (tenant, buffered_at) WHERE ((buffered_at IS NOT NULL) AND (paused_at IS NULL));
CREATE INDEX schedule_due ON stepwell.schedule USING btree (tenant, next_at) WHERE ((next_at IS NOT NULL) AND (paused_at IS NULL));
CREATE UNIQUE INDEX signal_key ON stepwell.signal USING btree (run_id, name, key) WHERE (key IS NOT NULL);
CREATE INDEX subscription_open ON stepwell.subscription USING btree (tenant, name, match, run_id) WHERE ((told IS NULL) AND (taken IS NULL));
CREATE INDEX subscription_told ON stepwell.subscription USING btree (told) WHERE (told IS NOT NULL);
CREATE INDEX task_dead ON stepwell.task USING btree (finished_at, id) WHERE (status = 'ERROR'::text);
CREATE INDEX task_dead_in_queue ON stepwell.task USING btree (queue_id, finished_at, id) WHERE (((status = 'ERROR'::text) IS TRUE) AND (deleted_at IS NULL));
CREATE INDEX task_deleted ON stepwell.task USING btree (deleted_at) WHERE (deleted_at IS NOT NULL);
CREATE INDEX task_due ON stepwell.task USING btree (run_at) WHERE ((NOT ready) AND (owner IS NULL) AND (deleted_at IS NULL) AND (held_at IS NULL) AND (losses = 0) AND (NOT waits_for_previous) AND (status = ANY (ARRAY['PENDING'::text, 'PAUSED'::text, 'RUNNING'::text])));
CREATE INDEX task_expires ON stepwell.task USING btree (expires_at) WHERE ((expires_at IS NOT NULL) AND (turn = 0) AND (finished_at IS NULL) AND (deleted_at IS NULL));
CREATE INDEX task_finished ON stepwell.task USING btree (queue_id, finished_at) WHERE ((status = ANY (ARRAY['SUCCESS'::text, 'CANCELLED'::text])) AND (deleted_at IS NULL));
CREATE INDEX task_freed_key ON stepwell.task USING btree (queue_id, key text_pattern_ops, created_at DESC, id DESC) WHERE ((kind = 'RUN'::text) AND (key IS NOT NULL) AND (NOT ((deleted_at IS NULL) AND ((key_scope = 'ever'::text) OR (finished_at IS NULL)) AND ((turn = 0) OR (NOT key_until_begun)))));
CREATE INDEX task_idle ON stepwell.task USING btree (queue_id, run_at) WHERE ((NOT ready) AND (owner IS NULL) AND (deleted_at IS NULL) AND (status = ANY (ARRAY['PENDING'::text, 'PAUSED'::text, 'RUNNING'::text])));
CREATE INDEX task_in_order ON stepwell.task USING btree (queue_id, group_key, "position") WHERE ("position" IS NOT NULL);
CREATE INDEX task_instance ON stepwell.task USING btree (instance_id) WHERE ((instance_id IS NOT NULL) AND (finished_at IS NULL));
CREATE UNIQUE INDEX task_key ON stepwell.task USING btree (queue_id, key text_pattern_ops) WHERE ((key IS NOT NULL) AND (deleted_at IS NULL) AND ((key_scope = 'ever'::text) OR (finished_at IS NULL)) AND ((turn = 0) OR (NOT key_until_begun)));
CREATE INDEX task_limited ON stepwell.task USING btree (queue_id, limit_key, priority DESC, run_at, id) WHERE (ready AND (limit_key IS NOT NULL));
CREATE INDEX task_owner ON stepwell.task USING btree (owner) WHERE (owner IS NOT NULL);
CREATE INDEX task_parent ON stepwell.task USING btree (parent_id) WHERE (parent_id IS NOT NULL);
CREATE INDEX task_ready ON stepwell.task USING btree (queue_id, priority DESC, run_at, id) WHERE ready;
CREATE INDEX task_replaced ON stepwell.task USING btree (replaced_by) WHERE (replaced_by IS NOT NULL);
CREATE INDEX task_run ON stepwell.task USING btree (queue_id, status, created_at, id) WHERE (kind = 'RUN'::text);
CREATE INDEX task_schedule ON stepwell.task USING btree (schedule_id) WHERE ((schedule_id IS NOT NULL) AND (finished_at IS NULL));
CREATE INDEX task_suspect ON stepwell.task USING btree (losses, run_at) WHERE ((losses > 0) AND (owner IS NULL) AND (status = 'PENDING'::text) AND (NOT waits_for_previous));
CREATE INDEX task_tagged ON stepwell.task USING btree (queue_id, status, created_at, id) WHERE ((kind = 'RUN'::text) AND (tags IS NOT NULL));
CREATE INDEX tick_decided ON stepwell.tick USING btree (decided_at);
CREATE INDEX worker_stopped ON stepwell.worker USING btree (stopped_at) WHERE (stopped_at IS NOT NULL);
ALTER TABLE ONLY stepwell.beat
    ADD CONSTRAINT beat_worker_id_fkey FOREIGN KEY (worker_id) REFERENCES stepwell.worker(id);
ALTER TABLE ONLY stepwell.fence
    ADD CONSTRAINT fence_worker_id_fkey FOREIGN KEY (worker_id) REFERENCES stepwell.worker(id);
ALTER TABLE ONLY stepwell.workflow
    ADD CONSTRAINT workflow_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES stepwell.queue(id);
