"""What makes a webhook trustworthy; and the events of a workflow's life: with what they tell of, and as asked for."""

from tests.mutants.mutant import Mutant

WEBHOOK = "tests/outbox/test_webhook.py::"
LIFE = "tests/outbox/test_lifecycle.py::"

WEBHOOK_MUTANTS = (
    Mutant(
        "a signature is not over the time",
        "O-11",
        "sinks/signature.py",
        'said = f"{id}.{timestamp}.".encode() + body',
        'said = f"{id}.0.".encode() + body',
        WEBHOOK + "test_a_signature_is_verified_by_either_secret_while_one_is_rotated",
    ),
    Mutant(
        "the old secret signs no more while it is rotated",
        "O-11",
        "sinks/signature.py",
        "for key in self._keys)",
        "for key in self._keys[:1])",
        WEBHOOK + "test_a_signature_is_verified_by_either_secret_while_one_is_rotated",
    ),
    Mutant(
        "two batches with the same first event have one id",
        "O-05",
        "sinks/webhook.py",
        '"\\n".join(sorted(one.id for one in events)).encode()',
        "events[0].id.encode()",
        WEBHOOK + "test_a_batch_has_one_id_in_any_order_and_no_other_batch_has_it",
    ),
    Mutant(
        "an answer that breaks off counts",
        "O-03",
        "sinks/http_client.py",
        "                while left > 0 and (part := await answer.content.read(left)):\n"
        "                    left -= len(part)\n",
        "",
        WEBHOOK + "test_what_may_come_right_is_posted_again_with_the_same_id",
    ),
    Mutant(
        "a receiver that is busy has refused for good",
        "O-03",
        "sinks/webhook.py",
        "if status >= 500 or status in AGAIN:",
        "if status >= 500:",
        WEBHOOK + "test_these_are_tried_again",
    ),
    Mutant(
        "a receiver may ask for a pause of years",
        "O-03",
        "sinks/webhook.py",
        "return min(LONGEST_PAUSE, float(said[:12]))",
        "return float(said[:12])",
        WEBHOOK + "test_retry_after_is_seconds_or_a_date",
    ),
    Mutant(
        "redirects are followed",
        "O-11",
        "sinks/http_client.py",
        "headers=headers, allow_redirects=False",
        "headers=headers, allow_redirects=True",
        WEBHOOK + "test_what_cannot_come_right_is_a_dead_letter_at_once",
    ),
    Mutant(
        "an answer without an end is read for ever",
        "O-11",
        "sinks/http_client.py",
        "                    left -= len(part)\n",
        "                    pass\n",
        WEBHOOK + "test_an_endless_answer_is_read_no_further_than_needed",
    ),
    Mutant(
        "a name is not looked at when it is resolved",
        "O-11",
        "sinks/http_client.py",
        '            refuse_private(one["host"], host)\n',
        "            pass\n",
        WEBHOOK + "test_a_name_that_leads_to_a_private_address_is_refused_when_it_is_connected_to",
    ),
    Mutant(
        "an address in other clothes is public",
        "O-11",
        "sinks/guard.py",
        "        if inner is not None:\n            found = inner\n",
        "",
        WEBHOOK + "test_addresses_of_this_network_are_not_public",
    ),
    Mutant(
        "a session outlives its workers",
        "O-11",
        "outbox.py",
        "            open_while_served=self._publisher.open,\n",
        "",
        WEBHOOK + "test_one_session_serves_a_worker_and_is_closed_with_it",
    ),
    Mutant(
        "the first worker that stops closes the sink of another",
        "O-11",
        "sinks/publisher.py",
        "            if not self._serving[loop]:\n",
        "            if True:\n",
        WEBHOOK + "test_two_workers_share_a_session_until_both_have_stopped",
    ),
    Mutant(
        "a settle that was refused is told of",
        "O-08",
        "store/tasks.py",
        "        if not settled:\n            return None\n",
        "        if not settled:\n"
        "            yield from tell_ends(self._db, [settling.row[0]])\n"
        "            return None\n",
        LIFE + "test_no_event_tells_of_a_settle_that_was_refused",
    ),
    Mutant(
        "what a workflow did not ask for is told",
        "O-08",
        "store/ends.py",
        "if name in wanted]",
        "if wanted]",
        LIFE + "test_what_was_not_asked_for_is_not_told",
    ),
    Mutant(
        "a run that was lost with its worker is not told of",
        "E-11",
        "store/sessions.py",
        "        yield from tell_ends(self._db, ",
        "        yield from tell_ends(self._db, [] and ",
        LIFE + "test_a_run_that_is_lost_with_its_last_worker_is_told_of",
    ),
    Mutant(
        "an error is published with its traceback",
        "O-08",
        "store/ends.py",
        '{name: error.get(name) for name in ("type", "message")} if isinstance(error, dict) else error',
        "error",
        LIFE + "test_each_failed_attempt_and_the_dead_letter_are_told",
    ),
)
