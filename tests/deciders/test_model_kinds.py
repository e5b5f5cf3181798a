"""How inputs, events, effects and states are stored: by name and version, and read back as what they were."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Generic, Literal, Never, TypeVar
from uuid import UUID

import msgspec
import pydantic
import pytest
from typing_extensions import TypeAliasType

from stepwell import (
    Decider,
    Decision,
    InvalidName,
    InvalidOption,
    PayloadTooLarge,
    SerializationError,
    UnknownRecord,
    upcast,
)
from stepwell.deciders.registry import Family
from stepwell.deciders.type_names import Kinds, Written, classes_of
from tests.deciders.shop import Create, Created, Event, Orders, Paid
from tests.deciders.shop import State as OrderState
from tests.ground.seeds import printed_by_each


@dataclass(frozen=True)
class Measured:
    at: datetime
    amount: Decimal
    seen: frozenset[int] = frozenset()
    note: str | None = None


class Moved(msgspec.Struct, frozen=True):
    __stepwell_name__ = "sensor.moved"
    __stepwell_version__ = 3
    to: tuple[int, int]
    on: date


for number in (1, 2):
    upcast(Moved, number)(lambda old: old)


class Tagged(msgspec.Struct, tag="tagged"):
    value: int


class Checked(pydantic.BaseModel):
    __stepwell_name__: ClassVar[str] = "sensor.checked"
    by: UUID
    result: Literal["good", "bad"] = "good"


VALUES = [
    Measured(datetime(2026, 1, 1, tzinfo=UTC), Decimal("1.10"), frozenset({1, 2})),
    Moved((1, 2), date(2026, 1, 1)),
    Tagged(7),
    Checked(by=UUID(int=7)),
]


def kinds(*classes: type) -> Kinds:
    return Kinds("event", "sensor", classes or tuple(type(value) for value in VALUES))


@pytest.mark.proves("M-01", "U-01")
@pytest.mark.parametrize(
    ("value", "name", "version"),
    list(zip(VALUES, ["Measured", "sensor.moved", "Tagged", "sensor.checked"], [1, 3, 1, 1], strict=True)),
    ids=lambda value: type(value).__name__,
)
def test_a_value_is_stored_by_name_and_version_and_comes_back(value: Any, name: str, version: int) -> None:
    written = kinds().write(value)
    assert (written.type, written.version) == (name, version)
    assert written.value == value
    assert written.value is not value
    [read] = kinds().read(written.type, written.version, written.text)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.proves("M-26", "U-06")
def test_a_field_with_a_default_may_be_added() -> None:
    old = '{"at":"2025-01-01T00:00:00Z","amount":"2","removed":true}'
    assert [*kinds().read("Measured", 1, old)] == [Measured(datetime(2025, 1, 1, tzinfo=UTC), Decimal(2))]


@pytest.mark.proves("M-25", "U-04")
@pytest.mark.parametrize(
    ("name", "version", "text", "told"),
    [
        ("Gone", 1, "{}", "event 7 of sensor 3 refused.* stored as Gone, version 1, and sensor declares Measured, "),
        ("sensor.moved", 4, "{}", "event 7 of sensor 3 refused.* version 4, and this code has version 3"),
        ("Measured", 1, '{"at":"?"}', r"event 7 of sensor 3 refused at `\$\.at`"),
        ("Measured", 1, '{"at"', "event 7 of sensor 3 refused"),
        ("os.system", 1, '"true"', "event 7 of sensor 3 refused.* stored as os.system"),
    ],
)
def test_what_cannot_be_read_says_which_and_why(name: str, version: int, text: str, told: str) -> None:
    with pytest.raises(SerializationError, match=told) as refused:
        kinds().read(name, version, text, what="event 7 of sensor 3")
    assert isinstance(refused.value, UnknownRecord) == ("version" in told or "stored as" in told)


@pytest.mark.proves("M-05")
def test_what_would_not_read_back_is_never_written() -> None:
    wrong: Any = "nineteen"
    with pytest.raises(SerializationError, match=r"event Created of order refused at `\$\.cents`"):
        Family.of(Orders()).events.write(Created(wrong))
    with pytest.raises(PayloadTooLarge, match="event Measured of sensor"):
        kinds().write(VALUES[0], limit=10)
    with pytest.raises(InvalidOption, match=r"no event of sensor, which declares Measured, sensor\.moved"):
        kinds().write(Paid())


@pytest.mark.proves("M-21")
def test_a_value_is_evolved_as_it_will_be_read_back() -> None:
    @dataclass(frozen=True)
    class Counted:
        amounts: tuple[float, ...]

    listed: Any = [1, 2]
    assert kinds(Counted).write(Counted(listed)) == Written("Counted", 1, '{"amounts":[1,2]}', Counted((1.0, 2.0)))


@pytest.mark.proves("M-15")
def test_a_payload_names_its_input() -> None:
    inputs = Family.of(Orders()).inputs
    assert inputs.read_named({"Create": {"order_id": "7", "cents": 1900}}) == Create("7", 1900)
    unnamed: list[Any] = [{}, [], {"order_id": "7", "cents": 1}, "Create"]
    for payload in unnamed:
        with pytest.raises(SerializationError, match=r'which input it is: {"Create": {...}}; there are Create, Pay'):
            inputs.read_named(payload)
    with pytest.raises(SerializationError, match=r"input refused at `\$\.Created`: order declares Create, Pay, Expire"):
        inputs.read_named({"Created": {"cents": 1900}})
    with pytest.raises(SerializationError, match=r"input Create of order refused at `\$\.cents`"):
        inputs.read_named({"Create": {"order_id": "7", "cents": "many"}})


# ---- names


@dataclass(frozen=True)
class Twin:
    __stepwell_name__: ClassVar[str] = "Measured"


@dataclass(frozen=True)
class Thief:
    __stepwell_name__: ClassVar[str] = "stepwell.TimerCancelled"


@dataclass(frozen=True)
class Spaced:
    __stepwell_name__: ClassVar[str] = "two words"


@dataclass(frozen=True)
class Early:
    __stepwell_version__: ClassVar[int] = 0


@dataclass(frozen=True)
class Child(Twin):
    pass


@pytest.mark.parametrize(
    ("classes", "told"),
    [
        ((Measured, Twin), "kinds.Measured and .*kinds.Twin are both events of sensor; give one of them another"),
        ((Thief,), "names that begin with `stepwell.` are the engine's own"),
        ((Spaced,), "cannot name a class"),
        ((Early,), "__stepwell_version__ of Early cannot be 0"),
    ],
)
def test_names_and_versions_are_checked(classes: tuple[type, ...], told: str) -> None:
    with pytest.raises((InvalidOption, InvalidName), match=told):
        kinds(*classes)


def test_a_name_is_not_inherited() -> None:
    assert list(kinds(Twin, Child).by_name) == ["Measured", "Child"]


# ---- which classes there are

T = TypeVar("T")
Bound = TypeVar("Bound", bound=Created | Paid)


class Plain:
    pass


@dataclass
class Pair(Generic[T]):
    one: T


@dataclass
class Unreadable:
    what: Plain | Pair[int]


@pytest.mark.proves("M-01")
@pytest.mark.parametrize(
    ("annotation", "classes"),
    [
        (Created, (Created,)),
        (Created | Paid | Created, (Created, Paid)),
        ("Created | Paid", (Created, Paid)),
        (Annotated[Created | Paid, "these"], (Created, Paid)),
        (Bound, (Created, Paid)),
        (Never, ()),
        (None, ()),
    ],
    ids=str,
)
def test_a_union_is_its_classes(annotation: Any, classes: tuple[type, ...]) -> None:
    assert classes_of(annotation, __name__, "event") == classes


@pytest.mark.parametrize("annotation", [Any, T, dict[str, int], int, Plain, Created | Plain, Pair[int]], ids=str)
def test_what_has_no_name_of_its_own_is_refused(annotation: Any) -> None:
    with pytest.raises(InvalidOption, match="each is a dataclass, a msgspec struct or a pydantic model"):
        classes_of(annotation, __name__, "event")


def test_a_class_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(SerializationError, match="event Unreadable refused"):
        classes_of(Unreadable, __name__, "event")
    with pytest.raises(InvalidOption, match=r"cannot be read \(name 'Nowhere' is not defined\)"):
        classes_of("Nowhere", __name__, "event")


def test_an_alias_is_what_it_stands_for() -> None:
    Happened = TypeAliasType("Happened", Created | Paid)  # noqa: N806 - what `type Happened = Created | Paid` makes, from 3.12 on
    assert classes_of(Happened, __name__, "event") == (Created, Paid)


S2 = TypeVar("S2")
I2 = TypeVar("I2")


@pytest.mark.proves("M-01")
def test_classes_are_found_through_a_generic_base() -> None:
    class Base(Decider[S2, I2, Created | Paid, Never]):
        type = "based"
        route = "order_id"

        def evolve(self, state: S2, event: Created | Paid) -> S2:
            return state

    class Concrete(Base[OrderState, Create]):
        def initial(self) -> OrderState:
            return OrderState()

        def decide(self, state: OrderState, input: Create, now: datetime) -> Decision[Created, Never, Create]:
            return Decision.event(Created(1))

    class Further(Concrete):
        type = "further"

    for decider in (Concrete(), Further()):
        family = Family.of(decider)
        assert family.inputs.classes == (Create,)
        assert family.states.write(OrderState("x")) == '["OrderState",{"status":"x"}]'.replace("OrderState", "State")


@pytest.mark.proves("M-01")
def test_classes_are_found_in_annotations_too() -> None:
    class Untyped(Decider):  # type: ignore[type-arg]
        type = "untyped"
        route = "order_id"

        def initial(self) -> OrderState:
            return OrderState()

        def evolve(self, state: OrderState, event: Event) -> OrderState:
            return state

        def decide(self, state: OrderState, input: Create, now: datetime) -> Decision[Event, Never, Never]:
            return Decision.event(Paid())

    class Silent(Untyped):
        def decide(self, state, input, now):  # type: ignore[no-untyped-def]
            return Decision.event(Paid())

    family = Family.of(Untyped())
    assert (family.inputs.classes, family.effects.classes) == ((Create,), ())
    with pytest.raises(InvalidOption, match=r"`decide` does not say what it takes.*Decider\[State, Input, Event"):
        Family.of(Silent())


# ---- snapshots


@dataclass
class Basket:
    lines: list[tuple[str, int]] = field(default_factory=list)
    extra: Any = None


class Opaque:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque)

    __hash__ = None  # type: ignore[assignment]


def states_of(type_: Any) -> Any:
    class Counting(Orders):
        pass

    Counting.__orig_bases__ = (Decider[type_, Create, Created, Never],)  # type: ignore[attr-defined]
    return Family.of(Counting()).states


@pytest.mark.parametrize(
    ("type_", "state"),
    [
        (OrderState, OrderState("paid")),
        (OrderState | Basket, Basket([("lamp", 2)])),
        (Basket, Basket([("lamp", 2)], {"a": [1]})),
        (int, 7),
        (dict[str, set[int]], {"a": {1, 2}}),
    ],
)
def test_a_state_is_kept_and_read_as_it_was(type_: Any, state: Any) -> None:
    states = states_of(type_)
    text = states.write(state)
    assert states.read(text) == state


@pytest.mark.parametrize(
    ("type_", "state"),
    [
        (Any, OrderState()),
        (Opaque, Opaque()),
        (Basket, Basket(extra=OrderState())),  # would come back as a dict
        (Basket, OrderState()),
        (OrderState, OrderState("x" * 2_000_000)),
        (Basket, Basket(extra=float("nan"))),
    ],
    ids=["of any type", "of no fields", "with a dict", "of another type", "too large", "not a number"],
)
def test_a_state_that_would_come_back_otherwise_is_not_kept(type_: Any, state: Any) -> None:
    assert states_of(type_).write(state) is None


def test_a_snapshot_is_believed_by_the_code_that_wrote_it() -> None:
    class Same(Orders):
        pass

    class Newer(Orders):
        __stepwell_version__ = 2

    class OtherEvolve(Orders):
        def evolve(self, state: OrderState, event: Event) -> OrderState:
            return OrderState(status=type(event).__name__)

    prints = [Family.of(decider).states.fingerprint for decider in (Orders(), Same(), Newer(), OtherEvolve())]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    prints = printed_by_each(FINGERPRINT)
    assert prints[0]
    assert len(set(prints)) == 1


FINGERPRINT = """
from stepwell.deciders.registry import Family
from tests.deciders.shop import Orders


class Strange(Orders):
    def evolve(self, state, event):
        return state if state.status in {"x", "y", "z"} else event


print(Family.of(Strange()).states.fingerprint)
"""
