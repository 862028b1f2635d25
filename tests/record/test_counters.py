"""Counters: files of /proc as proc(5) documents them, a busy process and a sleeping one, a fake NVML."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipelines.record import gpu, host
from pipelines.record.counters import _wait, main
from pipelines.record.folder import Recording
from pipelines.record.host import ProcessGone, parse_io, parse_stat, parse_statm, parse_status, read_proc
from pipelines.record.sampler import CounterSampler

TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def test_stat_counts_fields_from_the_last_bracket() -> None:
    fields = [str(number) for number in range(4, 53)]  # proc(5) numbers the fields from 1; 3 is the state
    stat = parse_stat(f"77 (a) b (c)) R {' '.join(fields)}\n")
    assert stat == {
        "state": "R",
        "minflt": 10,
        "majflt": 12,
        "utime_ns": 14 * TICK_NS,
        "stime_ns": 15 * TICK_NS,
        "n_threads": 20,
        "start_ticks": 22,
        "cpu_last": 39,
    }


def test_other_files_of_proc() -> None:
    assert parse_statm("100 50 20 5 0 30 0\n") == {
        "rss_bytes": 50 * PAGE,
        "shared_bytes": 20 * PAGE,
        "data_bytes": 30 * PAGE,
    }
    status = "Name:\tpython\nThreads:\t3\nvoluntary_ctxt_switches:\t41\nnonvoluntary_ctxt_switches:\t7\n"
    assert parse_status(status) == {"vol_ctx": 41, "invol_ctx": 7}
    io = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n"
    assert parse_io(io) == {"io_read_bytes": 4096, "io_write_bytes": 8192}
    assert parse_io("rchar: 1\n") == {"io_read_bytes": None, "io_write_bytes": None}


def test_what_may_not_be_read_is_none(tmp_path: Path) -> None:
    (folder := tmp_path / "5").mkdir()
    for name in ("stat", "statm", "status"):
        (folder / name).write_bytes(Path(f"/proc/self/{name}").read_bytes())
    counters = read_proc(5, tmp_path)  # the file io is missing, as for a zombie
    assert counters["io_read_bytes"] is None and counters["n_threads"] >= 1


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_this_process_s_own_counters() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF)
    counters = read_proc(os.getpid())
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert before.ru_utime - 0.02 <= counters["utime_ns"] / 1e9 <= after.ru_utime + 0.02
    assert before.ru_minflt <= counters["minflt"] <= after.ru_minflt
    assert 0 < counters["rss_bytes"] <= after.ru_maxrss * 1024 * 1.1


@pytest.mark.slow  # 2 s; the test above reads this process's own counters
def test_a_busy_and_a_sleeping_process_differ(tmp_path: Path) -> None:
    work = "import time; t = time.process_time()\nwhile time.process_time() - t < 0.5: pass"
    for name, code in (("busy", work), ("idle", "import time; time.sleep(0.5)")):
        assert main(["--hz", "50", "--out", str(tmp_path / name), "--", sys.executable, "-c", code]) == 0
    cpu = {}
    for name in ("busy", "idle"):
        rows = table(tmp_path / name, "host_samples")
        cpu[name] = max(row["utime_ns"] + row["stime_ns"] for row in rows) / 1e9
        times = [row["t_mono_ns"] for row in rows]
        assert times == sorted(set(times)) and len(times) >= 5
    assert cpu["busy"] > 0.4 and cpu["idle"] < 0.3 and cpu["busy"] - cpu["idle"] > 0.25


def table(folder: Path, name: str) -> list[dict]:
    return [row for path in sorted(folder.rglob(f"{name}*.parquet")) for row in pq.read_table(path).to_pylist()]


def test_the_cost_is_said_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with CounterSampler(os.getpid(), tmp_path, hz=100, run_id="r", rank=3) as sampler:
        time.sleep(0.3)
        cost = sampler.stop()
    (row,) = table(tmp_path, "recordings")
    n = len(table(tmp_path, "host_samples"))
    assert n == cost.n_samples == len(table(tmp_path, "gpu_samples")) and n + cost.n_late <= 35
    assert (row["run_id"], row["rank"], row["cost_ns"], row["n_late"]) == ("r", 3, cost.cpu_ns, cost.n_late)
    assert 0 < cost.cpu_ns < cost.elapsed_ns and f"{n} samples" in str(cost)


def test_stopping_again_gives_the_same_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopping the sampler again returns the same cost, without a second shutdown of NVML.

    The end of the `with` block stops the sampler again. NVML refuses a second shutdown.
    """
    shut_down: list[int] = []
    nvml = Nvml(nvmlInit=lambda: None, nvmlShutdown=lambda: shut_down.append(1), nvmlDeviceGetCount=lambda: 2)
    nvml.nvmlDeviceGetHandleByIndex = lambda index: index
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with CounterSampler(os.getpid(), tmp_path, hz=100) as sampler:
        time.sleep(0.05)
        cost = sampler.stop()
    assert sampler.stop() is cost
    assert shut_down == [1]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_full_disk_and_a_lost_driver_end_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    def lost() -> None:
        raise Nvml.NVMLError("Uninitialized")

    nvml = Nvml(nvmlInit=lambda: None, nvmlShutdown=lost, nvmlDeviceGetCount=lambda: 1)
    nvml.nvmlDeviceGetHandleByIndex = lambda index: index
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with CounterSampler(os.getpid(), tmp_path / "lost", hz=100):
        pass
    (row,) = table(tmp_path / "lost", "recordings")
    assert row["state"] == "complete"
    with pytest.warns(RuntimeWarning, match="counters cannot be written"), CounterSampler(os.getpid(), tmp_path):
        monkeypatch.setattr("pipelines.record.folder.pq.write_table", full)


def test_a_process_that_ends_ends_the_recording(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    sampler = CounterSampler(child.pid, tmp_path, hz=100)
    time.sleep(0.1)
    child.communicate(b"\n")
    until = time.monotonic() + 10
    while sampler.is_alive and time.monotonic() < until:
        time.sleep(0.01)
    assert not sampler.is_alive
    assert sampler.stop().n_samples > 0


def test_errors_name_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(ProcessGone, match=f"no process {gone.pid}"):
        CounterSampler(gone.pid, tmp_path)
    assert main(["--pid", str(gone.pid), "--out", str(tmp_path)]) == 1
    assert f"no process {gone.pid}" in capsys.readouterr().err
    assert main(["--out", str(tmp_path), "--", "/no/such/command"]) == 1
    assert "/no/such/command" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_command_s_exit_status_is_passed_on(tmp_path: Path) -> None:
    assert main(["--out", str(tmp_path), "--", sys.executable, "-c", "raise SystemExit(7)"]) == 7


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, ["wait"]), (signal.SIGTERM, ["terminate", "wait"])])
def test_ctrl_c_leaves_the_command_to_save_its_work(number: signal.Signals, expected: list[str]) -> None:
    """On Ctrl-C the recorder only waits for the command, because the terminal sends Ctrl-C to both.

    On SIGTERM the recorder terminates the command.
    """
    calls: list[str] = []

    class Command:
        def poll(self) -> None:
            signal.raise_signal(number)

        def terminate(self) -> None:
            calls.append("terminate")

        def wait(self) -> int:
            calls.append("wait")
            return 7

    command: Any = Command()
    sampler: Any = None
    assert _wait(command, sampler, None) == 7
    assert calls == expected


def test_a_command_that_saves_its_work_after_ctrl_c_can_still_be_ended() -> None:
    calls: list[str] = []

    class Command:
        def poll(self) -> None:
            signal.raise_signal(signal.SIGINT)

        def terminate(self) -> None:
            calls.append("terminate")

        def wait(self) -> int:
            signal.raise_signal(signal.SIGTERM)
            return 7

    command: Any = Command()
    sampler: Any = None
    assert _wait(command, sampler, None) == 7
    assert calls == ["terminate"]


def test_the_command_goes_on_when_the_time_is_over() -> None:
    calls: list[str] = []
    answers = iter([None, None, 7])

    def poll() -> int | None:
        calls.append("poll")
        return next(answers)

    command: Any = SimpleNamespace(poll=poll, returncode=7)
    sampler: Any = SimpleNamespace(stop=lambda: calls.append("stop"))
    assert _wait(command, sampler, seconds=0) == 7
    assert calls == ["poll", "stop", "poll", "poll"]


def test_a_process_that_is_sampled_for_a_time_ends_nothing() -> None:
    assert _wait(None, SimpleNamespace(is_alive=True), seconds=0) == 0  # type: ignore[arg-type]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_zombie_has_no_counters() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    try:
        with pytest.raises(ProcessGone, match=f"no process {child.pid}"):
            host.reader(child.pid)()
        assert read_proc(child.pid)["state"] == "Z"
    finally:
        child.wait()


def test_an_error_while_sampling_leaves_the_command_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = count()
    read = host._text

    def fails_later(path: str) -> str:
        if next(reads) > 40:
            raise OSError(23, "Too many open files in system")
        return read(path)

    monkeypatch.setattr(host, "_text", fails_later)
    code = "import time; time.sleep(0.8); raise SystemExit(7)"
    with pytest.warns(RuntimeWarning, match=r"no counters after sample \d+: .*Too many open files"):
        assert main(["--hz", "50", "--out", str(tmp_path), "--", sys.executable, "-c", code]) == 7
    assert next(reads) > 41 and table(tmp_path, "recordings")[0]["state"] == "complete"


def test_bytes_that_are_not_utf8_are_recorded_as_escapes(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 are recorded as escapes.

    A command's argument and a row have such bytes. The other rows are kept.
    """
    assert main(["--out", str(tmp_path), "--", sys.executable, "-c", "raise SystemExit(7)", "x\udce9"]) == 7
    assert table(tmp_path, "recordings")[0]["command"].endswith("x\\udce9'")
    recording = Recording(tmp_path / "rows", "stacks", None, os.getpid(), None)
    recording.add("stack_samples", [{"thread": "a"}, {"thread": "b\udce9"}])
    recording.close()
    assert [row["thread"] for row in table(tmp_path / "rows", "stack_samples")] == ["a", "b\\udce9"]


class Nvml(SimpleNamespace):
    """Two GPUs, of which the second reports only its clock."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU, NVML_SUCCESS = 1, 2, 0, 0
    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 138, 139

    def __getattr__(self, name: str) -> object:
        def refuse(*_: object) -> None:
            raise Nvml.NVMLError("Not Supported")

        answers = {
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=91, memory=40),
            "nvmlDeviceGetPowerUsage": 312_500,
            "nvmlDeviceGetUUID": b"GPU-1",
        }
        if name == "nvmlDeviceGetClockInfo":
            return lambda handle, kind: 1000 * kind + handle
        return lambda handle, *_: answers[name] if handle == 0 and name in answers else refuse()


def test_gpus_that_tell_little_have_nulls(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml(nvmlInit=lambda: None, nvmlShutdown=lambda: None, nvmlDeviceGetCount=lambda: 2)
    nvml.nvmlDeviceGetHandleByIndex = lambda index: index
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    gpus = gpu.Gpus()
    first, second = gpus.sample()
    assert gpus.source == "nvml"
    assert (first["gpu_uuid"], first["sm_util"], first["mem_util"], first["power_w"]) == ("GPU-1", 91, 40, 312.5)
    assert (first["sm_clock_mhz"], first["mem_clock_mhz"], first["temp_c"]) == (1000, 2000, None)
    assert {key for key, value in second.items() if value is not None} == {"gpu_index", "sm_clock_mhz", "mem_clock_mhz"}
    gpus.close()


def test_nvlink_counts_are_sums_over_all_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second GPU has no links: the query succeeds, the field does not."""
    all_links = 0xFFFFFFFF

    def values(handle: int, fields: list[tuple[int, int]]) -> list[SimpleNamespace]:
        ((field, link),) = fields
        assert link == all_links
        return [SimpleNamespace(nvmlReturn=3 * handle, value=SimpleNamespace(ullVal=1000 + field))]

    nvml = Nvml(nvmlInit=lambda: None, nvmlShutdown=lambda: None, nvmlDeviceGetCount=lambda: 2)
    nvml.nvmlDeviceGetHandleByIndex = lambda index: index
    nvml.nvmlDeviceGetFieldValues = values
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    gpus = gpu.Gpus()
    assert [(row["nvlink_tx_kb"], row["nvlink_rx_kb"]) for row in gpus.sample()] == [(1138, 1139), (None, None)]
    gpus.close()


def test_no_sample_waits_for_pcie_rates_and_each_reading_is_in_one_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go, threads = threading.Event(), set()

    def throughput(handle: int, kind: int) -> int:
        threads.add(threading.get_ident())
        let_go.wait(20)
        return 100 * handle + kind

    nvml = Nvml(nvmlInit=lambda: None, nvmlShutdown=lambda: None, nvmlDeviceGetCount=lambda: 2)
    nvml.nvmlDeviceGetHandleByIndex = lambda index: index
    nvml.nvmlDeviceGetPcieThroughput = throughput
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    gpus = gpu.Gpus()
    assert [(row["pcie_rx_kbs"], row["pcie_tx_kbs"]) for row in gpus.sample()] == [(None, None)] * 2
    let_go.set()
    rates: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
    until = time.monotonic() + 10
    while not all(rates.values()) and time.monotonic() < until:
        for row in gpus.sample():
            if row["pcie_rx_kbs"] is not None:
                rates[row["gpu_index"]].append((row["pcie_rx_kbs"], row["pcie_tx_kbs"]))
    gpus.close()
    assert rates == {0: [(1, 0)], 1: [(101, 100)]}
    assert threading.get_ident() not in threads
    assert not any(thread.name == "pcie-reader" for thread in threading.enumerate())


def test_without_nvml_there_is_a_row_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    gpus = gpu.Gpus()
    assert gpus.sample() == [{}] and gpus.source == "none: nvidia-ml-py is not installed"


def test_a_lost_gpu_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def handle_of(index: int) -> int:
        if index == 0:
            raise Nvml.NVMLError("GPU is lost")
        return index

    nvml = Nvml(nvmlInit=lambda: None, nvmlShutdown=lambda: None, nvmlDeviceGetCount=lambda: 2)
    nvml.nvmlDeviceGetHandleByIndex = handle_of
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    gpus = gpu.Gpus()
    assert [row["gpu_index"] for row in gpus.sample()] == [1]
    gpus.close()
