"""The verbs of those who tell runs something: signals, kept until a wait of their name takes them."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from stepwell.codec import decode, encode
from stepwell.errors import InvalidName, RunNotFound, SerializationError
from stepwell.losses import refuse_unnamed
from stepwell.names import check_id, check_key, check_name
from stepwell.records import SignalAnswer
from stepwell.shapes import misfit
from stepwell.store.audit import Audit, What
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.repeat import repeated
from stepwell.store.together import Together

Sending = partial[Script[tuple[SignalAnswer, set[int]]]]
ACCEPTS: Final = "accepts"  # in what is noted of a call that waits: the JSON schema of what it takes
RESUMED: Final = "resumed"  # the key of a resume: the second one of a step is a repeated one


class Signals(Together):
    """Runs, as those who have something to tell them see them."""

    async def signal(
        self,
        run_id: int,
        name: str,
        data: Any = None,
        *,
        key: str | None = None,
        check: bool = True,
        tx: object = None,
    ) -> SignalAnswer:
        """Keep data for the next wait of this name in a run: each signal is taken by one wait, in the order they came.

        WOKE if the run waits for it just now, KEPT if it does not yet; TOO_LATE, which counts as false, and nothing is
        kept, if the run is finished or being cancelled, or if a signal with this `key` was sent before. With `tx`, your
        own connection in a transaction, it is sent if that commits and never was if it does not; the answer is what it
        will be then. What the wait could not read is refused, if the run waits already and `check` is not False; a
        wait that begins later sets it aside and goes on waiting.
        """
        sending = self._sending(run_id, check_name("signal", name), data, key, check=check)
        return await self._signal(sending, run_id) if tx is None else await self.play_joined(_joined(sending), tx)

    async def resume(self, run_id: int, step: str, data: Any = None, *, check: bool = True) -> SignalAnswer:
        """Let the step (or wait) of this name return the data; a second resume is TOO_LATE and changes nothing.

        A run that has restarted since may be resumed again. What the step could not return is refused, as by `signal`.
        """
        name = checked_call(step)
        found = await self.driver.read(Call("turns_of", rows=[(check_id(run_id),)]))
        # Read once, and not where it is sent: a try whose reply was lost has to have the same key, whatever came of it.
        generation = found[0]["generation"] if found else 0
        key = f"{RESUMED}.{generation}" if generation else RESUMED
        return await self._signal(self._sending(run_id, name, data, key, check=check), run_id)

    def signal_in_this_thread(
        self, run_id: int, name: str, data: Any = None, *, key: str | None = None, check: bool = True, tx: object
    ) -> SignalAnswer:
        """Send a signal through the user's own sync connection, in the user's thread."""
        sending = self._sending(run_id, check_name("signal", name), data, key, check=check)
        return self.play_joined_here(_joined(sending), tx)

    async def _signal(self, sending: Sending, run_id: int) -> SignalAnswer:
        self.check()
        tries = itertools.count()
        try:
            answer, queues = await repeated(
                lambda: self.driver.transact(partial(sending, again=next(tries) > 0)),
                clock=self.clock,
                telemetry=self.telemetry,
                within=self.options.timeout,
            )
        except RunNotFound:
            raise await self._no_run(run_id) from None
        self.waiting.woken(int(run_id))
        self.tasks.hint(queues)
        return answer

    def _sending(self, run_id: int, name: str, data: Any, key: str | None, *, check: bool = True) -> Sending:
        text = encode(data, limit=self.options.payload_limit, what=f"signal {name}")
        refuse_unnamed(data, what=f"signal {name}")
        params: dict[str, Value] = {
            "id": check_id(run_id),
            "name": name,
            "data": text,
            # Without a key of the caller's, one of its own: a try whose reply was lost does not send it twice.
            "key": f"~{uuid.uuid4().hex}" if key is None else check_key(key),
            "now": self.clock.now(),
            "tenant": self.options.tenant,
        }
        return partial(_send, params, self.audit, check=check)


def _joined(sending: Sending) -> Script[SignalAnswer]:
    """Send inside the user's own transaction, which nobody repeats."""
    answer, _ = yield from sending(again=False)
    return answer


def _send(params: dict[str, Value], audit: Audit, *, check: bool, again: bool) -> Script[tuple[SignalAnswer, set[int]]]:
    """Lock the run, so that it neither pauses, ends nor takes a signal meanwhile; keep the signal; wake who waits."""
    found = yield Call("lock_run", params)
    if not found:
        raise RunNotFound(int(params["id"] or 0))
    [sent] = yield Call("untaken_signals", params)
    paused = yield Call("paused_steps", {**params, "generation": found[0]["generation"]})
    waiting = [row for row in paused if name_of(row["key"]) == params["name"] and not _for_runs(row["output"])]
    waits = len(waiting)
    if sent["repeated"]:
        if not again:
            return SignalAnswer.TOO_LATE, set()
        woke = bool(sent["taken"]) or sent["kept"] <= waits  # sent by a try whose reply was lost
        return SignalAnswer.WOKE if woke else SignalAnswer.KEPT, {found[0]["queue_id"]}
    cleans_up = found[0]["cleanup_until"] is not None  # then a shield of it may wait for this
    if found[0]["finished_at"] is not None or (found[0]["cancel_requested_at"] is not None and not cleans_up):
        return SignalAnswer.TOO_LATE, set()
    woke = sent["kept"] < waits
    if woke and check:
        _refuse_misfit(params, waiting)
    yield Call("add_signal", params)
    [row] = yield Call("wake_run", {**params, "waits": woke})
    if woke:
        what = What.RESUMED if str(params["key"]).startswith(RESUMED) else What.SIGNALLED
        yield from audit.of_all(params, [row], what, str(params["name"]))
    return SignalAnswer.WOKE if woke else SignalAnswer.KEPT, {row["queue_id"]} if row["ready"] else set()


def _refuse_misfit(params: dict[str, Value], waiting: Sequence[Row]) -> None:
    """Refuse what none of the calls that wait for the name could read, where each says what it takes."""
    noted = [decode(row["error"] or "{}") for row in waiting]
    if not all(ACCEPTS in one for one in noted):
        return
    data = decode(str(params["data"]))
    why = [misfit(one[ACCEPTS], data) for one in noted]
    if all(why):
        named, name = noted[0].get("named"), params["name"]
        raise SerializationError(
            f"run {params['id']} waits for {named}: {why[0]}; nothing was sent. Send what it waits for, or, if code "
            "that takes this is being deployed, send it with `check=False`",
            what=f"signal {name}",
        )


def _for_runs(output: str | None) -> bool:
    return output is not None and output.startswith("{")


def checked_call(name: object) -> str:
    """The name of a step or wait, if it can be one."""
    text = check_key(name, "step")
    if not text.isprintable() or "/" in text or "#" in text:
        raise InvalidName("step", name, "it is the name of a step or wait, without its branch and number")
    if text.endswith("()"):
        raise InvalidName("step", name, "it waits for runs, not for data; the end of those runs lets it go on")
    return text


def name_of(key: str) -> str:
    """The name of a call, of its key: branch, name and number."""
    return key.rpartition("/")[2].rpartition("#")[0]
