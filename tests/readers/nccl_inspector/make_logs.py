"""Logs as the NCCL Inspector writes them (`plugins/profiler/inspector/inspector_json.cc` of NCCL and its README)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

DAY_US = 86_400_000_000
START_US = 1_750_000_000_000_000 // DAY_US * DAY_US

Call = tuple[int, int, int]  # sequence number, bytes, us


def header(
    rank: int, n_ranks: int = 4, communicator: str = "0x7f8c496ae9f661", version: str = "v4.2"
) -> dict[str, Any]:
    named = {} if version == "v4.0" else {"comm_name": "dp"}
    return {"id": communicator, **named, "rank": rank, "n_ranks": n_ranks, "nnodes": 1}


def metadata(rank: int, version: str, at_us: int) -> dict[str, Any]:
    return {
        **{"inspector_output_format_version": version, "git_rev": "", "rec_mechanism": "nccl_profiler_interface"},
        **{"dump_timestamp_us": at_us, "hostname": f"node{rank // 8}", "pid": 4000 + rank},
    }


def coll(call: Call, version: str, at_us: int, is_verbose: bool = False) -> dict[str, Any]:
    seq, size, us = call
    fields: dict[str, Any] = {"coll": "AllReduce"}
    if version != "v4.0":
        fields |= {"coll_algo": "RING", "coll_proto": "SIMPLE"}
    gigabytes_per_s = round(size / us / 1e3, 6)
    fields |= {"coll_sn": seq, "coll_msg_size_bytes": size, "coll_exec_time_us": us, "coll_timing_source": "kernel_gpu"}
    fields |= {"coll_algobw_gbs": gigabytes_per_s, "coll_busbw_gbs": round(gigabytes_per_s * 1.5, 6)}
    if is_verbose:
        kernel = {"channel_id": 0, "kernel_start_ts": at_us + 2, "kernel_stop_ts": at_us + us, "kernel_record_ts": 0}
        fields["event_trace_sn"] = {"coll_start_sn": 1, "coll_stop_sn": 2, "kernel_events": []}
        fields["event_trace_ts"] = {"coll_start_ts": at_us, "coll_stop_ts": at_us + 1, "kernel_events": [kernel]}
    return fields


def stats(n_coll: int, n_p2p: int = 0, dropped: int = 0) -> dict[str, int]:
    return {
        **{"coll_records": n_coll, "coll_dropped_total": dropped, "coll_dropped_since_last_dump": dropped},
        **{"p2p_records": n_p2p, "p2p_dropped_total": 0, "p2p_dropped_since_last_dump": 0},
    }


def lines(rank: int, calls: Iterable[Call], version: str = "v4.2", at_us: int = START_US, **more: Any) -> list[str]:
    """Return the lines of one dump of a rank."""
    calls, head, about = list(calls), header(rank, version=version), metadata(rank, version, at_us)
    records = [{"coll_perf": coll(call, version, at_us, more.get("is_verbose", False))} for call in calls]
    for p2p in more.get("p2p", ()):
        records.append({"p2p_perf": p2p})
    if version != "v4.3":
        records = [{"header": head, "metadata": about, **record} for record in records]
    if version in ("v4.2", "v4.3"):
        counted = stats(len(calls), len(more.get("p2p", ())), more.get("dropped", 0))
        records.insert(0, {"header": head, "metadata": about, "dump_stats": counted})
    return [json.dumps(record) for record in records]


def write(path: Path, texts: Iterable[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{text}\n" for text in texts))
    return path
