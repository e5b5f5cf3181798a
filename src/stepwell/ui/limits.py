"""The limits of a queue, on its page: what is in force, its keys, and what an operator can change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from stepwell.errors import InvalidOption
from stepwell.store.limits_info import LimitedKey, LimitsInfo
from stepwell.store.store import Store
from stepwell.ui.desk import Desk, answered, url_of
from stepwell.ui.guard import Refusal
from stepwell.ui.runs import actor_of

KEYS: Final = 50


async def limits_of(store: Store, queue: str) -> tuple[LimitsInfo, Sequence[LimitedKey]] | None:
    """The limits of a queue and the first of its keys; None if it has none."""
    info = await store.limits.of(queue)
    return None if info is None else (info, await store.limits.keys(queue, limit=KEYS))


async def change(desk: Desk, request: Request) -> Response:
    """Set or reset the limits of a queue, pause or resume one of its keys."""
    form, limits = request.state.form, desk.store.limits
    queue, key = form.get("queue", ""), form.get("key", "")
    match form.get("verb", ""):
        case "set":
            given: dict[str, Any] = {name: _number(form, name) for name in ("running", "per_key")}
            given |= {name: form[name].strip() or None for name in ("rate", "key_rate") if name in form}
            if "by" in form:  # a queue that has no limits yet: of what field of its messages there may be so many
                given["key"] = form["by"].strip() or None
                if not any(given.values()):
                    raise InvalidOption("running", "", "say how many may run or begin at once, of all or of each key")
            await limits.set(queue, **given)
            said = f"{queue} has these limits for all workers, until they are reset."
        case "reset":
            await limits.reset(queue)
            said = f"{queue} has the limits of its code again."
        case "pause":
            reason = " ".join(form.get("reason", "").split())[:300]
            await limits.pause(queue, key, reason=f"{reason or 'paused'} (by {actor_of(request)}, from the dashboard)")
            said = f"Nothing of {key} begins in {queue}; what runs goes on."
        case "resume":
            await limits.resume(queue, key)
            said = f"{key} goes on in {queue}."
        case _:
            raise Refusal(404, "there is no such action")
    return answered(request, form.get("back") or url_of(request, "/queues/one", name=queue), said)


def _number(form: dict[str, str], name: str) -> int | None:
    """A limit that a person has typed; None, which takes it away, if the field is empty."""
    text = form.get(name, "").strip()
    if text and not text.isdecimal():
        raise InvalidOption(name, text, "it is a whole number, or nothing for no limit")
    return int(text) if text else None
