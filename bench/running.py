"""Rounds: every contestant once, then every one again; each time a process and a database of its own."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.contestants import CONTESTANTS, State
from bench.durability import NotDurable
from bench.ground import Ground
from bench.peers import ROOT, environment
from bench.play import NOT_DURABLE
from bench.workloads import WORKLOADS, Workload

LONGEST_MEASURE: Final = 300
LONGEST_PREPARE: Final = 900

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Measure:
    """One measurement to be made."""

    round: int
    workload: Workload
    state: State
    backend: str
    contestant: str

    def __str__(self) -> str:
        beside = "" if self.state == "empty" else f" beside {self.state}"
        return f"round {self.round} · {self.workload.name}{beside} · {self.backend} · {self.contestant}"


def plan(workloads: Iterable[str], backends: Sequence[str], contestants: Sequence[str], rounds: int) -> list[Measure]:
    """Who is measured when: contestants take turns, so that what disturbs the machine disturbs them all."""
    return [
        Measure(number, WORKLOADS[name], state, backend, contestant)
        for number in range(1, rounds + 1)
        for name in workloads
        if number <= (WORKLOADS[name].rounds or rounds)
        for backend in backends
        for state in _states(WORKLOADS[name])
        for contestant in contestants
        if backend in WORKLOADS[name].backends and backend in CONTESTANTS[contestant].backends
        if WORKLOADS[name].kind in CONTESTANTS[contestant].does and CONTESTANTS[contestant].is_here
        if (backend, WORKLOADS[name].kind) not in CONTESTANTS[contestant].lacks
        if name in (CONTESTANTS[contestant].only or (name,))
    ]


def _count(one: Measure, scale: float) -> int:
    contestant = CONTESTANTS[one.contestant]
    if one.workload.kind == "upcasts":  # it reads: nobody takes minutes, and all are to read as many of an instance
        return one.workload.count(scale)
    most = contestant.most_runs if one.workload.kind == "workflows" else contestant.most
    return min(one.workload.count(scale), most)


def _states(workload: Workload) -> tuple[State, ...]:
    return ("empty",) if workload.state == "empty" else ("empty", workload.state)


@dataclass(slots=True)
class Runner:
    """Makes measurements, keeping the filled databases they are copied from."""

    grounds: dict[str, Ground]
    scale: float
    uv: str | None
    say: Callable[[str], None]
    tree: Path = ROOT  # the version of stepwell that is measured, with the contestants that know it
    _filled: dict[tuple[str, str, State], str] = field(default_factory=dict)

    def measure(self, one: Measure) -> Line | None:
        """The line of figures; None, and a word about it, if the contestant failed."""
        with contextlib.suppress(Failed), self._place(one) as url:
            request = self._request(one, url) | {"count": _count(one, self.scale)}
            line: Line = json.loads(self._play(one, "measure", request, LONGEST_MEASURE).splitlines()[-1])
            return line
        return None

    @contextlib.contextmanager
    def _place(self, one: Measure) -> Iterator[str]:
        ground = self.grounds[one.backend]
        url = ground.fresh(None if one.state == "empty" else self._template(one))
        try:
            yield url
        finally:
            ground.drop(url)

    def _template(self, one: Measure) -> str:
        key = (one.contestant, one.backend, one.state)
        if key not in self._filled:
            url = self.grounds[one.backend].fresh()
            present = max(100, round(one.workload.present * self.scale))
            self.say(f"filling a database: {present:,} {one.state} · {one.backend} · {one.contestant}")
            self._play(one, "prepare", self._request(one, url) | {"present": present}, LONGEST_PREPARE)
            self._filled[key] = url
        return self._filled[key]

    def _request(self, one: Measure, url: str) -> dict[str, Any]:
        return {
            "contestant": one.contestant,
            "backend": one.backend,
            "url": url,
            "workload": one.workload.name,
            "state": one.state,
            "round": one.round,
            "postmaster": self.grounds[one.backend].postmaster,
        }

    def _play(self, one: Measure, mode: str, request: dict[str, Any], longest: float) -> str:
        command = [str(self._python(one.contestant)), "-m", "bench.play", mode, json.dumps(request)]
        surroundings = os.environ | ({} if self.tree == ROOT else {"PYTHONPATH": str(self.tree / "src")})
        try:
            done = subprocess.run(
                command, cwd=self.tree, env=surroundings, capture_output=True, text=True, timeout=longest, check=False
            )
        except subprocess.TimeoutExpired:
            self.say(f"FAILED {one}: no answer in {longest:g} s")
            raise Failed from None
        if done.returncode == NOT_DURABLE:
            raise NotDurable(done.stderr.strip())
        if done.returncode != 0 or (mode == "measure" and not done.stdout.strip()):
            self.say(f"FAILED {one}:\n{done.stderr[-2000:]}")
            raise Failed
        return done.stdout

    def _python(self, contestant: str) -> Path:
        known = CONTESTANTS[contestant]
        in_its_own = known.peer and known.program is None
        return environment(contestant, self.uv) if in_its_own else Path(sys.executable)


class Failed(Exception):  # noqa: N818 - it was told already
    """A contestant could not be measured."""
