"""The rules of the dashboard: who is let in, what becomes of what is stored, how much a page reads."""

from tests.mutants.mutant import Mutant

GUARD = "tests/ui/test_guard.py::"
PAGES = "tests/ui/test_pages.py::"
ANSWERS = "tests/ui/test_answers.py::"
GRAPH = "tests/ui/test_graph.py::"
FORMS = "tests/ui/test_forms.py::"
WILD = "tests/ui/test_wild.py::"
BIG = "tests/ui/test_big_store.py::test_every_page_of_a_full_store_is_small_and_quick"

DASHBOARD_MUTANTS = (
    Mutant(
        "the dashboard answers to any name of its host",
        "security-05",
        "ui/guard.py",
        "if len(given) != 1 or host_name(given[0]) not in self._rules.hosts:",
        "if len(given) != 1:",
        GUARD + "test_another_name_of_the_host_is_refused_on_every_path",
    ),
    Mutant(
        "a form of another site is taken",
        "security-04",
        "ui/guard.py",
        "        check_origin(request.headers)\n",
        "",
        GUARD + "test_what_another_site_sends_changes_nothing",
    ),
    Mutant(
        "a form needs no token",
        "security-04",
        "ui/guard.py",
        "if not by_token and not matches:",
        "if False:",
        GUARD + "test_what_another_site_sends_changes_nothing",
    ),
    Mutant(
        "a dashboard without tokens answers any machine",
        "security-03",
        "ui/guard.py",
        "if not is_loopback(None if client is None else client.host) or",
        "if",
        GUARD + "test_without_a_token_only_this_machine_is_answered",
    ),
    Mutant(
        "who may look may act",
        "security-04",
        "ui/guard.py",
        '            if not scope["state"]["principal"].may_act:',
        "            if False:",
        GUARD + "test_the_application_around_it_says_who_asks",
    ),
    Mutant(
        "what is stored is written as markup",
        "security-06",
        "ui/template.py",
        "autoescape=True",
        "autoescape=False",
        PAGES + "test_nothing_that_is_stored_becomes_markup",
    ),
    Mutant(
        "an input of any length stands in a form",
        "dashboard-04",
        "ui/fields.py",
        "return len(text) <= MOST_EDITED and",
        "return True or",
        BIG,
    ),
    Mutant(
        "a connection may say its first request for ever",
        "dashboard-05",
        "ui/server.py",
        "            self.transport.close()",
        "            pass",
        WILD + "test_slow_and_dead_clients_harm_neither_workers_nor_the_next_client",
    ),
    Mutant(
        "a stream whose client is gone keeps its place",
        "dashboard-05",
        "ui/app.py",
        "            self.streams -= 1",
        "            pass",
        WILD + "test_slow_and_dead_clients_harm_neither_workers_nor_the_next_client",
    ),
    Mutant(
        "an operator who came too late is told that it worked",
        "dashboard-06",
        "ui/run_actions.py",
        '("was finished before: nothing was changed", "warning")',
        '("is cancelled, and the runs it asked for", "good")',
        WILD + "test_two_operators_and_a_worker_act_at_once_and_nothing_is_done_twice",
    ),
    Mutant(
        "a part of a page is not there until it has something to show",
        "dashboard-02",
        "ui/templates/run.html",
        '<div id="logs" data-live>{% if page.logged.lines %}\n<section class="card">',
        '{% if page.logged.lines %}\n<section class="card" id="logs" data-live>',
        PAGES + "test_no_part_that_is_exchanged_is_missing_until_it_has_something_to_show",
    ),
    Mutant(
        "a search by tag reads every run there is",
        "dashboard-04",
        "operate/run_list.py",
        "    return await store.database.excerpts.searched_since(query.workflow)",
        "    return None",
        PAGES + "test_a_search_that_reads_every_run_ends_somewhere_and_says_where",
    ),
    Mutant(
        "a step in doubt is taken for a wait for a signal",
        "dashboard-07",
        "store/excerpts.py",
        'if isinstance(told, dict) and told.get("type") == IN_DOUBT:',
        "if False:",
        ANSWERS + "test_a_step_in_doubt_is_said_to_be_done_by_the_form_of_what_it_returns",
    ),
    Mutant(
        "a line that reads otherwise here is marked as the one that an error left",
        "dashboard-08",
        "ui/source.py",
        "return frame.line if reads_so else 0",
        "return frame.line",
        GRAPH + "test_the_line_that_an_error_left_is_marked_only_if_it_reads_the_same_here",
    ),
    Mutant(
        "ticks are made good while they are counted",
        "dashboard-10",
        "ui/schedules.py",
        "dry_run=is_count",
        "dry_run=False",
        FORMS + "test_a_schedule_is_changed_reset_made_good_and_deleted",
    ),
    Mutant(
        "a form that only shows a command triggers the run",
        "dashboard-09",
        "ui/trigger.py",
        'if form.get("show"):',
        "if False:",
        FORMS + "test_what_was_typed_stays_when_it_is_refused_and_is_shown_as_a_command_and_as_python",
    ),
    Mutant(
        "a list of runs reads every payload",
        "dashboard-11",
        "operate/run_list.py",
        "runs_in(store, word, limit, whole=False,",
        "runs_in(store, word, limit, whole=True,",
        FORMS + "test_lists_previews_and_groups_read_no_payload",
    ),
)
