"""Checks of a store: facts in, findings out. Each problem names the next command."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from stepwell._version import __version__
from stepwell.base.names import is_served
from stepwell.operate.facts import Facts
from stepwell.operate.format import ago, many, span
from stepwell.records import StoredVersion, WorkerInfo
from stepwell.store.emission import KEPT, QUEUE
from stepwell.store.groups import GroupStats
from stepwell.store.projections import ProjectionInfo
from stepwell.store.schedule_info import other_zones

Level = Literal["good", "warning", "problem"]
SAFE_SQLITE: Final = (3, 51, 3)
FAR_CLOCK: Final = 1.0  # seconds between two clocks that are worth a warning
LONG_READY: Final = 60.0  # seconds after which a waiting task is worth a warning
LONG_HELD: Final = 60.0
LONG_WAITING: Final = 7 * 86_400.0  # seconds of a wait for a signal that may have been forgotten
SLOW_ANSWER: Final = 0.1
MOST_LISTED: Final = 10
MOST_PLACES: Final = 1000  # of a limited queue
WITHOUT_HELPER: Final = {  # why a session has no helper; without those that cannot have one
    "no Python": "sys.executable of its program is no Python that could be started beside it",
    "off": "its store was opened with helper=False",
    "lost": "its helper has ended, again after it was started anew",
}
LATELY: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: its level, its subject, a sentence, and what to do next."""

    level: Level
    about: str
    said: str
    next: str | None = None


def findings(facts: Facts) -> list[Finding]:
    """Every finding, in the order in which people should read them."""
    return [finding for check in CHECKS for finding in check(facts)]


def _database(facts: Facts) -> Iterator[Finding]:
    one = facts.health
    said = f"{one.backend} {one.version} at {facts.place}, {span(one.took)} away, schema {one.schema}"
    yield Finding("good", "database", f"{said} of {facts.needed_schema}")
    if one.took > SLOW_ANSWER:
        yield Finding("warning", "database", f"it took {span(one.took)} to answer one question", "stepwell bench")


def _durability(facts: Facts) -> Iterator[Finding]:
    """Settings with which an acknowledged commit may be lost."""
    good = {"fsync": "on", "full_page_writes": "on", "journal_mode": "wal"}
    settings = facts.health.settings
    bad = [f"{name}={value}" for name, value in settings.items() if good.get(name, value) != value]
    if settings.get("synchronous_commit") == "off":
        bad.append("synchronous_commit=off")
    if settings.get("synchronous") in ("off", "normal"):
        bad.append(f"synchronous={settings['synchronous']}")
    if bad:
        said = f"{', '.join(bad)}: what was committed may be gone after a power cut"
        yield Finding("problem", "durability", said, f"set {bad[0].partition('=')[0]} as the database comes with it")
    else:
        yield Finding("good", "durability", ", ".join(f"{name}={value}" for name, value in settings.items()))


def _library(facts: Facts) -> Iterator[Finding]:
    if facts.health.backend != "sqlite":
        return
    version = tuple(int(part) for part in facts.health.version.split("."))
    if version < SAFE_SQLITE:
        said = (
            f"SQLite {facts.health.version} can lose a commit beside an automatic checkpoint (mended in 3.51.3); "
            "stepwell makes none, other programs that write this file may"
        )
        yield Finding("warning", "sqlite", said, "`pragma wal_autocheckpoint = 0` in those programs, or a newer SQLite")


def _clock(facts: Facts) -> Iterator[Finding]:
    ahead = (facts.health.clock - facts.now).total_seconds()
    if abs(ahead) > FAR_CLOCK:
        said = f"the database's clock is {span(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} this machine's"
        yield Finding("warning", "clock", f"{said}; stepwell goes by the database's", "synchronise both with NTP")


def _horizon(facts: Facts) -> Iterator[Finding]:
    held = facts.health.held
    if held is not None and held > LONG_HELD:
        said = f"a transaction has been open for {span(held)}: nothing that was changed since can be cleaned up"
        yield Finding("warning", "transactions", said, "look for the oldest xact_start in pg_stat_activity")


def _events(facts: Facts) -> Iterator[Finding]:
    """What keeps readers of events from going on, or makes them miss some."""
    if facts.health.numbered_ahead > 1:
        said = f"sessions take {facts.health.numbered_ahead} positions of events at once: readers may miss events"
        next_ = "set the cache of the sequence of event.position to 1"
        yield Finding("problem", "events", said, next_)
    first = next(iter(facts.appenders), None)
    if first is not None and (first.seconds or 0.0) > LONG_HELD:
        who = f"the prepared transaction {first.prepared}" if first.pid is None else f"process {first.pid}"
        by = f" of {first.user}" + (f" ({first.application})" if first.application else "")
        said = (
            f"{who}{by} has appended events and not ended for {span(first.seconds)}: readers stop at {first.position}"
        )
        end = f"rollback prepared '{first.prepared}'" if first.pid is None else f"pg_terminate_backend({first.pid})"
        yield Finding("warning", "events", said, f"commit or end that transaction: {end}")


def _workers(facts: Facts) -> Iterator[Finding]:
    if facts.living:
        heard = max(one.silent or 0.0 for one in facts.living)
        yield Finding("good", "workers", f"{len(facts.living)} alive, all heard of in the last {span(heard)}")
    else:
        waiting = sum(one.ready + one.waiting for one in facts.queues)
        yield Finding(
            "problem" if waiting else "warning",
            "workers",
            f"no worker lives; {many(waiting, 'task waits', 'tasks wait')}",
            "stepwell worker APP",
        )
    for one in facts.workers:
        if one.stopped_at is not None or one in facts.living:
            continue
        said, next_ = f"session {one.id} ({one.name}, pid {one.pid})", "stepwell worker APP"
        if (one.silent or 0.0) > one.lease:
            said = f"{said} has been silent for {span(one.silent)}, its lease is {span(one.lease)}"
            next_ = next_ if not facts.living else f"see what holds up process {one.pid}"
        else:
            said = f"{said} is gone: its process was killed"
        yield Finding("problem", "workers", f"{said}: a living worker takes over", next_)
    lost = [one for one in facts.workers if one.stop_reason == "lost" and _is_late(one, facts.now)]
    if lost:
        said = f"{many(len(lost), 'session')} lost in the last hour, the last one {ago(lost[0].stopped_at)}"
        yield Finding("warning", "workers", said, "stepwell workers --all")
    if others := sorted({one.version for one in facts.living} - {__version__}):
        said = f"living workers run stepwell {', '.join(others)}, this is {__version__}"
        yield Finding("warning", "workers", said, "the same release everywhere, once the roll-out is over")


def _helpers(facts: Facts) -> Iterator[Finding]:
    """The helper of each living session: it beats while the interpreter is held, and reports a dead worker at once."""
    helped = [one for one in facts.living if one.helper in ("supervisor", "child")]
    if helped:
        listed = ", ".join(f"session {one.id} by a {one.helper}" for one in helped[:MOST_LISTED])
        more = f" and {len(helped) - MOST_LISTED} more" if len(helped) > MOST_LISTED else ""
        yield Finding("good", "helpers", f"helped while its interpreter is held: {listed}{more}")
    for one in facts.living:
        if (why := WITHOUT_HELPER.get(one.helper or "")) is not None:
            said = f"session {one.id} ({one.name}, pid {one.pid}) has no helper: {why}; what holds its interpreter"
            then = f"for longer than the lease, {span(one.lease)}, is executed again, and its death is not seen sooner"
            yield Finding("warning", "helpers", f"{said} {then}", "stepwell worker APP, where a process above it helps")


def _is_late(one: WorkerInfo, now: datetime) -> bool:
    return one.stopped_at is not None and now - one.stopped_at < LATELY


def _maintenance(facts: Facts) -> Iterator[Finding]:
    if facts.maintenance is not None:
        why = f" ({facts.maintenance.reason})" if facts.maintenance.reason else ""
        said = f"nothing is claimed since {ago(facts.maintenance.began_at)}: maintenance{why}"
        yield Finding("problem", "maintenance", said, "stepwell maintenance end")


def _queues(facts: Facts) -> Iterator[Finding]:
    served = {name for one in facts.living for name in one.handlers}
    limited = {one.queue for one, _ in facts.limits}
    for one in facts.queues:
        waiting = one.ready + one.waiting
        if one.paused and waiting:
            said = f"{one.queue} is paused and {many(waiting, 'task waits', 'tasks wait')} in it"
            yield Finding("warning", "queue", said, f"stepwell queue resume {one.queue}")
        elif waiting and one.queue.startswith(KEPT):
            said = f"{many(waiting, 'event')} of the type {one.queue.removeprefix(KEPT)} kept: no outbox takes it"
            yield Finding("warning", "outbox", said, "stepwell worker APP, with an Outbox whose `types` fit")
        elif facts.living and waiting and not is_served(one.queue, served):
            yield _unserved(one.queue, waiting)
        elif one.queue in limited or not one.ready or not facts.living or facts.maintenance is not None:
            pass  # of a limited queue its keys are told below
        elif (one.oldest or 0.0) > LONG_READY:
            said = f"in {one.queue} the oldest of {one.ready} ready tasks has waited for {span(one.oldest)}"
            yield Finding("warning", "queue", said, f"stepwell worker APP --queue {one.queue}, one more of them")
        if one.unreadable:
            said = f"{many(one.unreadable, 'task')} of {one.queue} cannot be read by the code of its workers"
            next_ = f"deploy code that has the class and version its `last_error` names, for {one.queue}"
            yield Finding("problem", "queue", f"{said}: a class was renamed, changed, removed or is newer", next_)
        if one.draining:
            said = f"{one.queue} is being drained and takes nothing new; {waiting + one.running} to go"
            yield Finding("warning", "queue", said, f"stepwell queue reopen {one.queue}")


def _limits(facts: Facts) -> Iterator[Finding]:
    """Keys that wait for long, or are paused with work that waits; and more places than a claim should look at."""
    for one, keys in facts.limits:
        show = f"stepwell limit show {one.queue}"
        if max(one.running, one.limits.running or 0) > MOST_PLACES:
            said = f"{one.queue} has {one.limits.running or one.running} places: each claim looks at all that are taken"
            yield Finding("warning", "limits", said, f"stepwell limit set {one.queue} running={MOST_PLACES}, or less")
        for key in keys:
            named = f"key {key.key!r} of {one.queue}" if key.key else f"what has no key in {one.queue}"
            for_long = None if key.oldest is None else (facts.health.clock - key.oldest).total_seconds()
            if key.paused and key.ready:
                why = f" ({key.pause_reason})" if key.pause_reason else ""
                said = f"{named} is paused{why} and {many(key.ready, 'task waits', 'tasks wait')}"
                yield Finding("warning", "limits", said, f"stepwell limit resume {one.queue} {key.key}")
            elif for_long is not None and for_long > LONG_READY and facts.living and facts.maintenance is None:
                said = f"{named} has waited for {span(for_long)}, {key.ready} ready and {key.running} at work"
                yield Finding("warning", "limits", said, f"{show}: a higher limit, or one more worker")


def _outboxes(facts: Facts) -> Iterator[Finding]:
    """How far publishing lags: events that were tried in vain, or wait behind one that was."""
    for one in (one for one in facts.queues if one.queue.startswith(QUEUE)):
        said = f"{one.queue.removeprefix(QUEUE)} has {many(one.ready + one.running, 'event')} to publish"
        if not one.waiting:
            yield Finding("good", "outbox", said)
            continue
        said = f"{said}, and {many(one.waiting, 'event')} to try again, or behind one that is"
        yield Finding("warning", "outbox", said, f"read `last_error` of {one.queue} in the view tasks")


def _groups(facts: Facts) -> Iterator[Finding]:
    """Ordered groups that stand still, and those that stepwell itself left asleep."""
    for one in facts.groups:
        if one.stopped:
            said = f"in {one.queue} {_stopped(one)} that failed for good"
            yield Finding("warning", "order", said, f"stepwell dead ls --queue {one.queue}, then requeue or drop it")
        if one.repaired:
            said = f"in {one.queue} the first of a group was found asleep {many(one.repaired, 'time')}, and woken"
            yield Finding("problem", "order", f"{said}: this is a fault of stepwell", "report it, with the logs")


def _stopped(one: GroupStats) -> str:
    who, what = ("subject", "an event") if one.queue.startswith(QUEUE) else ("instance", "an input")
    return f"{many(one.stopped, f'{who} waits', f'{who}s wait')} for {what}"


def _versions(facts: Facts) -> Iterator[Finding]:
    """What is stored under a name and version that no living worker of its queue reads."""
    for one in facts.versions:
        queue = f"{one.of}:inputs" if one.kind == "event" else one.of
        serving = [worker for worker in facts.living if is_served(queue, worker.handlers)]
        if serving and not any(_reads(worker, one) for worker in serving):
            stored = f"{many(one.number, one.kind)} of {one.of} stored as {one.name}, version {one.version}"
            next_ = f"deploy code that has {one.name} {one.version}, or an upcaster for it"
            yield Finding("problem", "versions", f"{stored}, and no living worker reads that", next_)


def _reads(worker: WorkerInfo, stored: StoredVersion) -> bool:
    owner = stored.of.removesuffix(":inputs").removesuffix(":effects")
    named = [one.rpartition("@") for one in worker.reads if one.startswith((f"{owner}/", "/"))]
    if stored.kind == "task" or named:
        newest = [int(version) for place, _, version in named if place.rpartition("/")[2] == stored.name]
        return max(newest, default=0) >= stored.version
    return stored.version == 1  # it has registered nothing: all that it reads is of version 1


def _unserved(queue: str, waiting: int) -> Finding:
    type_, _, part = queue.rpartition(":")
    if type_ and part in ("effects", "inputs"):
        what = "effects" if part == "effects" else "timers or inputs"
        said = f"{waiting} {what} of the decider {type_} wait and no living worker registers it"
        return Finding("problem", "decider", said, f"stepwell worker APP --queue {type_}")
    said = f"{queue} has {many(waiting, 'task')} and no living worker serves it"
    return Finding("problem", "queue", said, f"stepwell worker APP --queue {queue}")


def _aside(facts: Facts) -> Iterator[Finding]:
    """Runs that need a person: those that are held back, and those that have waited long for a signal."""
    for one in facts.aside:
        listed = "stepwell runs --status paused, and stepwell why RUN"
        if one.needs == "unpause":
            said = f"{one.runs} are held back, the first for {span(one.longest)}"
            yield Finding("warning", "runs", said, listed)
        elif one.needs == "accept":
            said = (
                f"{one.runs} are held for their code, the first for {span(one.longest)}: a step may have been renamed, "
                "or no code can read what they recorded"
            )
            yield Finding("warning", "runs", said, listed)
        elif one.longest > LONG_WAITING:
            said = f"{one.runs} wait for a signal without an end, the first for {span(one.longest)}"
            yield Finding("warning", "runs", said, listed)


def _projections(facts: Facts) -> Iterator[Finding]:
    for one in facts.projections:
        look = f"stepwell projection show {one.name}"
        if not one.live:
            yield _build_beside(one, look)
        elif one.state == "stopped":
            said = f"{one.name} has stopped before event {one.failed_at}: {one.error}"
            yield Finding("problem", "projection", said, f"stepwell projection retry {one.name}, or skip")
        elif one.state == "paused" and one.lag:
            said = f"{one.name} is paused and {many(one.lag, 'position')} behind"
            yield Finding("warning", "projection", said, f"stepwell projection resume {one.name}")
        elif one.inline:
            yield Finding("good", "projection", f"{one.name} is inline: decisions write its rows")
        elif one.owner is None and one.lag:
            said = f"{one.name} is {many(one.lag, 'position')} behind and no living worker drives it"
            yield Finding("problem", "projection", said, "stepwell worker APP, with the engine that registers it")
        elif one.lag and one.age > LONG_READY:
            said = f"{one.name} is {many(one.lag, 'position')} behind and has not moved for {span(one.age)}"
            yield Finding("warning", "projection", said, look)
        else:
            said = f"{one.name} is {many(one.lag, 'position')} behind, {one.rate:.1f} events/s"
            yield Finding("good", "projection", said)
        if one.live and one.parked:
            said = f"{one.name} has set {many(one.parked, 'instance')} aside"
            yield Finding("warning", "projection", said, look)


def _build_beside(one: ProjectionInfo, look: str) -> Finding:
    name = f"build {one.build} of {one.name}"
    if one.state == "stopped" or one.error is not None:
        why = f"{name} stands before event {one.failed_at}: {one.error}"
        return Finding("warning", "projection", why, f"stepwell projection rebuild {one.name}, with other code")
    if one.parked:
        said = f"{name} has set {many(one.parked, 'instance')} aside: they are missing when it is swapped"
        return Finding("warning", "projection", said, look)
    return Finding("good", "projection", f"{name}, beside the live one, is {many(one.lag, 'position')} behind")


def _dead(facts: Facts) -> Iterator[Finding]:
    if dead := [one for one in facts.queues if one.dead]:
        listed = ", ".join(f"{one.dead} in {one.queue}" for one in dead)
        yield Finding("warning", "dead letters", f"{listed}", "stepwell dead ls")


def _schedules(facts: Facts) -> Iterator[Finding]:
    going = [one for one in facts.schedules if one.state == "active" and one.late <= LONG_READY]
    if going:
        first = min(going, key=lambda one: one.next_at or facts.now)
        said = f"{many(len(going), 'schedule')} on time; the next tick is {first.name}'s, {ago(first.next_at)}"
        yield Finding("good", "schedules", said)
    for one in facts.schedules:
        if one.late > LONG_READY:
            said = f"{one.name} is {span(one.late)} late: no worker fires its ticks"
            yield Finding("problem", "schedules", said, "stepwell worker APP, any worker of this store")
        elif one.state == "paused":
            said = f"{one.name} is paused" + (f": {one.pause_reason}" if one.pause_reason else "")
            yield Finding("warning", "schedules", said, f"stepwell schedule resume {one.name}")
    if (said := other_zones(facts.living)) and any(one.cron for one in facts.schedules):
        yield Finding("warning", "schedules", said, "install one tzdata for all workers, and restart them")


CHECKS: Final[Sequence[Callable[[Facts], Iterator[Finding]]]] = (
    _database,
    _durability,
    _library,
    _clock,
    _horizon,
    _events,
    _maintenance,
    _workers,
    _helpers,
    _queues,
    _limits,
    _outboxes,
    _groups,
    _versions,
    _aside,
    _projections,
    _schedules,
    _dead,
)
