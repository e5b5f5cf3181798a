"""Named SQL statements, read once from the `.sql` files beside this module.

One text serves every database if possible; the macros below hold the differences. A statement that needs two spellings
is named twice, `[postgres]` and `[sqlite]` (Turso reads the SQLite spelling). Values are always parameters; only the
validated schema name is put into the text.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib import resources
from typing import Literal

from stepwell.base.names import check_identifier
from stepwell.store.driver import Call, Row, Value
from stepwell.store.rules import GROUP, LIMITS, RULES, SPELLED

Dialect = Literal["postgres", "sqlite"]
_KEPT = 16  # schema names whose texts a process keeps: to render them takes longer than to open a store


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a row set: its name, and the type that decides how a set of its values travels."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """The place of one value in a statement."""

    name: str


@dataclass(frozen=True, slots=True)
class RowSet:
    """The place of a set of rows in a statement; a statement has at most one.

    If they go `singly`, an embedded database is told one of them at a time, each in a statement of its own.
    """

    columns: tuple[Column, ...]
    singly: bool = False


Token = str | Parameter | RowSet


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement ready to be rendered: text with the places of its values."""

    name: str
    tokens: tuple[Token, ...]
    columns: tuple[Column, ...] = field(init=False)  # of its row set; none if it takes no rows
    singly: bool = field(init=False)

    def __post_init__(self) -> None:
        rows = next((token for token in self.tokens if isinstance(token, RowSet)), RowSet(()))
        object.__setattr__(self, "columns", rows.columns)  # now: it is asked for with every call
        object.__setattr__(self, "singly", rows.singly)


class Statements:
    """Every named statement, in one database's spelling and under one schema name."""

    def __init__(self, dialect: Dialect, schema: str) -> None:
        self.dialect: Dialect = dialect
        self.schema = check_identifier(schema)
        self._macros = Macros(dialect, self.schema)

    def __getitem__(self, name: str) -> Statement:
        return self._statements[name]

    def add(self, template: str, name: str, words: Mapping[str, str]) -> str:
        """Make a statement of a template in `sql/rows`, with checked words in place of `<...>`; returns its name."""
        if name not in self._statements:
            [text] = [body for _, file in _files("sql/rows") for each, _, body in _named(file) if each == template]
            text = re.sub(r"<(\w+)>", lambda found: words[found.group(1)], text)
            self._statements[name] = Statement(name, tuple(self._tokens(text, {})))
        return name

    def bootstrap(self) -> list[str]:
        """The tables that must exist before the first migration can be noted."""
        return list(self._schema_statements(dict(_files("sql/schema"))["bootstrap.sql"]))

    def migrations(self) -> list[tuple[int, str, list[str]]]:
        """The numbered schema files in order: number, name, statements."""
        return [(number, name, list(texts)) for number, name, texts in self._migrations(self.dialect, self.schema)]

    @cached_property
    def _statements(self) -> dict[str, Statement]:
        return dict(self._all(self.dialect, self.schema))

    @classmethod
    @lru_cache(maxsize=_KEPT)
    def _migrations(cls, dialect: Dialect, schema: str) -> Sequence[tuple[int, str, Sequence[str]]]:
        found, spelled = [], cls(dialect, schema)
        for file, text in sorted(_files("sql/schema")):
            number, _, name = file.removesuffix(".sql").partition("_")
            if number.isdigit():
                found.append((int(number), name, tuple(spelled._schema_statements(text))))
        return found

    @classmethod
    @lru_cache(maxsize=_KEPT)
    def _all(cls, dialect: Dialect, schema: str) -> Mapping[str, Statement]:
        statements, spelled = dict[str, Statement](), cls(dialect, schema)
        for _, text in _files("sql"):
            row_sets = {name: _columns(columns) for name, columns in _ROW_SETS.findall(text)}
            for name, its_dialect, body in _named(text):
                if its_dialect in ("", dialect):
                    statements[name] = Statement(name, tuple(spelled._tokens(body, row_sets)))
        return statements

    def _tokens(self, body: str, row_sets: dict[str, tuple[Column, ...]]) -> Iterator[Token]:
        """Cut a statement's text at its row set and its parameters, macros filled in."""
        text = body
        rows = RowSet(())
        if found := _ROWS.search(body):
            named = found.group(2).strip()
            rows = RowSet(row_sets.get(named) or _columns(named), singly=found.group(1) == "row")
            text = body[: found.start()] + ":rows" + body[found.end() :]
        for piece in _PARAMETER.split(self._macros.fill(text)):
            if piece == ":rows":
                yield rows
            elif _PARAMETER.fullmatch(piece):
                yield Parameter(piece[1:])
            elif piece:
                yield piece

    def _schema_statements(self, text: str) -> Iterator[str]:
        for part in _without_comments_between(text):
            marked = re.search(r"^-- \[(\w+)\]", part, re.MULTILINE)
            if marked and marked.group(1) != self.dialect:
                continue
            lines = (line.partition("--")[0].rstrip() for line in part.splitlines())
            body = "\n".join(line for line in lines if line)
            if body:
                yield self._macros.fill(body)


class Macros:
    """What differs between the databases, in one table."""

    def __init__(self, dialect: Dialect, schema: str) -> None:
        self._postgres = dialect == "postgres"
        self._schema = schema
        # 15 bits: advisory locks are the whole database's, and of the 64 bits of one the sign is not used.
        space = zlib.crc32(f"stepwell {schema}".encode()) & 0x7FFF
        taken = f'select case when is_called then last_value else 0 end from "{schema}".event_position_seq'
        self._own = {
            "schema": f'"{schema}"',
            "space": str(space),
            # Takes the low-water lock of an append, whose number is a position below all that it will take.
            "low_water_lock": f"pg_advisory_xact_lock_shared(cast({space << 48} as bigint) | ({taken}))",
            # The setting by which a transaction knows that it holds one; of this schema, as another may have its own.
            "low_water_mark": f"'stepwell.low_water_{space}'",
        }

    def fill(self, text: str) -> str:
        """Replace every macro of a text."""
        # An index is made in its table's schema and takes no other; to drop it, its schema has to be named.
        text = re.sub(r"(?<!drop )\bindex \{(\w+)\}", lambda found: f"index {self._index(found.group(1))}", text)
        return _MACRO.sub(lambda found: self._expand(found.group(1), (found.group(2) or "").strip()), text)

    def _expand(self, name: str, argument: str) -> str:
        expand: dict[str, Callable[[], str]] = {
            "now": lambda: self._clock("now"),
            "beat_now": lambda: self._clock("beat_now"),
            # The row being changed: Postgres wants its name where a FROM has the same column, SQLite refuses it.
            "own": lambda: f"{argument}." if self._postgres else "",
            # Updates by id also say it as an array: a plan made on an empty table would otherwise scan the full one.
            "any_of": lambda: self._any_of(argument),
            # A walk for each row of a set, through an index of several columns. An embedded database needs the rows to
            # come first, to use more than one column; Postgres needs no join, which could be one of all with all.
            "each_of": lambda: "" if self._postgres else f"{argument} cross join ",
            "found_by": lambda: self._found_by(argument),
            # A walk of its own for each row of a set, with a bound of its own: `{walk_of rows} (select ... where
            # task.queue_id = {its rows.queue_id} limit :most) as walk`, and `{beside}` another. An embedded database
            # has no such join: it takes the set as `{row ...}`, one at a time.
            "walk_of": lambda: f"{argument} cross join lateral" if self._postgres else "",
            "its": lambda: self._its(argument),
            # The one row of another table that each row before it names, looked up after that: `{one_of worker.id
            # beat.worker_id}`. A plain join lets the planner begin at either side, and on an empty table it cannot tell
            # which of them will grow.
            "one_of": lambda: self._one_of(argument),
            # JSON in a parameter goes as text: on a connection of the user's, who may have said what the driver is to
            # make of JSON, it would be encoded once more.
            "json_of": lambda: f"cast(cast(:{argument} as text) as {'json' if self._postgres else 'text'})",
            # JSON that a joined call reads comes back as text: what the user's driver would make of JSON is the user's.
            "text_of": lambda: f"cast({argument} as text)" if self._postgres else argument,
            # One of the numbers in a parameter, joined by commas: where a row set would be a statement for each.
            "among": lambda: self._among(argument),
            "moment": lambda: self._moment(argument),
            # Locks the parent of a task, if it has one; false if another transaction has locked it.
            "parent_is_free": lambda: self._parent_is_free(argument),
            # A table whose rows change often: each page is filled to this percentage, and it is vacuumed soon.
            "hot": lambda: self._hot(argument),
            # The bucket of a length in microseconds, on a scale of 1, 2, 5, 10, 20, 50 and so on; 0 for null.
            "bucket": lambda: self._bucket(argument),
        }
        if name in self._own:
            return self._own[name]
        if name in SPELLED:
            return self.fill(SPELLED[name](argument))
        if name in expand:
            return expand[name]()
        postgres, sqlite = _SPELLINGS.get(name, (None, None))
        if postgres is not None and sqlite is not None:
            return self.fill(postgres if self._postgres else sqlite)
        return self._table(name)

    def _table(self, name: str) -> str:
        return f'"{self._schema}".{name}' if self._postgres else f"{self._schema}_{name}"

    def _index(self, name: str) -> str:
        return name if self._postgres else f"{self._schema}_{name}"

    def _clock(self, name: str) -> str:
        # The parameter is null in production and a test's own time in tests; SQLite has no clock of its own worth
        # using, its driver always passes one. In Postgres it is a sub-select because a volatile call in a condition
        # cannot use an index: `run_at <= clock_timestamp()` would read every scheduled task.
        if not self._postgres:
            return f":{name}"
        clock = "cast(extract(epoch from clock_timestamp()) * 1000000 as bigint)"
        return f"(select coalesce(cast(:{name} as bigint), {clock}))"

    def _any_of(self, source: str) -> str:
        table, _, column = source.partition(".")
        named = f"select {table}.{column or 'id'} from {table}"
        return f"= any(array({named}))" if self._postgres else f"in ({named})"

    def _found_by(self, argument: str) -> str:
        column, _, source = argument.partition(" ")
        return f"{column} {self._any_of(source)}" if self._postgres else f"{column} = {source}"

    def _its(self, source: str) -> str:
        return source if self._postgres else f"(select {source} from {source.partition('.')[0]})"

    def _one_of(self, argument: str) -> str:
        place, _, value = argument.partition(" ")
        name, _, column = place.partition(".")
        table = self._table(name)
        if self._postgres:
            return f"cross join lateral (select * from {table} as one where one.{column} = {value} limit 1) as {name}"
        return f"cross join {table} as {name} on {name}.{column} = {value}"

    def _parent_is_free(self, task: str) -> str:
        if not self._postgres:
            return "true"  # one writer
        parent = f"select 1 from {self._table('task')} as parent where parent.id = {task}.parent_id"
        return f"({task}.parent_id is null or not exists ({parent}) or exists ({parent} for update skip locked))"

    def _hot(self, fill: str) -> str:
        if not self._postgres:
            return ""
        vacuum = "autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05"
        return f"with (fillfactor = {fill}, {vacuum})"

    def _bucket(self, column: str) -> str:
        # Three for each number of digits, told apart by the first one; less than 0, if a clock was set, is 0.
        if not self._postgres:
            first = f"substr({column}, 1, 1)"
            return f"coalesce(3 * length(max({column}, 0)) + ({first} > '1') + ({first} > '4'), 0)"
        digits = f"cast(greatest({column}, 0) as text)"
        first = f"substr({digits}, 1, 1)"
        part = f"case when {first} < '2' then 0 when {first} < '5' then 1 else 2 end"
        return f"case when {column} is null then 0 else 3 * length({digits}) + {part} end"

    def _among(self, parameter: str) -> str:
        if self._postgres:
            return f"= any(cast(string_to_array(:{parameter}, ',') as bigint[]))"
        return f"in (select given.value from json_each('[' || :{parameter} || ']') as given)"

    def _moment(self, column: str) -> str:
        if self._postgres:
            return f"to_timestamp({column} / 1000000.0)"
        return f"strftime('%Y-%m-%d %H:%M:%f', {column} / 1000000.0, 'unixepoch')"


_HAS_TAGS = (
    "(cast(:tags as text) is null or not exists (select 1 from json_array_elements_text(cast(:tags as json))"
    " as wanted (tag) where wanted.tag not in (select json_array_elements_text(task.tags))))"
)
_HAS_TAGS_EMBEDDED = (
    "(:tags is null or not exists (select 1 from json_each(:tags) as wanted"
    " where wanted.value not in (select its.value from json_each(task.tags) as its)))"
)

_SPELLINGS = {
    **{rule: (text, text) for rule, text in RULES.items()},
    **LIMITS,
    # the macro's spelling for Postgres, and for SQLite and Turso
    "json": ("json", "text"),
    "identity": ("bigint generated always as identity primary key", "integer primary key autoincrement"),
    "of_a_queue": ("", "references {queue} (id)"),  # an embedded database checks it for next to nothing
    "of_an_instance": ("", "references {instance} (id)"),
    "for_share": ("for share", ""),
    "for_update": ("for update", ""),
    "for_update_of_task": ("for update of task", ""),
    "for_update_of_instance": ("for update of instance", ""),
    # Locks the ordered group of a task, if it stands in one; false if another transaction has locked it.
    "group_is_free": (
        f"(task.position is null or not exists ({GROUP}) or exists ({GROUP} for update skip locked))",
        "true",
    ),
    "beside": ("cross join lateral", "cross join"),
    "skip_locked": ("for update skip locked", ""),
    "for_key_share": ("for key share", ""),
    # Whether a statement sees what was committed before it, even after the transaction began.
    "sees_commits": ("current_setting('transaction_isolation') = 'read committed'", "true"),
    "for_no_key_update": ("for no key update", ""),
    "row_id": ("ctid", "rowid"),  # where a row stands, for tables that are pruned and have no number of their own
    # One of the names in the parameter `types`, a JSON array.
    "of_types": (
        "= any(array(select json_array_elements_text(cast(:types as json))))",
        "in (select given.value from json_each(:types) as given)",
    ),
    # Keys in the order of their bytes, as SQLite compares text: an index for that, and the operators that use it.
    "bytes_order": ("text_pattern_ops", ""),
    "in_bytes": ("using ~<~", ""),
    "from_key": ("~>=~", ">="),
    "before_key": ("~<~", "<"),
    # All of the tags in the parameter `tags`, a JSON array; null asks for none.
    "has_tags": (_HAS_TAGS, _HAS_TAGS_EMBEDDED),
    "replace_view": ("create or replace view", "create view"),  # SQLite: dropped before
}

_MACRO = re.compile(r"\{([a-z_]+)( [^{}]*)?\}")
_ROWS = re.compile(r"\{(rows?) ([^{}]*)\}")
_ROW_SETS = re.compile(r"^-- rows (\w+): ((?:.*\n)(?:--     .*\n)*)", re.MULTILINE)
_PARAMETER = re.compile(r"((?<![:\w]):[a-z_]+\b)")


def _named(text: str) -> Iterator[tuple[str, str, str]]:
    """Every statement of a file: its name, the dialect it is for ('' = all), its text without comments."""
    for part in re.split(r"^-- name: ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        found = re.fullmatch(r"(\w+)(?: \[(\w+)\])?", heading.strip())
        if found is None:
            raise ValueError(f"not a statement heading: {heading!r}")
        lines = [line for line in body.splitlines() if not line.lstrip().startswith("--")]
        yield found.group(1), found.group(2) or "", "\n".join(lines).strip().removesuffix(";")


def _without_comments_between(text: str) -> Sequence[str]:
    return [part.strip() for part in text.split(";\n")]


def _columns(text: str) -> tuple[Column, ...]:
    pairs = (pair.split() for pair in re.sub(r"\n--", " ", text).split(","))
    return tuple(Column(name, type_) for name, type_ in pairs)


def _files(folder: str) -> list[tuple[str, str]]:
    place = resources.files("stepwell.store").joinpath(folder)
    return [(entry.name, entry.read_text("utf-8")) for entry in place.iterdir() if entry.name.endswith(".sql")]


def fed_rows(call: Call, answered: Sequence[Row]) -> Sequence[Sequence[Value]]:
    """The row set of a call that another one feeds, of what that has returned. On Postgres a flush says it in SQL.

    Without rows of its own the call takes all of them, column by column. Of its own rows, which begin with a task and
    the answer that they need, it takes those whose task got that answer; without one, those whose task got any answer.
    """
    if call.rows is None:
        names = _row_columns()[call.statement]
        return [[row[name] for name in names] for row in answered]
    answers = {(row["id"], row["answer"]) for row in answered}
    tasks = {task_id for task_id, _ in answers}
    return [row for row in call.rows if (row[0] in tasks if row[1] is None else (row[0], row[1]) in answers)]


@lru_cache(maxsize=1)
def _row_columns() -> Mapping[str, Sequence[str]]:
    """The names of the columns that each statement takes, in every spelling."""
    found: dict[str, Sequence[str]] = {}
    for _, text in _files("sql"):
        row_sets = {name: _columns(columns) for name, columns in _ROW_SETS.findall(text)}
        for name, _, body in _named(text):
            if rows := _ROWS.search(body):
                named = rows.group(2).strip()
                found[name] = [column.name for column in row_sets.get(named) or _columns(named)]
    return found
