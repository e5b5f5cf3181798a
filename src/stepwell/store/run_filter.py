"""Which runs a list or a bulk is about: the filter, checked, and as the statements take it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, TypedDict

from stepwell.base.durations import moment_of
from stepwell.base.names import check_filter, check_tags
from stepwell.errors import InvalidOption
from stepwell.records import RunStatus
from stepwell.store.driver import Call, Value

LAST: Final = 2**62  # later than any moment, and above any id
LAST_CHARACTER: Final = 0x10FFFF
SURROGATES: Final = range(0xD800, 0xE000)  # no characters: text has none


class RunFilter(TypedDict, total=False):
    """Which runs: a field that is not given matches all. `limit` is the maximum number of runs, newest first."""

    workflow: str | None
    status: RunStatus | str | Iterable[RunStatus | str] | None  # one of these
    key: str | None
    key_prefix: str | None
    tag: str | Iterable[str] | None  # all of these
    since: datetime | None
    until: datetime | None
    limit: int | None
    everything: bool  # required if no other field is given


def filter_of(which: RunFilter) -> dict[str, Value]:
    """The filter, checked, as `find_runs` takes it."""
    since, until, tag = which.get("since"), which.get("until"), which.get("tag")
    key, prefix = check_filter("key", which.get("key")), check_filter("key_prefix", which.get("key_prefix"))
    if key is not None and prefix is not None:
        raise InvalidOption("key_prefix", prefix, "give `key` or `key_prefix`, not both")
    tags = () if tag is None else check_tags((tag,) if isinstance(tag, str) else tag)
    return {
        "key": key,
        "prefix": prefix,
        "tags": json.dumps(tags) if tags else None,
        "since": 0 if since is None else moment_of(since, "since"),
        "until": LAST if until is None else moment_of(until, "until"),
    }


def finding(params: dict[str, Value], lines: Sequence[tuple[int, str]]) -> Call:
    """The question for a page of runs, newest first."""
    return Call("find_runs" if params["tags"] is None else "find_tagged_runs", params, lines)


def statuses_of(which: RunFilter) -> Sequence[RunStatus]:
    """The statuses that are asked for, in the order in which a run goes through them; none if all are."""
    status = which.get("status")
    if status is None:
        return ()
    asked = {status_of(one) for one in ((status,) if isinstance(status, str) else status)}
    return [one for one in RunStatus if one in asked]


def status_of(status: RunStatus | str) -> RunStatus:
    """The status; raises if it is none."""
    try:
        return RunStatus(status)
    except ValueError:
        raise InvalidOption("status", status, f"it is one of {', '.join(RunStatus)}") from None


def key_range(params: dict[str, Value], after: str | None) -> dict[str, Value]:
    """Between which keys the runs are, and after which place, as `find_runs_by_key` takes it."""
    key, prefix = params["key"], params["prefix"]
    first, until = (str(key), f"{key}\x01") if key is not None else (str(prefix), behind(str(prefix)))
    place: dict[str, Value] = {"after_key": "", "after_time": LAST, "after_id": LAST}
    if after is not None:
        moment, _, rest = after.partition("-")
        task_id, _, last = rest.partition("-")
        if not (moment.isdigit() and task_id.isdigit() and first <= last < until):
            raise InvalidOption("after", after, "pass the `next` of the page before, as it is")
        first, place = last, {"after_key": last, "after_time": int(moment), "after_id": int(task_id)}
    return {"key_from": first, "key_until": until, **place}


def behind(prefix: str) -> str:
    """The first text behind all that begin so, in the order of their characters."""
    while prefix and ord(prefix[-1]) == LAST_CHARACTER:
        prefix = prefix[:-1]
    following = ord(prefix[-1]) + 1 if prefix else LAST_CHARACTER
    return prefix[:-1] + chr(SURROGATES.stop if following in SURROGATES else following)
