"""What people do from the dashboard, on every backend: each action says what became of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import Engine, Store, Worker
from stepwell.records import RunStatus
from tests.ui import flows, shop
from tests.ui.kit import Markup, dashboard

QUIET: dict[str, Any] = {"require_worker": "ignore"}


async def failed_run(store: Store) -> int:
    """A run that has failed in its second step."""
    run = await store.trigger(flows.buy.trigger("gold").options(**QUIET))
    await Worker(store, flows.ALL).drain()
    assert (await store.get_run(run)).status is RunStatus.ERROR
    return int(run)


async def test_a_fork_with_an_edited_output_goes_on_and_leaves_the_run_as_it_was(store: Store) -> None:
    run = await failed_run(store)
    async with dashboard(store, flows.ALL) as desk:
        page = await desk.page(f"/runs/{run}?step=price%231")
        assert "190000" in page.text
        said = await desk.done(f"/runs/{run}/fork", edited="price#1", output="19", reason="a typing error")
        assert "is a fork of run" in said
        await Worker(store, flows.ALL).drain()
        [fork] = [one for one in await store.runs() if one.id != run]
        assert (fork.status, fork.output(str)) == (RunStatus.SUCCESS, "paid 19")
        assert (await store.get_run(run)).status is RunStatus.ERROR
        said = await desk.done(f"/runs/{run}/fork", edited="price#1", output='"much"', back=f"/runs/{run}")
        assert said.startswith("problem")
        said = await desk.done(f"/runs/{run}/fork", edited="price#1", output="{", back=f"/runs/{run}")
        assert "is not JSON" in said
        said = await desk.done(f"/runs/{run}/fork", at="pay#1")
        assert "goes on at pay#1" in said
    assert "local" in [one.actor for one in await store.history(fork.id)]


async def test_a_signal_is_sent_by_the_form_of_its_type(store: Store) -> None:
    run = await store.trigger(flows.deliver.trigger("desk").options(**QUIET))
    await Worker(store, flows.ALL).drain()
    async with dashboard(store, flows.ALL) as desk:
        back = f"/runs/{int(run)}"
        said = await desk.done(f"{back}/signal", name="accepted", field__courier="DHL", field__parcels="x", back=back)
        assert "parcels is not JSON" in said
        said = await desk.done(f"{back}/signal", name="accepted", field__courier="DHL", field__parcels="2.5", back=back)
        assert "whole number" in said
        said = await desk.done(f"{back}/signal", name="accepted", field__courier="DHL", field__parcels="3")
        assert "took accepted and goes on" in said
        await Worker(store, flows.ALL).drain()
        assert (await store.get_run(run)).output(str) == "desk with DHL, 3 parcels"
        said = await desk.done(f"{back}/signal", name="accepted", data='{"courier": "x", "parcels": 1}')
        assert "nothing was changed" in said


async def test_a_run_is_retried_paused_resumed_cancelled_deleted_and_restored(store: Store) -> None:
    failed = await failed_run(store)
    waits = int(await store.trigger(flows.deliver.trigger("desk").options(**QUIET)))
    async with dashboard(store, flows.ALL) as desk:
        for run, verb, said in (
            (failed, "retry", "good: "),
            (failed, "retry", "warning: Nothing was changed"),
            (waits, "pause", "good: "),
            (waits, "unpause", "good: "),
            (waits, "unpause", "warning: "),
            (waits, "accept", "warning: "),
            (waits, "cancel", "good: "),
            (waits, "cancel", "warning: "),
            (waits, "delete", "good: "),
            (waits, "restore", "good: "),
            (waits, "restore", "warning: "),
        ):
            assert (await desk.done(f"/runs/{run}/{verb}", reason="why not")).startswith(said), verb
        assert (await desk.post(f"/runs/{waits}/shred")).status_code == 404
    assert (await store.get_run(waits)).status is RunStatus.CANCELLED


async def test_many_runs_are_retried_after_a_preview_of_what_is_touched(store: Store) -> None:
    failed = [await failed_run(store) for _ in range(3)]
    good = await store.trigger(flows.buy.trigger("lamp").options(**QUIET))
    await Worker(store, flows.ALL).drain()
    async with dashboard(store, flows.ALL) as desk:
        chosen = "&".join(f"id={one}" for one in [*failed[:2], int(good)])
        page = await desk.page(f"/runs/bulk?do=retry&{chosen}")
        assert "Retry 2 runs?" in page.text
        assert "1 run of those chosen is left as it is" in page.text
        page = await desk.page("/runs/bulk?do=retry&all=1&q=workflow:buy")
        assert "Retry 3 runs?" in page.text
        said = await desk.done("/runs/bulk", do="retry", id=[str(one) for one in failed])
        assert "3 runs retried" in said
        assert {(await store.get_run(one)).status for one in failed} == {RunStatus.PENDING}
        said = await desk.done("/runs/bulk", do="retry", id=[str(one) for one in [*failed, 999]])
        assert said.startswith("warning: 0 runs retried. 4 left as they were")
        assert "3 runs cancelled" in await desk.done("/runs/bulk", do="cancel", id=[str(one) for one in failed])


@pytest.mark.backends("sqlite", "postgres", reason="operators race as transactions do")
async def test_two_operators_act_at_once_and_each_is_told_what_became_of_it(store: Store) -> None:
    run = await failed_run(store)
    async with dashboard(store, flows.ALL) as ann, dashboard(store, flows.ALL) as bob:
        said = await asyncio.gather(*(desk.done(f"/runs/{run}/retry") for desk in (ann, bob)))
        assert sorted(one.partition(":")[0] for one in said) == ["good", "warning"]
        await asyncio.gather(Worker(store, flows.ALL).drain(), ann.done(f"/runs/{run}/cancel"))
    assert (await store.get_run(run)).status.finished
    assert len([one for one in await store.history(run) if one.what == "retried"]) == 1


async def test_a_run_is_triggered_by_the_form_of_its_parameters(store: Store) -> None:
    async with dashboard(store, flows.ALL) as desk:
        page = await desk.page("/trigger?workflow=configure")
        assert page.values("select", "name") == ["field.size"]
        said = await desk.done(
            "/trigger", workflow="configure", field__name="ann", field__size='"large"', field__count="7", key="k"
        )
        assert "is written" in said
        await Worker(store, flows.ALL).drain()
        [run] = await store.runs()
        assert run.output(dict) == {"name": "ann", "size": "large", "count": 7, "loud": False}
        page = await desk.page("/trigger?workflow=configure")
        assert "stepwell trigger configure name=ann size=large count:=7 loud:=false" in page.text
        assert "configure.trigger(name='ann'" in page.text
        wrong: list[dict[str, Any]] = [
            {"field__count": "many"},
            {"field__size": "huge"},
            {"field__count": "1.5"},
        ]
        for one in wrong:
            answer = await desk.post("/trigger", workflow="configure", field__name="x", back="/trigger", **one)
            assert answer.status_code == 400, one
    assert len(await store.runs()) == 1


async def test_a_run_whose_code_is_not_here_is_triggered_like_the_last(store: Store) -> None:
    await store.trigger(flows.configure.trigger("ann", count=9).options(**QUIET))
    async with dashboard(store) as desk:
        page = await desk.page("/trigger?workflow=configure")
        assert '"count": 9' in page.text
        await desk.done("/trigger", workflow="configure", field__='{"name": "bob", "count": 2}')
    await Worker(store, flows.ALL).drain()
    assert (await store.runs())[0].output(dict)["name"] == "bob"


async def test_dead_letters_are_requeued_dropped_and_sent_again_with_another_payload(store: Store) -> None:
    await store.create_queue("emails")
    ids = [int(await store.enqueue("emails", {"to": f"nowhere {number}"})) for number in range(4)]
    await Worker(store, flows.ALL).drain()
    async with dashboard(store, flows.ALL) as desk:
        page = await desk.page("/dead")
        assert "PermanentError" in page.text
        assert "1 task will be tried again" in await desk.done("/dead/change", verb="requeue", id=str(ids[0]))
        assert "1 task dropped" in await desk.done("/dead/change", verb="drop", id=str(ids[1]))
        said = await desk.done(f"/tasks/{ids[2]}/copy", payload='{"to": "ann@example.org"}', drop="on")
        assert "is dropped; its edited copy is message" in said
        said = await desk.done("/dead/change", verb="requeue", queue="emails", error="PermanentError")
        assert "1 task will be tried again" in said
        said = await desk.done("/dead/change", verb="drop", id=str(ids[0]))
        assert said.startswith("warning: 0 tasks dropped")
        said = await desk.done("/dead/change", verb="drop", back="/dead")
        assert "choose dead letters" in said
    await Worker(store, flows.ALL).drain()
    counts = await store.counts("emails")
    assert (counts["SUCCESS"], counts["ERROR"]) == (1, 2)


async def test_a_queue_is_paused_drained_sent_to_and_purged(store: Store) -> None:
    await store.create_queue("emails")
    async with dashboard(store, flows.ALL) as desk:
        for verb, said in (
            ("pause", "is paused"),
            ("resume", "goes on"),
            ("drain", "takes nothing new"),
            ("reopen", "takes new messages again"),
        ):
            assert said in await desk.done("/queues/change", queue="emails", verb=verb), verb
        said = await desk.done("/queues/change", queue="emails", verb="send", payload='{"to": "ann@example.org"}')
        assert "has message" in said
        assert "has lost 1 message" in await desk.done("/queues/change", queue="emails", verb="purge")
        assert "JSON" in await desk.done("/queues/change", queue="emails", verb="send", payload="{", back="/queues")


async def test_one_travels_through_the_versions_of_an_instance_and_tries_an_input(store: Store) -> None:
    engine = Engine(store).register(shop.Subscriptions())
    for one in (shop.Start("s"), shop.AddCard("s", "4242"), shop.RecordCharge("s", paid=False, code="declined")):
        await engine.execute(one)
    place = "/deciders/one?type=subscription&id=s"
    async with dashboard(store, [shop.Subscriptions()]) as desk:
        now = await desk.page(place)
        assert '"status": "PastDue"' in now.text
        then = await desk.page(f"{place}&at=2")
        assert '"status": "Active"' in then.text
        assert "- status: Trial+ status: Active" in then.text
        tried = await desk.page(f"{place}&input=Cancel&field.subscription=s&field.reason=dear")
        assert "Cancelled" in tried.text
        assert (await engine.inspect("subscription", "s")).version == 3
        refused = await desk.page(f"{place}&input=AddCard&field.subscription=s&field.last4=1")
        assert "does not fit a subscription that is PastDue" in refused.text
        said = await desk.done("/deciders/send", type="subscription", id="s", input="Cancel", field__subscription="s")
        assert "Cancel was applied" in said
        said = await desk.done("/deciders/send", type="subscription", id="s", input="Cancel", field__subscription="s")
        assert "has ended" in said


async def test_maintenance_begins_and_ends_from_the_settings(store: Store) -> None:
    async with dashboard(store) as desk:
        assert "Nothing is claimed" in await desk.done("/settings/maintenance", verb="begin", reason="upgrade")
        found = await store.maintenance()
        assert found is not None
        assert found.reason == "upgrade"
        assert "claim again" in await desk.done("/settings/maintenance", verb="end")
    assert await store.maintenance() is None


def test_the_kit_reads_what_could_execute() -> None:
    odd = Markup('<p onclick="x"><a href="javascript:x"></a><script>1</script><img src="x"><a href="//x"></a>').odd
    assert len(odd) == 5
    assert Markup('<a href="/runs">x</a><script src="/static/keys.js?v=1"></script>').odd == []


async def test_a_schedule_is_paused_resumed_and_run_now(store: Store) -> None:
    await flows.filled(store)
    async with dashboard(store, flows.ALL) as desk:
        listed = await desk.page("/schedules")
        assert "/schedules/one?name=mornings" in listed.values("a", "href")
        assert "active" in listed.text
        for verb, said in (
            ("pause", "good: mornings is paused"),
            ("pause", "warning: Nothing was changed"),
            ("resume", "good: mornings goes on"),
            ("run", "good: mornings runs now"),
            ("run", "warning: Nothing was triggered"),
        ):
            assert (await desk.done("/schedules/change", name="mornings", verb=verb)).startswith(said), verb
        page = await desk.page("/schedules/one?name=mornings")
        [tick] = await store.ticks("mornings")
        assert f"/runs/{tick.run_id}" in page.values("a", "href")
        assert (await desk.post("/schedules/change", name="mornings", verb="shred")).status_code == 404
        await desk.get("/schedules/one?name=evenings", status=404)


async def test_limits_are_changed_and_a_key_is_paused(store: Store) -> None:
    await store.create_queue("emails")
    await store.limits.set("emails", running=5, key="tenant", per_key=2)
    for tenant in ("acme", "<b>"):
        await store.enqueue("emails", {"to": "ann@example.org", "tenant": tenant})
    async with dashboard(store, flows.ALL) as desk:
        page = await desk.page("/queues/one?name=emails")
        assert "0 of 5 at once over all workers, 2 of each tenant" in page.text
        assert {"acme", "<b>"} <= set(page.values("input", "value"))
        fields: dict[str, Any] = {"queue": "emails", "back": "/queues/one?name=emails"}
        assert "Nothing of acme begins" in await desk.done("/queues/limits", verb="pause", key="acme", **fields)
        assert "by local, from the dashboard" in (await desk.page("/queues/one?name=emails")).text
        assert "acme goes on" in await desk.done("/queues/limits", verb="resume", key="acme", **fields)
        said = await desk.done("/queues/limits", verb="set", running="9", per_key="", **fields)
        assert "for all workers" in said
        info = await store.limits.of("emails")
        assert info is not None
        assert (info.limits.running, info.limits.per_key) == (9, None)
        assert "whole number" in await desk.done("/queues/limits", verb="set", running="many", **fields)
        assert "of its code" in await desk.done("/queues/limits", verb="reset", **fields)
        assert await store.limits.of("emails") is None
