"""CSV files of rocprofv3: the files of a process are one trace.

The headers are those of the examples in its documentation.
"""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.lake import Lake
from pipelines.lake.read.views import PART_NAMES
from pipelines.lake.retain.compaction import compact
from pipelines.readers.ingest import ingest
from pipelines.readers.inputs.single_trace import load_trace
from pipelines.readers.kineto import ReadTrace, TraceRejected
from pipelines.readers.rocm.csv_files import KINDS
from tests.effort import examples, first_of
from tests.harness import memory
from tests.readers.rocm.small import PID, small
from tests.readers.rocm.writer import GPU

# source/docs/data/*.csv of ROCm/rocprofiler-sdk; kernels have the columns of rocprofv3 of ROCm 7.
HEADERS = {
    "kernel_trace": "Kind,Agent_Id,Queue_Id,Stream_Id,Thread_Id,Dispatch_Id,Kernel_Id,Kernel_Name,Correlation_Id,"
    "Start_Timestamp,End_Timestamp,LDS_Block_Size,Scratch_Size,VGPR_Count,Accum_VGPR_Count,SGPR_Count,Workgroup_Size_X,"
    "Workgroup_Size_Y,Workgroup_Size_Z,Grid_Size_X,Grid_Size_Y,Grid_Size_Z",
    "hip_api_trace": "Domain,Function,Process_Id,Thread_Id,Correlation_Id,Start_Timestamp,End_Timestamp",
    "memory_copy_trace": "Kind,Direction,Stream_Id,Source_Agent_Id,Destination_Agent_Id,Correlation_Id,Start_Timestamp,"
    "End_Timestamp",
    "marker_api_trace": "Domain,Function,Process_Id,Thread_Id,Correlation_Id,Start_Timestamp,End_Timestamp",
    "agent_info": "Node_Id,Logical_Node_Id,Agent_Type,Name",
}
Rows = dict[str, list[list[Any]]]


def rows_of_small(agent: str = "Agent {}") -> Rows:
    """Return the run of small.py as rows of CSV files."""
    database = small()
    texts = {number: text for text, number in database.strings.items()}
    events = {row["id"]: row for row in database.rows["rocpd_event"]}
    kernels = {number: name for name, number in database.kernels.items()}
    rows: Rows = {name: [] for name in HEADERS}
    for row in database.rows["rocpd_region"]:
        event = events[row["event_id"]]
        domain, name = texts[event["category_id"]], texts[row["name_id"]]
        kind = "marker_api_trace" if domain.startswith("MARKER") else "hip_api_trace"
        if kind == "marker_api_trace":
            domain, name = "MARKER_CORE_API", "aten::mm, seq = 7, op_id = 3, sizes = [[2, 3], [3, 4]]"
        rows[kind].append([domain, name, PID, row["tid"], event["stack_id"], row["start"], row["end"]])
    rows["marker_api_trace"].append(["MARKER_CORE_API", "a mark", PID, PID, 102, 1_500, 1_500])
    for row in database.rows["rocpd_kernel_dispatch"]:
        rows["kernel_trace"].append(
            ["KERNEL_DISPATCH", agent.format(row["agent_id"]), row["queue_id"], row["stream_id"], row["tid"],
             row["dispatch_id"], row["kernel_id"], kernels[row["kernel_id"]], events[row["event_id"]]["stack_id"],
             row["start"], row["end"], 512, 0, 32, 0, 16,
             *(row[f"workgroup_size_{axis}"] for axis in "xyz"), *(row[f"grid_size_{axis}"] for axis in "xyz")]
        )  # fmt: skip
    for row in database.rows["rocpd_memory_copy"]:
        agents = [agent.format(row["src_agent_id"]), agent.format(row["dst_agent_id"])]
        where = [events[row["event_id"]]["stack_id"], row["start"], row["end"]]
        rows["memory_copy_trace"].append(["MEMORY_COPY", texts[row["name_id"]], row["stream_id"], *agents, *where])
    rows["agent_info"] = [[0, 0, "CPU", "EPYC"], [GPU + 3, GPU, "GPU", "gfx942"]]
    return rows


def write(folder: Path, rows: Rows, beginning: str = "4000_") -> Path:
    """Write the files that have rows, and return the path of the kernels' file."""
    folder.mkdir(exist_ok=True)
    for name, lines in rows.items():
        if lines:
            with (folder / f"{beginning}{name}.csv").open("w", newline="") as file:
                csv.writer(file, lineterminator="\n").writerow(HEADERS[name].split(","))
                csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n").writerows(lines)
    return folder / f"{beginning}kernel_trace.csv"


def events(path: Path) -> tuple[list[tuple], ReadTrace]:
    con = memory()
    trace = load_trace(con, path)
    query = "SELECT ph, cat, name, pid, tid, start_ns, duration_ns, device, stream, correlation FROM events WHERE ph <> 'M' ORDER BY event_id"
    return con.execute(query).fetchall(), trace


@cache
def whole() -> tuple[list[tuple], ReadTrace]:
    """Return the run of small.py, read from CSV files."""
    with TemporaryDirectory() as folder:
        return events(write(Path(folder), rows_of_small()))


@cache
def in_database() -> list[tuple]:
    with TemporaryDirectory() as folder:
        return events(small().write(Path(folder) / "a.db"))[0]


@pytest.mark.parametrize("agent", first_of(["Agent {}", "{}"], 1))
def test_the_files_of_a_process_are_its_database(tmp_path: Path, agent: str) -> None:
    """The CSV files of a process have the events of its database.

    Only the bytes of copies and the names of threads differ, because the CSV files do not contain them.
    """
    rows, trace = whole() if agent == "Agent {}" else events(write(tmp_path, rows_of_small(agent)))
    assert rows == in_database()
    assert (trace.format, trace.status) == ("csv/rocprofv3", "ok")
    assert {finding.check_name for finding in trace.findings} == {"rocm_no_wall_clock"}
    assert trace.metadata["rocprofv3"]["process_id"] == PID


@pytest.fixture(scope="module")
def unusual(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[tuple], ReadTrace]:
    """Return events for several tests: devices by kind, ranges that begin together, values of other types."""
    rows = rows_of_small("GPU 1")
    for name, end in (("a", 1_510), ("b", 1_530), ("c", 1_520)):
        rows["marker_api_trace"].append(["MARKER_CORE_API", name, PID, PID, 900, 1_505, end])
    rows["kernel_trace"][0][9] = "soon"
    rows["hip_api_trace"][0][3] = "main"
    return events(write(tmp_path_factory.mktemp("unusual"), rows))


def test_devices_by_kind_are_what_they_say(unusual: tuple[list[tuple], ReadTrace]) -> None:
    assert {row[7] for row in unusual[0]} == {None, 1}


def test_without_agents_devices_are_agents(tmp_path: Path) -> None:
    rows, trace = events(write(tmp_path, {**rows_of_small(), "agent_info": []}))
    assert {row[7] for row in rows} == {None, GPU}
    assert "rocm_agents" in {finding.check_name for finding in trace.findings}


def test_a_folder_is_one_trace(tmp_path: Path) -> None:
    write(tmp_path / "in", rows_of_small())
    write(tmp_path / "in", {name: lines[:1] for name, lines in rows_of_small().items()}, "5000_")
    lake = Lake(tmp_path / "lake")
    rows = ingest([tmp_path / "in"], lake).rows
    assert [(Path(row.path).name, row.status) for row in rows] == [
        ("4000_kernel_trace.csv", "ok"), ("5000_kernel_trace.csv", "ok"),
    ]  # fmt: skip
    assert {row.status for row in ingest([tmp_path / "in"], lake).rows} == {"known"}
    (tmp_path / "in" / "4000_marker_api_trace.csv").unlink()
    assert [row.status for row in ingest([tmp_path / "in"], lake).rows] == ["ok", "known"]


@pytest.mark.parametrize("late", first_of(["hip_api_trace", "agent_info"], 1))  # the second file has no events
def test_a_file_that_arrives_later_completes_the_trace(tmp_path: Path, late: str) -> None:
    rows, lake = rows_of_small(), Lake(tmp_path / "lake")
    kernel_file = write(tmp_path, {"kernel_trace": rows["kernel_trace"]})
    (first,) = ingest([kernel_file], lake).rows
    write(tmp_path, {late: rows[late]})
    (second,) = ingest([tmp_path / f"4000_{late}.csv"], lake).rows
    assert (second.path, second.status) == (str(kernel_file), "ok")
    with lake.connect(["traces", "rejects"]) as con:
        assert con.execute("SELECT trace_id, n_events FROM traces").fetchall() == [(second.trace_id, second.n_events)]
        ((reason,),) = con.execute("SELECT reason FROM rejects").fetchall()
    assert reason.startswith(f"trace {first.trace_id} was read without some of its files (")
    assert f"superseded by trace {second.trace_id}" in reason


@pytest.mark.slow  # two ingests and two compactions; a test above covers superseding
@pytest.mark.parametrize("first", ["kernel_trace", "hip_api_trace"])
def test_a_trace_without_all_its_files_stays_away(tmp_path: Path, first: str) -> None:
    """The complete trace replaces a trace of one of its files, whichever file came first.

    It still does after compaction has merged the batches of both traces.
    """
    rows, lake = rows_of_small(), Lake(tmp_path / "lake")
    for names in ([first], ["kernel_trace", "hip_api_trace"]):
        write(tmp_path / "in", {name: rows[name] for name in names})
        (read,) = ingest([tmp_path / "in"], lake).rows
    for _ in range(2):
        with lake.connect(["traces", "rejects"]) as con:
            assert con.execute("SELECT trace_id FROM traces").fetchall() == [(read.trace_id,)]
            assert con.execute("SELECT count(*) FROM rejects").fetchall() == [(1,)]
        compact(lake, older_than=0)
    assert len(lake.batches()) == 1
    assert {re.sub(PART_NAMES, "", f"4000_{suffix}") for suffix in KINDS} == {"4000_"}


def test_another_run_in_the_same_files_supersedes_nothing(tmp_path: Path) -> None:
    rows, lake = rows_of_small(), Lake(tmp_path / "lake")
    start, end = (HEADERS["kernel_trace"].split(",").index(f"{side}_Timestamp") for side in ("Start", "End"))
    ingest([write(tmp_path, {"kernel_trace": rows["kernel_trace"]})], lake)
    for row in rows["kernel_trace"]:
        row[start], row[end] = row[start] + 10**12, row[end] + 10**12
    ingest([write(tmp_path, {"kernel_trace": rows["kernel_trace"]})], lake)
    with lake.connect(["traces"]) as con:
        assert con.execute("SELECT count(*) FROM traces").fetchall() == [(2,)]


def test_a_part_alone_names_the_file_to_give(tmp_path: Path) -> None:
    write(tmp_path, rows_of_small())
    with pytest.raises(TraceRejected, match=r"read together with 4000_kernel_trace\.csv"):
        load_trace(memory(), tmp_path / "4000_hip_api_trace.csv")
    (tmp_path / "4000_kernel_trace.csv").unlink()
    (tmp_path / "4000_memory_copy_trace.csv").unlink()
    rows, trace = events(tmp_path / "4000_hip_api_trace.csv")
    assert len(rows) == 6
    assert [finding.detail for finding in trace.findings if finding.check_name == "rocm_missing_table"] == [
        "no …kernel_trace.csv is next to it: no kernels are known"
    ]


def test_examples_of_the_documentation(tmp_path: Path) -> None:
    """The files have the two lines of rocprofiler-sdk's documentation (source/docs/data, commits 029ff02, a6af0d4)."""
    (tmp_path / "x_kernel_trace.csv").write_text(
        '"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id",'
        '"Start_Timestamp","End_Timestamp","Private_Segment_Size","Group_Segment_Size","Workgroup_Size_X",'
        '"Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"\n'
        '"KERNEL_DISPATCH",2,1,1,21228,1,11,"void addition_kernel<float>(float*, float const*, float const*, int, int)",1937,'
        "2414192765353337,2414192765369494,0,0,64,1,1,1024,1024,1\n"
    )
    (tmp_path / "x_memory_copy_trace.csv").write_text(
        '"Kind","Direction","Stream_Id","Source_Agent_Id","Destination_Agent_Id","Correlation_Id","Start_Timestamp",'
        '"End_Timestamp"\n"MEMORY_COPY","MEMORY_COPY_HOST_TO_DEVICE",1,0,2,952,2414192684609085,2414192684710679\n'
    )
    (tmp_path / "x_hip_api_trace.csv").write_text(
        '"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
        '"HIP_COMPILER_API_EXT","__hipRegisterFatBinary",15,15,1,1055015439953054,1055015439976484\n'
    )
    assert events(tmp_path / "x_kernel_trace.csv")[0] == [
        ("X", "cuda_runtime", "__hipRegisterFatBinary", "15", "15", 1055015439953054, 23430, None, None, 1),
        ("X", "gpu_memcpy", "Memcpy HtoD (Host -> Device)", "2", "1", 2414192684609085, 101594, 2, 1, 952),
        ("X", "kernel", "void addition_kernel<float>(float*, float const*, float const*, int, int)", "2", "1",
         2414192765353337, 16157, 2, 1, 1937),
    ]  # fmt: skip


def test_a_folder_named_as_a_column_does_not_replace_it(tmp_path: Path) -> None:
    assert events(write(tmp_path / "Stream_Id=9", rows_of_small()))[0] == whole()[0]


def test_lines_that_are_cut_off_are_left_out_and_told(tmp_path: Path) -> None:
    path = write(tmp_path, rows_of_small())
    path.write_bytes(path.read_bytes()[:-30])
    rows, trace = events(path)
    assert [row[2] for row in rows if row[1] == "kernel"] == ["gemm"]
    assert trace.status == "partial"
    assert [(finding.n, finding.detail) for finding in trace.findings if finding.check_name == "rocm_broken_line"] == [
        (1, "4000_kernel_trace.csv: lines that do not match the first line are skipped, the first is line 3")
    ]


def test_of_ranges_that_begin_together_the_longest_comes_first(unusual: tuple[list[tuple], ReadTrace]) -> None:
    assert [row[2] for row in unusual[0] if row[5] == 1_505] == ["b", "c", "a"]


def test_lines_that_a_stray_quote_swallows_are_all_counted(tmp_path: Path) -> None:
    """DuckDB reads these lines as a single line and keeps its first 10 kB, so a naive count would be 1 or some 300."""
    path = write(tmp_path, rows_of_small())
    counts = {"4000_marker_api_trace.csv": 20_000, "4000_hip_api_trace.csv": 3}
    for name, n in counts.items():
        first = (tmp_path / name).read_text().split("\n")[0]
        rows = [f'"MARKER","before {n} {i}",4000,4000,{i},{i},{i + 1}' for i in range(5)]
        rows += [
            '"MARKER","swallows,4000,4000,9,9,10',
            *(f"MARKER,swallowed,4000,4000,{i},{i},{i + 1}" for i in range(n - 2)),
        ]
        after = f'"MARKER","after {n}\nan end",4000,4000,9,9,10'
        rows += ['"MARKER","the next quote",4000,4000,9,9,10', after, ""]
        assert len(first.split(",")) == 7
        (tmp_path / name).write_text("\n".join([first, *rows]))
    lines, trace = events(path)
    broken = [finding for finding in trace.findings if finding.check_name == "rocm_broken_line"]
    assert {finding.detail.split(": ")[0]: finding.n for finding in broken} == counts and len(broken) == 2
    names = {row[2] for row in lines}
    assert names >= {
        f"{place} {n}{rest}" for n in counts.values() for place, rest in (("before", " 0"), ("after", "\nan end"))
    }
    assert "swallowed" not in names


def test_values_of_other_types_are_null_and_counted(unusual: tuple[list[tuple], ReadTrace]) -> None:
    rows, trace = unusual
    assert [row[5] for row in rows if row[2] == "gemm"] == [None]
    assert sorted(finding.detail.split(":")[0] for finding in trace.findings if finding.check_name == "rocm_wrong_type") == [
        "4000_hip_api_trace.csv", "4000_kernel_trace.csv",
    ]  # fmt: skip


OTHER, LATER, SECOND = 5000, 1_000_000, 900


def of_other(rows: Rows) -> Rows:
    """Return the same run a millisecond later, of another process, with other threads and on another GPU."""
    pid, thread, start = ({"hip_api_trace": n, "marker_api_trace": n} for n in (2, 3, 5))
    thread |= {"kernel_trace": 4}
    start |= {"kernel_trace": 9, "memory_copy_trace": 6}
    other_rows: Rows = {}
    for name, lines in rows.items():
        other_rows[name] = [list(line) for line in lines if name != "agent_info"]
        for line in other_rows[name]:
            if name in pid:
                line[pid[name]] = OTHER
            if name in thread:
                line[thread[name]] += LATER
            line[start[name]] += LATER
            line[start[name] + 1] += LATER
            if name == "kernel_trace":
                line[1] = f"Agent {SECOND}"
    return other_rows


@pytest.mark.slow
def test_each_process_of_merged_files_is_a_trace(tmp_path: Path) -> None:
    """Each process has the events that its own files have, although both count correlation ids from the same number."""
    first = rows_of_small()
    other = of_other(first)
    first["agent_info"].append([SECOND, SECOND, "GPU", "gfx942"])
    merged = write(tmp_path / "merged", {name: [*other[name], *first[name]] for name in first}, "")
    checks = {}
    for pid, alone in ((PID, first), (OTHER, {**other, "agent_info": first["agent_info"]})):
        con = memory()
        trace = load_trace(con, merged, process=str(pid))
        query = "SELECT ph, cat, name, pid, tid, start_ns, duration_ns, device, stream, correlation FROM events WHERE ph <> 'M' ORDER BY ALL"
        rows = con.execute(query).fetchall()
        load_trace(con := memory(), write(tmp_path / str(pid), alone))
        assert rows == con.execute(query).fetchall() and len(rows) > 8
        checks[pid] = {finding.check_name: finding.n for finding in trace.findings}
        assert trace.metadata["distributedInfo"]["rank"] == [PID, OTHER].index(pid)
    assert checks[PID]["rocm_processes"] == 2 and "rocm_no_process" not in checks[PID]
    n_copies = len(first["memory_copy_trace"])
    assert checks[OTHER]["rocm_process_by_call"] == n_copies and "rocm_process_by_call" not in checks[PID]
    with pytest.raises(TraceRejected, match="2 processes with GPU work: 4000, 5000; each is a separate trace"):
        load_trace(memory(), merged)
    assert [row.status for row in ingest([merged], Lake(tmp_path / "lake")).rows] == ["ok", "ok"]


def test_rows_of_no_process_and_of_idle_ones_are_counted(tmp_path: Path) -> None:
    rows = rows_of_small()
    launched, at = rows["kernel_trace"][0][
        8:10
    ]  # the thread identifies the kernel's process, and a later call with the same number does not
    rows["hip_api_trace"] += [["HIP_RUNTIME_API", "hipInit", 7, 70, launched, at - 1, at]] * 2
    rows["kernel_trace"].append([*rows["kernel_trace"][0][:4], 71, *rows["kernel_trace"][0][5:8], 999, 3, 4, *rows["kernel_trace"][0][11:]])  # fmt: skip
    event_rows, trace = events(write(tmp_path, rows))
    checks = {finding.check_name: finding.n for finding in trace.findings}
    assert checks["rocm_idle_processes"] == 2 and checks["rocm_no_process"] == 1
    assert len(event_rows) == len(whole()[0])


@pytest.mark.slow  # tests above cover other stray quotes
def test_a_first_line_that_names_nothing_known(tmp_path: Path) -> None:
    """A stray quote makes the whole header one name, so the file's rows are lost, and a finding reports this."""
    path = write(tmp_path, rows_of_small())
    other = tmp_path / "4000_memory_copy_trace.csv"
    other.write_bytes(b'"' + other.read_bytes())
    rows, trace = events(path)
    assert rows and not [row for row in rows if "COPY" in str(row[2]).upper()]
    assert [
        finding.n
        for finding in trace.findings
        if finding.check_name == "rocm_missing_column" and other.name in finding.detail
    ]


@pytest.mark.slow  # tests above cover other stray quotes
def test_a_stray_quote_in_the_first_line_takes_no_line_with_it_unsaid(tmp_path: Path) -> None:
    """All lines without an event are counted as broken, although DuckDB returns neither rows nor an error."""
    path = write(tmp_path, rows_of_small())
    header, *lines = path.read_bytes().split(b"\n")
    quoted = b'"' + header.strip().replace(b",", b'","') + b'"'
    path.write_bytes(b"\n".join([quoted.replace(b'"Accum', b'""Accum'), *lines]))
    rows, trace = events(path)
    broken = sum(finding.n for finding in trace.findings if finding.check_name == "rocm_broken_line")
    kernels = sum(row[1] == "kernel" for row in rows)
    assert broken == sum(bool(line.strip()) for line in lines) - kernels and broken > 0 and trace.status == "partial"


@pytest.mark.slow  # tests above cover lines that do not fit the header
def test_a_column_without_a_name(tmp_path: Path) -> None:
    """The header ends with a surplus comma. The other columns are read, although the lines are one value short."""
    path = write(tmp_path, rows_of_small())
    other = tmp_path / "4000_memory_copy_trace.csv"
    other.write_bytes(other.read_bytes().replace(b"\n", b",\n"))
    assert events(path)[0] == whole()[0]


@pytest.mark.parametrize("name", first_of(["kernel_trace", "hip_api_trace"], 1))
def test_a_file_that_duckdb_gives_up_is_named(tmp_path: Path, name: str) -> None:
    """A rejection names the file that DuckDB rejects because it has two kinds of line ends."""
    path = write(tmp_path, rows_of_small())
    other = tmp_path / f"4000_{name}.csv"
    first, second, rest = other.read_bytes().split(b"\n", 2)
    other.write_bytes(first + b"\n" + second + b"\r\n" + rest)
    with pytest.raises(TraceRejected, match=f"{other.name}: DuckDB cannot read it as CSV.*copy it again"):
        load_trace(memory(), path)


@pytest.mark.slow  # a test above covers files without agents
def test_what_agents_lack_is_told(tmp_path: Path) -> None:
    path = write(tmp_path, rows_of_small())
    agents = tmp_path / "4000_agent_info.csv"
    whole = agents.read_bytes()
    agents.write_bytes(whole.replace(b"Agent_Type", b"Kind"))
    assert [
        finding.detail.split(":")[0]
        for finding in events(path)[1].findings
        if finding.check_name == "rocm_missing_column"
    ] == ["4000_agent_info.csv has no node_id or no agent_type"]
    agents.write_bytes(whole.rstrip(b"\n") + b",1,2\n")
    rows, trace = events(path)
    assert {row[7] for row in rows} == {None, GPU} and trace.status == "partial"
    assert [finding.n for finding in trace.findings if finding.check_name == "rocm_broken_line"] == [1]


@pytest.mark.slow
@settings(max_examples=examples(30), deadline=None)
@given(st.data())
def test_whatever_happened_to_the_bytes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = write(tmp_path_factory.mktemp("bytes"), rows_of_small())
    other = data.draw(st.sampled_from(sorted(path.parent.iterdir())))
    raw = bytearray(other.read_bytes())
    for _ in range(data.draw(st.integers(1, 8), "changes")):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b'"', b",", b"\n"])
        )
    other.write_bytes(raw)
    try:
        load_trace(memory(), path)
    except TraceRejected as error:
        assert "please report" not in error.reason, error.reason
