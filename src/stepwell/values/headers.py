"""Headers: a few texts, such as a tenant or a trace, that travel with work and with the work that it leads to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from stepwell.base.names import check_name
from stepwell.errors import InvalidOption
from stepwell.values.codec import decode, encode

Headers = Mapping[str, str]
MOST: Final = 20
SUBJECT: Final = "subject"  # in an encrypted store: whose it is, who may have to be forgotten
LONGEST: Final = 4096  # characters of all of them together, as JSON
NONE: Final[Headers] = {}


def headers_text(given: Headers | None, inherited: str | None = None) -> str | None:
    """Headers as they are stored: those given, over those inherited; None if there are none."""
    if given is not None:
        _check(given)
    if not given:
        return inherited
    merged = {**headers_in(inherited), **given}
    text = encode(merged)
    if len(merged) > MOST or len(text) > LONGEST:
        raise InvalidOption("headers", given, f"at most {MOST}, and {LONGEST:,} characters with those inherited")
    return text


def _check(given: object) -> None:
    if not isinstance(given, Mapping):
        raise InvalidOption("headers", given, "headers are a dict of texts")
    for name, value in given.items():
        check_name("header", name)
        if not isinstance(value, str) or "\x00" in value:
            raise InvalidOption("headers", given, f"the value of {name} is a text, without a NUL")


def headers_in(text: Any) -> Headers:
    """Headers that are stored."""
    if text is None:
        return NONE
    read: dict[str, str] = decode(text)
    return read
