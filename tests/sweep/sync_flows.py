"""Sync workflows of every shape that a crash could disturb."""

import time
from typing import Any

from stepwell import PermanentError, StepFailed, TransientError, Trigger, step, sync, workflow
from stepwell.runs.long_steps import SHOW_AFTER
from tests.sweep.ledger import note


@step
def add(a: int, b: int) -> int:
    note()
    return a + b


@step(retry=3)
def flaky(n: int) -> int:
    note()
    if sync.current().attempt < 3:
        raise TransientError("not yet", retry_after="10m")
    return n


@step
def tarry(n: int) -> int:
    """Takes so long that it is recorded as RUNNING first."""
    note()
    time.sleep(2 * SHOW_AFTER)
    return n


@step
def charge(cents: int) -> str:
    note()
    raise PermanentError(f"no card takes {cents}")


@step
def refund(cents: int) -> str:
    note()
    return f"refunded {cents}"


@workflow(name="sweep.sync.linear")
def linear(ctx: sync.Context, n: int) -> list[str]:
    first = add(n, 1)
    at = ctx.now()
    second = add(first, 2)
    third = ctx.step("plain", lambda: second * 2)
    return [str(third), at.isoformat()]


@workflow(name="sweep.sync.loop")
def loop(n: int) -> int:
    total = 0
    for number in range(n):
        total += add(total, number)
        if total % 2:
            total += add(total, 1)
    return total


@workflow(name="sweep.sync.parallel")
def parallel(n: int) -> list[int]:
    started = [add.start(n, number) for number in range(3)]
    return [one.result() for one in started]


@workflow(name="sweep.sync.parallel_sleep")
def parallel_sleep(ctx: sync.Context, n: int) -> list[int]:
    started = [add.start(n, number) for number in range(2)]
    ctx.sleep("1h")
    return [*(one.result() for one in started), add(n, 3)]


@workflow(name="sweep.sync.retried")
def retried(n: int) -> int:
    return flaky(add(n, 1)) + add(n, 2)


@workflow(name="sweep.sync.slow")
def slow(n: int) -> int:
    return tarry(n) + add(n, 1)


@workflow(name="sweep.sync.compensated")
def compensated(cents: int) -> str:
    try:
        return charge(cents)
    except StepFailed as failed:
        return f"{refund(cents)}: {failed.message}"


@workflow(name="sweep.sync.nested")
def nested(ctx: sync.Context, n: int) -> list[object]:
    return [linear(ctx, n), loop(2), add(n, 1)]


@workflow(name="sweep.sync.tidied")
def tidied(ctx: sync.Context, n: int) -> list[str]:
    began = ctx.now()
    try:
        ctx.sleep("1h")
        done = add(n, 1)
    finally:  # entered when the run is given back, too: nothing may come of it then
        ended = ctx.now()
        tidy = refund(n)
    return [str(done), tidy, began.isoformat(), ended.isoformat()]


@workflow(name="sweep.sync.again")
def again(n: int) -> int:
    first = add(n, 1)
    if sync.current().attempt == 1:
        raise TransientError("the run is tried again", retry_after="5m")
    return add(first, 1)


NOW = "2026-01-01T00:00:00+00:00"
FLOWS: tuple[tuple[Trigger[Any], object], ...] = (
    (linear.trigger(1), ["8", NOW]),
    (loop.trigger(3), 8),
    (parallel.trigger(1), [1, 2, 3]),
    (parallel_sleep.trigger(1), [1, 2, 4]),
    (retried.trigger(1), 5),
    (slow.trigger(1), 3),
    (compensated.trigger(300), "refunded 300: no card takes 300"),
    (nested.trigger(1), [["8", NOW], 3, 2]),
    (tidied.trigger(1), ["2", "refunded 1", NOW, "2026-01-01T01:00:00+00:00"]),
    (again.trigger(1), 3),
)
