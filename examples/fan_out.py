"""Thumbnails of a folder: a run for each picture, the arithmetic on workers of its own, and one broken picture.

Run it:  python examples/fan_out.py
It uses a temporary SQLite file, or the store that STEPWELL_URL names.
"""

import asyncio
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from stepwell import Context, ExecutionFailed, PermanentError, RunId, Worker, connect, step, workflow

Pixels = list[list[int]]


@dataclass(frozen=True)
class Thumbnail:
    name: str
    pixels: Pixels


@step
def list_pictures(folder: str) -> list[str]:
    return sorted(str(path) for path in Path(folder).glob("*.pgm"))


@step
def read(path: str) -> Pixels:
    lines = Path(path).read_text().splitlines()
    if lines[0] != "P2":
        raise PermanentError(f"{Path(path).name} is no picture")  # tried again it would be none either
    return [[int(number) for number in line.split()] for line in lines[3:]]


@step(queue="example.arithmetic", retry=3)
def shrink(pixels: Pixels) -> Pixels:
    """Executed by any worker that serves it; what it needs and returns goes through the database, no path does."""
    print(f"  arithmetic: shrink {len(pixels)} rows\n", end="")  # one write: other threads print too
    rows = zip(pixels[::2], pixels[1::2], strict=True)
    return [[sum(four) // 4 for four in zip(a[::2], a[1::2], b[::2], b[1::2], strict=True)] for a, b in rows]


@workflow
async def thumbnail(ctx: Context, path: str) -> Thumbnail:
    """A child: a run of its own, with steps, attempts and a record of its own."""
    pixels = await ctx.step(read, path)  # a plain `def` is awaited through the context, and gets a thread
    return Thumbnail(Path(path).stem, await ctx.step(shrink, pixels))


@workflow
async def gallery(ctx: Context, folder: str) -> list[str]:
    """The parent: it asks for all children at once, holds nothing while they work, and goes on when all have ended."""
    pictures = await ctx.step(list_pictures, folder)
    children = await ctx.trigger_many(thumbnail.trigger(path) for path in pictures)
    return await asyncio.gather(*(described(ctx, child) for child in children))


@workflow
async def slide_show(ctx: Context, folder: str) -> list[str]:
    """The same, but no more than two at once: a child is asked for when one before it has ended."""
    two = asyncio.Semaphore(2)

    async def slide(path: str) -> str:
        async with two:
            return (await thumbnail.trigger(path).wait().execute(ctx)).name

    pictures = await ctx.step(list_pictures, folder)
    return await asyncio.gather(*(slide(path) for path in pictures if "picture2" not in path))


async def described(ctx: Context, child: RunId[Thumbnail]) -> str:
    try:
        [made] = await ctx.results([child])
    except ExecutionFailed as failed:  # recorded like a result: every replay takes this path
        return f"one is missing: {failed.error['message'] if failed.error else failed}"
    return f"{made.name} is {len(made.pixels)} by {len(made.pixels[0])}, its first row {made.pixels[0]}"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder))
        async with (
            connect(os.environ.get("STEPWELL_URL") or f"sqlite:///{folder}/gallery.db") as store,
            Worker(store, [gallery, slide_show, thumbnail]),
            Worker(store, [shrink], concurrency=2),  # usually on other machines
        ):
            run_id = await gallery.trigger(folder).execute(store)
            for line in await store.result(run_id, timeout=30):
                print(line)
            print("recorded by the parent:", [recorded.key for recorded in await store.steps(run_id)][:3], "and so on")
            shown = await slide_show.trigger(folder).wait("30s").execute(store)
            print("two at once:", shown)


def draw(folder: Path) -> None:
    """Four pictures of 8 by 8 pixels, of which the third is none."""
    for number in range(4):
        rows = [" ".join(str(number + x * y) for x in range(8)) for y in range(8)]
        path = folder / f"picture{number}.pgm"
        path.write_text("\n".join(["P2", "8 8", "255", *rows]) if number != 2 else "<html>")


if __name__ == "__main__":
    asyncio.run(main())
