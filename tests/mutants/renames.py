"""The rules of runs that are held for their code."""

from tests.mutants.mutant import Mutant

RENAMES = "tests/workflows/test_renames.py::"
TABLE = RENAMES + "test_a_renamed_step_is_held_before_its_body_and_whatever_else_changes_is_not"
MENDED = RENAMES + "test_a_deploy_that_keeps_the_name_lets_held_runs_go_without_a_command"
ACCEPTED = RENAMES + "test_unpause_alone_changes_nothing_and_an_accepted_name_stays_so"
SHOWN = RENAMES + "test_a_held_run_is_told_of_once_and_shows_nothing_but_its_steps"
COUNTED = RENAMES + "test_without_a_suspicion_nothing_is_looked_at_and_with_one_each_file_once"
ASIDE = RENAMES + "test_what_an_operator_holds_back_too_is_let_go_by_nobody_else"
LATER = RENAMES + "test_a_worker_that_lives_already_lets_go_what_another_holds_later"

RENAME_MUTANTS = (
    Mutant(
        "renamed: only the first that was not asked for is looked at",
        "R-16",
        "runs/journal.py",
        "[name for name in self._beside(key) if",
        "[name for name in list(self._beside(key))[:1] if",
        TABLE,
    ),
    Mutant(
        "renamed: every text declares a name",
        "R-16",
        "base/source_names.py",
        "    return Declared(tuple(whole),",
        "    whole += [one.value for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Constant)]\n"
        "    return Declared(tuple(whole),",
        TABLE,
    ),
    Mutant(
        "renamed: every attribute declares a name",
        "R-16",
        "base/source_names.py",
        "    return Declared(tuple(whole),",
        "    whole += [one.attr for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Attribute)]\n"
        "    return Declared(tuple(whole),",
        TABLE,
    ),
    Mutant(
        "renamed: a text of which nothing is known declares every name",
        "R-16",
        "base/source_names.py",
        "    return any(piece is not None and any(map(str.isalnum, piece)) for piece in spelling)",
        "    return True",
        TABLE,
    ),
    Mutant(
        "renamed: branches are not looked at",
        "R-16",
        "runs/journal.py",
        '            elif BRANCH_ENDS.join([*path[: shared + 1], ""]) not in self._begun:',
        "            elif False:",
        TABLE,
    ),
    Mutant(
        "renamed: a branch keeps its number",
        "R-16",
        "runs/journal.py",
        '    return branch.rpartition(":")[0] + BRANCH_ENDS',
        "    return branch + BRANCH_ENDS",
        TABLE,
    ),
    Mutant(
        "renamed: children are asked for again",
        "R-16",
        "runs/children.py",
        "        yield from cleared(run, row.key, verdict)\n        answer",
        "        answer",
        TABLE,
    ),
    Mutant(
        "renamed: a workflow can catch that it is held",
        "R-16",
        "runs/rename.py",
        "    raise run.hold(held)",
        "    raise RuntimeError(held)",
        TABLE,
    ),
    Mutant(
        "renamed: a held run has lost an attempt",
        "R-16",
        "work/outcome.py",
        "run_at=NEVER, attempt_back=True,",
        "run_at=NEVER,",
        TABLE,
    ),
    Mutant(
        "renamed: the code that holds a run lets it go",
        "R-16",
        "store/sql/holds.sql",
        "mark.key = :mark limit",
        "mark.key = 'no ' || :mark limit",
        TABLE,
    ),
    Mutant(
        "renamed: other code does not let a held run go",
        "R-16",
        "work/loop.py",
        "        await self._holds.look()\n",
        "",
        MENDED,
    ),
    Mutant(
        "renamed: a worker looks for held runs at its start alone",
        "R-16",
        "work/upkeep.py",
        "            await asyncio.sleep(LOOK_AT_HOLDS_EVERY",
        "            await asyncio.sleep(3600 + LOOK_AT_HOLDS_EVERY",
        LATER,
    ),
    Mutant(
        "renamed: other code lets go what an operator holds back",
        "R-16",
        "store/sql/holds.sql",
        " and task.held_at is null\n",
        "\n",
        ASIDE,
    ),
    Mutant(
        "renamed: what was accepted is held again",
        "R-16",
        "runs/journal.py",
        "if name not in OWN_CALLS and ACCEPTED + name not in self.marks]",
        "if name not in OWN_CALLS]",
        ACCEPTED,
    ),
    Mutant(
        "renamed: accept lets go what an operator holds back",
        "R-16",
        "store/sql/holds.sql",
        "update {task} as task set status = case when held_at is null then 'PENDING' else status end,",
        "update {task} as task set status = 'PENDING', held_at = null,",
        ACCEPTED,
    ),
    Mutant(
        "renamed: what was accepted is shown as a step",
        "R-16",
        "store/runs.py",
        ' for row in rows if not row["key"].startswith(MARK)]',
        " for row in rows]",
        SHOWN,
    ),
    Mutant(
        "renamed: what was accepted is counted as a step",
        "R-16",
        "store/sql/metrics.sql",
        " and step.place > 0",
        "",
        SHOWN,
    ),
    Mutant(
        "renamed: what was accepted is in the view of steps",
        "R-16",
        "store/sql/schema/0001_initial.sql",
        "\n where step.key not like '#%'",
        "",
        SHOWN,
    ),
    Mutant(
        "renamed: sources are read again for every run",
        "R-16",
        "base/program.py",
        "            if self._last is None or self._last[0] != loaded:",
        "            self._known.clear()\n            if True:",
        COUNTED,
    ),
    Mutant(
        "renamed: sources are read without a suspicion",
        "R-16",
        "runs/rename.py",
        "    elif run.journal.gone(key, declared_names()):",
        "    else:",
        COUNTED,
    ),
)
