"""The README and docs/commands.md: every line runs, and queries print the shown tables.

The lines run on synthetic files with the names in the pages.

The README's answers are those of the demo's traces. `python -m tests.faces.cli.test_readme` updates them.
"""

from __future__ import annotations

import contextlib
import glob
import gzip
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pipelines.faces.cli import console as cli
from pipelines.faces.cli.app import app
from pipelines.faces.cli.lake.demo import synthetic
from pipelines.synthetic import CaptureSpec, write_capture
from tests.fleet.op_job.make import Shape, write_job
from tests.pages import WIDTH
from tests.readers.execution.make import Op, write
from tests.readers.memory_snapshots import make as snapshots

README = Path(__file__).parents[3] / "README.md"
PAGES = (README, README.parent / "docs" / "commands.md")
SHOWN = re.compile(
    r"^```text\n\$ (tracelake .*)\n((?:(?!```).*\n)*)```$", re.M
)  # a command and the first lines of its answer
NOT_RUN = {
    "make demo": "runs Dagster; tests/dagster does",
    "make test": "these are its tests",
    "tracelake demo": "what make demo runs",
    "tracelake ui": "a server that does not end",
    "tracelake serve": "another; tests/faces/serve runs it",
    "export": "tested here: the lake's folder is in TRACELAKE_LAKE",
}
# Placeholders in a line, with their values here. `{…}` are the files and ids of this test.
STANDS_FOR = {
    "/fleet/job42/": "{fleet}",
    "/data/lake": "{lake}",
    "/tmp/nccl_trace_rank_*": "{dumps}/nccl_trace_rank_*",
    "/tmp": "{out}",
    '"SELECT …"': '"SELECT rank FROM traces"',
    "table|csv|json|parquet": "csv",
    "3f2a 91bc": "{captures}",
    "20261121T111955-fused_sparse_dist-dataflow": "{run}",
    "flame 20261121T0530": "flame {stacks}",
    "python train.py": "{python} -c pass",
    "python -m": "{python} -m",
    "--iterations 100": "--iterations 10 --device simulated",
}


def blocks() -> Iterator[str]:
    """Yield the pages' blocks of commands, without blocks in another language."""
    for page in PAGES:
        for block in re.finditer(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.DOTALL):
            if not block[1]:
                yield block[2]


def commands() -> list[str]:
    """Return each line that a reader may type, without the comment after a #."""
    lines = dict.fromkeys(line for block in blocks() if "$ " not in block for line in block.splitlines())
    return [shlex.join(shlex.split(line, comments=True)) if "#" in line else line for line in lines if line.strip()]


def queries() -> list[tuple[str, str]]:
    """Return each query with the table that the page shows."""
    pairs = []
    for block in blocks():
        for part in block.split("$ ")[1:]:
            command, frame, table = part.partition("┏")
            pairs.append((shlex.split(command)[2], frame + table.rstrip()))
    return pairs


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all files that the pages name."""
    return make_world(tmp_path_factory.mktemp("readme"))


def make_world(folder: Path) -> Path:
    write_capture(CaptureSpec(ranks=4, steps=3, straggler=2, seed=7), folder / "fleet")  # as `make demo` does
    for name, seed in (("rank0", 1), ("before", 2), ("after", 3)):
        (path,) = write_capture(CaptureSpec(ranks=1, steps=3, seed=seed), folder / "one").paths
        text = gzip.decompress(path.read_bytes())
        (folder / f"{name}.json.gz").write_bytes(gzip.compress(text))
        if name == "rank0":
            operators = [e for e in json.loads(text)["traceEvents"] if e.get("cat") == "cpu_op"]
            ops = [Op(e["name"], [i], [i + 1], rf_id=e["args"]["External id"]) for i, e in enumerate(operators, 1)]
            write(folder / "execution_trace_0.json", ops)
    write_job(folder, Shape(2, 2, (0, 1), 2), lambda key: 0.5 if key[2] == 1 else 0.25, "trace-ST")
    snapshots.write(folder / "rank3_snapshot.pickle", snapshots.snapshot(snapshots.training()))
    for rank in range(2):
        write_dump(folder / "dumps" / f"nccl_trace_rank_{rank}", n_calls=2 - rank)
    synthetic(folder / "demo")
    (folder / "out").mkdir()
    (folder / "train.py").write_text("import time\nfor _ in range(50):\n    time.sleep(0.01)\n")
    return folder


def write_dump(path: Path, n_calls: int, state: str = "scheduled") -> None:
    path.parent.mkdir(exist_ok=True)
    call = {"pg_id": 0, "process_group": ["0", "default_pg"], "profiling_name": "nccl:all_reduce", "p2p_seq_id": 0}
    call |= {side: [[4]] for side in ("input_sizes", "output_sizes")} | {"is_p2p": False, "timeout_ms": 600_000}
    call |= {side: ["Float"] for side in ("input_dtypes", "output_dtypes")}
    call |= {"retired": state == "completed", "state": state}
    numbers = [{"record_id": i, "collective_seq_id": i + 1, "op_id": i + 1} for i in range(n_calls)]
    times = {"time_created_ns": 1, "time_discovered_started_ns": 0, "time_discovered_completed_ns": 0}
    group = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    content = {"version": "2.10", "pg_config": group, "entries": [{**call, **number, **times} for number in numbers]}
    path.write_text(json.dumps(content))


def asked(query: str) -> str:
    """Return the first column of a query's rows, separated by blanks."""
    said = CliRunner().invoke(app, ["sql", query, "--format", "json"])
    return " ".join(str(next(iter(row.values()))) for row in json.loads(said.stdout))


def run(line: str, world: Path) -> Result | subprocess.CompletedProcess[str]:
    """Run a line of a page with the names of this test."""
    for name, here in STANDS_FOR.items():
        line = line.replace(name, here)
    names = {name: str(world / name) for name in ("fleet", "lake", "dumps", "out")} | {"python": sys.executable}
    if "{captures}" in line:
        names["captures"] = asked("SELECT capture_id FROM captures ORDER BY n_ranks DESC LIMIT 2")
    if "{run}" in line:
        names["run"] = asked("SELECT run_id FROM schedule_runs WHERE engine = 'dataflow' LIMIT 1")
    if "{stacks}" in line:
        names["stacks"] = asked("SELECT recording_id FROM recordings WHERE kind = 'stacks'")
    words = shlex.split(re.sub(r"\{(\w+)\}", lambda match: names[match[1]], line))
    words = [path for word in words for path in (sorted(glob.glob(word)) if "_*" in word else [word])]
    if words[0] != "tracelake":
        return subprocess.run(words, capture_output=True, text=True, check=False, cwd=world)
    return CliRunner().invoke(app, words[1:])


@pytest.mark.slow
def test_every_line_runs_and_every_query_prints_what_is_shown(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world)
    monkeypatch.setenv("TRACELAKE_LAKE", str(world / "lake"))
    monkeypatch.setattr(cli.out, "_width", WIDTH)
    monkeypatch.setenv("PYTHONPATH", str(README.parent))
    assert CliRunner().invoke(app, ["ingest", "fleet"]).exit_code == 0
    shown = queries()
    assert len(shown) == 4
    for query, table in shown[:3]:  # of the demo's capture; the fourth is about a machine's measurements
        said = CliRunner().invoke(app, ["sql", query])
        assert [row.rstrip() for row in said.stdout.splitlines()] == table.splitlines(), query
    lines = [line for line in commands() if not line.startswith(tuple(NOT_RUN))]
    assert len(lines) >= 30
    for line in lines:
        if " 3f2a " in line:  # another capture, to compare with
            CliRunner().invoke(app, ["ingest", "before.json.gz", "--job", "nightly"])
        done = run(line, world)
        status, err = (done.exit_code, done.output) if isinstance(done, Result) else (done.returncode, done.stderr)
        assert status == 0, f"{line}\n{err}"
    said = CliRunner().invoke(app, ["sql", shown[3][0], "--format", "csv"])
    heading = "engine,delay_ms,period_ms,speedup,ideal_ms,efficiency"
    assert said.stdout.splitlines()[0].replace('"', "") == heading
    assert [name.strip() for name in shown[3][1].splitlines()[1].strip("┃").split("┃")] == heading.split(",")
    for name in ("edges.parquet", "rank0.parquet", "report.html", "heat.svg", "schedule.svg"):
        assert (world / name).stat().st_size > 0


def answers(folder: Path, text: str) -> Iterator[tuple[re.Match[str], list[str]]]:
    """Yield each command that a page shows with its answer, and the lines that it prints with the demo's traces."""
    for block in SHOWN.finditer(text):
        with contextlib.chdir(folder):
            said = CliRunner().invoke(app, shlex.split(block[1])[1:])
        assert said.exit_code == 0, said.output
        yield block, [line.rstrip() for line in said.stdout.splitlines()]


def pieces(shown: str) -> list[list[str]]:
    """Split a shown answer into its parts. A line `…` marks omitted lines between and after them."""
    return [part.splitlines() for part in re.split(r"^…\n", shown, flags=re.M) if part]


def printed(shown: str, said: list[str]) -> list[list[str]]:
    """Return the printed lines that correspond to the parts of a shown answer.

    The first part starts at the first printed line, each other part at its own first line.
    """
    parts = pieces(shown)
    starts = [0, *(said.index(part[0]) for part in parts[1:])]
    return [said[start : start + len(part)] for start, part in zip(starts, parts, strict=True)]


@pytest.mark.slow  # 9 s
def test_answers_in_the_readme_are_what_the_commands_print(tmp_path: Path) -> None:
    synthetic(tmp_path / "demo")
    text = README.read_text(encoding="utf-8")
    kinds = []
    for block, said in answers(tmp_path, text):
        assert block[2].endswith("…\n") and pieces(block[2]) == printed(block[2], said), block[1]
        kinds.append(block[1].split()[2])
    assert kinds == ["demo/capture/rank0.json.gz", "demo/serving/server.json.gz", "demo/capture"]


@pytest.mark.slow  # creates, publishes and queries a lake with Ibis; the notebooks' own tests cover most of it
def test_the_notebook_sample_works_after_the_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ibis", reason="the extra notebook is not installed")
    synthetic(tmp_path / "demo")
    (sample,) = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.M | re.DOTALL)
    names: dict[str, Any] = {}
    with contextlib.chdir(tmp_path):
        exec(sample, names)
        names["analyzer"].close()
    assert "Of 2.64 ms the GPU computes" in capsys.readouterr().out
    assert "'.[dagster,notebook]'" in (README.parent / "Makefile").read_text()  # `make demo` installs these extras


def test_the_second_runs_are_those_of_the_page_about_them() -> None:
    page = (README.parent / "docs" / "what-if.md").read_text(encoding="utf-8")
    recorded = page[page.index("<!-- pairs -->") :]
    text = README.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+) \| `(\w+)`: .* \| (\S+) \| (\S+) \|$", text, re.M)
    assert len(rows) >= 5
    for program, fix, predicted, true in rows:
        recorded_true = rf"(` \| {re.escape(predicted)}|`, without the profiler \| {re.escape(predicted)} \| \S+) \| {re.escape(true)} \|"
        assert re.search(rf"^\| {program} \| .* \| `fix {fix}{recorded_true}", recorded, re.M), program
    (middle, most) = re.findall(r"median (\S+) points off, nine of ten within (\d+\.\d)", text)[0]
    assert f"median {middle} points off, nine of ten within {most}" in recorded


def test_it_is_read_in_five_minutes_and_says_what_its_words_mean() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    for word in ("trace", "capture", "step", "critical path", "slack", "drag", "lake", "model", "profile"):
        assert f"**{word}**" in text.lower(), word
    for word in ("prefill", "decode", "token", "training", "straggler"):
        assert word in text, word


def test_it_opens_with_the_answer_the_fixes_and_their_proof() -> None:
    text = README.read_text(encoding="utf-8")
    begins = [
        text.index(f"\n{line}") for line in ("Of 2.64 ms", "What would help", "| program | fix |", "## Two commands")
    ]
    assert begins == sorted(begins)


def test_what_stands_for_something_stands_there() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for name in (*STANDS_FOR, *NOT_RUN):
        assert name in text, f"{name!r} is on neither page: remove it here"


def rewrite() -> None:
    """Put the printed lines into the README, as many as it shows now (of a new block: ten)."""
    text = README.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        synthetic(Path(folder) / "demo")
        for block, said in answers(Path(folder), text):
            parts = printed(block[2], said) if block[2] else [said[:10]]
            shown = "\n".join(["```text", f"$ {block[1]}", *(line for part in parts for line in [*part, "…"]), "```"])
            text = text.replace(block[0], shown)
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    rewrite()
