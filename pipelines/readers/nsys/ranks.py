"""Ranks of an export's processes, from the recorded environment, NCCL's communicators, or each process's only GPU."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipelines.readers.nsys.communicators import communicators
from pipelines.readers.nsys.processes import device_ranks
from pipelines.readers.origin import BY_DEVICE
from pipelines.readers.ranks import Rank, from_environment, of_communicators
from pipelines.readers.sqlite_exports.open_export import Exported

_CAPTURE = "META_DATA_CAPTURE"
_VARIABLE = re.compile(r'([A-Z_]+)="?(\d{1,12})"?')


def ranks_of(export: Exported, keys: Sequence[int]) -> dict[int, Rank]:
    """Return the rank of each process, {} if nothing in the export identifies ranks."""
    if len(keys) == 1 and (rank := _of_launcher(export)):
        return {keys[0]: rank}
    if rank_by_process := of_communicators(communicators(export, keys)):
        return rank_by_process
    return {key: Rank(rank, None, BY_DEVICE) for key, rank in device_ranks(export, keys).items()}


def _of_launcher(export: Exported) -> Rank | None:
    """Return the rank in the environment in which nsys started the program, or None if it contains no rank.

    The rank is meaningful only for an export with a single process.
    """
    if not {"name", "value"} <= export.columns(_CAPTURE):
        return None
    query = f"SELECT value FROM {_CAPTURE} WHERE name = 'PROCESS_0:ENVIRONMENT_VARIABLE' AND typeof(value) = 'text'"
    matches = (_VARIABLE.fullmatch(value) for (value,) in export.rows(_CAPTURE, query) if len(value) < 256)
    return from_environment({match[1]: match[2] for match in matches if match})
