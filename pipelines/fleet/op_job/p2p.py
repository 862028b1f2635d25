"""The dependencies of sends and receives between stages, and the pairs of a send and a receive that end together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pipelines.base.datafiles import threshold
from pipelines.fleet.op_job.job import JobMeta, JobRejected, Op

EPS = threshold("op_job_clock_s")
COMPUTES = ("forward-compute", "backward-compute")
# By kind of transfer: its compute, and the offset to the neighboring stage that it connects to.
P2P = {
    "forward-send": ("forward-compute", 1),
    "forward-recv": ("forward-compute", -1),
    "backward-send": ("backward-compute", -1),
    "backward-recv": ("backward-compute", 1),
}
_OTHER_END = {"forward-send": "forward-recv", "backward-send": "backward-recv"}


@dataclass
class Transfers:
    """The part of a template for p2p ops.

    `edges`: pairs of an op and the op that it waits for. `groups`: ops that end together.
    """

    edges: list[tuple[int, int]] = field(default_factory=list)
    groups: list[tuple[int, ...]] = field(default_factory=list)


def transfers(where: str, meta: JobMeta, ops: tuple[Op, ...], stages: list[dict[str, list[int]]]) -> Transfers:
    """Return the edges and groups of all p2p ops.

    `stages`: for each stage, the ops of each kind, in order. Raise JobRejected if a stage's transfers do not fit its
    computes, or if a stage's sends and its neighbor's receives differ in number.
    """
    result = Transfers()
    crossing: dict[tuple[str, int], list[int]] = {}
    for stage, kinds in enumerate(stages):
        for kind in P2P:
            real = _real(kind, ops, kinds)
            _attach(f"{where}: stage {stage}", kind, real, kinds, result)
            crossing[kind, stage] = _inside(kind, real, kinds, ops, meta)
            result.groups += [(op,) for op in kinds.get(kind, []) if op not in crossing[kind, stage]]
        result.edges += _warm_up(kinds, ops)
    result.groups += _pairs(where, meta.pp, crossing)
    return result


def _real(kind: str, ops: tuple[Op, ...], kinds: dict[str, list[int]]) -> list[int]:
    """Return the transfers that carry data. The other transfers were recorded without a partner.

    A send without a partner ends before the first compute of its kind ends. A receive without a partner starts after
    the last compute has started.
    """
    computes = kinds.get(P2P[kind][0], [])
    if kind.endswith("send"):
        first = min((ops[compute].end for compute in computes), default=float("inf")) - EPS
        return [op for op in kinds.get(kind, []) if ops[op].end >= first]
    last = max((ops[compute].start for compute in computes), default=float("-inf")) + EPS
    return [op for op in kinds.get(kind, []) if ops[op].start <= last]


def _skipped(kind: str, real: list[int], computes: list[int]) -> int:
    """Return the number of computes before the first transfer's compute, or -1 if the counts do not fit."""
    if len(real) in (0, len(computes)):
        return 0
    return 1 if kind.endswith("recv") and len(real) == len(computes) - 1 else -1


def _attach(where: str, kind: str, real: list[int], kinds: dict[str, list[int]], result: Transfers) -> None:
    computes = kinds.get(P2P[kind][0], [])
    skipped = _skipped(kind, real, computes)
    if skipped < 0:
        raise JobRejected(
            f"{where}: {len(real)} {kind} ops for {len(computes)} {P2P[kind][0]} ops; there must be none, equally many, "
            "or (receives only) one less: record every transfer of a stage, or none"
        )
    for i, op in enumerate(real, skipped):
        if kind.endswith("send"):
            result.edges.append((op, computes[i]))
        else:
            result.edges.append((computes[i], op))
            result.edges += [(op, computes[i - 1])] if i else []


def _inside(kind: str, real: list[int], kinds: dict[str, list[int]], ops: tuple[Op, ...], meta: JobMeta) -> list[int]:
    """Return the transfers whose other end belongs to a chunk of the model."""
    compute, step = P2P[kind]
    computes = kinds.get(compute, [])
    skipped = _skipped(kind, real, computes)
    chunks = meta.pp * meta.vpp
    return [op for i, op in enumerate(real, skipped) if 0 <= ops[computes[i]].gmc + step < chunks]


def _warm_up(kinds: dict[str, list[int]], ops: tuple[Op, ...]) -> Iterable[tuple[int, int]]:
    """Return the edges from the first backward transfers to the compute two before the first backward compute."""
    chain = kinds.get("computes", [])
    first = next((i for i, op in enumerate(chain) if ops[op].optype == "backward-compute"), 0)
    if first < 2:
        return []
    firsts = (op for kind in ("backward-recv", "backward-send") for op in kinds.get(kind, []) if ops[op].seq_id == 0)
    return [(op, chain[first - 2]) for op in firsts]


def _pairs(where: str, pp: int, crossing: dict[tuple[str, int], list[int]]) -> Iterable[tuple[int, ...]]:
    """Pair the i-th send of a stage with the i-th receive of its neighbor."""
    for send, recv in _OTHER_END.items():
        for stage in range(pp):
            other = (stage + P2P[send][1]) % pp
            sends, receives = crossing[send, stage], crossing[recv, other]
            if len(sends) != len(receives):
                raise JobRejected(
                    f"{where}: {len(sends)} {send} ops of stage {stage} for {len(receives)} {recv} ops of stage {other}; "
                    "each send needs one receive: record both sides of every transfer"
                )
            yield from zip(sends, receives, strict=True)
