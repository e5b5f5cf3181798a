"""The mailbox: the inputs of an instance queue up in the process, and are decided together in one transaction.

There is no timer. An input that comes alone is decided at once; inputs that come during a transaction are decided by
the next one, those of one instance in their order, and instances that wait together share it. However many inputs wait,
they use no more connections than there are lanes, and an instance is in one transaction at a time. An instance that
another transaction has locked counts as under way, and is tried separately.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
from collections.abc import Awaitable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, Self

import msgspec

from stepwell.base.backoff import waits
from stepwell.base.clock import Clock
from stepwell.base.events import InternalTaskFailed, StoreLost
from stepwell.base.futures import begin_apart, resolve
from stepwell.base.telemetry import Telemetry
from stepwell.decider import Receipt
from stepwell.deciders.registry import Family
from stepwell.errors import StepwellError, StoreBusy, StoreClosed, StoreLocked, StoreUnavailable
from stepwell.store.bisection import SEEKING, seek
from stepwell.store.driver import only_reads, refused_write
from stepwell.store.instances import Delivery
from stepwell.store.lock_queue import PATIENCE, LockQueue, Waiter

MOST_INPUTS: Final = 500  # a transaction
LOOK_EVERY: Final = 1.0  # seconds
TRIES_TOGETHER: Final = 3  # a batch that loses its connection this often is tried one input at a time
REMEMBERED: Final = 10_000
Place = tuple[str, str]  # an instance, by its type and id


class Decide(Protocol):
    """Decides inputs in one transaction; `patience` limits how long it waits for a lock."""

    def __call__(self, batch: Sequence[Pending], /, patience: float | None = None) -> Awaitable[None]: ...


class Mailbox:
    """The inputs that wait for `decide`, which answers those that it has decided and raises if nothing was written."""

    def __init__(
        self, decide: Decide, clock: Clock, telemetry: Telemetry, *, aside: LockQueue, lanes: int, together: bool = True
    ) -> None:
        self.decide = decide  # an engine may put something before it
        self._clock = clock
        self._telemetry = telemetry
        self._aside = aside
        self._most = MOST_INPUTS if together else 1
        self._free = lanes
        self._boxes: dict[Place, collections.deque[Pending]] = {}  # in the order in which they have their turn
        self._under_way: set[Place] = set()
        self._resting: dict[Place, asyncio.Future[None]] = {}
        self._batches: list[list[Pending]] = []
        self._jobs: set[asyncio.Task[None]] = set()
        self._looks = False  # one timer for all callers that have waited too long

    def put(self, pending: Pending) -> None:
        """Decide an input, after those that already wait for its instance."""
        if only_reads.get() is not None:
            raise refused_write()
        place = pending.place
        if (box := self._boxes.get(place)) is None:
            box = self._boxes[place] = collections.deque()
        box.append(pending)
        if pending.within is not None:
            loop = asyncio.get_running_loop()
            pending.since = loop.time()
            if not self._looks:
                self._looks = True
                loop.call_later(LOOK_EVERY, self._look)
        if self._free:
            self._begin()

    async def empty(self) -> None:
        """Wait until no input waits."""
        while waiting := (*self._jobs, *self._resting.values()):
            await asyncio.wait(waiting)

    def _look(self) -> None:
        """Fail the inputs that have waited too long, as unknown: a transaction that hangs must not block callers."""
        loop = asyncio.get_running_loop()
        now, boxes = loop.time(), itertools.chain(self._boxes.values(), self._batches)
        for pending in [one for box in boxes for one in box]:
            if pending.within is not None and now - pending.since >= pending.within:
                held = ": its instance is held by a transaction that has not ended"
                why = held if pending.place in self._resting else ""
                _fail([pending], StoreUnavailable(f"not decided in {pending.within:g} s{why}"))
        self._looks = bool(self._boxes)
        if self._looks:
            loop.call_later(LOOK_EVERY, self._look)

    def _begin(self) -> None:
        if self._free and len(self._boxes) > len(self._under_way):
            self._free -= 1
            job = begin_apart(self._work(), "stepwell-decide")
            self._jobs.add(job)
            job.add_done_callback(self._ended)

    def _ended(self, job: asyncio.Task[None]) -> None:
        self._free += 1
        self._jobs.discard(job)
        if job.cancelled():  # with the loop: no caller may wait for ever
            _fail([one for box in self._boxes.values() for one in box], StoreClosed())
        else:
            self._begin()

    async def _work(self) -> None:
        while batch := self._take():
            places = {one.place for one in batch}
            self._batches.append(batch)
            try:
                await self._decided(batch)
            except BaseException as error:
                _fail(batch, error)  # no caller may be left waiting
                if not isinstance(error, Exception):
                    raise
                self._telemetry.emit(InternalTaskFailed("deciding", repr(error)))
            finally:
                self._batches.remove(batch)
                self._put_back(batch, places - self._resting.keys())

    def _take(self) -> list[Pending]:
        """The next inputs, of the instances that are not under way, the oldest first."""
        batch: list[Pending] = []
        for place in [place for place in self._boxes if place not in self._under_way]:
            box = self._boxes.pop(place)
            while box and len(batch) < self._most:
                pending = box.popleft()
                if pending.is_waited_for:
                    batch.append(pending)
                    self._under_way.add(place)
            if box or place in self._under_way:
                self._boxes[place] = box  # behind the others
            if len(batch) == self._most:
                break
        return batch

    def _put_back(self, batch: Iterable[Pending], places: Collection[Place]) -> None:
        """Put the inputs for which the transaction had no room first; forget an instance without inputs."""
        for pending in reversed([one for one in batch if one.is_waited_for and one.place in places]):
            self._boxes[pending.place].appendleft(pending)
        for place in places:
            self._under_way.discard(place)
            if not self._boxes[place]:
                del self._boxes[place]

    async def _decided(self, batch: Sequence[Pending]) -> None:
        """Decide a batch, and repeat it where its error allows that."""
        pauses, together = waits(1.0, self._clock.random), TRIES_TOGETHER
        while batch := [one for one in batch if one.is_waited_for]:
            try:
                # One after the other: an input that can never be written does not block the others.
                for part in [batch] if together > 0 else [[pending] for pending in batch]:
                    await self.decide(part)
            except StoreLocked:
                await self._seek(batch)
                return
            except (StoreBusy, StoreUnavailable) as error:
                if isinstance(error, StoreUnavailable):
                    self._telemetry.emit(StoreLost(error.why))
                together -= 1
                await asyncio.sleep(next(pauses))
            except StepwellError as error:
                await self._apart(batch, error)
                return
            else:
                return

    async def _seek(self, batch: Sequence[Pending]) -> None:
        """An instance of a batch is locked by another transaction: find it, and decide the others."""

        def of(places: Collection[Place]) -> list[Pending]:
            return [one for one in batch if one.place in places and one.is_waited_for]

        async def attempt(places: Sequence[Place]) -> bool:
            try:
                if some := of(places):
                    await self.decide(some, patience=SEEKING)
            except StoreLocked:
                return False
            except StepwellError:
                await self._decided(of(places))
            return True

        places = list(dict.fromkeys(one.place for one in batch))
        await seek(places, attempt, lambda place: self._rest(place, of({place})))

    def _rest(self, place: Place, batch: list[Pending]) -> None:
        """Try the inputs of one instance separately; inputs that come meanwhile wait behind them."""
        self._resting[place] = asyncio.get_running_loop().create_future()
        self._batches.append(batch)
        self._aside.put(Waiter({place}, {place}, partial(self._try_resting, place, batch), partial(_fail, batch)))

    async def _try_resting(self, place: Place, batch: list[Pending]) -> bool:
        try:
            if waiting := [one for one in batch if one.is_waited_for]:
                await self.decide(waiting, patience=PATIENCE)
        except StoreUnavailable as error:
            self._telemetry.emit(StoreLost(error.why))
            return False
        except StoreBusy:
            return False
        except StepwellError:
            pass  # one of them cannot be written: the usual way finds out which
        self._batches.remove(batch)
        self._resting.pop(place).set_result(None)
        self._put_back(batch, {place})
        self._begin()
        return True

    async def _apart(self, batch: Sequence[Pending], error: StepwellError) -> None:
        """An input of a batch cannot be written: find it, and write the rest."""
        if len(batch) == 1:
            _fail(batch, error)
            return
        places = list(dict.fromkeys(one.place for one in batch))
        if len(places) > 1:
            for place in places:
                await self._decided([one for one in batch if one.place == place])
        else:
            for pending in batch:
                await self._decided([pending])


def _fail(batch: Iterable[Pending], error: BaseException) -> None:
    for pending in batch:
        if pending.answer is not None:
            resolve(pending.answer, error)


class Pending(msgspec.Struct, eq=False):
    """An input, and the future that its caller waits for."""

    family: Family
    id: str  # of its instance
    input: Any
    cause: str  # set before the first try: its events carry it, so that a second try finds them
    key: str | None = None
    window: int | None = None  # microseconds for which the key counts; None: for as long as it is kept
    delivery: Delivery | None = None
    is_along: bool = False  # it stood behind the one that was delivered: no caller waits for it
    took_along: int = 0  # how many were decided with it, which stood behind it
    answer: asyncio.Future[Receipt] | None = None
    within: float | None = None  # seconds until its caller gets an unknown result; None for no limit
    since: float = 0.0  # by the loop's clock
    base: int | None = None  # the version that its instance had when it was first tried, if it may have been decided
    expected: int | None = None  # the only version of its instance on which it may be decided; None for any
    headers: str | None = None  # as JSON; its effects inherit them

    @property
    def place(self) -> Place:
        """Its instance."""
        return self.family.type, self.id

    def sent_from_outside(self) -> Self:
        """The input; without a key it gets the one that equal inputs share, if its decider counts those once."""
        if self.key is None and self.family.dedupe is not None:
            self.key, self.window = self.family.fingerprint(self.input), self.family.dedupe
        return self

    def end(self, receipt: Receipt | None, error: BaseException | None) -> None:
        """Tell its caller what became of it, if it still waits for that."""
        if self.answer is None or self.answer.done():
            return
        if error is not None:
            self.answer.set_exception(error)
        elif receipt is not None:
            self.answer.set_result(receipt)

    @property
    def is_waited_for(self) -> bool:
        """False if its caller is gone, or has its answer."""
        return self.answer is None or not self.answer.done()


class KnownInstance(NamedTuple):
    """The state of an instance after a number of events; later events do not change that."""

    instance_id: int
    version: int
    state: Any
    is_completed: bool
    snapshot_version: int


class Memory:
    """The states of the instances that were used lately."""

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most = most
        self._held: collections.OrderedDict[Place, KnownInstance] = collections.OrderedDict()

    def get(self, place: Place) -> KnownInstance | None:
        """What is known of an instance; None if nothing is."""
        if (held := self._held.get(place)) is not None:
            with contextlib.suppress(KeyError):  # another thread has just removed it
                self._held.move_to_end(place)
        return held

    def put(self, place: Place, held: KnownInstance) -> None:
        """Remember this, unless a later state is known."""
        if (known := self._held.get(place)) is None or known.version <= held.version:
            self._held[place] = held
            self._held.move_to_end(place)
            if len(self._held) > self._most:
                self._held.popitem(last=False)
