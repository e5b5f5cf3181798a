"""What a step is given and gives back: stored, compared, and the same on the first run and on every replay."""

import functools
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel

from stepwell import Context, StepFailed, Store, step, workflow
from stepwell.clock import TestClock
from tests.workflows.kit import begun, drained, executed, statuses, steps_of


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1


@dataclass(frozen=True)
class Parcel:
    id: int
    marks: frozenset[str] = frozenset()


class Point(msgspec.Struct):
    x: float
    y: Decimal


class Person(BaseModel):
    name: str
    born: date
    tags: set[str] = set()


ABROAD = timezone(timedelta(hours=-3, minutes=-30))
VALUES: dict[str, tuple[Any, Any]] = {
    "dataclass": (Parcel(1, frozenset(("b", "a"))), Parcel),
    "struct": (Point(1.5, Decimal("2.50")), Point),
    "model": (Person(name="Ada", born=date(1815, 12, 10), tags={"x", "y"}), Person),
    "models": ([Person(name="Ada", born=date(1815, 12, 10))], list[Person]),
    "datetime": (datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), datetime),
    "abroad": (datetime(2026, 1, 2, 3, 4, tzinfo=ABROAD), datetime),
    "timedelta": (timedelta(days=1, microseconds=5), timedelta),
    "decimal": (Decimal("1.10"), Decimal),
    "uuid": (UUID(int=7), UUID),
    "bytes": (b"\x00\xff", bytes),
    "enum": (Colour.BLUE, Colour),
    "level": (Level.LOW, Level),
    "tuple": ((1, "a"), tuple[int, str]),
    "set": ({3, 1, 2}, set[int]),
    "keys": ({1: Parcel(1)}, dict[int, Parcel]),
    "maybe": (Parcel(2), Parcel | None),
    "none": (None, type(None)),
    "json": ({"a": [1, 2.5, None, True, "ü"]}, Any),
    "large": (2**80, int),
    "text": ("", str),
}


@pytest.mark.proves("S-19", "S-20", "CO-06")
async def test_results_are_equal_on_the_first_run_and_on_replay(store: Store, clock: TestClock) -> None:
    turns: list[dict[str, Any]] = []
    called: list[str] = []

    def body(name: str, value: Any) -> Any:
        def give() -> Any:
            called.append(name)
            return value

        return give

    @workflow
    async def collect(ctx: Context) -> None:
        found = {name: await ctx.step(name, body(name, one), returns=kind) for name, (one, kind) in VALUES.items()}
        found["loose"] = await ctx.step("loose", lambda: [(1, 2)], returns=list)
        turns.append(found)
        await ctx.sleep(60)

    await begun(store, collect)
    await drained(store, collect)
    clock.advance(60)
    await drained(store, collect)
    wanted = {name: value for name, (value, _) in VALUES.items()}
    for found in turns:
        assert found.pop("loose") == [[1, 2]]  # what was recorded, on the first run too
        assert found == wanted
        assert {name: type(one) for name, one in found.items()} == {name: type(one) for name, one in wanted.items()}
        assert found["abroad"].utcoffset() == ABROAD.utcoffset(None), "the same moment, and in the same place"
    assert len(turns) == 2
    assert called == list(VALUES)


def _same(value: Any) -> Any:
    return value


@pytest.mark.proves("S-19")
async def test_a_result_that_would_come_back_as_something_else_is_refused_with_the_place_to_annotate(
    store: Store,
) -> None:
    told: list[str] = []

    @step(retry=5)
    async def unannotated() -> Any:
        return Parcel(1)

    @workflow
    async def careless(ctx: Context) -> None:
        for value in ((1, 2), {1}, datetime(2026, 1, 1, tzinfo=UTC), {1: 2}, Colour.RED, [Parcel(1)], b"x", object()):
            with pytest.raises(StepFailed, match="SerializationError") as refused:
                await ctx.step("x", functools.partial(_same, value))
            told.append(refused.value.message)
        with pytest.raises(StepFailed, match="annotate"):
            await unannotated()
        with pytest.raises(StepFailed, match="SerializationError"):
            await ctx.step("other", lambda: "text", returns=int)

    run = await executed(store, careless)
    assert run.output() is None
    assert all("annotate" in one and "returns=" in one for one in told[:-1])
    assert "a tuple would come back as list" in told[0]
    assert "not a type that JSON can hold" in told[-1]
    assert set((await statuses(store, run.id)).values()) == {"ERROR"}
    assert (await steps_of(store, run.id))["unannotated#1"].attempt == 1  # trying again cannot help


@pytest.mark.proves("S-18", "protocol-21")
async def test_arguments_that_are_the_same_in_another_order_are_the_same(store: Store, clock: TestClock) -> None:
    turns: list[int] = []
    called: list[str] = []

    @step
    async def mixed(a: Any, b: Any = None, *, c: Any = 0) -> None:
        called.append("mixed")

    @workflow
    async def shuffling(ctx: Context) -> None:
        turns.append(len(turns))
        flip = -1 if len(turns) > 1 else 1
        letters = [chr(number) for number in range(97, 117)][::flip]
        person = Person(name="Ada", born=date(1815, 12, 10), tags=set(letters))
        await mixed(set(letters), dict.fromkeys(letters, frozenset(letters)))
        await mixed(
            person, [Parcel(1, frozenset(letters))], c=[{1, None, "a"}, {Colour.RED, Colour.BLUE}][::flip][::flip]
        )
        await mixed({Colour.RED: 1, Colour.BLUE: 2} if flip > 0 else {Colour.BLUE: 2, Colour.RED: 1})
        await mixed(b=2, a=1) if flip > 0 else await mixed(1, 2)
        await ctx.sleep(60)

    run_id = await begun(store, shuffling)
    await drained(store, shuffling)
    clock.advance(60)
    await drained(store, shuffling)
    run = await store.get_run(run_id)
    assert (run.status, run.last_error) == ("SUCCESS", None)
    assert (turns, len(called)) == ([0, 1], 4)
    assert (await steps_of(store, run_id))["mixed#4"].input == {"a": 1, "b": 2}


PRINTED = """
import dataclasses, enum, pydantic
from stepwell.codec import encode_ordered
words = frozenset(("delta", "alpha", "charlie", "bravo", "echo"))
Colour = enum.Enum("Colour", {"RED": "red", "BLUE": "blue"})
Parcel = dataclasses.make_dataclass("Parcel", [("id", int), ("marks", frozenset)], frozen=True)
class Model(pydantic.BaseModel):
    words: frozenset[str]
parcels = {Parcel(1, words), Parcel(2, frozenset())}
print(encode_ordered([words, {None, 1, "a"}, set(Colour), parcels, dict.fromkeys(words, words)]))
print(encode_ordered({"by": {Colour.RED: words, Colour.BLUE: 1}, "of": parcels}))
print(encode_ordered([Model(words=words)]))
"""


@pytest.mark.proves("S-18", "protocol-21")
def test_processes_that_hash_differently_write_the_same_arguments() -> None:
    commands = [
        subprocess.Popen(
            [sys.executable, "-c", PRINTED],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    first, second = (command.communicate(timeout=60)[0] for command in commands)
    assert first == second
    assert first.count('["alpha","bravo","charlie","delta","echo"]') > 5
