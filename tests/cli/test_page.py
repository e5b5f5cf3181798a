"""The page about the command line says what the commands say, and its examples are commands."""

import re
import shlex
from collections.abc import Iterator

import click

from stepwell.cli import command
from stepwell.cli.main import main
from tests.cli.reference import PAGE, page

ROOT = PAGE.parent.parent
LINES = [
    (document.name, line)
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    for block in re.findall(r"```(?:sh|text)\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)
    for line in re.findall(r"^ *(stepwell (?!--)\w.*)$", block, re.MULTILINE)
]


def test_the_page_is_what_the_commands_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew: python -m tests.cli.reference"


def test_the_page_has_every_exit_code() -> None:
    rows = re.findall(r"^\| (\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    codes = {value for name, value in vars(command).items() if name.isupper() and isinstance(value, int)}
    assert {int(row) for row in rows} == codes


def test_every_example_is_a_command() -> None:
    """Every command of the pages can be said: its words and options are there."""
    assert LINES
    assert [f"{document}: {line}: {why}" for document, line in LINES for why in refused(line)] == []


def refused(line: str) -> Iterator[str]:
    """Why a line of a page is not one that the command line takes."""
    for part in re.split(r"\s[|>&]\s?", re.sub(r"\s&?\s*#.*$", "", line)):
        words = shlex.split(part.strip().rstrip("&"))
        if words[:1] != ["stepwell"]:
            continue
        try:
            found: click.Command = main
            words = words[1:]
            while isinstance(found, click.Group):
                found = found.commands[words.pop(0)]
            found.make_context(found.name, words, resilient_parsing=False)
        except (KeyError, click.UsageError) as error:
            yield repr(error)


def test_a_command_that_there_is_not_is_refused() -> None:
    assert list(refused("stepwell runs --limit 3 | head")) == []
    assert len(list(refused("stepwell pauze x"))) == len(list(refused("stepwell runs --statos x"))) == 1
