"""`python -m bench.upcast`: what versions and upcasters cost, in CPU time of this process. No database is involved.

Each is measured in turns beside what it is compared with, and the least of the rounds counts: other programs only add.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from stepwell import upcast
from stepwell.deciders.type_names import Kinds
from stepwell.values.codec import decode, encode
from stepwell.values.stamp import read_value, write_value

ROUNDS: Final = 15
CALLS: Final = 10_000


@dataclass(frozen=True)
class Plain:
    order: str
    cents: int
    currency: str


@dataclass(frozen=True)
class Placed:
    __stepwell_version__: ClassVar[int] = 3
    order: str
    cents: int
    currency: str


@upcast(Placed, 1)
def _(old: dict[str, Any]) -> dict[str, Any]:
    return {"order": old["order"], "cents": old["price"] * 100}


@upcast(Placed, 2)
def _(old: dict[str, Any]) -> dict[str, Any]:
    return {**old, "currency": "EUR"}


PLAIN: Final = '{"order":"order-4711","cents":995,"currency":"EUR"}'
OLDEST: Final = '{"order":"order-4711","price":9}'
STAMPED: Final = f'{{"$sw":{{"v":3}},"d":{PLAIN}}}'
VALUE: Final = Plain("order-4711", 995, "EUR")
KINDS: Final = Kinds("event", "bench", (Plain, Placed))


CASES: Final[dict[str, Callable[[], object]]] = {
    "decode: a class, by the codec alone": lambda: decode(PLAIN, Plain),
    "event: of a class without versions": lambda: KINDS.read("Plain", 1, PLAIN, what="event"),
    "event: of the current version": lambda: KINDS.read("Placed", 3, PLAIN, what="event"),
    "event: through two upcasters": lambda: KINDS.read("Placed", 1, OLDEST, what="event"),
    "value: of a class without versions": lambda: read_value(PLAIN, Plain),
    "value: of the current version": lambda: read_value(STAMPED, Placed),
    "value: through two upcasters": lambda: read_value(OLDEST, Placed),
    "encode: a class, by the codec alone": lambda: encode(VALUE),
    "write: a class without versions": lambda: write_value(VALUE, Plain),
    "write: a class with a version": lambda: write_value(Placed("order-4711", 995, "EUR"), Placed),
}


def measured() -> dict[str, float]:
    """Microseconds of CPU time a call, by case."""
    least = dict.fromkeys(CASES, float("inf"))
    for _ in range(ROUNDS):
        for name, call in CASES.items():
            begun = time.process_time_ns()
            for _ in range(CALLS):
                call()
            least[name] = min(least[name], (time.process_time_ns() - begun) / CALLS / 1000)
    return least


def main() -> None:
    for name, took in measured().items():
        print(f"{name:<40} {took:6.2f} us")


if __name__ == "__main__":
    main()
