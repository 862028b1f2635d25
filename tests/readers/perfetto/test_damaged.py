"""Perfetto files with any bytes.

Each is rejected with a clear reason, or gives a trace with findings. None is accepted silently or causes another error.
"""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("perfetto", reason="reading Perfetto traces needs the extra 'perfetto'")


from pipelines.readers.inputs.single_trace import load_trace
from pipelines.readers.kineto import TraceRejected
from tests.effort import examples
from tests.harness import memory
from tests.readers.perfetto.test_events import BEGIN, END, event
from tests.readers.perfetto.writer import Written, pb

N = 40


def small() -> bytes:
    """Return forty slices of one thread, each in its own two packets."""
    written = Written()
    track = written.track(7, 8, "main")
    for i in range(N):
        event(written, 10 * i, BEGIN, track, f"slice {i}")
        event(written, 10 * i + 5, END, track)
    return written.bytes()


WHOLE = small()


def boundaries() -> set[int]:
    """Return the offsets at which packets begin or end."""
    packets = pb.Trace.FromString(WHOLE).packet
    places = {0}
    for packet in packets:
        places.add(max(places) + len(pb.Trace(packet=[packet]).SerializeToString()))
    return places


BOUNDARIES = boundaries()


@pytest.mark.slow  # test_events.py tests a single cut
@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, len(WHOLE) - 1), st.booleans())
def test_a_cut_is_never_silent(tmp_path_factory: pytest.TempPathFactory, end: int, packed: bool) -> None:
    """The rows are events of the original, and a finding reports missing events."""
    path = tmp_path_factory.mktemp("cut") / "a.pftrace"
    path.write_bytes(gzip.compress(WHOLE)[: -1 - end % 60] if packed else WHOLE[:end])
    con = memory()
    try:
        trace = load_trace(con, path)
    except TraceRejected as error:
        assert str(error)
        return
    names = {name for (name,) in con.execute("SELECT name FROM events WHERE ph = 'X'").fetchall()}
    assert names <= {f"slice {i}" for i in range(N)}
    checks = {finding.check_name for finding in trace.findings}
    # A cut between two packets is visible only if a slice has lost its end.
    assert len(names) == N or checks & {"truncated", "unmatched_begin"} or (not packed and end in BOUNDARIES)


@pytest.mark.slow
@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_changed_bytes_are_no_bug(tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]) -> None:
    changed = bytearray(WHOLE)
    for place, value in changes:
        changed[place] = value
    path = tmp_path_factory.mktemp("changed") / "a.pftrace"
    path.write_bytes(changed)
    con = memory()
    try:
        trace = load_trace(con, path)
    except TraceRejected as error:
        assert "Error" not in str(error)
        return
    (n,) = con.execute("SELECT count(*) FROM events WHERE ph = 'X'").fetchall()[0]
    assert n == N or trace.findings
