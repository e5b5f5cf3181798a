"""The rules of calls that join a transaction."""

from tests.mutants.mutant import Mutant

TABLE = "tests/queue/test_joined_table.py::test_exactly_what_was_committed_is_there"
ERRORS = "tests/queue/test_joined_errors.py::"

JOINED_MUTANTS = (
    Mutant(
        "what workers serve is read as the user's driver reads JSON",
        "protocol-22",
        "store/sql/runs.sql",
        "{text_of worker.handlers} as handlers",
        "worker.handlers",
        TABLE,
    ),
    Mutant(
        "events are read as the user's driver reads JSON",
        "M-04",
        "store/sql/decisions.sql",
        "{text_of event.data} as data",
        "event.data",
        TABLE,
    ),
    Mutant(
        "a snapshot is read as the user's driver reads JSON",
        "M-04",
        "store/sql/decisions.sql",
        "{text_of instance.snapshot}",
        "instance.snapshot",
        TABLE,
    ),
    Mutant(
        "what a run waits for is read as the user's driver reads JSON",
        "protocol-22",
        "store/sql/waiting.sql",
        "{text_of step.output} as output",
        "step.output",
        TABLE,
    ),
    Mutant(
        "a joined call that failed is not undone",
        "protocol-22",
        "store/transaction.py",
        '    yield Call("rollback_to_savepoint")\n',
        "",
        TABLE,
    ),
    Mutant(
        "a joined call that was cancelled is not undone",
        "protocol-22",
        "store/transaction.py",
        "                    await answer(RELEASE)\n                except BaseException:\n",
        "                    await answer(RELEASE)\n                except Exception:\n",
        ERRORS + "test_a_call_that_is_cancelled_is_undone_alone",
    ),
    Mutant(
        "a decision that raises in a transaction is not undone",
        "M-05",
        "deciders/decide.py",
        "                    raise item.error\n",
        "                    pass\n",
        ERRORS + "test_a_decision_that_raises_in_a_transaction_leaves_nothing_of_its_own",
    ),
    Mutant(
        "psycopg is asked for rows that there are not",
        "protocol-22",
        "store/joins/psycopg.py",
        "return cursor.fetchall() if cursor.description else []",
        "return cursor.fetchall()",
        TABLE,
    ),
    Mutant(
        "psycopg reads and writes as the user has told it",
        "protocol-22",
        "store/joins/psycopg.py",
        "        _adapt(cursor.adapters)\n        cursor.execute",
        "        cursor.execute",
        TABLE,
    ),
    Mutant(
        "a savepoint of SQLite is a transaction of its own",
        "protocol-22",
        "store/embedded/driver.py",
        "        if call == SAVEPOINT:  # outside",
        "        if False:  # outside",
        "tests/queue/test_joined.py::test_every_promise_on_sqlite",
    ),
    Mutant(
        "SQLite's text is read as the user has told it",
        "protocol-22",
        "store/joins/connection.py",
        "value.decode() if isinstance(value, bytes) else value",
        "value",
        TABLE,
    ),
    Mutant(
        "a transaction that the database has undone goes on",
        "M-04",
        "store/embedded/transaction.py",
        "                if not connection.in_transaction:",
        "                if False:",
        TABLE,
    ),
)
