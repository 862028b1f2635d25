"""Files into which SGLang merged the traces of several ranks (`merge_profiles`). A process `[TP00] 0` names its rank.

The events of the ranks follow one another. Each rank is read as a separate trace, as if from its own file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pipelines.models.sqltext import quoted
from pipelines.readers.kineto.identify import identify_path
from pipelines.readers.kineto.reading_result import Finding
from pipelines.readers.kineto.source import Source

BY_LABEL = "label"
"""Source of the rank, for traces.rank_source."""
_LABEL = r"(?:TP|DP|PP|EP)\d+(?:-(?:TP|DP|PP|EP)\d+)*"
_PROCESS = re.compile(rf'"pid"\s*:\s*"\[({_LABEL})\] '.encode())
_ANY_PROCESS = re.compile(rb'"pid"\s*:')
_PERHAPS_END = re.compile(rb"\}\s*,?\s*\]\s*(?:[,}]|\Z)")
_OVERLAP = 1 << 12  # longer than any match


@dataclass(frozen=True)
class MergedRank:
    """A rank of a merged file.

    `rank`: its number in the job. `takes_others`: whether unlabelled processes belong to it.
    """

    label: str
    rank: int
    takes_others: bool

    def is_in(self, entries: bytes | memoryview) -> bool:
        """Return whether some of these entries may belong to the rank, or the array may end among them."""
        labels = _PROCESS.findall(entries)
        if self.label.encode() in labels or _PERHAPS_END.search(entries):
            return True
        return self.takes_others and len(labels) < len(_ANY_PROCESS.findall(entries))

    def rows(self, raw_events: str) -> str:
        """Return the query for the rank's rows among `raw_events`, with process names as they were before the merge."""
        prefix = f"[{self.label}] "
        is_own = f"coalesce(starts_with(pid, {quoted(prefix)}), FALSE)"
        or_unlabelled = rf" OR NOT coalesce(regexp_matches(pid, '^\[{_LABEL}\] '), FALSE)" if self.takes_others else ""
        pid = f"CASE WHEN {is_own} THEN substr(pid, {len(prefix) + 1}) ELSE pid END AS pid"
        return f"SELECT * REPLACE ({pid}) FROM ({raw_events}) WHERE {is_own}{or_unlabelled}"

    def finding(self) -> Finding:
        """Return the finding that the rank was identified by its label."""
        detail = (
            f"rank {self.rank} is what the label {self.label} of its processes says: the file holds several ranks' traces, "
            "and event_id is the position among the rank's own events"
        )
        return Finding("merged_ranks", "info", 1, detail)

    def trace_id(self, of_file: str) -> str:
        """Return the id of the rank's trace. `of_file`: the trace id of the whole file."""
        return hashlib.sha256(f"{of_file}\0{self.label}".encode()).hexdigest()[:16]

    def metadata(self, of_file: dict[str, Any]) -> dict[str, Any]:
        """Return the rank's metadata, from the file's metadata (the first rank's, with the devices of all ranks)."""
        distributed_info = of_file.get("distributedInfo")
        rank_info = {"rank": self.rank, "rank_source": BY_LABEL, "label": self.label}
        metadata = {
            **of_file,
            "distributedInfo": {**(distributed_info if isinstance(distributed_info, dict) else {}), **rank_info},
        }
        if isinstance(devices := of_file.get("deviceProperties"), list):
            metadata["deviceProperties"] = [*{json.dumps(device): device for device in devices}.values()]
        return metadata


def merged_ranks(path: Path) -> tuple[MergedRank, ...]:
    """Return the ranks of a merged file in order of appearance, () for any other file.

    Raise OSError if it cannot be read.
    """
    if identify_path(path):  # the reader rejects it with the reason
        return ()
    stat = path.stat()
    return _merged_ranks(path, stat.st_size, stat.st_mtime_ns)


def labels_of(path: Path) -> list[str]:
    """Return the labels of the ranks of a merged file, [] for any other file. Raise OSError if it cannot be read."""
    return [rank.label for rank in merged_ranks(path)]


@lru_cache(maxsize=8)
def _merged_ranks(path: Path, _size: int, _changed: int) -> tuple[MergedRank, ...]:
    """Return the ranks of a merged file, or () for any other file.

    A file without a label in its first chunk is not a merged file.
    """
    labels: dict[str, None] = {}
    overlap = b""
    for chunk in Source(path).chunks():
        text = overlap + chunk
        labels |= dict.fromkeys(label.decode() for label in _PROCESS.findall(text))
        if not labels:
            break
        overlap = text[-_OVERLAP:]
    ranks = ranks_of([*labels])
    return tuple(MergedRank(label, ranks[label], index == 0) for index, label in enumerate(labels))


def ranks_of(labels: Sequence[str]) -> dict[str, int]:
    """Return the number of each rank in its job, by label.

    The number is the tensor-parallel rank if all of these differ. Otherwise SGLang's order applies: by data-parallel
    replica, then by pipeline stage, then by tensor-parallel rank. If some labels still have equal numbers, all ranks
    are numbered in order of appearance.
    """
    indices_by_label = {label: _place(label) for label in labels}
    if len({indices["TP"] for indices in indices_by_label.values()}) == len(labels):
        return {label: indices["TP"] for label, indices in indices_by_label.items()}
    n_by_kind = {kind: 1 + max(indices[kind] for indices in indices_by_label.values()) for kind in ("PP", "TP")}
    rank_of = {
        label: (indices["DP"] * n_by_kind["PP"] + indices["PP"]) * n_by_kind["TP"] + indices["TP"]
        for label, indices in indices_by_label.items()
    }
    if len(set(rank_of.values())) == len(labels):
        return rank_of
    return {label: number for number, label in enumerate(labels)}


def _place(label: str) -> dict[str, int]:
    return {"TP": 0, "DP": 0, "PP": 0, **{label_part[:2]: int(label_part[2:]) for label_part in label.split("-")}}
