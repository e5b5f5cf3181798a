"""The rules for names, keys, tags and small numbers, in one place.

They are checked before any write, so that a bad name is refused with a reason, and the same way on every database.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from stepwell.errors import InvalidName, InvalidOption

LONGEST_NAME: Final = 255
MOST_TAGS: Final = 20
MOST_ATTEMPTS: Final = 1_000
LOWEST_PRIORITY: Final = -32_768
SHIELD: Final = "shield()"  # the label of the branch of a shield; no function can have this name
REQUEST: Final = "?"  # before the name of a signal whose sender waits for an answer: no name of a user's begins so
EVENT: Final = "@"  # before the name of a call that waits for an event that is broadcast
HIGHEST_PRIORITY: Final = 32_767

_SIGNS: Final = frozenset("_.:-")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:-]{1,255}")  # most names match this, without a check of each character
_NAME_RULE: Final = "a name is 1 to 255 letters, digits and `_ . - :`"
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_SQL_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


def check_name(kind: str, name: object) -> str:
    """The name, if a queue, workflow, signal or handler may have it: 1 to 255 letters, digits, `_ . - :`."""
    if not isinstance(name, str):
        hint = "; a workflow is asked for with `.trigger(...).execute(store)`" if hasattr(name, "trigger") else ""
        raise InvalidName(kind, name, f"a name is text, not {type(name).__name__}{hint}")
    if _PLAIN.fullmatch(name):
        return name
    if not 1 <= len(name) <= LONGEST_NAME or not all(map(_may_stand_in_a_name, name)):
        raise InvalidName(kind, name, _NAME_RULE)
    # One letter has one spelling, or two names that are the same text would differ: `é` is one character or two. The
    # name of a Python function always has this form.
    if name != (plain := unicodedata.normalize("NFC", name)):
        raise InvalidName(kind, name, f"{_NAME_RULE}, in Unicode's normal form NFC: {plain!a}")
    return name


def _may_stand_in_a_name(character: str) -> bool:
    """True for letters with their marks, digits and the four signs; not for spaces, quotes, symbols and controls."""
    return character in _SIGNS or unicodedata.category(character)[0] in "LMN"


def check_key(key: object, kind: str = "key") -> str:
    """The key, if it is 1 to 255 characters of any text without NUL and lone surrogates."""
    if not isinstance(key, str):
        raise InvalidName(kind, key, f"it is text, not {type(key).__name__}")
    if not 1 <= len(key) <= LONGEST_NAME:
        raise InvalidName(kind, key, f"it has 1 to {LONGEST_NAME} characters, not {len(key)}")
    if UNSTORABLE.search(key):
        raise InvalidName(kind, key, "it holds a NUL character or a lone surrogate, which no database stores")
    return key


def check_identifier(name: object) -> str:
    """The name of a schema, if SQL allows it."""
    if not isinstance(name, str) or not _SCHEMA.fullmatch(name):
        raise InvalidName("schema", name, "it matches [a-z_][a-z0-9_]{0,47}")
    return name


def check_schema(name: object) -> str:
    """The name of a schema, if SQL allows it and no database reserves it."""
    name = check_identifier(name)
    if name.startswith(("pg_", "sqlite")) or name == "information_schema":
        raise InvalidName("schema", name, "the databases reserve names like this")
    return name


def check_sql_name(kind: str, name: object) -> str:
    """The name of a table that stepwell makes for a user, or of one of its columns, if every database takes it.

    Two underscores are stepwell's own: `orders__2` is the table of a second build, `ann__orders` that of a tenant.
    """
    if not isinstance(name, str) or not _SQL_NAME.fullmatch(name) or "__" in name or name.startswith(("pg_", "sqlite")):
        raise InvalidName(
            kind, name, "it matches [a-z][a-z0-9_]{0,39}, without `__`, and is no name like pg_ or sqlite"
        )
    return name


def check_id(task_id: object) -> int:
    """The id of a task, if it is in the valid range."""
    return check_whole("id", task_id, -(2**63), 2**63 - 1)


def check_filter(option: str, text: object) -> str | None:
    """The text to search for, if a database can store it; None matches everything."""
    return None if text is None else check_key(text, option)


def check_priority(priority: object) -> int:
    """The priority, if it is a whole number that fits 16 bits; higher runs first."""
    return check_whole("priority", priority, LOWEST_PRIORITY, HIGHEST_PRIORITY)


def check_max_attempts(max_attempts: object) -> int:
    """The number of attempts, from 1 to 1000."""
    return check_whole("max_attempts", max_attempts, 1, MOST_ATTEMPTS)


def check_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """The tags in the given order, without duplicates: at most 20."""
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise InvalidOption("tags", tags, "tags are several texts: pass a tuple or a list")
    checked = tuple(dict.fromkeys(check_key(tag, "tag") for tag in tags))
    if len(checked) > MOST_TAGS:
        raise InvalidOption("tags", checked, f"at most {MOST_TAGS} tags, not {len(checked)}")
    return checked


def check_prefix(prefix: object) -> str:
    """The prefix of queue names, if a name may begin with it; it is compared literally, without wildcards."""
    return check_name("prefix", prefix)


def is_served(queue: str, handlers: Iterable[str]) -> bool:
    """True if a worker with these `handlers` serves the queue: by its name, or by a prefix such as `media.*`."""
    return any(queue == one or (one.endswith("*") and queue.startswith(one[:-1])) for one in handlers)


def is_version(handler: str) -> bool:
    """True if what a worker has registered is a version that it reads: no name has a slash, other marks have two."""
    return handler.count("/") == 1


def check_whole(option: str, value: object, least: int, most: int) -> int:
    """The number, if it is an integer within these bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOption(option, value, f"it is a whole number, not {type(value).__name__}")
    if not least <= value <= most:
        raise InvalidOption(option, value, f"it is between {least} and {most}")
    return int(value)


def is_shielded(key: str) -> bool:
    """True if a call with this key, or a branch with this path, is inside of a shield."""
    return f"{SHIELD}:" in key.rpartition("/")[0]
