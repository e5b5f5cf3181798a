"""`@pytest.mark.proves("Q-07", ...)`: which test proves which line of docs/requirements.md, and on which backend.

An id that the document does not have fails the collection of its file. `--proved=write` (`make requirements`) collects
without running, prints the report and rewrites the document's last column; `--proved=check` fails if it differs.
The backend is the value of a test's parameter `backend`; a test without one is `pure`.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Literal

import pytest

from tests import requirements

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

KNOWN = pytest.StashKey[frozenset[str]]()
WHOLE = pytest.StashKey[list[pytest.Item]]()
NARROWING = ("ignore", "ignore_glob", "lf")  # options that leave tests uncollected


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--proved", choices=("write", "check"), help="report what the tests prove instead of running them")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[KNOWN] = frozenset(requirement.id for requirement in requirements.read())


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    items = [node for node in report.result or () if isinstance(node, pytest.Item)]
    if complaints := list(unknown_ids(items, collector.config.stash[KNOWN])):
        report.outcome = "failed"
        report.longrepr = "\n".join(complaints)
        report.result = []
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep every test there is, where a run collects them all, before some are left out of it."""
    if is_whole(config):
        config.stash[WHOLE] = list(items)


def is_whole(config: pytest.Config) -> bool:
    """Whether this run collects every test, on every backend."""
    narrowed = any(config.getoption(option, None) for option in NARROWING)
    chosen = {"pure", *config.getoption("--backend", "").split(",")}
    return config.args == config.getini("testpaths") and not narrowed and chosen == set(requirements.BACKENDS)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Literal[True] | None:
    mode = session.config.getoption("--proved")
    if mode is None or session.testsfailed:
        return None
    proved = proofs(session.items)
    if mode == "write":
        before = requirements.PATH.read_text(encoding="utf-8")
        requirements.PATH.write_text(requirements.with_proofs(before, proved), encoding="utf-8")
        say(session, requirements.report(requirements.read(), proved))
    elif complaint := outdated(proved):
        say(session, complaint)
        session.testsfailed = 1
    return True


def outdated(proved: requirements.Proved) -> list[str]:
    """The lines of the document that are not what the tests prove; none if it is in step."""
    before = requirements.PATH.read_text(encoding="utf-8")
    after = requirements.with_proofs(before, proved)
    if before == after:
        return []
    changed = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]
    return ["docs/requirements.md is not what the markers say; `make requirements` renews it:", *changed]


def say(session: pytest.Session, lines: Iterable[str]) -> None:
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    for line in lines:
        reporter.write_line(line)


def ids(item: pytest.Item) -> Iterable[str]:
    for mark in item.iter_markers("proves"):
        yield from mark.args


def unknown_ids(items: Iterable[pytest.Item], known: frozenset[str]) -> Iterable[str]:
    for item in items:
        for given in ids(item):
            if given not in known:
                near = difflib.get_close_matches(str(given), sorted(known), n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                yield f"{item.nodeid} proves {given!r}, which docs/requirements.md does not have{hint}"


def proofs(items: Iterable[pytest.Item]) -> requirements.Proved:
    """A test that is skipped or expected to fail proves nothing."""
    proved: requirements.Proved = {}
    for item in items:
        if any(item.iter_markers("skip")) or any(item.iter_markers("xfail")):
            continue
        for given in ids(item):
            proved.setdefault(given, set()).add(backend_of(item))
    return proved


def backend_of(item: pytest.Item) -> str:
    callspec: Any = getattr(item, "callspec", None)
    backend = callspec.params.get("backend") if callspec else None
    if backend is None:
        return "pure"
    name = str(getattr(backend, "name", backend))
    if name not in requirements.BACKENDS:
        raise pytest.UsageError(f"{item.nodeid}: backend {name!r} is none of {', '.join(requirements.BACKENDS)}")
    return name
