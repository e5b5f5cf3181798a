"""The command that serves the dashboard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from stepwell.cli.command import USAGE, Invocation, Stop, asks_store
from stepwell.cli.output import say

if TYPE_CHECKING:
    from stepwell.store.store import Store

PORT: Final = 7070


@click.command("ui")
@click.option("--app", metavar="APP", help="The module with your workflows and deciders: forms know their types.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Listen here; other machines need a token.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0 takes a free one.")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="Answer to this name of the host, too.")
@click.option(
    "--tokens",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with a line for each person: NAME, look or act, TOKEN. Or STEPWELL_UI_TOKEN.",
)
@click.option("--new-token", is_flag=True, help="Print a new token, and end.")
@click.option("--read-only", is_flag=True, help="Show, and change nothing.")
@click.option("--redact", multiple=True, metavar="PATTERN", help="Hide what workflows or queues of such names store.")
@asks_store
def ui(asked: Invocation, *, new_token: bool, **options: Any) -> None:
    """Serve the dashboard until Ctrl-C.

    It shows every run, and what can be done about it, in a browser on this machine. On other machines it opens with a
    token alone: see --tokens. It needs `pip install 'stepwell[ui]'`.

    \b
    Examples:
      stepwell ui
      stepwell ui --app shop --read-only
      stepwell ui --host 0.0.0.0 --allow-host ops.example.org --tokens /etc/stepwell/tokens
    """
    needed()
    _end_with_parent()
    if new_token:
        from stepwell.ui.access import new_secret

        say(new_secret())
        return
    asked.do(lambda store: _serve(store, **options))


def needed() -> None:
    """End the command if what the dashboard needs is not installed."""
    if absent := missing():
        said = f"the dashboard needs {', '.join(absent)}"
        Invocation(None, as_json=False).tell(USAGE, said, "pip install 'stepwell[ui]'")
        raise SystemExit(USAGE)


def _end_with_parent() -> None:
    """End when `stepwell dev` does, if that has started this process."""
    import os

    from stepwell.cli.supervisor import PARENT, end_with

    if parent := os.environ.pop(PARENT, ""):
        end_with(int(parent))


def missing() -> list[str]:
    """What the dashboard needs and is not installed."""
    from importlib.util import find_spec

    return [name for name in ("jinja2", "starlette", "uvicorn") if find_spec(name) is None]


async def _serve(store: Store, *, app: str | None, host: str, port: int, **options: Any) -> None:
    from getpass import getuser

    from stepwell.ui import Principal
    from stepwell.ui import app as dashboard
    from stepwell.ui.access import is_loopback
    from stepwell.ui.server import check_bind, serve

    tokens = _tokens(options.pop("tokens"))
    check_bind(host, tokens)
    if not is_loopback(host):
        options["hosts"] = (*options["hosts"], host)
    mine = None if tokens else _only_here(Principal(getuser()))
    made = dashboard(store, await _served(app, store), authorize=mine, tokens=tokens, name=app or "", **options)
    shown = f"[{host}]" if ":" in host else host

    def ready(bound: int) -> None:
        say(f"http://{shown}:{bound}/   Ctrl-C ends it", to_stderr=True)

    await serve(made, host, port, ready=ready)


async def _served(app: str | None, store: Store) -> list[Any]:
    """What APP defines; nothing without one."""
    if app is None:
        return []
    from stepwell.cli.parse import served

    return list(await served(app, store))


def _tokens(file: Path | None) -> list[Any]:
    import os

    from stepwell.ui.access import Token, read_tokens

    alone = os.environ.get("STEPWELL_UI_TOKEN")
    found = [Token("token", alone)] if alone else []
    if file is not None:
        try:
            found += read_tokens(file.read_text("utf-8"))
        except OSError as error:
            raise Stop(USAGE, f"the tokens cannot be read: {error}") from None
        if not found:
            raise Stop(USAGE, f"{file} has no token", "a line such as: ann act TOKEN")
    return found


def _only_here(principal: Any) -> Any:
    """The person whose machine this is, for requests of this machine alone."""
    from stepwell.ui.access import is_loopback
    from stepwell.ui.guard import FORWARDED

    def authorize(request: Any) -> Any:
        here = is_loopback(request.client.host if request.client else None)
        return principal if here and not any(one in request.headers for one in FORWARDED) else None

    return authorize
