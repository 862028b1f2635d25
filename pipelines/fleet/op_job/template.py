"""The dependencies within a step, derived from dp rank 0 of the first step, and used for all steps and dp ranks.

The rules are those of StragglerAnalysis (ByteDance, Apache-2.0), rewritten from their description.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from pipelines.fleet.op_job.job import JobRejected, JobTrace, Op
from pipelines.fleet.op_job.p2p import COMPUTES, P2P, transfers

GATHER, REDUCE, SEPARATE = "params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"
NORMS, EMBEDDING, CLIP = "layernorm-grads-all-reduce", "embedding-grads-all-reduce", "optimizer-clip-main-grad"
GC, OPTIMIZER = "gc", "optimizer"
DP_SYNCHRONISED = (GATHER, REDUCE, SEPARATE, CLIP)
OPTYPES = (*COMPUTES, *P2P, GATHER, REDUCE, SEPARATE, NORMS, EMBEDDING, CLIP, GC, OPTIMIZER)


@dataclass(frozen=True)
class Unit:
    """Ops that are replayed together: a single op that ends independently, or a group.

    A group ends only after all its ops have started, with `across_dp` on all dp ranks.
    """

    ops: tuple[int, ...]
    grouped: bool
    across_dp: bool = False


@dataclass(frozen=True)
class Template:
    """The dependencies of a step. `deps` [op]: the ops that must end before it starts. `units`: in replay order."""

    deps: tuple[tuple[int, ...], ...]
    units: tuple[Unit, ...]

    @property
    def grouped(self) -> frozenset[int]:
        """Return the ops that end together with other ops, or with the same op on other dp ranks."""
        return frozenset(op for unit in self.units if unit.grouped for op in unit.ops)


def build_template(job: JobTrace) -> Template:
    """Return the dependencies of a job's ops.

    Raise JobRejected for an unknown op type, a stage without compute or optimizer, transfers that do not fit, a
    collective with a wrong number of stages, or circular dependencies.
    """
    ops, where = job.ops, str(job.path)
    stages = [_by_kind(where, ops, stage) for stage in range(job.meta.pp)]
    p2p = transfers(where, job.meta, ops, stages)
    edges = list(p2p.edges)
    for kinds in stages:
        edges += _stage_edges(ops, kinds, job.meta.data_parallel)
    waits: list[set[int]] = [set() for _ in ops]
    for op, before in edges:
        waits[op].add(before)
    deps = tuple(tuple(sorted(before)) for before in waits)
    units = [Unit(group, True) for group in p2p.groups] + _collectives(where, job, stages)
    inside = {op for unit in units for op in unit.ops}
    units += [Unit((op,), False) for op in range(len(ops)) if op not in inside]
    return Template(deps, _in_order(where, ops, deps, units))


def _by_kind(where: str, ops: tuple[Op, ...], stage: int) -> dict[str, list[int]]:
    """Return a stage's ops by type, ordered by (start, seq_id, type).

    The key `computes` has forward and backward computes together, the key `shards` gathers and reduce-scatters.
    """
    stage_ops = [i for i, op in enumerate(ops) if op.stage == stage]
    stage_ops.sort(key=lambda i: (ops[i].start, ops[i].seq_id, ops[i].optype))
    kinds: dict[str, list[int]] = {}
    for i in stage_ops:
        if ops[i].optype not in OPTYPES:
            raise JobRejected(
                f"{where}: column 'optype': {ops[i].optype!r} is unknown; known types are {', '.join(OPTYPES)}"
            )
        kinds.setdefault(ops[i].optype, []).append(i)
    kinds["computes"] = [i for i in stage_ops if ops[i].optype in COMPUTES]
    for kind, name in (("computes", "compute"), (OPTIMIZER, OPTIMIZER)):
        if not kinds.get(kind):
            raise JobRejected(f"{where}: stage {stage} has no {name} op; every stage needs one: record complete steps")
    kinds["shards"] = [i for i in stage_ops if ops[i].optype in (GATHER, REDUCE)]
    return kinds


def _stage_edges(ops: tuple[Op, ...], kinds: dict[str, list[int]], data_parallel: bool) -> list[tuple[int, int]]:
    """Return the dependencies within a stage, as pairs of an op and the op that it waits for."""
    edges = [edge for kind in ("computes", *P2P) for edge in _chain(kinds.get(kind, []))]
    if data_parallel:
        edges += [*_chain(kinds["shards"]), *_gathers(ops, kinds)]
    if separate := kinds.get(SEPARATE, []):
        edges += _separate(ops, kinds)
    last = max(kinds["computes"], key=lambda i: ops[i].end)
    reduces = [] if separate else kinds.get(REDUCE, [])
    norms, embedding, clip, gc = (kinds.get(kind, []) for kind in (NORMS, EMBEDDING, CLIP, GC))
    tail = [*norms, *embedding, *reduces, *separate, *clip, *kinds[OPTIMIZER]]
    edges += _chain([last, *gc, *tail])
    if separate and kinds.get(REDUCE):
        edges.append((tail[0], kinds[REDUCE][-1]))
    return edges


def _chain(ops: list[int]) -> list[tuple[int, int]]:
    return list(zip(ops[1:], ops, strict=False))


def _gathers(ops: tuple[Op, ...], kinds: dict[str, list[int]]) -> list[tuple[int, int]]:
    """Return edges from the first forward compute of each model chunk to the last gather of the chunk's parameters."""
    first = {ops[i].mc: i for i in reversed(kinds.get("forward-compute", []))}
    last = {ops[i].mc: i for i in sorted(kinds.get(GATHER, []), key=lambda i: ops[i].seq_id)}
    return [(first[mc], op) for mc, op in last.items() if mc in first]


def _separate(ops: tuple[Op, ...], kinds: dict[str, list[int]]) -> list[tuple[int, int]]:
    """Return the edges from each chunk's first reduce-scatter to its last backward compute, for separate reductions."""
    first = {ops[i].mc: i for i in reversed(kinds.get(REDUCE, []))}
    last = {ops[i].mc: i for i in sorted(kinds.get("backward-compute", []), key=lambda i: ops[i].end)}
    return [(op, last[mc]) for mc, op in first.items() if mc in last]


def _collectives(where: str, job: JobTrace, stages: list[dict[str, list[int]]]) -> list[Unit]:
    units = [Unit((op,), True, True) for k in stages for kind in (GATHER, REDUCE, SEPARATE) for op in k.get(kind, [])]
    ends = sorted({0, job.meta.pp - 1})
    for kind, members in ((EMBEDDING, ends), (CLIP, list(range(job.meta.pp)))):
        by_seq: dict[int, list[int]] = {}
        for op in (op for kinds in stages for op in kinds.get(kind, [])):
            by_seq.setdefault(job.ops[op].seq_id, []).append(op)
        for seq, group in by_seq.items():
            if (stages_of_group := sorted(job.ops[op].stage for op in group)) != members:
                raise JobRejected(
                    f"{where}: {kind} {seq} has rows of the stages {stages_of_group}, not of {members}; its ops end together: "
                    "record it on all of them"
                )
            units.append(Unit(tuple(group), True, kind in DP_SYNCHRONISED))
    return units


def _in_order(
    where: str, ops: tuple[Op, ...], deps: tuple[tuple[int, ...], ...], units: list[Unit]
) -> tuple[Unit, ...]:
    unit_of = {op: i for i, unit in enumerate(units) for op in unit.ops}
    if duplicates := [op for op, n in Counter(op for unit in units for op in unit.ops).items() if n > 1]:
        raise JobRejected(f"{where}: {ops[duplicates[0]]} belongs to two transfers; number its ops in execution order")
    before = {i: {unit_of[d] for op in unit.ops for d in deps[op]} for i, unit in enumerate(units)}
    try:
        return tuple(units[i] for i in TopologicalSorter(before).static_order())
    except CycleError as error:
        circle = " → ".join(str(ops[units[i].ops[0]]) for i in error.args[1])
        raise JobRejected(f"{where}: ops wait for each other in a cycle: {circle}; check their start times") from None
