"""Lanes of communication kernels. Each lane is matched separately.

The collectives of a process group (name and ranks) form one lane, and its sends and receives another, because
frameworks number them separately. Kernels that do not name their process group form one lane per stream, numbered by
first start. All ranks must then have the same number of such streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pipelines.base.datafiles import rule_rows
from pipelines.fleet.collectives.entries import Instances
from pipelines.fleet.collectives.rank_lane import NONE, RankLane

KINDS = tuple(dict.fromkeys(row["kind"] for row in rule_rows("collective_kinds")))
_POINT_TO_POINT = "sendrecv"
"""The kind of a send or receive. Without a process group, it may also be an all-to-all, which NCCL runs as such."""
Group = tuple[str, str]


@dataclass
class Kernels:
    """The kernels of a rank in order of (start, event_id), with the columns of table `collective_kernels`."""

    rank: int
    trace_id: list[str] = field(default_factory=list)
    event_id: list[int] = field(default_factory=list)
    kind: list[str] = field(default_factory=list)
    waits_for_all: list[bool] = field(default_factory=list)
    stream: list[tuple[int | None, int | None]] = field(default_factory=list)
    start_ns: list[int] = field(default_factory=list)
    end_ns: list[int] = field(default_factory=list)
    step: list[int | None] = field(default_factory=list)
    group: list[Group | None] = field(default_factory=list)
    description: list[str | None] = field(default_factory=list)
    seq: list[int | None] = field(default_factory=list)

    def add(
        self,
        trace_id: str,
        event_id: int,
        kind: str,
        waits_for_all: bool,
        device: int | None,
        stream: int | None,
        start_ns: int,
        end_ns: int,
        step: int | None,
        group_name: str | None,
        group_ranks: str | None,
        description: str | None,
        seq: int | None,
    ) -> None:
        """Add a kernel."""
        group = None if group_name is None else (group_name, group_ranks or "")
        values = (trace_id, event_id, kind, waits_for_all, (device, stream), start_ns, end_ns, step, group)
        names = ("trace_id", "event_id", "kind", "waits_for_all", "stream", "start_ns", "end_ns", "step", "group")
        for name, value in (*zip(names, values, strict=True), ("description", description), ("seq", seq)):
            getattr(self, name).append(value)

    def __len__(self) -> int:
        return len(self.event_id)

    def part(self, chosen: Sequence[int]) -> Kernels:
        """Return the kernels at these indices."""
        part = Kernels(self.rank)
        for name in vars(self):
            if name != "rank":
                column = getattr(self, name)
                getattr(part, name).extend(column[i] for i in chosen)
        return part


@dataclass(frozen=True)
class Lane:
    """Kernels of several ranks that are matched together; `group` is None for a stream."""

    number: int
    group: Group | None
    members: tuple[Kernels, ...]
    is_point_to_point: bool = False

    @property
    def has_pairs(self) -> bool:
        """Return whether the lane's calls are sends and receives between two ranks of a larger group."""
        n_listed = self.group[1].count(",") + 1 if self.group else 0  # the list may name ranks outside the capture
        return self.is_point_to_point and max(n_listed, len(self.members)) > 2

    @property
    def description(self) -> str | None:
        """Return the description of the process group, from a kernel that has one, or None."""
        return next((text for member in self.members for text in member.description if text), None)

    @property
    def sequences(self) -> list[RankLane]:
        """Return the sequences to match, one per rank."""
        return [_sequence(member) for member in self.members]

    def instances(self, index: np.ndarray) -> Instances:
        """Return starts and ends of the kernels at `index` (members, instances)."""
        starts = np.array(
            [[member.start_ns[i] for i in row] for member, row in zip(self.members, index, strict=True)], np.int64
        )
        ends = np.array(
            [[member.end_ns[i] for i in row] for member, row in zip(self.members, index, strict=True)], np.int64
        )
        bounded = [
            all(member.waits_for_all[i] for member, i in zip(self.members, positions, strict=True))
            for positions in index.T
        ]
        return Instances(starts, ends, np.ones(index.shape, bool), np.array(bounded, bool))


def lanes_of(ranks: Sequence[int], kernels: dict[int, Kernels]) -> tuple[list[Lane], str | None]:
    """Return the lanes of a capture, streams first, and the reason why the streams cannot be matched.

    The reason is None if they can be matched.
    """
    streams = {rank: _streams(kernels[rank]) if rank in kernels else [] for rank in ranks}
    counts = {rank: len(rank_streams) for rank, rank_streams in streams.items()}
    mismatch = None
    if len(set(counts.values())) > 1:
        fewest, most_streams = (choose(counts, key=lambda rank: (counts[rank], rank)) for choose in (min, max))
        mismatch = f"lane_count_mismatch: rank {fewest} has {counts[fewest]} streams, rank {most_streams} has {counts[most_streams]}"
    lanes = []
    for number in range(max(counts.values(), default=0)):
        members = tuple(rank_streams[number] for rank_streams in streams.values() if len(rank_streams) > number)
        lanes.append(Lane(number, None, members))
    members_of: dict[tuple[Group, bool], list[Kernels]] = {}
    for rank in ranks:
        for key, part in _groups(kernels[rank]).items() if rank in kernels else ():
            members_of.setdefault(key, []).append(part)
    for number, key in enumerate(sorted(members_of), len(lanes)):
        group, is_point_to_point = key
        lanes.append(Lane(number, group, tuple(members_of[key]), is_point_to_point))
    return lanes, mismatch


def _streams(kernels: Kernels) -> list[Kernels]:
    """Return a rank's streams of kernels without process groups, by first start."""
    positions_by_stream: dict[tuple[int | None, int | None], list[int]] = {}
    for position, (stream, group) in enumerate(zip(kernels.stream, kernels.group, strict=True)):
        if group is None:
            positions_by_stream.setdefault(stream, []).append(position)
    return [kernels.part(positions) for positions in positions_by_stream.values()]


def _groups(kernels: Kernels) -> dict[tuple[Group, bool], Kernels]:
    """Return a rank's kernels by process group and whether they are sends and receives."""
    positions_by_group: dict[tuple[Group, bool], list[int]] = {}
    for position, (group, kind) in enumerate(zip(kernels.group, kernels.kind, strict=True)):
        if group is not None:
            positions_by_group.setdefault((group, kind == _POINT_TO_POINT), []).append(position)
    return {key: kernels.part(positions) for key, positions in positions_by_group.items()}


def _sequence(kernels: Kernels) -> RankLane:
    return RankLane(
        rank=kernels.rank,
        kinds=np.array([KINDS.index(kind) for kind in kernels.kind], np.int8),
        start_ns=np.array(kernels.start_ns, np.int64),
        end_ns=np.array(kernels.end_ns, np.int64),
        seq=_known(kernels.seq),
        step=_known(kernels.step),
        waits_for_all=np.array(kernels.waits_for_all, bool),
    )


def _known(values: Sequence[int | None]) -> np.ndarray | None:
    """Return the values as an array with NONE for None, or None if all values are None."""
    if all(value is None for value in values):
        return None
    return np.array([NONE if value is None else value for value in values], np.int64)
