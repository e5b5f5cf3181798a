BEGIN TRANSACTION;
CREATE TABLE stepwell_audit (
    task_id bigint not null,
    place bigint not null,
    what text not null,
    worker_id bigint,
    turn bigint,
    attempt bigint,
    detail text,
    recorded_at bigint not null, actor text, tenant text, seal bigint,
    primary key (task_id, place)
);
INSERT INTO "stepwell_audit" VALUES(2,1,'failed',1,1,1,'"PermanentError: no such address"',1767225600000000,NULL,'',NULL);
INSERT INTO "stepwell_audit" VALUES(3,1,'failed',1,1,1,'"PermanentError: nothing is ordered"',1767225600000000,NULL,'',NULL);
CREATE TABLE stepwell_audit_seal (
    id bigint not null primary key,
    notes bigint not null check (notes > 0),
    hash text not null,
    previous text not null,
    first_at bigint not null,
    last_at bigint not null,
    sealed_at bigint not null,
    dropped_at bigint
);
CREATE TABLE stepwell_beat (
    worker_id bigint not null primary key references stepwell_worker (id),
    beat_at bigint not null,
    heard_at bigint not null,
    gone boolean not null default false,
    helper text
);
CREATE TABLE stepwell_block (name text not null primary key, taken bigint not null);
INSERT INTO "stepwell_block" VALUES('task',1);
CREATE TABLE stepwell_broadcast (
    id integer primary key autoincrement,
    tenant text not null default '',
    name text not null,
    task_id bigint not null,
    data text,
    published_at bigint not null,
    unique (task_id)
);
CREATE TABLE stepwell_broadcast_key (
    tenant text not null,
    name text not null,
    match text  not null,
    broadcast_id bigint not null,
    primary key (tenant, name, match, broadcast_id)
);
CREATE TABLE stepwell_control_request (
    worker_id bigint not null,
    task_id bigint not null,
    turn bigint not null,
    request text not null check (request in ('cancel', 'pause')),
    primary key (worker_id, task_id, turn, request)
);
CREATE TABLE stepwell_data_key (
    id integer primary key autoincrement,
    tenant text not null,
    key_id text not null,
    wrapped text not null,
    created_at bigint not null,
    unique (tenant)
);
CREATE TABLE stepwell_event (
    position integer primary key autoincrement,
    tenant text not null default '',
    instance_id bigint not null references stepwell_instance (id),
    version bigint not null,
    type text not null,
    type_version bigint not null default 1,
    data text,
    cause text,
    recorded_at bigint not null,
    unique (instance_id, version)
);
INSERT INTO "stepwell_event" VALUES(1,'',9,1,'Added',1,'{"amount":3}','f103decbf401777c-1',1767225600000000);
CREATE TABLE stepwell_event_workflow (
    tenant text not null,
    name text not null,
    match text  not null,
    queue_id bigint not null,
    max_attempts bigint not null,
    priority bigint not null,
    declared_at bigint not null,
    primary key (tenant, name, match, queue_id)
);
CREATE TABLE stepwell_fence (
    worker_id bigint not null references stepwell_worker (id),
    slot bigint not null,
    primary key (worker_id, slot)
);
CREATE TABLE stepwell_instance (
    id bigint not null primary key,
    tenant text not null default '',
    type text not null,
    name text not null,
    version bigint not null default 0,
    snapshot text,
    snapshot_version bigint,
    snapshot_schema bigint,
    completed_at bigint,
    created_at bigint not null,
    updated_at bigint not null,
    unique (tenant, type, name)
);
INSERT INTO "stepwell_instance" VALUES(9,'','account','a',1,NULL,NULL,NULL,NULL,1767225600000000,1767225600000000);
CREATE TABLE stepwell_key_limit (
    queue_id bigint not null,
    limit_key text  not null,
    weight bigint not null default 1 check (weight between 1 and 1000),
    running bigint,
    paused_at bigint,
    pause_reason text,
    primary key (queue_id, limit_key)
);
CREATE TABLE stepwell_key_paid (
    queue_id bigint not null,
    limit_key text  not null,
    paid bigint not null,
    primary key (queue_id, limit_key)
);
CREATE TABLE stepwell_limiter (
    queue_id bigint not null primary key,
    running bigint,
    per_key bigint,
    declared text,
    edited text,
    adopted boolean not null default false,
    turn bigint not null default 0,
    admitted text not null default '[]',
    cursor text  not null default '',
    remaining bigint not null default 0,
    updated_at bigint not null
, rate bigint, period bigint, burst bigint, key_rate bigint, key_period bigint, key_burst bigint, wakes_cost boolean not null default false, paid bigint not null default 0, paid_at bigint not null default 0);
CREATE TABLE stepwell_maintenance (
    tenant text not null primary key,
    reason text,
    began_at bigint not null
);
CREATE TABLE stepwell_migration (number bigint not null primary key, name text not null, applied_at bigint not null);
INSERT INTO "stepwell_migration" VALUES(1,'initial',1795137441839891);
INSERT INTO "stepwell_migration" VALUES(2,'dead_in_queue',1795137441860301);
INSERT INTO "stepwell_migration" VALUES(3,'projections',1795137441867812);
INSERT INTO "stepwell_migration" VALUES(4,'records_and_flow',1795137442237068);
INSERT INTO "stepwell_migration" VALUES(5,'subject_keys',1795137442267565);
INSERT INTO "stepwell_migration" VALUES(6,'ordered_limits',1795137442275828);
INSERT INTO "stepwell_migration" VALUES(7,'ends_of_parents',1795137442292908);
CREATE TABLE stepwell_observation (
    id integer primary key autoincrement,
    tenant text not null default '',
    type text not null,
    name text not null,
    input text not null,
    input_version bigint not null,
    data text,
    outcome text not null check (outcome in ('applied', 'duplicate', 'completed', 'refused')),
    from_status text,
    to_status text,
    first_version bigint,
    last_version bigint,
    error text,
    key text,
    cause text,
    recorded_at bigint not null
);
CREATE TABLE stepwell_ordered_group (
    id integer primary key autoincrement,
    queue_id bigint not null,
    group_key text not null,
    last_position bigint not null,
    after_failure text not null check (after_failure in ('wait', 'continue')),
    emptied_at bigint,
    repaired bigint not null default 0, positions_after bigint not null default 0,
    unique (queue_id, group_key)
);
CREATE TABLE stepwell_outbox_route (
    queue_id bigint primary key,
    tenant text not null default '',
    types text not null,
    after_dead text not null check (after_dead in ('stop', 'skip')),
    max_attempts bigint not null,
    created_at bigint not null,
    updated_at bigint not null
);
CREATE TABLE stepwell_parked (
    tenant text not null default '',
    projection text not null,
    build bigint not null default 1,
    instance_id bigint not null,
    version bigint not null,
    error text not null,
    retried boolean not null default false,
    parked_at bigint not null,
    primary key (tenant, projection, build, instance_id)
);
CREATE TABLE stepwell_projection (
    tenant text not null default '',
    name text not null check (length(name) between 1 and 255),
    build bigint not null default 1,
    live boolean not null default true,
    state text not null default 'running' check (state in ('running', 'paused', 'stopped')),
    position bigint not null default 0,
    begun boolean not null default false,
    tables text,
    owner bigint,
    turn bigint not null default 0,
    suspect boolean not null default false,
    tried bigint not null default 0,
    failed_at bigint,
    error text,
    handled bigint not null default 0,
    failures bigint not null default 0,
    window_at bigint not null,
    window_handled bigint not null default 0,
    moved_at bigint,
    swap_keep bigint,
    drop_at bigint,
    created_at bigint not null, inlined boolean not null default false, may_inline boolean not null default false,
    primary key (tenant, name, build)
);
CREATE TABLE stepwell_queue (
    id integer primary key autoincrement,
    tenant text not null default '',
    name text not null check (length(name) between 1 and 255),
    paused boolean not null default false,
    draining boolean not null default false,
    created_at bigint not null, limited boolean not null default false, key_path text, cost_path text, ordered text check (ordered in ('skip', 'stop')),
    unique (tenant, name)
);
INSERT INTO "stepwell_queue" VALUES(1,'','mail',0,0,1767225600000000,0,NULL,NULL,NULL);
INSERT INTO "stepwell_queue" VALUES(2,'','order',0,0,1767225600000000,0,NULL,NULL,NULL);
INSERT INTO "stepwell_queue" VALUES(3,'','basket',0,0,1767225600000000,0,NULL,NULL,NULL);
INSERT INTO "stepwell_queue" VALUES(5,'','account:effects',0,0,1767225600000000,0,NULL,NULL,NULL);
INSERT INTO "stepwell_queue" VALUES(6,'','account:inputs',0,0,1767225600000000,0,NULL,NULL,NULL);
CREATE TABLE stepwell_receipt (
    instance_id bigint not null,
    key text not null,
    outcome text not null check (outcome in ('applied', 'completed')),
    first_version bigint,
    last_version bigint,
    recorded_at bigint not null,
    primary key (instance_id, key)
);
CREATE TABLE stepwell_report (
    run_id bigint not null,
    kind text not null check (kind in ('value', 'stream')),
    name text not null,
    place bigint not null,
    chunks bigint not null check (chunks > 0),
    data text not null,
    recorded_at bigint not null,
    primary key (run_id, kind, name, place)
);
CREATE TABLE stepwell_rollup (
    minute bigint not null,
    queue_id bigint not null,
    shard bigint not null,
    wait_bucket bigint not null default 0,
    run_bucket bigint not null default 0,
    turns bigint not null default 0,
    succeeded bigint not null default 0,
    failed bigint not null default 0,
    retried bigint not null default 0,
    wait_us bigint not null default 0,
    run_us bigint not null default 0,
    primary key (minute, queue_id, shard, wait_bucket, run_bucket)
);
INSERT INTO "stepwell_rollup" VALUES(29453760,1,2963956498205578486,3,3,2,1,1,0,0,0);
INSERT INTO "stepwell_rollup" VALUES(29453760,2,2963956498205578486,3,3,1,0,1,0,0,0);
INSERT INTO "stepwell_rollup" VALUES(29453760,3,2963956498205578486,0,3,1,0,0,0,0,0);
INSERT INTO "stepwell_rollup" VALUES(29453760,2,2963956498205578486,0,3,2,0,0,0,0,0);
CREATE TABLE stepwell_schedule (
    id integer primary key autoincrement,
    tenant text not null default '',
    name text not null,
    queue_id bigint not null,
    plan text not null,
    declared text,
    edited text,
    hashes text,
    next_at bigint,
    buffered_at bigint,
    paused_at bigint,
    pause_reason text,
    retired_at bigint,
    removed_at bigint,
    version bigint not null default 0,
    last_due_at bigint,
    last_outcome text,
    last_task_id bigint,
    created_at bigint not null,
    updated_at bigint not null,
    unique (tenant, name)
);
CREATE TABLE stepwell_signal (
    run_id bigint not null,
    name text not null,
    place bigint not null,
    key text,
    data text,
    sent_at bigint not null,
    taken_by text,
    taken_at bigint, reply text, refused text, answered_at bigint, arrival bigint, headers text,
    primary key (run_id, name, place)
);
INSERT INTO "stepwell_signal" VALUES(4,'unheard',1,'~e7530cf9a1404f8ab01cd96882276bdc','1',1767225600000000,NULL,NULL,NULL,NULL,NULL,1,NULL);
CREATE TABLE stepwell_step (
    run_id bigint not null,
    generation bigint not null default 0,
    key text not null,
    place bigint not null default 0,
    status text not null check (status in ('PENDING', 'RUNNING', 'PAUSED', 'SUCCESS', 'ERROR', 'CANCELLED')),
    attempt bigint not null default 1,
    started_at bigint,
    finished_at bigint,
    input text,
    output text,
    error text,
    accepts text,
    primary key (run_id, generation, key)
);
INSERT INTO "stepwell_step" VALUES(4,0,'charge#1',1,'SUCCESS',1,1767225599999974,1767225600000000,'5','5',NULL,NULL);
INSERT INTO "stepwell_step" VALUES(5,0,'order()#1',1,'PAUSED',1,1767225600000000,NULL,'7','{"ids": [6], "until": null}',NULL,NULL);
INSERT INTO "stepwell_step" VALUES(4,0,'approved#1',2,'PAUSED',1,1767225600000000,NULL,NULL,NULL,NULL,'{"schema":{"$ref":"#/$defs/Approval","$defs":{"Approval":{"title":"Approval","description":"What an order waits for.","type":"object","properties":{"by":{"type":"string"}},"required":["by"]}}},"named":"Approval"}');
INSERT INTO "stepwell_step" VALUES(6,0,'charge#1',1,'SUCCESS',1,1767225599999971,1767225600000000,'7','7',NULL,NULL);
INSERT INTO "stepwell_step" VALUES(6,0,'approved#1',2,'PAUSED',1,1767225600000000,NULL,NULL,NULL,NULL,'{"schema":{"$ref":"#/$defs/Approval","$defs":{"Approval":{"title":"Approval","description":"What an order waits for.","type":"object","properties":{"by":{"type":"string"}},"required":["by"]}}},"named":"Approval"}');
CREATE TABLE stepwell_subject_key (
    id integer primary key autoincrement,
    tenant text not null,
    subject text not null,
    wrapped text,
    created_at bigint not null,
    forgotten_at bigint,
    check ((wrapped is null) = (forgotten_at is not null)),
    unique (tenant, subject)
);
CREATE TABLE stepwell_subscription (
    run_id bigint not null,
    generation bigint not null,
    key text not null,
    tenant text not null,
    name text not null,
    match text  not null,
    after bigint not null,
    told bigint,
    taken bigint,
    asked_at bigint not null,
    primary key (run_id, generation, key)
);
CREATE TABLE stepwell_task (
    id bigint not null primary key,
    queue_id bigint not null references stepwell_queue (id),
    kind text not null check (kind in ('MESSAGE', 'RUN', 'EFFECT', 'TIMER', 'INPUT', 'OUTBOX')),
    status text not null default 'PENDING'
        check (status in ('PENDING', 'RUNNING', 'PAUSED', 'SUCCESS', 'ERROR', 'CANCELLED')),
    ready boolean not null,
    suspect boolean not null default false,
    priority bigint not null default 0,
    run_at bigint,
    owner bigint,
    worker_id bigint,
    turn bigint not null default 0,
    attempt bigint not null default 0 check (attempt >= 0),
    max_attempts bigint not null check (max_attempts >= 1),
    losses bigint not null default 0,
    lost_by bigint,
    generation bigint not null default 0,
    wakes bigint not null default 0,
    waiting bigint not null default 0,
    parent_id bigint,
    instance_id bigint,
    scheduled_for bigint,
    created_at bigint not null,
    updated_at bigint not null,
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
    key_scope text not null default 'ever' check (key_scope in ('ever', 'unfinished')),
    payload_hash text,
    cause text,
    held_reason text,
    delete_reason text,
    tags text,
    progress text,
    last_error text,
    error text,
    input text,
    output text, group_key text, position bigint, waits_for_previous boolean not null default false check (not (ready and waits_for_previous)), schedule_id bigint, limit_key text, cost bigint, key_until_begun boolean not null default false, replaced_by bigint, expires_at bigint, keeps_result boolean not null default false, headers text, timeout bigint, deadline_at bigint, on_parent_end text check (on_parent_end in ('cancel', 'leave')), ends_children boolean not null default false,
    constraint task_owned_while_running check (owner is null or status = 'RUNNING'),
    constraint task_may_be_ready
        check (not ready or (status = 'PENDING' and deleted_at is null and held_at is null and losses = 0)),
    constraint task_finished_at_its_end
        check ((finished_at is null) = (status in ('PENDING', 'RUNNING', 'PAUSED')))
);
INSERT INTO "stepwell_task" VALUES(1,1,'MESSAGE','SUCCESS',0,0,0,1767225600000000,NULL,1,1,1,1,0,NULL,0,0,0,NULL,NULL,NULL,1767225600000000,1767225600000000,1767225600000000,1767225600000000,NULL,NULL,NULL,NULL,NULL,1767225600000000,NULL,NULL,'ever',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'"ann"',NULL,NULL,NULL,0,NULL,NULL,NULL,0,NULL,NULL,0,NULL,NULL,NULL,NULL,0);
INSERT INTO "stepwell_task" VALUES(2,1,'MESSAGE','ERROR',0,0,0,1767225600000000,NULL,1,1,1,1,0,NULL,0,0,0,NULL,NULL,NULL,1767225600000000,1767225600000000,1767225600000000,1767225600000000,NULL,NULL,NULL,NULL,NULL,1767225600000000,NULL,NULL,'ever',NULL,NULL,NULL,NULL,NULL,NULL,'PermanentError: no such address','{"type":"PermanentError","message":"no such address","traceback":"PermanentError: no such address\n  File \"/app/src/stepwell/work/execution.py\", line 236, in _outcome\n    return self._interrupted() if is_over else await self._called(self._served.body(tasks, threads, self))\n                                               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/app/src/stepwell/queue.py\", line 118, in _body\n    result: Any = await self.fn(argument)  # type: ignore[misc]\n                  ^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/app/tests/store/stored/__init__.py\", line 44, in send\n    raise PermanentError(\"no such address\")\n"}','"nobody"',NULL,NULL,NULL,0,NULL,NULL,NULL,0,NULL,NULL,0,NULL,NULL,NULL,NULL,0);
INSERT INTO "stepwell_task" VALUES(3,2,'RUN','ERROR',0,0,0,1767225600000000,NULL,1,1,1,3,0,NULL,0,0,0,NULL,NULL,NULL,1767225600000000,1767225600000000,1767225600000000,1767225600000000,NULL,NULL,NULL,NULL,NULL,1767225600000000,NULL,'order-0','ever','1240a4684403b160e6597a653a88f56c',NULL,NULL,NULL,NULL,NULL,'PermanentError: nothing is ordered','{"type":"PermanentError","message":"nothing is ordered","traceback":"PermanentError: nothing is ordered\n  File \"/app/src/stepwell/work/execution.py\", line 236, in _outcome\n    return self._interrupted() if is_over else await self._called(self._served.body(tasks, threads, self))\n                                               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/app/src/stepwell/runs/body.py\", line 104, in _execute\n    return _set_aside(run, error, workflow.retry or slot.database.options.retry)\n           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/app/src/stepwell/runs/body.py\", line 154, in _set_aside\n    raise error\n  File \"/app/src/stepwell/runs/body.py\", line 92, in _execute\n    returned = await run.execute(workflow.fn, _context(workflow, run), arguments)\n               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/app/src/stepwell/runs/turn.py\", line 96, in execute\n    result = await fn(*args, **kwargs)\n             ^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/app/tests/store/stored/__init__.py\", line 63, in order\n    raise PermanentError(\"nothing is ordered\")\n"}','0',NULL,NULL,NULL,0,NULL,NULL,NULL,0,NULL,NULL,0,NULL,NULL,NULL,NULL,0);
INSERT INTO "stepwell_task" VALUES(4,2,'RUN','PAUSED',0,0,0,NULL,NULL,1,1,0,3,0,NULL,0,1,0,NULL,NULL,NULL,1767225600000000,1767225600000000,1767225600000000,1767225600000000,NULL,1767225600000000,NULL,NULL,NULL,NULL,NULL,'order-5','ever','6152bc863269f1d04b4d21185d6bb25e',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'5',NULL,NULL,NULL,0,NULL,NULL,NULL,0,NULL,NULL,0,NULL,NULL,NULL,NULL,0);
INSERT INTO "stepwell_task" VALUES(5,3,'RUN','PAUSED',0,0,0,NULL,NULL,1,1,0,3,0,NULL,0,0,1,NULL,NULL,NULL,1767225600000000,1767225600000000,1767225600000000,1767225600000000,NULL,1767225600000000,NULL,NULL,NULL,NULL,NULL,'basket','ever','9e287f590d2dcbbf387bfb70928e621d',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'7',NULL,NULL,NULL,0,NULL,NULL,NULL,0,NULL,NULL,0,NULL,NULL,NULL,NULL,0);
INSERT INTO "stepwell_task" VALUES(6,2,'RUN','PAUSED',0,0,0,NULL,NULL,1,1,0,3,0,NULL,0,0,0,5,NULL,NULL,1767225600000000,1767225600000000,1767225600000000,1767225600000000,NULL,1767225600000000,NULL,NULL,NULL,NULL,NULL,NULL,'ever',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'7',NULL,NULL,NULL,0,NULL,NULL,NULL,0,NULL,NULL,0,NULL,NULL,NULL,NULL,0);
INSERT INTO "stepwell_task" VALUES(7,1,'MESSAGE','PENDING',1,0,0,1767225600000000,NULL,NULL,0,0,1,0,NULL,0,0,0,NULL,NULL,NULL,1767225600000000,1767225600000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'bob','ever','8c82efa3d21a0d76f37fd1dfb6997efe',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'"bob"',NULL,NULL,NULL,0,NULL,NULL,NULL,0,NULL,NULL,0,NULL,NULL,NULL,NULL,0);
INSERT INTO "stepwell_task" VALUES(8,1,'MESSAGE','PENDING',0,0,0,1767229200000000,NULL,NULL,0,0,1,0,NULL,0,0,0,NULL,NULL,NULL,1767225600000000,1767225600000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'ever',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'"later"',NULL,NULL,NULL,0,NULL,NULL,NULL,0,NULL,NULL,0,NULL,NULL,NULL,NULL,0);
INSERT INTO "stepwell_task" VALUES(10,5,'EFFECT','PENDING',1,0,0,1767225600000000,NULL,NULL,0,0,5,0,NULL,0,0,0,NULL,9,NULL,1767225600000000,1767225600000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'unfinished',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"id":"a","type":"Tell","data":{"amount":3}}',NULL,NULL,NULL,0,NULL,NULL,NULL,0,NULL,NULL,0,NULL,NULL,NULL,NULL,0);
INSERT INTO "stepwell_task" VALUES(11,6,'TIMER','PENDING',0,0,0,1767312000000000,NULL,NULL,0,0,5,0,NULL,0,0,0,NULL,9,NULL,1767225600000000,1767225600000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'9:daily','unfinished',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"id":"a","type":"Add","data":{"id":"a","amount":1}}',NULL,NULL,NULL,0,NULL,NULL,NULL,0,NULL,NULL,0,NULL,NULL,NULL,NULL,0);
CREATE TABLE stepwell_tick (
    schedule_id bigint not null,
    due_at bigint not null,
    kind text not null check (kind in ('tick', 'gap', 'manual')),
    outcome text not null check (outcome in ('fired', 'skipped', 'buffered', 'missed')),
    count bigint not null default 1,
    task_id bigint,
    decided_at bigint not null,
    primary key (schedule_id, due_at, kind)
);
CREATE TABLE stepwell_worker (
    id integer primary key autoincrement,
    tenant text not null default '',
    name text not null,
    host text not null,
    pid bigint not null,
    port bigint,
    version text not null,
    handlers text not null,
    lease bigint not null check (lease > 0),
    held bigint,
    blamed bigint,
    started_at bigint not null,
    stopped_at bigint,
    stop_reason text
);
INSERT INTO "stepwell_worker" VALUES(1,'','w','vm',11741,NULL,'0.1.0.dev0','["mail", "order", "basket", "zones/2025b/"]',30000000,NULL,NULL,1767225600000000,1767225600000000,'stopped');
CREATE TABLE stepwell_workflow (
    queue_id bigint not null primary key references stepwell_queue (id),
    cleanup bigint,
    options text,
    created_at bigint not null
);
INSERT INTO "stepwell_workflow" VALUES(2,NULL,NULL,1767225600000000);
INSERT INTO "stepwell_workflow" VALUES(3,NULL,NULL,1767225600000000);
CREATE INDEX stepwell_worker_stopped on stepwell_worker (stopped_at) where stopped_at is not null;
CREATE INDEX stepwell_task_ready on stepwell_task (queue_id, priority desc, run_at, id) where ready;
CREATE INDEX stepwell_task_idle on stepwell_task (queue_id, run_at)
    where not ready and owner is null and deleted_at is null and status in ('PENDING', 'PAUSED', 'RUNNING');
CREATE INDEX stepwell_task_owner on stepwell_task (owner) where owner is not null;
CREATE INDEX stepwell_task_parent on stepwell_task (parent_id) where parent_id is not null;
CREATE INDEX stepwell_task_instance on stepwell_task (instance_id) where instance_id is not null and finished_at is null;
CREATE INDEX stepwell_task_run on stepwell_task (queue_id, status, created_at, id) where kind = 'RUN';
CREATE INDEX stepwell_task_dead on stepwell_task (finished_at, id) where status = 'ERROR';
CREATE INDEX stepwell_task_finished on stepwell_task (queue_id, finished_at)
    where status in ('SUCCESS', 'CANCELLED') and deleted_at is null;
CREATE INDEX stepwell_task_deleted on stepwell_task (deleted_at) where deleted_at is not null;
CREATE UNIQUE INDEX stepwell_signal_key on stepwell_signal (run_id, name, key) where key is not null;
CREATE INDEX stepwell_receipt_recorded on stepwell_receipt (recorded_at);
CREATE INDEX stepwell_audit_recorded on stepwell_audit (recorded_at);
CREATE VIEW stepwell_instances as
select instance.id, instance.tenant, instance.type, instance.name, instance.version,
       case when instance.completed_at is null then 'open' else 'completed' end as state,
       instance.snapshot, instance.snapshot_version, strftime('%Y-%m-%d %H:%M:%f', instance.created_at / 1000000.0, 'unixepoch') as created_at,
       strftime('%Y-%m-%d %H:%M:%f', instance.updated_at / 1000000.0, 'unixepoch') as updated_at, strftime('%Y-%m-%d %H:%M:%f', instance.completed_at / 1000000.0, 'unixepoch') as completed_at
  from stepwell_instance as instance;
CREATE VIEW stepwell_heartbeats as
select beat.worker_id, strftime('%Y-%m-%d %H:%M:%f', beat.heard_at / 1000000.0, 'unixepoch') as heard_of from stepwell_beat as beat;
CREATE VIEW stepwell_messages as
select task.id, task.tenant, task.queue, task.status, task.state, task.until,
       task.held_by, task.held_by_name, task.held_by_host, task.held_by_pid, task.held_by_heard_of, task.last_worker,
       task.last_worker_name, task.attempt, task.max_attempts, task.turn, task.priority, task.key, task.last_error,
       task.input, task.output, task.error, task.tags, task.suspect, task.delete_reason, task.run_at, task.created_at,
       task.claimed_at, task.started_at, task.cancel_requested_at, task.finished_at, task.deleted_at
  from stepwell_tasks as task where task.kind = 'MESSAGE';
CREATE VIEW stepwell_runs as
select task.id, task.tenant, task.queue as workflow, task.status, task.state, task.until,
       task.held_by, task.held_by_name, task.held_by_host, task.held_by_pid, task.held_by_heard_of,
       task.attempt, task.max_attempts, task.turn, task.generation, task.priority, task.key, task.last_error, task.input,
       task.output, task.error, task.tags, task.progress, task.cause, task.suspect, task.parent_id, task.held_reason,
       task.delete_reason, task.run_at, task.created_at, task.claimed_at, task.started_at, task.restarted_at,
       task.paused_at, task.held_at, task.cancel_requested_at, task.cleanup_until, task.finished_at, task.deleted_at
  from stepwell_tasks as task where task.kind = 'RUN';
CREATE VIEW stepwell_steps as
select step.run_id, queue.tenant, queue.name as workflow, step.generation, step.place, step.key, step.status,
       step.attempt, step.input, step.output, step.error, step.accepts, strftime('%Y-%m-%d %H:%M:%f', step.started_at / 1000000.0, 'unixepoch') as started_at,
       strftime('%Y-%m-%d %H:%M:%f', step.finished_at / 1000000.0, 'unixepoch') as finished_at
  from stepwell_step as step
  join stepwell_task as task on task.id = step.run_id and task.generation = step.generation
  join stepwell_queue as queue on queue.id = task.queue_id
 where step.key not like '#%';
CREATE VIEW stepwell_effects as
select task.id, task.tenant, task.queue, instance.type as instance_type, instance.name as instance, task.status,
       task.state, task.until, task.held_by, task.held_by_name, task.held_by_host, task.held_by_pid,
       task.held_by_heard_of, task.attempt, task.max_attempts, task.key, task.last_error, task.input, task.output,
       task.error, task.run_at, task.created_at, task.started_at, task.finished_at, task.deleted_at
  from stepwell_tasks as task left join stepwell_instance as instance on instance.id = task.instance_id
 where task.kind = 'EFFECT';
CREATE VIEW stepwell_timers as
select task.id, task.tenant, task.queue, instance.type as instance_type, instance.name as instance, task.status,
       task.state, task.run_at as due_at, task.held_by, task.held_by_name, task.held_by_host, task.held_by_pid,
       task.held_by_heard_of, task.attempt, task.max_attempts, task.key, task.last_error, task.input, task.error,
       task.created_at, task.finished_at, task.deleted_at
  from stepwell_tasks as task left join stepwell_instance as instance on instance.id = task.instance_id
 where task.kind = 'TIMER';
CREATE VIEW stepwell_outbox as
select task.id, task.tenant, task.queue as destination, task.status, task.state, task.until,
       task.held_by, task.held_by_name, task.held_by_host, task.held_by_pid, task.held_by_heard_of,
       task.attempt, task.max_attempts, task.key, task.last_error, task.input as event, task.error, task.run_at,
       task.created_at, task.finished_at, task.deleted_at
  from stepwell_tasks as task where task.kind = 'OUTBOX';
CREATE VIEW stepwell_dead_letters as
select task.id, task.kind, task.tenant, task.queue, task.attempt, task.max_attempts, task.key, task.last_error,
       task.error, task.input, task.suspect, task.parent_id, task.instance_id, task.last_worker, task.last_worker_name,
       task.created_at, task.started_at, task.finished_at
  from stepwell_tasks as task where task.status = 'ERROR' and task.deleted_at is null;
CREATE VIEW stepwell_workers as
select worker.id, worker.name, worker.host, worker.pid, worker.port, worker.version,
       case when heard.worker_id is not null then 'living' when worker.stopped_at is not null then 'ended'
            else 'lost' end as state,
       heard.heard_of, worker.lease / 1000000.0 as lease_seconds,
       (select count(*) from stepwell_task as task where task.owner = worker.id) as holds,
       worker.stop_reason, worker.handlers, strftime('%Y-%m-%d %H:%M:%f', worker.started_at / 1000000.0, 'unixepoch') as started_at,
       strftime('%Y-%m-%d %H:%M:%f', worker.stopped_at / 1000000.0, 'unixepoch') as stopped_at
  from stepwell_worker as worker left join stepwell_heartbeats as heard on heard.worker_id = worker.id;
CREATE INDEX stepwell_task_dead_in_queue on stepwell_task (queue_id, finished_at, id)
    where (status = 'ERROR') is true and deleted_at is null;
CREATE INDEX stepwell_ordered_group_emptied on stepwell_ordered_group (emptied_at) where emptied_at is not null;
CREATE INDEX stepwell_ordered_group_repaired on stepwell_ordered_group (repaired) where repaired > 0;
CREATE INDEX stepwell_task_in_order on stepwell_task (queue_id, group_key, position) where position is not null;
CREATE INDEX stepwell_task_due on stepwell_task (run_at)
    where not ready and owner is null and deleted_at is null and held_at is null and losses = 0
      and not waits_for_previous and status in ('PENDING', 'PAUSED', 'RUNNING');
CREATE INDEX stepwell_task_suspect on stepwell_task (losses, run_at)
    where losses > 0 and owner is null and status = 'PENDING' and not waits_for_previous;
CREATE VIEW stepwell_tasks as
select task.id, task.kind, queue.tenant, queue.name as queue, task.status,
       case when task.deleted_at is not null then 'deleted'
            when task.status = 'SUCCESS' then 'succeeded'
            when task.status = 'ERROR' then 'failed'
            when task.status = 'CANCELLED' then 'cancelled'
            when task.status = 'RUNNING' and task.cancel_requested_at is not null then 'cancelling'
            when task.cancel_requested_at is not null then 'cancelling, cleans up when a worker claims it'
            when task.status = 'RUNNING' and task.owner is null then 'taken by hand, comes back if not settled'
            when task.status = 'RUNNING' and task.held_at is not null then 'running, asked to pause'
            when task.status = 'RUNNING' then 'running'
            when task.held_at is not null then 'paused by an operator, until it is unpaused'
            when task.ready and queue.paused then 'its queue is paused'
            when task.ready and queue.tenant in (select maintenance.tenant from stepwell_maintenance as maintenance)
                 then 'the store is in maintenance'
            when task.ready then 'ready'
            when task.waits_for_previous then 'waits for the one before it in its group'
            when task.losses > 0 then 'was lost with others, is executed alone'
            when task.waiting > 0 then 'waiting for child runs'
            when task.status = 'PAUSED' and task.run_at = 253370764800000000
                 then 'held for its code, until it is accepted or other code is deployed'
            when task.status = 'PAUSED' and task.run_at is null then 'paused until a signal or an operator resumes it'
            when task.status = 'PAUSED' then 'paused until resumed, at the latest until run_at'
            when task.run_at is null then 'waiting for a signal'
            when task.last_error is not null then 'failed, waiting to be tried again at run_at'
            else 'waiting until run_at' end as state,
       case when task.ready or task.owner is not null or task.deleted_at is not null or task.finished_at is not null
                 or task.held_at is not null or task.losses > 0 or task.waits_for_previous
                 or (task.status = 'PAUSED' and task.run_at = 253370764800000000)
            then null else strftime('%Y-%m-%d %H:%M:%f', task.run_at / 1000000.0, 'unixepoch') end as until,
       task.owner as held_by, worker.name as held_by_name, worker.host as held_by_host, worker.pid as held_by_pid,
       heard.heard_of as held_by_heard_of, task.worker_id as last_worker, last.name as last_worker_name,
       task.attempt, task.max_attempts, task.turn, task.generation, task.priority, task.key, task.last_error, task.input,
       task.output, task.error, task.tags, task.progress, task.cause, task.suspect, task.losses, task.lost_by,
       task.parent_id, task.instance_id, task.held_reason, task.delete_reason, strftime('%Y-%m-%d %H:%M:%f', task.run_at / 1000000.0, 'unixepoch') as run_at,
       strftime('%Y-%m-%d %H:%M:%f', task.created_at / 1000000.0, 'unixepoch') as created_at, strftime('%Y-%m-%d %H:%M:%f', task.updated_at / 1000000.0, 'unixepoch') as updated_at,
       strftime('%Y-%m-%d %H:%M:%f', task.claimed_at / 1000000.0, 'unixepoch') as claimed_at, strftime('%Y-%m-%d %H:%M:%f', task.started_at / 1000000.0, 'unixepoch') as started_at,
       strftime('%Y-%m-%d %H:%M:%f', task.restarted_at / 1000000.0, 'unixepoch') as restarted_at, strftime('%Y-%m-%d %H:%M:%f', task.paused_at / 1000000.0, 'unixepoch') as paused_at,
       strftime('%Y-%m-%d %H:%M:%f', task.held_at / 1000000.0, 'unixepoch') as held_at, strftime('%Y-%m-%d %H:%M:%f', task.cancel_requested_at / 1000000.0, 'unixepoch') as cancel_requested_at,
       strftime('%Y-%m-%d %H:%M:%f', task.cleanup_until / 1000000.0, 'unixepoch') as cleanup_until, strftime('%Y-%m-%d %H:%M:%f', task.finished_at / 1000000.0, 'unixepoch') as finished_at,
       strftime('%Y-%m-%d %H:%M:%f', task.deleted_at / 1000000.0, 'unixepoch') as deleted_at, task.group_key, task.position
  from stepwell_task as task
  join stepwell_queue as queue on queue.id = task.queue_id
  left join stepwell_worker as worker on worker.id = task.owner
  left join stepwell_heartbeats as heard on heard.worker_id = task.owner
  left join stepwell_worker as last on last.id = task.worker_id;
CREATE VIEW stepwell_queue_counts as
select queue.tenant, queue.name as queue, queue.paused,
       coalesce(ready.tasks, 0) as ready, coalesce(idle.waiting, 0) as waiting,
       coalesce(owned.tasks, 0) + coalesce(idle.taken, 0) as running, coalesce(dead.tasks, 0) as dead,
       strftime('%Y-%m-%d %H:%M:%f', ready.since / 1000000.0, 'unixepoch') as oldest_ready, strftime('%Y-%m-%d %H:%M:%f', idle.next_at / 1000000.0, 'unixepoch') as next_due, queue.draining,
       coalesce(idle.suspects, 0) as suspects
  from stepwell_queue as queue
  left join (select task.queue_id, count(*) as tasks, min(task.run_at) as since
               from stepwell_task as task where task.ready group by task.queue_id) as ready on ready.queue_id = queue.id
  left join (select task.queue_id, count(case when task.status <> 'RUNNING' then 1 end) as waiting,
                    count(case when task.status = 'RUNNING' then 1 end) as taken,
                    count(case when task.losses > 0 then 1 end) as suspects,
                    min(case when task.losses = 0 and not task.waits_for_previous then task.run_at end) as next_at
               from stepwell_task as task
              where not task.ready and task.owner is null and task.deleted_at is null
                and task.status in ('PENDING', 'PAUSED', 'RUNNING')
              group by task.queue_id) as idle on idle.queue_id = queue.id
  left join (select task.queue_id, count(*) as tasks
               from stepwell_task as task where task.owner is not null and task.owner > 0 group by task.queue_id) as owned
         on owned.queue_id = queue.id
  left join (select task.queue_id, count(*) as tasks
               from stepwell_task as task where task.status = 'ERROR' and task.deleted_at is null
              group by task.queue_id) as dead on dead.queue_id = queue.id;
CREATE UNIQUE INDEX stepwell_projection_live on stepwell_projection (tenant, name) where live;
CREATE INDEX stepwell_observation_of on stepwell_observation (tenant, type, name, id);
CREATE INDEX stepwell_observation_recorded on stepwell_observation (tenant, recorded_at);
CREATE INDEX stepwell_outbox_route_of on stepwell_outbox_route (tenant, queue_id);
CREATE INDEX stepwell_audit_sealed on stepwell_audit (seal, task_id, place) where seal is not null;
CREATE INDEX stepwell_audit_seal_whole on stepwell_audit_seal (id) where dropped_at is null;
CREATE INDEX stepwell_schedule_due on stepwell_schedule (tenant, next_at) where next_at is not null and paused_at is null;
CREATE INDEX stepwell_schedule_buffered on stepwell_schedule (tenant, buffered_at) where buffered_at is not null and paused_at is null;
CREATE INDEX stepwell_tick_decided on stepwell_tick (decided_at);
CREATE INDEX stepwell_task_schedule on stepwell_task (schedule_id) where schedule_id is not null and finished_at is null;
CREATE INDEX stepwell_task_limited on stepwell_task (queue_id, limit_key, priority desc, run_at, id) where ready and limit_key is not null;
CREATE UNIQUE INDEX stepwell_task_key on stepwell_task (queue_id, key )
    where key is not null and deleted_at is null and (key_scope = 'ever' or finished_at is null)
      and (turn = 0 or not key_until_begun);
CREATE INDEX stepwell_task_replaced on stepwell_task (replaced_by) where replaced_by is not null;
CREATE INDEX stepwell_task_expires on stepwell_task (expires_at)
    where expires_at is not null and turn = 0 and finished_at is null and deleted_at is null;
CREATE INDEX stepwell_broadcast_published on stepwell_broadcast (tenant, published_at);
CREATE INDEX stepwell_broadcast_key_of on stepwell_broadcast_key (broadcast_id);
CREATE INDEX stepwell_subscription_open on stepwell_subscription (tenant, name, match, run_id) where told is null and taken is null;
CREATE INDEX stepwell_subscription_told on stepwell_subscription (told) where told is not null;
CREATE INDEX stepwell_event_workflow_of on stepwell_event_workflow (queue_id);
CREATE INDEX stepwell_task_freed_key on stepwell_task (queue_id, key , created_at desc, id desc)
    where kind = 'RUN' and key is not null
      and not (deleted_at is null and (key_scope = 'ever' or finished_at is null) and (turn = 0 or not key_until_begun));
CREATE INDEX stepwell_task_tagged on stepwell_task (queue_id, status, created_at, id) where kind = 'RUN' and tags is not null;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('stepwell_queue',6);
INSERT INTO "sqlite_sequence" VALUES('stepwell_worker',1);
INSERT INTO "sqlite_sequence" VALUES('stepwell_event',1);
COMMIT;
