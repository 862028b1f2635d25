"""Caveats of a window, reasons for a missing path, and the values of switches."""

from __future__ import annotations

import json
import random
import re
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.critical_path.answer.path_answer import PathAnswer
from pipelines.critical_path.graph.switches import switch_overrides
from pipelines.critical_path.graph.windows import WindowRequest, request_windows
from pipelines.critical_path.whatif.before_after import what_if
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.window import load
from pipelines.faces.cli.app import app
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.synthetic import CaptureSpec, write_capture
from tests.batch import Batch
from tests.harness import ANSWERED, answer_in, answers, call, connect, kernel, op, sync, without, x


def caveats_of(trace: Any, annotation: str = "") -> dict[str, dict[str, Any]]:
    (caveats,) = caveats_of_windows(trace, annotation)
    return caveats


def caveats_of_windows(trace: Any, *annotations: str) -> list[dict[str, dict[str, Any]]]:
    """Return the caveats of the whole trace ("") or of the annotations' windows, in their order.

    The models run once.
    """
    con, trace_id = connect(trace)
    windows = [WindowRequest(trace_id, asked or "full", annotation=asked) for asked in annotations]
    request_windows(con, windows)
    run_models(con, load_catalog(), ANSWERED)
    return [by_name(answer_in(con, window)) for window in windows]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    """Compute the traces of the quick tests below that set no switches."""
    folder = tmp_path_factory.mktemp("caveats")
    batch = Batch(*ANSWERED, "_stated_windows")
    capture = write_capture(CaptureSpec(ranks=1, steps=2, seed=5), folder)
    batch.add("capture", capture.ranks[0].path, "", "ProfilerStep#1", "ProfilerStep#0")
    batch.add("cut", cut(folder))
    batch.add("cut work", [*STEPS, *WORK], "ProfilerStep#1")
    batch.add_all(TRACES.items())
    for name, (trace, _) in WAITING.items():
        batch.add(name, trace, "", "ProfilerStep#1", "ProfilerStep#2")
    return batch


def caveats_in(traces: Batch, name: str, annotation: str | None = None) -> dict[str, dict[str, Any]]:
    return by_name(traces.answer(name, annotation))


def caveats_of_all(*traces: Any, **overrides: str) -> list[dict[str, dict[str, Any]]]:
    """Return the caveats of each trace as a whole; the models run once."""
    return [by_name(answer) for _, answer in answers(traces, **overrides)]


def by_name(answer: PathAnswer) -> dict[str, dict[str, Any]]:
    return {caveat["caveat"]: caveat for caveat in answer.caveats}


def tracelake(*arguments: Any) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, because starting a process takes seconds."""
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def launched(name: str, launch: float, start: float, dur: float, number: int, stream: int = 7) -> list[dict[str, Any]]:
    return [call("cudaLaunchKernel", launch, 5, number), kernel(name, start, dur, number, stream)]


def test_a_whole_path_without_doubts_has_no_caveat(traces: Batch) -> None:
    assert set(caveats_in(traces, "capture", "")) == {"first_step"}
    assert caveats_in(traces, "capture", "ProfilerStep#1") == {}
    assert caveats_in(traces, "capture", "ProfilerStep#0")["first_step"]["severity"] == "warning"


WAITS = [op("step", 0, 1000), *launched("gemm", 10, 20, 900, 1), call("cudaDeviceSynchronize", 50, 880, 2)]
LITTLE, MORE, MOST = (
    [op("a", 0, first), op("b", *last)] for first, *last in ((100, 900, 100), (300, 600, 400), (500, 600, 400))
)
TRACES: dict[str, list[dict[str, Any]]] = {
    "waits": WAITS,
    "no waits": WAITS[:3],
    "no work": [op("a", 0, 10)],
    "little": LITTLE,
    "alone": [
        op("slow", 0, 1000),
        *launched("ncclDevKernel_AllReduce", 10, 100, 300, 1, stream=20),
        *launched("gemm", 20, 350, 100, 2),
    ],
    "idle": [*launched("gemm", 10, 20, 100, 1), *launched("gemm", 20, 5120, 100, 2)],
    "idle beside work without a name": [
        *launched("gemm", 10, 20, 100, 1),
        *(call("cudaLaunchKernel", 15, 2, 3), without(kernel("", 4120, 1080, 3, stream=20), "name")),
        *launched("gemm", 20, 5120, 100, 2),
    ],
    "early": launched("gemm", 10, 8, 100, 1),
    "instant": [op("a", 10, 0), kernel("gemm", 10, 0, 1)],
    "instants": [op("a", 10, 0), op("b", 11, 0)],
}


def test_a_trace_without_sync_rows_says_what_was_inferred(traces: Batch) -> None:
    caveat = caveats_in(traces, "waits")["no_sync_events"]
    assert caveat["n"] == 1 and "1 wait for GPU work is inferred from calls and times" in caveat["detail"]
    assert "no wait for GPU work" in caveats_in(traces, "no waits")["no_sync_events"]["detail"]
    assert "no_sync_events" not in caveats_in(traces, "no work")  # there is no GPU work to wait for


@pytest.mark.slow  # 2 s
def test_where_nothing_is_inferred_waits_are_unknown() -> None:
    (unknown,) = caveats_of_all(WAITS, infer_waits="never")
    assert "unknown" in unknown["no_sync_events"]["detail"]


@pytest.mark.slow  # 2 s; every test of the default path checks that it covers its window
def test_a_path_that_covers_little_says_so(traces: Batch) -> None:
    """A path that covers little of its window has a caveat.

    The test uses a switch that makes gaps weigh nothing, because the default path covers the whole window.
    """
    assert "coverage" not in caveats_in(traces, "little")
    of_little, of_more, of_most = caveats_of_all(LITTLE, MORE, MOST, covers_window="false")
    said = of_little["coverage"]
    assert (said["severity"], said["time_us"]) == ("warning", 800) and "covers 20.0 % of the window" in said["detail"]
    assert of_more["coverage"]["severity"] == "info"
    assert "coverage" not in of_most


def waiting_steps(of_second: dict[str, int] | None) -> list[dict[str, Any]]:
    """Return two steps, in each of which a stream waits for another stream.

    The second wait's row contains `of_second`, or is missing if `of_second` is None.
    """
    events = []
    for number in (1, 2):
        at, first = 2000 * number, 10 * number
        stated = {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": first + 2}
        of_row = stated if number == 1 else of_second
        events += [
            x("user_annotation", f"ProfilerStep#{number}", at, 1900),
            call("cudaLaunchKernel", at + 10, 5, first),
        ]
        events += [kernel("source", at + 20, 400, first, 7), call("cudaEventRecord", at + 20, 2, first + 2)]
        events += [call("cudaStreamWaitEvent", at + 30, 2, first + 3)]
        events += [] if of_row is None else [sync("Stream Wait Event", at + 33, 1, first + 3, 20, **of_row)]
        events += [call("cudaLaunchKernel", at + 40, 5, first + 4), kernel("waiting", at + 425, 300, first + 4, 20)]
    return events


WAITING: dict[str, tuple[list[dict[str, Any]], list[bool]]] = {
    # whether the trace states the waits of the whole trace, of step 1, and of step 2
    "all stated": (
        waiting_steps({"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 22}),
        [True, True, True],
    ),
    "one not": (waiting_steps({"wait_on_stream": -1, "wait_on_cuda_event_record_corr_id": -1}), [False, True, False]),
    "one without a row": (waiting_steps(None), [False, True, False]),
    "no rows": ([e for e in waiting_steps(None) if e["cat"] != "cuda_sync"], [False, False, False]),
    "no GPU work": ([x("user_annotation", f"ProfilerStep#{n}", 20 * n, 10) for n in (1, 2)], [True, True, True]),
}


def test_a_window_states_its_waits_if_no_caveat_says_otherwise(traces: Batch) -> None:
    """For a file, what-if reads the table of windows with stated waits.

    For a window in a lake and for a saved path, it reads the caveats (`of_saved`).
    """
    for name, (_, stated) in WAITING.items():
        for window, is_stated in zip(("", "ProfilerStep#1", "ProfilerStep#2"), stated, strict=True):
            unstated = {"no_sync_events", "unstated_waits"} & caveats_in(traces, name, window).keys()
            states = traces.show(name, window).execute("SELECT count(*) FROM _stated_windows").fetchall()
            assert (states == [(1,)], not unstated) == (is_stated, is_stated), (name, window)


def test_time_in_which_only_collectives_ran_or_nothing_is_told(traces: Batch) -> None:
    said = caveats_in(traces, "alone")["only_communication"]
    assert (said["time_us"], said["severity"]) == (250, "warning")  # 100 to 350; then the gemm computes concurrently
    assert caveats_in(traces, "idle")["idle_gaps"]["time_us"] == 5000
    assert caveats_in(traces, "idle beside work without a name")["idle_gaps"]["time_us"] == 4000


def _drawn(rng: random.Random) -> list[dict[str, Any]]:
    """Return operators with long pauses, and overlapping work of all classes on two devices with two streams each."""
    events, now = [], 0
    for number in range(1, 40):
        now += rng.choice([1, 5, 30, 1500, 4000])
        dur = rng.choice([2, 20, 2500])
        name = rng.choice(["ncclDevKernel_AllReduce", "gemm", "gemm", "Memcpy DtoH"])
        events += [op(f"op{number}", now, dur), call("cudaLaunchKernel", now + 1, 1, number)]
        start, stream, device = now + rng.choice([1, 3, 900, 3000]), rng.choice([7, 20]), rng.choice([0, 1])
        events.append(kernel(name, start, rng.choice([1, 40, 1200, 6000]), number, stream, device))
        now += rng.choice([0, dur])
    return events


@pytest.mark.slow  # 2 s; a test above checks the tables
def test_a_what_if_of_such_gaps_says_the_same() -> None:
    """`what-if` computes the caveat about gaps from the graph's arrays, with the same result as the tables.

    The traces have several streams, and other work runs in a gap.
    """
    seen = 0
    for seed in (2, 3):
        trace = _drawn(random.Random(seed))
        idle_gaps = caveats_of(trace).get("idle_gaps")
        con, trace_id = connect(trace)
        window = load(con, load_catalog(), WindowRequest(trace_id, "full"))
        gaps = Scenario((("kernel_gaps", 0.5), ("launch_overhead", 0)))
        (both, other) = what_if(window, [gaps, Scenario((("gemm", 0.5),))])
        assert both.as_json()["caveats"] == both.caveats
        unseen, *lacking = both.caveats  # the traces have no cuda_sync events
        assert unseen["caveat"] == "unseen_waits" and lacking == ([] if idle_gaps is None else [idle_gaps])
        assert other.caveats[0] == unseen  # this scenario does not shorten the gaps
        assert [caveat["caveat"] for caveat in other.caveats[1:]] == ["overlapping_streams"]
        seen += idle_gaps is not None
    assert seen


@pytest.mark.slow  # 5 s; tests above check such times by hand
def test_time_beside_the_path_is_that_of_every_instant() -> None:
    """The expected times come from a check of each interval between starts and ends.

    The check combines the path's activity with the work of the devices.
    """
    times, drawn = [], Batch(*ANSWERED, "_path_beside", "critical_path_nodes", "kernels")
    drawn.add_all((f"drawn {seed}", _drawn(random.Random(seed))) for seed in range(12))
    for seed in range(12):
        con = drawn.show(f"drawn {seed}")
        beside = con.execute("SELECT communicating_ns, idle_ns FROM _path_beside").fetchall() or [(0, 0)]
        assert beside == [_instants(con)]
        times += beside
    assert len({communicating for communicating, _ in times}) > 6 and len({idle for _, idle in times}) > 4


def _instants(con: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    edges = con.execute(
        "SELECT n.at_ns - b.path_weight_ns, n.at_ns, t.is_gap AND b.path_weight_ns > 1000000 "
        "FROM _path_bounds AS b JOIN edge_types AS t ON t.edge_code = b.edge_code "
        "JOIN critical_path_nodes AS n ON n.node_id = b.dst_node_id "
        "WHERE b.path_weight_ns > 0 AND (b.bound_by IN ('cpu_bound', 'host_gap') OR t.is_gap AND b.bound_by = t.bound_by)"
    ).fetchall()
    work = con.execute("SELECT start_ns, end_ns, device, class FROM kernels WHERE class <> 'OTHER'").fetchall()
    times = sorted({time for row in (*edges, *work) for time in row[:2]})
    communicating = idle = 0
    for start, end in pairwise(times):
        beside = [is_gap for first, last, is_gap in edges if first <= start < last]
        running = {(device, kind) for first, last, device, kind in work if first <= start < last}
        devices = {device for device, kind in running if kind == "COMMUNICATION"}
        if beside and any((device, "COMPUTATION") not in running for device in devices):
            communicating += end - start
        if any(beside) and not running:
            idle += end - start
    return communicating, idle


STEPS = [x("user_annotation", f"ProfilerStep#{n}", 1000 * n, 900) for n in (0, 1)]
WORK = [
    *launched("gemm", 10, 20, 1900, 1),
    *launched("gemm", 1010, 1921, 500, 2),
    kernel("orphan", 1200, 10, 77, stream=9),
]


def test_what_the_window_lacks_or_exceeds_is_told(traces: Batch) -> None:
    answer = traces.answer("cut work")
    said = by_name(answer)
    assert said["earlier_work"]["time_us"] == 1921 - 1010
    assert answer.summary["gpu_earlier_work"] == pytest.approx(100 * (1921 - 1010) / (2421 - 1000))
    assert said["runs_past_window"]["time_us"] == 2421 - 1900
    assert said["unlaunched_work"]["n"] == 1
    assert caveats_in(traces, "early")["work_before_launch"]["n"] == 1


@pytest.mark.slow  # 2 s
def test_lost_launches_are_told_from_those_before_the_trace() -> None:
    """If the trace lost launches, the saving of host time is too low, because work without a launch does not move."""
    own = launched("gemm", 100, 120, 50, 1)
    before = [kernel("earlier", at, 10, at, stream=7) for at in (20, 40)]
    after = [kernel("lost", at, 10, at, stream=7) for at in (300, 400, 500)]
    elsewhere = [kernel("other stream", 300, 10, 77, stream=9)]  # the trace contains no launch for this stream
    cases = ((before, 0), (after, 3), ([*before, *after], 3), (elsewhere, 0))
    for (events, n_lost), caveats in zip(cases, caveats_of_all(*([*own, *events] for events, _ in cases)), strict=True):
        said = caveats["unlaunched_work"]
        match = re.search(r"(\d+) of them", said["detail"])
        assert (said["n"], int(match[1]) if match else 0) == (len(events), n_lost)


def cut(folder: Path) -> Path:
    """Write a truncated file."""
    path = folder / "cut.json"
    path.write_text(json.dumps({"traceEvents": [op("a", 0, 10), op("b", 20, 10), op("c", 40, 10)]})[:-60])
    return path


def test_findings_of_ingestion_are_caveats(traces: Batch) -> None:
    assert "truncated" in caveats_in(traces, "cut")


@pytest.mark.slow  # 4 s
def test_findings_of_ingestion_are_caveats_for_people_and_programs(tmp_path: Path) -> None:
    assert "caveat: cut.json is truncated" in tracelake("critical-path", cut(tmp_path)).stdout
    done = tracelake("critical-path", cut(tmp_path), "--json")
    assert any(caveat["caveat"] == "truncated" for caveat in json.loads(done.stdout)["caveats"]), done.stdout


STEP_WITHOUT_WORK = [x("user_annotation", "ProfilerStep#0", 0, 10), op("later", 20, 5)]
WITHOUT_PATH = {
    "no operator and no GPU work": ("ProfilerStep", STEP_WITHOUT_WORK),
    "no event of the trace has a category": (
        "",
        [{"ph": "X", "name": "no category", "ts": 1, "dur": 2, "pid": 1, "tid": 1}],
    ),
}


@pytest.mark.slow  # 1 s each: tests/faces/cli/test_why.py
@pytest.mark.parametrize(("reason", "command"), [*zip(WITHOUT_PATH, ("overlay", "critical-path"), strict=True)])
def test_a_trace_without_a_path_says_why(tmp_path: Path, reason: str, command: str) -> None:
    annotation, events = WITHOUT_PATH[reason]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    done = tracelake(command, path, "--annotation", annotation, *(["--out", tmp_path] if command == "overlay" else []))
    assert (done.returncode, done.stdout) == (1, "")
    assert reason in done.stderr and "Traceback" not in done.stderr
    assert not list(tmp_path.glob("overlaid*"))


def test_a_window_in_which_nothing_takes_time_has_no_path_and_no_cycle(traces: Batch) -> None:
    said = caveats_in(traces, "instant")["no_critical_path"]
    assert (said["severity"], said["detail"]) == ("warning", "all of its events have length 0")
    assert "no_critical_path" not in caveats_in(traces, "instants")  # host time passes between the instants


@pytest.mark.slow  # 2 s
def test_a_window_without_a_path_is_an_answer_for_programs_too(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": STEP_WITHOUT_WORK}))
    done = tracelake("critical-path", path, "--annotation", "ProfilerStep", "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["success"], answer["path"]) == (1, False, [])
    assert "no operator" in answer["reason"] and "no_critical_path" in {said["caveat"] for said in answer["caveats"]}


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("keep_zero_duration=perhaps", "must be true or false"),
        ("keep_zero_duration=1", "must be true or false"),
        ("keep_zero_duration=", "give NAME=VALUE"),
        ("keep_zero_duration", "give NAME=VALUE"),
        ("no_such=true", "NAME is one of blocking_is_free, "),
        ("blocking_is_free=sometimes", "must be always or when_waiting"),
        ("kernel_gap_limit_ns=soon", "whole number of nanoseconds"),
        ("kernel_gap_limit_ns=1.5", "whole number of nanoseconds"),
        ("kernel_gap_limit_ns=9223372036854775808", "whole number of nanoseconds"),
        ("infer_waits=always", "must be never or without_sync_events"),
    ],
)
def test_a_value_that_a_switch_does_not_take_is_refused(setting: str, said: str, shared: Path) -> None:
    done = tracelake("critical-path", shared / "traces" / "critical_path" / "alexnet.json.gz", "--set", setting)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr.replace("\n", " ") and "Traceback" not in done.stderr


def test_values_are_read_as_people_write_them() -> None:
    overrides = switch_overrides(
        "default", [("keep_zero_duration", "True"), ("kernel_gap_limit_ns", "-1"), ("dependencies", "DATA")]
    )
    assert overrides == {
        ("default", "keep_zero_duration"): "true",
        ("default", "kernel_gap_limit_ns"): "-1",
        ("default", "dependencies"): "data",
    }


def test_arrows_of_all_edges_need_all_events(trace_file: Path) -> None:
    done = tracelake("overlay", trace_file, "--all-edges", "--only-critical", "--out", trace_file.parent)
    assert done.returncode == 1 and "--only-critical" in done.stderr


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [op("a", 0, 10)]}))
    return path


@pytest.mark.slow  # test_data_dependencies.py tests paths by data
def test_an_overlay_by_data_dependencies(shared: Path, tmp_path: Path) -> None:
    """With data dependencies, the overlay also reads the execution trace next to the trace.

    Without an execution trace, the error names the missing option.
    """
    trace = shared / "traces" / "ranks" / "dlrm_8" / "worker0.json.gz"
    done = tracelake("overlay", trace, "--dependencies", "data", "--out", tmp_path, "--json")
    assert done.returncode == 0 and Path(json.loads(done.stdout)["path"]).exists(), done.stderr
    lone = shared / "traces" / "critical_path" / "alexnet.json.gz"
    done = tracelake("overlay", lone, "--dependencies", "data", "--out", tmp_path)
    assert done.returncode == 1 and "--execution-trace" in done.stderr


@pytest.mark.slow  # test_data_dependencies.py tests paths by data and by switches
def test_what_if_of_a_graph_by_data_and_by_switches(shared: Path) -> None:
    trace = shared / "traces" / "ranks" / "dlrm_8" / "worker0.json.gz"
    wanted = ["--remove", "launch_overhead", "--json"]
    of_data = ["--dependencies", "data"]
    serial, by_data = (json.loads(tracelake("what-if", trace, *wanted, *more).stdout) for more in ([], of_data))
    path = json.loads(tracelake("critical-path", trace, *of_data, "--json").stdout)
    assert by_data["before"]["length_us"] == path["length_us"] <= serial["before"]["length_us"]
    done = tracelake("what-if", trace, *wanted, "--set", "infer_waits=perhaps")
    assert done.returncode == 1 and "infer_waits" in done.stderr
