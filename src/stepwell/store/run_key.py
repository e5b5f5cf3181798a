"""A run that is named by its workflow and key instead of its number, and the one way from there to the number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from stepwell.base.names import check_id, check_key, check_name
from stepwell.errors import RunNotFound, WorkflowNotFound
from stepwell.records import RunId
from stepwell.store.driver import Call, Row, Script

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class RunKey(Generic[R_co]):
    """A run by its key, `workflow.with_key("order-7")`: verbs take it in place of a run's number."""

    workflow: str
    key: str
    returns: Any = field(default=Any, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_name("workflow", self.workflow)
        check_key(self.key)


WhichRun = int | RunKey[Any]


def numbered(tenant: str, run: WhichRun) -> Script[int]:
    """The number of a run, read in a transaction, which may be the one that triggers it."""
    if not isinstance(run, RunKey):
        return check_id(run)
    return number_in((yield asking(tenant, run)), run)


def asking(tenant: str, run: RunKey[Any]) -> Call:
    """The question which run has the key now."""
    return Call("run_of_key", {"tenant": tenant, "name": run.workflow, "key": run.key})


def number_in(rows: Sequence[Row], run: RunKey[Any]) -> RunId[Any]:
    """The answer; raises if no run has the key."""
    if not rows:
        raise WorkflowNotFound(run.workflow)
    if rows[0]["id"] is None:
        raise RunNotFound(None, run.workflow, key=run.key)
    number: RunId[Any] = RunId(rows[0]["id"])
    number.returns = run.returns
    return number
