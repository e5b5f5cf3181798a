"""A decider for the tests of the engine: its inputs say what it is to decide, and what its effects are to come to."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from stepwell import Decider, Decision, EffectContext, Engine, Store, Worker, handler, step, workflow
from stepwell.store.driver import Row

Answer = Callable[["Ask", EffectContext], Awaitable["Do | None"]]


@dataclass(frozen=True)
class Do:
    """Have an instance note the label, and lead to whatever else is said."""

    id: str
    label: str = "x"
    ask: str | None = None  # an effect
    after: float | None = None  # a timer, in so many seconds, ...
    timer: str | None = None  # ... under this key ...
    then: str = "tick"  # ... whose input notes this label
    again: float | None = None  # the timer's input sets it again, after so many seconds
    cancel: str | None = None
    end: bool = False
    fail: str | None = None
    run: int | None = None
    message: str | None = None


@dataclass(frozen=True)
class Keyed:
    """An input with a key of its own."""

    __stepwell_key__ = "request"
    id: str
    request: str


@dataclass(frozen=True)
class Noted:
    """What an instance has done."""

    label: str
    before: int  # how many it had done until then: shows what the decision was made on
    at: datetime | None = None


@dataclass(frozen=True)
class Ended:
    """It does nothing any more."""


@dataclass(frozen=True)
class Ask:
    """An effect."""

    label: str
    id: str


Input = Do | Keyed
Event = Noted | Ended


@dataclass(frozen=True)
class State:
    """What was noted, in its order."""

    labels: tuple[str, ...] = ()
    has_ended: bool = False


class Bench(Decider[State, Input, Event, Ask]):
    """Does what it is told."""

    type = "bench"
    route = "id"

    def __init__(self, answer: Answer | None = None, dead: bool = False) -> None:
        self.answer = answer
        self.dead = dead
        self.decided = 0
        self.asked: list[EffectContext] = []

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event) -> State:
        match event:
            case Noted(label):
                return replace(state, labels=(*state.labels, label))
            case Ended():
                return replace(state, has_ended=True)

    def decide(self, state: State, input: Input, now: datetime) -> Decision[Event, Ask, Input]:
        self.decided += 1
        if isinstance(input, Keyed):
            return Decision.event(Noted(input.request, len(state.labels)))
        if input.fail is not None:
            raise ValueError(input.fail)
        decision: Decision[Event, Ask, Input] = Decision.event(Noted(input.label, len(state.labels), now))
        if input.ask is not None:
            decision = decision.with_effect(Ask(input.ask, input.id))
        if input.cancel is not None:
            decision = decision.cancel_timer(input.cancel)
        if input.after is not None:
            again = Do(input.id, input.then, after=input.again, timer=input.timer)
            decision = decision.with_timer_after(input.after, again, key=input.timer)
        if input.run is not None:
            decision = decision.with_trigger(double.trigger(input.run))
        if input.message is not None:
            decision = decision.with_message(post, input.message)
        return decision.and_event(Ended()) if input.end else decision

    def is_terminal(self, state: State) -> bool:
        return state.has_ended

    async def handle(self, effect: Ask, ctx: EffectContext) -> Input | None:
        self.asked.append(ctx)
        if self.answer is not None:
            return await self.answer(effect, ctx)
        return Do(effect.id, f"{effect.label} answered")

    def on_dead_letter(self, effect: Ask, error: str) -> Input | None:
        return Do(effect.id, f"{effect.label} given up: {error}") if self.dead else None


posted: list[str] = []


@handler("posts")
async def post(text: str) -> None:
    """A handler that takes messages of decisions."""
    posted.append(text)


@step
async def twice(number: int) -> int:
    """A step."""
    return 2 * number


@workflow
async def double(number: int) -> int:
    """A workflow that decisions trigger."""
    return await twice(number)


BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


async def labels(engine: Engine, id: str = "a") -> list[str]:
    """What an instance has noted."""
    return list((await engine.state(Bench, id)).labels)


async def versions(engine: Engine, id: str = "a") -> list[int]:
    """The numbers of its events, as they stand in its stream."""
    return [one.version for one in await engine.events("bench", id)]


async def names(engine: Engine, id: str = "a") -> list[str]:
    """The names of its events, as they stand in its stream."""
    return [one.type for one in await engine.events("bench", id)]


async def drained(store: Store, *serves: Any, **options: Any) -> int:
    """Let a worker of its own do all that is due."""
    return await asyncio.wait_for(Worker(store, serves, **options).drain(), 60)


async def tasks(store: Store, kind: str) -> list[Row]:
    """The tasks of a kind, by id."""
    rows = await asked(store, f"select * from {{task}} where kind = '{kind}' order by id")
    return list(rows)


async def count(store: Store, table: str) -> int:
    """How many rows a table has."""
    [row] = await asked(store, f"select count(*) as rows from {{{table}}}")
    number: int = row["rows"]
    return number


async def asked(store: Store, question: str) -> list[Row]:
    """What the database answers to a question in its own words."""
    prefix = (
        f'"{store.database.statements.schema}".'
        if store.database.driver.name == "postgres"
        else f"{store.database.statements.schema}_"
    )
    text = re.sub(r"{(\w+)}", rf"{prefix}\1", question)
    async with store.database.driver.transaction() as own:
        return await own.execute(text, ())
