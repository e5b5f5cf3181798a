"""State machines: what a decider tells of its states, as Mermaid and DOT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import pytest

from stepwell import InvalidOption, StateInfo, StateMachine, StateMachineDefinition, StateMachineView, Transition
from stepwell.deciders.registry import Family
from tests.deciders.shop import Orders, State

GRAPH: Mapping[str, Sequence[Transition]] = {
    "new": [Transition("Create", "created", effects=["SendEmail"], timers=["payment"])],
    "created": [Transition("Pay", "paid"), Transition("Expire", "expired")],
    "paid": [],
    "expired": [],
}


class Viewed(Orders):
    graph: ClassVar[Mapping[str, Sequence[Transition]]] = GRAPH

    def state_info(self, state: State) -> StateInfo:
        return StateInfo(state.status, fields={"status": state.status}, terminal=self.is_terminal(state))

    def transitions(self, state: State) -> Sequence[Transition]:
        return self.graph.get(state.status, ())


class Drawn(Viewed):
    def states(self) -> Sequence[State]:
        return [State(status) for status in self.graph]


@pytest.mark.proves("I-01", "I-02")
def test_a_decider_tells_of_its_state() -> None:
    view: StateMachineView[State] = Drawn()
    assert view.state_info(State("expired")) == StateInfo("expired", fields={"status": "expired"}, terminal=True)
    assert [(one.input, one.target) for one in view.transitions(State("created"))] == [
        ("Pay", "paid"),
        ("Expire", "expired"),
    ]
    assert [(one.input, one.target, one.effects, one.timers) for one in view.transitions(State())] == [
        ("Create", "created", ["SendEmail"], ["payment"])
    ]
    assert isinstance(Drawn(), StateMachineDefinition)
    assert not isinstance(Viewed(), StateMachineDefinition)


@pytest.mark.proves("I-03")
def test_the_graph_is_what_the_states_tell() -> None:
    machine = StateMachine.of(Drawn())
    assert (machine.type, machine.initial) == ("order", "new")
    assert [info.status for info in machine.states] == ["new", "created", "paid", "expired"]
    assert machine.transitions == {status: tuple(ones) for status, ones in GRAPH.items()}


@pytest.mark.proves("I-04")
def test_mermaid() -> None:
    assert StateMachine.of(Drawn()).mermaid() == (
        "stateDiagram-v2\n"
        "    [*] --> new\n"
        "    new --> created : Create, effect SendEmail, timer payment\n"
        "    created --> paid : Pay\n"
        "    created --> expired : Expire\n"
        "    expired --> [*]\n"
    )


@pytest.mark.proves("I-04")
def test_dot() -> None:
    assert StateMachine.of(Drawn()).dot() == (
        'digraph "order" {\n'
        "    rankdir=LR;\n"
        "    node [shape=box, style=rounded];\n"
        '    start [shape=point, label=""];\n'
        '    n0 [label="new"];\n'
        '    n1 [label="created"];\n'
        '    n2 [label="paid"];\n'
        '    n3 [label="expired", peripheries=2];\n'
        "    start -> n0;\n"
        '    n0 -> n1 [label="Create\\neffect SendEmail\\ntimer payment"];\n'
        '    n1 -> n2 [label="Pay"];\n'
        '    n1 -> n3 [label="Expire"];\n'
        "}\n"
    )


@pytest.mark.proves("I-01", "I-04")
def test_the_current_state_is_marked() -> None:
    machine = StateMachine.of(Drawn())
    assert machine.mermaid(State("created")).endswith("    class created current\n")
    assert '    n1 [label="created", style="rounded,filled,bold", fillcolor="#ffd54f"];\n' in machine.dot(
        State("created")
    )
    assert machine.dot(State("created")).count("fillcolor") == 1
    with pytest.raises(InvalidOption, match=r"its status 'lost' is not in the graph; `states\(\)` should have it"):
        machine.mermaid(State("lost"))


@pytest.mark.proves("I-04")
def test_names_with_meaning_to_a_drawing_are_escaped() -> None:
    statuses = ['waiting: "now"; #1', "end", "waiting now 1", "7", "new\nline", "a\\b", "größe"]

    class Strange(Drawn):
        graph: ClassVar = {"new": [Transition("Pay", status, timers=["a: b;\n-->"]) for status in statuses]} | {
            status: [] for status in statuses
        }

    mermaid = StateMachine.of(Strange()).mermaid(State("end"))
    assert mermaid.splitlines()[1:8] == [
        '    state "waiting#58; #34;now#34;#59; #35;1" as waiting_now_1',
        '    state "end" as s_end',
        '    state "waiting now 1" as s_waiting_now_1',
        '    state "7" as s_7',
        '    state "new line" as new_line',
        '    state "a#92;b" as a_b',
        '    state "größe" as gr_e',
    ]
    assert "    new --> s_end : Pay, timer a#58; b#59; --#62;\n" in mermaid
    assert mermaid.endswith("    class s_end current\n")
    dot = StateMachine.of(Strange()).dot()
    assert '[label="waiting: \\"now\\"; #1"]' in dot
    assert '[label="a\\\\b"]' in dot
    assert '[label="Pay\\ntimer a: b; -->"]' in dot


@pytest.mark.proves("I-03")
def test_without_its_states_the_graph_is_what_the_first_one_tells() -> None:
    machine = StateMachine.of(Viewed())
    assert [info.status for info in machine.states] == ["new", "created"]


@pytest.mark.proves("I-03")
@pytest.mark.parametrize(
    ("transition", "told"),
    [
        (Transition("Buy", "created"), "leaving 'new': no such input; there are Create, Pay, Expire"),
        (Transition("Create", "made"), "leaving 'new': no such status; there are new, created, paid, expired"),
        (Transition("Create", "paid", effects=["Ship"]), "leaving 'new': no such effect; there are SendEmail"),
    ],
)
def test_a_graph_that_contradicts_its_decider_is_refused(transition: Transition, told: str) -> None:
    class Wrong(Drawn):
        graph: ClassVar = {**GRAPH, "new": [transition]}

    with pytest.raises(InvalidOption, match=told):
        StateMachine.of(Wrong())


@pytest.mark.proves("I-09")
def test_a_view_is_not_needed() -> None:
    assert Family.of(Orders()).type == "order"
    with pytest.raises(InvalidOption, match=r"it needs `state_info\(state\)`, `transitions\(state\)`"):
        StateMachine.of(Orders())
