"""The pages hang together: links lead somewhere, figures are the benchmark's, the reference is the code's."""

import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import stepwell
from tests.shape.blocks import ROOT, blocks, documents

DOCS = ROOT / "docs"
PAGES = [*documents(), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
FIGURE = re.compile(r"^\| `(?P<workload>[a-z.]+)`[^|]*\| (?P<postgres>[^|]+) \| (?P<sqlite>[^|]+) \|(?P<rest>.*)$")


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """A page without its programs and their output."""
    return re.sub(r"^( *)```.*?^\1```", "", text(page), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://|mailto:)([^)\s]+)\)", prose(page))
    for link in links:
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{link}: no such file"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


def test_each_scenario_names_a_test_or_an_example_that_shows_it() -> None:
    rows = [line for line in text(DOCS / "scenarios.md").splitlines() if re.match(r"\| [A-Z]", line)]
    assert len(rows) > 50, "the table is not read"
    for row in rows:
        files = [DOCS / link for link in re.findall(r"\]\(([^)#]+)", row)]
        shown = [file for file in files if file.suffix == ".py" and file.exists()]
        assert shown, f"no test and no example shows it: {row}"


@pytest.mark.parametrize(
    ("page", "words"),
    [
        pytest.param(
            "deciders.md",
            (
                "an instance as an actor with a mailbox",
                "**One input at a time.** Inputs of one instance are decided one after the other",
                "Each is decided on the state that includes the events of the inputs before it",
            ),
            marks=pytest.mark.proves("M-28"),
        ),
        pytest.param(
            "howto/idempotency.md", ("`ctx.key` in an effect", "upsert", "repeated"), marks=pytest.mark.proves("F-16")
        ),
        pytest.param(
            "deciders.md",
            (
                "Pass `ctx.key` to outside services. It is the same in every attempt",
                "an upsert rather than an insert",
                "A failure of the business, such as a declined card, is an answer (an input)",
            ),
            marks=pytest.mark.proves("F-16"),
        ),
        pytest.param(
            "deciders.md", ("let the state remember what it has seen", "`Ignored`"), marks=pytest.mark.proves("II-06")
        ),
    ],
)
def test_what_only_a_page_can_say_is_said(page: str, words: tuple[str, ...]) -> None:
    said = " ".join(prose(DOCS / page).split())
    assert [word for word in words if word not in said] == []


def test_the_readme_says_when_a_killed_worker_is_taken_over_as_the_promises_do() -> None:
    """At once on SQLite, as the demo shows; on Postgres with a helper, and after the lease without."""
    said = " ".join(prose(ROOT / "README.md").split())
    lease = inspect.signature(stepwell.Config).parameters["lease"].default
    assert "On Postgres another worker takes over a second or two after a kill" in said
    assert (
        f"after the lease (`connect(lease={lease})`) if a machine is lost or a worker has [no helper](docs/promises.md"
        in said
    )
    [row] = re.findall(
        r"^\| a worker's process dies, or is killed \| (.*) \|$", text(DOCS / "promises.md"), re.MULTILINE
    )
    assert row.startswith("its helper reports it, and others take over in a second or two, whatever the lease; without")
    assert row.endswith("without a helper, after the lease (SQLite: at once)")


@pytest.mark.proves("G-07")
def test_the_page_of_capacity_gives_guidance_on_the_database_workers_and_indexes() -> None:
    said = " ".join(prose(DOCS / "capacity.md").split())
    for words in (
        "The database is what all workers share, so it is the limit.",
        "Add processes for the processor, not for the queue.",
        "**Connections**: a worker on Postgres has",
        "**Indexes** are stepwell's own and need none of yours",
        "let autovacuum come often",
        "`stepwell bench` measures the machine you are on.",
    ):
        assert words in said, words
    shown = {found["workload"] for line in text(DOCS / "capacity.md").splitlines() if (found := FIGURE.match(line))}
    assert {"drain", "workflow.many", "latency", "latency.two"} <= shown


def test_every_page_is_in_the_navigation_once() -> None:
    site = tomllib.loads(text(ROOT / "zensical.toml"))["project"]
    listed = re.findall(r"'([\w/]+\.md)'", str(site["nav"]))
    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def test_every_example_is_spoken_of() -> None:
    spoken = "".join(text(page) for page in documents())
    assert [path.name for path in (ROOT / "examples").glob("*.py") if f"examples/{path.name}" not in spoken] == []


def test_the_reference_is_current() -> None:
    """Whatever is public stands there, with the signature and the docstring that it has."""
    script = [sys.executable, str(ROOT / "scripts" / "reference.py"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "capacity.md"], ids=lambda page: page.name)
def test_figures_are_those_of_the_benchmark(page: Path) -> None:
    measured = {
        (cells[0], cells[1]): cells
        for line in text(DOCS / "benchmarks.md").splitlines()
        if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 9
    }
    figures = [found for line in text(page).splitlines() if (found := FIGURE.match(line))]
    assert len(figures) >= 4
    for found in figures:
        postgres, sqlite = (measured[found["workload"], backend] for backend in ("Postgres", "SQLite"))
        assert (found["postgres"], found["sqlite"]) == (postgres[2], sqlite[2])
        if page.name == "README.md":
            assert found["rest"].strip(" |") == postgres[5]


def test_the_readme_stays_short() -> None:
    assert len(text(ROOT / "README.md").splitlines()) <= 265


@pytest.mark.proves("G-01")
def test_the_documents_say_what_is_exactly_once_and_what_is_not() -> None:
    words = " ".join(text(DOCS / "promises.md").split())
    promise = (
        "step results are recorded exactly once; step bodies, effects, timers, outbox publishes and projections are"
    )
    assert f"{promise} at-least-once" in words
    short = "Step results are recorded exactly once; step bodies, effects and timers are at-least-once."
    assert short in text(ROOT / "README.md")


GUIDES = {
    "error classification": "howto/errors.md#classify-errors",
    "idempotent steps and effects": "howto/idempotency.md#idempotent-steps-and-effects",
    "names of events, rejections and timer keys": "howto/versions.md#names",
    "versioned names": "howto/versions.md#two-versions-side-by-side",
    "safe deployment": "upkeep.md#deploying-while-it-runs",
    "payload size": "capacity.md#capacity",
}


@pytest.mark.proves("G-03")
@pytest.mark.parametrize("guide", GUIDES)
def test_there_is_a_guide(guide: str) -> None:
    page, _, anchor = GUIDES[guide].partition("#")
    assert anchor in anchors(DOCS / page)


@pytest.mark.proves("G-03")
def test_the_guides_say_how_things_are_named_and_how_large_they_may_be() -> None:
    names = text(DOCS / "howto" / "versions.md")
    assert all(word in names for word in ("**Timer keys**", "**Events**", "**rejection**", "drain_queue"))
    assert "one MiB" in text(DOCS / "capacity.md")


@pytest.mark.proves("G-02")
def test_the_mapping_of_airflow_is_a_program() -> None:
    assert [block for block in blocks(DOCS / "howto" / "airflow.md") if block.is_python]


@pytest.mark.proves("G-04")
def test_the_documents_warn_of_recording_what_one_machine_knows(tmp_path: Path) -> None:
    """The example shows it: the path is lost with its machine, the content is not."""
    page = DOCS / "howto" / "idempotency.md"
    [example] = [block for block in blocks(page) if "taken away" in block.code]
    assert "do-not-record-what-only-one-machine-knows" in anchors(page)
    command = [sys.executable, "-m", "tests.shape.blocks", str(page), "here", str(example.line)]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["lost: FileNotFoundError", "a photo"]
