"""Large Perfetto traces as PyTorch writes them: groups of slices, all begins and then all ends, and GPU work.

Building each packet in Python is slower than reading it. So one group is built, and its bytes are repeated with shifted
times. Each time is a nine-byte varint, so the length stays the same.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.readers.perfetto.writer import STAGES, Written, pb

SLICES = 2_000
"""Slices of threads in a group, in addition to KERNELS kernels on a GPU."""
KERNELS = 500
_FIRST_NS = 1_780_000_000_000_000_000
_STEP_NS = 10_000
_BYTES = 9


def write_large(path: Path, groups: int) -> int:
    """Write this number of groups in sequence, and return the number of slices and GPU activities."""
    written = Written()
    args = {"External id": 1, "Sequence number": 2, "Input Dims": [[1, 2, 3]] * 4}
    slices = [
        {"name": f"aten::op{i % 50}", "pid": 7, "tid": 8, "ts": 10 * i, "dur": 5, "args": args} for i in range(SLICES)
    ]
    written.group(slices, _FIRST_NS)
    for i in range(KERNELS):
        work = {"device": 0, "stream": 7, "correlation": i + 1, "grid": [8, 1, 1], "block": [128, 1, 1]}
        kernel = {"name": f"gemm_{i % 20}", "cat": "kernel", "ts": 40 * i, "dur": 30, "tid": 7, "args": work}
        written.stage(kernel, _FIRST_NS)
    group, places, times = _packets(written.trace)
    head = written.bytes()[: -len(group)]
    with path.open("wb") as file:
        file.write(head)
        for n in range(groups):
            moved = np.frombuffer(group, np.uint8).copy()
            moved[places[:, None] + np.arange(_BYTES)] = _varints(times + n * SLICES * _STEP_NS)
            file.write(moved.tobytes())
    assert STAGES["kernel"] == 1
    return groups * (SLICES + KERNELS)


def _packets(trace: pb.Trace) -> tuple[bytes, np.ndarray, np.ndarray]:
    """Return the trace's bytes, the offsets of all times in them, and the times in ns."""
    whole, places, times = bytearray(), [], []
    for packet in trace.packet:
        encoded = pb.Trace(packet=[packet]).SerializeToString()
        known = bytes(_varints(np.array([packet.timestamp]))[0])
        places.append(len(whole) + encoded.index(known))
        times.append(packet.timestamp)
        whole += encoded
    return bytes(whole), np.array(places), np.array(times)


def _varints(values: np.ndarray) -> np.ndarray:
    """Return numbers from 2^56 to 2^63 as protobuf varints, one row of nine bytes each."""
    shifts = 7 * np.arange(_BYTES)
    parts = (values[:, None] >> shifts) & 0x7F
    parts[:, :-1] |= 0x80
    return parts.astype(np.uint8)
