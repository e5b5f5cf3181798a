"""Loopback ports for servers that go away and come back under the same number."""

import random
import socket

# Below the range the kernel hands to outgoing connections (32768 and up): a client that keeps dialling
# a dead port inside that range sooner or later is given that very port as its own and talks to itself,
# and the server that wants to return finds its place taken.
_LOWEST, _HIGHEST = 15_000, 32_000

# Not the seeded generator of the tests: two test processes must not try the same ports.
_chance = random.SystemRandom()


def free_port() -> int:
    """Name a loopback port that nothing is bound to right now."""
    for _ in range(1000):
        port = _chance.randint(_LOWEST, _HIGHEST)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free loopback port between {_LOWEST} and {_HIGHEST}")
