"""The signals that a run has, as a list for people and programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from stepwell.base.durations import datetime_of
from stepwell.base.names import REQUEST, check_name, check_whole
from stepwell.errors import InvalidOption
from stepwell.records import Page
from stepwell.store.driver import Call, Value
from stepwell.values.headers import Headers, headers_in
from stepwell.values.named_codecs import shown_value

if TYPE_CHECKING:
    from stepwell.store.database import Database
    from stepwell.store.run_key import WhichRun

SignalState = Literal["waiting", "taken"]
OWN_KEY = "~"  # how a key begins that a sender did not say


@dataclass(frozen=True, slots=True)
class SignalInfo:
    """A signal that was sent to a run: which call of the run has taken it, if one has."""

    name: str
    data: Any
    key: str | None
    sent_at: datetime
    taken_by: str | None
    taken_at: datetime | None
    is_request: bool = False  # its sender waits for an answer
    answered_at: datetime | None = None
    headers: Headers = field(default_factory=dict)


@dataclass(eq=False)
class SignalList:
    """Lists the signals of runs."""

    _db: Database

    async def page(
        self, run: WhichRun, name: str | None, state: SignalState | None, limit: int, after: str | None
    ) -> Page[SignalInfo]:
        """The signals of a run by name, those of one name in the order in which they came."""
        if state not in (None, "waiting", "taken"):
            raise InvalidOption("state", state, "it is 'waiting' or 'taken'; None lists both")
        found = await self._db.runs.get(await self._db.run_id(run), deleted=True)
        place, _, after_name = (after or "0-").partition("-")
        if not place.isdigit():
            raise InvalidOption("after", after, "pass the `next` of the page before, as it is")
        params: dict[str, Value] = {
            "id": int(found.id),
            "name": None if name is None else check_name("signal", name),
            "waiting": state == "waiting",
            "taken": state == "taken",
            "after_name": after_name,
            "after": int(place),
            "limit": check_whole("limit", limit, 1, 10_000) + 1,
        }
        rows = await self._db.driver.read(Call("signals_of", params))
        last = rows[limit - 1] if len(rows) > limit else None
        more = None if last is None else f"{last['place']}-{last['name']}"
        return Page([signal_info(row) for row in rows[:limit]], next=more)


def signal_info(row: Any) -> SignalInfo:
    """A signal."""
    key: str | None = row["key"]
    name: str = row["name"]
    return SignalInfo(
        name=name.removeprefix(REQUEST),
        data=shown_value(row["data"]),
        key=None if key is None or key.startswith(OWN_KEY) else key,
        sent_at=datetime_of(row["sent_at"]),
        taken_by=row["taken_by"],
        taken_at=None if row["taken_at"] is None else datetime_of(row["taken_at"]),
        is_request=name.startswith(REQUEST),
        answered_at=None if row["answered_at"] is None else datetime_of(row["answered_at"]),
        headers=headers_in(row["headers"]),
    )
