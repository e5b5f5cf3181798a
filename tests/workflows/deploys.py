"""Programs in two versions: what was deployed when a run began, and what is deployed when it goes on.

Each is the text of a module. Its bodies write to `ledger`, which the test gives it; `flow` is its workflow, which the
old version leaves asleep. What is wanted is the name for which the run is held, or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent

HEADER = """
import asyncio
from stepwell import Context, step, workflow
from stepwell.sync import Context as SyncContext

ledger: list[str]
"""


@dataclass(frozen=True)
class Deploy:
    """A program as it was and as it is now."""

    name: str
    before: str
    after: str
    held: str | None = None  # the recorded name that is gone
    wanted: tuple[str, ...] = ()  # what was executed in the end, held or not and accepted if it was

    def texts(self) -> tuple[str, str]:
        """Both modules."""
        return HEADER + dedent(self.before), HEADER + dedent(self.after)


LEVY = """
@step
async def levy(cents: int) -> int:
    ledger.append("levy")
    return cents
"""
FLOW = """
@workflow(name="flow")
async def flow(ctx: Context) -> None:
    {body}
"""


def flow(*lines: str, before: str = "") -> str:
    """A workflow of these lines."""
    return before + FLOW.format(body="\n    ".join(lines))


SLEEP = "await ctx.sleep(60)"
OLD = flow("await levy(7)", SLEEP, before=LEVY)
GIVEN = 'await ctx.step("levy", lambda: ledger.append("levy"))'
OLD_GIVEN = flow(GIVEN, SLEEP)
WEIGH = 'await ctx.step("weigh", lambda: ledger.append("weigh"))'
NEW_BODY = LEVY.replace("levy", "levy_card").replace("    return", "    psp.levy(cents)\n    return")
PSP = """
class psp:
    def levy(cents: int) -> None: "levy"
"""
BRANCH = """
async def {name}(ctx: Context, part: int) -> None:
    await ctx.step("levy", ledger.append, f"levy {{part}}")
"""
BOTH = "await asyncio.gather({0}(ctx, 1), {0}(ctx, 2))"
LOOP = 'await ctx.step("levy", lambda: ledger.append("levy"))'

DEPLOYS = [
    Deploy(
        "decorated",
        OLD,
        flow("await levy_card(7)", SLEEP, before=LEVY.replace("levy", "levy_card")),
        "levy",
        ("levy", "levy_card"),
    ),
    Deploy(
        "lambda",
        OLD_GIVEN,
        flow(GIVEN.replace("levy", "levy_card"), SLEEP),
        "levy",
        ("levy", "levy_card"),
    ),
    Deploy(
        "local",
        flow("@step", "async def levy() -> None: ledger.append('levy')", "await levy()", SLEEP),
        flow("@step", "async def levy_card() -> None: ledger.append('levy_card')", "await levy_card()", SLEEP),
        "levy",
        ("levy", "levy_card"),
    ),
    Deploy(
        "id kept",
        OLD,
        flow(
            "await levy_card(7)", SLEEP, before=LEVY.replace("levy", "levy_card").replace("@step", '@step(id="levy")')
        ),
        None,
        ("levy",),
    ),
    Deploy("added before", OLD_GIVEN, flow(WEIGH, GIVEN, SLEEP), None, ("levy", "weigh")),
    Deploy("added after", OLD_GIVEN, flow(GIVEN, SLEEP, WEIGH), None, ("levy", "weigh")),
    Deploy("added before, decorated", OLD, flow(WEIGH, "await levy(7)", SLEEP, before=LEVY), None, ("levy", "weigh")),
    Deploy("removed", OLD, flow(SLEEP), None, ("levy",)),
    Deploy("removed and another added", OLD, flow(SLEEP, WEIGH), "levy", ("levy", "weigh")),
    Deploy("condition", OLD_GIVEN, flow(f"if not ledger: {GIVEN}", WEIGH, SLEEP), None, ("levy", "weigh")),
    Deploy(
        "a skipped condition before the rename",
        flow('await ctx.step("look", lambda: ledger.append("look"))', GIVEN, SLEEP),
        flow(
            'if not ledger: await ctx.step("look", lambda: ledger.append("look"))',
            GIVEN.replace("levy", "levy_card"),
            SLEEP,
        ),
        "levy",
        ("look", "levy", "levy_card"),
    ),
    Deploy(
        "loop",
        flow(f"for _ in range(3): {LOOP}", SLEEP),
        flow(f"for _ in range(2): {LOOP}", WEIGH, SLEEP),
        None,
        ("levy", "levy", "levy", "weigh"),
    ),
    Deploy(
        "f-string",
        flow("for n in range(2): " + LOOP.replace('"levy", lam', 'f"levy-{n}", lam'), SLEEP),
        flow(WEIGH, "for n in range(2): " + LOOP.replace('"levy", lam', 'f"levy-{n}", lam'), SLEEP),
        None,
        ("levy", "levy", "weigh"),
    ),
    Deploy(
        "f-string renamed",
        flow("for n in range(2): " + LOOP.replace('"levy", lam', 'f"levy-{n}", lam'), SLEEP),
        flow("for n in range(2): " + LOOP.replace('"levy", lam', 'f"levied-{n}", lam'), SLEEP),
        "levy-0",
        ("levy", "levy", "levy", "levy"),
    ),
    Deploy(
        "variable",
        flow("for name in ledger[:0] or ['le' 'vy']: " + LOOP.replace('"levy", lam', "name, lam"), SLEEP),
        flow("for name in ledger[:0] or ['le' 'vy']: " + LOOP.replace('"levy", lam', "name, lam"), SLEEP, WEIGH),
        None,
        ("levy", "weigh"),
    ),
    Deploy(
        "a variable that the file gives a text",
        flow(GIVEN.replace('"levy", lam', "LEVY, lam"), SLEEP, before='LEVY = "levy"\n'),
        flow(WEIGH, GIVEN.replace('"levy", lam', "LEVY, lam"), SLEEP, before='LEVY = "levy"\n'),
        None,
        ("levy", "weigh"),
    ),
    Deploy(
        "branch renamed",
        flow(BOTH.format("pay"), SLEEP, before=BRANCH.format(name="pay")),
        flow(BOTH.format("remit"), SLEEP, before=BRANCH.format(name="remit")),
        "pay/",
        ("levy 1", "levy 2", "levy 1", "levy 2"),
    ),
    Deploy(
        "branch added",
        flow(BOTH.format("pay"), SLEEP, before=BRANCH.format(name="pay")),
        flow(
            "await asyncio.gather(weigh(ctx, 3), pay(ctx, 1), pay(ctx, 2))",
            SLEEP,
            before=BRANCH.format(name="pay") + BRANCH.format(name="weigh"),
        ),
        None,
        ("levy 1", "levy 2", "levy 3"),
    ),
    Deploy(
        "branch added before the others begin",
        flow(BOTH.format("pay"), SLEEP, before=BRANCH.format(name="pay")),
        flow(WEIGH, BOTH.format("pay"), SLEEP, before=BRANCH.format(name="pay")),
        None,
        ("levy 1", "levy 2", "weigh"),
    ),
    Deploy(
        "renamed inside a branch",
        flow(BOTH.format("pay"), SLEEP, before=BRANCH.format(name="pay")),
        flow(BOTH.format("pay"), SLEEP, before=BRANCH.format(name="pay").replace('"levy"', '"levy_card"')),
        "levy",
        ("levy 1", "levy 2", "levy 1", "levy 2"),
    ),
    Deploy(
        "the old name in the new body",
        OLD,
        flow("await levy_card(7)", SLEEP, before=NEW_BODY + PSP),
        "levy",
        ("levy", "levy_card"),
    ),
    Deploy(
        "a name that may be any declares none",
        OLD_GIVEN,
        flow(GIVEN.replace("levy", "levy_card"), SLEEP, "await ctx.step(f'{len(ledger)}', ledger.append, 'any')"),
        "levy",
        ("levy", "levy_card", "any"),
    ),
    Deploy(
        "catch-all",
        OLD,
        flow(
            "try:",
            "    await levy_card(7)",
            "except Exception:",
            f"    {WEIGH}",
            SLEEP,
            before=LEVY.replace("levy", "levy_card"),
        ),
        "levy",
        ("levy", "levy_card"),
    ),
    Deploy(
        "acquired",
        flow('got = await ctx.acquire("levy")', 'ledger.append("levy")', "await got.success(7)", SLEEP)
        .replace("ledger.append", "hasattr(got, 'success') and ledger.append")
        .replace("await got", "if hasattr(got, 'success'): await got"),
        flow('got = await ctx.acquire("levy_card")', 'ledger.append("levy_card")', "await got.success(7)", SLEEP)
        .replace("ledger.append", "hasattr(got, 'success') and ledger.append")
        .replace("await got", "if hasattr(got, 'success'): await got"),
        "levy",
        ("levy", "levy_card"),
    ),
    Deploy(
        "sync",
        LEVY.replace("async ", "")
        + FLOW.format(body="levy(7)\n    ctx.sleep(60)").replace("async ", "").replace("Context", "SyncContext"),
        LEVY.replace("async ", "").replace("levy", "levy_card")
        + FLOW.format(
            body="try:\n        levy_card(7)\n    except Exception:\n        ledger.append('caught')\n    ctx.sleep(60)"
        )
        .replace("async ", "")
        .replace("Context", "SyncContext"),
        "levy",
        ("levy", "levy_card"),
    ),
    Deploy(
        "child",
        flow("await ctx.ask_for(levy.trigger(7))", SLEEP, before=LEVY.replace("@step", "@workflow")),
        flow(
            "await ctx.ask_for(levy_card.trigger(7))",
            SLEEP,
            before=LEVY.replace("levy", "levy_card").replace("@step", "@workflow"),
        ),
        "levy()",
        ("levy", "levy_card"),
    ),
]
