"""The rules of the model of deciders: decisions, how they are stored, the kit, and drawings."""

from tests.mutants.mutant import Mutant

MODEL = "tests/deciders/test_model.py::"
KINDS = "tests/deciders/test_model_kinds.py::"
KIT = "tests/deciders/test_kit.py::"
MACHINE = "tests/deciders/test_machine.py::"

MODEL_MUTANTS = (
    Mutant(
        "a decision needs no event",
        "M-07",
        "decision.py",
        "        if not self.events:\n",
        "        if False:\n",
        MODEL + "test_a_decision_has_an_event",
    ),
    Mutant(
        "a key stands for several timers of one decision",
        "TM-07",
        "decision.py",
        "if one.key is None or one.key != timer.key",
        "if True",
        MODEL + "test_a_key_stands_for_one_timer",
    ),
    Mutant(
        "a timer that was set and then cancelled is set",
        "TM-08",
        "decision.py",
        "replace(self, timers=kept, cancelled=",
        "replace(self, cancelled=",
        MODEL + "test_the_last_word_about_a_key_counts",
    ),
    Mutant(
        "a timer's input may go to another instance",
        "M-29",
        "deciders/registry.py",
        "(other := self.identify(written.value)) != id",
        "(other := self.identify(written.value)) != id and False",
        MODEL + "test_a_timer_comes_back_to_its_own_instance",
    ),
    Mutant(
        "evolve is given the events of the engine",
        "TM-09",
        "deciders/registry.py",
        "            if not isinstance(event, ENGINE_EVENTS):\n",
        "            if True:\n",
        MODEL + "test_events_of_the_engine_are_not_for_deciders",
    ),
    Mutant(
        "a class of inputs belongs to two deciders",
        "M-17",
        "deciders/registry.py",
        "(first := self._by_input.get(cls)) is not None",
        "(first := self._by_input.get(cls)) is not None and False",
        MODEL + "test_a_type_and_an_input_have_one_decider",
    ),
    Mutant(
        "what could not be read back is written",
        "M-05",
        "deciders/type_names.py",
        "read_plain(text, type(value), what=what))",
        "value)",
        KINDS + "test_what_would_not_read_back_is_never_written",
    ),
    Mutant(
        "another version is read as if it were this one",
        "U-04",
        "deciders/type_names.py",
        "cls is not None and version == self._written[cls][1]:",
        "cls is not None:",
        KINDS + "test_what_cannot_be_read_says_which_and_why",
    ),
    Mutant(
        "two classes share a name",
        "M-01",
        "deciders/type_names.py",
        "(first := named.setdefault(name, cls)) is not cls",
        "(first := named.setdefault(name, cls)) is not cls and False",
        KINDS + "test_names_and_versions_are_checked",
    ),
    Mutant(
        "a snapshot is kept although it reads back as another state",
        "M-21",
        "deciders/snapshots.py",
        "text is not None and self.read(text) == state",
        "text is not None",
        KINDS + "test_a_state_that_would_come_back_otherwise_is_not_kept",
    ),
    Mutant(
        "a snapshot is believed by other code",
        "M-21",
        "deciders/snapshots.py",
        ", *(part for code in codes if code for part in _parts(code))",
        "",
        KINDS + "test_a_snapshot_is_believed_by_the_code_that_wrote_it",
    ),
    Mutant(
        "the kit asks decide once",
        "M-20",
        "testing/specs.py",
        "    if _as_stored(written) != _as_stored(_decided(spec, read)):\n",
        "    if False:\n",
        KIT + "test_a_decider_that_is_not_pure_is_found_out",
    ),
    Mutant(
        "the kit lets evolve change its state",
        "M-20",
        "testing/specs.py",
        "        if _differ(before, state):\n",
        "        if False:\n",
        KIT + "test_a_decider_that_is_not_pure_is_found_out",
    ),
    Mutant(
        "the kit decides for an instance that has ended",
        "M-13",
        "testing/specs.py",
        "    if family.decider.is_terminal(spec.state):\n",
        "    if False:\n",
        KIT + "test_an_instance_that_has_ended_decides_nothing",
    ),
    Mutant(
        "a drawing may contradict its decider",
        "I-03",
        "deciders/diagram.py",
        "if complete and one.target not in states:",
        "if False:",
        MACHINE + "test_a_graph_that_contradicts_its_decider_is_refused",
    ),
)
