"""The measurements of one program: both variants without the profiler, then both with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from bench.pairs.context import Context
from bench.pairs.measure import measure_plain, measure_traced, numbers
from bench.pairs.program import Program, load_programs
from bench.pairs.ranks import join, start_ranks
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

    plain = {variant: measure_plain(program, context(variant), fence) for variant in VARIANTS}
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


def measure_ranks(program: Program, machine: dict[str, Any], out: Path, scratch: Path) -> dict[str, Any]:
    """Measure a program of several ranks: a step takes as long as on the rank where it takes longest."""
    passed = (program.name, machine["backend"], machine["device"], machine["size"], out, scratch)
    by_rank = start_ranks(measure_rank, machine["ranks"], *passed, scratch=scratch)
    measured: dict[str, Any] = {"ranks": machine["ranks"], "backend": machine["backend"]}
    for variant in VARIANTS:
        plain = [
            max(seconds) for seconds in zip(*(of_rank[variant]["plain_all_s"] for of_rank in by_rank), strict=True)
        ]
        traced = [
            max(seconds) for seconds in zip(*(of_rank[variant]["traced_all_s"] for of_rank in by_rank), strict=True)
        ]
        measured[variant] = {
            **numbers(program, plain, traced),
            "traced_by_rank_s": [of_rank[variant]["traced_step_s"] for of_rank in by_rank],
            "files": [name for of_rank in by_rank for name in of_rank[variant]["files"]],
        }
    return measured


def measure_named(name: str, machine: dict[str, Any], out: Path, scratch: Path) -> dict[str, Any]:
    """Measure the program of this name."""
    program = load_programs()[name]
    if machine["device"] == "cpu":
        torch.set_num_threads(1)
    if "ranks" in program.needs:
        return measure_ranks(program, machine, out, scratch)
    return measure_pair(program, machine["device"], machine["size"], out, scratch)
