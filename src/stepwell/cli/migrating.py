"""What `stepwell migrate` does."""

from __future__ import annotations

from stepwell.admin import admin
from stepwell.cli.asking import Asked
from stepwell.cli.exits import OK
from stepwell.cli.opening import opened
from stepwell.cli.output import say, say_json, say_next
from stepwell.cli.patience import patiently
from stepwell.connecting import Config
from stepwell.redaction import redact_url
from stepwell.store import schema
from stepwell.store.pieces import watched
from stepwell.store.sql import Dialect, Statements
from stepwell.store.store import Store


async def migrated(asked: Asked) -> int:
    """Make or upgrade the tables and say from which release's to which."""
    backend, before, now = await patiently(asked, _migrate(asked), "bringing the tables up to date")
    if asked.as_json:
        say_json({"backend": backend, "schema": now, "before": before})
        return OK
    place = redact_url(Config(asked.url).url)
    if before == now:
        say(f"{place} has schema {now}, which is this release's: nothing was changed")
    elif before == 0:
        say(f"{place} has its tables now: schema {now}, which is this release's")
    else:
        say(f"{place} went from schema {before} to {now}, which is this release's")
    say_next("stepwell worker APP")
    return OK


async def _migrate(asked: Asked) -> tuple[str, int, int]:
    """The backend, and the schema before and after."""
    applied: list[int] = []
    with watched(applied.append):
        async with opened(asked.url, install=True) as store:
            now = await schema.version(store.driver)
            return store.driver.name, now - sum(applied), now


async def verified(store: Store, asked: Asked) -> int:
    """Compare the tables with this release's; raises what differs."""
    await admin(store).verify()
    if asked.as_json:
        say_json({"verified": True})
    else:
        say("the tables are exactly this release's")
    return OK


def printed(asked: Asked) -> int:
    """Print what makes the tables in an empty database."""
    config = Config(asked.url or "sqlite:///stepwell.db")
    dialect: Dialect = "postgres" if config.url.startswith("postgres") else "sqlite"
    texts = schema.script(Statements(dialect, config.schema))
    if asked.as_json:
        say_json({"dialect": dialect, "statements": texts})
    else:
        for text in texts:
            say(f"{text};\n")
    return OK
