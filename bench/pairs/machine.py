"""What the machine is, and what it can run."""

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


def describe_machine(device: str, size: str | None, start: str, scratch: Path) -> dict[str, Any]:
    """Return what the machine is, the size of its programs, and what it can run.

    Programs run in forks of this process, which has torch imported; where a fork cannot use the device, in new processes.
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


def choose_backend(machine: dict[str, Any], scratch: Path, wanted: str) -> dict[str, Any]:
    """Return the first backend by which ranks can communicate, or the reasons why there is none."""
    everywhere = ("nccl", "gloo") if machine["device"] == "cuda" else ("gloo",)
    reasons = {}
    for backend in everywhere if wanted == "auto" else (wanted,):
        found = in_a_process(
            30, scratch / f"ranks.{backend}", check_ranks, backend, SIZES[machine["size"]].ranks, scratch
        )
        if "error" not in found:
            return {"backend": backend, "sum_over_ranks_s": found["seconds"], "ranks_refused": reasons}
        reasons[backend] = f"{found['error']}\n{found['output']}"
        print(f"{backend}: {reasons[backend]}", flush=True)
    return {"backend": None, "sum_over_ranks_s": None, "ranks_refused": reasons}


def check_machine(device: str) -> dict[str, Any]:
    """Return what the machine is and what it can run; raise an error if the profiler does not see the device."""
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        able = any(map(shutil.which, ("c++", "g++", "clang++")))
        return {"device": "cpu", "name": "cpu", "no_compile": None if able else "there is no C++ compiler"}
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        torch.ones(8, device="cuda").add_(1)
        torch.cuda.synchronize()
    if not any(event.device_type == torch.autograd.DeviceType.CUDA for event in recorded.events() or ()):
        raise RuntimeError("the profiler recorded no GPU work")
    no_compile = None
    if importlib.util.find_spec("triton") is None:
        no_compile = "triton is not installed"
    elif not any(map(shutil.which, ("gcc", "cc", "clang"))):
        no_compile = "triton needs a C compiler, and there is none"
    return {"device": "cuda", "name": torch.cuda.get_device_name(), "no_compile": no_compile}


def check_ranks(backend: str, ranks: int, scratch: Path) -> dict[str, Any]:
    """Return the seconds that a sum over ranks takes; raise an error if they cannot communicate, or take a second."""
    seconds = max(found["seconds"] for found in start_ranks(check_backend, ranks, backend, scratch=scratch))
    if seconds > 1:
        raise RuntimeError(f"a sum over {ranks} ranks takes {seconds:.1f} s")
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
