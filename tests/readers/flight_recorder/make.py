"""Made dumps: the dicts that PyTorch writes, for what no CPU job leaves behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipelines.readers.flight_recorder.dump import Dump, read_dump

NCCL = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}


def call(seq: int, op: str = "all_reduce", group: str = "0", **more: Any) -> dict[str, Any]:
    """A finished NCCL collective of one group; times follow its number."""
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
    """One that was started and is not over."""
    return call(seq, op, group, **{"state": "started", "retired": False, **more})


def transfer(seq: int, op: str, **more: Any) -> dict[str, Any]:
    """A finished send or receive: `op` is "send 0->1" or "recv 1<-0"."""
    return call(0, op, is_p2p=True, p2p_seq_id=seq, time_created_ns=1_000 + seq, **more)


def made(folder: Path, rank: int, *calls: dict[str, Any], groups: Any = None, begins: int = 0, **top: Any) -> Dump:
    """A rank's dump of calls in the order of the ring, numbered from `begins` where they have no record_id."""
    entries = [{"record_id": begins + at, **fields} for at, fields in enumerate(calls)]
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / f"dump_{rank}"
    content = {"version": "2.10", "pg_config": NCCL if groups is None else groups, "entries": entries, **top}
    path.write_text(json.dumps(content))
    return read_dump(path)
