"""Memory for reading a trace: it does not grow with the file, and stays below the bound in docs/limits.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.synthetic.capture import CaptureSpec, write_capture
from tests.readers.sqlite_exports.test_memory import peak_mb

BOUND_MB = 700


def repeated(path: Path, events: list[dict], size: int) -> int:
    """Write a trace of at least `size` bytes that repeats the events, and return its number of events."""
    block = ", ".join(json.dumps(event) for event in events).encode()
    times = -(-size // (len(block) + 2))
    with path.open("wb") as file:
        file.write(b'{"traceEvents": [')
        for number in range(times):
            file.write((b", " if number else b"") + block)
        file.write(b"]}")
    return times * len(events)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    (capture,) = write_capture(CaptureSpec(ranks=1, steps=20, gz=False), tmp_path / "capture").paths
    events = json.loads(capture.read_bytes())["traceEvents"]
    peaks = {}
    for megabytes in (250, 750):  # the smaller file already fills every reader
        path = tmp_path / f"{megabytes}.json"
        written = repeated(path, events, megabytes << 20)
        n_events, peaks[megabytes] = peak_mb(path, tmp_path)
        assert n_events == written
        path.unlink()
    assert peaks[750] < 1.2 * peaks[250], peaks
    assert peaks[750] < BOUND_MB, peaks
