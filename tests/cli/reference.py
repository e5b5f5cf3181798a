"""The part of docs/cli.md that the commands themselves say: `python -m tests.cli.reference` writes it anew."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from stepwell.cli.main import SECTIONS, main

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
BEGIN: Final = "<!-- what follows is written by `python -m tests.cli.reference` -->"


def reference() -> str:
    """Every command with its `--help`, under the headings of `stepwell --help`."""
    parts = [BEGIN]
    for heading, commands in SECTIONS.items():
        parts.append(f"## {heading}")
        for command in commands:
            for words, each in _each(command, ("stepwell", command.name or "")):
                parts.append(f"### `{' '.join(words)}`\n\n```text\n{_help(words, each)}\n```")
    return "\n\n".join(parts) + "\n"


def page() -> str:
    """The whole page as it should be: what people wrote, then what the commands say."""
    written, _, _ = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return written + reference()


def _each(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from _each(each, (*words, name))
    else:
        yield words, command


def _help(words: tuple[str, ...], command: click.Command) -> str:
    context = main.make_context(words[0], [], resilient_parsing=True, max_content_width=100, terminal_width=100)
    group: click.Command = main
    for word in words[1:]:
        assert isinstance(group, click.Group)
        group = group.commands[word]
        context = click.Context(group, info_name=word, parent=context, max_content_width=100, terminal_width=100)
    command._help_option = None  # as `-h, --help` or not: kept by click from whoever asked first
    return re.sub(r"[ \t]+$", "", command.get_help(context), flags=re.MULTILINE)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
