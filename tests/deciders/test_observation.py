"""What is recorded of the inputs of a decider that is observed, and what is not."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

import stepwell.sync
from stepwell import (
    Decider,
    Decision,
    EffectContext,
    Engine,
    InvalidOption,
    QueueDraining,
    StateInfo,
    Store,
    StoreUnavailable,
    Transition,
    VersionConflict,
    connect,
)
from stepwell.base.clock import TestClock
from tests.deciders.workbench import BEGINNING, count, drained
from tests.store.seam import once, watched

GRAPH = {
    "off": [Transition("Press", "on"), Transition("Smash", "broken")],
    "on": [Transition("Press", "off")],
    "broken": [],
}


@dataclass(frozen=True)
class Press:
    lamp: str
    how: Any = "softly"
    light: bool = False  # by an effect and a timer


@dataclass(frozen=True)
class Smash:
    lamp: str


@dataclass(frozen=True)
class Is:
    status: str


@dataclass(frozen=True)
class Light:
    lamp: str


class Lamps(Decider[str, Press | Smash, Is, Light]):
    type = "lamp"
    route = "lamp"
    observe = True

    def initial(self) -> str:
        return "off"

    def evolve(self, state: str, event: Is) -> str:
        return event.status

    def decide(self, state: str, input: Press | Smash, now: datetime) -> Decision[Is, Light, Press | Smash]:
        if isinstance(input, Smash):
            return Decision.event(Is("broken"))
        if input.how == "not at all":
            raise ValueError("press it")
        decision: Decision[Is, Light, Press | Smash] = Decision.event(Is("on" if state == "off" else "off"))
        if input.light:
            decision = decision.with_effect(Light(input.lamp)).with_timer_after(60, Press(input.lamp), key="t")
        return decision

    def is_terminal(self, state: str) -> bool:
        return state == "broken"

    async def handle(self, effect: Light, ctx: EffectContext) -> Press | None:
        return Press(effect.lamp, "by its effect")

    def state_info(self, state: str) -> StateInfo:
        return StateInfo(state, terminal=state == "broken")

    def transitions(self, state: str) -> Sequence[Transition]:
        return GRAPH[state]

    def states(self) -> Sequence[str]:
        return list(GRAPH)


class Unobserved(Lamps):
    observe = False


async def said(engine: Engine, lamp: str = "a") -> list[tuple[Any, ...]]:
    page = await engine.observations("lamp", lamp)
    return [(one.outcome, one.from_status, one.input, one.to_status, one.first, one.last) for one in page]


@pytest.mark.proves("IO-01", "IO-04", "IO-05", "I-05")
async def test_each_input_is_recorded_as_it_was_answered(store: Store, clock: TestClock) -> None:
    engine = Engine(store).register(Lamps())
    await engine.execute(Press("a"), key="k")
    clock.advance(1)
    await engine.execute(Press("a"), key="k")
    with pytest.raises(ValueError, match="press it"):
        await engine.execute(Press("a", "not at all"))
    with pytest.raises(VersionConflict):
        await engine.execute(Press("a"), expected_version=7)
    await engine.execute(Press("a"))
    await engine.execute(Smash("a"), key="s")
    await engine.execute(Press("a"))
    assert await said(engine) == [
        ("applied", "off", "Press", "on", 1, 1),
        ("duplicate", "on", "Press", None, 1, 1),
        ("refused", "on", "Press", None, None, None),
        ("refused", "on", "Press", None, None, None),
        ("applied", "on", "Press", "off", 2, 2),
        ("applied", "off", "Smash", "broken", 3, 3),
        ("completed", "broken", "Press", None, None, None),
    ]
    page = await engine.observations("lamp", "a", limit=3)
    first, again, refused = page
    assert (first.payload, first.version, first.error, first.key) == (
        {"lamp": "a", "how": "softly", "light": False},
        1,
        None,
        "k",
    )
    assert (first.recorded_at, (again.recorded_at - first.recorded_at).seconds) == (BEGINNING, 1)
    assert (refused.payload["how"], refused.error) == ("not at all", "ValueError: press it")
    [event] = (await engine.events("lamp", "a"))[:1]
    assert (event.cause, event.recorded_at) == (first.cause, first.recorded_at)
    rest = await engine.observations("lamp", "a", after=page.next)
    assert (len(rest), rest.next) == (4, None)
    with pytest.raises(InvalidOption, match="after"):
        await engine.observations("lamp", "a", after="x")


@pytest.mark.proves("IO-04")
async def test_inputs_of_one_transaction_are_each_recorded_and_so_is_one_for_no_instance(store: Store) -> None:
    engine = Engine(store).register(Lamps())
    inputs = [Press("a"), Press("b", "not at all"), Press("a"), Press("a", "not at all"), Press("a")]
    keys = ["k", None, "k", None, None]
    await asyncio.gather(
        *(engine.execute(one, key=key) for one, key in zip(inputs, keys, strict=True)), return_exceptions=True
    )
    assert [one[:4] for one in await said(engine)] == [
        ("applied", "off", "Press", "on"),
        ("duplicate", "on", "Press", None),
        ("refused", "on", "Press", None),
        ("applied", "on", "Press", "off"),
    ]
    assert [one[:2] for one in await said(engine, "b")] == [("refused", "off")]
    assert await count(store, "instance") == 1, "b has no events"


@pytest.mark.proves("IO-04")
async def test_what_was_submitted_or_answered_in_vain_is_recorded_too(store: Store, clock: TestClock) -> None:
    engine = Engine(store).register(Lamps())
    await engine.execute(Press("a", light=True), key="k")
    await engine.submit(Press("a"), key="k")
    await engine.submit(Press("b", "not at all"))
    await engine.execute(Smash("a"))
    await engine.submit(Press("a"))
    for _ in range(6):
        await drained(store, engine)
        clock.advance("1h")
    page = await engine.observations("lamp", "a")
    assert [(one.outcome, one.input) for one in page[:2]] == [("applied", "Press"), ("applied", "Smash")]
    answers = [(one.outcome, (one.cause or "").partition(":")[0]) for one in page[2:]]
    assert sorted(answers) == [("completed", "effect"), ("completed", "input"), ("duplicate", "input")]
    assert [one[:2] for one in await said(engine, "b")] == [("refused", "off")] * 5, "each attempt"
    assert (await engine.submit(Press("c"), key="k")).created
    await drained(store, engine)
    assert not (await engine.submit(Press("c"), key="k")).created
    await drained(store, engine)
    assert [one[0] for one in await said(engine, "c")] == ["applied"], "the second was never stored"


@pytest.mark.proves("IO-02", "I-09", "G-06", "CF-06")
async def test_without_observation_no_row_and_no_statement_is_written(store: Store, clock: TestClock) -> None:
    store, driver = watched(store)
    quiet, loud = Engine(store).register(Unobserved()), Engine(store).register(Lamps(), observe=False)
    for engine in (quiet, loud):
        await engine.execute(Press("a", light=True), key="k")
        await engine.execute(Press("a"), key="k")
    await drained(store, quiet)
    await store.database.retention.round()
    assert await count(store, "observation") == 0
    assert driver.said, "nothing was watched: void"
    assert not [call.statement for call in driver.said if "observ" in call.statement]
    observing = Engine(store).register(Unobserved(), observe=True)
    await observing.execute(Press("a"))
    await store.database.retention.round()
    assert [call.statement for call in driver.said if "observ" in call.statement] == [
        "add_observations",
        "remove_observations",
    ]


@pytest.mark.proves("I-09")
async def test_a_view_of_the_state_is_asked_only_while_inputs_are_observed(store: Store, clock: TestClock) -> None:
    asked: list[str] = []

    class Watched(Unobserved):
        def state_info(self, state: str) -> StateInfo:
            asked.append(state)
            return super().state_info(state)

        def transitions(self, state: str) -> Sequence[Transition]:
            asked.append(state)
            return super().transitions(state)

    engine = Engine(store).register(Watched())
    await engine.execute(Press("a", light=True), key="k")
    await engine.execute(Press("a", light=True), key="k")
    await engine.submit(Press("a"))
    await drained(store, engine)
    clock.advance(61)
    await drained(store, engine)
    assert len(await engine.events("lamp", "a")) == 4
    assert asked == []
    await Engine(store).register(Watched(), observe=True).execute(Press("a"))
    assert asked == ["off", "on"]


@pytest.mark.proves("IO-03", "IO-01")
async def test_what_is_rolled_back_leaves_no_observation(store: Store) -> None:
    engine = Engine(store).register(Lamps())
    with contextlib.suppress(ZeroDivisionError):
        async with store.transaction() as tx:
            await engine.execute(Press("a"), tx=tx)
            raise ZeroDivisionError
    async with store.transaction() as tx:
        with pytest.raises(ValueError, match="press it"):
            await engine.execute(Press("a", "not at all"), tx=tx)
    await store.create_queue("lamp:effects")
    await store.drain_queue("lamp:effects")
    with pytest.raises(QueueDraining):
        await engine.execute(Press("a", light=True))
    assert (await count(store, "observation"), await count(store, "event")) == (0, 0)
    await store.reopen_queue("lamp:effects")
    async with store.transaction() as tx:
        await engine.execute(Press("a"), tx=tx)
    assert [one[0] for one in await said(engine)] == ["applied"]


@pytest.mark.proves("IO-01", "M-16")
async def test_answers_of_effects_timers_and_submitted_inputs_are_observed_too(store: Store, clock: TestClock) -> None:
    engine = Engine(store).register(Lamps())
    await engine.execute(Press("a", light=True))
    await drained(store, engine)
    clock.advance(61)
    await engine.submit(Press("a", "later"))
    await drained(store, engine)
    page = await engine.observations("lamp", "a")
    assert {(one.cause or "").partition(":")[0] for one in page} >= {"effect", "timer", "input"}
    assert [one.outcome for one in page] == ["applied"] * 4


async def test_a_decision_whose_reply_is_lost_is_recorded_once(store: Store) -> None:
    store, driver = watched(store)
    engine = Engine(store).register(Lamps())
    await engine.execute(Press("a"))
    await store.database.decisions.supply(100)
    driver.after = once(StoreUnavailable("reset after the work was done"))
    await engine.execute(Press("a"))
    assert [one[:4] for one in await said(engine)] == [
        ("applied", "off", "Press", "on"),
        ("applied", "on", "Press", "off"),
    ]


@pytest.mark.proves("IO-05")
async def test_observations_are_removed_when_they_are_old(store: Store, clock: TestClock) -> None:
    engine = Engine(store).register(Lamps())
    await engine.execute(Press("a"))
    clock.advance("20d")
    await engine.execute(Press("a"))
    await store.database.retention.round()
    assert len(await said(engine)) == 2
    clock.advance("11d")
    await store.database.retention.round()
    assert [one[1] for one in await said(engine)] == ["on"], "the first is older than 30 days"
    assert await store.prune("10d") == 0, "what is counted are tasks"
    assert await said(engine) == []


@pytest.mark.proves("MT-02")
async def test_tenants_neither_see_nor_remove_observations_of_each_other(store_url: str, clock: TestClock) -> None:
    if store_url.startswith("memory:"):
        pytest.skip("a store in memory has one tenant")
    async with connect(store_url, clock=clock) as store, connect(store_url, clock=clock, tenant="other") as other:
        ours, theirs = Engine(store).register(Lamps()), Engine(other).register(Lamps())
        await ours.execute(Press("a"))
        assert await said(theirs) == []
        assert (await theirs.observed("lamp")).transitions == []
        clock.advance("40d")
        await other.prune("1d")
        await other.database.retention.round()
        assert len(await said(ours)) == 1
        await store.database.retention.round()
        assert await said(ours) == []


@pytest.mark.proves("I-06", "I-07")
async def test_observed_transitions_are_counted_drawn_and_compared_with_what_is_declared(
    store: Store, clock: TestClock
) -> None:
    engine = Engine(store).register(Lamps())
    for lamp in "abc":
        await engine.execute(Press(lamp))
    clock.advance("1h")
    await engine.execute(Press("a"), key="k")
    await engine.execute(Press("a"), key="k")
    await engine.execute(Smash("b"))
    await engine.execute(Press("b"))
    observed = await engine.observed("lamp")
    assert [(one.source, one.input, one.target, one.count) for one in observed.transitions] == [
        ("off", "Press", "on", 3),
        ("on", "Press", "off", 1),
        ("on", "Smash", "broken", 1),
    ]
    assert (observed.transitions[0].first_at, observed.transitions[0].last_at) == (BEGINNING, BEGINNING)
    assert [(one.source, one.input, one.target) for one in observed.undeclared] == [("on", "Smash", "broken")]
    assert [(status, one.input, one.target) for status, one in observed.unseen] == [("off", "Smash", "broken")]
    assert observed.mermaid("on").splitlines()[1:] == [
        "    [*] --> off",
        "    off --> on : Press, 3 times",
        "    off --> broken : Smash, not observed",
        "    on --> off : Press, once",
        "    on --> broken : Smash, once, not declared",
        "    broken --> [*]",
        "    classDef current fill:#ffd54f,stroke:#000,stroke-width:3px,color:#000",
        "    class on current",
    ]
    assert '    n1 -> n2 [label="Smash\\nonce\\nnot declared"];' in observed.dot()
    late = await engine.observed("lamp", since=BEGINNING + timedelta(minutes=30))
    assert [(one.source, one.count) for one in late.transitions] == [("on", 1), ("on", 1)]


async def test_what_observes_fails_no_input(store: Store) -> None:
    class Blind(Lamps):
        def state_info(self, state: str) -> StateInfo:
            raise RuntimeError(state)

    engine = Engine(store).register(Blind())
    assert (await engine.execute(Press("a", how=object()))).outcome == "applied"
    [seen] = await engine.observations("lamp", "a")
    assert (seen.outcome, seen.payload, seen.from_status, seen.to_status) == ("applied", None, None, None)
    assert "payload: " in (seen.error or "")
    assert "state_info: RuntimeError: on" in (seen.error or "")


def test_the_sync_face_observes_too(store_url: str) -> None:
    with stepwell.sync.connect(store_url) as store:
        engine = stepwell.sync.Engine(store).register(Unobserved(), observe=True)
        engine.execute(Press("a"))
        with store.transaction() as tx:
            engine.execute(Press("a"), tx=tx)
        assert [one.to_status for one in engine.observations("lamp", "a")] == ["on", "off"]
        assert [one.count for one in engine.observed("lamp").transitions] == [1, 1]
