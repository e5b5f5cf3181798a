"""A driver that seals what goes into the database and opens what comes out, between a store and its own driver.

What is sealed is decided here, by the names of columns, so that no verb can forget it. Above, everything is as without;
what cannot be opened stays as it is stored, and is then read as a value of a codec that this process does not have.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from stepwell.errors import Refused, StoreLocked
from stepwell.store.driver import AsyncJoin, Call, Ddl, Driver, Own, Row, Script, SyncJoin, Value
from stepwell.store.sql import Statements
from stepwell.values.cipher import PREFIX, Cipher, new_data_key
from stepwell.values.encryption import Keys

T = TypeVar("T")

# The parts of a row that are sealed, by the number that stands in the seal; columns that are not listed are not sealed.
PARTS: Final = {
    "input": 1, "output": 2, "error": 3, "progress": 4, "data": 5, "snapshot": 6, "detail": 7, "payload_hash": 8,
    "reply": 9, "refused": 10, "plan": 11, "declared": 12, "edited": 13, "hashes": 14, "headers": 15,
}  # fmt: skip
ALL_PARTS: Final = frozenset(PARTS.values())
# Parameters that are values, by statement: of the others, some have the same names and are questions.
VALUES: Final = {
    "add_signal": ("data", "headers"), "cancel_tasks": ("error",),
    "add_schedule": ("plan", "declared", "hashes"), "change_schedule": ("plan", "declared", "edited", "hashes"),
}  # fmt: skip
# Columns and parameters with an error as plain text: its class alone is kept.
LINES: Final = {
    "add_observations": ("error",), "park_instance": ("error",), "fail_parked": ("error",),
    "note_projection_failure": ("error",),
}  # fmt: skip
NO_VALUES: Final = {"add_observations": ("input", "error")}  # the name of a class, and a line
ROWS: Final = ("id", "run_id", "task_id", "instance_id")  # columns that say to which row a value belongs
AS_STORED: Final = frozenset(("unsealed_notes", "notes_under_seal"))  # the hash of a seal is over what is stored
OWN: Final = ("NotThisCode", "CodeDiffers")  # errors of the engine itself, which name code, not values
ENVELOPES: Final = frozenset(("INPUT", "EFFECT", "TIMER"))  # kinds of tasks whose input says an instance that SQL needs


class SealedDriver:
    """A driver whose values are sealed; everything else is the inner driver's."""

    def __init__(self, inner: Driver, statements: Statements, keys: Keys, tenant: str) -> None:
        self._inner, self._statements, self._keys, self._tenant = inner, statements, keys, tenant
        self.cipher = Cipher(tenant)
        self._plans: dict[str, tuple[tuple[int, str], ...]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def unlock(self, now: int | None) -> None:
        """Unwrap the tenant's data key, or make one: a second process that does takes the one that is there."""
        find = Call("data_keys", {"tenant": self._tenant})
        if not (rows := await self._inner.read(find)):
            wrapped = b64encode(await _awaited(self._keys.wrap(new_data_key()))).decode()
            made = {"tenant": self._tenant, "key_id": self._keys.current, "wrapped": wrapped, "now": now}
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

    # What a driver does, with values sealed and opened

    async def run(self, slot: int, calls: Sequence[Call]) -> list[list[Row]]:
        answered = await self._inner.run(slot, [self.sealed(call) for call in calls])
        return [self.opened(call, rows) for call, rows in zip(calls, answered, strict=True)]

    async def transact(self, script: Callable[[], Script[T]], **options: Any) -> T:
        return await self._inner.transact(lambda: self._talk(script()), **options)

    async def snapshot(self, script: Callable[[], Script[T]]) -> T:
        return await self._inner.snapshot(lambda: self._talk(script()))

    async def read(self, call: Call) -> list[Row]:
        return self.opened(call, await self._inner.read(self.sealed(call)))

    async def write(self, call: Call) -> list[Row]:
        return self.opened(call, await self._inner.write(self.sealed(call)))

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
        return SyncJoin(lambda call: self.opened(call, answer(self.sealed(call))))

    def _own(self, own: Own) -> Own:
        return dataclasses.replace(own, answer=self._answering(own.answer))

    def _answering(self, answer: Any) -> Any:
        async def answered(call: Call | Ddl) -> list[Row]:
            return self.opened(call, await answer(self.sealed(call)))

        return answered

    def _talk(self, talk: Script[T]) -> Script[T]:
        """Play a script with its values sealed; what a fork copies is sealed anew for its new row."""
        try:
            call = next(talk)
            while True:
                try:
                    rows = self.opened(call, (yield self.sealed(call)))
                    if isinstance(call, Call) and call.statement == "copy_steps":
                        yield from self._moved(int(call.params["id"] or 0), int(call.params["fork_id"] or 0))
                except (Refused, StoreLocked) as refusal:
                    call = talk.throw(refusal)
                else:
                    call = talk.send(rows)
        except StopIteration as end:
            value: T = end.value
            return value

    def _moved(self, run_id: int, fork_id: int) -> Script[None]:
        def anew(row: Row, name: str) -> Value:
            text = row[name]
            if not _is_sealed(text):
                return cast("Value", text)
            return self._seal(self.cipher.open(text, (PARTS[name],), (run_id,)), name, fork_id)

        for row in (yield Call("sealed_task", {"id": fork_id})):
            again_of = {name: anew(row, name) for name in ("input", "headers")}
            yield Call("reseal_task", {"id": fork_id, **again_of})
        steps = yield Call("sealed_steps", {"id": fork_id})
        again = [(fork_id, row["key"], *(anew(row, name) for name in ("input", "output", "error"))) for row in steps]
        if again:
            yield Call("reseal_steps", {}, again)

    # One call

    def sealed(self, call: Any) -> Any:
        """The call with its values sealed."""
        if isinstance(call, Ddl) or (
            call.rows is None and call.statement not in VALUES and call.statement not in LINES
        ):
            return call
        params = call.params
        if names := VALUES.get(call.statement):
            row = _number(params.get("id"))
            params = {**params, **{name: self._seal(params[name], name, row) for name in names}}
        if names := LINES.get(call.statement) if call.rows is None else None:
            params = {**params, **{name: class_in(params[name]) for name in names}}
        if call.rows is None or not (plan := self._plan(call.statement)):
            return call if params is call.params else dataclasses.replace(call, params=params)
        columns = [column.name for column in self._statements[call.statement].columns]
        rows = [self._sealed_row(row, plan, columns) for row in call.rows]
        return dataclasses.replace(call, params=params, rows=rows, bulk=False)

    def opened(self, call: Any, rows: Any) -> list[Row]:
        """The rows with their values opened."""
        if isinstance(call, Ddl) or call.statement in AS_STORED:
            return cast("list[Row]", rows)
        return [self._opened_row(call, row) if any(map(_is_sealed, row)) else row for row in rows]

    def _plan(self, statement: str) -> tuple[tuple[int, str], ...]:
        """The places of the columns of a row set that are sealed or cut."""
        if (known := self._plans.get(statement)) is None:
            left_out = NO_VALUES.get(statement, ())
            names = [column.name for column in self._statements[statement].columns]
            cut = LINES.get(statement, ())
            known = tuple(
                (place, name)
                for place, name in enumerate(names)
                if (name in PARTS and name not in left_out) or name in cut or name == "last_error"
            )
            self._plans[statement] = known
        return known

    def _sealed_row(self, row: Sequence[Value], plan: Sequence[tuple[int, str]], names: list[str]) -> tuple[Value, ...]:
        cells = list(row)
        said = dict(zip(names, row, strict=True))
        owner = next((_number(said[name]) for name in ROWS if name in said), 0)
        for place, name in plan:
            if (text := cells[place]) is None:
                continue
            if name == "last_error":
                cells[place] = line_of(str(text), said.get("error"))
            elif name in PARTS and not (name == "error" and not str(text).startswith("{")):
                cells[place] = self._seal(text, name, owner, said.get("kind"))
            else:
                cells[place] = class_in(text)
        return tuple(cells)

    def _seal(self, text: Value, name: str, row: int, kind: Value = None) -> Value:
        if text is None or _is_sealed(text):
            return text
        clear = None
        if name == "error":
            clear = _clear(str(text), "type")
        elif name == "input" and kind in ENVELOPES:
            clear = _clear(str(text), "id")
        return self.cipher.seal(str(text), PARTS[name], row, clear)

    def _opened_row(self, call: Call, row: Row) -> OpenedRow:
        names = list(row.keys())
        rows = {_number(row[name]) for name in ROWS if name in names}
        rows |= {_number(call.params[name]) for name in ("id", "run_id", "fork_id") if name in call.params}
        cells = [
            self.cipher.open(cell, (PARTS[name],) if name in PARTS else ALL_PARTS, rows - {0})
            if _is_sealed(cell)
            else cell
            for name, cell in zip(names, row, strict=True)
        ]
        return OpenedRow(names, cells)


class OpenedRow:
    """A row of a database whose sealed values were opened: indexed by column name or position, as a driver's row."""

    __slots__ = ("_cells", "_names")

    def __init__(self, names: list[str], cells: list[Any]) -> None:
        self._names, self._cells = names, cells

    def __getitem__(self, place: Any) -> Any:
        return self._cells[self._names.index(place) if isinstance(place, str) else place]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)

    def keys(self) -> list[str]:
        """The names of the columns."""
        return self._names


def class_in(text: Any) -> Any:
    """The class of an error that is told in one line, without its message."""
    return text if text is None or str(text).startswith(OWN) else str(text).partition(":")[0]


def line_of(line: str, error: Value) -> str:
    """The one line about an error: its class alone, if it is one."""
    kind = (_clear(str(error), "type") or {}).get("type") if error is not None else None
    return kind if kind is not None and line.startswith(kind) and not kind.startswith(OWN) else line


def _clear(text: str, name: str) -> dict[str, str] | None:
    """The field of a JSON object that SQL has to see."""
    with contextlib.suppress(ValueError):
        value = json.loads(text)
        if isinstance(value, dict) and isinstance(value.get(name), str):
            return {name: value[name]}
    return None


def _is_sealed(cell: object) -> bool:
    return type(cell) is str and cell.startswith(PREFIX)


def _number(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


async def _awaited(value: Any) -> bytes:
    return cast("bytes", await value if inspect.isawaitable(value) else value)
