"""Draw docs/timeline.svg: what `stepwell show` says of an order whose worker was killed with SIGKILL in the middle.

The run is a real one, in a temporary SQLite file: two worker processes of the demo, the first of which is killed when
the card is charged. `python scripts/draw_timeline.py` writes the picture anew.
"""

from __future__ import annotations

import argparse
import io
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from stepwell import sync
from stepwell.cli.demo.processes import Crew
from stepwell.cli.demo.service import OutsideService
from stepwell.cli.demo.shop import ACTS, fulfil
from stepwell.cli.timeline import lines_of
from stepwell.operate.run_view import view_of

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "timeline.svg"
ORDER = "order-1042"
WIDTH = 112
DEADLINE = 60.0
STYLES = {
    r"✓( succeeded)?|█+": "green",
    r"✕( failed)?|╎": "bold red",
    r"◷( waiting)?|░+": "magenta",
    r"^\$.*|^fulfil.*?run": "bold",
    r"^(note|next): .*|^triggered.*": "bright_black",
}
HUES = [(243, 78, 82), (104, 228, 182), (248, 196, 72), (38, 128, 249), (243, 155, 233), (38, 200, 220)]
DARK = TerminalTheme(
    (15, 18, 22), (216, 222, 233), [(38, 44, 53), *HUES, (216, 222, 233)], [(139, 148, 158), *HUES, (255, 255, 255)]
)


def shown(folder: Path, pace: float) -> list[str]:
    """The lines of `stepwell show` about an order whose first worker was killed while the card was charged."""
    url, service = f"sqlite:///{folder / 'shop.db'}", OutsideService(folder / "books.jsonl")
    with Crew(folder / "books.jsonl", folder / "workers.log") as crew, sync.connect(url) as store:
        for _ in range(2):
            crew.start([url], pace=pace)
        until(lambda: len([one for one in store.workers() if one.alive]) == 2, "two workers live")
        run_id = fulfil.trigger(ORDER).options(key=ORDER).execute(store)
        until(lambda: service.books().by(ORDER, ACTS[1]), "the card is charged")
        time.sleep(pace / 2)  # for the eye: the crash stands in the middle of the step
        crew.kill(service.books().by(ORDER, ACTS[1])[0])
        store.result(run_id, timeout=DEADLINE)
        run = store.get_run(run_id)
        look = store.wait_for(lambda: view_of(store.async_store, run))
        return [f"$ stepwell show {ORDER}", *lines_of(look), ""]


def until(fact: Callable[[], object], what: str) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + DEADLINE
    while not fact():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so: {what}")
        time.sleep(0.01)


def picture(lines: list[str]) -> str:
    """The lines as an SVG, coloured as a terminal shows them, in whatever monospace font the reader has."""
    console = Console(file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, color_system="truecolor")
    for line in lines:
        text = Text(line, no_wrap=True, overflow="crop")
        for pattern, style in STYLES.items():
            text.highlight_regex(pattern, style)
        console.print(text, no_wrap=True, overflow="crop")
    svg = console.export_svg(title="stepwell", theme=DARK, unique_id="timeline")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # rich would fetch one from elsewhere
    return re.sub(r"[ \t]+$", "", svg.replace("Fira Code, ", ""), flags=re.MULTILINE)


def main() -> None:
    """Draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=PICTURE, help="where to")
    parser.add_argument("--pace", type=float, default=0.6, help="seconds that each step takes")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        given.out.write_text(picture(shown(Path(folder), given.pace)), encoding="utf-8")


if __name__ == "__main__":
    main()
