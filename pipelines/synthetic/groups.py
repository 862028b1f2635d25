"""Process groups of a synthetic job, and Kineto's description of them.

Ranks are numbered as in Megatron-LM. Neighbouring ranks form a tensor-parallel group. Ranks at the same position in the
tensor-parallel groups of a stage are data-parallel replicas. Pipeline stages follow one another.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from .spec import CaptureSpec

_LISTED = 30
"""PyTorch writes the ranks of larger groups as the first 29, an ellipsis and the last."""


@dataclass(frozen=True)
class Group:
    """A process group: name and description in its collectives, and its ranks."""

    name: str
    description: str
    ranks: tuple[int, ...]

    def args(self, collective: str, n_elements: int, sequence: int) -> str:
        """Return a kernel's arguments about one of the group's collectives, as the inside of a JSON object."""
        return (
            f'"Collective name": "{collective}", "In msg nelems": {n_elements}, "Out msg nelems": {n_elements}, '
            f'"Group size": {len(self.ranks)}, "dtype": "Float", "In split size": "[]", "Out split size": "[]", '
            f'"Process Group Name": "{self.name}", "Process Group Description": "{self.description}", '
            f'"Process Group Ranks": "{_listed(self.ranks)}", "Seq": {sequence}'
        )


@dataclass(frozen=True)
class RankGroups:
    """Groups of one rank. `before`, `after`: groups with a rank of the neighbouring stage, None at the ends."""

    world: Group
    tensor: Group
    data: Group
    before: Group | None
    after: Group | None


@cache
def world(n_ranks: int) -> Group:
    """Return the group of all ranks."""
    return Group("0", "default_pg", tuple(range(n_ranks)))


def groups_of(spec: CaptureSpec, rank: int) -> RankGroups:
    """Return the process groups of a rank."""
    stage_size = spec.ranks // spec.pipeline
    stage, index = divmod(rank, stage_size)
    node = rank // spec.tensor * spec.tensor
    tensor = Group(f"tp{node}", "TENSOR_MODEL_PARALLEL_GROUP", tuple(range(node, node + spec.tensor)))
    replicas = range(stage * stage_size + index % spec.tensor, (stage + 1) * stage_size, spec.tensor)
    data = Group(f"dp{replicas[0]}", "DATA_PARALLEL_GROUP", tuple(replicas))
    return RankGroups(
        world(spec.ranks),
        tensor,
        data,
        _neighbours(rank - stage_size, rank) if stage > 0 else None,
        _neighbours(rank, rank + stage_size) if stage < spec.pipeline - 1 else None,
    )


def _neighbours(rank: int, next_rank: int) -> Group:
    return Group(f"pp{rank}:{next_rank}", "PIPELINE_MODEL_PARALLEL_GROUP", (rank, next_rank))


@cache
def _listed(ranks: tuple[int, ...]) -> str:
    if len(ranks) <= _LISTED:
        return str(list(ranks))
    first = ", ".join(map(str, ranks[: _LISTED - 1]))
    return f"[{first}, ..., {ranks[-1]}]"
