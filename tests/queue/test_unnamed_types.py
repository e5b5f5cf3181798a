"""What JSON has no type for is refused where no type is named for it, everywhere alike, and taken where one is."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import pydantic
import pytest

from stepwell import Context, SerializationError, Store, handler, step, workflow
from stepwell.values.lossless import refuse_unnamed
from tests.queue.raw import everything_written
from tests.workflows.kit import drained


class Plain(Enum):
    RED = "red"


class Text(StrEnum):
    RED = "red"


class Place(NamedTuple):
    x: int
    more: Any = None


@dataclass
class Order:
    id: str
    total: Decimal = Decimal("9.90")
    placed: datetime = datetime(2026, 1, 2, tzinfo=UTC)
    places: tuple[int, ...] = (1, 2)


@dataclass
class Loose:
    more: Any = None


class Model(pydantic.BaseModel):
    total: Decimal = Decimal(1)
    more: dict[str, Any] = {}
    _seen: datetime = pydantic.PrivateAttr(default_factory=datetime.now)


class Typed(TypedDict):
    total: Decimal
    more: Any


UNNAMED = [
    b"x",
    bytearray(b"x"),
    Decimal("1.10"),
    date(2026, 1, 2),
    datetime(2026, 1, 2, tzinfo=UTC),
    time(1),
    timedelta(seconds=1),
    UUID(int=1),
    (1, 2),
    Place(1),
    Plain.RED,
    {1: "a"},
]
PLAIN = [None, 1, 1.5, "a", True, [1, [2]], {"a": {"b": [None]}}, Text.RED, OrderedDict(a=1), Order("1"), [Model()]]


@pytest.mark.parametrize("value", UNNAMED, ids=repr)
def test_what_has_no_type_in_json_is_refused_with_its_place(value: Any) -> None:
    for holder, path in ((value, r"\$"), ({"a": [value]}, r"\$\.a\[0\]"), (Loose([value]), r"\$\.more\[0\]")):
        with pytest.raises(SerializationError, match=rf"payload refused at `{path}.*nothing says that this is a"):
            refuse_unnamed(holder, what="payload")
    for declared in (dict[str, Any], dict, dict[str, Any] | None, Typed, Any):
        with pytest.raises(SerializationError):
            refuse_unnamed({"total": Decimal(1), "more": value}, declared, what="payload")
    with pytest.raises(SerializationError):
        refuse_unnamed(Model(more={"a": value}), Model, what="payload")


def test_what_is_named_or_json_of_its_own_is_taken() -> None:
    for value in PLAIN:
        refuse_unnamed(value, what="payload")
    refuse_unnamed({"a": (1, 2)}, dict[str, tuple[int, ...]], what="payload")
    refuse_unnamed({"total": Decimal(1), "more": None}, Typed, what="payload")
    refuse_unnamed((Decimal(1), {"a": 1}), tuple[Decimal, dict[str, Any]], what="payload")
    refuse_unnamed(Place(1, {"a": 1}), Place, what="payload")
    refuse_unnamed([(1, 2)], list[list[int]], what="payload")


def test_what_is_nested_deep_is_looked_at_without_a_recursion() -> None:
    value: Any = Decimal(1)
    for _ in range(5_000):
        value = [value]
    with pytest.raises(SerializationError):
        refuse_unnamed(value, what="payload")


@workflow
async def loose(ctx: Context, more: Any) -> Any:
    return await ctx.wait("told")


@pytest.mark.proves("S-19")
@pytest.mark.parametrize("value", [b"x", Decimal("1.10"), date(2026, 1, 2), (1, 2)], ids=repr)
async def test_enqueue_trigger_signal_and_fork_refuse_it_before_anything_is_written(store: Store, value: Any) -> None:
    @handler("loose_mail")
    async def send(payload: dict[str, Any]) -> None: ...

    await store.create_queue("mail")
    run_id = await loose.trigger({}).execute(store)
    before = await everything_written(store)
    asks: list[Callable[[], Any]] = [
        lambda: store.enqueue("mail", {"a": value}),
        lambda: store.enqueue_many("mail", [{"a": 1}, {"a": value}]),
        lambda: store.enqueue(send, {"a": value}),
        lambda: loose.trigger({"a": value}).execute(store),
        lambda: workflow("loose").trigger([value]).execute(store),
        lambda: workflow("loose").trigger(more=value).execute(store),
        lambda: store.signal(run_id, "told", {"a": value}),
        lambda: store.resume(run_id, "told", value),
        lambda: store.fork(run_id, at="told", outputs={"ask": value}),
    ]
    for ask in asks:
        with pytest.raises(SerializationError, match="nothing says that this is a"):
            await ask()
    assert await everything_written(store) == before


@step
async def found() -> Any:
    return {"total": Decimal(1)}


@workflow
async def from_a_step() -> None:
    await found()


@workflow
async def at_its_end() -> Any:
    return {"places": [(1, 2)]}


@pytest.mark.parametrize("asked", [from_a_step, at_its_end], ids=repr)
async def test_steps_and_workflows_refuse_it_in_what_they_return(store: Store, asked: Any) -> None:
    run_id = await asked.trigger().execute(store)
    await drained(store, asked)
    assert "would come back as" in str((await store.get_run(run_id)).error)
