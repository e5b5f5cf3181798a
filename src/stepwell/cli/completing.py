"""`stepwell completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes a shell complete commands and options.

    \b
    Examples:
      eval "$(stepwell completion bash)"                          # in ~/.bashrc
      eval "$(stepwell completion zsh)"                           # in ~/.zshrc
      stepwell completion fish > ~/.config/fish/completions/stepwell.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    click.echo(kind(root, {}, "stepwell", "_STEPWELL_COMPLETE").source())
