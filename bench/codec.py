"""`python -m bench.codec [URL]`: what a codec costs a message, by itself and in a store, beside a row of your own.

Each is measured in turns with the others, and the least of the rounds counts. What a codec costs by itself is CPU time;
a call of a store is one commit. Without a URL it is an SQLite file in a temporary folder.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

from stepwell import Compressed, Encrypted, Keyring, MessagePack, Store, connect, headers
from stepwell.values.cipher import Cipher, new_data_key
from stepwell.values.stamp import read_value, write_value

ROUNDS: Final = 5
CALLS: Final = 200
MANY: Final = 5_000
SMALL: Final = {"id": 4711, "name": "Ada Lovelace", "cents": 1900, "paid": True, "lines": ["lamp", "desk"]}
LARGE: Final = {"lines": [SMALL] * 100}
RING: Final = Keyring({"bench": os.urandom(32)}, "bench")
CODECS: Final[Mapping[str, Any]] = {
    "JSON": None,
    "MessagePack": MessagePack,
    "Compressed(MessagePack)": Compressed(MessagePack),
}
STORES: Final[Mapping[str, Any]] = {
    **CODECS,
    "Encrypted": Encrypted(keys=RING),
    "Encrypted, with a subject": Encrypted(keys=RING),
}
MAKE: Final = "create table if not exists bench_payload (data text)"
ADD: Final = "insert into bench_payload values ('{}')"


def seconds_of(work: Callable[[], object], calls: int) -> float:
    """CPU seconds of this many calls."""
    began = time.process_time()
    for _ in range(calls):
        work()
    return time.process_time() - began


def alone() -> dict[str, float]:
    """The least CPU microseconds of writing and reading a value, by codec and size."""
    cipher = Cipher("")
    cipher.learn(1, new_data_key())
    cases: dict[str, Callable[[], object]] = {}
    for size, value in (("small", SMALL), ("large", LARGE)):
        for name, codec in CODECS.items():
            text = write_value(value, codec=codec)
            cases[f"{name}: write, {size} ({len(text):,} bytes)"] = lambda v=value, c=codec: write_value(v, codec=c)  # type: ignore[misc]
            cases[f"{name}: read, {size}"] = lambda t=text: read_value(t)  # type: ignore[misc]
        text = write_value(value)
        sealed = cipher.seal(text, 1, 1)
        cases[f"seal, {size} ({len(sealed):,} bytes)"] = lambda t=text: cipher.seal(t, 1, 1)  # type: ignore[misc]
        cases[f"open, {size}"] = lambda s=sealed: cipher.open(s, (1,), (1,))  # type: ignore[misc]
    return {
        name: min(seconds_of(work, MANY // (20 if "large" in name else 1)) for _ in range(ROUNDS))
        * 1e6
        / (MANY // (20 if "large" in name else 1))
        for name, work in cases.items()
    }


async def row_alone(store: Store) -> None:
    """Commit a row of your own."""
    async with store.transaction() as tx:
        await tx.execute(ADD)


async def message(store: Store, *, subject: bool) -> None:
    """Enqueue a message and read it."""
    if subject:
        with headers({"subject": "customer/17"}):
            found = await store.get(await store.enqueue("codecs", SMALL))
    else:
        found = await store.get(await store.enqueue("codecs", SMALL))
    assert found is not None
    assert found.input == SMALL


async def timed(work: Callable[[], Any]) -> float:
    """Microseconds of one call."""
    began = time.perf_counter()
    for _ in range(CALLS):
        await work()
    return (time.perf_counter() - began) / CALLS * 1e6


async def in_stores(url: str) -> dict[str, float]:
    """The least microseconds of a call, by the codec of its store."""
    least: dict[str, float] = {}
    async with AsyncExitStack() as stack:
        stores: dict[str, Store] = {}
        for name, codec in STORES.items():
            said: Any = {} if codec is None else {"codec": codec, "tenant": name.replace(", ", "-").replace(" ", "-")}
            stores[name] = await stack.enter_async_context(connect(url, **said))
        plain = stores["JSON"]
        async with plain.transaction() as tx:
            await tx.execute(MAKE)
        for store in stores.values():
            await store.create_queue("codecs")
        for _ in range(ROUNDS):
            took = {"a row of your own, in store.transaction()": await timed(lambda: row_alone(plain))}
            for name, store in stores.items():
                with_subject = name.endswith("subject")
                work = lambda s=store, w=with_subject: message(s, subject=w)  # noqa: E731
                took[f"enqueue and get: {name}"] = await timed(work)
            least = {name: min(one, least.get(name, one)) for name, one in took.items()}
    return least


def main() -> None:
    """Measure and print."""
    for name, took in alone().items():
        print(f"{took:10.2f} us  {name}")
    with tempfile.TemporaryDirectory() as folder:
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/bench.db"
        for name, took in asyncio.run(in_stores(url)).items():
            print(f"{took:10.1f} us  {name}")


if __name__ == "__main__":
    main()
