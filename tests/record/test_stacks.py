"""Sampled stacks: programs that spend known times in known functions, the timers, the lake, and the flame graph."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.faces.report.pictures.flame_graph import Seen, flame, folded
from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import publish
from pipelines.readers.ingest import ingest
from pipelines.record.stacks import StackSampler, main
from tests.effort import examples, first_of

PROGRAM = """
import sys, threading, time

def spins(seconds):
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        sum(range(100))

def waits(seconds):
    time.sleep(seconds)

def both():
    spins(0.3)
    waits(0.3)

nap = threading.Thread(target=waits, args=(0.6,), name="napper")
nap.start()
both()
nap.join()
print(sys.argv[1:], __name__)
sys.exit(3)
"""


def rows(folder: Path) -> list[dict]:
    return [row for path in sorted(folder.rglob("stack_samples-*")) for row in pq.read_table(path).to_pylist()]


def spin(seconds: float) -> None:
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        sum(range(100))


def innermost(samples: list[dict], thread: str = "MainThread") -> dict[str, int]:
    """Count a thread's samples by its innermost function."""
    counts: dict[str, int] = {}
    for row in samples:
        if row["thread"] == thread:
            name = json.loads(row["frames"])[-1].partition(" ")[0]
            counts[name] = counts.get(name, 0) + row["n_samples"]
    return counts


@pytest.mark.slow
def test_a_program_is_where_it_is(tmp_path: Path) -> None:
    (script := tmp_path / "program.py").write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "pipelines.record.stacks",
        "--hz",
        "200",
        "--out",
        str(tmp_path / "in"),
        "--rank",
        "4",
    ]
    done = subprocess.run([*command, "--", str(script), "--epochs", "2"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "['--epochs', '2'] __main__\n"), done.stderr
    assert re.search(r"\d+ samples in [\d.]+ s.*% of a core\nwritten: ", done.stderr)
    samples = rows(tmp_path / "in")
    (recording,) = pq.read_table(next(tmp_path.rglob("recordings.parquet"))).to_pylist()
    assert (recording["kind"], recording["rank"], recording["source"]) == ("stacks", 4, "thread")
    assert recording["interval_ns"] == 5_000_000
    main_thread = innermost(samples)
    # Each should have 60 samples or more. A busy machine skips some, and lengthens the spinning.
    assert main_thread["spins"] >= 25 and main_thread["waits"] >= 25 and innermost(samples, "napper")["waits"] >= 25
    assert sum(main_thread.values()) == pytest.approx(recording["n_samples"], rel=0.05)
    spun = [row for row in samples if json.loads(row["frames"])[-1].startswith("spins")]
    for row in spun:
        frames = json.loads(row["frames"])
        assert [frame.partition(" ")[0] for frame in frames] == ["<module>", "both", "spins"]  # no frames of the runner
        assert all(str(script) in frame for frame in frames)
    slept = [row for row in samples if json.loads(row["frames"])[-1].startswith("waits")]
    used = sum(row["cpu_ns"] or 0 for row in spun)
    assert used > 0.2e9 > 10 * sum(row["cpu_ns"] or 0 for row in slept)
    assert {row["thread"] for row in slept} == {"MainThread", "napper"}
    assert all(row["start_ns"] <= row["end_ns"] for row in samples)


def test_a_module_runs_as_with_python_m(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(sys, "argv", ["x"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit) as ended:
        main(["--out", str(tmp_path), "--", "-m", "json.tool", "--help"])
    assert ended.value.code == 0 and "usage:" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path)])
    assert "give a script" in capsys.readouterr().err


def test_a_full_disk_changes_no_exit_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.record.folder.pq.write_table", pq.write_table)  # the program replaces it
    monkeypatch.setattr(sys, "argv", ["x"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    (script := tmp_path / "program.py").write_text(
        "import pipelines.record.folder as folder\n"
        "def full(*_, **__): raise OSError(28, 'No space left on device')\n"
        "folder.pq.write_table = full\n"
        "raise SystemExit(3)\n"
    )
    with pytest.raises(SystemExit) as ended, pytest.warns(RuntimeWarning, match="stacks cannot be written"):
        main(["--out", str(tmp_path / "in"), "--", str(script)])
    assert ended.value.code == 3


@pytest.mark.parametrize("timer", first_of(["real", "prof", "virtual"], 1))
def test_timers_see_the_main_thread(tmp_path: Path, timer: str) -> None:
    with StackSampler(tmp_path, hz=200, timer=timer) as sampler:
        # On a busy machine, few of the kernel's ticks occur while this process works.
        spin(0.25 if timer == "real" else 1.5)
        time.sleep(0.25)
        cost = sampler.stop()
    samples = rows(tmp_path)
    names = {frame.partition(" ")[0] for row in samples for frame in json.loads(row["frames"])}
    assert "spin" in names and {row["thread"] for row in samples} == {"MainThread"}
    slept = sum(row["n_samples"] for row in samples if not json.loads(row["frames"])[-1].startswith("spin"))
    # The kernel's ticks of CPU time are 1 to 10 ms apart, and none occur during sleep.
    assert slept >= 20 if timer == "real" else slept <= 3
    assert cost.n_samples == sum(row["n_samples"] for row in samples) >= 15
    number = {"real": signal.SIGALRM, "prof": signal.SIGPROF, "virtual": signal.SIGVTALRM}[timer]
    assert signal.getsignal(number) is signal.SIG_DFL and signal.setitimer(signal.ITIMER_REAL, 0) == (0.0, 0.0)


def test_a_timer_that_cannot_be_had_is_refused(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGPROF, lambda *_: None)
    try:
        with pytest.raises(ValueError, match="handles SIGPROF itself"):
            StackSampler(tmp_path, timer="prof")
    finally:
        signal.signal(signal.SIGPROF, before)
    said: list[str] = []

    def elsewhere() -> None:
        try:
            StackSampler(tmp_path, timer="real")
        except ValueError as error:
            said.append(str(error))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "only the main thread" in said[0]
    with pytest.raises(ValueError, match="unknown timer 'x'"):
        StackSampler(tmp_path, timer="x")
    with pytest.raises(ValueError, match="0 samples per second"):
        StackSampler(tmp_path, hz=0)
    assert list(tmp_path.iterdir()) == []


def test_in_the_lake_a_stack_is_one_row_and_a_picture(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    sampler = StackSampler(tmp_path / "in", hz=500, run_id="r1", flush_seconds=0.02)
    spin(0.3)  # long enough for several parts
    cost = sampler.stop()
    assert len(list(tmp_path.rglob("stack_samples-*"))) > 1
    ingest([tmp_path / "in"], lake)
    with duckdb.connect(str(publish(lake)), read_only=True) as con:
        keys = "SELECT count(*), count(DISTINCT (tid, thread, frames)) FROM stack_samples"
        ((n, distinct),) = con.execute(keys).fetchall()
        assert n == distinct
        query = (
            "SELECT sum(n_samples), max(frames ->> -1 LIKE 'spin (%') FROM stack_samples WHERE thread = 'MainThread'"
        )
        ((samples, is_there),) = con.execute(query).fetchall()
        assert is_there and samples == pytest.approx(cost.n_samples, abs=2)
        assert con.execute("SELECT n_samples, state FROM recordings").fetchall() == [(cost.n_samples, "complete")]
    runner = CliRunner()
    svg, text = tmp_path / "f.svg", tmp_path / "f.txt"
    command = ["flame", "r1", "--lake", str(lake.root), "--out", str(svg), "--folded", str(text)]
    said = runner.invoke(app, command)
    assert said.exit_code == 0, said.output
    titles = [element.text or "" for element in ET.parse(svg).iter() if element.tag.endswith("title")]
    assert any(title.startswith(f"spin ({__file__}): ") for title in titles)
    assert ";spin (" in text.read_text()
    assert runner.invoke(app, [*command, "--cpu", "--thread", "MainThread"]).exit_code == 0
    said = runner.invoke(app, ["flame", "r2", "--lake", str(lake.root)])
    assert said.exit_code == 1 and "matches 0 recordings of stacks" in said.output and cost.folder.name in said.output
    said = runner.invoke(app, [*command, "--thread", "nobody"])
    assert said.exit_code == 1 and "no stack has any samples" in said.output


stacks = st.lists(
    st.builds(
        Seen,
        st.sampled_from(["main", "other", None]),
        st.lists(st.sampled_from(["a (f.py:1)", "a (f.py:2)", "b (f.py:9)", "<c&> (g.py:3)"]), min_size=1, max_size=4),
        st.integers(0, 40),
    ),
    max_size=12,
)


@settings(max_examples=examples(60), deadline=None)
@given(stacks)
def test_a_box_is_as_wide_as_its_samples_and_lies_in_its_caller(seen: list[Seen]) -> None:
    total = sum(stack.weight for stack in seen)
    if not total:
        with pytest.raises(ValueError, match="no stack has any samples"):
            flame("t", seen, "samples")
        return
    boxes = [
        (float(e.get("x", 0)), float(e.get("width", 0)), float(e.get("y", 0)), e[0].text or "")
        for e in ET.fromstring(flame("t & t", seen, "samples")).iter()
        if e.tag.endswith("rect") and len(e)
    ]
    for x, width, y, says in boxes:
        of, own = (int(n.replace(",", "")) for n in re.findall(r": ([\d,]+) samples.*; ([\d,]+) of them", says)[0])
        assert width == pytest.approx(1184 * of / total, abs=0.02) and own <= of
        outer = [b for b in boxes if b[2] == y - 24 and b[0] <= x + 0.02 and x + width <= b[0] + b[1] + 0.03]
        assert len(outer) >= 1 or says.startswith("all: ")
    threads: dict[str, int] = {}
    for stack in seen:
        name = stack.thread or "(of C code)"
        threads[name] = threads.get(name, 0) + stack.weight
    drawn = {says.partition(" samples")[0] for *_, says in boxes if says.startswith("thread ")}
    assert drawn == {f"thread {name}: {n:,}" for name, n in threads.items() if n}
    lines = [line.rpartition(" ") for line in folded(seen).splitlines()]
    assert sum(int(n) for *_, n in lines) == total and len({stack for stack, *_ in lines}) == len(lines)


@pytest.mark.parametrize(("timer", "is_known"), [("thread", True), ("real", False)])
def test_the_number_of_late_samples_of_a_timer_is_unknown(tmp_path: Path, timer: str, is_known: bool) -> None:
    """The system drops signals that arrive while one is pending, so they cannot be counted."""
    folder = StackSampler(tmp_path, hz=1, timer=timer).stop().folder
    (row,) = pq.read_table(folder / "recordings.parquet").to_pylist()
    assert (row["n_late"] is not None) == is_known


def test_a_thread_with_the_ident_of_an_ended_one_has_its_own_samples(tmp_path: Path) -> None:
    with StackSampler(tmp_path, hz=50):
        for number in range(4):
            worker = threading.Thread(target=time.sleep, args=(0.15,), name=f"worker-{number}")
            worker.start()
            worker.join()
    names = {row["thread"] for row in rows(tmp_path)}
    assert {f"worker-{number}" for number in range(4)} <= names


def test_a_thread_with_the_tid_of_an_ended_one_has_no_negative_time() -> None:
    sampler, tid = object.__new__(StackSampler), threading.get_native_id()
    sampler._cpu = {tid: 10**18}  # CPU time of the ended thread
    assert sampler._used(tid) is None
    assert (sampler._used(tid) or 0) >= 0


def test_stopping_again_gives_the_same_cost_and_leaves_the_program_s_timer(tmp_path: Path) -> None:
    with StackSampler(tmp_path, hz=50, timer="real") as sampler:
        spin(0.1)
        first = sampler.stop()
        signal.signal(signal.SIGALRM, handler := lambda *_: None)
    assert sampler.stop() is first and signal.getsignal(signal.SIGALRM) is handler
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
