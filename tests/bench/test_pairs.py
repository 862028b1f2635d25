"""The program metadata of bench/pairs, and the files that its recorder writes."""

from __future__ import annotations

import ast
import csv
import gzip
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from bench.pairs import measure, record
from bench.pairs.context import Context
from bench.pairs.machine import why_not
from bench.pairs.pair import VARIANTS, Place, measure_pair
from bench.pairs.process import Helper, in_a_process
from bench.pairs.program import FIXES, NEEDS, PROGRAMS, Program, Step, load_programs, program
from bench.pairs.sizes import SIZES
from bench.pairs.truth import Truth, describe

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "bench/pairs/recorded/h100"
ONE_PROCESS = [name for name, known in load_programs().items() if not {"ranks", "compile"} & {*known.needs}]
MACHINE: dict[str, Any] = {
    "device": "cpu",
    "name": "cpu",
    "size": "small",
    "no_compile": "there is no C++ compiler",
    "backend": None,
    "ranks": None,
    "sum_over_ranks_s": None,
    "ranks_refused": {"nccl": "a reason"},
}


def test_there_are_more_than_thirty_programs() -> None:
    assert len(PROGRAMS) > 30


def test_causes_are_those_of_the_project() -> None:
    with (ROOT / "sql/rules/causes/cause_kinds.csv").open(encoding="utf-8") as file:
        known = {row["cause"] for row in csv.DictReader(line for line in file if not line.startswith("#"))}
    for name, described in PROGRAMS.items():
        assert described.causes, name
        assert {*described.causes, *described.forbidden} <= known, name
        assert not {*described.causes} & {*described.forbidden}, name


def test_fixes_needs_and_what_ifs_are_well_formed() -> None:
    for name, described in PROGRAMS.items():
        assert described.fix in (*FIXES, None) and {*described.needs} <= {*NEEDS}, name
        assert not described.whatif or described.whatif[0] in ("--remove", "--scale"), name
    assert {described.fix for described in PROGRAMS.values()} >= {*FIXES}


def test_targets_whose_ratio_is_measured_are_of_known_kinds() -> None:
    kinds = {"kernel", "op", "stream", "class"}
    for name, described in PROGRAMS.items():
        for target in described.ratio:
            kind, colon, what = target.partition(":")
            assert what and kind in kinds if colon else "*" not in target, (name, target)


def test_programs_import_torch_and_the_standard_library_alone() -> None:
    imported = set()
    for path in (ROOT / "bench" / "pairs").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, path
                imported.add((node.module or "").partition(".")[0])
    assert imported - {*sys.stdlib_module_names} == {"torch", "bench"}


def test_what_is_recorded_is_described_as_the_programs_are(tmp_path: Path) -> None:
    shutil.copy(RECORDED / "truth.json", tmp_path)
    describe(tmp_path)
    before, after = (json.loads((folder / "truth.json").read_text()) for folder in (RECORDED, tmp_path))
    assert before == after, f"python -m bench.pairs.record {RECORDED} --describe"


def test_a_second_program_of_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="products"):
        program(change="", causes=())(PROGRAMS["products"].make)


def trace_of(path: Path) -> dict[str, Any]:
    with gzip.open(path) as file:
        return json.load(file)


def names_in(archive: Path) -> list[str]:
    with tarfile.open(archive) as packed:
        return packed.getnames()


def check_variant(measurement: dict[str, Any], described: Program, folder: Path) -> None:
    assert measurement["plain_step_s"] > 0 and measurement["traced_step_s"] == measurement["traced_all_s"][-1] > 0
    for name in measurement["files"]:
        events = trace_of(folder / name)["traceEvents"]
        steps = [event["name"] for event in events if str(event.get("name")).startswith("ProfilerStep#")]
        assert steps == [f"ProfilerStep#{i}" for i in range(described.steps)]
        assert [event["name"] for event in events].count("closing") == 1


@pytest.mark.slow  # the tests below measure two programs
@pytest.mark.parametrize("name", sorted(ONE_PROCESS, key="products".__ne__))
def test_a_program_is_measured_and_traced(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described = PROGRAMS[name]
    reason = why_not(described, MACHINE)
    if reason:
        pytest.skip(reason)
    rounds = 2 if name == "products" else 1
    monkeypatch.setattr(measure, "ROUNDS", (rounds, rounds))
    monkeypatch.setattr(measure.gc, "collect", lambda: 0)  # see the next test
    measurements = measure_pair(name, Place("cpu", "small", tmp_path, tmp_path))
    assert [*measurements] == ["A", "B"]
    for variant in VARIANTS:
        assert len(measurements[variant]["plain_all_s"]) == (rounds if described.repeatable else 1)
        check_variant(measurements[variant], described, tmp_path)


def test_the_change_is_in_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "ROUNDS", (1, 1))
    monkeypatch.setattr(measure.gc, "collect", lambda: 0)  # it would scan all objects of the tests and of torch
    measurements = measure_pair("small_operators", Place("cpu", "small", tmp_path, tmp_path))
    counts = {
        variant: sum(
            e.get("name") == "aten::silu" for e in trace_of(tmp_path / measurements[variant]["files"][0])["traceEvents"]
        )
        for variant in VARIANTS
    }
    assert counts == {"A": PROGRAMS["small_operators"].steps * SIZES["small"].chain, "B": 0}


def returns() -> dict[str, Any]:
    return {"seconds": 1}


def fails() -> dict[str, Any]:
    raise ValueError("no such thing")


def hangs() -> dict[str, Any]:
    subprocess.Popen(["sleep", "60"])
    time.sleep(60)
    return {}


def crashes() -> dict[str, Any]:
    os.write(1, b"the last words")  # pytest replaces sys.stdout
    os._exit(3)


def test_a_process_that_fails_hangs_or_crashes_is_an_error_with_its_reason(tmp_path: Path) -> None:
    assert in_a_process(30, tmp_path / "returns", returns) == {"seconds": 1}
    assert "ValueError: no such thing" in in_a_process(30, tmp_path / "fails", fails)["error"]
    begun = time.monotonic()
    assert in_a_process(1, tmp_path / "hangs", hangs)["error"] == "ended after its limit of 1 s"
    assert time.monotonic() - begun < 50  # the child processes have also ended
    crashed = in_a_process(30, tmp_path / "crashes", crashes)
    assert crashed["error"] == "the process ended with exit status 3" and "the last words" in crashed["output"]


def test_a_helper_that_is_still_starting_can_be_ended(tmp_path: Path) -> None:
    helper, (ours, _) = Helper(tmp_path / "log"), multiprocessing.Pipe()
    process = multiprocessing.Process(target=time.sleep, args=(60,))  # it leads no group
    process.start()
    helper._running = process, ours
    helper.end()
    assert process.exitcode == -signal.SIGKILL


def process_id() -> dict[str, Any]:
    return {"pid": os.getpid()}


def test_a_helper_stays_until_something_fails(tmp_path: Path) -> None:
    with Helper(tmp_path / "log") as helper:
        first = helper.call(30, process_id)
        assert helper.call(30, process_id) == first
        assert "no such thing" in helper.call(30, fails)["error"]
        second = helper.call(30, process_id)
        assert second != first
        os.kill(second["pid"], signal.SIGKILL)
        assert helper._running
        helper._running[0].join(20)
        assert helper.call(30, process_id)["pid"] not in (first["pid"], second["pid"])


def broken(c: Context) -> Step:
    raise ValueError("no such thing")


def test_a_program_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(PROGRAMS, "broken", replace(PROGRAMS["products"], name="broken", make=broken))
    monkeypatch.setattr(record, "describe_machine", lambda *_: {**MACHINE})
    monkeypatch.setattr(measure.gc, "collect", lambda: 0)
    assert record.main([str(tmp_path), "--only", "broken", "products"]) == 1
    programs = json.loads((tmp_path / "truth.json").read_text())["programs"]
    assert "ValueError: no such thing" in programs["broken"]["error"]
    check_variant(programs["products"]["A"], PROGRAMS["products"], tmp_path)
    assert "2 programs, 1 failed" in capsys.readouterr().out


def test_the_list_has_every_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert record.main(["--list"]) == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == [*PROGRAMS]


def started_for(folder: Path) -> list[str]:
    """Return the command lines of running processes that contain the folder's path."""
    commands = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            commands.append(file.read_text().replace("\0", " "))
    return [command for command in commands if str(folder) in command]


@pytest.mark.slow  # the test below checks the files that a resumed run keeps
def test_a_run_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    names = ["products", "elementwise", "attention", "frozen_layers"]
    command = [sys.executable, "-m", "bench.pairs.record", str(tmp_path), "--device", "cpu", "--only", *names]
    killed = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert killed.stdout
    for line in killed.stdout:
        if line.startswith("elementwise"):
            killed.kill()
    killed.wait()
    ended = time.monotonic() + 60  # the recorder first ends the process that it measures
    while (alive := started_for(tmp_path)) and time.monotonic() < ended:
        time.sleep(0.1)
    assert alive == []
    left = json.loads((tmp_path / "truth.json").read_text())["programs"]
    assert [*left][:2] == names[:2] and "frozen_layers" not in left
    with (tmp_path / "pairs.tar").open("ab") as archive:
        archive.write(b"torn")
    again = subprocess.run([*command, "--resume"], cwd=ROOT, capture_output=True, text=True)
    assert again.returncode == 0 and "products: recorded before" in again.stdout, again.stderr
    programs = json.loads((tmp_path / "truth.json").read_text())["programs"]
    assert [*programs] == names and all(programs[name] == left[name] for name in left)
    assert sorted(names_in(tmp_path / "pairs.tar")) == sorted(f"{name}.{v}.json.gz" for name in names for v in VARIANTS)


def test_a_resumed_run_keeps_what_was_recorded_and_nothing_else(tmp_path: Path) -> None:
    truth = Truth(tmp_path, MACHINE, packed=True, limit_bytes=1 << 20)
    files = [tmp_path / f"products.{variant}.json.gz" for variant in VARIANTS]
    for file in files:
        file.write_bytes(b"x" * 8000)
    truth.add(PROGRAMS["products"], {v: {"files": [file.name]} for v, file in zip(VARIANTS, files, strict=True)})
    truth.add(PROGRAMS["attention"], {"error": "a reason"})
    truth.add(PROGRAMS["elementwise"], {"skipped": "the time was over"})
    unfinished = tmp_path / "elementwise.A.json.gz"
    unfinished.write_bytes(b"x")
    truth.pack([unfinished])
    resumed = Truth(tmp_path, MACHINE, packed=True, limit_bytes=1 << 20, resume=True)
    assert [*resumed.content["programs"]] == ["products"]
    assert names_in(tmp_path / "pairs.tar") == [file.name for file in files]
    again = Truth(tmp_path, MACHINE, packed=True, limit_bytes=1 << 20)
    assert not again.content["programs"] and not [*tmp_path.glob("*.tar")]


@pytest.mark.parametrize("n_bytes", [100, 512, 4000])  # cut within the header, before the data, within the data
def test_a_resumed_run_keeps_what_precedes_a_torn_trace(n_bytes: int, tmp_path: Path) -> None:
    """The recorder was killed while it packed a trace that truth.json does not list yet."""
    truth = Truth(tmp_path, MACHINE, packed=True, limit_bytes=1 << 20)
    files = [tmp_path / f"products.{variant}.json.gz" for variant in VARIANTS]
    torn = tmp_path / "elementwise.A.json.gz"
    for file in (*files, torn):
        file.write_bytes(b"x" * 8000)
    truth.add(PROGRAMS["products"], {v: {"files": [file.name]} for v, file in zip(VARIANTS, files, strict=True)})
    archive = tmp_path / truth.pack([torn])
    with tarfile.open(archive) as packed:
        begins = packed.getmembers()[-1].offset
    os.truncate(archive, begins + n_bytes)
    Truth(tmp_path, MACHINE, packed=True, limit_bytes=1 << 20, resume=True)
    assert names_in(archive) == [file.name for file in files]
    assert not [*tmp_path.glob("*.partial")]


def test_numbers_of_two_machines_do_not_become_one(tmp_path: Path) -> None:
    Truth(tmp_path, MACHINE, packed=False, limit_bytes=0).add(PROGRAMS["products"], {"skipped": "a reason"})
    with pytest.raises(SystemExit, match="Record into another folder"):
        Truth(tmp_path, {**MACHINE, "name": "NVIDIA H100"}, packed=False, limit_bytes=0, resume=True)


def test_what_a_machine_lacks_is_the_reason_to_skip() -> None:
    product = PROGRAMS["products"]
    assert why_not(product, MACHINE) is None
    assert why_not(replace(product, needs=("cuda",)), MACHINE) == "needs a CUDA device"
    assert why_not(replace(product, needs=("compile",)), MACHINE) == "there is no C++ compiler"
    assert "nccl" in (why_not(replace(product, needs=("ranks",)), MACHINE) or "")
    able = {**MACHINE, "device": "cuda", "no_compile": None, "backend": "nccl"}
    assert why_not(replace(product, needs=NEEDS), able) is None


def test_archives_have_each_trace_once_and_truth_is_complete_after_each_program(tmp_path: Path) -> None:
    truth = Truth(tmp_path, MACHINE, packed=True, limit_bytes=40_000)
    for name in ("products", "elementwise"):
        measurements = {variant: {"files": [f"{name}.{variant}.json.gz"]} for variant in VARIANTS}
        for variant in VARIANTS:
            (tmp_path / f"{name}.{variant}.json.gz").write_bytes(b"x" * 8000)
        truth.add(PROGRAMS[name], measurements)
        written = json.loads((tmp_path / "truth.json").read_text())["programs"]
        assert written[name]["trace_bytes"] == 16000 and written[name]["cause"] == PROGRAMS[name].causes[0]
    truth.add(PROGRAMS["attention"], {"error": "a reason"})
    written = json.loads((tmp_path / "truth.json").read_text())["programs"]
    assert written["attention"]["error"] == "a reason" and "archive" not in written["attention"]
    archives = {name: names_in(tmp_path / name) for name in ("pairs.tar", "more.tar")}
    assert archives == {
        "pairs.tar": ["products.A.json.gz", "products.B.json.gz"],
        "more.tar": ["elementwise.A.json.gz", "elementwise.B.json.gz"],
    }
    assert written["elementwise"]["archive"] == "more.tar" and not [*tmp_path.glob("*.gz")]


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_the_recorder_writes_traces_truth_and_archives(start: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.pairs.record", str(tmp_path), "--device", "cpu", "--start", start]
    ranks = [name for name, known in PROGRAMS.items() if "ranks" in known.needs and start == "fork"] or ["late_rank"]
    names = ["products", "pin_each_step", *ranks]
    ran = subprocess.run([*command, "--only", *names], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    truth = json.loads((tmp_path / "truth.json").read_text())
    assert (truth["device"], truth["size"], truth["backend"], [*truth["programs"]]) == ("cpu", "small", "gloo", names)
    assert truth["programs"]["pin_each_step"]["skipped"] == "needs a CUDA device"
    for name in ("products", *ranks):
        measurements = truth["programs"][name]
        for variant in VARIANTS:
            check_variant(measurements[variant], PROGRAMS[name], tmp_path)
            assert len(measurements[variant]["files"]) == (SIZES["small"].ranks if name in ranks else 1)
    files = [
        name
        for measurements in truth["programs"].values()
        for v in VARIANTS
        for name in measurements.get(v, {}).get("files", ())
    ]
    assert (
        sorted(names_in(tmp_path / "pairs.tar"))
        == sorted(files)
        == sorted(path.name for path in tmp_path.glob("*.json.gz"))
    )
    late = truth["programs"]["late_rank"]
    assert late["A"]["plain_step_s"] > late["B"]["plain_step_s"]
    assert {trace_of(tmp_path / name)["distributedInfo"]["rank"] for name in late["A"]["files"]} == {0, 1}


@pytest.mark.slow
def test_a_program_that_takes_too_long_does_not_stop_the_others(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.pairs.record", str(tmp_path), "--device", "cpu", "--limit", "0.01"]
    ran = subprocess.run([*command, "--only", "products", "attention"], cwd=ROOT, capture_output=True, text=True)
    truth = json.loads((tmp_path / "truth.json").read_text())
    assert ran.returncode == 1 and "2 failed" in ran.stdout
    assert all("its limit" in truth["programs"][name]["error"] for name in ("products", "attention"))


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="there is no C++ compiler")
def test_compiled_programs_run_without_numpy(tmp_path: Path) -> None:
    names = [name for name, known in PROGRAMS.items() if "compile" in known.needs]
    without = (
        "import sys; sys.modules['numpy'] = None; from bench.pairs.record import main; sys.exit(main(sys.argv[1:]))"
    )
    options = [str(tmp_path), "--device", "cpu", "--limit", "600", "--seconds", "1800", "--only", "loader_workers"]
    ran = subprocess.run([sys.executable, "-c", without, *options, *names], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    truth = json.loads((tmp_path / "truth.json").read_text())
    for name in ("loader_workers", *names):
        for variant in VARIANTS:
            check_variant(truth["programs"][name][variant], PROGRAMS[name], tmp_path)
