"""The picture of the README is what its script draws of a real run: the same lines, whatever they took."""

import html
import re
import subprocess
import sys
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "draw_timeline.py"
TEXT = re.compile(r'<text class="timeline-r\d+" x="[\d.]+" y="([\d.]+)"[^>]*>(.*?)</text>')


def lines_in(svg: str) -> list[str]:
    """The lines of text, top down."""
    texts = [(found[1], html.unescape(found[2]).replace("\xa0", " ")) for found in TEXT.finditer(svg)]
    lines = ["".join(text for _, text in line).strip() for _, line in groupby(texts, key=lambda one: one[0])]
    return [line for line in lines if "are folded" not in line]  # that is a matter of speed


def shape_of(line: str) -> str:
    """A line without what differs from run to run: numbers, spans of time, how long a bar is, and where it is cut."""
    line = re.sub(r"│(.*)│", lambda found: "│" + "".join(sorted(set(found[1].replace(" ", "")))) + "│", line)
    line = re.sub(r"\d+(\.\d+)? (ms|s|m)\b", "SPAN", line)
    return " ".join(re.sub(r"\d+", "N", line).split())


def test_the_picture_is_what_its_script_draws(tmp_path: Path) -> None:
    drawn = tmp_path / "timeline.svg"
    subprocess.run([sys.executable, SCRIPT, "--out", drawn, "--pace", "0.1"], check=True, timeout=80)
    kept = lines_in((ROOT / "docs" / "timeline.svg").read_text(encoding="utf-8"))
    shapes = [shape_of(line) for line in lines_in(drawn.read_text(encoding="utf-8"))]
    assert shapes == [shape_of(line) for line in kept], f"draw it anew: python {SCRIPT.relative_to(ROOT)}"
    assert any("charge_card#" in line and "█" in line for line in kept)


def test_the_picture_needs_nothing_from_elsewhere() -> None:
    svg = (ROOT / "docs" / "timeline.svg").read_text(encoding="utf-8")
    addresses = set(re.findall(r"https?://[^\s\"<)]+", svg))
    assert addresses <= {"http://www.w3.org/2000/svg", "https://www.textualize.io"}
