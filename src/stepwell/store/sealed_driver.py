"""A driver that seals what goes into the database and opens what comes out, between a store and its own driver.

Above, everything is as without. What cannot be opened stays as it is stored, and is then read as a value of a codec
that this process does not have; what belongs to a forgotten subject is read as such.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from stepwell.base.clock import Clock
from stepwell.errors import Refused, StoreLocked
from stepwell.store.driver import AsyncJoin, Call, Ddl, Driver, Own, Row, Script, SyncJoin, Value, play, play_async
from stepwell.store.sealed_calls import SealedCalls
from stepwell.store.sql import Statements
from stepwell.store.subject_keys import Scope, SubjectKeys
from stepwell.values.cipher import Cipher, new_data_key
from stepwell.values.encryption import Keys
from stepwell.values.headers import SUBJECT, headers_in

T = TypeVar("T")
MAKES: Final = frozenset(("add_subject_keys",))


class SealedDriver:
    """A driver whose values are sealed; everything else is the inner driver's."""

    def __init__(self, inner: Driver, statements: Statements, keys: Keys, tenant: str, clock: Clock) -> None:
        self._inner, self._keys, self._tenant, self._now = inner, keys, tenant, clock.now
        self.cipher, self.subjects = Cipher(tenant), SubjectKeys()
        self.calls = SealedCalls(statements, self.cipher, tenant)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def unlock(self) -> None:
        """Unwrap the tenant's data key, or make one: a second process that does takes the one that is there."""
        find = Call("data_keys", {"tenant": self._tenant})
        if not (rows := await self._inner.read(find)):
            wrapped = b64encode(await _awaited(self._keys.wrap(new_data_key()))).decode()
            made = {"tenant": self._tenant, "key_id": self._keys.current, "wrapped": wrapped, "now": self._now()}
            await self._inner.write(Call("add_data_key", cast("Mapping[str, Value]", made)))
            rows = await self._inner.read(find)
        for row in rows:
            self.cipher.learn(row["id"], await _awaited(self._keys.unwrap(row["key_id"], b64decode(row["wrapped"]))))

    @property
    def key_id(self) -> str:
        """The key of the ring that new data keys are wrapped with."""
        return self._keys.current

    async def rotate(self) -> int:
        """Wrap every data key of the tenant with the current key; how many were not."""
        changed = 0
        for row in await self._inner.read(Call("data_keys", {"tenant": self._tenant})):
            if row["key_id"] == self._keys.current:
                continue
            data_key = await _awaited(self._keys.unwrap(row["key_id"], b64decode(row["wrapped"])))
            wrapped = b64encode(await _awaited(self._keys.wrap(data_key))).decode()
            place = {"id": row["id"], "previous": row["wrapped"], "key_id": self._keys.current, "wrapped": wrapped}
            changed += len(await self._inner.write(Call("wrap_anew", place)))
        return changed

    # Subjects

    async def admit(self, headers: Iterable[str | None]) -> None:
        """Refuse what belongs to a forgotten subject; a subject that is new gets its key."""
        names = {subject for text in headers if text is not None and (subject := headers_in(text).get(SUBJECT))}
        if names:
            scope = self._scope()
            await self._ask(self.calls.keys_of(names, scope, self._now(), strict=True))

    # What a driver does, with values sealed and opened

    async def run(self, slot: int, calls: Sequence[Call]) -> list[list[Row]]:
        scope = self._scope()
        await self._ask(self.calls.prepared(calls, scope, self._now()))
        answered = await self._inner.run(slot, [self.calls.sealed(call, scope) for call in calls])
        pairs = list(zip(calls, answered, strict=True))
        await self._ask(self.calls.learned(pairs, scope))
        return [self.calls.opened(call, rows, scope) for call, rows in pairs]

    async def transact(self, script: Callable[[], Script[T]], **options: Any) -> T:
        return await self._inner.transact(lambda: self._talk(script()), **options)

    async def snapshot(self, script: Callable[[], Script[T]]) -> T:
        return await self._inner.snapshot(lambda: self._talk(script()))

    async def read(self, call: Call) -> list[Row]:
        return await self._alone(call, self._inner.read)

    async def write(self, call: Call) -> list[Row]:
        return await self._alone(call, self._inner.write)

    @contextlib.asynccontextmanager
    async def transaction(self, idle: float | None = None) -> AsyncIterator[Own]:
        async with self._inner.transaction(idle) as own:
            yield self._own(own)

    @contextlib.asynccontextmanager
    async def transactions(self, idle: float) -> AsyncIterator[Callable[[], Any]]:
        async with self._inner.transactions(idle) as begin:

            @contextlib.asynccontextmanager
            async def begun() -> AsyncIterator[Own]:
                async with begin() as own:
                    yield self._own(own)

            yield begun

    def join(self, tx: object) -> SyncJoin | AsyncJoin:
        joined = self._inner.join(tx)
        if isinstance(joined, AsyncJoin):
            return AsyncJoin(self._answering(joined.answer))
        answer = joined.answer
        return SyncJoin(lambda call: play(self._exchanged(call, self._scope(shares=False), strict=True), answer))

    def _own(self, own: Own) -> Own:
        return dataclasses.replace(own, answer=self._answering(own.answer))

    def _answering(self, answer: Any) -> Any:
        async def answered(call: Call | Ddl) -> list[Row]:
            return await play_async(self._exchanged(call, self._scope(shares=False), strict=True), answer)

        return answered

    def _talk(self, talk: Script[T]) -> Script[T]:
        """Play a script with its values sealed; what a fork copies is sealed anew for its new row."""
        scope = self._scope(commits=False)
        try:
            call = next(talk)
            while True:
                try:
                    rows = yield from self._exchanged(call, scope)
                    if isinstance(call, Call) and call.statement == "copy_steps":
                        yield from self._moved(int(call.params["id"] or 0), int(call.params["fork_id"] or 0), scope)
                except (Refused, StoreLocked) as refusal:
                    call = talk.throw(refusal)
                else:
                    call = talk.send(rows)
        except StopIteration as end:
            value: T = end.value
            return value

    def _exchanged(self, call: Any, scope: Scope, *, strict: bool = False) -> Script[list[Row]]:
        """One call of a transaction, and what has to be known to seal and to open it."""
        yield from self.calls.prepared([call], scope, self._now(), strict=strict)
        rows = yield self.calls.sealed(call, scope)
        yield from self.calls.learned([(call, rows)], scope)
        return self.calls.opened(call, rows, scope)

    def _moved(self, run_id: int, fork_id: int, scope: Scope) -> Script[None]:
        tasks = yield Call("sealed_task", {"id": fork_id})
        steps = yield Call("sealed_steps", {"id": fork_id})
        answers = [(Call("sealed_task"), tasks), (Call("sealed_steps"), steps)]
        yield from self.calls.learned(answers, scope)

        def anew(row: Row, name: str) -> Value:
            return self.calls.anew(row[name], name, run_id, fork_id, scope)

        for row in tasks:
            yield Call("reseal_task", {"id": fork_id, **{name: anew(row, name) for name in ("input", "headers")}})
        again = [(fork_id, row["key"], *(anew(row, name) for name in ("input", "output", "error"))) for row in steps]
        if again:
            yield Call("reseal_steps", {}, again)

    async def _alone(self, call: Call, do: Callable[[Call], Awaitable[list[Row]]]) -> list[Row]:
        scope = self._scope()
        await self._ask(self.calls.prepared([call], scope, self._now()))
        rows = await do(self.calls.sealed(call, scope))
        await self._ask(self.calls.learned([(call, rows)], scope))
        return self.calls.opened(call, rows, scope)

    async def _ask(self, talk: Script[None]) -> None:
        """Learn what a call needs to know, apart from its own transaction."""
        answer = lambda call: (self._inner.write if call.statement in MAKES else self._inner.read)(call)  # noqa: E731
        await play_async(talk, cast("Any", answer))

    def _scope(self, *, shares: bool = True, commits: bool = True) -> Scope:
        return Scope(self.subjects, shares=shares, commits=commits)


async def _awaited(value: Any) -> bytes:
    return cast("bytes", await value if inspect.isawaitable(value) else value)
