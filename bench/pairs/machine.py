"""Description of the machine, and the programs that it can run."""

from __future__ import annotations

import importlib.util
import multiprocessing
import shutil
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from bench.pairs.process import in_a_process
from bench.pairs.program import Program
from bench.pairs.ranks import check_backend, start_ranks
from bench.pairs.sizes import SIZES

SLOWEST_SUM_S = 0.2
"""Maximum seconds of a sum over ranks, because a step has up to ten sums, and a program thirty steps."""
NO_RANKS: dict[str, Any] = {"backend": None, "ranks": None, "sum_over_ranks_s": None, "ranks_refused": {}}


def describe_machine(device: str, size: str | None, start: str, scratch: Path) -> dict[str, Any]:
    """Return the machine's description, the size of its programs, and what it can run.

    Programs run in forks of this process, which has imported torch, or in new processes if a fork cannot use the
    device.
    """
    machine: dict[str, Any] = {}
    for method in ("fork", "spawn") if start == "auto" else (start,):
        multiprocessing.set_start_method(method, force=True)
        machine = in_a_process(90, scratch / f"machine.{method}", check_machine, device)
        if "error" not in machine:
            break
        print(f"{method}: {machine['error']}", flush=True)
    if "error" in machine:
        raise SystemExit("error: the device cannot be used. The text above says why.")
    return {**machine, "size": size or ("device" if machine["device"] == "cuda" else "small")}


def choose_ranks(machine: dict[str, Any], wanted: str, scratch: Path) -> dict[str, Any]:
    """Return the first backend and number of ranks that can communicate, or the reasons why there are none."""
    most = SIZES[machine["size"]].ranks
    candidates = [("nccl", most), ("nccl", 2), ("gloo", most)] if machine["device"] == "cuda" else [("gloo", most)]
    refused: dict[str, str] = {}
    for backend, ranks in candidates:
        if wanted not in ("auto", backend):
            continue
        passed = (backend, ranks, machine["device"], scratch)
        checked = in_a_process(60, scratch / f"{backend}.{ranks}", check_ranks, *passed)
        if "error" not in checked:
            return {
                "backend": backend,
                "ranks": ranks,
                "sum_over_ranks_s": checked["seconds"],
                "ranks_refused": refused,
            }
        refused[f"{backend}, {ranks} ranks"] = f"{checked['error']}\n{checked['output']}"
    return {**NO_RANKS, "ranks_refused": refused}


def check_machine(device: str) -> dict[str, Any]:
    """Return the machine's description. Raise an error if the profiler does not record the device's work."""
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        able = any(map(shutil.which, ("c++", "g++", "clang++")))
        return {"device": "cpu", "name": "cpu", "no_compile": None if able else "there is no C++ compiler"}
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        torch.ones(8, device="cuda").add_(1)
        torch.cuda.synchronize()
    if not any(event.device_type.name == "CUDA" for event in recorded.events() or ()):
        raise RuntimeError("the profiler recorded no GPU work")
    no_compile = None
    if importlib.util.find_spec("triton") is None:
        no_compile = "triton is not installed"
    elif not any(map(shutil.which, ("gcc", "cc", "clang"))):
        no_compile = "triton needs a C compiler, and there is none"
    return {"device": "cuda", "name": torch.cuda.get_device_name(), "no_compile": no_compile}


def check_ranks(backend: str, ranks: int, device: str, scratch: Path) -> dict[str, Any]:
    """Return the seconds of a sum over ranks. Raise an error if ranks cannot communicate, or the sum is too slow."""
    seconds = max(of_rank["seconds"] for of_rank in start_ranks(check_backend, ranks, backend, device, scratch=scratch))
    if seconds > SLOWEST_SUM_S:
        raise RuntimeError(f"a sum over {ranks} ranks takes {seconds:.2f} s, more than {SLOWEST_SUM_S} s")
    return {"seconds": seconds}


def why_not(program: Program, machine: dict[str, Any]) -> str | None:
    """Return why the machine cannot run the program, or None if it can."""
    if "cuda" in program.needs and machine["device"] != "cuda":
        return "needs a CUDA device"
    if "compile" in program.needs and machine["no_compile"]:
        return machine["no_compile"]
    if "ranks" in program.needs and not machine["backend"]:
        return f"ranks cannot communicate by {', '.join(machine['ranks_refused'])}: see ranks_refused"
    return None
