"""Commands on the address of a DuckLake: their answers equal those on a lake's folder, and errors are one sentence."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.base.errors import WrongValue
from pipelines.faces.cli.app import app
from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.runs.store import open_store
from pipelines.synthetic import CaptureSpec, write_capture
from tests.engines.ibis_page import busy

pytestmark = pytest.mark.ducklake("sqlite")
OF_PLACE = (
    "lake",
    "path",
    "bytes",
    "lake_bytes",
    "free_bytes",
    "free_percent",
    "dagster_bytes",
    "published",
    "idle_seconds",
)


def run(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert done.exit_code == code, f"{words}: {done.output}"
    return done.stdout


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Return the folder of a lake with two captures of two ranks, and the address of a DuckLake with the same."""
    folder = tmp_path_factory.mktemp("both")
    for name, seed in (("a", 1), ("b", 2)):
        write_capture(CaptureSpec(ranks=2, steps=6, layers=1, gz=False, seed=seed), folder / "in" / name)
    lake = Lake(folder / "lake")
    ingest([folder / "in"], lake, job="nightly")
    materialize_all(lake)
    address = f"ducklake:sqlite:{folder}/catalog.sqlite?data={folder}/data"
    open_store(address).commit(lake)
    return str(lake.root), address


def plain(answer: Any, lake: str) -> Any:
    """Return the answer without values that depend on the location. In printed commands, LAKE replaces the lake."""
    if isinstance(answer, dict):
        return {key: plain(value, lake) for key, value in answer.items() if key not in OF_PLACE}
    if isinstance(answer, list):
        return [plain(part, lake) for part in answer]
    return answer.replace(shlex.quote(lake), "LAKE") if isinstance(answer, str) else answer


def test_the_same_commands_answer_the_same(both: tuple[str, str], tmp_path: Path) -> None:
    """Commands on a DuckLake have the same answers as on a folder.

    These are the README's commands that read a lake. A trace of a DuckLake is copied, and its tables are computed.
    """
    query = (
        "SELECT c.capture_id, min(trace_id) FROM captures AS c JOIN traces USING (capture_id) GROUP BY ALL ORDER BY 1"
    )
    ids = json.loads(run("sql", query, "--lake", both[0], "--format", "json"))
    (first, trace), (second, _) = ([*row.values()] for row in ids)
    commands = [
        ("fleet",), ("status",), ("why", first), ("why", trace), ("why", trace, "--step", "1"), ("capture-path", first),
        ("stragglers", first), ("compare", first, second), ("regressions", "--job", "nightly"), ("breakdown", trace),
        ("critical-path", trace), ("what-if", trace, "--remove", "launch_overhead"), ("report", first, "--out", "{}.html"),
    ]  # fmt: skip
    answers: list[dict[tuple[str, ...], Any]] = [{}, {}]
    for command in commands:
        for place, lake in enumerate(both):
            words = [word.format(tmp_path / f"page{place}") for word in command]
            answers[place][command] = plain(json.loads(run(*words, "--lake", lake, "--json")), lake)
    assert [command for command in commands if answers[0][command] != answers[1][command]] == []
    pages = [
        plain(html.unescape((tmp_path / f"page{place}.html").read_text()), lake) for place, lake in enumerate(both)
    ]
    assert pages[0] == pages[1]
    assert run("metrics", "--lake", both[0]) == run("metrics", "--lake", both[1])
    run("fleet", "--lake", both[1], "--out", str(tmp_path / "fleet"))
    assert (tmp_path / "fleet" / f"{first}.html").exists()


def test_the_readme_s_commands_on_a_lake_answer_the_same(both: tuple[str, str]) -> None:
    """The README's commands on a lake have the same answers for both.

    They run as printed, with the lake and their placeholders filled in. Other tests run the commands that serve or
    write.
    """
    page = (Path(__file__).resolve().parents[3] / "README.md").read_text()
    lines = re.findall(r"^tracelake ((?:ask|sql|tables|fleet|status)\b.*?)\s*(?:#.*)?$", page, re.MULTILINE)
    query = "SELECT name, count(*) AS n, sum(duration_ns) AS ns FROM kernels GROUP BY name ORDER BY ALL"
    asked = [line.replace("SELECT …", query).replace("table|csv|json|parquet", "json") for line in lines]
    assert len(asked) >= 4 and any(query in line for line in asked)
    for line in asked:
        words = shlex.split(line if "--lake" in line else f"{line} --lake /data/lake")
        answers = [run(*(word.replace("/data/lake", lake) for word in words)) for lake in both]
        assert answers[0] == answers[1] and answers[0], line


def test_ibis_tables_are_those_of_the_folder(both: tuple[str, str]) -> None:
    """The Ibis expression of docs/other-engines.md has the same rows on both."""
    pytest.importorskip("ibis", reason="the extra notebook is not installed")
    from pipelines.faces.ibis_tables import open_tables

    answers = []
    for lake in both:
        backend = open_tables(lake, "kernels")
        answers.append(busy()(backend).to_pyarrow().to_pylist())
        backend.disconnect()
    assert answers[0] == answers[1] and len(answers[0]) > 2
    with pytest.raises(WrongValue, match="tracelake sql"):
        open_tables(both[1], locked=True)


def test_a_notebook_answers_the_same(both: tuple[str, str]) -> None:
    pytest.importorskip("ibis", reason="the extra notebook is not installed")
    from tracelake import TraceAnalysis

    answers = []
    for lake in both:
        with TraceAnalysis(lake=lake, job="nightly") as analysis:
            trace = analysis.traces[0].trace_id
            path = analysis.critical_path_analysis(trace, "ProfilerStep", 1)
            of_captures = analysis.sql("SELECT capture_id, n_traces FROM captures ORDER BY 1").to_dicts()
            kernels = analysis.ask("top-kernels", 5).to_dicts()
            why = plain(analysis.why(trace, 1).as_json(), lake)
            answers.append([[*map(str, analysis.traces)], why, path.summary().to_dict(), of_captures, kernels])
    assert answers[0] == answers[1] and len(answers[0][0]) == 4 and len(answers[0][3]) == 2
    with pytest.raises(LookupError, match=r"no trace of job 'other' in the lake ducklake:.*its jobs: nightly"):
        TraceAnalysis(lake=both[1], job="other")
    with pytest.raises(WrongValue, match="tracelake ingest"):
        TraceAnalysis(trace_dir=".", lake=both[1])


def test_a_trace_is_forgotten_and_its_capture_computed_again(both: tuple[str, str], tmp_path: Path) -> None:
    """After a trace is forgotten, its capture is recomputed in a DuckLake as in a folder.

    The trace's file may be ingested again, unless it was forgotten for good.
    """
    folder, catalog = tmp_path / "lake", tmp_path / "catalog.sqlite"
    shutil.copytree(both[0], folder)
    address = f"ducklake:sqlite:{catalog}?data={tmp_path}/data"
    open_store(address).commit(Lake(folder))
    query = "SELECT capture_id, n_ranks, n_traces FROM captures ORDER BY 1"
    ids = [row["trace_id"] for row in json.loads(run("sql", "SELECT trace_id FROM traces ORDER BY 1", "--lake", address, "--format", "json"))]  # fmt: skip
    forgotten = [json.loads(run("forget", ids[0], "--lake", str(lake), "--json")) for lake in (folder, address)]
    assert plain(forgotten[0], str(folder)) == plain(forgotten[1], address) and forgotten[1]["n_rows"] > 100
    answers = [run("sql", query, "--lake", str(lake), "--format", "json") for lake in (folder, address)]
    assert answers[0] == answers[1]
    left = "SELECT count(DISTINCT trace_id) AS n FROM kernels"
    assert json.loads(run("sql", left, "--lake", address, "--format", "json")) == [{"n": 3}]
    assert "no trace id in ducklake:" in refused("forget", ids[0], "--lake", address)
    assert open_store(address).known(ids) == {*ids[1:]}
    run("forget", ids[1], "--for-good", "--lake", address)
    assert open_store(address).known(ids) == {*ids[1:]}


def test_check_reads_every_file(both: tuple[str, str], tmp_path: Path) -> None:
    catalog, _, data = both[1].removeprefix("ducklake:sqlite:").partition("?data=")
    shutil.copyfile(catalog, tmp_path / "c.sqlite")
    shutil.copytree(data, tmp_path / "data")
    with sqlite3.connect(tmp_path / "c.sqlite") as con:
        con.execute("UPDATE ducklake_metadata SET value = ? WHERE key = 'data_path'", (f"{tmp_path}/data/",))
    address = f"ducklake:sqlite:{tmp_path}/c.sqlite"
    sound = json.loads(run("check", "--lake", address, "--json"))
    assert sound["broken"] == 0 and sound["files"] > 50
    assert "--repair" in refused("check", "--lake", address, "--repair")
    gone, cut, other = sorted((tmp_path / "data" / "main" / "events").parent.glob("*/*.parquet"))[:3]
    gone.unlink()
    content = cut.read_bytes()
    cut.write_bytes(content[:-100])
    content = other.read_bytes()
    other.write_bytes(content[:4] + bytes(len(content) - 16) + content[-12:])  # only the content changes, not the size
    report = json.loads(run("check", "--lake", address, "--json", code=1))
    why = {Path(fault["path"]): fault["why"] for fault in report["faults"]}
    assert why.keys() == {gone, cut, other} and report["files"] == sound["files"]
    assert why[gone] == "is missing" and "bytes, not" in why[cut] and "cannot be read" in why[other]


def refused(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 1 and not done.stdout, done.output
    return done.stderr


def test_what_is_wrong_is_said(both: tuple[str, str], tmp_path: Path) -> None:
    """Errors about a DuckLake name their cause.

    The causes are an unknown id, a missing catalog, lost data, and an inbox, which a DuckLake does not have.
    """
    assert "no trace in ducklake:" in refused("why", "0123", "--lake", both[1])
    assert "--inbox" in refused("status", "--lake", both[1], "--inbox", str(tmp_path))
    assert "there is no such catalog" in refused(
        "fleet", "--lake", f"ducklake:sqlite:{tmp_path}/none.sqlite?data={tmp_path}"
    )
    shutil.copyfile(both[1].partition("?")[0].removeprefix("ducklake:sqlite:"), tmp_path / "lost.sqlite")
    message = refused("why", json.loads(run("sql", "SELECT min(trace_id) AS t FROM traces", "--lake", both[0], "--format",
        "json"))[0]["t"], "--lake", f"ducklake:sqlite:{tmp_path}/lost.sqlite?data={tmp_path}/data")  # fmt: skip
    assert message.startswith("error: ducklake:") and "Traceback" not in message


@pytest.mark.ducklake("duckdb")
def test_a_locked_catalog_is_said_while_it_is_held(tmp_path: Path) -> None:
    """The error about a locked catalog says that another process has it open.

    Only one process can open a DuckDB file.
    """
    import subprocess
    import sys

    address = f"ducklake:duckdb:{tmp_path}/c.duckdb?data={tmp_path}/data"
    open_store(address).set_user_tables()
    hold = (
        f"import duckdb,time; c = duckdb.connect({str(tmp_path / 'c.duckdb')!r}); print(1, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout and other.stdout.readline()
            message = " ".join(refused("fleet", "--lake", address).split())
            assert "another process has the catalog open" in message and other.poll() is None  # it still has it open
        finally:
            other.kill()
