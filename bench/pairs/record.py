"""Record the programs on this machine: `python -m bench.pairs.record OUT`. README.md beside this file says more."""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tarfile
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from bench.pairs.context import Context
from bench.pairs.measure import measure_plain, measure_traced, numbers
from bench.pairs.program import PROGRAMS, Program, load_programs
from bench.pairs.ranks import check_backend, join, start_ranks
from bench.pairs.sizes import SIZES

VARIANTS = ("A", "B")


def measure_pair(
    program: Program, device: str, size: str, out: Path, scratch: Path, rank: int = 0, ranks: int = 1
) -> dict[str, Any]:
    """Measure both variants without the profiler, then trace both: CUPTI slows what follows its first use."""
    sizes = SIZES[size]

    def context(variant: str) -> Context:
        return Context(device, sizes, variant == "B", scratch, rank, ranks)

    def fence() -> None:
        if ranks > 1:
            dist.barrier()
        context("A").sync()

    plain = {variant: measure_plain(program, context(variant), fence) if program.timed else [] for variant in VARIANTS}
    measured = {}
    for variant in VARIANTS:
        path = out / (
            f"{program.name}.{variant}.rank{rank}.json.gz" if ranks > 1 else f"{program.name}.{variant}.json.gz"
        )
        traced = measure_traced(program, context(variant), fence, path)
        measured[variant] = {**numbers(program, plain[variant], traced), "files": [path.name]}
    return measured


def measure_rank(
    rank: int, ranks: int, name: str, backend: str, device: str, size: str, out: Path, scratch: Path, store: Path
) -> dict[str, Any]:
    """Measure one rank's part of a program."""
    join(backend, rank, ranks, store)
    return measure_pair(load_programs()[name], device, size, out, scratch, rank, ranks)


def measure_ranks(program: Program, backend: str, device: str, size: str, out: Path, scratch: Path) -> dict[str, Any]:
    """Measure a program of several ranks: a step takes as long as on the rank where it takes longest."""
    ranks = getattr(SIZES[size], str(program.ranks))
    by_rank = start_ranks(measure_rank, ranks, program.name, backend, device, size, out, scratch, scratch=scratch)
    measured: dict[str, Any] = {"ranks": ranks, "backend": backend}
    for variant in VARIANTS:
        plain = [max(seconds) for seconds in zip(*(found[variant]["plain_all_s"] for found in by_rank), strict=True)]
        traced = [max(seconds) for seconds in zip(*(found[variant]["traced_all_s"] for found in by_rank), strict=True)]
        measured[variant] = {
            **numbers(program, plain, traced),
            "traced_by_rank_s": [found[variant]["traced_step_s"] for found in by_rank],
            "files": [name for found in by_rank for name in found[variant]["files"]],
        }
    return measured


def check_machine(device: str) -> dict[str, Any]:
    """Return what the machine is and what it can run; raise an error if the profiler does not see the device."""
    cuda = torch.cuda.is_available() if device == "auto" else device == "cuda"
    if not cuda:
        able = bool(shutil.which("c++") or shutil.which("g++"))
        return {
            "device": "cpu",
            "name": "cpu",
            "compile": able,
            "reasons": {} if able else {"compile": "no C++ compiler"},
        }
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        torch.ones(8, device="cuda").add_(1)
        torch.cuda.synchronize()
    if not any(event.device_type == torch.autograd.DeviceType.CUDA for event in recorded.events()):
        raise RuntimeError("the profiler recorded no GPU work")
    reasons = {}
    try:
        import triton  # noqa: F401  # part of torch's CUDA builds
    except ImportError as error:
        reasons["compile"] = f"triton cannot be imported: {error}"
    if not any(map(shutil.which, ("gcc", "cc", "clang"))):
        reasons["compile"] = "triton needs a C compiler, and there is none"
    return {
        "device": "cuda",
        "name": torch.cuda.get_device_name(),
        "compile": "compile" not in reasons,
        "reasons": reasons,
    }


def check_ranks(backend: str, scratch: Path) -> dict[str, Any]:
    """Raise an error if two ranks cannot communicate."""
    start_ranks(check_backend, 2, backend, scratch=scratch)
    return {}


def in_a_process(limit_s: float, result: Path, target: str, *arguments: Any) -> dict[str, Any]:
    """Run a function of this module in a process and return its result, or {"error": the reason} if there is none.

    The process and all that it started end after `limit_s` seconds.
    """
    log = result.with_suffix(".log")
    process = multiprocessing.Process(target=_call, args=(target, result, log, arguments))
    process.start()
    process.join(limit_s)
    if process.is_alive():
        found = {"error": f"ended after its limit of {limit_s:.0f} s"}
    elif result.exists():
        found = json.loads(result.read_text())
    else:
        found = {"error": f"the process ended with exit status {process.exitcode}"}
    if "error" in found:
        found["output"] = log.read_text(errors="replace")[-1500:] if log.exists() else ""
    try:
        os.killpg(process.pid or 0, signal.SIGKILL)  # ranks and workers that are left
    except (ProcessLookupError, PermissionError):
        pass
    process.join()
    return found


def _call(target: str, result: Path, log: Path, arguments: tuple[Any, ...]) -> None:
    os.setsid()
    with log.open("wb") as file:  # libraries print what explains an error, and much else
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    load_programs()
    try:
        found = globals()[target](*arguments)
    except BaseException:
        found = {"error": traceback.format_exc()[-1500:]}
    partial = result.with_suffix(".partial")
    partial.write_text(json.dumps(found))
    partial.rename(result)
    os._exit(0)  # nothing that is left needs to be waited for


def measure_named(name: str, machine: dict[str, Any], size: str, out: Path, scratch: Path) -> dict[str, Any]:
    """Measure the program of this name."""
    program = PROGRAMS[name]
    if machine["device"] == "cpu":
        torch.set_num_threads(1)
    if program.ranks:
        return measure_ranks(program, machine["backend"], machine["device"], size, out, scratch)
    return measure_pair(program, machine["device"], size, out, scratch)


def why_not(program: Program, machine: dict[str, Any]) -> str | None:
    """Return why the machine cannot run the program, or None if it can."""
    if "cuda" in program.needs and machine["device"] != "cuda":
        return "needs a CUDA device"
    if "compile" in program.needs and not machine["compile"]:
        return machine["reasons"]["compile"]
    if "ranks" in program.needs and not machine.get("backend"):
        return machine["reasons"]["ranks"]
    return None


class Truth:
    """truth.json and pairs.tar, complete after each program."""

    def __init__(self, out: Path, machine: dict[str, Any], size: str, packed: bool, limit_bytes: int) -> None:
        self.out, self.packed, self.limit_bytes = out, packed, limit_bytes
        self.content: dict[str, Any] = {
            "device": machine["name"],
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "python": sys.version.split()[0],
            "cpus": os.cpu_count(),
            "size": size,
            "recorded_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "backend": machine.get("backend"),
            "reasons": machine["reasons"],
            "programs": {},
        }
        (out / "pairs.tar").unlink(missing_ok=True)

    def add(self, program: Program, found: dict[str, Any], seconds: float) -> None:
        self.content["programs"][program.name] = {**found, **program.describe(), "recording_s": round(seconds, 1)}
        traces = [self.out / name for variant in VARIANTS for name in found.get(variant, {}).get("files", ())]
        tar = self.out / "pairs.tar"
        used = tar.stat().st_size if tar.exists() else 0
        size = sum(trace.stat().st_size for trace in traces)
        self.content["programs"][program.name]["trace_bytes"] = size
        if used + size + 1024 * len(traces) + 10240 > self.limit_bytes:
            self.content["programs"][program.name]["left_out"] = "pairs.tar has no room for its traces"
        elif traces:
            with tarfile.open(tar, "a") as packing:
                for trace in traces:
                    packing.add(trace, trace.name)
        if self.packed:
            for trace in self.out.glob(f"{program.name}.*.json*"):
                trace.unlink()
        partial = self.out / "truth.json.partial"
        partial.write_text(json.dumps(self.content, indent=1) + "\n")
        partial.rename(self.out / "truth.json")


def line(name: str, found: dict[str, Any], seconds: float, bytes_: int) -> str:
    """Return the line that is printed of a program."""
    for key in ("skipped", "error"):
        if key in found:
            return f"{name}: {key}: {found[key].strip().splitlines()[-1]} ({seconds:.1f} s)"

    def milliseconds(key: str) -> str:
        a, b = (found[variant][key] for variant in VARIANTS)
        return f"{a * 1e3:.3f} -> {b * 1e3:.3f} ms ({(b / a - 1) * 100:+.1f} %)" if a and b else "-"

    return f"{name}: plain {milliseconds('plain_step_s')}, traced {milliseconds('traced_step_s')}, {bytes_ / 1e3:.0f} kB, {seconds:.1f} s"


def prepare(args: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Return what the machine can run. Programs run in forks of this process, which has torch imported, if that works."""
    methods = ("fork", "spawn") if args.start == "auto" else (args.start,)
    machine: dict[str, Any] = {}
    for method in methods:
        multiprocessing.set_start_method(method, force=True)
        machine = in_a_process(90, scratch / f"machine.{method}", "check_machine", args.device)
        if "error" not in machine:
            break
        print(f"{method}: {machine['error']}", flush=True)
    if "error" in machine:
        raise SystemExit("error: the device cannot be used. The text above says why.")
    wanted = (
        [args.backend] if args.backend != "auto" else (["nccl", "gloo"] if machine["device"] == "cuda" else ["gloo"])
    )
    if any(PROGRAMS[name].ranks for name in args.only):
        for backend in wanted:
            found = in_a_process(30, scratch / f"ranks.{backend}", "check_ranks", backend, scratch)
            if "error" not in found:
                machine["backend"] = backend
                break
            machine["reasons"][f"ranks by {backend}"] = found["error"]
            machine["reasons"]["ranks"] = found["error"]
            print(f"{backend}: {found['error']}", flush=True)
    return machine


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.pairs.record", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT", help="Folder for traces, truth.json and pairs.tar.")
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
    parser.add_argument("--limit", type=float, default=40, help="End a program after this many seconds. Default: 40.")
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
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    started = time.monotonic()
    load_programs()
    args = parse(words)
    args.out.mkdir(parents=True, exist_ok=True)
    # torch.compile would start a process for each core, which compete with the program.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    failed = []
    with tempfile.TemporaryDirectory(prefix="pairs-") as folder:
        scratch = Path(folder)
        machine = prepare(args, scratch)
        size = args.size or ("device" if machine["device"] == "cuda" else "small")
        print(f"{machine['name']}, torch {torch.__version__}, {size}, ranks by {machine.get('backend')}", flush=True)
        truth = Truth(args.out, machine, size, args.packed, int(args.tar_mb * 1e6))
        gc.freeze()  # what torch brings is not the programs' garbage
        for name in args.only:
            begun = time.monotonic()
            left = args.seconds - (begun - started)
            reason = why_not(PROGRAMS[name], machine) or (f"the {args.seconds:.0f} s are over" if left < 5 else None)
            if reason:
                found = {"skipped": reason}
            else:
                limit = min(args.limit, max(left, 10))
                found = in_a_process(
                    limit, scratch / f"{name}.result", "measure_named", name, machine, size, args.out, scratch
                )
            seconds = time.monotonic() - begun
            truth.add(PROGRAMS[name], found, seconds)
            print(line(name, found, seconds, truth.content["programs"][name]["trace_bytes"]), flush=True)
            failed += [name] if "error" in found else []
    tar = args.out / "pairs.tar"
    print(
        f"{len(args.only)} programs, {len(failed)} failed, {tar.stat().st_size / 1e6 if tar.exists() else 0:.1f} MB in pairs.tar, {time.monotonic() - started:.0f} s",
        flush=True,
    )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
