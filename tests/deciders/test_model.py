"""Decisions and deciders as values: what they refuse, and how they name their instances."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Never
from uuid import UUID

import pytest

from stepwell import (
    Decider,
    DeciderNotFound,
    Decision,
    DuplicateDecider,
    EffectContext,
    InvalidName,
    InvalidOption,
    Receipt,
    TimerCancelled,
    UnknownWorkflowType,
    handler,
    workflow,
)
from stepwell.deciders.registry import Family, Registry
from stepwell.decision import Outgoing, Timer
from tests.deciders.shop import Create, Created, Event, Expire, Expired, Ignored, Input, Orders, Paid, Pay, SendEmail
from tests.deciders.shop import State as OrderState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = 3_600_000_000


@workflow(name="model.ship")
async def ship(order_id: str) -> None: ...


@handler("model.mail")
async def mail(address: str) -> None: ...


@pytest.mark.proves("M-08")
def test_a_decision_is_built_step_by_step() -> None:
    first = Decision.event(Created(1), Paid())
    whole = (
        first.and_event(Ignored("x"))
        .with_effect(SendEmail("a"), SendEmail("b"))
        .with_timer_after("1h", Expire("7"), key="payment")
        .with_timer_at(NOW, Pay("7"))
        .cancel_timer("reminder")
        .with_trigger(ship.trigger("7"))
        .with_message("letters", {"to": "ada"})
        .with_message(mail, "ada")
    )
    assert whole.events == (Created(1), Paid(), Ignored("x"))
    assert whole.effects == (SendEmail("a"), SendEmail("b"))
    assert [timer.due(5) for timer in whole.timers] == [HOUR + 5, 1_767_225_600_000_000]
    assert whole.cancelled == ("reminder",)
    assert [one.workflow for one in whole.triggers] == ["model.ship"]
    assert whole.messages == (Outgoing("letters", {"to": "ada"}), Outgoing(mail, "ada"))
    assert first == Decision((Created(1), Paid())), "the first one is what it was"


@pytest.mark.proves("M-07")
def test_a_decision_has_an_event() -> None:
    with pytest.raises(InvalidOption, match="at least one event"):
        Decision.event()
    with pytest.raises(InvalidOption, match="at least one event"):
        Decision(())


@pytest.mark.proves("M-08")
def test_a_decision_is_a_value() -> None:
    assert Decision.event(Paid()) == Decision.event(Paid())
    with pytest.raises(FrozenInstanceError):
        Decision.event(Paid()).events = ()  # type: ignore[misc]


@pytest.mark.proves("TM-07", "TM-15")
def test_a_key_stands_for_one_timer() -> None:
    decision: Decision[Paid, Never, Input] = Decision.event(Paid())
    for span in ("1h", "2h"):
        decision = decision.with_timer_after(span, Expire("7"), key="payment").with_timer_after(span, Pay("7"))
    assert [(timer.key, timer.after) for timer in decision.timers] == [
        (None, HOUR),
        ("payment", 2 * HOUR),
        (None, 2 * HOUR),
    ]


@pytest.mark.proves("TM-08")
def test_the_last_word_about_a_key_counts() -> None:
    base = Decision.event(Paid())
    set_last = base.cancel_timer("k").with_timer_after(1, Expire("7"), key="k")
    assert (set_last.cancelled, set_last.timers) == (("k",), (Timer(Expire("7"), "k", after=1_000_000),))
    cancelled_last = base.with_timer_after(1, Expire("7"), key="k").cancel_timer("k").cancel_timer("k")
    assert (cancelled_last.cancelled, cancelled_last.timers) == (("k",), ())


def test_what_could_not_be_done_is_refused_at_once() -> None:
    decision = Decision.event(Paid())
    with pytest.raises(InvalidOption, match="time zone"):
        decision.with_timer_at(datetime(2026, 1, 1), Pay("7"))  # noqa: DTZ001
    with pytest.raises(InvalidOption, match="after cannot be"):
        decision.with_timer_after("soon", Pay("7"))
    with pytest.raises(InvalidName, match="timer key"):
        decision.cancel_timer("")
    with pytest.raises(InvalidOption, match=r"workflow\.trigger"):
        decision.with_trigger(ship.trigger("7").wait())  # type: ignore[arg-type]
    with pytest.raises(InvalidName, match="cannot name a queue"):
        decision.with_message("no such name", 1)


# ---- which instance an input is for


@pytest.mark.proves("M-03", "M-27")
def test_an_input_names_its_instance_by_the_route() -> None:
    family = Family.of(Orders())
    assert family.identify(Create("123", 1)) == "123"
    with pytest.raises(InvalidName, match=r"instance \(Create.order_id\)"):
        family.identify(Create("", 1))
    with pytest.raises(InvalidOption, match="no input of order, which declares Create, Pay, Expire"):
        family.identify(Paid())


@dataclass(frozen=True)
class Tick:
    sensor: int


@dataclass(frozen=True)
class Rename:
    __stepwell_route__: ClassVar[str] = "which"
    __stepwell_key__: ClassVar[str] = "request"
    which: UUID
    request: str | None = None


@dataclass(frozen=True)
class Ticked:
    times: int = 1


class Sensors(Decider[int, Tick | Rename, Ticked, Never]):
    type = "sensor"
    route = "sensor"

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: Ticked) -> int:
        return state + event.times

    def decide(self, state: int, input: Tick | Rename, now: datetime) -> Decision[Ticked, Never, Tick | Rename]:
        return Decision.event(Ticked())


@pytest.mark.proves("M-27", "II-01")
def test_an_input_class_may_name_its_own_fields() -> None:
    family = Family.of(Sensors())
    number = UUID(int=7)
    assert family.identify(Tick(7)) == "7"
    assert family.identify(Rename(number)) == str(number)
    assert family.key_of(Tick(7)) is None
    assert family.key_of(Rename(number)) is None
    assert family.key_of(Rename(number, "click-1")) == "click-1"
    with pytest.raises(InvalidName, match=r"input \(Rename.request\)"):
        family.key_of(Rename(number, ""))


@pytest.mark.proves("M-03")
def test_identify_and_key_of_may_be_written_by_hand() -> None:
    class ByHand(Sensors):
        route = None  # type: ignore[assignment]

        def identify(self, input: Tick | Rename) -> str:
            return "the one"

        def key_of(self, input: Tick | Rename) -> str | None:
            return "" if isinstance(input, Tick) else None

    family = Family.of(ByHand())
    assert family.identify(Tick(7)) == "the one"
    with pytest.raises(InvalidName, match="input of sensor"):
        family.key_of(Tick(7))


# ---- what is wrong is found when it is registered


def changed(**attributes: Any) -> Decider[Any, Any, Any, Any]:
    made: Decider[Any, Any, Any, Any] = type("Changed", (Orders,), attributes)()
    return made


@pytest.mark.proves("M-01", "M-27")
@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({"type": "an order"}, "cannot name a decider"),
        ({"type": ""}, 'a stable name for its instances: `type = "order"`'),
        ({"route": None}, "name the field that holds the id, or override `identify`"),
        ({"route": "id"}, "Create has no field of this name"),
    ],
)
def test_a_mistake_is_found_when_it_is_registered(attributes: dict[str, Any], told: str) -> None:
    with pytest.raises((InvalidOption, InvalidName), match=told):
        Registry().register(changed(**attributes))


def test_a_class_is_not_its_instance() -> None:
    with pytest.raises(InvalidOption, match=r"`Orders\(\)`"):
        Family.of(Orders)  # type: ignore[arg-type]


@pytest.mark.proves("M-24")
def test_effects_need_a_handler_and_their_absence_none() -> None:
    with pytest.raises(InvalidOption, match="needs `async def handle`; write `Never`"):
        Family.of(changed(handle=Decider.handle))
    assert Family.of(Sensors()).effects.classes == ()


@pytest.mark.proves("M-17")
def test_a_type_and_an_input_have_one_decider() -> None:
    registry = Registry()
    family = registry.register(Orders())
    with pytest.raises(DuplicateDecider, match=r"the type 'order' belongs to .*Orders and is to belong to .*Orders"):
        registry.register(Orders())
    with pytest.raises(DuplicateDecider, match=r"the input 'Create' .*make a class for each"):
        registry.register(changed(type="purchase"))
    assert list(registry) == [family], "the refused ones left nothing behind"
    registry.register(Sensors())
    assert registry.of_input(Pay("7")) is registry.of_type("order") is registry.of_decider(Orders) is family
    assert len(registry) == 2


@pytest.mark.proves("M-15")
def test_an_unknown_type_says_which_there_are() -> None:
    registry = Registry()
    with pytest.raises(DeciderNotFound, match="'order' is known here, there is none"):
        registry.of_type("order")
    registry.register(Sensors())
    with pytest.raises(UnknownWorkflowType, match="there are sensor"):
        registry.of_decider(Orders)
    with pytest.raises(InvalidOption, match="no registered decider has inputs of this class; there are Tick, Rename"):
        registry.of_input(Pay("7"))


# ---- deciding


@pytest.mark.proves("M-01")
def test_decide_may_leave_out_the_time() -> None:
    class Timeless(Sensors):
        def decide(self, state: int, input: Tick | Rename) -> Decision[Ticked, Never, Never]:  # type: ignore[override]
            return Decision.event(Ticked(5))

    assert Family.of(Timeless()).decide(0, Tick(1), NOW) == Decision.event(Ticked(5))
    assert Family.of(Orders()).decide(OrderState("created"), Expire("7"), NOW) == Decision.event(Expired(NOW))


@pytest.mark.proves("M-07")
def test_an_answer_that_is_no_decision_is_refused() -> None:
    def decide(self: object, state: object, input: object, now: object) -> None:
        return None

    with pytest.raises(InvalidOption, match=r"`Changed.decide` answers a `Decision`"):
        Family.of(changed(decide=decide)).decide(OrderState(), Pay("7"), NOW)


@pytest.mark.proves("M-02", "M-29")
def test_a_timer_comes_back_to_its_own_instance() -> None:
    family = Family.of(Orders())
    own: Decision[Event, SendEmail, Input] = Decision.event(Paid()).with_timer_after(1, Expire("7"))
    assert [timer.due for timer in family.written(own, "7", 100).timers] == [1_000_100]
    with pytest.raises(InvalidOption, match="the instance that set it, order 8, not to 7"):
        family.written(own, "8", 100)


@pytest.mark.proves("TM-09", "M-21")
def test_events_of_the_engine_are_not_for_deciders() -> None:
    family = Family.of(Orders())
    written = family.events.write(TimerCancelled("payment"))
    assert (written.type, written.text) == ("stepwell.TimerCancelled", '{"key":"payment"}')
    assert [*family.events.read("stepwell.TimerCancelled", 1, written.text)] == [TimerCancelled("payment")]
    assert family.evolved(OrderState(), [Created(1), TimerCancelled("payment"), Paid()]) == OrderState("paid")
    with pytest.raises(InvalidOption, match="the engine writes this one itself"):
        family.written(Decision.event(TimerCancelled("payment")), "7", 0)


@pytest.mark.proves("M-24")
async def test_what_a_decider_leaves_out_has_a_default() -> None:
    sensors = Sensors()
    assert not sensors.is_terminal(5)
    assert Orders().on_dead_letter(SendEmail("a"), "gone") is None
    with pytest.raises(NotImplementedError, match="Sensors has effects and no `handle`"):
        await sensors.handle(SendEmail("a"), EffectContext("k", 1, "sensor", "7", NOW, 3))  # type: ignore[arg-type]
    assert Receipt("completed") == Receipt("completed", None, None)
