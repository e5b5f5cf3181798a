"""An APP with a decider that tells of its states, has timers, and one effect."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from stepwell import Decider, Decision, EffectContext, PermanentError, StateInfo, Transition


@dataclass(frozen=True)
class Push:
    door: str
    force: int = 1


@dataclass(frozen=True)
class Close:
    door: str


@dataclass(frozen=True)
class Lock:
    door: str


@dataclass(frozen=True)
class Moved:
    to: str


@dataclass(frozen=True)
class Ring:
    door: str


@dataclass(frozen=True)
class Door:
    status: str = "closed"
    pushes: int = 0


Input = Push | Close | Lock
GRAPH = {
    "closed": [Transition("Push", "open", effects=["Ring"], timers=["close"]), Transition("Lock", "locked")],
    "open": [Transition("Close", "closed")],
    "locked": [],
}


class Doors(Decider[Door, Input, Moved, Ring]):
    type = "door"
    route = "door"
    observe = True

    def initial(self) -> Door:
        return Door()

    def evolve(self, state: Door, event: Moved) -> Door:
        return replace(state, status=event.to, pushes=state.pushes + (event.to == "open"))

    def decide(self, state: Door, input: Input, now: datetime) -> Decision[Moved, Ring, Input]:
        match input:
            case Push():
                opened = Decision.event(Moved("open")).with_effect(Ring(input.door))
                return opened.with_timer_after("10m", Close(input.door), key="close")
            case Close():
                return Decision.event(Moved("closed"))
            case Lock():
                return Decision.event(Moved("locked"))

    def is_terminal(self, state: Door) -> bool:
        return state.status == "locked"

    async def handle(self, effect: Ring, ctx: EffectContext) -> Input | None:
        if effect.door == "mute":
            raise PermanentError("it has no bell")
        return None

    def state_info(self, state: Door) -> StateInfo:
        return StateInfo(state.status, terminal=state.status == "locked")

    def transitions(self, state: Door) -> Sequence[Transition]:
        return GRAPH[state.status]

    def states(self) -> Sequence[Door]:
        return [Door(status) for status in GRAPH]
