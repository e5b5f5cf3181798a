"""The fenced Python blocks of the documentation, and a runner: `python -m tests.shape.blocks README.md apart 12 40`.

A block is a whole program. It may use `await` at its top level; the line numbers of a traceback are the document's.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<code>.*?)^(?P=indent)```\s*$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\b\d+(-[0-9a-f]{8,})?")  # ids, keys and times differ from one time to the next


@dataclass(frozen=True)
class Block:
    document: Path
    line: int
    info: str
    code: str
    promised: str = ""  # the text block that follows at once: what it prints

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT).as_posix()}:{self.line}"

    @property
    def is_python(self) -> bool:
        return re.match(r"(python|py)\b", self.info, re.IGNORECASE) is not None

    @property
    def saved_as(self) -> str | None:
        """The file that its first line names."""
        named = re.match(r"# (\w+\.py)\n", self.code)
        return None if named is None else named[1]


def blocks(document: Path) -> list[Block]:
    text = document.read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    return [
        Block(
            document,
            text.count("\n", 0, match.start()) + 1,
            match["info"].strip(),
            match["code"],
            ""
            if after is None or after["info"] != "text" or text[match.end() : after.start()].strip()
            else after["code"],
        )
        for match, after in zip_longest(found, found[1:])
    ]


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def run(block: Block) -> None:
    """Execute a block as the program it shows, in the real `__main__`, so that types and workers find their names."""
    source = "\n" * block.line + block.code
    code = compile(source, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, sys.modules["__main__"].__dict__)
    if inspect.iscoroutine(result):
        asyncio.run(result)


def run_each(chosen: Sequence[Block], *, apart: bool) -> list[Block]:
    """Execute each as a program, here or in an empty folder of its own; those that failed.

    Each is forked from this process, which has imported stepwell already: that would take most of the time.
    """
    import stepwell.api  # noqa: F401, PLC0415

    return [block for block in chosen if _failed(block, Path(f"line-{block.line}") if apart else Path())]


def _failed(block: Block, folder: Path) -> bool:
    printed = [Path(f"{block.document.stem}-{block.line}.{kind}").resolve() for kind in ("out", "err")]
    pid = os.fork()
    if pid:
        status = os.waitpid(pid, 0)[1]
        out, err = (file.read_text() for file in printed)
        sys.stdout.write(out)
        sys.stderr.write(err)
        return status != 0 or not _is_as_promised(block.promised, out, err)
    for file, descriptor in zip(printed, (1, 2), strict=True):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    run(block)
    raise SystemExit(0)


def _is_as_promised(promised: str, out: str, err: str) -> bool:
    """True if it printed those lines, whatever the numbers; beside them only its log may say more."""
    wanted, printed, logged = (Counter(NUMBER.sub("0", text).splitlines()) for text in (promised, out, err))
    missing, more = wanted - printed - logged, printed - wanted if promised else None
    if missing or more:
        sys.stderr.write(f"promised, and not printed: {missing}\nprinted, and not promised: {more}\n")
    return not missing and not more


def main(document: str, where: str, *lines: str) -> None:
    """Run the blocks of a document that begin at these lines, each `apart` or all `here`."""
    wanted = [block for block in blocks(Path(document).resolve()) if str(block.line) in lines]
    if failed := run_each(wanted, apart=where == "apart"):
        sys.exit(f"failed: {', '.join(map(str, failed))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
