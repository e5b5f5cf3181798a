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
        "480 readings of a day are there",
        *["wrote 50 readings together"] * 9,
        "wrote 30 readings together",
        "statuses {'ERROR': 1, 'SUCCESS': 500}",
    ],
    "new_version.py": [
        "version 1 charges 9.5 euros for lamp",
        "one run is open, one has not begun, and a message waits: version 2 is deployed",
        "version 2 writes about 950 cents",
        "version 2 charges 9900 cents for desk",
        "the sales came to 950 and 9900 cents",
        "an old worker leaves 1 newer message to new ones, with its attempts",
    ],
    "approval.py": [
        "  worker 1: mail to the boss: 4900 cents for a lamp?",
        "  worker 1: mail to the boss: 99000000 cents for a yacht?",
        "  worker 1: is killed while the runs wait",
        "the runs are ['PAUSED', 'PAUSED']",
        "the boss likes the lamp: 202 WOKE",
        "and clicks again: 409 TOO_LATE",
        "but no yacht: 202 WOKE",
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
        *["  arithmetic: shrink 8 rows"] * 3,
        "two at once: ['picture0', 'picture1', 'picture3']",
    ],
    "file_processing.py": [
        "looked twice, new runs: 0",
        "count monday.csv",
        "count tuesday.csv",
        "SUCCESS monday.report",
        "ERROR StepFailed: step count#1 gave up with PermanentError: tuesday.csv: many is no amount",
        "count tuesday.csv",
        "monday.report ['desk', '9900', 'lamp', '3800']",
        "tuesday.report ['desk', '9900']",
    ],
    "crash_recovery.py": [
        "worker 1 was killed, exit code -9",
        "recorded by then: ['transfer#1', 'transfer#2']",
        "worker 2 ended, exit code 0",
        "the run returned ['receipt 1', 'receipt 2', 'receipt 3', 'receipt 4', 'receipt 5']",
        "the bank was asked for ['month 1', 'month 2', 'month 3', 'month 3', 'month 4', 'month 5']",
        "and has moved money 5 times, by its keys",
    ],
    "many_workers.py": [
        "met: 3 workers",
        "worker 1 has left, exit code 0",
        "the others have left, exit codes [0, 0]",
        "150 shirts are pressed, at most 1 time each",
    ],
    "agent.py": [
        "it waits for the user; no worker is left, and the model was asked 2 times",
        "consent: WOKE",
        "user: A room in Paris, please.",
        "model: use weather, weather",
        "weather: sunny",
        "weather: failed, there is no Atlantis",
        "model: use book",
        "book: a room in the Ritz for 90000 cents, booked with the key use:3/book#1",
        "model: It is sunny in Paris, and a room is booked.",
        "the model was asked 3 times",
    ],
    "fastapi_app.py": [
        "placed, new: True",
        "placed, new: False",
        "address: True",
        "receipt over 1900, shipped to Paris",
    ],
    "subscription_decider.py": [
        "a year is tested by calling",
        "  1 SubscriptionStarted",
        "  2 PaymentAsked",
        "  3 PaymentRefused",
        "  4 PaymentAsked",
        "  5 PaymentRefused",
        "  6 SubscriptionEnded",
        "cancelled too late: completed",
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


GUIDES = ("file_processing.py", "crash_recovery.py", "many_workers.py", "order_decider.py", "subscription_decider.py")
PROVES = {**{name: ["G-02"] for name in GUIDES}, "approval.py": ["P-12", "G-02"]}
# One of each kind goes to every database. The others have run on SQLite in a file of their own, and go to a server.
KINDS = ("queue_emails.py", "approval.py", "crash_recovery.py", "order_decider.py")


@pytest.mark.parametrize(
    "example", [pytest.param(name, marks=pytest.mark.proves(*PROVES.get(name, ()))) for name in EXPECTED]
)
@pytest.mark.backends("postgres", reason="the next test has the others")
def test_example_on_a_server(example: str, tmp_path: Path, store_url: str) -> None:
    assert sorted(output_of(example, tmp_path, STEPWELL_URL=store_url)) == sorted(EXPECTED[example])


@pytest.mark.parametrize(
    "example", [pytest.param(one, marks=pytest.mark.proves(*PROVES.get(one, ()))) for one in KINDS]
)
@pytest.mark.backends("sqlite", "turso", reason="the test before has Postgres")
def test_example_on_a_named_file(example: str, tmp_path: Path, store_url: str) -> None:
    for _ in range(2 if store_url.startswith("sqlite:") else 1):  # a second time on the same store is no different
        assert sorted(output_of(example, tmp_path, STEPWELL_URL=store_url)) == sorted(EXPECTED[example])
