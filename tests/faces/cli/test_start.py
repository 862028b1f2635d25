"""Quick starts of commands: no unneeded module is imported, and the list of all commands is drawn without rich."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from pipelines.faces import report
from pipelines.faces.cli import commands, overview
from pipelines.faces.cli.app import COMMANDS, app
from pipelines.lake import Lake
from pipelines.lake.read.query_tables import tables_read
from pipelines.readers.ingest import ingest
from tests.effort import first_of
from tests.lake.world import write_trace

_HEAVY = ("duckdb", "pyarrow", "numpy", "networkx", "pandas", "rich", "sqlglot", "torch", "dagster")
_SEEN = """
import sys
from pipelines.faces.cli.app import app
try:
    app(sys.argv[2:])
finally:
    print(*sorted(set(sys.argv[1].split(",")) & set(sys.modules)), file=sys.stderr)
"""


def imported(heavy: tuple[str, ...], *words: object) -> list[str]:
    """Run a command in a new process. Return which of the named modules are loaded when it ends."""
    command = [sys.executable, "-c", _SEEN, ",".join(heavy), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()[-1].split()


@pytest.mark.parametrize("words", [["--help"], ["--version"]])
def test_the_help_imports_nothing_heavy(words: list[str]) -> None:
    assert imported(_HEAVY, *words) == []


def test_a_command_ends_without_looking_through_its_objects() -> None:
    last = (
        "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count() > 0, gc.get_threshold()[0] > 10_000)); "
        "import pipelines.faces.cli.app"
    )
    done = subprocess.run([sys.executable, "-c", last], capture_output=True, text=True, timeout=120)
    assert done.stdout == "True True\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_says_itself(name: str) -> None:
    group: Any = typer.main.get_command(app)
    command = group.commands[name].make_context(name, [], resilient_parsing=True).command
    assert inspect.cleandoc(command.help).split("\n\n")[0].replace("\n", " ") == COMMANDS[name][1]


@pytest.mark.parametrize("width", [60, 61, 80, 123, 200])
def test_the_overview_is_what_typer_draws(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for name in ("FORCE_COLOR", "TERM", *overview._UNUSUAL):
        monkeypatch.delenv(name, raising=False)
    ours = CliRunner().invoke(app, ["--help"]).output
    monkeypatch.setattr(overview, "is_usual", lambda: False)
    theirs = CliRunner().invoke(app, ["--help"]).output
    # Versions of typer differ in how they draw options.
    ours_options, ours_commands = ours.split("╭─ Commands")
    options, commands = theirs.split("╭─ Commands")
    assert ours_commands.rstrip("\n") == commands.rstrip("\n")
    assert set(re.findall(r"--\w+|\w{2,}", ours_options)) >= set(re.findall(r"--\w+|\w{2,}", options))
    assert len({len(line) for line in ours.splitlines() if line}) == 1


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "is_usual", lambda: True)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert "\x1b[" not in CliRunner().invoke(app, ["--help"]).output
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1;36mcritical-path\x1b[0m" in CliRunner().invoke(app, ["--help"]).output


@pytest.mark.parametrize("name", ["NO_COLOR", "TERMINAL_WIDTH", "TERM"])
def test_unusual_terminals_are_left_to_typer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv(name, "dumb" if name == "TERM" else "70")
    assert not overview.is_usual()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start")
    ingest([write_trace(folder / "rank0.json", 0)], Lake(folder / "lake"))
    # computes and publishes the table
    list(imported(_HEAVY, "sql", "SELECT count(*) FROM kernels", "--lake", folder / "lake"))
    return folder / "lake"


# One query reads a stored and a computed table.
@pytest.mark.parametrize(
    "query", first_of(["SELECT count(*) FROM kernels JOIN traces USING (trace_id)", "SELECT 1"], 1)
)
def test_a_query_imports_what_it_needs(lake: Path, query: str) -> None:
    heavy = [*(name for name in _HEAVY if name not in ("duckdb", "rich")), "pydantic"]
    ours = (
        "pipelines.readers.kineto.reader",
        "pipelines.readers.execution.execution_trace",
        "pipelines.critical_path.longest.window_paths",
        "pipelines.readers.ingest",
    )
    assert imported((*heavy, *ours), "sql", query, "--lake", lake) == []


def test_a_page_binds_no_values() -> None:
    """The code of a report binds no value to a query.

    A bound value imports pandas, which takes a tenth of a page's time.
    """
    bound = re.compile(r"[ =(]\$\w+\b|\?[\",) ]")
    pages = [*Path(report.__path__[0]).rglob("*.py")]
    assert len(pages) > 20
    assert [path.name for path in pages if bound.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.slow  # eight processes; the imports of a query are tested below
def test_one_more_trace_imports_no_pandas(lake: Path, tmp_path: Path) -> None:
    """Reporting, ingesting and computing one trace import no pandas.

    Values bound to a query's parameters would import it.
    """
    assert (
        imported(("pandas",), "report", write_trace(tmp_path / "page.json", 0), "--out", tmp_path / "page.html") == []
    )
    assert imported(("pandas",), "ingest", write_trace(tmp_path / "rank1.json", 1), "--lake", lake) == []
    assert imported(("pandas",), "materialize", "--lake", lake) == []


@pytest.mark.slow  # 4 s
def test_the_path_of_a_file_imports_what_it_needs(tmp_path: Path) -> None:
    heavy = ("networkx", "pandas", "sqlglot", "torch", "rich.progress", "sqlite3")
    ours = (
        "pipelines.readers.ingest",
        "pipelines.lake.lake",
        "pipelines.lake.publish.analyst_file",
        "pipelines.critical_path.answer.path_json",
    )
    trace = write_trace(tmp_path / "rank0.json", 0)
    assert imported((*heavy, *ours), "critical-path", trace) == []
    assert imported((*heavy, *ours), "what-if", trace, "--scale", "cpu=0.5") == []


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_numpy_starts_no_threads() -> None:
    code = "import pipelines.faces.cli.app, numpy, os; print(len(os.listdir('/proc/self/task')))"
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    assert done.stdout == "1\n", done.stderr


def parsed(*words: str) -> dict[str, Any] | str:
    """Return the values of a command's parameters, or the error message about its words."""
    group: Any = typer.main.get_command(app)
    try:
        return group.commands[words[0]].make_context(words[0], [*words[1:]]).params
    except typer.BadParameter.__base__ as error:
        return error.format_message()


@pytest.mark.parametrize(
    "words",
    [
        "sql q",
        "sql q --format json --limit 3 --timeout 0.5 --max-rows 0 --memory 4GB --allow-files --lake there",
        "sql q --limit -1",
        "sql q --max-rows -1",
        "sql q --max-rows x",
        "sql q --timeout nan",
        "sql q --timeout 1e3",
        "sql q --format yaml",
        "sql q --lake s3://there",
        "sql",
        "materialize",
        "materialize kernels spans --force",
        "tables",
        "tables kernels --json",
        "ingest a b --job j --max-ratio 7",
        "ingest a --max-ratio 0",
        "ingest",
        "what-if trace --scale a=0.5 --scale b=2 --perfect-overlap",
        "what-if trace --scenario gs://there",
        "critical-path trace --instance 1 --alternatives 2 --edges out.parquet",
        "critical-path trace --instance 1.5",
        "critical-path trace --profile none",
        "flight-recorder a b",
        "flight-recorder",
        "memory a --top 3 --json",
        "memory a --top 0",
        "status --min-free 101",
        "status --min-free 100 --max-backlog 2 --inbox there",
        "retention",
        "retention --keep-days 0",
        "compact --older-than 2 --smaller-than 0.5 --dry-run",
        "report one two --rank 0",
    ],
)
def test_values_are_those_that_typer_takes(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = parsed(*words.split())
    monkeypatch.setattr(commands, "take_simple_values", lambda *_: None)
    assert ours == parsed(*words.split())
    if isinstance(ours, dict):  # because 1 == 1.0, and Format.json == "json"
        theirs = parsed(*words.split())
        assert isinstance(theirs, dict)
        assert {name: type(value) for name, value in ours.items()} == {n: type(value) for n, value in theirs.items()}


def test_values_of_the_environment_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LAKE": "there", "MAX_RATIO": "12", "WITHOUT_BROKEN": "1"}.items():
        monkeypatch.setenv(f"TRACELAKE_{name}", value)
    words = (("ingest", "a"), ("sql", "q"))
    ours = [parsed(*line) for line in words]
    monkeypatch.setattr(commands, "take_simple_values", lambda *_: None)
    assert ours == [parsed(*line) for line in words]
    assert [values["lake"] for values in ours if isinstance(values, dict)] == [Path("there")] * 2


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        ("SELECT 1", []),
        ("FROM Kernels", ["kernels"]),
        ("SELECT * FROM kernels k JOIN analyst.spans USING (trace_id)", ["kernels", "spans"]),
        ("WITH k AS (SELECT * FROM kernels) SELECT (SELECT max(percent) FROM quality) FROM k", ["kernels", "quality"]),
        ("SELECT spans.kernels FROM (SELECT 1 AS kernels) AS spans", []),
        ("PIVOT kernels ON name USING sum(duration_ns)", ["kernels"]),
        ("SUMMARIZE kernels", ["kernels"]),
        ("DESCRIBE kernels", ["kernels"]),
        ("SELECT 'it''s' FROM kernels UNION ALL FROM spans", ["kernels", "spans"]),
        ('SELECT \'{"type": "BASE_TABLE", "table_name": "kernels"}\'', []),
        ("SELECT FROM WHERE", []),
        ("", []),
    ],
)
def test_the_tables_that_a_query_reads(query: str, tables: list[str]) -> None:
    assert sorted(tables_read(query)) == tables
