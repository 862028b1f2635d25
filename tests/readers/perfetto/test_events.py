"""Each kind of record of a Perfetto trace, in traces written by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

pytest.importorskip("perfetto", reason="reading Perfetto traces needs the extra 'perfetto'")

from pipelines.readers.inputs.single_trace import load_trace
from pipelines.readers.kineto import ReadTrace, TraceRejected
from tests.effort import first_of
from tests.harness import memory
from tests.readers.perfetto.writer import Written, annotate, pb

BEGIN, END, INSTANT, COUNTER = (pb.TrackEvent.Type.Value(f"TYPE_{name}") for name in ("SLICE_BEGIN", "SLICE_END", "INSTANT", "COUNTER"))  # fmt: skip


def loaded(path: Path, content: bytes) -> tuple[duckdb.DuckDBPyConnection, ReadTrace]:
    path.write_bytes(content)
    con = memory()
    return con, load_trace(con, path)


def event(written: Written, ts: int | None, kind: int, track: int | None, name: str = "", **more: Any) -> Any:
    packet = written.packet(ts)
    packet.track_event.type = kind
    if track is not None:
        packet.track_event.track_uuid = track
    if name:
        packet.track_event.name = name
    for key, value in more.items():
        setattr(packet, key, value)
    return packet


def spans(con: duckdb.DuckDBPyConnection) -> list[tuple]:
    return con.execute(
        "SELECT ph, name, start_ns, duration_ns FROM events WHERE ph <> 'M' ORDER BY event_id"
    ).fetchall()


def test_slices_nest_by_time(tmp_path: Path) -> None:
    written = Written()
    track = written.track(7, 8, "main")
    for ts, kind, name in ((10, BEGIN, "a"), (12, BEGIN, "b"), (15, END, ""), (15, INSTANT, "now"), (20, END, "")):
        event(written, ts, kind, track, name)
    con, trace = loaded(tmp_path / "a.pftrace", written.bytes())
    assert spans(con) == [("X", "a", 10, 10), ("X", "b", 12, 3), ("i", "now", 15, None)]
    assert con.execute("SELECT DISTINCT pid, tid FROM events WHERE ph = 'X'").fetchall() == [("7", "8")]
    names = con.execute("SELECT name, args FROM events WHERE ph = 'M' ORDER BY ALL").fetchall()
    assert names == [("process_name", '{"name":"python"}'), ("thread_name", '{"name":"main"}')]
    assert {finding.check_name for finding in trace.findings} == {"perfetto_boot_time", "unread_events"}
    assert trace.status == "ok"


def of_rocprofv3(stage: str = "") -> Written:
    """Return a kernel as `rocprofv3 --output-format pftrace` writes it, on a track without a process.

    With `stage`, also return GPU work as a render stage, as PyTorch writes it.
    """
    written = Written()
    written.descriptors.append(pb.TracePacket(track_descriptor=pb.TrackDescriptor(uuid=99, name="AGENT [0] QUEUE [0]")))
    for ts, track, category, name in (
        (10, written.track(7, 8, "main"), "hip_api", "hipLaunchKernel"),
        (30, 99, "kernel_dispatch", "gemm"),
    ):
        event(written, ts, BEGIN, track, name).track_event.categories.append(category)
        event(written, ts + 5, END, track)
    if stage:
        written.stage({"cat": stage, "ts": 1, "dur": 2, "tid": 7, "name": "gemm", "args": {"device": 0}}, 0)
    return written


def test_gpu_work_of_unknown_category_is_a_finding(tmp_path: Path) -> None:
    _, trace = loaded(tmp_path / "a.pftrace", of_rocprofv3().bytes())
    (unread,) = [finding for finding in trace.findings if finding.check_name == "unread_events"]
    assert (unread.severity, unread.n) == ("warning", 2)
    assert unread.detail == (
        "no GPU work is read, but 2 events have no known category (1 of python (hip_api), 1 of no process "
        "(kernel_dispatch)): if these are the device's work, it is missing from all numbers; of rocprofv3, give its "
        "database, JSON or CSV files"
    )
    _, trace = loaded(tmp_path / "b.pftrace", of_rocprofv3("kernel").bytes())
    assert "unread_events" not in {finding.check_name for finding in trace.findings}


def test_slices_that_touch_are_paired_by_their_order(tmp_path: Path) -> None:
    """PyTorch writes all begins and then all ends.

    So time alone does not determine which end belongs to which slice.
    """
    written = Written()
    track = written.track(7, 8, "main")
    for kind, times in ((BEGIN, (10, 20, 20, 30)), (END, (20, 30, 25, 30))):
        for ts, name in zip(times, "abcd", strict=True):
            event(written, ts, kind, track, name if kind == BEGIN else "")
    con, _ = loaded(tmp_path / "a.pftrace", written.bytes())
    assert spans(con) == [("X", "a", 10, 10), ("X", "b", 20, 10), ("X", "c", 20, 5), ("X", "d", 30, 0)]


@pytest.mark.slow  # rare; tests above cover nested slices
def test_one_that_would_end_before_it_begins_makes_all_of_its_run_nest_by_time(tmp_path: Path) -> None:
    written = Written()
    track = written.track(7, 8, "main")
    for ts, kind, name in ((10, BEGIN, "a"), (20, BEGIN, "b"), (25, END, ""), (18, END, "")):
        event(written, ts, kind, track, name)
    con, _ = loaded(tmp_path / "a.pftrace", written.bytes())
    assert spans(con) == [("X", "a", 10, 8), ("X", "b", 20, 5)]


def test_what_has_no_other_half_is_counted(tmp_path: Path) -> None:
    written = Written()
    track = written.track(7, 8, "main")
    event(written, 5, END, track)
    for ts, name in ((10, "a"), (20, "b")):
        event(written, ts, BEGIN, track, name)
    event(written, 30, END, track)
    con, _ = loaded(tmp_path / "a.pftrace", written.bytes())
    assert spans(con) == [("E", None, 5, None), ("B", "a", 10, None), ("X", "b", 20, 10)]


@pytest.mark.slow  # a test above covers an end without a begin
def test_ends_before_all_begins(tmp_path: Path) -> None:
    """Each of two writers has an end before its first begin, as in a trace that begins within slices."""
    written = Written()
    track = written.track(7, 8, "main")
    for writer in (1, 2):
        for ts, kind in ((5, END), (10, BEGIN), (20, END)):
            event(written, ts + writer, kind, track, "a" if kind == BEGIN else "", trusted_packet_sequence_id=writer)
    con, _ = loaded(tmp_path / "a.pftrace", written.bytes())
    assert spans(con) == [("E", None, 6, None), ("E", None, 7, None), ("X", "a", 11, 10), ("X", "a", 12, 10)]


@pytest.mark.slow  # a test below covers arrows
def test_arrows_of_ends(tmp_path: Path) -> None:
    """An end that closes a slice is not a separate event and has no arrow.

    An end without a begin is an event and has an arrow.
    """
    written = Written()
    track = written.track(7, 8, "main")
    for ts, kind, name in ((5, END, ""), (10, BEGIN, "a"), (20, END, ""), (30, INSTANT, "b")):
        event(written, ts, kind, track, name).track_event.flow_ids.append(3)
    con, _ = loaded(tmp_path / "a.pftrace", written.bytes())
    rows = con.execute("SELECT ph, start_ns, name FROM events WHERE ph <> 'M' ORDER BY event_id").fetchall()
    assert rows == [
        ("E", 5, None), ("s", 5, "ac2g"), ("X", 10, "a"), ("f", 10, "ac2g"), ("i", 30, "b"), ("f", 30, "ac2g")
    ]  # fmt: skip


def test_names_hold_until_the_state_is_cleared(tmp_path: Path) -> None:
    written = Written()
    track = written.track(7, 8, "main")
    for ts, iid, flags in ((10, 1, 0), (20, 1, pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED)):
        packet = event(written, ts, INSTANT, track, sequence_flags=flags)
        packet.track_event.name_iid = iid
        if not flags:
            packet.interned_data.event_names.add(iid=1, name="first")
    con, trace = loaded(tmp_path / "a.pftrace", written.bytes())
    assert spans(con) == [("i", "first", 10, None), ("i", None, 20, None)]
    assert [
        (finding.n, finding.severity) for finding in trace.findings if finding.check_name == "perfetto_missing_text"
    ] == [(1, "warning")]


def test_clocks(tmp_path: Path) -> None:
    """The test covers an incremental clock in us that belongs to the writer, and an unknown clock."""
    written = Written()
    track = written.track(7, 8, "main")
    snapshot = written.packet().clock_snapshot
    snapshot.clocks.add(clock_id=6, timestamp=1_000_000)
    snapshot.clocks.add(clock_id=64, timestamp=50, is_incremental=True, unit_multiplier_ns=1000)
    written.packet().trace_packet_defaults.timestamp_clock_id = 64
    for ts, name in ((3, "a"), (4, "b")):
        event(written, ts, INSTANT, track, name)
    event(written, 9, INSTANT, track, "c", timestamp_clock_id=77)
    con, trace = loaded(tmp_path / "a.pftrace", written.bytes())
    assert sorted(spans(con), key=str) == [
        ("i", "a", 1_003_000, None), ("i", "b", 1_007_000, None), ("i", "c", None, None)
    ]  # fmt: skip
    assert [finding.n for finding in trace.findings if finding.check_name == "perfetto_unknown_clock"] == [1]


def test_an_incremental_clock_counts_packets_that_are_not_read(tmp_path: Path) -> None:
    written = Written()
    track = written.track(7, 8, "main")
    snapshot = written.packet().clock_snapshot
    snapshot.clocks.add(clock_id=6, timestamp=1_000_000)
    snapshot.clocks.add(clock_id=64, timestamp=0, is_incremental=True)
    written.packet().trace_packet_defaults.timestamp_clock_id = 64
    event(written, 100, BEGIN, track, "a")
    event(written, 50, COUNTER, 5)
    written.packet(20).gpu_counter_event.SetInParent()
    event(written, 100, END, track)
    con, _ = loaded(tmp_path / "a.pftrace", written.bytes())
    assert spans(con) == [("X", "a", 1_000_100, 170)]


def test_arrows(tmp_path: Path) -> None:
    written = Written()
    track = written.track(7, 8, "main")
    for ts in (10, 20):
        event(written, ts, INSTANT, track, "x").track_event.flow_ids.append(2**64 - 1)
    con, _ = loaded(tmp_path / "a.pftrace", written.bytes())
    rows = con.execute(
        "SELECT ph, start_ns, flow_id FROM events WHERE flow_id IS NOT NULL ORDER BY start_ns"
    ).fetchall()
    assert rows == [("s", 10, "-1"), ("f", 20, "-1")]


def test_what_is_not_read_is_counted(tmp_path: Path) -> None:
    written = Written()
    event(written, 10, INSTANT, written.track(7, 8, "main"), "x")
    event(written, 10, COUNTER, 5)
    written.packet(11).gpu_counter_event.SetInParent()
    event(written, 12, INSTANT, 99, "on no track")
    event(written, None, INSTANT, 99, "never")
    con, trace = loaded(tmp_path / "a.pftrace", written.bytes())
    findings = {finding.check_name: (finding.severity, finding.n) for finding in trace.findings}
    assert findings.pop("perfetto_boot_time") == ("info", 1)
    assert findings == {
        "perfetto_left_out": ("info", 2), "perfetto_no_track": ("warning", 2), "perfetto_without_time": ("warning", 1)
    }  # fmt: skip
    assert con.execute("SELECT count(*) FROM events WHERE ph = 'i' AND pid IS NULL").fetchall() == [(2,)]


def test_an_empty_list_is_one(tmp_path: Path) -> None:
    """An empty list stays a list, which PyTorch writes as an annotation without a value.

    Null becomes a text, because PyTorch writes it as one (emitJsonValue).
    """
    args = {"Input Dims": [[128, 256], []], "Concrete Inputs": [], "Input type": ["float", None]}
    written = Written()
    packet = event(written, 10, INSTANT, written.track(7, 8, "main"), "aten::mul")
    for key, value in args.items():
        annotate(packet.track_event.debug_annotations.add(name=key), value)
    con, _ = loaded(tmp_path / "a.pftrace", written.bytes())
    ((text,),) = con.execute("SELECT args FROM events WHERE ph = 'i'").fetchall()
    assert json.loads(text) == args | {"Input type": ["float", "null"]}


@pytest.mark.parametrize("is_last", [True, False])
def test_an_annotation_of_a_kernel_does_not_move_it(tmp_path: Path, is_last: bool) -> None:
    """An annotation named stream does not change the stream of its kernel.

    `mark_kernels({"stream": 60})` of torch.cuda._graph_annotations is stored next to PyTorch's own `stream id`.
    """
    written = Written()
    args = {"device": 0, "stream": 7, "graph node id": 4}
    written.stage({"cat": "kernel", "ts": 1, "dur": 2, "tid": 7, "name": "gemm", "args": args}, 0)
    data = written.trace.packet[-1].gpu_render_stage_event.extra_data
    stated = [(datum.name, datum.value) for datum in data]
    annotation = [("stream", "60"), ("device", "3"), ("name", "phase")]
    del data[:]
    for name, value in (*stated, *annotation) if is_last else (*annotation, *stated):
        data.add(name=name, value=value)
    con, _ = loaded(tmp_path / "a.pftrace", written.bytes())
    query = "SELECT pid, tid, device, stream, args ->> '$.stream', args ->> '$.name' FROM events WHERE ph = 'X'"
    assert con.execute(query).fetchall() == [("0", "7", 0, 7, "7", "phase")]


@pytest.mark.slow  # test_kinds.py tests GPU work
def test_work_without_a_gpu_has_the_device_of_its_arguments(tmp_path: Path) -> None:
    """Work without a GPU has the device of its arguments, because Protobuf omits unset fields, such as GPU 0.

    A row without a process would belong to no thread.
    """
    written = Written()
    written.track(7, 8, "main")
    written.stage({"cat": "kernel", "ts": 1, "dur": 2, "tid": 7, "name": "gemm", "args": {"device": 1}}, 0)
    written.trace.packet[-1].gpu_render_stage_event.ClearField("gpu_id")
    con, _ = loaded(tmp_path / "a.pftrace", written.bytes())
    assert con.execute("SELECT pid, tid, device FROM events WHERE ph = 'X'").fetchall() == [("1", "7", 1)]


@pytest.mark.parametrize("pack", first_of([bytes, gzip.compress], 1))
def test_a_file_that_is_cut_off_keeps_what_came_before(tmp_path: Path, pack: Any) -> None:
    written = Written()
    track = written.track(7, 8, "main")
    for ts in range(5_000):
        event(written, ts, INSTANT, track, f"{ts * 7919}")
    whole = pack(written.bytes())
    con, trace = loaded(tmp_path / "a.pftrace", whole[: len(whole) * 3 // 4])
    (n,) = con.execute("SELECT count(*) FROM events WHERE ph = 'i'").fetchall()[0]
    assert 3_000 < n < 4_500
    assert (trace.status, [finding.severity for finding in trace.findings if finding.check_name == "truncated"]) == (
        "partial",
        ["error"],
    )


def test_a_broken_packet_is_left_out_and_counted(tmp_path: Path) -> None:
    written = Written()
    event(written, 10, INSTANT, written.track(7, 8, "main"), "x")
    con, trace = loaded(tmp_path / "a.pftrace", b"\x0a\x03\xff\xff\xff" + written.bytes())
    assert len(spans(con)) == 1
    assert [
        (finding.n, finding.severity) for finding in trace.findings if finding.check_name == "perfetto_broken_packet"
    ] == [(1, "error")]


def test_a_trace_without_slices_is_rejected(tmp_path: Path) -> None:
    written = Written()
    written.packet(11).gpu_counter_event.SetInParent()
    with pytest.raises(TraceRejected, match=r"no slice or GPU work.*1 gpu_counter_event"):
        loaded(tmp_path / "a.pftrace", written.bytes())


def test_text_that_is_not_utf8_is_shown_as_such(tmp_path: Path) -> None:
    written = Written()
    event(written, 10, INSTANT, written.track(7, 8, "main"), "xyz")
    con, _ = loaded(tmp_path / "a.pftrace", written.bytes().replace(b"xyz", b"x\xffz"))
    assert spans(con) == [("i", "x\ufffdz", 10, None)]


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACELAKE_MAX_EVENT_MIB", "1")
    written = Written()
    event(written, 10, INSTANT, written.track(7, 8, "main"), "x")
    event(written, 11, INSTANT, 1, "y" * (2 << 20))
    con, trace = loaded(tmp_path / "a.pftrace", written.bytes())
    assert len(spans(con)) == 1
    assert ["--max-event-mib" in finding.detail for finding in trace.findings if finding.check_name == "truncated"] == [
        True
    ]


def test_json_with_this_name_is_read_as_json(tmp_path: Path) -> None:
    """JSON is read as JSON even in a file named .pftrace.

    torch.profiler writes JSON under any file name if the CUPTI monitor does not run.
    """
    content = b'{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1}]}'
    con, trace = loaded(tmp_path / "a.pftrace", content)
    assert (trace.format, len(spans(con))) == ("json/object", 1)
