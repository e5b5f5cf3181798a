"""Build the pages of docs/ into site/: `make docs`.

The pages link to examples and to pages outside of docs/, as they should where the repository is read. For the site
these become pages too, so that no link leads nowhere; zensical is strict about that.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
STAGE = ROOT / ".cache" / "pages" / "docs"
OUTSIDE = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
LINK = re.compile(r"\]\((?P<file>[^)#\s:]+)(?P<anchor>#[^)\s]*)?\)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zensical", default="zensical", help="the program that builds")
    chosen = parser.parse_args()
    stage()
    subprocess.run([chosen.zensical, "build", "--clean", "--strict", "-f", STAGE.parent / "zensical.toml"], check=True)
    shutil.rmtree(ROOT / "site", ignore_errors=True)
    shutil.move(STAGE.parent / "site", ROOT / "site")


def stage() -> None:
    """Copy the pages, and what they link to, with links that lead from one page to another."""
    shutil.rmtree(STAGE, ignore_errors=True)
    shutil.copytree(ROOT / "docs", STAGE)
    for name in OUTSIDE:
        shutil.copy(ROOT / name, STAGE / staged(ROOT / name))
    for example in (ROOT / "examples").glob("*.py"):
        page = STAGE / staged(example)
        page.parent.mkdir(exist_ok=True)
        page.write_text(f"# {example.name}\n\n```python\n{example.read_text()}```\n", encoding="utf-8")
    for source in [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in OUTSIDE)]:
        page = STAGE / staged(source)
        page.write_text(relinked(source), encoding="utf-8")
    shutil.copy(ROOT / "zensical.toml", STAGE.parent)


def staged(source: Path) -> Path:
    """Where a file of the repository stands among the pages."""
    if source.is_relative_to(ROOT / "docs"):
        return source.relative_to(ROOT / "docs")
    if source.suffix == ".py":
        return Path("examples") / f"{source.stem}.md"
    return Path({"README": "index"}.get(source.stem, source.stem.lower()) + ".md")


def relinked(source: Path) -> str:
    place = STAGE / staged(source)

    def lead(link: re.Match[str]) -> str:
        target = (source.parent / link["file"]).resolve()
        if not target.is_file() or target.suffix not in (".md", ".py"):
            return link[0]
        return f"]({os.path.relpath(STAGE / staged(target), place.parent)}{link['anchor'] or ''})"

    return LINK.sub(lead, source.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
