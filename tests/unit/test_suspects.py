"""The times of a worker that has suspects to execute: nothing beside them, and half of the time for ordinary work."""

import random
from typing import Any

import pytest

from stepwell.work.suspects import LOOK_EVERY, TURN, SuspectTurns

LEASE = 10.0


def body(name: str) -> Any:
    """What stands for an execution here: nothing is asked of it but who it is."""
    return name


@pytest.mark.proves("rule-07")
def test_the_database_is_asked_at_most_twice_a_second_and_nothing_changes_if_there_are_none() -> None:
    turns = SuspectTurns(LEASE)
    assert turns.may_look(0.0, idle=False)
    turns.looked(0.0, found=False)
    assert not turns.is_on
    assert not turns.may_look(LOOK_EVERY - 0.01, idle=True)
    assert turns.may_look(LOOK_EVERY, idle=False)
    assert turns.may_look(0.1, idle=True, drains=True), "a worker that drains has to know"


@pytest.mark.proves("rule-07")
def test_what_is_under_way_ends_before_a_suspect_begins_and_one_ends_before_the_next() -> None:
    turns = SuspectTurns(LEASE)
    turns.looked(0.0, found=True)
    assert turns.is_on
    assert not turns.may_claim(1.0, {body("a"), body("b")})
    assert not turns.may_claim(2.0, {body("b")})
    assert turns.may_claim(3.0, set())
    turns.begun(3.0, body("suspect"))
    assert not turns.may_claim(3.5, {body("suspect")})
    assert turns.may_claim(3.9, set())
    assert not turns.is_over(3.9)
    assert turns.is_over(3.0 + TURN)


@pytest.mark.proves("rule-07")
def test_a_worker_that_waits_for_its_bodies_asks_again_whether_there_are_still_suspects() -> None:
    turns = SuspectTurns(LEASE)
    turns.looked(0.0, found=True)
    assert not turns.may_claim(0.1, {body("a")})
    assert not turns.may_look(0.1, idle=False)
    assert turns.may_look(LOOK_EVERY, idle=False)
    turns.looked(LOOK_EVERY, found=True)
    assert turns.may_claim(1.0, set()), "the wait goes on where it was"
    turns.begun(1.0, body("suspect"))
    assert not turns.may_look(2.0, idle=False), "its turn has begun"
    waits = SuspectTurns(LEASE)
    waits.looked(0.0, found=True)
    waits.looked(4.0, found=False)
    assert not waits.is_on
    assert not waits.may_look(7.9, idle=False), "ordinary work has as long as it was kept waiting"
    assert waits.may_look(8.0, idle=False)


@pytest.mark.proves("rule-07")
def test_ordinary_work_then_has_as_long_as_all_that_took_unless_there_is_none() -> None:
    turns = SuspectTurns(LEASE)
    turns.looked(0.0, found=True)
    assert turns.may_claim(4.0, set())
    turns.begun(4.0, body("suspect"))
    turns.end(5.5, left=True)
    assert not turns.is_on
    assert not turns.may_look(10.9, idle=False)
    assert turns.may_look(5.6, idle=True), "nobody else wants the time"
    assert turns.may_look(11.0, idle=False)


@pytest.mark.proves("rule-07")
def test_a_body_of_hours_is_waited_for_once() -> None:
    turns = SuspectTurns(LEASE)
    long = body("long")
    turns.looked(0.0, found=True)
    assert not turns.may_claim(LEASE - 0.1, {long})
    assert turns.may_claim(LEASE, {long}), "the suspect goes beside it"
    turns.end(LEASE, left=True)
    turns.looked(30.0, found=True)
    assert not turns.may_claim(30.1, {long, body("short")})
    assert turns.may_claim(30.2, {long}), "no second lease for the same body"


@pytest.mark.proves("rule-07")
def test_a_suspect_of_hours_has_the_worker_for_a_lease() -> None:
    turns = SuspectTurns(LEASE)
    suspect = body("suspect")
    turns.looked(0.0, found=True)
    assert turns.may_claim(0.0, set())
    turns.begun(0.0, suspect)
    assert not turns.may_claim(LEASE - 0.1, {suspect})
    assert turns.is_on
    assert not turns.may_claim(LEASE, {suspect})
    assert not turns.is_on, "ordinary work begins beside it"
    assert not turns.may_look(2 * LEASE - 0.1, idle=False)
    turns.looked(2 * LEASE, found=True)
    assert not turns.may_claim(2 * LEASE, {suspect, body("ordinary")})
    assert turns.may_claim(2 * LEASE + 1, {suspect}), "and the next suspect beside it, not beside ordinary work"


@pytest.mark.proves("rule-07")
@pytest.mark.parametrize("seed", range(20))
def test_ordinary_work_keeps_half_of_the_time_whatever_the_bodies_take(seed: int) -> None:
    chance = random.Random(seed)
    turns, now, executions = SuspectTurns(LEASE), 0.0, dict[Any, float]()
    spent, number = {True: 0.0, False: 0.0}, 0
    while now < 2000:
        executions = {one: until for one, until in executions.items() if until > now}
        if not turns.is_on and turns.may_look(now, idle=False):
            turns.looked(now, found=True)
        if turns.is_on and turns.may_claim(now, set(executions)):
            if turns.is_over(now):
                turns.end(now, left=True)
            else:
                number += 1
                executions[body(f"suspect {number}")] = now + chance.choice([0.01, 0.3, 3.0, 40.0])
                turns.begun(now, body(f"suspect {number}"))
        elif not turns.is_on and len(executions) < 5:
            number += 1
            executions[body(f"ordinary {number}")] = now + chance.choice([0.01, 1.0, 60.0])
        spent[turns.is_on] += 0.05
        now += 0.05
    assert number > 50
    assert spent[True] > 0.05 * spent[False], "void: suspects had no time at all"
    assert spent[False] >= 0.48 * (spent[True] + spent[False])
