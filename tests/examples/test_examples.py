"""Every example runs, on its own SQLite file and against the store that STEPWELL_URL names."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
EXPECTED = {
    "queue_emails.py": [
        "the same message: True created again: False",
        "sent 'Welcome' to ada@example.org, try 1",
        "sent 'News' to busy@example.org, try 2",
        "sent 'News' to slow@example.org, try 2",
        "dead letter grace@example.org: PermanentError: no mailbox grace@example.org",
        "requeued 1",
        "sent 'News' to grace@example.org, try 2",
        "statuses {'SUCCESS': 4}",
    ],
    "batch_meters.py": [
        "wrote 10 readings together",
        "20 of 20 good readings are written",
        "dead letter m99, attempt 1: PermanentError: meter m99 runs backwards",
        "statuses {'ERROR': 1, 'SUCCESS': 20}",
    ],
    "approval.py": [
        "  worker 1: mail to the boss: 4900 cents for a lamp?",
        "  worker 1: mail to the boss: 99000000 cents for a yacht?",
        "  worker 1: is killed while the runs wait",
        "the runs are ['PAUSED', 'PAUSED']",
        "the boss likes the lamp: 202 woke",
        "and clicks again: 409 too_late",
        "but no yacht: 202 woke",
        "  worker 2: pay 4900 cents",
        "a lamp is paid, as grace said and a yacht is refused by grace",
    ],
    "fan_out.py": [
        *["  arithmetic: shrink 8 rows"] * 3,
        "picture0 is 4 by 4, its first row [0, 1, 2, 3]",
        "picture1 is 4 by 4, its first row [1, 2, 3, 4]",
        "one is missing: step read#1 gave up with PermanentError: picture2.pgm is no picture",
        "picture3 is 4 by 4, its first row [3, 4, 5, 6]",
        "recorded by the parent: ['list_pictures#1', 'trigger_many()#1', 'described:1/results()#1'] and so on",
    ],
    "order_fulfilment.py": [
        "  worker 1: charge 9900 cents for order 1",
        "  worker 1: reserve lamp and desk",
        "  worker 1: is killed while it packs",
        "order 1 is RUNNING with ['charge#1', 'reserve#1']",
        "  worker 2: ship the lamp, attempt 1",
        "  worker 2: ship the desk, attempt 2",
        "  worker 2: charge 500 cents for order 2",
        "  worker 2: reserve unicorn",
        "  worker 2: refund the receipt of order 2",
        "order 1: ['receipt of order 1', 'parcel with the lamp', 'parcel with the desk']",
        "order 2: []",
        "the bank: charged order 1, charged order 2, refunded the receipt of order 2",
    ],
    "order_decider.py": [
        "asked twice: applied duplicate",
        "stateDiagram-v2",
        "    [*] --> new",
        "    new --> created : Create, effect SendEmail, timer payment",
        "    created --> paid : Pay, effect Ship",
        "    created --> expired : GiveUp, effect SendEmail",
        "    paid --> shipped : Shipped, effect SendEmail",
        "    shipped --> [*]",
        "    expired --> [*]",
        "    classDef current fill:#ffd54f,stroke:#000,stroke-width:3px,color:#000",
        "    class created current",
        "  mail to ada: please pay 1900 cents",
        "  mail to ada: sent parcel for order",
        "  1 OrderCreated(customer='ada', cents=1900)",
        "  2 PaymentReceived(receipt='receipt 1')",
        "  3 TimerCancelled(key='payment')",
        "  4 OrderShipped(parcel='parcel for order')",
        "  mail to grace: please pay 500 cents",
        "  mail to grace: your order has expired",
        "paid too late: completed",
        "  1 OrderCreated(customer='grace', cents=500)",
        "  2 OrderExpired()",
    ],
    "sync_queue.py": [
        "the same message: True created again: False",
        "posted 1200 cents to 1 Engine Street, try 1",
        "posted 300 cents to 2 Tape Lane, try 2",
        "dead letter grace: PermanentError: grace has no address",
        "requeued 1",
        "posted 900 cents to 3 Compiler Row, try 2",
        "statuses {'SUCCESS': 3}",
    ],
}


def output_of(example: str, folder: Path, **environment: str) -> list[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "STEPWELL_URL"}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / example)],
        cwd=folder,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize("example", EXPECTED)
def test_example_on_its_own_file(example: str, tmp_path: Path) -> None:
    assert sorted(output_of(example, tmp_path)) == sorted(EXPECTED[example])
    assert not list(tmp_path.iterdir()), "it cleans up"


PROVES = {"approval.py": ["P-12"]}


@pytest.mark.parametrize(
    "example", [pytest.param(name, marks=pytest.mark.proves(*PROVES.get(name, ()))) for name in EXPECTED]
)
def test_example_on_a_named_store(example: str, tmp_path: Path, store_url: str) -> None:
    for _ in range(2):  # a second time on the same store is no different
        assert sorted(output_of(example, tmp_path, STEPWELL_URL=store_url)) == sorted(EXPECTED[example])
