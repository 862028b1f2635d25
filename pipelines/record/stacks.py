"""`python -m pipelines.record.stacks`: samples the stacks of all threads of a Python program, from a thread of its own.

    python -m pipelines.record.stacks --hz 100 --out recordings/ -- train.py --epochs 3
    torchrun --nproc-per-node 8 -m pipelines.record.stacks --out recordings/ -- -m mypackage.train

or for a part of a program: `with StackSampler("recordings/", hz=100): …`. `tracelake ingest recordings/` reads the
folder, `tracelake flame` draws it.

The sampling thread needs the GIL, so it sees other threads only where they release it: never inside C code that holds
it. A timer (`--timer`) sees the main thread only, and only after the C code that it interrupted: `real` counts time
(SIGALRM), `virtual` the program's own CPU time (SIGVTALRM), `prof` also the system's for it (SIGPROF).
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from pipelines.record.folder import Recording, Row

TIMERS = {
    "real": (signal.ITIMER_REAL, signal.SIGALRM),
    "virtual": (signal.ITIMER_VIRTUAL, signal.SIGVTALRM),
    "prof": (signal.ITIMER_PROF, signal.SIGPROF),
}
THREAD = "thread"
_LONG = 0.05  # seconds; stop() interrupts only longer waits
_DEEPEST = 300  # maximum number of frames of a stack, from the innermost
_RUNNERS = {__file__, "<frozen runpy>", runpy.__file__}

Stack = tuple[tuple[CodeType, int], ...]
"""(Code, line) of each frame, outermost first."""


@dataclass(frozen=True)
class StackCost:
    """Cost of sampling: `cost_ns` of CPU time during `elapsed_ns`."""

    n_samples: int
    n_late: int
    cost_ns: int
    elapsed_ns: int
    folder: Path

    def __str__(self) -> str:
        late_text = f", {self.n_late} skipped because the GIL came late" if self.n_late else ""
        return (
            f"{self.n_samples} samples in {self.elapsed_ns / 1e9:.1f} s{late_text}; sampling used {self.cost_ns / 1e6:.1f} ms of "
            f"CPU time, {100 * self.cost_ns / max(self.elapsed_ns, 1):.2f} % of a core"
        )


class StackSampler:
    """Sampler of this process's Python stacks at `hz`, from construction to `stop`. `timer`: thread, or one of TIMERS.

    Raise ValueError if the rate is invalid or the timer is not available (outside the main thread, or if the program handles
    its signal), and OSError if the folder cannot be written.
    """

    def __init__(
        self,
        out: str | Path,
        hz: float = 100,
        run_id: str | None = None,
        rank: int | None = None,
        timer: str = THREAD,
        flush_seconds: float | None = None,
    ) -> None:
        if not 0 < hz <= 1000:
            raise ValueError(f"{hz} samples per second: give more than 0 and at most 1000")
        if timer != THREAD:
            _check(timer)
        self._timer, self._interval = timer, round(1e9 / hz)
        # A deque, because a signal handler also appends to it.
        self._taken: deque[tuple[int, int | None, str | None, Stack, int | None]] = deque()
        self._cpu: dict[int, int] = {}
        self._n = self._late = self._cost = 0
        self._is_busy = False
        self._result: StackCost | None = None
        self._began = time.monotonic_ns()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._command = " ".join(sys.argv)
        self._recording = Recording(
            out, "stacks", run_id, os.getpid(), rank, self._own_columns, flush_seconds, self._rows
        )
        if timer == THREAD:
            self._thread = threading.Thread(target=self._run, name="stack-sampler", daemon=True)
            self._thread.start()
        else:
            which, number = TIMERS[timer]
            signal.signal(number, self._on_signal)
            signal.setitimer(which, self._interval / 1e9, self._interval / 1e9)

    def __enter__(self) -> StackSampler:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> StackCost:
        """Stop, write the remaining rows, and return the cost. Another call returns the same cost.

        Warns if the rows cannot be written.
        """
        if self._result is None:
            self._result = self._ended()
        return self._result

    def _ended(self) -> StackCost:
        self._stop.set()
        if self._thread:
            self._thread.join()
        else:
            which, number = TIMERS[self._timer]
            signal.setitimer(which, 0)
            signal.signal(number, signal.SIG_DFL)
        elapsed = time.monotonic_ns() - self._began
        folder = self._recording.close_or_warn(end_ns=time.time_ns())
        return StackCost(self._n, self._late, self._cost, elapsed, folder)

    def _run(self) -> None:
        own_idents = {threading.get_ident(), self._recording.thread_ident}
        due, began = time.monotonic_ns(), time.thread_time_ns()
        while not self._is_over(due):
            frames, now = sys._current_frames(), time.time_ns()
            # Read in each sample, because a new thread often has the ident of an ended thread.
            threads = {thread.ident: (thread.native_id, thread.name) for thread in threading.enumerate()}
            for ident, frame in frames.items():
                if ident not in own_idents:
                    tid, name = threads.get(ident, (None, None))  # threads created by C code are unknown
                    self._taken.append((now, tid, name, _stack(frame), self._used(tid)))
            self._n += 1
            due += self._interval
            missed = max(0, time.monotonic_ns() - due) // self._interval
            self._late += missed
            due += missed * self._interval
            self._cost = time.thread_time_ns() - began

    def _is_over(self, due: int) -> bool:
        """Wait until `due` (monotonic ns) or until `stop` is called. Return whether `stop` was called."""
        wait_s = max(0, due - time.monotonic_ns()) / 1e9
        if wait_s > _LONG:
            return self._stop.wait(wait_s)
        time.sleep(wait_s)  # a fifth of the cost of waiting for an event
        return self._stop.is_set()

    def _on_signal(self, _: int, frame: FrameType | None) -> None:
        began = time.thread_time_ns()
        if frame is not None and not self._is_busy:  # skip it if the timer fires inside this handler
            self._is_busy = True
            tid = threading.get_native_id()
            self._taken.append((time.time_ns(), tid, threading.current_thread().name, _stack(frame), self._used(tid)))
            self._n += 1
            self._is_busy = False
        self._cost += time.thread_time_ns() - began

    def _used(self, tid: int | None) -> int | None:
        """Return the CPU time of a thread since its last sample, ns.

        Return None at its first sample, on systems other than Linux, or if the CPU time is unknown. A new thread may
        have the tid of an ended thread. If its CPU time is shorter, the sample counts as its first.
        """
        if tid is None or sys.platform != "linux":
            return None
        try:
            now = time.clock_gettime_ns((~tid << 3) | 6)  # the clock of a thread's CPU time, as the kernel numbers it
        except OSError:  # the thread has ended
            return None
        before, self._cpu[tid] = self._cpu.get(tid), now
        return None if before is None or now < before else now - before

    def _rows(self) -> dict[str, list[Row]]:
        """Return the samples since the last call by table, with one row per thread and stack."""
        rows: dict[Any, Row] = {}
        while self._taken:
            time_ns, tid, thread, stack, cpu_ns = self._taken.popleft()
            new_row = {"tid": tid, "thread": thread, "n_samples": 0, "start_ns": time_ns, "cpu_ns": None}
            row = rows.setdefault((tid, thread, stack), new_row)
            row["n_samples"] += 1
            row["end_ns"] = time_ns
            if cpu_ns is not None:
                row["cpu_ns"] = (row["cpu_ns"] or 0) + cpu_ns
        return {"stack_samples": [{**row, "frames": _frames(stack)} for (_, _, stack), row in rows.items()]}

    def _own_columns(self) -> Row:
        return {
            "command": self._command,
            "source": self._timer,
            "interval_ns": self._interval,
            "n_samples": self._n,
            "n_late": self._late if self._timer == THREAD else None,  # signals that come together count as one
            "cost_ns": self._cost,
        }


def _check(timer: str) -> None:
    if timer not in TIMERS:
        raise ValueError(f"unknown timer {timer!r}: give {THREAD}, {', '.join(TIMERS)}")
    if threading.current_thread() is not threading.main_thread():
        raise ValueError(
            f"timer {timer}: signals reach only the main thread; start it there, or use the timer {THREAD}"
        )
    number = TIMERS[timer][1]
    if signal.getsignal(number) is not signal.SIG_DFL:
        raise ValueError(f"timer {timer}: the program handles {number.name} itself; use the timer {THREAD}")


def _stack(frame: FrameType | None) -> Stack:
    frames: list[tuple[CodeType, int]] = []
    while frame is not None and len(frames) < _DEEPEST:
        frames.append((frame.f_code, frame.f_lineno or 0))
        frame = frame.f_back
    while len(frames) > 1 and frames[-1][0].co_filename in _RUNNERS:  # exclude the frames of the runner
        frames.pop()
    return tuple(frames[::-1])


def _frames(stack: Stack) -> str:
    return json.dumps([f"{code.co_qualname} ({code.co_filename}:{line})" for code, line in stack])


@contextmanager
def _readers_may_leave() -> Iterator[None]:
    """Let `--help | head -1` end as with other tools. Afterward, restore the old handler for the sampled program."""
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        yield
    finally:
        sys.stdout.flush()
        signal.signal(signal.SIGPIPE, before)


def main(arguments: list[str] | None = None) -> None:
    """Run a program as `python` does and sample it until it ends. Exit with the program's exit status."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.record.stacks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--hz", type=float, default=100, help="samples per second (default 100)")
    parser.add_argument("--out", required=True, help="where to create the recording's folder")
    parser.add_argument("--run-id", help="a name shared by the recordings of one run")
    parser.add_argument("--rank", type=int, help="rank of the process (default: the environment's RANK)")
    parser.add_argument(
        "--timer", default=THREAD, choices=(THREAD, *TIMERS), help="what triggers samples (default: a thread)"
    )
    parser.add_argument(
        "program", nargs=argparse.REMAINDER, help="-- followed by a script, or -m and a module, with arguments"
    )
    with _readers_may_leave():
        args = parser.parse_args(arguments)
    program = args.program[1:] if args.program[:1] == ["--"] else args.program
    is_module = program[:1] == ["-m"]
    program = program[1:] if is_module else program
    if not program:
        parser.error("give a script, or -m and a module, after --")
    sys.argv = program
    try:
        sampler = StackSampler(args.out, args.hz, args.run_id, args.rank, args.timer)
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    try:
        if is_module:
            sys.path.insert(0, "")
            runpy.run_module(program[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(program[0]).resolve().parent)
            runpy.run_path(program[0], run_name="__main__")
    finally:
        cost = sampler.stop()
        print(f"{cost}\nwritten: {cost.folder}", file=sys.stderr)


if __name__ == "__main__":
    main()
