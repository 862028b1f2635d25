"""Hand-made dumps: dicts as PyTorch writes them, for cases that a CPU job cannot produce."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipelines.readers.flight_recorder.dump import Dump, read_dump

NCCL = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}


def call(seq: int, op: str = "all_reduce", group: str = "0", **more: Any) -> dict[str, Any]:
    """Return a finished NCCL collective of a group; its time follows from its number."""
    return {
        "process_group": [group, "default_pg" if group == "0" else f"desc{group}"],
        "pg_id": int(group),
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": f"nccl:{op}",
        "state": "completed",
        "retired": True,
        "is_p2p": False,
        "time_created_ns": 1_000 + seq,
        "input_sizes": [[8]],
        "output_sizes": [[8]],
        "input_dtypes": ["Float"],
        "output_dtypes": ["Float"],
        **more,
    }


def waits(seq: int, op: str = "all_reduce", group: str = "0", **more: Any) -> dict[str, Any]:
    """Return a collective that has started but not finished."""
    return call(seq, op, group, **{"state": "started", "retired": False, **more})


def transfer(seq: int, op: str, **more: Any) -> dict[str, Any]:
    """Return a finished send or receive; `op` is "send 0->1" or "recv 1<-0"."""
    return call(0, op, is_p2p=True, p2p_seq_id=seq, time_created_ns=1_000 + seq, **more)


def made(folder: Path, rank: int, *calls: dict[str, Any], groups: Any = None, begins: int = 0, **top: Any) -> Dump:
    """Write and read a rank's dump of calls in ring order; calls without a record_id are numbered from `begins`."""
    entries = [{"record_id": begins + at, **fields} for at, fields in enumerate(calls)]
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / f"dump_{rank}"
    content = {"version": "2.10", "pg_config": NCCL if groups is None else groups, "entries": entries, **top}
    path.write_text(json.dumps(content))
    return read_dump(path)
