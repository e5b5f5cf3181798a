"""The rules of recording inputs."""

from tests.mutants.mutant import Mutant

OBSERVATION = "tests/deciders/test_observation.py::"

OBSERVATION_MUTANTS = (
    Mutant(
        "observation: it is written outside of the transaction of the events",
        "IO-03",
        "store/decisions.py",
        '            yield Call("add_observations", params, observed)\n',
        "            import asyncio\n\n"
        '            late = self._driver.write(Call("add_observations", params, observed))\n'
        "            self.late = asyncio.get_running_loop().create_task(late)\n",
        OBSERVATION + "test_what_is_rolled_back_leaves_no_observation",
    ),
    Mutant(
        "observation: what was decided on states at hand is not recorded",
        "IO-01",
        "deciders/optimistic_decisions.py",
        "        if family.observe or",
        "        if",
        OBSERVATION + "test_each_input_is_recorded_as_it_was_answered",
    ),
    Mutant(
        "observation: an input that was refused is not recorded",
        "IO-04",
        "deciders/observation.py",
        '        return None if isinstance(item.error, LeaseLost) else "refused"\n',
        "        return None\n",
        OBSERVATION + "test_each_input_is_recorded_as_it_was_answered",
    ),
    Mutant(
        "observation: a decision whose reply was lost is recorded twice",
        "IO-01",
        "deciders/observation.py",
        ' or (item.receipt.outcome == "applied" and item.decision is None):',
        ":",
        OBSERVATION + "test_a_decision_whose_reply_is_lost_is_recorded_once",
    ),
    Mutant(
        "observation: a decider that is not observed is recorded",
        "IO-02",
        "deciders/decide.py",
        "            if proposal.family.observe:\n",
        "            if True:\n",
        OBSERVATION + "test_without_observation_no_row_and_no_statement_is_written",
    ),
    Mutant(
        "observation: old observations are looked for though nothing is observed",
        "IO-02",
        "store/retention.py",
        "        if self.observations:\n",
        "        if True:\n",
        OBSERVATION + "test_without_observation_no_row_and_no_statement_is_written",
    ),
    Mutant(
        "observation: it is kept for ever",
        "IO-05",
        "store/retention.py",
        "        if self.observations:\n",
        "        if False:\n",
        OBSERVATION + "test_observations_are_removed_when_they_are_old",
    ),
    Mutant(
        "observation: the status before is the status after",
        "I-05",
        "deciders/proposal.py",
        "        item = Item(pending, found=self.state)\n        self.items.append(item)\n",
        "        item = Item(pending)\n        self.items.append(item)\n",
        OBSERVATION + "test_each_input_is_recorded_as_it_was_answered",
    ),
    Mutant(
        "observation: a view that raises fails the input",
        "IO-01",
        "deciders/observation.py",
        "        except Exception as error:  # noqa: BLE001 - it is the user's code\n",
        "        except ZeroDivisionError as error:\n",
        OBSERVATION + "test_what_observes_fails_no_input",
    ),
    Mutant(
        "observation: inputs that decided nothing are counted as transitions",
        "I-06",
        "store/sql/observations.sql",
        "(observation.outcome = 'applied' and observation.from_status is not null and"
        " observation.to_status is not null\n",
        "(observation.from_status is not null\n",
        OBSERVATION + "test_observed_transitions_are_counted_drawn_and_compared_with_what_is_declared",
    ),
    Mutant(
        "observation: what is declared and was never observed is no drift",
        "I-07",
        "deciders/drift.py",
        "for edge, one in _edges(self.declared).items() if edge not in seen]",
        "for edge, one in _edges(self.declared).items() if edge in seen]",
        OBSERVATION + "test_observed_transitions_are_counted_drawn_and_compared_with_what_is_declared",
    ),
)
