"""Write what docs/architecture.md takes from the code: `python -m tests.shape.architecture`.

The picture has a row for each layer of the import rules in pyproject.toml, and an arrow for each package that imports
another, unless the way over a package between them is drawn. The list of folders takes the first
sentence of the docstring of each package.
"""

from __future__ import annotations

import ast
import re
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

from tests.shape import sources

PAGE = sources.ROOT / "docs" / "architecture.md"
PICTURE = sources.ROOT / "docs" / "architecture.svg"
FOLDERS = re.compile(r"(?<=<!-- folders: written by `make architecture` -->\n).*?(?=<!-- end -->)", re.DOTALL)
WIDTH, GAP, BETWEEN, BESIDE, LINE, LETTER, BOW = 880, 12, 34, 40, 17, 8.2, 420  # pixels
STYLE = """
  text { font: 14px ui-monospace, Menlo, Consolas, monospace; fill: #1f2328; text-anchor: middle }
  .small { font-size: 11px; fill: #59636e }
  .package { fill: #ddf4ff; stroke: #0969da } .module { fill: #f6f8fa; stroke: #d1d9e0 }
  path { fill: none; stroke: #0969da; stroke-width: 1.3; opacity: .65 } marker path { fill: #0969da; opacity: 1 }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .small { fill: #9198a1 }
    .package { fill: #121d2f; stroke: #4493f8 } .module { fill: #151b23; stroke: #3d444d }
    path { stroke: #4493f8 } marker path { fill: #4493f8 }
  }
"""
MARKER = (
    '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0L8 4L0 8z"/></marker></defs>'
)


# ---- what the code says --------------------------------------------------------------------------------------------


def layers() -> list[list[str]]:
    """The rows of the import rules, the highest first."""
    settings = tomllib.loads((sources.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [rule] = [one for one in settings["tool"]["importlinter"]["contracts"] if one["type"] == "layers"]
    return [re.split(r"\s*[|:]\s*", row) for row in rule["layers"]]


def packages() -> dict[str, str]:
    """Every package below stepwell with its docstring, each before those inside it."""
    inits = [path for path in sources.MODULES if path.name == "__init__.py" and path.parent != sources.PACKAGE]
    return {sources.module(path): ast.get_docstring(sources.tree(path)) or "" for path in inits}


def arrows() -> list[tuple[str, str]]:
    """Which package of the first level imports which, without what a way over a row between says already."""
    height = {name: number for number, row in enumerate(layers()) for name in row}
    tops = {name for name in packages() if "." not in name}
    found = {
        (upper, lower)
        for importer, each in sources.imports().items()
        for imported in each
        if (upper := importer.partition(".")[0]) in tops
        and (lower := imported.partition(".")[0]) in tops
        and upper != lower
    }

    def is_told(upper: str, lower: str) -> bool:
        over = (one for one in tops if height[upper] < height[one] < height[lower])
        return any((upper, one) in found and (one, lower) in found for one in over)

    return sorted(arrow for arrow in found if not is_told(*arrow))


# ---- what the page shows -------------------------------------------------------------------------------------------


def folders() -> str:
    """The list of folders, as Markdown."""
    rows = [f"| `{name.replace('.', '/')}/` | {first_sentence(text)} |" for name, text in packages().items()]
    return "\n".join(["| folder | what is in it |", "|---|---|", *rows, ""])


def first_sentence(text: str) -> str:
    """Up to the first full stop that ends a sentence."""
    return re.split(r"(?<=\.)\s", " ".join(text.split()), maxsplit=1)[0]


def picture() -> str:
    """The layers and the packages in them, as SVG."""
    boxes = list(placed(rows()))
    spots = {name: box for box in boxes for name in box.names}
    height = max(box.bottom for box in boxes) + GAP
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            "<title>The packages of stepwell: a row imports from the rows below it, never the reverse</title>",
            f"<style>{STYLE}</style>",
            MARKER,
            *(arrow(spots[upper], spots[lower]) for upper, lower in arrows()),
            *(line for box in boxes for line in box.drawn()),
            "</svg>\n",
        ]
    )


@dataclass(frozen=True)
class Box:
    """A package, or the modules of a row."""

    names: tuple[str, ...]
    lines: tuple[str, ...]
    left: float = 0
    top: int = 0

    @property
    def width(self) -> float:
        """As wide as its longest line."""
        return max(90.0, round(24 + LETTER * max(map(len, self.lines)), 1))

    @property
    def height(self) -> int:
        """As high as its lines."""
        return 16 + LINE * len(self.lines)

    @property
    def middle(self) -> float:
        """Where arrows begin and end."""
        return round(self.left + self.width / 2, 1)

    @property
    def bottom(self) -> int:
        """Where arrows begin."""
        return self.top + self.height

    def drawn(self) -> Iterator[str]:
        """The frame and the words."""
        kind = "package" if self.names[0] in packages() else "module"
        size = f'width="{self.width}" height="{self.height}"'
        yield f'<rect class="{kind}" x="{self.left}" y="{self.top}" {size} rx="6"/>'
        for number, line in enumerate(self.lines):
            small = ' class="small"' if number and kind == "package" else ""
            yield f'<text{small} x="{self.middle}" y="{self.top + 22 + LINE * number}">{escape(line)}</text>'


def rows() -> list[list[Box]]:
    """The boxes of each row; rows without a package that follow each other are one."""
    joined: list[list[str]] = []
    for row in layers():
        if joined and not (set(row) | set(joined[-1])) & set(packages()):
            joined[-1] += row
        else:
            joined.append(row)
    return [list(boxes_of(row)) for row in joined]


def boxes_of(row: list[str]) -> Iterator[Box]:
    """A box for each package, and one for all modules, which stands in the middle."""
    own = [package_box(name) for name in row if name in packages()]
    modules = tuple(name for name in row if name not in packages())
    yield from own[: len(own) // 2]
    if modules:
        yield Box(modules, tuple(textwrap.wrap("  ".join(modules), 70, break_long_words=False)))
    yield from own[len(own) // 2 :]


def package_box(name: str) -> Box:
    """A package with the names of those inside it."""
    inside = [one.removeprefix(name + ".") for one in packages() if one.startswith(name + ".")]
    return Box((name,), (f"{name}/", " ".join(f"{one}/" for one in inside)) if inside else (f"{name}/",))


def placed(rows: Sequence[Sequence[Box]]) -> Iterator[Box]:
    """The boxes where they are drawn, each row in the middle of the picture."""
    top = GAP
    for row in rows:
        left = (WIDTH - sum(box.width + BESIDE for box in row) + BESIDE) / 2
        for box in row:
            yield replace(box, left=round(left, 1), top=top)
            left += box.width + BESIDE
        top += max(box.height for box in row) + BETWEEN


def arrow(upper: Box, lower: Box) -> str:
    """A line from one box down to another; beside each other, from side to side."""
    if upper.top == lower.top:
        y = upper.top + 20
        sides = (
            (upper.left + upper.width, lower.left)
            if upper.left < lower.left
            else (upper.left, lower.left + lower.width)
        )
        return f'<path d="M{sides[0]:.1f} {y}L{sides[1]:.1f} {y}" marker-end="url(#end)"/>'
    bend = (lower.top - upper.bottom) / 2
    is_hidden = bend > BETWEEN * 2 and abs(upper.middle - lower.middle) < BESIDE  # it would run behind other boxes
    aside = BOW if is_hidden else 0
    start, end = f"{upper.middle} {upper.bottom}", f"{lower.middle} {lower.top}"
    middle = f"{upper.middle + aside} {upper.bottom + bend:.1f} {lower.middle + aside} {lower.top - bend:.1f}"
    return f'<path d="M{start}C{middle} {end}" marker-end="url(#end)"/>'


def written() -> dict[Path, str]:
    """The page and the picture as they should be."""
    page = PAGE.read_text(encoding="utf-8")
    return {PAGE: FOLDERS.sub(lambda _: folders(), page), PICTURE: picture()}


def main() -> None:
    """Write both."""
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
