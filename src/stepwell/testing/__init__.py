"""For your own tests: a store in memory, a worker, and a clock that you move by hand.

```python
import asyncio

from stepwell import sleep, step, workflow
from stepwell.testing import world


@step
async def remind(address: str) -> str:
    raise RuntimeError("no test sends mail")


@workflow
async def onboarding(address: str) -> list[str]:
    sent = []
    for _ in range(2):
        await sleep("24h")
        sent.append(await remind(address))
    return sent


async def test_onboarding() -> None:
    async with world(onboarding) as w:
        w.fake(remind, returns="sent")  # in this world only; it is recorded like any other result
        run_id = await onboarding.trigger("ada@example.org").execute(w.store)
        await w.advance("48h")  # both days, each reminder at its time, in some milliseconds
        assert await w.store.result(run_id, timeout=5) == ["sent", "sent"]

        report = await w.crash_everywhere(onboarding.trigger("ada@example.org"))
        assert report.cases > 20  # a worker was cut off before and after each of its database calls


asyncio.run(test_onboarding())
```

A decider needs none of that: `given(Orders(), Created(1900)).when(Pay("7")).then(Paid())`; and in a world,
`(await w.when(Pay("7"))).then(Paid())` asserts what is in the store. What a program in production
would import must not be here.
"""

from stepwell.base.clock import TestClock
from stepwell.testing.consequences import Consequences
from stepwell.testing.crashes import CrashReport
from stepwell.testing.specs import Spec, given
from stepwell.testing.world import World, world

__all__ = ["Consequences", "CrashReport", "Spec", "TestClock", "World", "given", "world"]
