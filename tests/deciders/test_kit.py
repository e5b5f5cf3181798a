"""`given(...).when(...).then(...)`: a decider tested by calling it, and what the kit finds wrong with one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Never

import pytest

from stepwell import Decider, Decision, InvalidName, InvalidOption, SerializationError, handler, workflow
from stepwell.testing import given
from tests.deciders.shop import Create, Created, Event, Expire, Expired, Ignored, Input, Orders, Paid, Pay, SendEmail
from tests.deciders.shop import State as OrderState

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
AN_HOUR_LATER = datetime(2026, 1, 1, 1, tzinfo=UTC)


@pytest.mark.proves("TU-02")
def test_the_events_that_were_give_the_state_and_the_input_gives_more() -> None:
    given(Orders()).when(Create("7", 1900)).then(Created(1900))
    given(Orders(), Created(1900)).when(Pay("7")).then(Paid()).then_state(lambda state: state.status == "paid")
    given(Orders(), Created(1900), Paid()).when(Pay("7")).then(Ignored("Pay"))


@pytest.mark.proves("TU-02")
def test_effects_and_timers_are_seen() -> None:
    created = given(Orders()).when(Create("7", 1900))
    created.then_effects(SendEmail("7")).then_timers(payment="1h").then_cancelled()
    created.when(Pay("7")).then_effects().then_timers().then_cancelled("payment")


@pytest.mark.proves("TU-02")
def test_a_spec_can_be_gone_on_from_twice() -> None:
    created = given(Orders()).when(Create("7", 1900))
    created.when(Pay("7")).then(Paid())
    created.when(Expire("7")).then(Expired(BEGINNING))
    created.then(Created(1900))


@pytest.mark.proves("TU-02", "TM-12")
def test_time_is_said_and_passes() -> None:
    created = given(Orders()).when(Create("7", 1900), now=datetime(2026, 1, 1, tzinfo=UTC))
    created.after("59m").then().then_timers(payment="1m")
    created.after("2h").then(Expired(AN_HOUR_LATER)).then_timers()
    created.when(Expire("7"), now=AN_HOUR_LATER).then(Expired(AN_HOUR_LATER))
    with pytest.raises(InvalidOption, match="time zone"):
        created.when(Pay("7"), now=datetime(2026, 1, 1))  # noqa: DTZ001


@pytest.mark.proves("M-13", "TM-13")
def test_an_instance_that_has_ended_decides_nothing() -> None:
    ended = given(Orders(), Created(1), Expired(BEGINNING)).when(Pay("7"))
    ended.then().then_effects().then_timers()
    with pytest.raises(AssertionError, match=r"when Pay\(order_id='7'\)\n    \(the instance has ended and"):
        ended.then(Paid())


# ---- what a failure says


def told(fails: Callable[[], object]) -> str:
    with pytest.raises(AssertionError) as failed:
        fails()
    return str(failed.value)


@pytest.mark.proves("TU-02")
def test_a_failure_tells_the_whole_story() -> None:
    spec = given(Orders(), Created(1900), Paid()).when(Pay("7"))
    assert told(lambda: spec.then(Paid())) == (
        "Orders\n"
        "given\n"
        "    Created(cents=1900)\n"
        "    Paid()\n"
        "when Pay(order_id='7')\n"
        "then expected events\n"
        "    Paid()\n"
        "but there are\n"
        "    Ignored(why='Pay')\n"
        "and the state is\n"
        "    State(status='paid')"
    )


@pytest.mark.proves("TU-02")
def test_each_part_is_compared_exactly() -> None:
    created = given(Orders()).when(Create("7", 1900))
    assert "expected events\n    (none)\nbut there are\n    Created(cents=1900)" in told(created.then)
    assert "expected effects\n    (none)\nbut" in told(created.then_effects)
    assert "expected effects\n    SendEmail(to='8')\nbut" in told(lambda: created.then_effects(SendEmail("8")))
    two = told(lambda: created.then_effects(SendEmail("7"), SendEmail("7")))
    assert (
        "expected effects\n    SendEmail(to='7')\n    SendEmail(to='7')\nbut there are\n    SendEmail(to='7')\n" in two
    )
    late = told(lambda: created.then_timers(payment="2h"))
    assert "PendingTimer(key='payment', after=datetime.timedelta(seconds=3600))" in late
    assert "expected cancelled timers\n    'payment'" in told(lambda: created.then_cancelled("payment"))
    assert "the state is not as expected:\n    State(status='created')" in told(
        lambda: created.then_state(lambda state: state.status == "paid")
    )
    passed = told(lambda: created.after("2h").then())
    assert "after 2h\nthe timer delivers Expire(order_id='7')\nthen expected" in passed


def test_nothing_happened_before_something_was_asked() -> None:
    with pytest.raises(InvalidOption, match=r"call `\.when\(input\)` first"):
        given(Orders(), Created(1)).then()


@pytest.mark.proves("TU-02")
def test_what_an_engine_refuses_is_refused_here() -> None:
    wrong: Any = "nineteen"
    with pytest.raises(SerializationError, match="event Created of order"):
        given(Orders(), Created(wrong))
    with pytest.raises(SerializationError, match="input Create of order"):
        given(Orders()).when(Create("7", wrong))
    with pytest.raises(InvalidName, match="instance"):
        given(Orders()).when(Create("", 1))
    with pytest.raises(InvalidOption, match="no input of order"):
        given(Orders()).when(Paid())  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="no event of order"):
        given(Orders()).when(Pay("7")).then(Pay("7"))  # type: ignore[arg-type]


# ---- all that a decision may hold


@workflow(name="kit.ship")
async def ship(order: str) -> None: ...


@handler("kit.letters")
async def letters(address: str) -> None: ...


class Posting(Orders):
    def decide(self, state: OrderState, input: Input, now: datetime) -> Decision[Event, SendEmail, Input]:
        decision = Decision.event(Created(1)).with_trigger(ship.trigger("7")).with_message(letters, "ada")
        decision = decision.with_message("other", 1)
        later = decision.with_timer_after("1h", Pay("7")).with_timer_after("2h", Pay("7"))
        return later.with_timer_at(AN_HOUR_LATER, Pay("7"), key="k")


@pytest.mark.proves("TU-02", "TM-15")
def test_triggers_messages_and_timers_without_a_key() -> None:
    posted = given(Posting()).when(Create("7", 1))
    posted.then_triggers(ship.trigger("7")).then_messages((letters, "ada"), ("other", 1))
    posted.then_timers("1h", "2h", k="1h")
    assert "Trigger(workflow='kit.ship'" in told(posted.then_triggers)
    assert "Outgoing(queue=<handler letters" in told(posted.then_messages)
    posted.when(Create("7", 1)).then_timers("1h", "1h", "2h", "2h", k="1h")


@pytest.mark.proves("TM-11")
def test_a_timer_may_set_itself_again() -> None:
    class Recurring(Orders):
        def decide(self, state: OrderState, input: Input, now: datetime) -> Decision[Event, SendEmail, Input]:
            span = 0 if isinstance(input, Create) and not input.cents else 3600
            return Decision.event(Ignored(str(now))).with_timer_after(span, input, key="again")

    ticked = given(Recurring()).when(Create("7", 1)).after("3h")
    ticked.then(*(Ignored(f"2026-01-01 0{hour}:00:00+00:00") for hour in (1, 2, 3))).then_timers(again="1h")
    assert "over 1000 timers; each sets another?" in told(lambda: given(Recurring()).when(Create("7", 0)).after("1h"))


# ---- deciders that are not pure


@dataclass
class Basket:
    lines: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Add:
    basket: str
    line: int


@dataclass(frozen=True)
class Added:
    line: int


class Baskets(Decider[Basket, Add, Added, Never]):
    type = "basket"
    route = "basket"

    def initial(self) -> Basket:
        return Basket()

    def evolve(self, state: Basket, event: Added) -> Basket:
        return Basket([*state.lines, event.line])

    def decide(self, state: Basket, input: Add, now: datetime) -> Decision[Added, Never, Add]:
        return Decision.event(Added(input.line))


class ChangesInEvolve(Baskets):
    def evolve(self, state: Basket, event: Added) -> Basket:
        state.lines.append(event.line)
        return state


class ChangesInDecide(Baskets):
    def decide(self, state: Basket, input: Add, now: datetime) -> Decision[Added, Never, Add]:
        state.lines.append(input.line)
        return Decision.event(Added(input.line))


class CountsInDecide(Baskets):
    numbers = itertools.count()

    def decide(self, state: Basket, input: Add, now: datetime) -> Decision[Added, Never, Add]:
        return Decision.event(Added(next(self.numbers)))


class CountsInEvolve(Baskets):
    numbers = itertools.count()

    def evolve(self, state: Basket, event: Added) -> Basket:
        return Basket([*state.lines, next(self.numbers)])


@pytest.mark.proves("M-20")
@pytest.mark.parametrize(
    ("decider", "complaint"),
    [
        (ChangesInEvolve(), "`evolve` changed the state it was given"),
        (ChangesInDecide(), "`decide` changed the state it was given"),
        (CountsInDecide(), "`decide` is not pure: asked twice it gave two answers"),
        (CountsInEvolve(), "`evolve` is not pure"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_decider_that_is_not_pure_is_found_out(decider: Baskets, complaint: str) -> None:
    assert complaint in told(lambda: given(decider).when(Add("b", 1)))
    given(Baskets(), Added(1)).when(Add("b", 2)).then(Added(2)).then_state(lambda state: state.lines == [1, 2])


class Uncompared(Baskets):
    """Its state and events have no `==` of their own."""

    def evolve(self, state: Any, event: Any) -> Any:
        return object()


@pytest.mark.proves("M-20")
def test_what_cannot_be_compared_is_no_complaint() -> None:
    given(Uncompared(), Added(1)).when(Add("b", 2)).then(Added(2))
