"""The command line before a command does anything: help, version, and what is loaded for it."""

import ast
import importlib
import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

import stepwell
from stepwell import __version__, api
from stepwell.cli.main import SECTIONS, main
from tests.cli.kit import Cli

LOADED = """
import atexit, sys
atexit.register(lambda: print(sorted(sys.modules)))
from stepwell.cli.main import main
main({arguments!r})
"""


def every_command(group: click.Group = main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command and group."""
    yield path
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from every_command(command, (*path, name))
        else:
            yield (*path, name)


COMMANDS = list(every_command())


def named(words: tuple[str, ...]) -> click.Command:
    found: click.Command = main
    for word in words:
        assert isinstance(found, click.Group)
        found = found.commands[word]
    return found


def test_every_command_says_what_it_does() -> None:
    for command in COMMANDS:
        done = CliRunner().invoke(main, [*command, "--help"])
        assert (done.exit_code, done.stderr) == (0, ""), command
        assert "Usage: " in done.stdout, command
        assert len(done.stdout.splitlines()) > 5, command


def test_every_command_that_asks_a_store_answers_json_and_takes_a_url() -> None:
    asking = [words for words in COMMANDS if not isinstance(named(words), click.Group)]
    asking = [words for words in asking if words not in {("completion",), ("demo",)}]
    assert asking
    assert [w for w in asking if not {"as_json", "url"} <= {parameter.name for parameter in named(w).params}] == []


def test_help_lists_every_command() -> None:
    out = CliRunner().invoke(main, ["--help"]).stdout
    assert {one.name for commands in SECTIONS.values() for one in commands} == set(main.commands)
    for name in main.commands:
        assert f"\n  {name} " in out


def test_what_a_command_is_for_fits_on_a_line() -> None:
    """In the list that a person of 80 columns sees, nothing is cut or wrapped."""
    told = {words: named(words) for words in COMMANDS if words}
    assert [w for w, one in told.items() if one.get_short_help_str(1000) != one.get_short_help_str(67)] == []


def test_version() -> None:
    assert CliRunner().invoke(main, ["--version"]).stdout == f"stepwell, version {__version__}\n"


def test_a_misspelt_command_is_a_usage_error() -> None:
    done = CliRunner().invoke(main, ["dmeo"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "error: no such command 'dmeo'. Did you mean 'demo'?",
        "try:   stepwell --help",
    ]


@pytest.mark.parametrize(
    ("words", "said", "tried"),
    [
        (["queue", "pauze", "x"], "no such command 'pauze'", "stepwell queue --help"),
        (["runs", "--statos", "failed"], "no such option '--statos'", "stepwell runs --help"),
        (["show"], "missing argument 'RUN'", "stepwell show --help"),
        (["runs", "--limit", "0"], "invalid value for '--limit'", "stepwell runs --help"),
    ],
)
def test_wrong_use_is_told_as_other_errors_are(words: list[str], said: str, tried: str) -> None:
    done = Cli(None)(*words, code=2)
    assert done.error.startswith(f"error: {said}")
    assert done.error.endswith(f"try:   {tried}\n")
    command = [sys.executable, "-m", "stepwell", *words, "--json"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert json.loads(process.stderr)["try"].endswith(tried)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["show", "--help"], ["dead", "ls", "--help"]], ids=" ".join
)
def test_help_loads_next_to_nothing(arguments: list[str]) -> None:
    """Counted, not timed: the packages that take long to import, and how many modules of our own."""
    program = LOADED.format(arguments=arguments)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    loaded = ast.literal_eval(done.stdout.splitlines()[-1])
    packages = {name.partition(".")[0] for name in loaded}
    assert "click" in packages
    assert not packages & {"rich", "sqlite3", "asyncio", "asyncpg", "turso", "msgspec"}
    ours = {name for name in loaded if name.startswith("stepwell")}
    small = {"stepwell", "stepwell._version", "stepwell.base", "stepwell.base.count"}
    small |= {"stepwell.operate", "stepwell.operate.format"}
    assert all(name in small or name.startswith("stepwell.cli") for name in ours), ours
    assert len(ours) < 30


def test_the_package_has_what_api_has_whatever_was_imported_before() -> None:
    """A module never hides the public thing of its name: `stepwell.step` is the decorator."""
    for module in pkgutil.walk_packages(stepwell.__path__, "stepwell."):
        if ".joins." not in module.name and "__main__" not in module.name:
            importlib.import_module(module.name)
    for name in api.__all__:
        assert getattr(stepwell, name) is getattr(api, name), name
    assert set(api.__all__) <= set(dir(stepwell))
    assert vars(stepwell).get("__all__", api.__all__) == api.__all__
    with pytest.raises(AttributeError, match="module 'stepwell' has no attribute 'nope'"):
        stepwell.nope  # type: ignore[attr-defined] # noqa: B018


@pytest.mark.parametrize("first", ["stepwell.step", "stepwell.testing", "stepwell.cli.main", "stepwell.connect"])
def test_a_fresh_process_finds_the_decorators(first: str) -> None:
    program = (
        f"import {first}; from stepwell import step, workflow, admin, consumer; step(lambda: 1); print(step.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "step\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    assert "_STEPWELL_COMPLETE" in Cli(None)("completion", shell).out
