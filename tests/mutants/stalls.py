"""What keeps an open transaction from holding up others, and two transactions from waiting for each other."""

from tests.mutants.mutant import Mutant

ASIDE = "tests/store/test_aside.py::"
STALLS = "tests/store/test_stalls.py::test_an_open_transaction_holds_up_nobody_but_those_who_need_what_it_holds"
DEADLOCKS = "tests/store/test_deadlocks.py::test_no_two_verbs_wait_for_each_other"

STALL_MUTANTS = (
    Mutant(
        "what is held goes back to the others",
        "rule-23",
        "store/flush.py",
        "                self._wait_aside(operation, held, behind=False)\n",
        "                self._append(operation)\n",
        STALLS,
    ),
    Mutant(
        "nobody knows that a task needs its parent's row",
        "rule-23",
        "store/lanes.py",
        "for need in (self.lane, self.parent, self.key) if",
        "for need in (self.lane, self.key) if",
        STALLS,
    ),
    Mutant(
        "the right half is tried first",
        "rule-23",
        "store/isolation.py",
        "                untried += [part[len(part) // 2 :], part[: len(part) // 2]]\n",
        "                untried += [part[: len(part) // 2], part[len(part) // 2 :]]\n",
        ASIDE + "test_what_is_held_is_found_alone_and_the_others_are_written_in_the_order_of_their_locks",
    ),
    Mutant(
        "what has a key goes out with the others",
        "rule-23",
        "store/flush.py",
        "        if operation.key is not None and operation.lane is None and self._keyed is not None:\n",
        "        if operation.key is not None and operation.lane is None and self._keyed is None:\n",
        STALLS,
    ),
    Mutant(
        "a locked table is everybody's own trouble",
        "protocol-15",
        "store/isolation.py",
        '    yield Call("use_tables")\n',
        "",
        ASIDE + "test_a_locked_table_is_nobodys_fault_and_the_batch_is_repeated_whole",
    ),
    Mutant(
        "what waits aside takes the room of all",
        "protocol-14",
        "store/flush.py",
        "        return self._room_aside if operation.aside else self._room\n",
        "        return self._room\n",
        ASIDE + "test_what_waits_aside_has_room_of_its_own",
    ),
    Mutant(
        "a session that ends forgets what waits aside",
        "protocol-03",
        "store/flush.py",
        "(*waiting, *self._operations_aside)",
        "waiting",
        ASIDE + "test_who_gives_up_and_who_closes_see_what_waits_aside",
    ),
    Mutant(
        "all who wait for rows try again at once",
        "rule-23",
        "store/postgres.py",
        "            turn = self._again  #",
        "            turn = contextlib.nullcontext()  #",
        ASIDE + "test_those_who_wait_for_a_row_leave_connections_of_the_pool_to_others",
    ),
    Mutant(
        "an instance that is held stops the others",
        "rule-28",
        "deciders/mailbox.py",
        "            except StoreLocked:\n                await self._seek(batch)\n                return\n",
        "",
        STALLS,
    ),
    Mutant(
        "a run that is held stops the questions of others",
        "rule-23",
        "store/waiting.py",
        "        except StoreLocked:\n            return False\n",
        "",
        STALLS,
    ),
    Mutant(
        "what all share is made in the user's transaction",
        "rule-23",
        "store/writing.py",
        "        if missing and await self.play_joined(_isolation(), tx) == READ_COMMITTED:\n",
        "        if missing and await self.play_joined(_isolation(), tx) is None:\n",
        STALLS,
    ),
    Mutant(
        "a task is locked before its parent",
        "rule-23",
        "store/flush.py",
        "        if any(operation.parent is not None for operation in batch) and self._driver.key_slot is not None:\n",
        "        if any(operation.parent is not None for operation in batch) and self._driver.key_slot is None:\n",
        DEADLOCKS,
    ),
    Mutant(
        "a cancel locks from the top down",
        "rule-23",
        "store/control.py",
        '        yield Call("lock_trees", {}, [(run_id,)])\n',
        "",
        DEADLOCKS,
    ),
    Mutant(
        "tasks are purged in any order",
        "rule-23",
        "store/parents.py",
        "    if rows := [(task_id,) for task_id in ids]:\n",
        "    if rows := [(task_id,) for task_id in ids if task_id < 0]:\n",
        DEADLOCKS,
    ),
    Mutant(
        "who waits for the file is not told who writes it",
        "rule-28",
        "store/embedded.py",
        'self._writing.waits_for("another connection")',
        'self._writing.waits_for("somebody")',
        "tests/store/test_embedded.py::"
        "test_who_waits_for_another_connection_is_told_that_it_writes_the_file_and_since_when",
    ),
    Mutant(
        "who waits behind others is not told what they wait for",
        "rule-28",
        "store/flush.py",
        "(operation.trouble, *(lane.trouble for lane in self._every_lane))",
        "(operation.trouble,)",
        "tests/store/test_embedded.py::test_so_is_who_waits_behind_another_caller",
    ),
)
