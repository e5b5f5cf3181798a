"""A process that discovers the workflows of a program and lets the workers made of them work; takes a store's URL."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from typing import Any

import stepwell
from stepwell import Worker
from tests.seeds.loading import Site, loaded


@dataclass
class Params:
    name: str


@dataclass
class Result:
    done: Any

    def __post_init__(self) -> None:
        if self.done is ...:  # the text says `ZipResult(...)`
            self.done = True


class Seen:
    """The workers that a program creates and does not keep."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        seen, register = self.workers, Worker.register

        async def noted(worker: Worker) -> Worker:
            seen.append(worker)
            return await register(worker)

        Worker.register = noted  # type: ignore[method-assign, assignment]


async def main(url: str) -> None:
    site, seen = Site(url), Seen()
    types = {"ZipParams": Params, "ZipResult": Result, "EmailParams": Params, "EmailResult": Result}
    program = loaded("discovery", connect=site.connect, workflow=stepwell.workflow, consumer=stepwell.consumer, **types)
    await program.main()
    store = await site.connect("postgres://localhost/mydb")
    names = sorted(stepwell.discover_workflows())
    polling = asyncio.create_task(stepwell.poll_all(seen.workers))
    triggers = [stepwell.workflow(name).trigger(Params("a")).options(require_worker="error") for name in names]
    done = [(await trigger.wait(30).execute(store)) for trigger in triggers]
    for worker in seen.workers:
        worker.stop()
    await polling
    await site.close()
    sys.stdout.write(json.dumps([names, [repr(one) for one in done]]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
