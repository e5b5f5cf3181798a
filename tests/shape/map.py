"""The size of the house in numbers: `python -m tests.shape.map`.

Of a file every line counts, of a function those of its body. A module that a single other one imports is perhaps a part
of that one; `__init__` files count as modules here, and as importers.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections import Counter

from tests.shape import sources

SMALL = 45  # lines: a module with fewer has to say why it is one
LARGE = 400


def figures() -> dict[str, str]:
    """What is counted, by name."""
    lines = {sources.module(path) or "__init__": sources.lines(path) for path in sources.MODULES}
    bare = [path for path in sources.MODULES if path.name != "__init__.py"]
    functions = {
        f"{sources.module(path)}.{node.name}": sources.body_lines(node)
        for path in sources.MODULES
        for node in ast.walk(sources.tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    sizes = [sources.lines(path) for path in bare]
    return {
        "modules": str(len(lines)),
        "of these in the command line": str(sum(name.partition(".")[0] == "cli" for name in lines)),
        "lines": f"{sum(lines.values()):,}",
        "mean / median file": f"{statistics.mean(lines.values()):.0f} / {statistics.median(lines.values()):.0f}",
        "largest file": largest(lines),
        "largest function": largest(functions),
        f"over {LARGE} lines": str(sum(size > LARGE for size in sizes)),
        f"under {SMALL} lines, without `__init__`": str(sum(size < SMALL for size in sizes)),
        "with a single importer": str(len(single_importers())),
        "of these outside the command line": str(sum(not name.startswith("cli.") for name in single_importers())),
        "imports between modules": f"{sum(map(len, sources.imports().values())):,}",
    }


def largest(sizes: dict[str, int]) -> str:
    """The largest with its name."""
    name = max(sizes, key=sizes.__getitem__)
    return f"{sizes[name]} (`{name}`)"


def single_importers() -> list[str]:
    """Modules that exactly one other module imports."""
    importers = Counter(imported for each in sources.imports().values() for imported in each)
    return sorted(name for name, number in importers.items() if number == 1)


def main() -> None:
    """Print them, as Markdown; with `--single` the modules that have one importer."""
    if "--single" in sys.argv:
        sys.stdout.write("\n".join(single_importers()) + "\n")
        return
    sys.stdout.write("| | |\n|---|--:|\n")
    sys.stdout.writelines(f"| {name} | {value} |\n" for name, value in figures().items())


if __name__ == "__main__":
    main()
