"""Durable queues, durable workflows and event-sourced deciders in the database you already have."""

from stepwell import sync
from stepwell._version import __version__
from stepwell.base.backoff import Retry
from stepwell.base.count import Count
from stepwell.base.limits import Limits
from stepwell.base.rates import Rate
from stepwell.compensation import saga
from stepwell.connect import Admin, Config, admin, connect, connect_with
from stepwell.consumer import Consumer, consumer
from stepwell.decider import Decider, EffectContext, Receipt, TimerCancelled
from stepwell.deciders.diagram import StateInfo, StateMachine, StateMachineDefinition, StateMachineView, Transition
from stepwell.deciders.drift import ObservedMachine, ObservedTransition
from stepwell.deciders.global_order import At, Feed, FeedEvent
from stepwell.deciders.history import DryRun, EventInfo, Inspection, InstanceInfo, OutstandingInfo
from stepwell.deciders.observation import Observation
from stepwell.decision import Decision
from stepwell.engine import Engine
from stepwell.errors import (
    CannotOpen,
    ChunksRemoved,
    DeciderNotFound,
    DriverMissing,
    DuplicateDecider,
    DuplicateWorkflow,
    ExecutionFailed,
    ForkError,
    IdempotencyConflict,
    InlineProjectionFailed,
    InvalidName,
    InvalidOption,
    KeyInUse,
    KeyMissing,
    KeyTaken,
    LeaseLost,
    NonDeterminismError,
    NotInDoubt,
    NotInRun,
    NoWorkerAvailable,
    Paused,
    PauseError,
    PayloadTooLarge,
    PermanentError,
    ProjectionNotFound,
    QueueDraining,
    QueueInUse,
    QueueNotFound,
    Refused,
    RequestRefused,
    RequestUnanswered,
    RunCancelled,
    RunNotFound,
    RunUnfinished,
    ScheduleNotFound,
    SchemaDiffers,
    SchemaMissing,
    SchemaNewer,
    SerializationError,
    StepFailed,
    StepNotFound,
    StepwellError,
    StillStopping,
    StoreBusy,
    StoreClosed,
    StoreInUse,
    StoreLocked,
    StoreUnavailable,
    StoreUnusable,
    SubjectForgotten,
    TaskFactoryReplaced,
    TaskInUse,
    Timeout,
    TooMuchUnwritten,
    TransientError,
    UndoFailed,
    UnknownCodec,
    UnknownRecord,
    UnknownStore,
    UnknownWorkflowType,
    UpcastFailed,
    ValueNotSet,
    VersionConflict,
    WorkflowNotFound,
    WrongLoop,
)
from stepwell.event_trigger import on_event
from stepwell.move import MoveCount, move_from_pgqrs
from stepwell.outbox import Outbox
from stepwell.projections.projection import projection
from stepwell.projections.row_class import Indexed, Key
from stepwell.queue import Handler, handler
from stepwell.records import (
    Aside,
    AuditInfo,
    AuditNote,
    CancelAnswer,
    DeadLetter,
    Health,
    Maintenance,
    Page,
    QueueInfo,
    QueueStats,
    Run,
    RunId,
    RunStatus,
    SignalAnswer,
    StepInfo,
    StoredVersion,
    Task,
    TaskId,
    TaskKind,
    Unserved,
    WorkerInfo,
    WorkflowInfo,
)
from stepwell.runs.cleanup import Cancelled, shield
from stepwell.runs.conditions import condition
from stepwell.runs.context import Context, race, sleep, wait
from stepwell.runs.current import current, wait_event
from stepwell.runs.doubt import Reconciliation
from stepwell.runs.manual_steps import Execute, Skipped
from stepwell.sinks.cloud_event import CloudEvent
from stepwell.sinks.webhook import Webhook
from stepwell.step import BackgroundStep as Future
from stepwell.step import Step, step
from stepwell.store.groups import GroupStats
from stepwell.store.horizon import Appender
from stepwell.store.limits_info import LimitedKey, LimitsInfo
from stepwell.store.measurements import workflow_metrics
from stepwell.store.metrics import DeadCount, Durations, Metrics, QueueMetrics, Serving, StepMetrics
from stepwell.store.plan import Cron, Every, Once
from stepwell.store.projections import ParkedInfo, ProjectionInfo
from stepwell.store.reports import Chunk, ValueInfo
from stepwell.store.run_key import RunKey
from stepwell.store.run_log import LogLine
from stepwell.store.schedule_edits import Backfill
from stepwell.store.schedule_info import ScheduleInfo, TickInfo
from stepwell.store.seals import AuditFault, AuditVerdict
from stepwell.store.signal_list import SignalInfo
from stepwell.store.store import Store
from stepwell.store.taken_messages import Message
from stepwell.store.task_edits import RescheduleAnswer
from stepwell.store.transaction import Tx, headers
from stepwell.store.why import Reason, Why
from stepwell.trigger import Trigger
from stepwell.values.encryption import Encrypted, Keyring, Keys
from stepwell.values.named_codecs import JSON, Codec, Compressed, MessagePack, Protobuf, register_codec
from stepwell.values.own_types import Type
from stepwell.values.upcasters import upcast
from stepwell.worker import Worker, poll_all
from stepwell.workflow import Workflow, workflow, workflow_decorator
from stepwell.workload import discover_workflows

WorkflowContext = Context

__all__ = [
    "JSON",
    "Admin",
    "Appender",
    "Aside",
    "At",
    "AuditFault",
    "AuditInfo",
    "AuditNote",
    "AuditVerdict",
    "Backfill",
    "CancelAnswer",
    "Cancelled",
    "CannotOpen",
    "Chunk",
    "ChunksRemoved",
    "CloudEvent",
    "Codec",
    "Compressed",
    "Config",
    "Consumer",
    "Context",
    "Count",
    "Cron",
    "DeadCount",
    "DeadLetter",
    "Decider",
    "DeciderNotFound",
    "Decision",
    "DriverMissing",
    "DryRun",
    "DuplicateDecider",
    "DuplicateWorkflow",
    "Durations",
    "EffectContext",
    "Encrypted",
    "Engine",
    "EventInfo",
    "Every",
    "Execute",
    "ExecutionFailed",
    "Feed",
    "FeedEvent",
    "ForkError",
    "Future",
    "GroupStats",
    "Handler",
    "Health",
    "IdempotencyConflict",
    "Indexed",
    "InlineProjectionFailed",
    "Inspection",
    "InstanceInfo",
    "InvalidName",
    "InvalidOption",
    "Key",
    "KeyInUse",
    "KeyMissing",
    "KeyTaken",
    "Keyring",
    "Keys",
    "LeaseLost",
    "LimitedKey",
    "Limits",
    "LimitsInfo",
    "LogLine",
    "Maintenance",
    "Message",
    "MessagePack",
    "Metrics",
    "MoveCount",
    "NoWorkerAvailable",
    "NonDeterminismError",
    "NotInDoubt",
    "NotInRun",
    "Observation",
    "ObservedMachine",
    "ObservedTransition",
    "Once",
    "Outbox",
    "OutstandingInfo",
    "Page",
    "ParkedInfo",
    "PauseError",
    "Paused",
    "PayloadTooLarge",
    "PermanentError",
    "ProjectionInfo",
    "ProjectionNotFound",
    "Protobuf",
    "QueueDraining",
    "QueueInUse",
    "QueueInfo",
    "QueueMetrics",
    "QueueNotFound",
    "QueueStats",
    "Rate",
    "Reason",
    "Receipt",
    "Reconciliation",
    "Refused",
    "RequestRefused",
    "RequestUnanswered",
    "RescheduleAnswer",
    "Retry",
    "Run",
    "RunCancelled",
    "RunId",
    "RunKey",
    "RunNotFound",
    "RunStatus",
    "RunUnfinished",
    "ScheduleInfo",
    "ScheduleNotFound",
    "SchemaDiffers",
    "SchemaMissing",
    "SchemaNewer",
    "SerializationError",
    "Serving",
    "SignalAnswer",
    "SignalInfo",
    "Skipped",
    "StateInfo",
    "StateMachine",
    "StateMachineDefinition",
    "StateMachineView",
    "Step",
    "StepFailed",
    "StepInfo",
    "StepMetrics",
    "StepNotFound",
    "StepwellError",
    "StillStopping",
    "Store",
    "StoreBusy",
    "StoreClosed",
    "StoreInUse",
    "StoreLocked",
    "StoreUnavailable",
    "StoreUnusable",
    "StoredVersion",
    "SubjectForgotten",
    "Task",
    "TaskFactoryReplaced",
    "TaskId",
    "TaskInUse",
    "TaskKind",
    "TickInfo",
    "Timeout",
    "TimerCancelled",
    "TooMuchUnwritten",
    "TransientError",
    "Transition",
    "Trigger",
    "Tx",
    "Type",
    "UndoFailed",
    "UnknownCodec",
    "UnknownRecord",
    "UnknownStore",
    "UnknownWorkflowType",
    "Unserved",
    "UpcastFailed",
    "ValueInfo",
    "ValueNotSet",
    "VersionConflict",
    "Webhook",
    "Why",
    "Worker",
    "WorkerInfo",
    "Workflow",
    "WorkflowContext",
    "WorkflowInfo",
    "WorkflowNotFound",
    "WrongLoop",
    "__version__",
    "admin",
    "condition",
    "connect",
    "connect_with",
    "consumer",
    "current",
    "discover_workflows",
    "handler",
    "headers",
    "move_from_pgqrs",
    "on_event",
    "poll_all",
    "projection",
    "race",
    "register_codec",
    "saga",
    "shield",
    "sleep",
    "step",
    "sync",
    "upcast",
    "wait",
    "wait_event",
    "workflow",
    "workflow_decorator",
    "workflow_metrics",
]
