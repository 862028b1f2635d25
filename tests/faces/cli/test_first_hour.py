"""A newcomer's first hour: similar names, answers that fit the screen, output files in folders that do not exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pipelines.faces.cli import console
from pipelines.faces.cli.app import app
from pipelines.faces.cli.lake import ask
from pipelines.faces.cli.lake.demo import synthetic
from tests.harness import call, kernel


def run(*words: object, code: int = 0) -> Result:
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == code, (words, done.output)
    return done


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake with the demo's server, and two traces of a job on other devices."""
    folder = tmp_path_factory.mktemp("hour")
    _, server, _ = synthetic(folder)
    for name, device, world in (("a", "NVIDIA H100", 8), ("b", "AMD MI300X", 2)):
        events = [call("cudaLaunchKernel", 10, 5, 1), kernel(f"gemm_{name}", 20, 30, 1)]
        metadata = {
            "deviceProperties": [{"id": 0, "name": device}],
            "distributedInfo": {"rank": 0, "world_size": world},
        }
        (folder / f"{name}.json").write_text(json.dumps({"traceEvents": events, **metadata}))
    run("ingest", server, "--lake", folder / "lake")
    run("ingest", folder / "a.json", folder / "b.json", "--job", "nightly", "--lake", folder / "lake")
    return folder / "lake"


@pytest.mark.slow  # 3 s; faces/test_subject.py tests names of files
def test_a_trace_by_its_files_name(lake: Path, tmp_path: Path) -> None:
    asked = ("ask", "top-kernels", "--lake", lake, "--format", "json")
    assert [row["name"] for row in json.loads(run(*asked, "--trace", "a.json").stdout)] == ["gemm_a"]
    assert "Of 30.69 ms the GPU computes" in run("why", "server.json.gz", "--lake", lake).stdout
    assert "out of a folder" not in run("breakdown", "elsewhere/b.json", "--lake", lake).stdout
    page = tmp_path / "page.html"
    run("report", "b.json", "--lake", lake, "--out", page)
    assert "gemm_b" in page.read_text()


@pytest.mark.parametrize(
    "words", [("report", "{}", "--out"), ("critical-path", "{}", "--edges"), ("flame", "x", "--folded")]
)
def test_a_file_in_a_folder_that_is_not_there_is_refused_before_the_work(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "trace.json").write_text("broken")  # reading it would fail with that error
    page, words = tmp_path / "not there" / "x", tuple(word.format(tmp_path / "trace.json") for word in words)
    refused = plain(run(*words, page, code=2))
    assert (
        plain(f"the folder {page.parent} does not exist. Create it: mkdir -p '{page.parent}'") in refused
        and not page.parent.exists()
    )
    assert plain("trace.json is not a folder") in plain(run(*words, tmp_path / "trace.json" / "x", code=2))
    page.parent.mkdir()
    assert plain("Create it: mkdir") not in plain(run(*words, page, code=1))


def plain(said: Result | str) -> str:
    """Return a text without the blanks and frames into which an error is wrapped."""
    return re.sub(r"[\s│]", "", said if isinstance(said, str) else said.output)


def test_ask_takes_a_trace_by_the_path_of_its_file(lake: Path) -> None:
    asked = run("ask", "top-kernels", "--lake", lake, "--format", "json", "--trace", "elsewhere/a.json")
    assert [row["name"] for row in json.loads(asked.stdout)] == ["gemm_a"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ask", "top-kernels", "--trace", "servr.json.gz"], "did you mean server.json.gz"),
        (["ask", "top-kernels", "--job", "nigthly"], "no job 'nigthly' in the lake"),
        (["ask", "top-kernels", "--job", "nigthly"], "did you mean nightly?"),
        (["ask", "captures", "--capture", "zz"], "no capture 'zz' in the lake"),
        (["ask", "top-kernels", "--rank", "7"], "no rank 7 in the lake"),
        (["why", "sever.json.gz"], "'sever.json.gz' is not a file, and no trace id starts with it"),
        (["report", "sever.json.gz"], "did you mean server.json.gz"),
        (["sql", "SELECT nam FROM kernels"], "did you mean name"),
        (["sql", "SELECT k.start FROM kernels AS k"], "did you mean start_ns"),
    ],
)
def test_a_name_that_is_not_there_is_an_error_with_what_was_meant(lake: Path, words: list[str], said: str) -> None:
    assert said in run(*words, "--lake", lake, code=1).stderr


def test_a_file_that_is_not_there_says_so_without_a_lake(tmp_path: Path) -> None:
    said = run("why", "rank0.json", "--lake", tmp_path / "lake", code=1).stderr
    assert "'rank0.json' is not a file, and there is no lake with traces at" in said


def test_the_inventory_has_a_row_for_each_device_and_world_size(lake: Path) -> None:
    rows = json.loads(run("ask", "inventory", "--lake", lake, "--format", "json").stdout)
    inventory = {(row["job"], row["device"], row["world_size"], row["n_traces"]) for row in rows}
    assert {("nightly", "NVIDIA H100", 8, 1), ("nightly", "AMD MI300X", 2, 1)} < inventory and len(inventory) == 3
    assert {row["n_hosts"] for row in rows} == {None} and all("." not in row["last_ingested"] for row in rows)


def test_a_table_says_if_there_are_more_rows_and_other_formats_have_all(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table on the screen states if the answer has more rows, and other formats have all rows.

    The lake has five names of kernels.
    """
    asked, note = ("ask", "top-kernels", "--lake", lake), "rows; --top 0 shows all"
    monkeypatch.setattr(ask, "_ROWS", 4)
    assert f"only the first 4 {note}" in run(*asked).stderr
    assert note not in run(*asked, "--top", 5).stderr
    assert len(run(*asked, "--format", "csv").stdout.splitlines()) == 1 + 5
    assert len(json.loads(run(*asked, "--format", "json", "--top", 4).stdout)) == 4


@pytest.mark.slow  # 7 s
def test_a_wide_answer_is_read_at_120_columns(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console.out, "_width", 120)
    wide = run("sql", "FROM serving_steps ORDER BY start_ns LIMIT 5", "--lake", lake)
    lines = wide.stdout.splitlines()
    assert max(map(len, lines)) <= 120 and sum("gpu_busy_ns" in line for line in lines) == 5  # each row is a block
    assert "--format csv has them in lines" in wide.stderr
