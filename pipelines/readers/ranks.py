"""Which ranks the processes of one file are: as NCCL or the environment says, else by the GPU that each has for itself."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple, TypeVar

from pipelines.readers.kineto.reading_result import Finding
from pipelines.readers.origin import BY_DEVICE, BY_ENVIRONMENT, BY_NCCL

_VARIABLES = (  # rank and world size, as torchrun, Open MPI, MPICH and Slurm tell their processes
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
_MOST = 1 << 31
_TOLD = {
    BY_NCCL: "rank {} of {} is that in the largest NCCL communicator that the process opened: in a job without one of all "
    "ranks it is not the job's",
    BY_ENVIRONMENT: "rank {} of {} is what the recorded environment says",
    BY_DEVICE: "rank {} is the number of the only GPU that the process worked on, and no other process did: it holds within "
    "this file, and how many ranks the job has is unknown",
}
Key = TypeVar("Key", bound=Hashable)


class Rank(NamedTuple):
    """`world_size` None: unknown. `source`: see traces.rank_source."""

    rank: int
    world_size: int | None
    source: str

    def told(self) -> dict[str, int | str]:
        """Returns it as Kineto's distributedInfo."""
        world = {} if self.world_size is None else {"world_size": self.world_size}
        return {"rank": self.rank, **world, "rank_source": self.source}

    def finding(self, tool: str) -> Finding:
        """Returns the finding that the trace itself does not tell its rank."""
        world = "an unknown number" if self.world_size is None else self.world_size
        return Finding(f"{tool}_rank_by_{self.source}", "info", 1, _TOLD[self.source].format(self.rank, world))


def of_environment(variables: Mapping[str, object]) -> Rank | None:
    """Returns the rank that a process's environment tells; None if it tells none."""
    for named, world in _VARIABLES:
        rank, size = _number(variables.get(named)), _number(variables.get(world))
        if rank is not None and (size is None or rank < size):
            return Rank(rank, size, BY_ENVIRONMENT)
    return None


def of_communicators(found: Mapping[Key, set[tuple[int, int]]]) -> dict[Key, Rank]:
    """Returns the ranks in the largest communicator of each process, from all its (ranks, rank); {} where these are not of
    one communicator: of several sizes, or a rank twice, or a process without one.
    """
    largest = {key: {pair for pair in pairs if pair[0] == max(pairs)[0]} for key, pairs in found.items() if pairs}
    if len(largest) < len(found) or any(len(pairs) > 1 for pairs in largest.values()):
        return {}
    told = {key: pair for key, (pair,) in largest.items()}
    if len({size for size, _ in told.values()}) > 1 or len(set(told.values())) < len(told):
        return {}
    return {key: Rank(rank, size, BY_NCCL) for key, (size, rank) in told.items() if 0 <= rank < size < _MOST}


def of_all(ranks: Mapping[Key, Rank | None]) -> dict[Key, Rank]:
    """Returns the ranks if every process has one of its own, else {}: what two share, neither has."""
    told = {key: rank for key, rank in ranks.items() if rank}
    return told if len(told) == len(ranks) == len({rank.rank for rank in told.values()}) else {}


def _number(text: object) -> int | None:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and int(text[:12]) < _MOST else None
