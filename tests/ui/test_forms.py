"""Forms that keep what was typed, that change schedules and make ticks good, and that give a queue limits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Never

import pytest

from stepwell import Cron, Decider, Decision, Engine, Store, Worker
from stepwell.operate import time_travel
from tests.ui import flows, shop
from tests.ui.kit import Markup, dashboard


class Light(Enum):
    OFF = "off"
    ON = "on"


@dataclass(frozen=True)
class Press:
    lamp: str


@dataclass(frozen=True)
class Pressed:
    then: Light


@dataclass(frozen=True)
class Lamp:
    status: Light = Light.OFF


@pytest.mark.proves("dashboard-09")
async def test_what_was_typed_stays_when_it_is_refused_and_is_shown_as_a_command_and_as_python(store: Store) -> None:
    async with dashboard(store, flows.ALL) as desk:
        typed: dict[str, Any] = {"workflow": "configure", "typed": "1", "field__name": "ann <b>", "key": "k 7"}
        answer = await desk.post("/trigger", field__size='"large"', field__count="many", field__loud="on", **typed)
        assert answer.status_code == 400
        page = Markup(answer.text)
        assert "count is not JSON" in page.text
        kept = {attrs.get("name"): attrs for tag, attrs in page.elements if tag == "input"}
        shown = [kept[name]["value"] for name in ("field.name", "field.count", "key")]
        assert shown == ["ann <b>", "many", "k 7"]
        assert "checked" in kept["field.loud"]
        assert '<option value="&#34;large&#34;" selected>' in answer.text
        assert "<b>" not in answer.text.partition("<main")[2].partition("</main>")[0].replace('<b class="mono">', "")
        answer = await desk.post("/trigger", field__size='"small"', field__count="7", show="1", **typed)
        assert answer.status_code == 200
        page = Markup(answer.text)
        assert "stepwell trigger configure 'name=ann <b>' size=small count:=7 loud:=false" in page.text
        assert "configure.trigger(name='ann <b>', size='small', count=7, loud=False)" in page.text
        assert not await store.runs(), "nothing was triggered"
        assert (await desk.post("/trigger", workflow="nothing", typed="1", field__="{}")).status_code == 404


@pytest.mark.proves("dashboard-09")
async def test_the_address_of_an_input_that_is_tried_has_no_token(store: Store) -> None:
    await flows.filled(store)
    async with dashboard(store, [shop.Subscriptions()]) as desk:
        place = "/deciders/one?type=subscription&id=s-1&input=Cancel&field.subscription=s-1"
        answer = await desk.client.get(f"{place}&form_token=secret&back=/x")
        assert answer.status_code == 303
        assert "secret" not in answer.headers["location"]
        assert "If you sent Cancel now" in await desk.get(f"/deciders/one{answer.headers['location']}")


@pytest.mark.proves("dashboard-10")
async def test_a_schedule_is_changed_reset_made_good_and_deleted(store: Store) -> None:
    when = Cron("0 7 * * *", tz="Europe/Riga", overlap="allow")
    await store.schedule("mornings", flows.buy.trigger("bread"), when)
    place, last = "/schedules/one?name=mornings", datetime.now(UTC) - timedelta(days=1)
    span = {"start": f"{last - timedelta(days=3):%Y-%m-%d}T00:00", "end": f"{last:%Y-%m-%d}T00:00"}
    given: dict[str, Any] = {"name": "mornings", "back": place}
    async with dashboard(store, flows.ALL) as desk:
        assert {"cron", "every", "tz", "start", "end"} <= set((await desk.page(place)).values("input", "name"))
        stands = {"cron": "0 7 * * *", "every": "", "tz": "Europe/Riga", "overlap": "allow", "catch_up": "last"}
        said = await desk.done("/schedules/change", verb="set", **{**stands, **given})
        assert said.startswith("warning: Nothing was changed")
        said = await desk.done("/schedules/change", verb="set", **{**stands, "overlap": "skip", "tz": "UTC", **given})
        assert said.startswith("good: mornings is changed")
        info = await store.get_schedule("mornings")
        assert (info.overlap, info.tz, info.cron) == ("skip", "UTC", "0 7 * * *")
        said = await desk.done("/schedules/change", verb="set", **{**stands, "cron": "at noon", **given})
        assert said.startswith("problem")
        said = await desk.done("/schedules/change", verb="reset", **given)
        assert said.startswith("warning: Nothing was changed"), "no code declares it"

        answer = await desk.post("/schedules/change", verb="count", **span, **given)
        assert not await store.runs(), "they are counted first"
        text = await desk.get(answer.headers["location"])
        assert "3 ticks in that span; 0 have a run, 3 are to be made good" in text
        assert 'value="backfill"' in text
        said = await desk.done("/schedules/change", verb="backfill", **span, **given)
        assert said.startswith("good: mornings has 3 runs more")
        assert len(await store.runs()) == 3
        said = await desk.done("/schedules/change", verb="count", **span, **given)
        assert said.startswith("warning: 3 ticks in that span; 3 have a run, 0 are to be made good")
        said = await desk.done("/schedules/change", verb="count", start="yesterday", end="", **given)
        assert "it is a day and a time" in said
        assert "is deleted" in await desk.done("/schedules/change", verb="delete", **given)
        assert not await store.schedules()


@pytest.mark.proves("dashboard-10")
async def test_a_queue_without_limits_gets_some(store: Store) -> None:
    await flows.filled(store)
    async with dashboard(store, flows.ALL) as desk, dashboard(store, flows.ALL, read_only=True) as reader:
        place = "/queues/one?name=emails"
        assert "by" in (await desk.page(place)).values("input", "name")
        assert "by" not in (await reader.page(place)).values("input", "name")
        assert "by" not in (await desk.page("/queues/one?name=subscription:inputs")).values("input", "name")
        given: dict[str, Any] = {"verb": "set", "queue": "emails", "back": place}
        assert "say how many" in await desk.done("/queues/limits", running="", per_key="", by="", **given)
        said = await desk.done("/queues/limits", running="4", per_key="2", by="tenant", **given)
        assert said.startswith("good")
        assert "0 of 4 at once over all workers, 2 of each tenant" in (await desk.page(place)).text


@pytest.mark.proves("dashboard-10")
async def test_a_paused_schedule_is_resumed_from_the_overview(store: Store) -> None:
    await store.schedule("mornings", flows.buy.trigger("bread"), Cron("0 7 * * *"))
    async with dashboard(store, flows.ALL) as desk:
        await desk.done("/schedules/change", name="mornings", verb="pause")
        page = await desk.page("/")
        assert "/schedules/change" in page.values("form", "action")
        assert "stepwell schedule resume mornings" in page.text
        assert "goes on" in await desk.done("/schedules/change", name="mornings", verb="resume", back="/")


async def test_instances_are_listed_by_state(store: Store) -> None:
    engine = Engine(store).register(shop.Subscriptions())
    for name in ("a", "b", "c"):
        await engine.execute(shop.Start(name))
    await engine.execute(shop.AddCard("b", "4242"))
    async with dashboard(store, [shop.Subscriptions()]) as desk:
        for state, ids in (("Active", ["b"]), ("Trial", ["a", "c"]), ("Suspended", []), ("nothing", ["a", "b", "c"])):
            page = await desk.page(f"/deciders?type=subscription&state={state}")
            found = [one for one in page.values("a", "href") if "/deciders/one" in one]
            assert sorted(one.rpartition("id=")[2] for one in found) == ids, state
        page = await desk.page("/deciders?type=subscription&state=Suspended")
        assert "None of 3 instances that were looked at is Suspended" in page.text


class Plain(Decider[Lamp, Press, Pressed, Never]):
    """It declares no states; its state has a status of its own."""

    type = "lamp"
    route = "lamp"

    def initial(self) -> Lamp:
        return Lamp()

    def decide(self, state: Lamp, input: Press, now: datetime) -> Decision[Pressed, Never, Press]:
        return Decision.event(Pressed(Light.OFF if state.status is Light.ON else Light.ON))

    def evolve(self, state: Lamp, event: Pressed) -> Lamp:
        return Lamp(event.then)


async def test_a_long_past_is_computed_once_and_travelled_in_short_ways(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_travel, "STRIDE", 20)
    monkeypatch.setattr(time_travel, "BEFORE", 5)
    engine = Engine(store).register(Plain())
    for _ in range(50):
        await engine.execute(Press("hall"))
    folded: list[int] = []
    evolve = Plain.evolve

    def counted(self: Plain, state: Lamp, event: Pressed) -> Lamp:
        folded.append(1)
        return evolve(self, state, event)

    monkeypatch.setattr(Plain, "evolve", counted)
    async with dashboard(store, [Plain()]) as desk:
        for at, most in ((50, 50), (50, 12), (49, 12), (46, 12), (27, 60), (46, 12), (50, 12), (3, 60), (1, 60)):
            folded.clear()
            page = await desk.page(f"/deciders/one?type=lamp&id=hall&at={at}")
            light = "ON" if at % 2 else "OFF"
            assert f'"status": "{light.lower()}"' in page.text, at
            assert f"{light} (now)" in page.values("svg", "aria-label")[-1]
            assert len(folded) <= most, at


async def test_the_states_of_a_decider_that_declares_none_are_drawn_as_observed(store: Store) -> None:
    engine = Engine(store).register(Plain())
    for _ in range(3):
        await engine.execute(Press("hall"))
    async with dashboard(store, [Plain()]) as desk:
        page = await desk.page("/deciders/one?type=lamp&id=hall")
        assert "observed; green" in page.text
        [shown] = page.values("svg", "aria-label")[-1:]
        assert shown == "States: OFF, ON (now)"


@pytest.mark.proves("dashboard-11")
async def test_lists_previews_and_groups_read_no_payload(store: Store) -> None:
    long = "x" * 100_000
    ids = [int(await store.trigger(flows.buy.trigger(long).options(require_worker="ignore"))) for _ in range(3)]
    await store.create_queue("emails")
    await store.enqueue("emails", {"to": long})
    await Worker(store, flows.ALL).drain()
    seen: list[int] = []
    driver: Any = store.database.driver
    read = driver.read

    async def counted(call: Any) -> Any:
        rows = await read(call)
        seen.append(sum(len(str(value)) for row in rows for value in dict(row).values()))
        return rows

    driver.read = counted
    try:
        async with dashboard(store, flows.ALL) as desk:
            for path in ("/", "/runs", "/runs?q=status:succeeded", "/runs?q=error:x", "/dead", "/dead?queue=emails"):
                await desk.page(path)
            await desk.page("/runs/bulk?do=delete&all=1&q=")
            await desk.page(f"/runs/bulk?do=delete&id={ids[0]}&id={ids[1]}")
            assert max(seen) < 20_000, "no payload"
            await desk.page(f"/runs/{ids[0]}")
            assert max(seen) > 100_000, "this would have been noticed"
    finally:
        driver.read = read
