"""Deciders by the command line: their instances, states now and earlier, inputs, and how they are drawn."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.kit import Cli
from tests.cli.shop import welcome
from tests.cli.test_doctor import said, working

DOORS = "tests.cli.doors"


@pytest.fixture
def doors(seen: Callable[[str, Path], Cli], tmp_path: Path) -> Cli:
    """The command line on a store in which the front door was pushed and closed."""
    cli = seen(DOORS, tmp_path)
    cli("decider", "send", "door", "Push", "door=front", "force=3", "--app", DOORS, "--key", "click")
    cli("decider", "send", "door", '{"Close": {"door": "front"}}', "--app", DOORS)
    return cli


def test_instances_are_listed(doors: Cli) -> None:
    doors("decider", "send", "door", "Push", "door=back", "--app", DOORS)
    assert "door  front  2" in doors("decider", "ls").out
    page = doors("decider", "ls", "door", "--limit", "1", "--json").json
    assert [one["id"] for one in page["instances"]] == ["back"]
    rest = doors("decider", "ls", "--after", page["next"], "--json").json
    assert [(one["id"], one["version"]) for one in rest["instances"]] == [("front", 2)]
    assert "there are no instances of gate" in doors("decider", "ls", "gate").out


@pytest.mark.proves("I-08")
def test_events_and_what_is_to_come_are_shown_without_the_code(doors: Cli) -> None:
    shown = doors("decider", "show", "door", "front").out
    assert shown.startswith("door front   version 2\n")
    assert "1  Moved" in shown
    assert "effect  Ring  due now" in shown
    assert "timer close  Close  due in " in shown
    assert "next: stepwell decider show door front --app APP" in shown
    told = doors("decider", "show", "door", "front", "--json").json
    assert [(one["type"], one["data"]) for one in told["events"]] == [
        ("Moved", {"to": "open"}),
        ("Moved", {"to": "closed"}),
    ]
    assert (told["state"], told["ended"]) == (None, False)
    assert [(one["kind"], one["key"], one["name"]) for one in told["outstanding"]] == [
        ("EFFECT", None, "Ring"),
        ("TIMER", "close", "Close"),
    ]


@pytest.mark.proves("I-08")
def test_the_state_is_shown_at_any_version_with_what_the_event_changed(doors: Cli) -> None:
    now = doors("decider", "show", "door", "front", "--app", DOORS).out
    assert now.startswith('door front   closed   version 2\nstate  {"status": "closed", "pushes": 1}\n')
    then = doors("decider", "show", "door", "front", "--app", DOORS, "--at", "1")
    assert then.out.startswith("door front   open   version 1 of 2\n")
    assert "  - pushes: 0\n  + pushes: 1\n" in then.out
    assert "still to come" not in then.out
    first = doors("decider", "show", "door", "front", "--app", DOORS, "--at", "0", "--json").json
    assert (first["state"], first["status"], first["events"]) == ({"status": "closed", "pushes": 0}, "closed", [])
    assert "has 2 events, and no version 9" in doors("decider", "show", "door", "front", "--at", "9", code=3).error


def test_an_input_is_decided_once_by_its_key(doors: Cli) -> None:
    words = ("decider", "send", "door", "Push", "door=side", "--app", DOORS, "--key", "k")
    first = doors(*words)
    assert "door side has decided: event 1 is written" in first.out
    assert "no living worker registers door: effects and timers wait for one" in first.out
    assert "has decided this key before, with event 1: nothing is done twice" in doors(*words).out
    told = doors(*words, "--json").json
    assert told == {"type": "door", "id": "side", "outcome": "duplicate", "first": 1, "last": 1, "served": False}


def test_an_input_for_another_version_is_refused(doors: Cli) -> None:
    words = ("decider", "send", "door", "Push", "door=front", "--app", DOORS, "--expected-version")
    refused = doors(*words, "1", code=4).error
    assert "door 'front' is at version 2, not at 1 as expected: nothing was written" in refused
    assert "has decided" in doors(*words, "2").out


def test_an_instance_that_has_ended_refuses(doors: Cli) -> None:
    doors("decider", "send", "door", "Lock", "door=front", "--app", DOORS)
    refused = doors("decider", "send", "door", "Push", "door=front", "--app", DOORS, code=4)
    assert "has ended: nothing was decided" in refused.out
    assert "ended" in doors("decider", "ls").out
    last = doors("decider", "show", "door", "front", "--json").json["version"]
    assert doors("decider", "show", "door", "front").out.startswith(f"door front   version {last}   ended\n")
    first = doors("decider", "show", "door", "front", "--at", "1").out
    assert first.startswith(f"door front   version 1 of {last}   ended later\n"), "not at that version"


def test_a_dry_run_says_what_would_be_and_writes_nothing(doors: Cli) -> None:
    words = ("decider", "send", "door", "Push", "door=side", "--app", DOORS, "--dry-run")
    told = doors(*words).out
    assert 'event     Moved {"to": "open"}' in told
    assert 'effect    Ring {"door": "side"}' in told
    assert 'timer     Close {"door": "side"} in 10 m, key close' in told
    assert doors(*words, "--json").json["events"] == ['Moved {"to": "open"}']
    assert "there is no door side" in doors("decider", "show", "door", "side", code=3).error


def test_the_states_are_drawn_with_the_one_it_is_in(doors: Cli) -> None:
    assert "class " not in doors("decider", "graph", "door", "--app", DOORS).out
    assert "class closed current" in doors("decider", "graph", "door", "front", "--app", DOORS).out
    assert doors("decider", "graph", "door", "--app", DOORS, "--dot").out.startswith('digraph "door" {')
    told = doors("decider", "graph", "door", "front", "--app", DOORS, "--json").json
    assert (told["current"], [one["status"] for one in told["states"]]) == ("closed", ["closed", "open", "locked"])


@pytest.mark.proves("I-06", "I-07", "IO-05")
def test_what_inputs_have_done_is_listed_counted_and_compared_with_what_is_declared(doors: Cli) -> None:
    doors("decider", "send", "door", "Push", "door=front", "--app", DOORS)
    doors("decider", "send", "door", "Push", "door=front", "--app", DOORS)
    doors("decider", "send", "door", "Push", "door=front", "--app", DOORS, "--key", "click")
    listed = doors("decider", "inputs", "door", "front", "--app", DOORS).out
    assert "applied    closed -> open  Push   {" in listed
    assert "duplicate  open            Push   {" in listed
    page = doors("decider", "inputs", "door", "front", "--app", DOORS, "--limit", "2", "--json").json
    assert [one["outcome"] for one in page["inputs"]] == ["applied", "applied"]
    rest = doors("decider", "inputs", "door", "front", "--app", DOORS, "--after", page["next"], "--json").json
    assert [one["outcome"] for one in rest["inputs"]] == ["applied", "applied", "duplicate"]
    assert "no input of door back was recorded" in doors("decider", "inputs", "door", "back", "--app", DOORS).out
    drift = doors("decider", "drift", "door", "--app", DOORS)
    assert "not declared: open -> open by Push, 1 times" in drift.out
    assert "not observed: closed -> locked by Lock" in drift.out
    told = doors("decider", "drift", "door", "--app", DOORS, "--json").json
    assert [(one["source"], one["target"], one["count"]) for one in told["undeclared"]] == [("open", "open", 1)]
    drawn = doors("decider", "graph", "door", "front", "--app", DOORS, "--observed").out
    assert "closed --> open : Push, effect Ring, timer close, 2 times" in drawn
    assert "open --> open : Push, once, not declared" in drawn
    assert "class open current" in drawn


def test_a_worker_serves_the_deciders_of_a_module(doors: Cli) -> None:
    assert doors("worker", DOORS, "--once", "--json").json["attempts"] == 1
    [handlers] = {tuple(one["handlers"]) for one in doors("workers", "--all", "--json").json}
    assert set(handlers) == {"door:effects", "door:inputs"}
    assert [one["kind"] for one in doors("decider", "show", "door", "front", "--json").json["outstanding"]] == ["TIMER"]
    doors("worker", f"{DOORS}:Doors", "--queue", "door:2", "--once")
    assert "APP serves no queue gate" in doors("worker", DOORS, "--queue", "gate", "--once", code=3).error


def test_dead_letters_of_one_instance_are_listed(doors: Cli) -> None:
    doors("decider", "send", "door", "Push", "door=mute", "--app", DOORS)
    doors("worker", DOORS, "--once")
    [letter] = doors("dead", "ls", "--instance", "door", "mute", "--json").json["dead_letters"]
    assert (letter["kind"], letter["payload"]["id"]) == ("EFFECT", "mute")
    listed = doors("dead", "ls", "--instance", "door", "mute").out
    assert "it has no bell" in listed
    assert f"next: stepwell dead requeue {letter['id']}\n" in listed
    assert "no dead letters" in doors("dead", "ls", "--instance", "door", "front").out
    assert "the store has no decider gate" in doors("dead", "ls", "--instance", "gate", "front", code=3).error


def test_doctor_names_the_decider_that_nobody_registers(doors: Cli) -> None:
    doors("worker", "tests.cli.shop", "--once")
    with working(doors, welcome):
        found = said(doors, "decider", problems=True)
    assert [one["said"] for one in found] == [
        "1 effects of the decider door wait and no living worker registers it",
        "1 timers or inputs of the decider door wait and no living worker registers it",
    ]
    assert {one["next"] for one in found} == {"stepwell worker APP --queue door"}
