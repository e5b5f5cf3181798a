"""What keeps the limits of a queue, and its keys in turns."""

from tests.mutants.mutant import Mutant

RUNNING = "tests/limits/test_running.py::"
MOST = RUNNING + "test_no_more_run_at_once_than_the_limits_say"
TURNS = RUNNING + "test_keys_take_turns_by_their_weights"
LIGHT = RUNNING + "test_a_light_key_is_next_beside_a_noisy_one_and_a_paused_key_waits"
BEFORE = RUNNING + "test_what_was_there_before_the_limits_and_after_them_is_claimed_too"
LOST = RUNNING + "test_a_worker_lost_gives_its_places_back_and_a_suspect_needs_one"
DECLARED = RUNNING + "test_declared_limits_hold_over_all_workers_for_messages_and_runs"
SQL = "store/sql/limits.sql"

LIMIT_MUTANTS = (
    Mutant(
        "limits: a claim on Postgres does not count who has a place",
        "LI-01",
        SQL,
        "coalesce(held.running, 1000000) - busy.places) as room",
        "coalesce(held.running, 1000000)) as room",
        MOST,
    ),
    Mutant(
        "limits: a claim elsewhere does not count who has a place",
        "LI-01",
        "store/limited.py",
        "most - len(places))",
        "most)",
        MOST,
    ),
    Mutant(
        "limits: the limiter forgets whom it let in",
        "LI-01",
        SQL,
        "array(select places.id from places union all select taken.id from taken)",
        "array(select taken.id from taken)",
        MOST,
    ),
    Mutant(
        "limits: a claim trusts a snapshot that is older than its lock",
        "rule-27",
        SQL,
        "from held join seen on seen.turn = held.turn cross join clock",
        "from held cross join seen cross join clock",
        "tests/limits/test_rivals.py::test_claims_at_once_never_exceed_the_limits",
    ),
    Mutant(
        "limits: the places of a key are not counted",
        "LI-02",
        "store/limited.py",
        "most - self.running.get(key, 0)",
        "most",
        DECLARED,
    ),
    Mutant(
        "limits: the plain claim takes from a limited queue",
        "LI-01",
        "store/sql/tasks.sql",
        "where id = :queue_id and not paused and not limited\n",
        "where id = :queue_id and not paused\n",
        MOST,
    ),
    Mutant(
        "limits: a consumer without a worker takes from a limited queue",
        "LI-01",
        "store/sql/by_hand.sql",
        "where id = :queue_id and not paused and not limited\n",
        "where id = :queue_id and not paused\n",
        MOST,
    ),
    Mutant(
        "limits: every claim begins with the first key",
        "LI-03",
        SQL,
        "cursor = coalesce((select taken.limit_key from taken order by taken.rank desc limit 1),",
        "cursor = coalesce((select taken.limit_key from taken where false order by taken.rank desc limit 1), '',",
        TURNS,
    ),
    Mutant(
        "limits: a key loses the rest of its turn with each claim",
        "LI-03",
        "store/limited.py",
        "turn.weight - 1 - nth % turn.weight",
        "0",
        TURNS,
    ),
    Mutant(
        "limits: a paused key goes on",
        "LI-04",
        "store/limited.py",
        'free = 0 if row["paused_at"] is not None else keys.free',
        "free = keys.free",
        LIGHT,
    ),
    Mutant(
        "limits: what was there before the limits gets no key",
        "LI-05",
        "store/limiters.py",
        "while found := await self._db.transact(partial(self._adopt_some, queue_id, after)):",
        "while found := list[int]():",
        BEFORE,
    ),
    Mutant(
        "limits: what ran before the limits has no place",
        "LI-05",
        SQL,
        "set turn = turn + 1, admitted = {admitted_and_found}\n",
        "set turn = turn + 1\n",
        BEFORE,
    ),
    Mutant(
        "limits: a suspect needs no place",
        "LI-06",
        "store/sql/tasks.sql",
        "                      and (not queue.limited or task.id = cast(:admitted as bigint))\n",
        "",
        LOST,
    ),
    Mutant(
        "limits: a suspect that is executed alone is not let in",
        "LI-06",
        "store/limited.py",
        '            yield Call("admit", {"queue_id": queue_id, "id": found[0]["id"]})\n',
        "            pass\n",
        LOST,
    ),
    Mutant(
        "limits: a declaration goes before what people have changed",
        "LI-07",
        "store/limiters.py",
        "{**(declared or {}), **edited}",
        "{**edited, **(declared or {})}",
        DECLARED,
    ),
)
