"""`python -m pipelines.record.counters`: counters of a process and of the GPUs, sampled by another process.

    python -m pipelines.record.counters --hz 10 --out recordings/ -- torchrun train.py
    python -m pipelines.record.counters --pid 4711 --seconds 60 --out recordings/

`tracelake ingest recordings/` reads the folder.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import subprocess
import sys
import time
from types import FrameType

from pipelines.record.host import ProcessGone
from pipelines.record.sampler import CounterSampler

_POLL = 0.02  # seconds


def main(arguments: list[str] | None = None) -> int:
    """Sample until the process or command ends, or until Ctrl-C. Return the command's exit status, or 0 without a command."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.record.counters", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--pid", type=int, help="process to sample; or give a command after --")
    parser.add_argument("--hz", type=float, default=10, help="samples per second (default 10)")
    parser.add_argument("--out", required=True, help="where to create the recording's folder")
    parser.add_argument("--seconds", type=float, help="stop sampling after this time; a command goes on")
    parser.add_argument("--run-id", help="a name shared by the recordings of one run")
    parser.add_argument("--rank", type=int, help="rank of the process (default: the environment's RANK)")
    parser.add_argument("command", nargs="*", help="command to run and to sample")
    args = parser.parse_args(arguments)
    if (args.pid is None) == (not args.command):
        parser.error("give either --pid or a command after --")
    child = None
    try:
        if args.command:
            child = subprocess.Popen(args.command)
        pid = child.pid if child else args.pid
        command = shlex.join(args.command) or None
        sampler = CounterSampler(pid, args.out, args.hz, args.run_id, args.rank, command)
    except (ProcessGone, ImportError, OSError, ValueError) as error:
        if child:
            child.terminate()
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BaseException:
        if child:
            child.terminate()
        raise
    status = _wait(child, sampler, args.seconds)
    cost = sampler.stop()
    print(f"{cost}\nwritten: {cost.folder}", file=sys.stderr)
    return status


def _wait(child: subprocess.Popen | None, sampler: CounterSampler, seconds: float | None) -> int:
    """Wait until the command or process ends, or SIGTERM or Ctrl-C arrives. Return the exit status.

    After `seconds`, sampling stops, but a command keeps running and the wait continues.

    SIGTERM is forwarded to the command. Ctrl-C is not, because the terminal also sends it to the command, which may be
    saving its work.
    """
    received: list[int] = []

    def on_signal(number: int, _: FrameType | None) -> None:
        received.append(number)
        if child and number == signal.SIGTERM:
            child.terminate()

    old_handlers = [(number, signal.signal(number, on_signal)) for number in (signal.SIGTERM, signal.SIGINT)]
    deadline = None if seconds is None else time.monotonic() + seconds
    try:
        while not received:
            if child and child.poll() is not None:
                return child.returncode
            if child is None and not sampler.is_alive:
                break
            if deadline and time.monotonic() >= deadline:
                if not child:
                    break
                sampler.stop()  # only the sampler, because a recorder never stops training
                deadline = None
            time.sleep(_POLL)
        return child.wait() if child else 0
    finally:
        for number, handler in old_handlers:
            signal.signal(number, handler)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # if the reader stops early (`| head -1`), exit as other tools do
    sys.exit(main())
