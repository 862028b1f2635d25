"""The execution trace that belongs to a profiler trace, and the command that computes a path by data."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.readers.execution.neighbor_files import NoExecutionTrace, execution_trace_beside
from tests.harness import x
from tests.readers.execution.make import Op, write

NAMES = "abcdefgh"


def trace(path: Path, names: str = NAMES) -> Path:
    """Write operators in sequence, 10 us each."""
    numbers: list[dict[str, Any]] = [{"Record function id": i + 1} for i in range(len(names))]
    events = [
        x("cpu_op", name, 10 * i, 10, **number) for i, (name, number) in enumerate(zip(names, numbers, strict=True))
    ]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def nodes(path: Path, names: str = NAMES) -> Path:
    """Write nodes that each need the output of the operator two positions before.

    So the longest chain contains half of the operators.
    """
    return write(path, [Op(name, [i - 1] if i > 1 else [], [i + 1], rf_id=i + 1) for i, name in enumerate(names)])


@pytest.mark.parametrize(
    ("name", "rank", "files", "expected"),
    [
        ("worker3.json", 3, ["execution_trace_2.json", "execution_trace_3.json"], "execution_trace_3.json"),
        ("worker3.json", 3, ["rank13_et.json", "rank3_et_77.json"], "rank3_et_77.json"),
        ("trace_1074.json", None, ["et_1074.json", "et_1075.json"], "et_1074.json"),
        ("trace.json", 5, ["et.json"], "et.json"),
        ("trace.json", None, ["et_9.json"], "et_9.json"),
        ("worker3.json", 3, ["et_2.json"], "there is no execution trace of rank 3 next to .*: et_2.json"),
        (
            "worker3.json",
            3,
            ["a3.json", "b3.json"],
            "there are 2 execution traces of rank 3 next to .*: a3.json, b3.json",
        ),
        (
            "trace.json",
            None,
            ["et_1.json", "et_2.json"],
            "there is no execution trace next to .*: et_1.json, et_2.json",
        ),
        ("trace.json", 0, [], "no execution trace of rank 0 .*: none"),
    ],
)
def test_the_one_of_the_same_rank(tmp_path: Path, name: str, rank: int | None, files: list[str], expected: str) -> None:
    asked = trace(tmp_path / name)
    trace(tmp_path / "worker4.json")
    (tmp_path / "notes3.json").write_text('{"a": 1}')
    for file in files:
        nodes(tmp_path / file)
    if expected in files:
        assert execution_trace_beside(asked, rank) == tmp_path / expected
    else:
        with pytest.raises(NoExecutionTrace, match=expected):
            execution_trace_beside(asked, rank)


def run(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["critical-path", *map(str, words)])
    return done.exit_code, done.stdout, " ".join(done.stderr.split())


@pytest.mark.slow
def test_the_command_by_data(tmp_path: Path) -> None:
    asked, saved = trace(tmp_path / "rank0.json"), tmp_path / "path.zip"
    nodes(tmp_path / "et.json")
    code, out, _ = run(asked, "--json")
    serial = json.loads(out)
    assert (code, serial["length_us"], serial["dependencies"]["mode"], serial["dependencies"]["share"]) == (
        0,
        80,
        "serial",
        None,
    )
    code, out, _ = run(asked, "--json", "--dependencies", "data", "--save", saved)
    data = json.loads(out)
    said = {
        "mode": "data", "method": "record_function_id", "joined": 8, "operators": 8, "share": 1.0, "execution_trace": "et.json"
    }  # fmt: skip
    assert (code, data["length_us"], data["dependencies"]) == (0, 40, said)
    assert json.loads(run(saved, "--json")[1])["dependencies"] == said
    text = " ".join(run(asked, "--dependencies", "data")[1].split())
    assert "8 of 8 operators (100.0 %) joined to et.json" in text and "The path does not cover the window" in text


def test_a_part_that_is_joined_is_said_to_be_a_part(tmp_path: Path) -> None:
    asked = trace(tmp_path / "rank0.json")
    part = nodes(tmp_path / "elsewhere.txt", NAMES[:6])
    code, out, _ = run(asked, "--json", "--dependencies", "data", "--execution-trace", part)
    answer = json.loads(out)
    assert (code, answer["dependencies"]["joined"], answer["dependencies"]["share"]) == (0, 6, 0.75)
    assert answer["length_us"] == 30 + 20  # g and h were not recorded


def test_errors_name_the_way_out(tmp_path: Path) -> None:
    asked = trace(tmp_path / "rank0.json")
    other = nodes(tmp_path / "other.txt", "uvwxyz")
    for words, message in (
        (
            ["--dependencies", "data"],
            "there is no execution trace of rank 0 next to .* Give it: --execution-trace FILE",
        ),
        (
            ["--dependencies", "data", "--execution-trace", other],
            "none of 8 operators is in .*other.txt: check that both files are",
        ),
        (["--dependencies", "data", "--execution-trace", asked], "a profiler trace, not an execution trace"),
        (["--dependencies", "data", "--execution-trace", tmp_path / "no.json"], "no such file"),
        (["--execution-trace", other], "needs --dependencies data"),
        (["--dependencies", "tea"], "There are: serial, data"),
        (["--set", "dependencies=data"], "need an execution trace, and none was read"),
    ):
        code, out, err = run(asked, *words)
        assert (code, out) == (1, "")
        assert re.search(message, err), err


@pytest.mark.parametrize("rank", range(8))
def test_dlrm_has_one_a_rank(shared: Path, rank: int) -> None:
    folder = shared / "traces" / "ranks" / "dlrm_8"
    assert execution_trace_beside(folder / f"worker{rank}.json.gz", rank) == folder / f"execution_trace_{rank}.json.gz"


def test_a_trace_in_the_lake_is_looked_for_where_it_was(tmp_path: Path) -> None:
    folder, lake = tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    trace(folder / "rank0.json")
    trace(folder / "rank1.json", NAMES[::-1])
    runner = CliRunner()
    done = runner.invoke(app, ["ingest", str(folder), "--lake", str(lake), "--json"])
    ids = {Path(row["path"]).name: row["trace_id"] for row in json.loads(done.stdout)}
    nodes(folder / "et_1.json", NAMES[::-1])
    code, out, _ = run(ids["rank1.json"], "--lake", lake, "--json", "--dependencies", "data")
    assert (code, json.loads(out)["length_us"]) == (0, 40)
    shutil.rmtree(folder)
    code, _, err = run(ids["rank1.json"], "--lake", lake, "--json", "--dependencies", "data")
    assert code == 1 and "no longer exists" in err
