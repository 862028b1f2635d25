"""`tracelake slice`: a step or a query's rows as a trace, with events at their own times and arrows between slices."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.faces.cli.refresh_tables import open_analyst
from pipelines.faces.drawings.row_slice import write_rows
from pipelines.faces.drawings.trace_slice import NoSlice, step_meant, step_query, write_events
from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.synthetic import CaptureSpec, write_capture
from tests.effort import first_of
from tests.faces.drawings.test_overlay_shared import part_arrows, without_slice
from tests.harness import call, kernel


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sliced")
    ingest(write_capture(CaptureSpec(ranks=2, steps=3, seed=4), folder / "in").paths, Lake(folder / "lake"))
    return folder / "lake"


def sliced(tmp_path: Path, *words: object) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    target = tmp_path / "slice.json"
    result = CliRunner().invoke(app, ["slice", *map(str, words), "--out", str(target), "--json"])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer.pop("path") == str(target)
    file = json.loads(target.read_text())
    return answer, [{**event, "ts": event["ts"] + file["baseTimeNanoseconds"] // 1000} for event in file["traceEvents"] if event["ph"] != "M"]  # fmt: skip


def test_a_step_of_a_rank_has_its_events_and_the_work_that_it_launched(lake: Path, tmp_path: Path) -> None:
    with open_analyst(lake, ["kernels", "profiler_steps"]) as con:
        ((trace_id, start, end),) = con.execute(
            "SELECT trace_id, start_ns, end_ns FROM profiler_steps JOIN traces USING (trace_id) WHERE rank = 1 AND step = 2"
        ).fetchall()
        launched = con.execute(
            "SELECT k.name FROM kernels AS k JOIN events AS l ON l.trace_id = k.trace_id AND l.event_id = k.launch_event_id "
            "WHERE k.trace_id = ? AND l.start_ns >= ? AND l.start_ns < ?",
            [trace_id, start, end],
        ).fetchall()
    answer, drawn = sliced(tmp_path, lake, "--step", 2, "--rank", 1)
    slices = [event for event in drawn if event["ph"] == "X"]
    assert answer["n_events"] == len([event for event in drawn if event["ph"] not in "stf"]) and answer["left_out"] == 0
    assert Counter(
        event["name"] for event in slices if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")
    ) == Counter(name for (name,) in launched)
    host = [
        event
        for event in slices
        if event["cat"] not in ("kernel", "gpu_memcpy", "gpu_memset", "cuda_sync", "gpu_user_annotation")
    ]
    assert host and all(
        event["ts"] * 1000 < end and (event["ts"] + event["dur"]) * 1000 >= start - 1000 for event in host
    )
    assert any(event["ph"] == "s" for event in drawn)
    assert without_slice(drawn) == [] and part_arrows(drawn) == set()


def test_a_step_is_without_what_ends_at_its_start_or_begins_at_its_end() -> None:
    """A slice of a step has no event that ends at the step's start or begins at its end.

    Steps follow each other without a gap, so these events belong to the steps before and after.
    """
    events = [
        ("before", 0, 10),
        ("into it", 5, 6),
        ("mark", 10, None),
        ("empty", 10, 0),
        ("step", 10, 10),
        ("next", 20, 10),
    ]
    with duckdb.connect() as con:
        con.execute("CREATE TABLE traces AS SELECT 't' AS trace_id, 'a.json' AS file, 0 AS rank")
        con.execute("CREATE TABLE profiler_steps AS SELECT 't' AS trace_id, 1 AS step, 10 AS start_ns, 20 AS end_ns")
        con.execute(
            "CREATE TABLE events (trace_id TEXT, event_id BIGINT, ph TEXT, start_ns BIGINT, duration_ns BIGINT)"
        )
        con.execute("CREATE TABLE kernels (trace_id TEXT, event_id BIGINT, launch_event_id BIGINT, start_ns BIGINT)")
        for number, (_, start_ns, duration_ns) in enumerate(events):
            con.execute("INSERT INTO events VALUES ('t', ?, 'X', ?, ?)", [number, start_ns, duration_ns])
        drawn = con.execute(f"SELECT event_id FROM ({step_query(1, None, '')}) ORDER BY event_id").fetchall()
    assert [events[number][0] for (number,) in drawn] == ["into it", "mark", "empty", "step"]


def test_events_of_a_query_keep_their_arguments_and_get_its_columns(lake: Path, tmp_path: Path) -> None:
    query = "SELECT trace_id, event_id, duration_ns AS mine FROM kernels WHERE class = 'COMMUNICATION'"
    answer, drawn = sliced(tmp_path, lake, "--sql", query)
    with open_analyst(lake, ["kernels"]) as con:
        expected = con.execute("SELECT duration_ns FROM kernels WHERE class = 'COMMUNICATION'").fetchall()
    assert answer["n_events"] == len(drawn) == len(expected) > 0
    assert sorted(event["args"]["query"]["mine"] for event in drawn) == sorted(ns for (ns,) in expected)
    assert all("stream" in event["args"] for event in drawn)
    assert len({event["pid"] for event in drawn}) == 2  # a separate process for each rank


def test_events_without_a_time_are_left_out(lake: Path, tmp_path: Path) -> None:
    with open_analyst(lake, []) as con, duckdb.connect() as own:
        for table in ("traces", "events"):
            rows = con.sql(f"FROM {table}").to_arrow_table()
            own.execute(f"CREATE TABLE {table} AS FROM rows")
            del rows
        own.execute(
            "CREATE TABLE asked AS SELECT trace_id, event_id FROM events WHERE cat = 'kernel' ORDER BY ALL LIMIT 3"
        )
        own.execute("UPDATE events SET start_ns = NULL WHERE event_id = (SELECT max(event_id) FROM asked)")
        written = write_events(own, "asked", tmp_path / "a.json")
        events = json.loads(written.path.read_text())["traceEvents"]
        assert (written.n_events, written.left_out) == (2, 1)
        assert [("ts" in event) for event in events if event["ph"] == "X"] == [True, True]
        own.execute("UPDATE events SET start_ns = NULL")
        with pytest.raises(NoSlice, match="that has a time"):
            write_events(own, "asked", tmp_path / "b.json")


def test_rows_with_times_are_slices_or_counters(lake: Path, tmp_path: Path) -> None:
    steps = "SELECT rank, 'step' AS name, step, start_ns, end_ns FROM profiler_steps JOIN traces USING (trace_id)"
    answer, drawn = sliced(tmp_path, lake, "--sql", steps)
    assert answer["n_slices"] == len(drawn) == 6 and len({event["args"]["step"] for event in drawn}) == 3
    assert len({event["tid"] for event in drawn}) == 2  # a track for each rank
    answer, drawn = sliced(
        tmp_path, lake, "--sql", "SELECT at_ns, queue_length FROM queue_length WHERE queue_length IS NOT NULL"
    )
    assert answer["n_counters"] == len(drawn) > 0 and {event["ph"] for event in drawn} == {"C"}


def test_times_of_rows_are_no_values(lake: Path, tmp_path: Path) -> None:
    _, slices = sliced(tmp_path, lake, "--sql", "FROM step_times")
    with open_analyst(lake, ["step_times"]) as con:
        rows = con.execute("SELECT start_ns / 1000, duration_ns / 1000 FROM step_times").fetchall()
    assert sorted((event["ts"], event["dur"]) for event in slices) == [
        pytest.approx(row, abs=1) for row in sorted(rows)
    ]
    assert all(not event["args"].keys() & {"start_ns", "end_ns", "duration_ns"} for event in slices)


@pytest.mark.parametrize(
    ("n", "said"),
    [
        (0, "the trace has no profiler steps"),
        (1, "there is no step 99: the trace has step 5"),
        (20, f"there is no step 99: the trace has steps {', '.join(map(str, range(5, 25)))}"),
        (21, f"there is no step 99: the trace has steps {', '.join(map(str, range(5, 25)))}, …, 25"),
    ],
)
def test_the_steps_are_listed_without_another_command(n: int, said: str) -> None:
    """The error about a missing step lists the trace's steps.

    Files are not in a lake, so a command that queries a lake cannot list them.
    """
    con = duckdb.connect()
    con.execute("CREATE TABLE traces AS SELECT 'a' AS trace_id, 'a.json' AS file, 0 AS rank")
    con.execute(f"CREATE TABLE profiler_steps AS SELECT 'a' AS trace_id, 5 + range AS step FROM range({n})")
    with pytest.raises(NoSlice) as error:
        step_meant(con, 99, None, "")
    assert (str(error.value), error.value.hint) == (said, "")


@pytest.mark.parametrize(
    ("words", "said"),
    first_of(
        [
            (["--sql", "SELECT 1 AS one"], "the columns are one"),
            (["--step", "77"], "there is no step 77: the trace has steps 0, 1, 2"),
            (["--sql", "SELECT 1 AS start_ns, 'long' AS duration_ns"], "duration_ns must be a number of nanoseconds"),
            (["--sql", "SELECT 'nan'::DOUBLE AS start_ns"], "no rows with a time"),
            ([], "either --sql or --step"),
            (["--sql", "FROM kernels", "--rank", "1"], "go with --step"),
            (["--sql", "SELECT start_ns FROM kernels WHERE FALSE"], "no rows with a time"),
            (["--sql", "DROP TABLE traces"], "error:"),
            (["--sql", "SELECT 'noon' AS start_ns"], "must be a number of nanoseconds"),
            (["--sql", "SELECT trace_id, event_id FROM events WHERE ph = 'M'"], "no row names an event"),
            (["--sql", "SELECT nope FROM kernels"], "nope"),
        ],
        6,
    ),
)
def test_what_cannot_be_drawn_is_said(lake: Path, tmp_path: Path, words: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["slice", str(lake), *words, "--out", str(tmp_path / "no.json")])
    assert result.exit_code == 1 and said in result.stderr and "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())


def test_slices_that_overlap_are_on_tracks_of_their_own(tmp_path: Path) -> None:
    rows = [{"start_ns": 10 * i, "duration_ns": 25, "device": i % 2, "note": f"r{i}"} for i in range(9)] + [
        {"start_ns": None, "duration_ns": 1, "device": 0, "note": "-"}
    ]
    slices = write_rows(rows, list(rows[0]), tmp_path / "a.json")
    assert (slices.n_slices, slices.left_out) == (9, 1)
    drawn = [event for event in json.loads(slices.path.read_text())["traceEvents"] if event["ph"] == "X"]
    for tid in {event["tid"] for event in drawn}:
        own = sorted((event["ts"], event["ts"] + event["dur"]) for event in drawn if event["tid"] == tid)
        assert all(a[1] <= b[0] for a, b in pairwise(own))
    assert {event["name"] for event in drawn} == {f"r{i}" for i in range(9)}
    marks = write_rows([{"start_ns": 5, "name": "here"}], ["start_ns", "name"], tmp_path / "b.json")
    assert marks.n_marks == 1
    with pytest.raises(NoSlice):
        write_rows([], ["name"], tmp_path / "c.json")


def strict(text: str) -> Any:
    """Parse JSON as in the standard, without NaN and Infinity."""
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def test_what_json_has_no_number_for_is_text_or_no_value(lake: Path, tmp_path: Path) -> None:
    odd = "'nan'::DOUBLE AS x, ['-inf'::FLOAT] AS y"
    _, drawn = sliced(tmp_path, lake, "--sql", f"SELECT trace_id, event_id, {odd} FROM kernels LIMIT 1")
    strict((tmp_path / "slice.json").read_text())
    assert drawn[0]["args"]["query"] == {"x": "nan", "y": ["-inf"]}
    rows = [{"start_ns": float(i), "duration_ns": 1, "x": float("inf") if i else 2.5} for i in range(2)]
    assert write_rows(rows, ["start_ns", "duration_ns", "x"], tmp_path / "a.json").n_slices == 2
    assert write_rows(rows, ["start_ns", "x"], tmp_path / "b.json").n_counters == 1
    for name in ("a", "b"):
        strict((tmp_path / f"{name}.json").read_text())


def test_columns_of_a_join_may_have_the_same_name(lake: Path, tmp_path: Path) -> None:
    join = "FROM kernels AS k JOIN events AS e ON e.trace_id = k.trace_id AND e.event_id = k.event_id LIMIT 3"
    answer, drawn = sliced(tmp_path, lake, "--sql", f"SELECT k.*, e.* {join}")
    assert answer["n_events"] == len(drawn) == 3 and all("name_1" in event["args"]["query"] for event in drawn)
    answer, drawn = sliced(tmp_path, lake, "--sql", f"SELECT k.start_ns, k.duration_ns, k.name, 7 AS x, 8 AS x {join}")
    assert answer["n_slices"] == 3 and all((event["args"]["x"], event["args"]["x_1"]) == (7, 8) for event in drawn)


def test_a_row_without_a_length_ends_where_it_says(tmp_path: Path) -> None:
    rows = [
        {"start_ns": 1000, "duration_ns": None, "end_ns": 4000},
        {"start_ns": 5000, "duration_ns": 2000, "end_ns": None},
    ]
    write_rows(rows, list(rows[0]), tmp_path / "a.json")
    drawn = json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    assert [event["dur"] for event in drawn if event["ph"] == "X"] == [3, 2]


@pytest.mark.parametrize(
    ("command", "target", "said"),
    first_of(
        [
            ("slice", "link.json", "is one of the traces"),
            ("slice", "", "is a folder"),
            *((command, "rank0.json", "is one of the traces") for command in ("slice", "report", "timeline")),
        ],
        2,
    ),
)
def test_a_trace_is_never_replaced_by_what_is_drawn_from_it(
    tmp_path: Path, command: str, target: str, said: str
) -> None:
    trace = tmp_path / "rank0.json"
    trace.write_text(json.dumps({"traceEvents": [call("cudaLaunchKernel", 1, 2, 1), kernel("k", 5, 9, 1)]}))
    (tmp_path / "link.json").symlink_to(trace)
    before = trace.read_bytes()
    words = [command, str(trace), *(["--sql", "FROM kernels"] if command == "slice" else [])]
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path / target)])
    assert result.exit_code == 1 and said in result.stderr
    assert trace.read_bytes() == before
