"""The measurements of one program: both variants without the profiler, then both with the profiler."""

from __future__ import annotations

from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class Place:
    """The device, size and rank of a program's run, and the folders for its traces and scratch files."""

    device: str
    size: str
    out: Path
    scratch: Path
    rank: int = 0
    ranks: int = 1

    def context(self, variant: str) -> Context:
        return Context(self.device, SIZES[self.size], variant == "B", self.scratch, self.rank, self.ranks)

    def fence(self) -> None:
        """Wait for all ranks and the device."""
        if self.ranks > 1:
            dist.barrier()
        self.context("A").sync()

    def trace(self, program: Program, variant: str) -> Path:
        of_rank = f".rank{self.rank}" if self.ranks > 1 else ""
        return self.out / f"{program.name}.{variant}{of_rank}.json.gz"


def plain_pair(name: str, place: Place) -> dict[str, Any]:
    """Return the seconds per step of each variant in each round, without the profiler."""
    program = prepared(name, place)
    return {variant: measure_plain(program, place.context(variant), place.fence) for variant in VARIANTS}


def traced_pair(name: str, place: Place) -> dict[str, Any]:
    """Write the traces of both variants, and return the seconds per step of each traced window."""
    program = prepared(name, place)
    return {
        variant: measure_traced(program, place.context(variant), place.fence, place.trace(program, variant))
        for variant in VARIANTS
    }


def joined(name: str, place: Place, plain: dict[str, Any], traced: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of both variants in truth.json."""
    program = load_programs()[name]
    return {
        variant: {
            **numbers(program, plain[variant], traced[variant]),
            "files": [place.trace(program, variant).name],
        }
        for variant in VARIANTS
    }


def measure_pair(name: str, place: Place) -> dict[str, Any]:
    """Measure both variants without the profiler, then trace both, because CUPTI slows all work after its first use."""
    return joined(name, place, plain_pair(name, place), traced_pair(name, place))


def prepared(name: str, place: Place) -> Program:
    if place.device == "cpu":
        torch.set_num_threads(1)
    return load_programs()[name]


def measure_rank(rank: int, ranks: int, name: str, backend: str, place: Place, store: Path) -> dict[str, Any]:
    """Measure one rank's part of a program."""
    join(backend, rank, ranks, store)
    return measure_pair(name, replace(place, rank=rank, ranks=ranks))


def measure_ranks(name: str, place: Place, machine: dict[str, Any]) -> dict[str, Any]:
    """Measure a program of several ranks. A step's time is the maximum over the ranks."""
    program = load_programs()[name]
    by_rank = start_ranks(measure_rank, machine["ranks"], name, machine["backend"], place, scratch=place.scratch)
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
