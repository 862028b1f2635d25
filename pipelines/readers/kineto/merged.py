"""Files into which SGLang merged the traces of several ranks (`merge_profiles`): each process is `[TP00] 0`, which names its rank.

The events of the ranks stand one after another. Each rank is read as a trace of its own, as from its own file.
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
"""What told the rank: traces.rank_source."""
_LABEL = r"(?:TP|DP|PP|EP)\d+(?:-(?:TP|DP|PP|EP)\d+)*"
_PROCESS = re.compile(rf'"pid"\s*:\s*"\[({_LABEL})\] '.encode())
_ANY_PROCESS = re.compile(rb'"pid"\s*:')
_PERHAPS_END = re.compile(rb"\}\s*,?\s*\]\s*(?:[,}]|\Z)")
_OVERLAP = 1 << 12  # longer than any match


@dataclass(frozen=True)
class MergedRank:
    """One of the ranks of a merged file: its label, its number in the job, whether what has no label counts as its."""

    label: str
    rank: int
    takes_others: bool

    def is_in(self, entries: bytes | memoryview) -> bool:
        """Returns whether some of these entries may be its, or the array may end among them."""
        labels = _PROCESS.findall(entries)
        if self.label.encode() in labels or _PERHAPS_END.search(entries):
            return True
        return self.takes_others and len(labels) < len(_ANY_PROCESS.findall(entries))

    def rows(self, raw_events: str) -> str:
        """Returns the query of its rows among `raw_events`, with its processes as they were called before they were merged."""
        prefix = f"[{self.label}] "
        mine = f"coalesce(starts_with(pid, {quoted(prefix)}), FALSE)"
        others = rf" OR NOT coalesce(regexp_matches(pid, '^\[{_LABEL}\] '), FALSE)" if self.takes_others else ""
        pid = f"CASE WHEN {mine} THEN substr(pid, {len(prefix) + 1}) ELSE pid END AS pid"
        return f"SELECT * REPLACE ({pid}) FROM ({raw_events}) WHERE {mine}{others}"

    def finding(self) -> Finding:
        """Returns the finding that its label tells its rank."""
        detail = f"rank {self.rank} is what the label {self.label} of its processes says: the file holds several ranks' traces"
        return Finding("merged_ranks", "info", 1, detail)

    def trace_id(self, of_file: str) -> str:
        """Returns the id of its trace."""
        return hashlib.sha256(f"{of_file}\0{self.label}".encode()).hexdigest()[:16]

    def metadata(self, of_file: dict[str, Any]) -> dict[str, Any]:
        """Returns its metadata: that of the file is the first rank's, with the devices of all ranks."""
        first = of_file.get("distributedInfo")
        named = {"rank": self.rank, "rank_source": BY_LABEL, "label": self.label}
        own = {**of_file, "distributedInfo": {**(first if isinstance(first, dict) else {}), **named}}
        if isinstance(devices := of_file.get("deviceProperties"), list):
            own["deviceProperties"] = [*{json.dumps(device): device for device in devices}.values()]
        return own


def merged_ranks(path: Path) -> tuple[MergedRank, ...]:
    """Returns the ranks of a merged file in their order; none for any other. Raises OSError."""
    if identify_path(path):  # reading it says why
        return ()
    about = path.stat()
    return _merged_ranks(path, about.st_size, about.st_mtime_ns)


def labels_of(path: Path) -> list[str]:
    """Returns the labels of the ranks of a merged file; none for any other. Raises OSError."""
    return [rank.label for rank in merged_ranks(path)]


@lru_cache(maxsize=8)
def _merged_ranks(path: Path, _size: int, _changed: int) -> tuple[MergedRank, ...]:
    """Other files are told by their beginning."""
    labels: dict[str, None] = {}
    before = b""
    for chunk in Source(path).chunks():
        text = before + chunk
        labels |= dict.fromkeys(label.decode() for label in _PROCESS.findall(text))
        if not labels:
            break
        before = text[-_OVERLAP:]
    ranks = ranks_of([*labels])
    return tuple(MergedRank(label, ranks[label], number == 0) for number, label in enumerate(labels))


def ranks_of(labels: Sequence[str]) -> dict[str, int]:
    """Returns the number of each rank in its job: its tensor-parallel rank where these differ; otherwise all of a data-parallel
    replica before the next, in it all of a pipeline stage before the next, as SGLang numbers them.
    """
    places = {label: _place(label) for label in labels}
    if len({place["TP"] for place in places.values()}) == len(labels):
        return {label: place["TP"] for label, place in places.items()}
    width = {kind: 1 + max(place[kind] for place in places.values()) for kind in ("PP", "TP")}
    rank_of = {
        label: (place["DP"] * width["PP"] + place["PP"]) * width["TP"] + place["TP"] for label, place in places.items()
    }
    if len(set(rank_of.values())) == len(labels):
        return rank_of
    return {label: number for number, label in enumerate(labels)}


def _place(label: str) -> dict[str, int]:
    return {"TP": 0, "DP": 0, "PP": 0, **{part[:2]: int(part[2:]) for part in label.split("-")}}
