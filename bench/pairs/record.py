"""Record the programs on this machine: `python -m bench.pairs.record OUT`. See README.md in this folder."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from bench.pairs.machine import NO_RANKS, choose_ranks, describe_machine, why_not
from bench.pairs.pair import VARIANTS, Place, joined, measure_pair, measure_ranks, plain_pair, traced_pair
from bench.pairs.process import Helper, in_a_process
from bench.pairs.program import PROGRAMS, Program, load_programs
from bench.pairs.sizes import SIZES
from bench.pairs.truth import Truth, describe


class Recorder:
    """Recorder of programs on a machine. Most share two processes, one of which never loads CUPTI."""

    def __init__(self, machine: dict[str, Any], args: argparse.Namespace, started: float, scratch: Path) -> None:
        self.machine, self.args, self.started, self.scratch = machine, args, started, scratch
        self.place = Place(machine["device"], machine["size"], args.out, scratch)
        self.ended = ExitStack()
        self.without_profiler = self.ended.enter_context(Helper(scratch / "plain.log"))
        self.with_profiler = self.ended.enter_context(Helper(scratch / "traced.log"))

    def record(self, program: Program) -> dict[str, Any]:
        """Measure a program, or return the reason why it is skipped."""
        begun = time.monotonic()
        left = self.args.seconds - (begun - self.started)
        reason = why_not(program, self.machine) or (f"{self.args.seconds:.0f} s were over" if left < 5 else None)
        if reason:
            return {"skipped": reason}
        recorded = self._measure(program, min(self.args.limit, max(left, 10)))
        return {**recorded, "recording_s": round(time.monotonic() - begun, 1)}

    def _measure(self, program: Program, limit: float) -> dict[str, Any]:
        name, place, log = program.name, self.place, self.scratch / f"{program.name}.log"
        if "ranks" in program.needs:
            return in_a_process(limit, log, measure_ranks, name, place, self.machine)
        if "compile" in program.needs:  # a separate process, because compilers leave much state behind
            return in_a_process(limit, log, measure_pair, name, place)
        plain = self.without_profiler.call(limit, plain_pair, name, place)
        if "error" in plain:
            return plain
        traced = self.with_profiler.call(limit, traced_pair, name, place)
        return traced if "error" in traced else joined(name, place, plain, traced)


def line(name: str, recorded: dict[str, Any]) -> str:
    """Return the line to print for a program."""
    for key in ("skipped", "error"):
        if key in recorded:
            return f"{name}: {key}: {' '.join(recorded[key].split())[-300:]}"

    def milliseconds(key: str) -> str:
        a, b = (recorded[variant][key] for variant in VARIANTS)
        return f"{a * 1e3:.3f} -> {b * 1e3:.3f} ms ({(b / a - 1) * 100:+.1f} %)"

    return (
        f"{name}: plain {milliseconds('plain_step_s')}, traced {milliseconds('traced_step_s')}, "
        f"{recorded['trace_bytes'] / 1e3:.0f} kB, {recorded['recording_s']} s"
    )


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.pairs.record", description=__doc__)
    parser.add_argument("out", type=Path, nargs="?", metavar="OUT", help="Folder for traces, truth.json and pairs.tar.")
    parser.add_argument("--list", action="store_true", help="Print the programs and their changes, and record nothing.")
    parser.add_argument(
        "--resume", action="store_true", help="Keep the programs that a run which ended early recorded in OUT."
    )
    parser.add_argument(
        "--describe", action="store_true", help="Describe the programs in OUT as they are now, and record nothing."
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=list(PROGRAMS),
        metavar="NAME",
        choices=list(PROGRAMS),
        help="Record these programs. Default: all.",
    )
    parser.add_argument(
        "--device", choices=("auto", "cuda", "cpu"), default="auto", help="Default: cuda where there is one."
    )
    parser.add_argument(
        "--size", choices=sorted(SIZES), help="Sizes of tensors and loops. Default: device on cuda, small on cpu."
    )
    parser.add_argument(
        "--seconds", type=float, default=420, help="Start no program after this many seconds. Default: 420."
    )
    parser.add_argument("--limit", type=float, default=60, help="End a program after this many seconds. Default: 60.")
    parser.add_argument(
        "--backend",
        choices=("auto", "nccl", "gloo"),
        default="auto",
        help="How ranks communicate. Default: nccl where it works.",
    )
    parser.add_argument(
        "--start",
        choices=("auto", "fork", "spawn"),
        default="auto",
        help="How processes start. Default: fork where it works.",
    )
    parser.add_argument("--packed", action="store_true", help="Keep the traces in pairs.tar only.")
    parser.add_argument("--tar-mb", type=float, default=14, help="Most megabytes of pairs.tar. Default: 14.")
    args = parser.parse_args(words)
    if not args.out and not args.list:
        parser.error("OUT is missing: give a folder")
    return args


def main(words: list[str] | None = None) -> int:
    started = time.monotonic()
    load_programs()
    args = parse(words)
    if args.list:
        print("\n".join(f"{name}: {PROGRAMS[name].change}" for name in args.only))
        return 0
    if args.describe:
        describe(args.out)
        return 0
    args.out.mkdir(parents=True, exist_ok=True)
    # torch.compile would start a process for each core, which compete with the program.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="pairs-") as folder:
        failed = record_all(args, started, Path(folder))
    sizes = [f"{archive.stat().st_size / 1e6:.1f} MB in {archive.name}" for archive in sorted(args.out.glob("*.tar"))]
    print(
        f"{len(args.only)} programs, {failed} failed; {', '.join(sizes)}; {time.monotonic() - started:.0f} s",
        flush=True,
    )
    return 1 if failed else 0


def record_all(args: argparse.Namespace, started: float, scratch: Path) -> int:
    """Record the requested programs, and return the number of failures."""
    machine = describe_machine(args.device, args.size, args.start, scratch)
    several = any("ranks" in PROGRAMS[name].needs for name in args.only)
    machine |= choose_ranks(machine, args.backend, scratch) if several else NO_RANKS
    print(f"{machine['name']}, torch {torch.__version__}, size {machine['size']}", flush=True)
    print(f"{machine['ranks']} ranks by {machine['backend']}, {machine['sum_over_ranks_s']} s a sum", flush=True)
    for refused, reason in machine["ranks_refused"].items():
        print(f"{refused}: {' '.join(reason.split())[-600:]}", flush=True)
    truth = Truth(args.out, machine, args.packed, int(args.tar_mb * 1e6), resume=args.resume)
    recorder, failed = Recorder(machine, args, started, scratch), 0
    with recorder.ended:
        for name in args.only:
            if name in truth.content["programs"]:
                print(f"{name}: recorded before", flush=True)
                continue
            recorded = recorder.record(PROGRAMS[name])
            truth.add(PROGRAMS[name], recorded)
            print(line(name, truth.content["programs"][name]), flush=True)
            failed += "error" in recorded
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
