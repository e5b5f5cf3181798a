"""Redaction of texts and URLs for errors, logs and `repr`: no password, token or key, even in a malformed URL.

If the end of a secret is unclear, more is hidden rather than less.
"""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"

_NAMES: Final = r"\w*(?:password|passwd|passphrase|pwd|secret|token|credential|api_?key)\w*|pass|pw"
_SECRETS: Final = re.compile(rf"(?i)\b((?:{_NAMES})\s*=\s*)('[^']*'|\"[^\"]*\"|[^&;\s]+)")
_CREDENTIALS: Final = re.compile(r"(\w+:?/+[^:/\s@]*):\S*@")
_CREDENTIALS_OF_URL: Final = re.compile(r"(?s)^([^/@:]*:?\s*/+[^:]*|[^:/@]*(?!:\s*/)):.*@")
# `postgresql://ann:secret%40host/db`: an escaped @, so that what looks like a port is the password.
_NO_PORT: Final = re.compile(r"^([^/@:]*:?\s*//(?!/)[^:/@?#\[]*):(?!\d{1,5}(?:[,/?#]|$))[^/?#@]+(?=[/?#]|$)")
_PARAMETER: Final = re.compile(r"[?&;][^&;]*")

# The parameters of a URL whose values are no secrets: ours, and those of libpq that are in common use.
_SHOWN: Final = frozenset(
    {"audit", "codec", "hang_after", "helper", "install", "keep", "keep_audit", "keep_dead_letters", "lease", "logs"}
    | {"pause_check_interval", "payload_limit", "pool", "retry", "schema", "seal_audit", "tenant", "timeout"}
    | {"visibility"}
    | {"application_name", "client_encoding", "connect_timeout", "dbname", "gssencmode", "host", "hostaddr", "port"}
    | {"require_auth", "search_path", "sslcert", "sslcrl", "sslmode", "sslnegotiation", "sslrootcert", "user"}
    | {"target_session_attrs", "unreadable_after"}
)


def redact(text: str) -> str:
    """The text without secrets: those in URLs, and the values of `password=`, `token=` and the like."""
    return _SECRETS.sub(rf"\1{HIDDEN}", _CREDENTIALS.sub(rf"\1:{HIDDEN}@", text))


def redact_url(url: str) -> str:
    """The URL for errors and logs: without its password, and without the values of unknown parameters."""
    place = _NO_PORT.sub(rf"\1:{HIDDEN}", _CREDENTIALS_OF_URL.sub(rf"\1:{HIDDEN}@", url))
    bare, mark, query = place.partition("?")
    shown = _PARAMETER.sub(lambda found: found[0][0] + _parameter(found[0][1:]), mark + query)
    return _SECRETS.sub(rf"\1{HIDDEN}", bare + shown)


def redact_option(option: str, value: object) -> object:
    """The value of an unknown option, redacted."""
    return value if option in _SHOWN else HIDDEN


def _parameter(text: str) -> str:
    name, mark, value = text.partition("=")
    if not value:
        return text if mark or not text else HIDDEN
    return f"{name}={redact_option(name, value)}"
