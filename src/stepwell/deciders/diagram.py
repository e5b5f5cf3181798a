"""State diagrams: the states that a decider declares, drawn as Mermaid and DOT. Decisions do not need this."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from stepwell.decider import Decider
from stepwell.deciders.registry import Family
from stepwell.errors import InvalidOption

S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class StateInfo:
    """A state for people: its status, details, and whether it is an end."""

    status: str
    fields: Mapping[str, Any] | None = field(default=None, kw_only=True)
    terminal: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Transition:
    """An input that a state accepts, the status it leads to, and the effects and timers (by key) that it causes."""

    input: str
    target: str
    effects: Sequence[str] = field(default=(), kw_only=True)
    timers: Sequence[str] = field(default=(), kw_only=True)


@runtime_checkable
class StateMachineView(Protocol[S_contra]):
    """A decider that can say which status a state has, and where it may go from there."""

    def state_info(self, state: S_contra) -> StateInfo:
        """The state in words."""

    def transitions(self, state: S_contra) -> Sequence[Transition]:
        """What may come next."""


@runtime_checkable
class StateMachineDefinition(Protocol[S]):
    """A view that also lists all statuses."""

    def state_info(self, state: S) -> StateInfo:
        """The state in words."""

    def transitions(self, state: S) -> Sequence[Transition]:
        """What may come next."""

    def states(self) -> Sequence[S]:
        """A state of each status."""


def status_of(decider: Decider[Any, Any, Any, Any], state: Any) -> str | None:
    """The status of a state, None if its decider has no view of its states."""
    return decider.state_info(state).status if isinstance(decider, StateMachineView) else None


@dataclass(frozen=True, slots=True)
class StateMachine:
    """The graph of a decider's states, the initial one first."""

    type: str
    view: StateMachineView[Any]
    states: tuple[StateInfo, ...]
    transitions: Mapping[str, tuple[Transition, ...]]  # by the status that they leave
    # What is added to the label of a transition: by its status, its input and its target.
    notes: Mapping[tuple[str, str, str], Sequence[str]] = field(default_factory=dict, kw_only=True)

    @classmethod
    def of(cls, decider: Decider[Any, Any, Any, Any]) -> StateMachine:
        """The graph that a decider declares with `state_info`, `transitions` and `states`.

        Without `states` it has only the transitions of the initial state. Inputs, effects and statuses that the decider
        does not have are refused: a wrong drawing is worse than none.
        """
        if not isinstance(decider, StateMachineView):
            raise InvalidOption("decider", type(decider).__name__, "it needs `state_info(state)`, `transitions(state)`")
        family = Family.of(decider)
        known = decider.states() if isinstance(decider, StateMachineDefinition) else ()
        states: dict[str, StateInfo] = {}
        transitions: dict[str, tuple[Transition, ...]] = {}
        for state in (decider.initial(), *known):
            info = decider.state_info(state)
            states.setdefault(info.status, info)
            transitions.setdefault(info.status, tuple(decider.transitions(state)))
        _check(family, states, transitions, complete=bool(known))
        targets = (one.target for ones in transitions.values() for one in ones)
        states |= {target: StateInfo(target) for target in targets if target not in states}
        return cls(family.type, decider, tuple(states.values()), transitions)

    @property
    def initial(self) -> str:
        """The status of an instance before its first event."""
        return self.states[0].status

    def mermaid(self, state: Any = None) -> str:
        """The graph as a Mermaid `stateDiagram-v2`; the status of the state, if one is given, is marked."""
        ids = _mermaid_ids(self.states)
        lines = ["stateDiagram-v2"]
        lines += [f'    state "{_entities(status)}" as {name}' for status, name in ids.items() if name != status]
        lines.append(f"    [*] --> {ids[self.initial]}")
        for status, one in self._edges():
            label = _entities(", ".join(self._label(status, one)))
            lines.append(f"    {ids[status]} --> {ids[one.target]} : {label}")
        lines += [f"    {ids[info.status]} --> [*]" for info in self.states if info.terminal]
        if (current := self._current(state)) is not None:
            lines += ["    classDef current fill:#ffd54f,stroke:#000,stroke-width:3px,color:#000"]
            lines += [f"    class {ids[current]} current"]
        return "\n".join(lines) + "\n"

    def dot(self, state: Any = None) -> str:
        """The graph in Graphviz's DOT; the status of the state, if one is given, is marked."""
        current = self._current(state)
        ids = {info.status: f"n{number}" for number, info in enumerate(self.states)}
        lines = [f"digraph {_quoted(self.type)} {{", "    rankdir=LR;", "    node [shape=box, style=rounded];"]
        lines.append('    start [shape=point, label=""];')
        for info in self.states:
            ends = ", peripheries=2" if info.terminal else ""
            marked = ', style="rounded,filled,bold", fillcolor="#ffd54f"' if info.status == current else ""
            lines.append(f"    {ids[info.status]} [label={_quoted(info.status)}{ends}{marked}];")
        lines.append(f"    start -> {ids[self.initial]};")
        for status, one in self._edges():
            lines.append(f"    {ids[status]} -> {ids[one.target]} [label={_quoted(*self._label(status, one))}];")
        return "\n".join([*lines, "}"]) + "\n"

    def _edges(self) -> Iterator[tuple[str, Transition]]:
        return ((status, one) for status, ones in self.transitions.items() for one in ones)

    def _label(self, status: str, one: Transition) -> Iterator[str]:
        yield one.input
        yield from (f"effect {name}" for name in one.effects)
        yield from (f"timer {key}" for key in one.timers)
        yield from self.notes.get((status, one.input, one.target), ())

    def _current(self, state: Any) -> str | None:
        if state is None:
            return None
        status = self.view.state_info(state).status
        if all(info.status != status for info in self.states):
            raise InvalidOption("state", state, f"its status {status!r} is not in the graph; `states()` should have it")
        return status


def _check(
    family: Family,
    states: Mapping[str, StateInfo],
    transitions: Mapping[str, Sequence[Transition]],
    *,
    complete: bool,
) -> None:
    for status, one in ((status, one) for status, ones in transitions.items() for one in ones):
        if one.input not in family.inputs.by_name:
            known = ", ".join(family.inputs.by_name)
            raise InvalidOption("transition", one.input, f"leaving {status!r}: no such input; there are {known}")
        if unknown := [name for name in one.effects if name not in family.effects.by_name]:
            known = ", ".join(family.effects.by_name) or "none"
            raise InvalidOption("transition", unknown[0], f"leaving {status!r}: no such effect; there are {known}")
        if complete and one.target not in states:
            known = ", ".join(states)
            raise InvalidOption("transition", one.target, f"leaving {status!r}: no such status; there are {known}")


_RESERVED: Final = re.compile(
    r"(?i)as|class|classdef|click|default|direction|end|fork|hide|href|join|note|root|scale|state|style|[0-9_]*"
)


def _mermaid_ids(states: Sequence[StateInfo]) -> dict[str, str]:
    """A name for each status that Mermaid accepts: the status itself where possible."""
    names: dict[str, str] = {}
    for info in states:
        name = re.sub(r"[^A-Za-z0-9_]+", "_", info.status)
        while _RESERVED.fullmatch(name) or name in names.values():
            name = f"s_{name}"
        names[info.status] = name
    return names


def _entities(text: str) -> str:
    """The text with the special characters of Mermaid written as entities."""
    return re.sub(r"[^\w ,.()/'=+-]", lambda found: f"#{ord(found[0])};", " ".join(text.split()))


def _quoted(*lines: str) -> str:
    escaped = (" ".join(line.split()).replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(escaped) + '"'
