"""Named statements: one text for every database, macros where they differ, values only ever as parameters."""

import re
from typing import get_args

import pytest

from stepwell.errors import InvalidName
from stepwell.records import RunStatus
from stepwell.store import sql
from stepwell.store.driver import Call
from stepwell.store.embedded.render import Rendered
from stepwell.store.postgres.compose import Composer
from stepwell.store.rows import Settlement
from stepwell.store.settle import settle_row
from stepwell.store.sql import Column, Dialect, Macros, Parameter, RowSet, Statement, Statements, fed_rows

DIALECTS = get_args(Dialect)
# What only a server with several writers needs.
LOCKS = {"end_if_idle", "held_tasks", "isolation", "oldest_writer", "patience", "use_tables"}
OF_SQLITE = {"keep_limiter", "keys_ahead", "open_limiter", "ready_of_key", "take_picked"}  # steps of `claim_limited`
OF_POSTGRES = {"claim_limited", *LOCKS}
OF_POSTGRES |= {"claim_above", "decide_at_once", "lock_events", "lock_rows_of_keys", "mark", "notify"}

SETTLED = settle_row(1, 2, 3, Settlement(RunStatus.SUCCESS))


def text_of(statement: Statement) -> str:
    return "".join(
        token if isinstance(token, str) else f":{token.name}" if isinstance(token, Parameter) else "<rows>"
        for token in statement.tokens
    )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_statement_is_filled_and_says_its_promise(dialect: Dialect) -> None:
    statements = Statements(dialect, "stepwell")
    assert len(statements._statements) > 30
    for name, statement in statements._statements.items():
        text = text_of(statement)
        assert statement.name == name
        assert text.strip()
        assert not re.search(r"\{[a-z_]+( [^}]*)?\}", text.replace("{}", "")), name  # no macro is left
        assert "--" not in text, name
        assert not text.rstrip().endswith(";"), name
        assert sum(isinstance(token, RowSet) for token in statement.tokens) <= 1, name


def test_both_dialects_have_the_statements_that_both_need() -> None:
    postgres, sqlite = (set(Statements(dialect, "stepwell")._statements) for dialect in DIALECTS)
    assert postgres - sqlite == OF_POSTGRES
    assert sqlite - postgres == OF_SQLITE


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_statement_takes_the_same_values_in_each_spelling(dialect: Dialect) -> None:
    mine, other = Statements(dialect, "a"), Statements("postgres" if dialect == "sqlite" else "sqlite", "b")
    for name, statement in mine._statements.items():
        if (
            name in {"claim", "take"} | OF_POSTGRES | OF_SQLITE
        ):  # the first two: one queue a statement there, several here
            continue
        assert statement.columns == other[name].columns, name


@pytest.mark.parametrize(
    ("text", "postgres", "sqlite"),
    [
        ("{task}", '"s".task', "s_task"),
        ("{schema}", '"s"', '"s"'),
        ("{now}", "(select coalesce(cast(:now as bigint)", ":now"),
        ("{beat_now}", "(select coalesce(cast(:beat_now as bigint)", ":beat_now"),
        ("{own task}id", "task.id", "id"),
        ("x {any_of rows}", "x = any(array(select rows.id from rows))", "x in (select rows.id from rows)"),
        ("{json}", "json", "text"),
        ("a {for_share}", "a for share", "a "),
        ("a {skip_locked}", "a for update skip locked", "a "),
        (
            "create index {task_ready} on {task}",
            'create index task_ready on "s".task',
            "create index s_task_ready on s_task",
        ),
        ("{moment task.run_at}", "to_timestamp(task.run_at / 1000000.0)", "strftime("),
        ("'{}' {\"type\":1}", "'{}' {\"type\":1}", "'{}' {\"type\":1}"),
    ],
)
def test_macros(text: str, postgres: str, sqlite: str) -> None:
    assert Macros("postgres", "s").fill(text).startswith(postgres)
    assert Macros("sqlite", "s").fill(text).startswith(sqlite)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_process_spells_them_once_and_each_store_has_its_own(
    dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Statements(dialect, "opened_twice")
    texts, spelled = first.migrations(), dict(first._statements)
    monkeypatch.delattr(sql, "_files")
    second = Statements(dialect, "opened_twice")
    assert (second.migrations(), second._statements) == (texts, spelled)
    second.migrations()[0][2].clear()
    second._statements.clear()
    assert (first.migrations(), first._statements) == (texts, spelled)


@pytest.mark.proves("security-02")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_only_a_checked_name_ever_gets_into_the_text(dialect: Dialect) -> None:
    for name in ("", "A", "a-b", 'a"b', "a;drop table x", "a" * 49, "1a", "a b", "ä"):
        with pytest.raises(InvalidName):
            Statements(dialect, name)
    secret = "'; drop table task; --"
    composer, texts = Composer(Statements("postgres", "stepwell")), set()
    for value in (secret, "plain"):
        text, values = composer.compose([Call("find_queue", {"tenant": "", "name": value})])
        assert value in values
        assert value not in text
        texts.add(text)
    assert len(texts) == 1


def test_parameters_are_told_from_casts_times_and_json() -> None:
    statements = Statements("sqlite", "s")
    tokens = tuple(statements._tokens("select :a, b::text, '12:30', '{\"x\":1}', :a_b from {task}", {}))
    assert [token.name for token in tokens if isinstance(token, Parameter)] == ["a", "a_b"]
    assert tokens[2] == ", b::text, '12:30', '{\"x\":1}', "


def test_row_sets_are_named_or_spelled_in_place() -> None:
    named: dict[str, tuple[Column, ...]] = {"new": (Column("id", "bigint"), Column("key", "text"))}
    statements = Statements("postgres", "s")
    for text in ("with rows as ({rows new}) select 1", "with rows as ({rows id bigint, key text}) select 1"):
        tokens = tuple(statements._tokens(text, named))
        assert tokens == ("with rows as (", RowSet(named["new"]), ") select 1")
        assert Statement("x", tokens).columns == named["new"]
    assert Statement("x", ("select 1",)).columns == ()
    assert [column.name for column in statements["add_tasks"].columns][:3] == ["id", "kind", "queue_id"]
    assert statements["add_tasks"].columns == statements["add_tasks_once"].columns


def test_a_heading_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="not a statement heading"):
        list(sql._named("-- name: two words here\nselect 1;\n"))
    assert list(sql._named("-- name: one [sqlite]\n-- A promise.\nselect 1;\n")) == [("one", "sqlite", "select 1")]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_migrations_come_in_order_and_only_in_their_dialect(dialect: Dialect) -> None:
    statements = Statements(dialect, "stepwell")
    numbers = [number for number, _, _ in statements.migrations()]
    assert numbers == list(range(1, len(numbers) + 1))
    texts = [text for _, _, parts in statements.migrations() for text in parts] + statements.bootstrap()
    for text in texts:
        assert text.split()[0] in {"create", "insert", "alter", "drop", "lock"}
    together = "\n".join(texts)
    assert ("create sequence" in together) is (dialect == "postgres")
    assert ("autoincrement" in together) is (dialect == "sqlite")


class TestPostgres:
    def test_a_parameter_used_twice_is_sent_once(self) -> None:
        text, values = Composer(Statements("postgres", "s")).compose([Call("settle", {"now": 5, "slot": 1}, [SETTLED])])
        places = [int(number) for number in re.findall(r"\$(\d+)", text)]
        assert sorted(set(places)) == list(range(1, len(values) + 1))
        assert len(places) > len(values)

    def test_columns_travel_as_joined_text_and_nothing_is_null(self) -> None:
        rows = [(1, 9, "a,b"), (2, None, None)]
        composer = Composer(Statements("postgres", "s"))
        text, values = composer.compose([Call("find_added", {}, rows)])
        assert values[:3] == ["1,2", "9,", ["a,b", None]]
        assert "string_to_array($1, ',', '')" in text
        assert "cast($3 as text[])" in text

    def test_calls_of_a_flush_become_one_statement_and_are_split_again(self) -> None:
        composer = Composer(Statements("postgres", "s"))
        calls = [
            Call("settle", {"now": 5, "slot": 1}, [SETTLED]),
            Call("count_settled", {"shard": 3}, fed_by=0),
        ]
        text, _ = composer.compose(calls)
        assert text.startswith("with part0 as (")
        assert "from part0" in text.split("part1 as (")[1]
        assert composer.compose(calls)[0] is text
        parts = composer.split([{"part": 1, "id": 7}, {"part": 0, "id": 8}], 2)
        assert parts == [[{"part": 0, "id": 8}], [{"part": 1, "id": 7}]]
        assert composer.split([{"id": 7}], 1) == [[{"id": 7}]]


def test_a_part_that_says_a_number_beside_its_answer_has_a_column_for_it_which_is_null_for_the_others() -> None:
    composer = Composer(Statements("postgres", "s"))
    settling, asking = Call("settle", {"now": 5, "slot": 1}, [SETTLED]), Call("control_requests", {}, [(2,)])
    counting = Call("count_settled", {"shard": 3}, fed_by=0)
    heads, _, tails = composer.compose([settling, counting, asking])[0].partition("\nselect 0 as part, id, answer")
    assert [line.partition(" from part")[0] for line in tails.splitlines()] == [
        ", cast(null as bigint) as number",
        "union all select 1 as part, id, answer, cast(null as bigint) as number",
        "union all select 2 as part, id, answer, number",
    ]
    assert "request.turn as number" in heads
    assert "number" not in composer.compose([settling, counting])[0].rpartition("\nselect 0 as part")[2]


class TestEmbedded:
    def test_a_row_set_is_a_row_of_named_parameters(self) -> None:
        rendered = Rendered(Statements("sqlite", "s"), many_rows=True)
        call, rows = Call("find_added"), [(1, 2, "k"), (2, 2, "l")]
        [(text, values)] = rendered.each(call, rows[:1])
        assert "select :row_id as id, :row_queue_id as queue_id, :row_key as key" in text
        assert (values["row_id"], values["row_queue_id"], values["row_key"]) == (1, 2, "k")
        assert rendered.each(call, rows[1:])[0][0] is text, "it is spelled once"
        [(text, values)] = rendered.each(call, rows)
        assert "select value ->> 0 as id, value ->> 1 as queue_id" in text
        assert values["rows"] == '[[1,2,"k"],[2,2,"l"]]'

    def test_what_one_call_returned_feeds_the_next_by_name(self) -> None:
        call = Call("count_settled", {"shard": 1}, fed_by=0)
        names = [column.name for column in Statements("sqlite", "s")["count_settled"].columns]
        row = {name: place for place, name in enumerate(reversed(names))}
        assert fed_rows(call, [row]) == [list(reversed(range(len(names))))]
