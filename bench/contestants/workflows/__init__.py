"""The contestants' workflows. One file for each; what is said here must be known without importing any of them."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, runtime_checkable

STEPS: Final = 5
AT_ONCE: Final = 16  # runs of `execute_few`


class Workflows(Protocol):
    """A contestant's workflows as the workloads use them: each step adds one to a number, which the run returns."""

    api: Mapping[str, str]  # for `execute`, `execute_few`, `here`, `elsewhere`: the call that is measured, its settings
    unfinished: str  # SQL: how many runs wait or are under way
    finished: str  # SQL: how many runs have succeeded
    steps: str  # SQL: how many steps are recorded as done

    async def install(self) -> None:
        """Make tables and definitions; raises `NotDurable` if its commits would not survive."""

    async def trigger_many(self, numbers: range) -> None:
        """Trigger runs of `STEPS` steps the fastest way there is; then all are committed, and none has begun."""

    async def execute(self, count: int) -> None:
        """Execute the `count` runs that were triggered, every step of each recorded before its next one begins."""

    async def execute_few(self, count: int) -> None:
        """The same, never more than `AT_ONCE` runs at once."""

    def serving(self, *, here: bool) -> AbstractAsyncContextManager[None]:
        """Execute runs as they come: for callers of `here` in this process, or of `elsewhere` in another."""

    async def here(self, number: int, steps: int) -> int:
        """Trigger a run of so many steps, which this process executes, and return what it returned."""

    async def elsewhere(self, number: int) -> int:
        """Trigger a run of one step, which the process that serves executes, and return what it returned."""

    async def close(self) -> None:
        """Let go of everything."""


@runtime_checkable
class Sleeps(Protocol):
    """Workflows that can sleep."""

    async def put_to_sleep(self, count: int) -> None:
        """Have so many runs that have done a step and sleep for a day."""
