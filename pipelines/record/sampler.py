"""Thread that records counters of a process, of GPUs and of networks at a fixed rate, and measures its own cost."""

from __future__ import annotations

import threading
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.record.folder import Recording
from pipelines.record.gpu import Gpus
from pipelines.record.host import ProcessGone, reader
from pipelines.record.net import SYS, Networks

_NET_INTERVAL_NS = 999_000_000  # a second, with slack for a sample that comes early


@dataclass(frozen=True)
class Cost:
    """Cost of sampling.

    `cpu_ns`: CPU time of the sampling thread. `write_ns`: CPU time of writing the remaining rows at the end. `mean_ns`,
    `worst_ns`: mean and maximum wall time of a sample. `n_late`: skipped samples.
    """

    n_samples: int
    n_late: int
    cpu_ns: int
    write_ns: int
    mean_ns: int
    worst_ns: int
    elapsed_ns: int
    gpu_source: str
    net_source: str
    folder: Path

    def __str__(self) -> str:
        if not self.n_samples:
            return "no samples: the process ended before the first one"
        share = 100 * self.cpu_ns / max(self.elapsed_ns, 1)
        late_text = f", {self.n_late} instants skipped because a sample took longer" if self.n_late else ""
        return (
            f"{self.n_samples} samples in {self.elapsed_ns / 1e9:.1f} s{late_text}; a sample took {self.mean_ns / 1e3:.1f} µs on "
            f"average, {self.worst_ns / 1e3:.1f} µs at worst (wall time); the sampling thread used "
            f"{self.cpu_ns / 1e6:.1f} ms of CPU time (by the thread's clock), {share:.3f} % of a core, and "
            f"{self.write_ns / 1e6:.1f} ms to write the rest at the end; GPU counters: {self.gpu_source}; networks: {self.net_source}"
        )


class CounterSampler:
    """Sampler of process `pid` at `hz` until `stop`, or until the process ends. Raise ProcessGone if it does not exist.

    Networks are sampled at `hz`, too, but at most once per second, because a driver may query its card for every counter.
    `sys`: the folder to use as /sys. Raise ValueError if `hz` is not above 0 and at most 1000.
    """

    def __init__(
        self, pid: int, out: str | Path, hz: float = 10, run_id: str | None = None, rank: int | None = None, command: str | None = None,
        sys: Path = SYS,
    ) -> None:  # fmt: skip
        if not 0 < hz <= 1000:
            raise ValueError(f"{hz} samples per second: give more than 0 and at most 1000")
        self._read = reader(pid)
        self._read()  # raises for a wrong pid here and not in the thread
        self._pid, self._interval = pid, round(1e9 / hz)
        self._gpus, self._networks, self._net_due = Gpus(), Networks(sys), 0
        self._command = command
        self._n = self._sum = self._longest = 0  # number of samples, and their total and longest wall time, ns
        self._late = self._cpu = 0
        self._recording = Recording(out, "counters", run_id, pid, rank, self._own_columns)
        self._error: BaseException | None = None
        self._cost: Cost | None = None
        self._stop = threading.Event()
        self._began_unix, self._began = time.time_ns(), time.monotonic_ns()
        self._thread = threading.Thread(target=self._run, name="counter-sampler", daemon=True)
        self._thread.start()

    def __enter__(self) -> CounterSampler:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def is_alive(self) -> bool:
        """Return whether the thread is sampling. False after `stop` or the end of the process."""
        return self._thread.is_alive()

    def stop(self) -> Cost:
        """Stop, write the remaining rows, and return the cost.

        Warns if the rows cannot be written, or if an error ended the thread. Another call, such as the call at the end
        of a `with` block, returns the same cost.
        """
        if self._cost is None:
            self._cost = self._end()
        return self._cost

    def _end(self) -> Cost:
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            warnings.warn(f"no counters after sample {self._n}: {self._error}", RuntimeWarning, stacklevel=3)
        self._gpus.close()
        elapsed = time.monotonic_ns() - self._began
        began = time.thread_time_ns()
        folder = self._recording.close_or_warn(start_ns=self._began_unix, end_ns=self._began_unix + elapsed)
        write = time.thread_time_ns() - began
        mean = self._sum // max(self._n, 1)
        sources = self._gpus.source, self._networks.source
        return Cost(self._n, self._late, self._cpu, write, mean, self._longest, elapsed, *sources, folder)

    def _own_columns(self) -> dict[str, Any]:
        """Return the recorder's current columns of `recordings`."""
        return {
            "command": self._command,
            "source": self._gpus.source,
            "net_source": self._networks.source,
            "interval_ns": self._interval,
            "n_late": self._late,
            "cost_ns": self._cpu,
        }

    def _run(self) -> None:
        began, due = time.thread_time_ns(), time.monotonic_ns()
        try:
            while not self._stop.is_set():
                self._sample()
                self._cpu = time.thread_time_ns() - began
                due += self._interval
                now = time.monotonic_ns()
                if due < now:  # keep the rhythm instead of catching up
                    missed = (now - due) // self._interval + 1
                    self._late += missed
                    due += missed * self._interval
                self._stop.wait((due - time.monotonic_ns()) / 1e9)
        except ProcessGone:
            pass
        except BaseException as error:
            self._error = error
        finally:
            self._cpu = time.thread_time_ns() - began

    def _sample(self) -> None:
        mono, unix = time.monotonic_ns(), time.time_ns()
        common = {"pid": self._pid, "t_unix_ns": unix, "t_mono_ns": mono, "interval_ns": self._interval}
        self._recording.add("host_samples", [{**common, **self._read()}])
        self._recording.add("gpu_samples", [{"t_unix_ns": unix, **row} for row in self._gpus.sample()])
        if mono >= self._net_due:
            self._net_due = mono + _NET_INTERVAL_NS
            of_now = {"t_unix_ns": unix, "t_mono_ns": mono}
            self._recording.add("net_samples", [{**of_now, **row} for row in self._networks.sample()])
        took = time.monotonic_ns() - mono
        self._n, self._sum, self._longest = self._n + 1, self._sum + took, max(self._longest, took)
