"""Addresses that a webhook may connect to where it is told to stay public. Pure."""

from __future__ import annotations

import ipaddress
from typing import Final

from stepwell.errors import PermanentError

_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")  # an IPv4 address in its last four bytes
_OWN_NAT64: Final = ipaddress.IPv6Network("64:ff9b:1::/48")


def is_public(address: str) -> bool:
    """Whether an address belongs to the internet, and not to this host, its network or something reserved."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if found in _OWN_NAT64:
            return False
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if inner is None and found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFF_FFFF)
        if inner is not None:
            found = inner
    return found.is_global and not found.is_multicast and not found.is_reserved


def refuse_private(address: str, host: str) -> None:
    """Raise unless the address is a public one."""
    if not is_public(address):
        raise PermanentError(f"{host} is not a public address, and this webhook is `public_only`")
