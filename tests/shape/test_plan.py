"""The floor plan: names that say what is inside, modules of a size worth a file, packages that say what they are for.

What still breaks a rule stands below it, in `STILL`. The lists may only shrink: an entry that no longer breaks its rule
has to be removed.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.shape import sources
from tests.shape.map import LARGE, SMALL

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_SMALL = 15
LEAST_WORDS, MOST_LINES = 20, 9  # of the docstring of a package: about five lines
WORDS_OF_THE_FIELD = {
    "testing",
    "embedded",
    "pending",
    "limited",
}  # end like a verb's form, and are common nouns
TELLS_NOTHING = re.compile(
    "opened|together|tenure|alike|apart|joined|swift|at_once|handing|served|serving|faces|losses|shapes|family|kinds|states|"
    "machine|lifeline|look|notes|words|crew|living|letters|pieces|remembered|doomed|hands|asking|given|looking"
)
MIRRORS = {
    "sync": "has the classes of the async API under the same names",
    "store.helper_process": "imports nothing of stepwell",
}


def same_class_names() -> set[str]:
    """Names that more than one class has."""
    names = Counter(
        node.name
        for path in sources.MODULES
        if not any(f"{sources.module(path)}.".startswith(f"{mirror}.") for mirror in MIRRORS)
        for node in ast.walk(sources.tree(path))
        if isinstance(node, ast.ClassDef)
    )
    return {name for name, number in names.items() if number > 1}


def verbs_as_modules() -> set[str]:
    """Modules and packages that are named by a gerund or a participle, or by a word that tells a stranger nothing."""
    return {
        module
        for path in sources.MODULES
        if (name := (module := sources.module(path)).rpartition(".")[2]) not in WORDS_OF_THE_FIELD
        and (name.endswith(("ing", "ed")) or TELLS_NOTHING.fullmatch(name))
    }


def large_modules() -> set[str]:
    """Modules that are more than one subject."""
    return {sources.module(path) for path in sources.MODULES if sources.lines(path) > LARGE}


def packages_without_purpose() -> set[str]:
    """Packages whose docstring does not say, in about five lines, what is in them and what must not be."""
    return {
        sources.module(path) or "stepwell"
        for path in sources.MODULES
        if path.name == "__init__.py" and not says_purpose(ast.get_docstring(sources.tree(path)) or "")
    }


def says_purpose(docstring: str) -> bool:
    text = re.sub(r"```.*?```\n*", "", docstring, flags=re.DOTALL)  # an example may be long
    enough = len(text.split()) >= LEAST_WORDS and len(text.splitlines()) <= MOST_LINES
    return enough and re.search(r"must not|[Nn]othing\s+here", text) is not None


RULES: dict[str, Callable[[], set[str]]] = {
    "no two classes have the same name": same_class_names,
    "a module is named by a noun": verbs_as_modules,
    f"a module has at most {LARGE} lines": large_modules,
    "a package says what is in it and what must not be": packages_without_purpose,
}
STILL: dict[str, str] = {
    "no two classes have the same name": """
    """,
    "a module is named by a noun": "",
    f"a module has at most {LARGE} lines": "",
    "a package says what is in it and what must not be": "",
}


@pytest.mark.parametrize("rule", RULES)
def test_the_plan_is_kept(rule: str) -> None:
    found, still = RULES[rule](), set(STILL[rule].split())
    assert sorted(found - still) == [], rule
    assert sorted(still - found) == [], "no longer breaks the rule: remove it from STILL"


def test_few_modules_are_small() -> None:
    small = [path for path in sources.MODULES if path.name != "__init__.py" and sources.lines(path) < SMALL]
    assert len(small) <= MOST_SMALL, [sources.module(path) for path in small]


@pytest.mark.parametrize(
    ("docstring", "is_enough"),
    [
        ("", False),
        ("The store.", False),
        ("Verbs over one database. " * 10 + "SQL stands here and nowhere else; policy must not.", True),
        ("Verbs over one database. " * 10 + "SQL stands here and nowhere else.", False),
        ("Verbs over one database.\n" * 20 + "Policy must not.", False),
    ],
)
def test_what_a_package_says(docstring: str, is_enough: bool) -> None:
    assert says_purpose(docstring) is is_enough
