"""Observed machines: the transitions that inputs have made, counted, beside those that their decider declares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from stepwell.base.durations import datetime_of
from stepwell.deciders.diagram import StateInfo, StateMachine, Transition
from stepwell.store.database import Database

Edge = tuple[str, str, str]  # a status, an input, and the status that it leads to


@dataclass(frozen=True, slots=True)
class ObservedTransition:
    """How often an input led from one status to another, and when first and last."""

    source: str
    input: str
    target: str
    count: int
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True)
class ObservedMachine:
    """The graph of a decider as its inputs have drawn it, as far as observations are kept, and as it is declared."""

    declared: StateMachine
    transitions: Sequence[ObservedTransition]

    @property
    def undeclared(self) -> Sequence[ObservedTransition]:
        """What was observed and is not declared."""
        declared = _edges(self.declared)
        return [one for one in self.transitions if (one.source, one.input, one.target) not in declared]

    @property
    def unseen(self) -> Sequence[tuple[str, Transition]]:
        """What is declared and was not observed: the status that it leaves, and the transition."""
        seen = {(one.source, one.input, one.target) for one in self.transitions}
        return [(edge[0], one) for edge, one in _edges(self.declared).items() if edge not in seen]

    def mermaid(self, state: Any = None) -> str:
        """Both graphs as one Mermaid `stateDiagram-v2`, each transition with its count or what is odd about it."""
        return self._joined().mermaid(state)

    def dot(self, state: Any = None) -> str:
        """Both graphs as one in Graphviz's DOT, each transition with its count or what is odd about it."""
        return self._joined().dot(state)

    def _joined(self) -> StateMachine:
        drawn = {status: list(ones) for status, ones in self.declared.transitions.items()}
        notes: dict[Edge, Sequence[str]] = dict.fromkeys(_edges(self.declared), ("not observed",))
        for one in self.transitions:
            times = f"{one.count} times" if one.count > 1 else "once"
            edge = one.source, one.input, one.target
            if edge not in notes:
                drawn.setdefault(one.source, []).append(Transition(one.input, one.target))
            notes[edge] = (times,) if edge in notes else (times, "not declared")
        known = {info.status for info in self.declared.states}
        found = dict.fromkeys(status for one in self.transitions for status in (one.source, one.target))
        states = (*self.declared.states, *(StateInfo(status) for status in found if status not in known))
        transitions = {status: tuple(ones) for status, ones in drawn.items()}
        return replace(self.declared, states=states, transitions=transitions, notes=notes)


def _edges(machine: StateMachine) -> dict[Edge, Transition]:
    pairs = ((status, one) for status, ones in machine.transitions.items() for one in ones)
    return {(status, one.input, one.target): one for status, one in pairs}


async def observed_machine(database: Database, declared: StateMachine, since: int) -> ObservedMachine:
    """The machine that was observed since a moment, in microseconds since 1970."""
    rows = await database.decisions.observed_transitions(declared.type, since)
    transitions = [
        ObservedTransition(
            source=row["from_status"],
            input=row["input"],
            target=row["to_status"],
            count=row["times"],
            first_at=datetime_of(row["first_at"]),
            last_at=datetime_of(row["last_at"]),
        )
        for row in rows
    ]
    return ObservedMachine(declared, transitions)
