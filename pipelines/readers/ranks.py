"""Ranks of the processes of one file, from NCCL or the environment, else from the GPU that only one process uses."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from pipelines.readers.kineto.reading_result import Finding
from pipelines.readers.origin import BY_DEVICE, BY_ENVIRONMENT, BY_NCCL

_VARIABLES = (  # rank and world size, as torchrun, Open MPI, MPICH and Slurm set them
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
_MOST = 1 << 31
_SENTENCES = {
    BY_NCCL: "rank {} of {} is that in the largest NCCL communicator that the process opened: in a job without one of all "
    "ranks it is not the job's",
    BY_ENVIRONMENT: "rank {} of {} is what the recorded environment says",
    BY_DEVICE: "rank {} is the number of the only GPU that the process worked on, and no other process did: it holds within "
    "this file, and how many ranks the job has is unknown",
}
Key = TypeVar("Key", bound=Hashable)


class Rank(NamedTuple):
    """The rank of a process. `world_size`: None if unknown. `source`: see traces.rank_source."""

    rank: int
    world_size: int | None
    source: str

    def as_distributed_info(self) -> dict[str, int | str]:
        """Return the rank as Kineto's distributedInfo."""
        world = {} if self.world_size is None else {"world_size": self.world_size}
        return {"rank": self.rank, **world, "rank_source": self.source}

    def finding(self, tool: str) -> Finding:
        """Return the finding that the trace does not record its rank directly."""
        world = "an unknown number" if self.world_size is None else self.world_size
        return Finding(f"{tool}_rank_by_{self.source}", "info", 1, _SENTENCES[self.source].format(self.rank, world))


def from_environment(variables: Mapping[str, object]) -> Rank | None:
    """Return the rank in a process's environment variables, or None if they contain no rank."""
    for rank_name, size_name in _VARIABLES:
        rank, size = _number(variables.get(rank_name)), _number(variables.get(size_name))
        if rank is not None and (size is None or rank < size):
            return Rank(rank, size, BY_ENVIRONMENT)
    return None


def of_communicators(pairs_by_process: Mapping[Key, set[tuple[int, int]]]) -> dict[Key, Rank]:
    """Return the rank of each process in its largest communicator, from all its (size, rank) pairs.

    Return {} if the pairs do not describe one communicator (different sizes, a duplicate rank, or a process without a
    communicator). Omit a process whose rank is not below the size.
    """
    largest = {
        key: {pair for pair in pairs if pair[0] == max(pairs)[0]} for key, pairs in pairs_by_process.items() if pairs
    }
    if len(largest) < len(pairs_by_process) or any(len(pairs) > 1 for pairs in largest.values()):
        return {}
    size_and_rank_by_process = {key: pair for key, (pair,) in largest.items()}
    if len({size for size, _ in size_and_rank_by_process.values()}) > 1 or len(
        set(size_and_rank_by_process.values())
    ) < len(size_and_rank_by_process):
        return {}
    return {
        key: Rank(rank, size, BY_NCCL)
        for key, (size, rank) in size_and_rank_by_process.items()
        if 0 <= rank < size < _MOST
    }


def of_all(ranks: Mapping[Key, Rank | None]) -> dict[Key, Rank]:
    """Return the ranks if every process has a rank and all are different, else {}."""
    rank_by_process = {key: rank for key, rank in ranks.items() if rank}
    return (
        rank_by_process
        if len(rank_by_process) == len(ranks) == len({rank.rank for rank in rank_by_process.values()})
        else {}
    )


def unread_rows(tool: str, n_idle: int, n_without_process: int) -> Iterator[Finding]:
    """Yield the findings about rows that belong to no trace: rows of idle processes, and rows without a process."""
    if n_idle:
        yield Finding(f"{tool}_idle_processes", "info", n_idle, "rows of processes without GPU work are skipped")
    if n_without_process:
        message = "rows that do not say which process they belong to are skipped"
        yield Finding(f"{tool}_no_process", "warning", n_without_process, message)


def _number(text: object) -> int | None:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and int(text[:12]) < _MOST else None
