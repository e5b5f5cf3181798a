"""One measurement of one contestant, as a process of its own: prints one JSON line.

`python -m bench.play MODE '{"contestant": ..., ...}'`, where MODE is `measure`, `prepare` (fill a database that others
are copied from), `serve` (the second process of a workload of two: of a queue it prints the number and moment of each
arrival) or `drain` (one of several processes that drain a queue together).
"""

import asyncio
import contextlib
import importlib
import json
import os
import platform
import sys
import time
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version
from typing import Any, Final

from bench.asking import database
from bench.contestants import CONTESTANTS, Notifies, Queue
from bench.contestants.workflows import Sleeps
from bench.durability import NotDurable
from bench.meter import Meter
from bench.stage import Draining, Stage
from bench.workloads import WORKLOADS, Workload

NOT_DURABLE: Final = 3
Request = dict[str, Any]  # contestant, backend, url, and for a measurement: workload, state, count, present, postmaster


def main() -> None:
    """Do what the arguments say, and leave without waiting for anybody's threads."""
    mode, request = sys.argv[1], json.loads(sys.argv[2])
    work = {"measure": measure, "prepare": prepare, "serve": serve, "drain": drain}[mode]
    code = 0
    try:
        with asyncio.Runner(loop_factory=_loop_factory(request)) as runner:
            runner.run(work(request))
    except NotDurable as error:
        print(error, file=sys.stderr)
        code = NOT_DURABLE
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _loop_factory(request: Request) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if not CONTESTANTS[request["contestant"]].on_uvloop:
        return None
    import uvloop  # noqa: PLC0415 - not in everybody's environment

    return uvloop.new_event_loop


async def measure(request: Request) -> None:
    """Play the workload and print what came of it."""
    workload = _workload(request)
    async with _opened(request) as who:
        await who.install()
        if workload.verb == "serving" and isinstance(who, Notifies):
            who.notify()
        asked = await database(request["url"])
        stage = Stage(
            who,
            asked,
            Meter(request["postmaster"]),
            request["count"],
            lambda tell: _other(request, tell),
            lambda processes: _crew(request, processes),
        )
        figures = await workload.play(stage)
        await asked.close()
        contestant = CONTESTANTS[request["contestant"]]
        if contestant.program is not None:
            figures["client_us"] = None  # this process only tells another one
        line = {
            **{name: request[name] for name in ("contestant", "backend", "workload", "state", "round")},
            **figures,
            "api": who.api[workload.verb],
            "version": version(contestant.distribution) if contestant.distribution else getattr(who, "version", ""),
            "python": platform.python_version(),
            **_options(request),
        }
    print(json.dumps(line), flush=True)


def _options(request: Request) -> dict[str, str]:
    """What stepwell is set to where that costs something: the defaults, unless the address says otherwise."""
    if request["contestant"] != "stepwell":
        return {}
    from stepwell import Config  # noqa: PLC0415 - where a peer plays, it is not installed

    return {"audit": Config(request["url"]).options.audit}


async def prepare(request: Request) -> None:
    """Have the contestant fill the database with what is to be there before the measurement."""
    async with _opened(request) as who:
        await who.install()
        if isinstance(who, Sleeps):
            await who.put_to_sleep(request["present"])
        else:
            await _fill(request, who)


async def _fill(request: Request, queue: Queue) -> None:
    """Have a queue make one finished or scheduled message, and copy its rows."""
    if request["state"] == "finished":
        await queue.enqueue_many(range(1))
        await queue.drain(1)
    else:
        await queue.schedule(0)
    asked = await database(request["url"])
    for statement in queue.filling(request["state"], request["present"]):
        await asked.run(statement)
    await asked.close()


async def serve(request: Request) -> None:
    """Handle messages, or execute runs, until the standard input ends."""

    def arrived(number: int) -> None:
        moment = time.perf_counter()
        sys.stdout.write(f"{number} {moment!r}\n")
        sys.stdout.flush()

    is_queue = _workload(request).kind == "queue"
    async with _opened(request) as who, who.serving(arrived) if is_queue else who.serving(here=False):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def drain(request: Request) -> None:
    """Say that everything is imported and open, wait to be told, drain the queue, and say that nothing is left."""
    loop = asyncio.get_running_loop()
    async with _opened(request) as who:
        print("ready", flush=True)
        await loop.run_in_executor(None, sys.stdin.readline)
        await getattr(who, _workload(request).verb)(request["count"])
        print("done", flush=True)


@contextlib.asynccontextmanager
async def _opened(request: Request) -> AsyncIterator[Any]:
    """A queue, or workflows, whichever the workload is about."""
    who = await _module(request).connect(request["url"])
    try:
        yield who
    finally:
        await who.close()


@contextlib.asynccontextmanager
async def _other(request: Request, tell: Callable[[int, float], None]) -> AsyncIterator[None]:
    """Serve in another process, passing on what it says."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "bench.play", "serve", json.dumps(request)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    if await process.stdout.readline() != b"ready\n":
        raise RuntimeError("the second process did not start")
    hearing = asyncio.create_task(_hear(process.stdout, tell))
    try:
        yield
    finally:
        process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                await process.wait()
        if process.returncode is None:
            process.kill()
        hearing.cancel()


@contextlib.asynccontextmanager
async def _crew(request: Request, processes: int) -> AsyncIterator[Draining]:
    """Processes that are ready to drain the queue, and what makes them do it."""
    command = (sys.executable, "-m", "bench.play", "drain", json.dumps(request))
    pipe = asyncio.subprocess.PIPE
    crew = [await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe) for _ in range(processes)]

    async def draining(_: int) -> None:
        for one in crew:
            assert one.stdin is not None
            one.stdin.write(b"go\n")
        await asyncio.gather(*(_says(one, b"done\n") for one in crew))

    try:
        await asyncio.gather(*(_says(one, b"ready\n") for one in crew))
        yield draining
    finally:
        for one in crew:
            if one.returncode is None:
                one.kill()
            await one.wait()


async def _says(process: asyncio.subprocess.Process, word: bytes) -> None:
    assert process.stdout is not None
    if (said := await process.stdout.readline()) != word:
        raise RuntimeError(f"a worker process said {said!r} where {word!r} was expected")


async def _hear(lines: asyncio.StreamReader, tell: Callable[[int, float], None]) -> None:
    async for line in lines:
        number, moment = line.split()
        tell(int(number), float(moment))


def _module(request: Request) -> Any:
    deciders = dict.fromkeys(("deciders", "upcasts", "inline", "follows", "observes"), ".deciders")
    folders = {"workflows": ".workflows", "sleeps": ".workflows", **deciders}
    folder = f"contestants{folders.get(_workload(request).kind, '')}"
    suffix = f"_{request['backend']}" if request["contestant"] == "raw" else ""
    return importlib.import_module(f"bench.{folder}.{request['contestant']}{suffix}")


def _workload(request: Request) -> Workload:
    return WORKLOADS[request["workload"]]


if __name__ == "__main__":
    main()
