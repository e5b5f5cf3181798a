"""An agent with tools: every answer of the model is recorded, so a restart neither asks nor pays twice.

Run it:  python examples/agent.py
The model is a script: nothing leaves this machine. It uses a temporary SQLite file, or the store of STEPWELL_URL.
"""

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from stepwell import Context, Retry, StepFailed, TransientError, Worker, connect, current, step, workflow


@dataclass(frozen=True)
class Call:
    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """What a model answers: a text, or tools that it wants to be called."""

    text: str = ""
    calls: list[Call] = field(default_factory=list)


SCRIPT = [
    Reply(calls=[Call("weather", {"city": "Paris"}), Call("weather", {"city": "Atlantis"})]),
    Reply(calls=[Call("book", {"hotel": "Ritz", "cents": 90_000})]),
    Reply("It is sunny in Paris, and a room is booked."),
]
asked: list[int] = []  # how long the conversation was each time


@step(retry=Retry(5, base="50ms"), timeout="60s")
async def think(conversation: list[str]) -> Reply:
    """Put the request to your model's API here. What it answered is recorded; a replay does not ask again."""
    if len(conversation) == 1 and current().attempt == 1:
        raise TransientError("the model is overloaded", retry_after="50ms")
    asked.append(len(conversation))
    return SCRIPT[sum(line.startswith("model") for line in conversation)]


@step(retry=Retry(2, base="50ms"), timeout="10s")
async def weather(city: str) -> str:
    if city != "Paris":
        raise ValueError(f"there is no {city}")
    return "sunny"


@step
async def book(hotel: str, cents: int) -> str:
    key = current().key.partition("/")[2]  # give the hotel the whole of it: it books once, however often it is asked
    return f"a room in the {hotel} for {cents} cents, booked with the key {key}"


TOOLS: dict[str, Callable[..., Awaitable[str]]] = {"weather": weather, "book": book}
NEEDS_CONSENT = {"book"}


@workflow(name="example.agent", timeout="1d")
async def assist(ctx: Context, question: str) -> list[str]:
    """The loop of every agent. Its memory is what its steps returned."""
    conversation = [f"user: {question}"]
    while True:
        reply = await think(conversation)
        if not reply.calls:
            return [*conversation, f"model: {reply.text}"]
        answers = await asyncio.gather(*(use(ctx, call) for call in reply.calls))  # tools in parallel
        conversation += [f"model: use {', '.join(call.tool for call in reply.calls)}", *answers]


async def use(ctx: Context, call: Call) -> str:
    if call.tool in NEEDS_CONSENT and not await ctx.wait("consent", bool, timeout="8h", default=False):
        return f"{call.tool}: refused by the user"
    try:
        return f"{call.tool}: {await TOOLS[call.tool](**call.arguments)}"
    except StepFailed as failed:  # the model is told, and may try something else
        return f"{call.tool}: failed, {failed.message}"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with connect(os.environ.get("STEPWELL_URL") or f"sqlite:///{folder}/agent.db") as store:
            run_id = await assist.trigger("A room in Paris, please.").options(require_worker="ignore").execute(store)
            async with Worker(store, [assist]):
                while (await store.get_run(run_id)).status != "PAUSED" or len(asked) < 2:
                    await asyncio.sleep(0.02)
            print("it waits for the user; no worker is left, and the model was asked", len(asked), "times")
            print("consent:", await store.signal(run_id, "consent", True))
            async with Worker(store, [assist]):  # another worker, perhaps tomorrow and elsewhere
                print(*await store.result(run_id, timeout=30), sep="\n")
            print("the model was asked", len(asked), "times")


if __name__ == "__main__":
    asyncio.run(main())
