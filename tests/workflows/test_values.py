"""What a step is given and gives back: stored, compared, and the same on the first run and on every replay."""

import functools
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID

import attrs
import msgspec
import pytest
from pydantic import BaseModel, Field, HttpUrl, model_validator

from stepwell import Context, SerializationError, StepFailed, Store, step, workflow
from stepwell.base.clock import TestClock
from stepwell.values.arguments import Arguments
from tests.ground.seeds import printed_by_each
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


@dataclass
class Payment:
    cents: int


@dataclass
class CardPayment(Payment):
    card: str = ""


@dataclass
class UrgentPayment(Payment):
    """Has nothing of its own, so nothing of it is lost."""


class Animal(msgspec.Struct):
    name: str


class Dog(Animal):
    tricks: int = 0


class Place(BaseModel):
    name: str


class Town(Place):
    people: int = 0


@attrs.define
class Base:
    x: int


@attrs.define
class Derived(Base):
    y: int = 0


class Shape(BaseModel):
    """Reads itself as the class that was written."""

    name: str

    @model_validator(mode="wrap")
    @classmethod
    def read(cls, given: Any, handler: Any) -> Any:
        if cls is Shape and isinstance(given, dict) and "radius" in given:
            return Circle.model_validate(given)
        return handler(given)


class Circle(Shape):
    radius: int


CUT: list[tuple[Any, Any]] = [
    (CardPayment(100, "4242"), Payment),
    (CardPayment(100, "4242"), Payment | None),
    (Dog("Rex", 3), Animal),
    (Town(name="Ulm", people=9), Place),
    (Derived(1, 2), Base),
]
WHOLE: list[tuple[Any, Any]] = [
    (CardPayment(100, "4242"), CardPayment),
    (Payment(100), Payment | None),
    (UrgentPayment(100), Payment),
    (Circle(name="o", radius=2), Shape),
]


@pytest.mark.proves("S-19", "CO-06")
async def test_a_result_that_would_come_back_without_its_own_fields_is_refused(store: Store) -> None:
    told: list[str] = []

    @workflow
    async def careless(ctx: Context) -> None:
        for value, kind in CUT:
            with pytest.raises(StepFailed, match="SerializationError") as refused:
                await ctx.step("cut", functools.partial(_same, value), returns=kind)
            told.append(refused.value.message)
        for value, kind in WHOLE:
            back = await ctx.step("whole", functools.partial(_same, value), returns=kind)
            assert vars(back) == vars(value)

    run = await executed(store, careless)
    assert run.output() is None
    assert "a CardPayment would come back as Payment" in told[0]
    assert all("annotate" in one and "or convert it to" in one for one in told)


@pytest.mark.proves("S-19", "CO-06")
async def test_a_run_that_returns_more_than_it_declares_is_no_success(store: Store) -> None:
    @workflow(retry=1)
    async def pay() -> Payment:
        return CardPayment(100, "4242")

    @workflow
    async def hurry() -> Payment:
        return UrgentPayment(100)

    run = await executed(store, pay)
    assert run.status == "ERROR"
    assert "a CardPayment would come back as Payment" in (run.last_error or "")
    assert (await executed(store, hurry)).output(Payment) == Payment(100)


@pytest.mark.proves("T-04", "CO-06")
def test_an_argument_that_would_come_back_without_its_own_fields_is_refused() -> None:
    async def take(first: Any, second: Any = None) -> None: ...

    for value, kind in CUT:
        take.__annotations__ |= {"first": kind, "second": kind}
        for args, named in (((value,), {}), ((None, value), {}), ((), {"first": None, "second": value})):
            with pytest.raises(SerializationError, match=f"a {type(value).__name__} would come back as"):
                Arguments.of(take, "step").refuse_losses(args, named)
    for value, kind in WHOLE:
        take.__annotations__ |= {"first": kind, "second": kind}
        Arguments.of(take, "step").refuse_losses((value,), {"second": value})

    @workflow
    async def buy(payment: Payment, note: str = "") -> None: ...

    with pytest.raises(SerializationError, match=r"payment of buy refused.* a CardPayment would come back as Payment"):
        buy.trigger(CardPayment(100, "4242"), note="x")
    assert buy.trigger(UrgentPayment(100)).input == '{"payment":{"cents":100}}'


@pytest.mark.proves("S-18", "CO-06")
async def test_a_step_executed_elsewhere_gets_what_it_was_given(store: Store) -> None:
    got: list[Any] = []

    class Upload(BaseModel):
        data: bytes
        url: HttpUrl
        owner: str = Field(alias="theOwner")

    @step(queue="media")
    async def take(upload: Upload) -> None:
        got.append(upload)

    @step(queue="media")
    async def charge(payment: Payment) -> None:
        got.append(payment)

    @step
    async def here(payment: Payment) -> None:
        got.append(payment)

    upload = Upload(data=b"hello", url=HttpUrl("https://example.org"), theOwner="ada")

    @workflow
    async def storing() -> None:
        await take(upload)
        await charge(Payment(1))
        with pytest.raises(SerializationError, match="a CardPayment would come back as Payment"):
            await charge(CardPayment(2, "4242"))
        await here(CardPayment(3, "4242"))  # nothing is read back

    await begun(store, storing)
    await drained(store, storing, take, charge)
    assert got == [upload, Payment(1), CardPayment(3, "4242")]


PRINTED = """
import dataclasses, enum, pydantic
from stepwell.values.codec import encode_ordered
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
    first, *others = printed_by_each(PRINTED)
    assert others == [first] * len(others)
    assert first.count('["alpha","bravo","charlie","delta","echo"]') > 5
