"""The graph of upcasters, and the version that stands in a value: pure."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
import pydantic
import pytest

from stepwell import InvalidOption, PayloadTooLarge, UnknownRecord, UpcastFailed, handler, step, upcast, workflow
from stepwell.deciders.type_names import Kinds, classes_of
from stepwell.values.arguments import Arguments
from stepwell.values.codec import encode
from stepwell.values.stamp import hash_with_version, read_value, write_ordered, write_value, write_values
from stepwell.values.versions import are_same_payload, may_be_equal, stamped_like


@dataclass(frozen=True)
class Placed:
    """Version 1 had a price in units, version 2 had no currency."""

    __stepwell_version__: ClassVar[int] = 3
    cents: int
    currency: str


@upcast(Placed, 1)
def _(old: dict[str, Any]) -> dict[str, Any]:
    return {"cents": old["price"] * 100}


@upcast(Placed, 2)
def _(old: dict[str, Any]) -> dict[str, Any]:
    return {**old, "currency": "EUR"}


class Struct(msgspec.Struct, frozen=True):
    __stepwell_version__ = 2
    cents: int


class Model(pydantic.BaseModel, frozen=True):
    __stepwell_version__: ClassVar[int] = 2
    cents: int


for kind in (Struct, Model):
    upcast(kind, 1)(lambda old: {"cents": old["price"] * 100})


T = TypeVar("T")


@dataclass(frozen=True)
class Box(Generic[T]):
    __stepwell_version__: ClassVar[int] = 2
    held: T


upcast(Box, 1)(lambda old: {"held": old["kept"]})


@dataclass(frozen=True)
class Paid:
    cents: int


@dataclass(frozen=True)
class Shipped:
    by: str


@dataclass(frozen=True)
class Plain:
    price: int


@upcast("OrderCreated", 1, decider="order")
def _(old: dict[str, Any]) -> dict[str, Any]:
    return {"price": old["cost"]}


@upcast("OrderCreated", 2, to=Placed)
def _(old: dict[str, Any]) -> dict[str, Any]:
    return old


@upcast("PaidAndShipped", 1, to=(Paid, Shipped))
def _(old: dict[str, Any]) -> list[tuple[type, Any]]:
    return [(Paid, {"cents": old["cents"]}), (Shipped, {"by": old["by"]})] if old["by"] else []


@upcast("Noise", 1, to=(), decider="order")
def _(old: Any) -> list[Any]:
    return []


def events(*classes: type, of: str = "order", part: str = "event") -> Kinds:
    return Kinds(part, of, classes)


@pytest.mark.proves("U-02", "U-03")
@pytest.mark.parametrize(
    ("name", "version", "text", "read"),
    [
        ("Placed", 1, '{"price":3}', [Placed(300, "EUR")]),
        ("Placed", 2, '{"cents":7}', [Placed(7, "EUR")]),
        ("Placed", 3, '{"cents":7,"currency":"CHF"}', [Placed(7, "CHF")]),
        ("OrderCreated", 1, '{"cost":2}', [Placed(200, "EUR")]),
        ("OrderCreated", 2, '{"price":2}', [Placed(200, "EUR")]),
        ("PaidAndShipped", 1, '{"cents":5,"by":"bike"}', [Paid(5), Shipped("bike")]),
        ("PaidAndShipped", 1, '{"cents":5,"by":""}', []),
        ("Noise", 1, "{}", []),
    ],
)
def test_a_chain_leads_from_every_stored_version_to_the_classes_of_today(
    name: str, version: int, text: str, read: list[Any]
) -> None:
    assert [*events(Placed, Paid, Shipped).read(name, version, text)] == read


@pytest.mark.proves("U-02")
@pytest.mark.parametrize("cls", [Struct, Model])
def test_structs_and_models_have_versions_too(cls: Any) -> None:
    assert [*events(cls).read(cls.__name__, 1, '{"price":3}')] == [cls(cents=300)]
    assert write_value(cls(cents=3)) == '{"$sw":{"v":2},"d":{"cents":3}}'
    assert read_value('{"price":3}', cls) == cls(cents=300)


@pytest.mark.proves("U-02")
def test_the_stored_names_that_lead_to_a_class_are_known() -> None:
    routes = events(Placed, Paid, Shipped).routes
    assert routes.names_of(Placed) == ("Placed", "OrderCreated")
    assert routes.names_of(Paid) == ("Paid", "PaidAndShipped")
    assert routes.newest == {"Placed": 3, "OrderCreated": 2, "Paid": 1, "Shipped": 1, "PaidAndShipped": 1, "Noise": 1}


@pytest.mark.proves("U-04")
@pytest.mark.parametrize(
    ("name", "version", "told"),
    [
        ("Placed", 4, "event 7 of order 1 refused.* stored as Placed, version 4, and this code has version 3"),
        ("OrderCreated", 3, "stored as OrderCreated, version 3, and this code has version 2"),
        ("Noise", 2, "stored as Noise, version 2, and this code has version 1"),
        ("Gone", 1, "stored as Gone, version 1, and order declares Placed, Paid, Shipped"),
    ],
)
def test_what_is_newer_or_unknown_says_what_it_is_and_what_is_known(name: str, version: int, told: str) -> None:
    with pytest.raises(UnknownRecord, match=told) as refused:
        events(Placed, Paid, Shipped).read(name, version, "{}", what="event 7 of order 1")
    assert (refused.value.name, refused.value.version) == (name, version)


def test_a_drop_is_of_one_decider() -> None:
    with pytest.raises(UnknownRecord, match="stored as Noise, version 1, and parcel declares Paid"):
        events(Paid, Shipped, of="parcel").read("Noise", 1, "{}")


@pytest.mark.proves("U-04")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"cost":2}', "event 3 cannot be read: the upcaster of Placed 1 failed: it raised KeyError: 'price'"),
        ('{"price":"x"}', r"of Placed 1 failed: what it returned does not fit Placed, version 3, at `\$\.cents`"),
    ],
)
def test_an_upcaster_that_fails_says_which(text: str, told: str) -> None:
    with pytest.raises(UpcastFailed, match=told) as failed:
        events(Placed, Paid, Shipped).read("Placed", 1, text, what="event 3")
    assert (failed.value.what, failed.value.name, failed.value.version) == ("event 3", "Placed", 1)


def test_a_split_answers_its_own_classes() -> None:
    @dataclass
    class Half:
        pass

    upcast("Whole", 1, to=(Half,))(lambda _: [(Paid, {})])
    with pytest.raises(UpcastFailed, match=r"it answers a list of pairs, a class of \(Half\) and its JSON, not"):
        events(Half).read("Whole", 1, "{}")


def made(version: int, name: str = "Made") -> Any:
    return dataclass(type(name, (), {"__stepwell_version__": version, "__module__": __name__}))


def linked(version: int, *links: int) -> Any:
    cls = made(version)
    for number in links:
        upcast(cls, number)(lambda old: old)
    return cls


def gap() -> Kinds:
    return events(linked(3, 1))


def past() -> Kinds:
    return events(linked(2, 1, 2))


def two_ways() -> Kinds:
    cls = linked(2, 1)
    upcast(cls, 1)(lambda old: old)
    return events(cls)


def two_names() -> Kinds:
    first, second = made(1, "First"), made(1, "Second")
    upcast("Torn", 1, to=first)(lambda old: old)
    upcast("Torn", 1, to=second)(lambda old: old)
    return events(first, second)


def circle() -> Kinds:
    first, second = made(2, "First"), made(2, "Second")
    upcast(first, 1, to=second)(lambda old: old)
    upcast(second, 1, to=first)(lambda old: old)
    return events(first, second)


def nowhere() -> Kinds:
    first, second = made(1, "First"), made(1, "Second")
    upcast("Split", 1, to=(first, second))(lambda old: old)
    return events(first)


def half_way() -> Kinds:
    first = made(1, "First")
    upcast("Stale", 1, to=first)(lambda old: old)
    upcast("Stale", 2, decider="order")(lambda old: old)
    return events(first)


def gap_of_a_name() -> Kinds:
    first = made(1, "First")
    upcast("Skipped", 2, to=first)(lambda old: old)
    return events(first)


def split_effect() -> Kinds:
    return events(Paid, Shipped, part="effect")


@pytest.mark.proves("U-04")
@pytest.mark.parametrize(
    ("build", "told"),
    [
        (gap, "__stepwell_version__ of Made cannot be 3: an upcaster of Made 2 is missing"),
        (past, "upcaster of Made 2 .* it leads past the class, which is at version 2"),
        (two_ways, r"upcaster of Made 1 .*test_upcasters:\d+ is an upcaster of it too"),
        (two_names, r"upcaster of Torn 1 .*test_upcasters:\d+ is an upcaster of it too"),
        (circle, "leads in a circle: (First 1 to Second 1 to First 1|Second 1 to First 1 to Second 1)"),
        (nowhere, "upcaster of Split 1 .* it leads nowhere: order declares no event Second"),
        (half_way, "upcaster of Stale 2 .* it leads nowhere: Stale has no class here, and no upcaster of 3"),
        (gap_of_a_name, "of Skipped cannot be 2: an upcaster of Skipped 1 is missing"),
        (split_effect, "upcaster of PaidAndShipped 1 .* only an event can be split, and this is an effect"),
    ],
)
def test_a_wrong_graph_is_refused_when_the_decider_is_registered(build: Callable[[], Kinds], told: str) -> None:
    with pytest.raises(InvalidOption, match=told):
        build()


def test_an_upcaster_says_what_it_leads_to() -> None:
    for options in ({}, {"to": ()}, {"to": Paid, "decider": "order"}):
        with pytest.raises(InvalidOption, match="an upcaster that leads to no class says whose name it is"):
            upcast("Old", 1, **options)
    with pytest.raises(InvalidOption, match="it is a class, a tuple of classes, or"):
        upcast("Old", 1, to="Paid")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="version cannot be 0"):
        upcast(Paid, 0)


@pytest.mark.proves("U-01", "U-07")
def test_a_version_stands_in_a_value_only_if_it_is_not_1() -> None:
    marked = '{"$sw":{"v":3},"d":{"cents":1,"currency":"EUR"}}'
    assert write_value(Placed(1, "EUR")) == write_ordered(Placed(1, "EUR")) == marked
    assert write_values([Placed(1, "EUR"), Plain(1)]) == [marked, '{"price":1}']
    for value in (Plain(1), {"a": 1}, [1], 1, "a", None, [Plain(1)]):
        assert write_value(value) == write_values([value])[0] == encode(value)
    assert write_value(None, Placed | None) == "null"
    assert read_value("null", Placed | None) is None


@pytest.mark.proves("U-07")
def test_a_value_is_read_as_the_class_of_today() -> None:
    assert read_value('{"price":3}', Placed) == Placed(300, "EUR")
    assert read_value('{"$sw":{"v":2},"d":{"cents":7}}', Placed | None) == Placed(7, "EUR")
    assert read_value(b'{"$sw":{"v":3},"d":{"cents":7,"currency":"CHF"}}', Placed) == Placed(7, "CHF")
    assert read_value('{"$sw":{"v":3},"d":{"cents":7}}') == {"cents": 7}, "no class is asked for"
    assert read_value('{"$sw":{"v":3},"d":{"cents":7}}', dict[str, int]) == {"cents": 7}
    for text, cls, told in (
        (
            '{"$sw":{"v":4},"d":{}}',
            Placed,
            "message refused.* stored as Placed, version 4, and this code has version 3",
        ),
        ('{"$sw":{"v":2},"d":{}}', Plain, "stored as Plain, version 2, and this code has version 1"),
        ("{}", made(2), "an upcaster of Made 1 is missing here"),
    ):
        with pytest.raises(UnknownRecord, match=told):
            read_value(text, cls, what="message")


def test_a_generic_class_is_read_with_its_argument() -> None:
    text = write_value(Box([1]), Box[list[int]])
    assert text == '{"$sw":{"v":2},"d":{"held":[1]}}'
    assert read_value('{"kept":[1]}', Box[list[int]]) == Box([1])
    with pytest.raises(UpcastFailed, match=r"does not fit Box, version 2, at `\$\.held\[0\]`"):
        read_value('{"kept":["a"]}', Box[list[int]])


def test_what_is_given_as_plain_json_has_the_version_of_its_place() -> None:
    assert write_value({"cents": 1, "currency": "EUR"}, Placed).startswith('{"$sw":{"v":3},"d":')
    assert write_values([{"cents": 1}], Placed) == ['{"$sw":{"v":3},"d":{"cents":1}}']


@pytest.mark.parametrize("value", [{"$sw": {"v": 2}, "d": 1}, {"$sw": 1}, {"$sw": {"v": 2}}])
def test_an_object_of_the_user_that_looks_like_a_version_comes_back_as_it_is(value: Any) -> None:
    assert read_value(write_value(value)) == value
    assert read_value(write_values([value])[0]) == value

    def function(first: Any, second: Any = None) -> None:
        pass

    arguments = Arguments.of(function, "step")
    assert arguments.decode(arguments.encode((value, 1), {})) == {"first": value, "second": 1}


def test_an_object_that_an_earlier_release_has_stored_is_no_version() -> None:
    assert read_value('{"$sw":{"v":2},"d":1,"e":2}') == {"$sw": {"v": 2}, "d": 1, "e": 2}


def test_a_version_counts_against_the_limit() -> None:
    write_value(Struct(1), limit=40)
    with pytest.raises(PayloadTooLarge):
        write_value(Struct(1), limit=20)


@pytest.mark.proves("U-07")
def test_each_of_several_arguments_has_its_own_version() -> None:
    def function(order: Placed, note: str, by: Struct | None = None) -> None:
        pass

    arguments = Arguments.of(function, "workflow")
    text = arguments.encode((Placed(1, "EUR"), "x", Struct(2)), {})
    assert text == (
        '{"order":{"$sw":{"v":3},"d":{"cents":1,"currency":"EUR"}},"note":"x","by":{"$sw":{"v":2},"d":{"cents":2}}}'
    )
    assert arguments.decode(text) == {"order": Placed(1, "EUR"), "note": "x", "by": Struct(2)}
    old = '{"note":"x","order":{"price":2},"by":{"price":1}}'
    assert arguments.decode(old) == {"order": Placed(200, "EUR"), "note": "x", "by": Struct(100)}
    assert arguments.decode('{"order":{"$sw":{"v":2},"d":{"cents":2}},"note":"x"}') == {
        "order": Placed(2, "EUR"),
        "note": "x",
    }


def test_an_argument_that_was_the_only_one_keeps_its_version() -> None:
    def function(order: Placed, note: str = "") -> None:
        pass

    arguments = Arguments.of(function, "workflow")
    assert arguments.decode('{"$sw":{"v":2},"d":{"cents":2}}') == {"order": Placed(2, "EUR")}


def test_the_only_argument_may_be_given_by_name() -> None:
    def function(order: Placed) -> None:
        pass

    assert Arguments.of(function, "workflow").decode('{"order":{"price":2}}') == {"order": Placed(200, "EUR")}


@pytest.mark.proves("U-07")
@pytest.mark.parametrize(
    ("recorded", "asked", "same"),
    [
        ('{"price":1}', '{"$sw":{"v":2},"d":{"cents":100}}', True),
        ('{"$sw":{"v":2},"d":1}', '{"$sw":{"v":2},"d":2}', False),
        ('{"a":{"p":1},"b":1}', '{"a":{"$sw":{"v":2},"d":{}},"b":1}', True),
        ('{"a":{"p":1},"b":1}', '{"a":{"$sw":{"v":2},"d":{}},"b":2}', False),
        ('[{"p":1},{"p":2}]', '[{"$sw":{"v":2},"d":{}},{"$sw":{"v":2},"d":{}}]', True),
        ('{"a":1}', '{"a":2}', False),
        (None, '{"$sw":{"v":2},"d":1}', False),
    ],
)
def test_arguments_are_compared_with_those_of_their_own_version(recorded: str | None, asked: str, same: bool) -> None:
    assert may_be_equal(recorded, asked) is same


@pytest.mark.proves("U-07")
def test_a_payload_is_compared_with_those_of_its_own_version() -> None:
    one, two = hash_with_version("ab", '{"a":1}'), hash_with_version("cd", '{"$sw":{"v":2},"d":1}')
    assert (one, two) == ("ab", "2:cd")
    assert hash_with_version("ef", '{"a":{"$sw":{"v":3},"d":1},"b":2}') == "a=3:ef"
    assert are_same_payload(one, two)
    assert are_same_payload(two, two)
    assert not are_same_payload(two, "2:ef")
    assert not are_same_payload(one, "cd")
    assert not are_same_payload(one, None)


def test_an_edited_output_keeps_the_version_of_the_one_that_it_replaces() -> None:
    assert stamped_like("1", '{"$sw":{"v":2},"d":0}') == '{"$sw":{"v":2},"d":1}'
    assert stamped_like('{"$sw":{"v":3},"d":1}', '{"$sw":{"v":2},"d":0}') == '{"$sw":{"v":3},"d":1}'
    assert stamped_like("1", "0") == "1"


class One(msgspec.Struct, tag=True):
    __stepwell_version__ = 2


class Two(msgspec.Struct, tag=True):
    pass


@dataclass
class Holds:
    orders: list[Placed] = field(default_factory=list)


@pytest.mark.proves("U-04")
@pytest.mark.parametrize("type_", [list[Placed], dict[str, Placed | None], Holds, One | Two])
def test_a_version_that_would_never_be_read_is_refused(type_: Any) -> None:
    async def takes(value: Any) -> None:
        pass

    async def returns() -> Any:
        pass

    takes.__annotations__["value"] = returns.__annotations__["return"] = type_
    for declare in (handler("q"), step, workflow):
        with pytest.raises(InvalidOption, match=r"only the outermost value has a version|give the class a place"):
            declare(takes)
    with pytest.raises(InvalidOption, match=r"only the outermost value has a version|give the class a place"):
        step(returns)
    if type_ is Holds:
        with pytest.raises(InvalidOption, match="it is inside of event Holds, and only the outermost value"):
            classes_of(Holds, __name__, "event")
