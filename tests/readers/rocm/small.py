"""A small hand-written run: an operator launches a copy and two kernels, then the program waits for them."""

from __future__ import annotations

from tests.readers.rocm.writer import CPU, GPU, GUID, Database

PID = 4000


def small(pid: int = PID, guid: str = GUID) -> Database:
    """Return the database of the run, with times in ns since the machine's start."""
    database = Database(pid, guid)
    database.agent(GPU, "GPU", 0, "AMD Instinct MI300X", {"cu_count": 304, "wave_front_size": 64})
    database.thread(pid, "main")
    database.marker("aten::mm, seq = 7, op_id = 3, sizes = [[2, 3], [3, 4]]", 1_000, 90_000, 101, pid)
    database.marker("a mark", 1_500, 1_500, 102, pid, "roctxMarkA")
    database.call("hipMemcpyAsync", 2_000, 3_000, 10, pid)
    database.copy("HOST_TO_DEVICE", 4_000, 7_000, 10, 0, pid, 4096, (CPU, GPU))
    database.call("hipLaunchKernel", 5_000, 6_000, 11, pid)
    database.dispatch("gemm", 8_000, 40_000, 11, 0, pid, grid=(7, 2, 1), block=(64, 2, 1))
    database.call("hipLaunchKernel", 13_000, 16_000, 14, pid)
    database.dispatch("relu", 41_000, 60_000, 14, 0, pid)
    database.call("hipDeviceSynchronize", 20_000, 61_000, 15, pid)
    return database
