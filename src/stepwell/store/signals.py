"""Signals: data sent to runs, kept until a wait of their name takes it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stepwell.base.names import REQUEST, check_id, check_key, check_name
from stepwell.errors import InvalidName, InvalidOption, NotInDoubt, RunNotFound, SerializationError
from stepwell.records import RunStatus, SignalAnswer, TaskKind
from stepwell.store.audit import UNSAID_BY, Audit, By, What
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.rows import IN_DOUBT, StepRow
from stepwell.store.run_key import WhichRun, numbered
from stepwell.store.transaction import headers_here
from stepwell.values.codec import decode
from stepwell.values.fields import misfit
from stepwell.values.headers import Headers, headers_text
from stepwell.values.lossless import refuse_unnamed
from stepwell.values.named_codecs import json_text
from stepwell.values.stamp import write_value
from stepwell.values.versions import unstamped

if TYPE_CHECKING:
    from stepwell.store.database import Database

NewSignal = tuple[WhichRun, str] | tuple[WhichRun, str, Any]  # the run, the name, and the data
Sending = partial[Script[tuple[SignalAnswer, set[int]]]]
RECEIVED: Final = "receive()"  # the name of a call that takes the first signal of several names
RESUMED: Final = "resumed"  # the key of a resume: the second resume of a step is a repetition


class Resolution(msgspec.Struct, frozen=True):
    """What became of a body that was interrupted: done or not, and if it is, what its step returns."""

    done: bool
    value: msgspec.Raw = msgspec.Raw(b"null")


@dataclass(eq=False)
class Signals:
    """Sends signals to runs."""

    _db: Database

    async def send(
        self,
        run: WhichRun,
        name: str,
        data: Any,
        key: str | None,
        by: By = UNSAID_BY,
        *,
        check: bool,
        tx: object,
        headers: Headers | None = None,
    ) -> SignalAnswer:
        """Keep data for the next wait of this name in a run, in a transaction of its own or in the user's."""
        if tx is None:
            run = await self._db.run_id(run)
        sending = self._sending(run, check_name("signal", name), data, key, by, check=check, headers=headers)
        if tx is None:
            return await self._signal(sending)
        return await self._db.transactions.play(_joined(sending), tx)

    async def send_many(
        self, signals: Iterable[NewSignal], keys: Sequence[str] | None, by: By, *, check: bool, tx: object
    ) -> list[SignalAnswer]:
        """Send all the signals or none, in a transaction of their own or in the user's."""
        sendings = self._sendings(signals, keys, by, check=check)
        if tx is not None:
            return await self._db.transactions.play(_joined_all(sendings), tx)
        if not sendings:
            return []
        self._db.check()
        # Looked up before: a call that is repeated concerns the same runs.
        told = [_of_run(sending, await self._db.run_id(sending.args[0])) for sending in sendings]
        answers, queues = await self._db.transact_again(partial(_send_all, told))
        for run_id in {int(sending.args[0]) for sending in told}:
            self._db.run_waits.woken(run_id)
        self._db.wakeups.hint(queues)
        return answers

    def send_many_here(
        self,
        signals: Iterable[NewSignal],
        *,
        keys: Sequence[str] | None = None,
        check: bool = True,
        actor: str | None = None,
        tx: object,
    ) -> list[SignalAnswer]:
        """Send several signals through the user's own sync connection, in the user's thread, which is this one."""
        sendings = self._sendings(signals, keys, self._db.by(actor), check=check)
        return self._db.transactions.play_here(_joined_all(sendings), tx)

    def _sendings(
        self, signals: Iterable[NewSignal], keys: Sequence[str] | None, by: By, *, check: bool
    ) -> list[Sending]:
        """The signals, checked and encoded; nothing is written yet."""
        given = list(signals)
        if keys is not None and (isinstance(keys, str) or len(keys) != len(given)):
            raise InvalidOption("keys", keys, f"give each of the {len(given)} signals its key, in their order")
        made = []
        said: Sequence[str | None] = [None] * len(given) if keys is None else keys
        for one, key in zip(given, said, strict=True):
            if not isinstance(one, tuple) or len(one) not in (2, 3):
                raise InvalidOption("signals", one, "each is a tuple: (run, name) or (run, name, data)")
            run, name, *data = one
            name = check_name("signal", name)
            made.append(self._sending(run, name, data[0] if data else None, key, by, check=check))
        return made

    async def send_once(self, run: WhichRun, name: str, data: Any, key: str) -> SignalAnswer:
        """Send a signal whose key is its sender's own: a repetition is answered as the first time."""
        run_id = await self._db.run_id(run)
        sending = self._sending(run_id, check_name("signal", name), data, key, UNSAID_BY)
        return await self._signal(sending, once=True)

    async def request(self, run: int, name: str, data: Any, key: str, by: By, *, check: bool) -> SignalAnswer:
        """Keep data for the next block of this name that takes requests; one key is sent once."""
        return await self._signal(self._sending(run, REQUEST + name, data, key, by, check=check))

    async def resume(self, run: WhichRun, step: str, data: Any, by: By, *, check: bool) -> SignalAnswer:
        """Let the step (or wait) of this name return the data; a second resume is TOO_LATE and changes nothing."""
        name, run_id = checked_call(step), await self._db.run_id(run)
        found = await self._db.driver.read(Call("turns_of", rows=[(check_id(run_id),)]))
        # Read once, before it is sent: a retry after a lost reply must have the same key.
        generation = found[0]["generation"] if found else 0
        key = f"{RESUMED}.{generation}" if generation else RESUMED
        return await self._signal(self._sending(run_id, name, data, key, by, check=check))

    async def resolve(self, run: WhichRun, step: str, by: By, *, done: bool, value: Any) -> SignalAnswer:
        """Say what became of a step that is in doubt."""
        run_id = check_id(await self._db.run_id(run))
        found = await self._db.driver.read(Call("turns_of", rows=[(run_id,)]))
        if not found or await self._db.queues.task(run_id) is None:  # or it is another tenant's
            raise await self._db.no_run(run_id)
        waits = await self._db.steps.of(run_id, found[0]["generation"])
        open_doubts = {told["step"]: row.key for row in waits if (told := _doubt_in(row)) is not None}
        wanted = [key for key in open_doubts if step in (key, name_of(key))]
        if len(wanted) != 1:
            raise NotInDoubt(run_id, step, tuple(open_doubts))
        name, data = name_of(open_doubts[wanted[0]]), {"done": done, "value": value if done else None}
        return await self._signal(self._sending(run_id, name, data, None, by))

    def send_here(
        self,
        run: WhichRun,
        name: str,
        data: Any = None,
        *,
        key: str | None = None,
        check: bool = True,
        actor: str | None = None,
        headers: Headers | None = None,
        tx: object,
    ) -> SignalAnswer:
        """Send a signal through the user's own sync connection, in the user's thread, which is this one."""
        by = self._db.by(actor)
        sending = self._sending(run, check_name("signal", name), data, key, by, check=check, headers=headers)
        return self._db.transactions.play_here(_joined(sending), tx)

    async def _signal(self, sending: Sending, *, once: bool = False) -> SignalAnswer:
        """Send it; one that is to be sent `once` may have been sent before, by a caller who did not hear of it."""
        self._db.check()

        def script(*, again: bool) -> Script[tuple[SignalAnswer, set[int]]]:
            return (yield from sending(again=again or once))

        answer, queues = await self._db.transact_again(script)
        self._db.run_waits.woken(int(sending.args[0]))
        self._db.wakeups.hint(queues)
        return answer

    def _sending(
        self,
        run: WhichRun,
        name: str,
        data: Any,
        key: str | None,
        by: By,
        *,
        check: bool = True,
        headers: Headers | None = None,
    ) -> Sending:
        options = self._db.options
        text = write_value(data, limit=options.payload_limit, what=f"signal {name}", codec=options.codec)
        refuse_unnamed(data, what=f"signal {name}", codec=options.codec)
        params: dict[str, Value] = {
            "name": name,
            "data": text,
            # Without a key of the caller it gets its own: a retry after a lost reply does not send it twice.
            "key": f"~{uuid.uuid4().hex}" if key is None else check_key(key),
            "headers": headers_text(headers, headers_here()),
            "now": self._db.clock.now(),
            "tenant": self._db.options.tenant,
        }
        return partial(_send, run, params, self._db.audit, by, check=check)


def _joined_all(sendings: Sequence[Sending]) -> Script[list[SignalAnswer]]:
    answers, _ = yield from _send_all(sendings, again=False)
    return answers


def _of_run(sending: Sending, run_id: int) -> Sending:
    """The same signal, to the run of this number."""
    return partial(sending.func, run_id, *sending.args[1:], **sending.keywords)


def _send_all(sendings: Sequence[Sending], *, again: bool) -> Script[tuple[list[SignalAnswer], set[int]]]:
    """Send signals in their order, after all their runs were locked in the order in which every statement does that."""
    told = []
    for sending in sendings:
        tenant = str(sending.args[1]["tenant"])
        told.append(_of_run(sending, (yield from numbered(tenant, sending.args[0]))))
    for run_id, params in sorted({sending.args[0]: sending.args[1] for sending in told}.items()):
        yield Call("lock_run", {**params, "id": run_id, "or_message": False})
    answers: list[SignalAnswer] = []
    queues: set[int] = set()
    for sending in told:
        answer, ready = yield from sending(again=again)
        answers.append(answer)
        queues |= ready
    return answers, queues


def _joined(sending: Sending) -> Script[SignalAnswer]:
    """Send inside the user's own transaction, which is not repeated."""
    answer, _ = yield from sending(again=False)
    return answer


def _send(
    run: WhichRun, params: dict[str, Value], audit: Audit, by: By, *, check: bool, again: bool
) -> Script[tuple[SignalAnswer, set[int]]]:
    """Lock the run, so that it neither pauses, ends nor takes a signal; keep the signal; wake the waiting run."""
    params = {**params, "id": (yield from numbered(str(params["tenant"]), run))}
    found = yield Call("lock_run", {**params, "or_message": False})
    if not found:
        raise (yield from _no_run(params))
    [sent] = yield Call("untaken_signals", params)
    paused = yield Call("paused_steps", {**params, "generation": found[0]["generation"]})
    waiting = [row for row in paused if params["name"] in names_of(row) and not _for_runs(row["output"])]
    waits = len(waiting)
    if sent["repeated"]:
        if not again:
            return SignalAnswer.TOO_LATE, set()
        woke = bool(sent["taken"]) or sent["kept"] <= waits  # an earlier try whose reply was lost sent it
        return SignalAnswer.WOKE if woke else SignalAnswer.KEPT, {found[0]["queue_id"]}
    cleans_up = found[0]["cleanup_until"] is not None  # then a shield in it may wait for this
    if found[0]["finished_at"] is not None or (found[0]["cancel_requested_at"] is not None and not cleans_up):
        return SignalAnswer.TOO_LATE, set()
    woke = sent["kept"] < waits
    if woke and check:
        _refuse_misfit(params, waiting)
    yield Call("add_signal", {**params, "arrival": found[0]["wakes"] + 1})
    [row] = yield Call("wake_run", {**params, "waits": woke})
    if woke:
        what = What.RESUMED if str(params["key"]).startswith(RESUMED) else What.SIGNALLED
        yield from audit.of_all(params, [row], what, str(params["name"]), by=by)
    return SignalAnswer.WOKE if woke else SignalAnswer.KEPT, {row["queue_id"]} if row["ready"] else set()


def _no_run(params: dict[str, Value]) -> Script[RunNotFound]:
    """The error that there is no run of this number, with what has that number; read in the same transaction."""
    number = int(params["id"] or 0)
    found = yield Call("task", {**params, "deleted": False}, [(number,)])
    if not found or found[0]["kind"] == TaskKind.RUN:
        return RunNotFound(number)
    return RunNotFound(number, kind=found[0]["kind"], queue=found[0]["queue"])


def _refuse_misfit(params: dict[str, Value], waiting: Sequence[Row]) -> None:
    """Refuse data that none of the calls waiting for the name could read, if each says which type it takes."""
    accepted = [one for row in waiting if (one := accepted_by(row, str(params["name"]))) is not None]
    if len(accepted) < len(waiting):
        return
    version, text = unstamped(json_text(str(params["data"])))
    if any(one.get("version", 1) != version for one in accepted):
        return  # it is upcast when it is read, or waits for newer code
    data = decode(text)
    why = [misfit(one["schema"], data) for one in accepted]
    if all(why):
        named, name = accepted[0]["named"], params["name"]
        raise SerializationError(
            f"run {params['id']} waits for {named}: {why[0]}; nothing was sent. Send what it waits for, or, if code "
            "that takes this is being deployed, send it with `check=False`",
            what=f"signal {name}",
        )


def _for_runs(output: str | None) -> bool:
    return output is not None and output.startswith("{")


def _doubt_in(row: StepRow) -> dict[str, Any] | None:
    """What a wait tells of the step that it is to decide about, if it is such a wait."""
    if row.status is not RunStatus.PAUSED or row.error is None:
        return None
    told: dict[str, Any] = decode(row.error)
    return told if told.get("type") == IN_DOUBT else None


def checked_call(name: object) -> str:
    """The name of a step or wait; raises if it is none."""
    text = check_key(name, "step")
    if not text.isprintable() or "/" in text or "#" in text:
        raise InvalidName("step", name, "it is the name of a step or wait, without its branch and number")
    if text.endswith("()"):
        raise InvalidName("step", name, "it waits for runs, not for data; the end of those runs lets it go on")
    return text


def names_of(call: Row) -> tuple[str, ...]:
    """The names of the signals that a call which waits takes: its own, or those that it gives types to."""
    return tuple(decode(call["accepts"])["signals"]) if takes_any(call) else (name_of(call["key"]),)


def accepted_by(call: Row, name: str) -> dict[str, Any] | None:
    """Which type of signals of this name a call takes, as JSON schema and name; None if that is not known."""
    told: Any = None if call["accepts"] is None else decode(call["accepts"])
    found: dict[str, Any] | None = told["signals"][name] if takes_any(call) else told
    return found


def takes_any(call: Row) -> bool:
    """Whether a call that waits takes the first signal of several names."""
    return call["accepts"] is not None and name_of(call["key"]) == RECEIVED


def name_of(key: str) -> str:
    """The name in the key of a call, which is branch, name and number."""
    return key.rpartition("/")[2].rpartition("#")[0]
