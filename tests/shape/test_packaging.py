"""What is committed about versions names packages, versions and hashes, and the version itself is written once."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from stepwell._version import __version__
from tests.shape.sources import PACKAGE, ROOT

if TYPE_CHECKING:
    from pathlib import Path

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PIN = re.compile(r"^[a-z0-9][a-z0-9._-]*==\S+( ; [^;]+)? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")


def test_the_version_is_written_once() -> None:
    assert version("stepwell") == __version__
    assert PYPROJECT["project"]["dynamic"] == ["version"]
    assert (ROOT / PYPROJECT["tool"]["hatch"]["version"]["path"]).samefile(PACKAGE / "_version.py")


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_locks_hold_names_versions_and_hashes_only(lock: Path) -> None:
    lines = [line for line in lock.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert lines
    assert not [line for line in lines if not PIN.match(line) and not HASH.match(line)]


@pytest.mark.parametrize("path", [*LOCKS, ROOT / "pyproject.toml"], ids=lambda path: path.name)
def test_no_download_addresses(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"://|--(extra-)?index-url|--find-links|@ file:", text)


@pytest.mark.proves("G-05")
def test_the_base_install_needs_nothing_but_parsers_a_codec_and_a_terminal() -> None:
    """No client of a coordination service, a broker or a workflow language; cronsim reads cron expressions."""
    names = [re.split(r"[<>=;\[ ]", dependency)[0] for dependency in PYPROJECT["project"]["dependencies"]]
    assert sorted(names) == ["click", "cronsim", "msgspec", "rich", "tzdata"]


def test_every_base_dependency_is_locked() -> None:
    locked = (ROOT / "requirements" / "base.txt").read_text(encoding="utf-8")
    names = [re.split(r"[<>=;\[ ]", dependency)[0] for dependency in PYPROJECT["project"]["dependencies"]]
    assert [name for name in names if f"\n{name}==" not in locked] == []


def test_the_package_is_marked_as_typed() -> None:
    assert (PACKAGE / "py.typed").exists()
