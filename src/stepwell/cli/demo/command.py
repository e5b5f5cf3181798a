"""`stepwell demo`: plays the story in a temporary folder, in a view that fits the terminal, and always cleans up."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Self, TextIO
from urllib.parse import quote

from rich.console import Console, Group
from rich.live import Live as Redrawn
from rich.text import Text

from stepwell.cli.command import FAILED, INTERRUPTED, NO_STORE
from stepwell.cli.demo import shop
from stepwell.cli.demo.processes import NoServer, PostgresServer
from stepwell.cli.demo.shop import STEPS, fulfil
from stepwell.cli.demo.story import POINTS, Frame, Point, Result, Story, View
from stepwell.cli.output import drawable, is_lively
from stepwell.errors import DriverMissing, StepwellError
from stepwell.records import RunStatus, StepInfo

TITLE: Final = "an order in five steps, two workers, and a service that keeps its own books"
SAID: Final = 36  # columns of what happens; with the time before it, 35 of 80 are left for what is said of it
SIGNS: Final = {Point.AHEAD: "·", Point.KILLED: "╎", Point.RIGHT: "✓", Point.WRONG: "✕"}
STYLES: Final = {"good": "green", "bad": "red", "strong": "bold", "quiet": "dim", "plain": ""}


def run(*, as_json: bool, postgres: bool = False) -> int:
    """Play the demo and return its exit code: 0 only if the counts are right."""
    try:
        with _ended_cleanly():
            result = _as_json(postgres=postgres) if as_json else _shown(postgres=postgres)
    except KeyboardInterrupt:
        print("interrupted: the workers are killed and the temporary folder is removed", file=sys.stderr)
        return INTERRUPTED
    except (NoServer, DriverMissing) as error:
        print(f"error: {error}", file=sys.stderr)
        return NO_STORE
    except (StepwellError, OSError) as error:
        print(f"error: the demo could not run: {error}", file=sys.stderr)
        print(f"try: TMPDIR=/another/folder stepwell demo  (it used {tempfile.gettempdir()})", file=sys.stderr)
        return FAILED
    return 0 if result.ok else FAILED


def _shown(*, postgres: bool) -> Result:
    if not is_lively(sys.stdout):
        plain = Plain(sys.stdout)
        result = _played(plain, postgres=postgres)
        plain.tell(result)
        return result

    with Live(sys.stdout) as live:
        result = _played(live, postgres=postgres)
        live.tell(result)
        return result


def _as_json(*, postgres: bool) -> Result:
    result = _played(Silent(), postgres=postgres)
    print(json.dumps({"ok": result.ok, **dataclasses.asdict(result)}, indent=2))
    return result


def _played(view: View, *, postgres: bool) -> Result:
    with tempfile.TemporaryDirectory(prefix="stepwell-demo-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if not postgres:
            return Story(folder, view, lambda store: f"sqlite:///{quote(str(folder / store))}.db").play()
        with PostgresServer(folder / "server") as server:
            view.say(0.0, "a Postgres server is started", "of its own, for this demo alone")
            return Story(folder, view, server.url, "Postgres").play()


@contextlib.contextmanager
def _ended_cleanly() -> Iterator[None]:
    """Treat SIGTERM and a closed terminal like Ctrl-C, so that nothing is left behind."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


class Plain:
    """Lines as things happen, for a pipe, a log or a terminal that can do no more."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._told: set[tuple[str, str]] = set()
        self._points = 0
        self._print(TITLE)
        for _, line in source([]):
            self._print(line)

    def say(self, at: float, what: str, more: str = "") -> None:
        """Print the event."""
        self._print(f"{at:5.1f}  {what}" + (f"   ({more})" if more else ""))

    def show(self, frame: Frame) -> None:
        """Print what became of steps and points since."""
        for step in frame.steps:
            if step.status == RunStatus.SUCCESS and (seen := (step.key, str(step.started_at))) not in self._told:
                self._told.add(seen)
                self.say(frame.at, f"✓ {step.key} is recorded")
        ended = sum(point in (Point.RIGHT, Point.WRONG) for point in frame.points)
        if ended > self._points and ended == len(POINTS):
            self.say(frame.at, f"{ended} points: {marks(frame.points)}")
        self._points = ended

    def tell(self, result: Result) -> None:
        """Print the verdict."""
        for _, text in verdict(result):
            self._print(text)

    def _print(self, text: str) -> None:
        print(drawable(text, self._out.encoding), file=self._out, flush=True)


class Silent:
    """Nothing: the result alone is asked for."""

    def say(self, at: float, what: str, more: str = "") -> None:
        """Say nothing."""

    def show(self, frame: Frame) -> None:
        """Show nothing."""


def source(steps: Sequence[StepInfo]) -> list[tuple[str, str]]:
    """The workflow's own lines, each with its style: those of steps that are executed lit, of recorded ones ticked."""
    lines, first = inspect.getsourcelines(fulfil.fn)
    running = {step.name for step in steps if step.status == RunStatus.RUNNING}
    done = {step.name for step in steps if step.status == RunStatus.SUCCESS} - running
    shown = []
    for number, line in enumerate(lines, first):
        named = next((name for name in STEPS if f"{name}(" in line), "")
        mark, style = ("▸", "strong") if named in running else ("✓", "good") if named in done else (" ", "quiet")
        shown.append((style, f" {mark} {number:3}  {line.rstrip()}"))
    return shown


def marks(points: Sequence[Point]) -> str:
    """How far each point is."""
    return "".join(SIGNS[point] for point in points)


def verdict(result: Result) -> list[tuple[str, str]]:
    """The last lines, each with its style."""
    right = sum(result.points.values())
    lines = [
        ("plain", ""),
        ("quiet", f"From the outside service's own file, for {result.order or 'the order'}:"),
        ("strong", "  " + (", ".join(f"{act} {times}x" for act, times in result.done.items()) or "nothing")),
        ("plain", f"  it was asked for the charge {result.asked.get('charge card', 0)} times, and charged once"),
        ("strong", f"  killed at each of {len(POINTS)} points: {right} of {len(POINTS)} orders done exactly once"),
        ("plain", ""),
    ]
    if not result.ok:
        lines += [("bad", f"✕ error: {problem}") for problem in result.problems if problem]
        return [*lines, ("plain", "  try: run `stepwell demo` again; if it fails again, please report these lines")]
    return [
        *lines,
        ("good", f"✓ nothing lost, nothing charged twice, on {result.backend}, {result.seconds:.1f} s"),
        ("plain", ""),
        ("plain", "next"),
        *(("plain", f"  {what:<17}{how}") for what, how in _next()),
    ]


def _next() -> list[tuple[str, str]]:
    """What to do next after the demo."""
    installed = [] if shutil.which("stepwell") else [("install it", "pip install .   (README.md, from a clone)")]
    return [
        ("read what ran", _short(shop.__file__)),
        *installed,
        ("write yours", "@workflow and @step on your functions, in a file shop.py"),
        ("run it", "stepwell dev shop, and in another terminal"),
        ("", "stepwell trigger NAME [name=value ...] --wait"),
        ("look at it", "stepwell show @last"),
    ]


def _short(path: str) -> str:
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path


class Live:
    """A view that redraws itself: the source with the running lines lit, what happened, and how each point ended."""

    def __init__(self, out: TextIO) -> None:
        self._console = Console(file=out, highlight=False)
        self._encoding = out.encoding
        self._events: list[Text] = []
        self._frame = Frame(0.0, (), ())
        self._redrawn = Redrawn(console=self._console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._redrawn.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._redrawn.stop()

    def say(self, at: float, what: str, more: str = "") -> None:
        """Add the event to those shown."""
        line = Text.assemble((f" {at:5.1f}  ", "dim"), (f"{what:<{SAID}}", "red" if what.startswith("kill") else ""))
        self._events.append(line.append(self._drawable(f" {more}"), "dim"))
        self._draw()

    def show(self, frame: Frame) -> None:
        """Redraw the source and the points."""
        self._frame = frame
        self._draw()

    def tell(self, result: Result) -> None:
        """Print the verdict below."""
        self._redrawn.stop()
        for style, text in verdict(result):
            self._console.print(Text(self._drawable(f" {text}"), STYLES[style]), soft_wrap=True)

    def _draw(self) -> None:
        lines = [Text(f" {TITLE}", "bold"), Text("")]
        lines += [Text(self._drawable(text), STYLES[style]) for style, text in source(self._frame.steps)]
        lines += [Text(""), *self._events]
        if self._frame.points:
            lines.append(Text(self._drawable(f"        {marks(self._frame.points)}"), "green"))
            if Point.KILLED in self._frame.points:
                lines.append(Text("        killed there; another worker finishes what they began", "dim"))
        for line in lines:
            line.no_wrap, line.overflow = True, "ellipsis"
        self._redrawn.update(Group(*lines), refresh=True)

    def _drawable(self, text: str) -> str:
        return drawable(text, self._encoding)
