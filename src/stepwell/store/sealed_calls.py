"""What of a call is sealed, what of its answer is opened, and with whose key.

What is sealed is decided by the names of columns, so that no verb can forget it. What belongs to a task, an instance or
a new row with the header `subject` is sealed with the key of its subject, all else with that of the tenant.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from stepwell.errors import SubjectForgotten
from stepwell.store.driver import Call, Ddl, Row, Script, Value
from stepwell.store.sql import Statements
from stepwell.store.subject_keys import Scope, SubjectKey
from stepwell.values.cipher import PREFIX, SUBJECT, Cipher, Key, head_of, new_data_key, new_subject_key
from stepwell.values.headers import SUBJECT as WHOSE
from stepwell.values.headers import headers_in
from stepwell.values.named_codecs import FORGOTTEN, FORGOTTEN_VALUE

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
OF_TASK: Final = frozenset(("add_signal",))  # statements whose parameter `id` is a task
INSTANCES: Final = frozenset(("make_instances", "lock_instances", "look_at_instances"))
WAS_FORGOTTEN: Final = "its subject was forgotten"
AS_STORED: Final = frozenset(("unsealed_notes", "notes_under_seal"))  # the hash of a seal is over what is stored
OWN: Final = ("NotThisCode", "CodeDiffers")  # errors of the engine itself, which name code, not values
ENVELOPES: Final = frozenset(("INPUT", "EFFECT", "TIMER"))  # kinds of tasks whose input says an instance that SQL needs


class SealedCalls:
    """Seals calls and opens rows, for one tenant."""

    def __init__(self, statements: Statements, cipher: Cipher, tenant: str) -> None:
        self._statements, self._cipher = statements, cipher
        self._params: dict[str, Value] = {"tenant": tenant}
        self._plans: dict[str, tuple[tuple[int, str], ...]] = {}
        self.forgettable: set[str] = set()  # the types whose instances are subjects

    # Which keys are needed

    def prepared(self, calls: Sequence[Any], scope: Scope, now: Value = None, *, strict: bool = False) -> Script[None]:
        """Learn what is needed to seal these calls; with `strict`, refuse what is added to a forgotten subject."""
        owners = [owner for call in calls for owner in self._owners(call, scope)]
        if names := {owner for owner in owners if isinstance(owner, str)}:
            yield from self.keys_of(names, scope, now, strict=strict)
        for call in calls:  # what these calls add is not there yet: the others need not ask whose it is
            self._know_added(call, scope)
        tasks = {owner for owner in owners if isinstance(owner, int) and scope.process.owner(owner) is None}
        if tasks:
            for row in (yield Call("seals_of_tasks", {}, [(task_id,) for task_id in sorted(tasks)])):
                head = head_of(row["sealed"] or "")
                scope.process.own(row["id"], head.number if head is not None and head.form == SUBJECT else 0)
        yield from self._numbers((scope.process.owner(owner) or 0 for owner in owners if isinstance(owner, int)), scope)

    def keys_of(self, names: Iterable[str], scope: Scope, now: Value = None, *, strict: bool = False) -> Script[None]:
        """Learn the keys of these subjects; one that has none gets one."""
        asked = sorted({name for name in names if scope.named(name) is None})
        if asked:
            find = Call("subject_keys", self._params, [(name,) for name in asked])
            scope.learn(rows := (yield find), self._cipher.key)
            if missing := sorted(set(asked) - {row["subject"] for row in rows}):
                made = [(name, new_subject_key(self._cipher.key, name)) for name in missing]
                yield Call("add_subject_keys", {**self._params, "now": now}, made)
                scope.made()
                scope.learn((yield find), self._cipher.key)
        for name in names if strict else ():
            if (known := scope.named(name)) is not None and known.is_forgotten:
                raise SubjectForgotten(f"the subject {name}")

    def learned(self, answers: Iterable[tuple[Any, Sequence[Row]]], scope: Scope) -> Script[None]:
        """Learn the keys of what was read, and whose each task is."""
        numbers = set()
        for call, rows in answers:
            if isinstance(call, Ddl) or call.statement in AS_STORED:
                continue
            for head in (head_of(cell) for row in rows for cell in row if is_sealed(cell)):
                if head is None:
                    continue
                number = head.number if head.form == SUBJECT else 0
                numbers.add(number)
                if head.part == PARTS["input"] and head.row:
                    scope.process.own(head.row, number)
            if call.statement in INSTANCES:
                self._learn_instances(rows, scope)
        yield from self._numbers(numbers, scope)

    def _learn_instances(self, rows: Sequence[Row], scope: Scope) -> None:
        for row in rows:
            if row["type"] in self.forgettable:
                scope.process.name_instance(row["id"], subject_of(row["type"], row["name"]))

    def _numbers(self, numbers: Iterable[int], scope: Scope) -> Script[None]:
        asked = sorted({number for number in numbers if number and scope.numbered(number) is None})
        if asked:
            rows = yield Call("subject_keys_by_number", self._params, [(number,) for number in asked])
            scope.learn(rows, self._cipher.key)

    def _owners(self, call: Any, scope: Scope) -> Iterator[str | int]:
        """The subjects, by name, and the tasks, by number, that the values of a call belong to."""
        if isinstance(call, Ddl):
            return
        if call.statement in OF_TASK and (task_id := _number(call.params.get("id"))):
            yield task_id
        if call.rows is None or not self._plan(call.statement):
            return
        names = self._names(call.statement)
        for row in call.rows:
            said = dict(zip(names, row, strict=True))
            if (owner := self._owner(call.statement, said, scope)) is not None:
                yield owner

    def _know_added(self, call: Any, scope: Scope) -> None:
        if isinstance(call, Ddl) or call.rows is None or "headers" not in (names := self._names(call.statement)):
            return
        for row in call.rows:
            said = dict(zip(names, row, strict=True))
            key = self._key(self._owner(call.statement, said, scope), scope)
            scope.process.own(_number(said.get("id")), 0 if key is None else key.number)

    def _owner(self, statement: str, said: Mapping[str, Value], scope: Scope) -> str | int | None:
        if statement == "add_observations":
            return subject_of(said["type"], said["name"]) if said["type"] in self.forgettable else None
        instance = said["id"] if statement == "move_instances" else said.get("instance_id")
        if instance is not None and (subject := scope.process.of_instance(int(instance))) is not None:
            return subject
        if "headers" in said:
            return headers_in(said["headers"]).get(WHOSE)
        if instance is not None:
            return None
        return next((_number(said[name]) for name in ROWS if name in said), 0) or None

    def _key(self, owner: str | int | None, scope: Scope) -> SubjectKey | None:
        """The key of a subject or a task; None is that of the tenant."""
        if isinstance(owner, str):
            return scope.named(owner)
        number = 0 if owner is None else scope.process.owner(owner) or 0
        return scope.numbered(number) if number else None

    # One call

    def sealed(self, call: Any, scope: Scope) -> Any:
        """The call with its values sealed; `prepared` has learned what that needs."""
        if isinstance(call, Ddl) or (
            call.rows is None and call.statement not in VALUES and call.statement not in LINES
        ):
            return call
        params = call.params
        if names := VALUES.get(call.statement):
            row = _number(params.get("id"))
            key = self._key(row if call.statement in OF_TASK else None, scope)
            params = {**params, **{name: self._seal(params[name], name, row, key) for name in names}}
        if names := LINES.get(call.statement) if call.rows is None else None:
            params = {**params, **{name: class_in(params[name]) for name in names}}
        if call.rows is None or not (plan := self._plan(call.statement)):
            return call if params is call.params else dataclasses.replace(call, params=params)
        columns = self._names(call.statement)
        said = (dict(zip(columns, row, strict=True)) for row in call.rows)
        rows = [self._sealed_row(call.statement, row, plan, scope) for row in said]
        return dataclasses.replace(call, params=params, rows=rows, bulk=False)

    def opened(self, call: Any, rows: Any, scope: Scope) -> list[Row]:
        """The rows with their values opened; `learned` has learned what that needs."""
        if isinstance(call, Ddl) or call.statement in AS_STORED:
            return cast("list[Row]", rows)
        return [self._opened_row(call, row, scope) if any(map(is_sealed, row)) else row for row in rows]

    def anew(self, text: Value, name: str, run_id: int, fork_id: int, scope: Scope) -> Value:
        """A sealed value of a run, sealed for its fork."""
        if not is_sealed(text):
            return text
        opened = self._open(str(text), name, {run_id}, scope)
        return self._seal(opened, name, fork_id, self._key(run_id, scope))

    def _names(self, statement: str) -> list[str]:
        return [column.name for column in self._statements[statement].columns]

    def _plan(self, statement: str) -> tuple[tuple[int, str], ...]:
        """The places of the columns of a row set that are sealed or cut."""
        if (known := self._plans.get(statement)) is None:
            left_out = NO_VALUES.get(statement, ())
            names = self._names(statement)
            cut = LINES.get(statement, ())
            known = tuple(
                (place, name)
                for place, name in enumerate(names)
                if (name in PARTS and name not in left_out) or name in cut or name == "last_error"
            )
            self._plans[statement] = known
        return known

    def _sealed_row(
        self, statement: str, said: dict[str, Value], plan: Sequence[tuple[int, str]], scope: Scope
    ) -> tuple[Value, ...]:
        cells = list(said.values())
        row = next((_number(said[name]) for name in ROWS if name in said), 0)
        key = self._key(self._owner(statement, said, scope), scope)
        for place, name in plan:
            if (text := cells[place]) is None:
                continue
            if name == "last_error":
                cells[place] = line_of(str(text), said.get("error"))
            elif name in PARTS and not (name == "error" and not str(text).startswith("{")):
                cells[place] = self._seal(text, name, row, key, said.get("kind"))
            else:
                cells[place] = class_in(text)
        return tuple(cells)

    def _seal(self, text: Value, name: str, row: int, key: SubjectKey | None, kind: Value = None) -> Value:
        if text is None or is_sealed(text):
            return text
        clear = None
        if name == "error":
            clear = _clear(str(text), "type")
        elif name == "input" and kind in ENVELOPES:
            clear = _clear(str(text), "id")
        if key is None:
            return self._cipher.seal(str(text), PARTS[name], row, clear)
        # With a key that no process has, what is written for a forgotten subject is gone at once.
        subject: tuple[int, Key] = key.number, key.key or Key(new_data_key())
        return self._cipher.seal(str(text), PARTS[name], row, clear, subject)

    def _opened_row(self, call: Call, row: Row, scope: Scope) -> OpenedRow:
        names = list(row.keys())
        rows = {_number(row[name]) for name in ROWS if name in names}
        rows |= {_number(call.params[name]) for name in ("id", "run_id", "fork_id") if name in call.params}
        cells = [
            self._open(cell, name, rows - {0}, scope) if is_sealed(cell) else cell
            for name, cell in zip(names, row, strict=True)
        ]
        return OpenedRow(names, cells)

    def _open(self, cell: str, name: str, rows: set[int], scope: Scope) -> str | None:
        parts = (PARTS[name],) if name in PARTS else ALL_PARTS
        head = head_of(cell)
        if head is None or head.form != SUBJECT or (known := scope.numbered(head.number)) is None:
            return self._cipher.open(cell, parts, rows)
        if known.is_forgotten:
            return _forgotten(cell, name)
        return self._cipher.open(cell, parts, rows, known.key)


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


def subject_of(type: Value, name: Value) -> str:
    """The subject that an instance is, if its decider says that its instances may be forgotten."""
    return f"{type}/{name}"


def _forgotten(cell: str, name: str) -> str | None:
    """What is read in the place of a value that was forgotten: it fits where the value stood."""
    clear = {key: value for key, value in json.loads(cell).items() if key in ("id", "type")}
    match name:
        case "headers" | "snapshot":
            return None
        case "payload_hash":
            return f"{FORGOTTEN}:"  # it is compared with no other
        case "error":
            return json.dumps({"type": SubjectForgotten.__name__, "message": WAS_FORGOTTEN, **clear})
        case "detail":
            return json.dumps(WAS_FORGOTTEN)
        case "refused":
            return WAS_FORGOTTEN
        case "input" if "id" in clear:
            return json.dumps({**clear, "data": json.loads(FORGOTTEN_VALUE)})
    return FORGOTTEN_VALUE


def is_sealed(cell: object) -> bool:
    """Whether a cell holds a sealed text."""
    return type(cell) is str and cell.startswith(PREFIX)


def _number(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
