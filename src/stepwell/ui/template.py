"""The templates, and how values are written in them. Every value is escaped: nothing that is stored becomes markup."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from stepwell.operate.format import many, plain, short, span
from stepwell.operate.status import state_of, took, word_of
from stepwell.values.named_codecs import shown_value

MOST_SHOWN: Final = 16_384  # characters of a value that a page shows
MOST_COLOURED: Final = 8_192
_TOKENS: Final = re.compile(r'("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d[\d.eE+-]*)|\b(true|false|null)\b')


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The environment of all templates."""
    made = Environment(
        loader=PackageLoader("stepwell.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "span": span,
        "short": short,
        "cut": lambda text, most: text if len(text) <= most else f"{text[:most]} …",
        "json": as_json,
        "moment": moment,
        "clock": clock,
        "since": since,
        "number": number,
        "amount": amount,
        "glyph": lambda words: words.partition(" ")[0],
        "word": lambda words: words.partition(" ")[2],
        "coded": coded,
        "remedy": remedy,
        "capitalize_first": lambda text: text[:1].upper() + text[1:].rstrip("."),
    }
    made.globals |= {"plain_output": lambda run: shown_value(run.output_text)}
    made.globals |= {
        "word_of": word_of,
        "took": took,
        "state_of": state_of,
        "many": many,
        "now": lambda: datetime.now(UTC),
    }
    return made


def template(name: str) -> Template:
    """The template of this name."""
    return environment().get_template(name)


def coded(text: str) -> Markup:
    """A sentence, with what stands between backticks as code."""
    parts = text.removesuffix(".").split("`")
    if len(parts) % 2 == 0:
        return escape(f"{text}.")
    said = [Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in enumerate(parts)]
    return Markup("").join([*said, "" if parts[-1] == "" else "."])


def remedy(text: str) -> Markup:
    """What is to be done about a finding: a command as it stands, or a sentence with code in it."""
    return coded(text) if "`" in text or not text.startswith("stepwell ") else Markup("<code>{}</code>").format(text)


def clock(at: datetime | None) -> str:
    """A moment as a person reads it on a day: with its date if that is another one."""
    if at is None:
        return "—"
    today = datetime.now(UTC).date()
    if at.date() == today:
        return f"{at:%H:%M:%S}"
    return f"{at:%b} {at.day}, {at:%H:%M}" if at.year == today.year else f"{at:%Y-%m-%d}"


def moment(at: datetime | None) -> Markup:
    """A moment, in UTC; the page's script says how long ago that is."""
    if at is None:
        return Markup("—")
    exact = at.strftime("%Y-%m-%d %H:%M:%S UTC")
    return Markup('<time data-ago datetime="{}" title="{}">{}</time>').format(at.isoformat(), exact, clock(at))


def since(at: datetime | None) -> Markup:
    """How long something lasts that has not ended; the page's script counts on."""
    if at is None:
        return Markup("—")
    return Markup('<time data-since datetime="{}">since {}</time>').format(at.isoformat(), clock(at))


def number(value: Any) -> str:
    """A number with thin separators; one that is only a floor says so."""
    if getattr(value, "is_floor", False):
        return str(value)
    return f"{int(value):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def amount(value: float) -> str:
    """A number that need not be whole, as exactly as a person reads it."""
    return number(round(value)) if value >= 10 else f"{value:.2f}".rstrip("0").rstrip(".")


def as_json(value: Any) -> Markup:
    """A value as indented JSON, cut where it is too long for a page, its numbers as they are."""
    text = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False, indent=2)
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
    cut = Markup('<i class="cut">… {} more characters: open it whole</i>').format(number(len(text) - MOST_SHOWN))
    shown = text[:MOST_SHOWN]
    painted = Markup("").join(_painted(shown)) if len(shown) <= MOST_COLOURED else escape(shown)
    return painted + cut if len(text) > MOST_SHOWN else painted


def _painted(text: str) -> Iterator[Markup]:
    at = 0
    for found in _TOKENS.finditer(text):
        yield escape(text[at : found.start()])
        at = found.end()
        string, colon, digits, word = found.groups()
        if string is not None and colon is not None:
            yield Markup('<b class="j-key">{}</b>{}').format(string, colon)
        else:
            kind = "j-text" if string is not None else "j-number" if digits is not None else "j-word"
            yield Markup('<b class="{}">{}</b>').format(kind, string or digits or word)
    yield escape(text[at:])
