"""Descriptions, as data, of the tables and columns of a rocpd database that are read.

Source: rocpd_tables.sql of rocprofiler-sdk (schema version 3). Each process writes its own set of tables, whose names
end with its unique id (`rocpd_region_0000ddb5_8903_…`). Merged databases have several sets, and views over all of them
whose names have no id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from pipelines.readers.sqlite_exports.sources import Source

PREFIX = "rocpd_"
DISPATCHES = "rocpd_kernel_dispatch"
COPIES = "rocpd_memory_copy"
REGIONS = "rocpd_region"
SAMPLES = "rocpd_sample"
TRACKS = "rocpd_track"

_ON_GPU = {"start_ns": "start", "end_ns": "end", "stream": "stream_id", "queue": "queue_id", "event": "event_id"}
_DISPATCH = _ON_GPU | {
    "agent": "agent_id",
    "kernel": "kernel_id",
    "group_bytes": "group_segment_size",
    **{f"grid_{axis}": f"grid_size_{axis}" for axis in "xyz"},
    **{f"block_{axis}": f"workgroup_size_{axis}" for axis in "xyz"},
}
_COPY = _ON_GPU | {"agent": "src_agent_id", "target_agent": "dst_agent_id", "name_id": "name_id", "bytes": "size"}
_REGION = {"start_ns": "start", "end_ns": "end", "thread": "tid", "name_id": "name_id", "event": "event_id"}

SOURCES = (
    Source(
        DISPATCHES,
        "_rocm_work",
        _DISPATCH,
        frozenset({"start_ns", "end_ns", "stream", "event", "agent", "kernel"}),
        "pid",
        "no kernels are in the database",
        work="kernel",
    ),
    Source(
        COPIES,
        "_rocm_work",
        _COPY,
        frozenset({"start_ns", "end_ns", "stream", "event", "agent", "target_agent", "name_id", "bytes"}),
        "pid",
        work="copy",
    ),
    Source(
        REGIONS,
        "_rocm_calls",
        _REGION,
        frozenset(_REGION),
        "pid",
        "no calls and no markers are in the database: what launched the GPU work, operators and steps are unknown",
    ),
    Source(
        SAMPLES,
        "_rocm_samples",
        {"at_ns": "timestamp", "track": "track_id", "event": "event_id"},
        frozenset(),
        None,  # the track identifies the process
        timed=("at_ns",),
    ),
    Source(
        TRACKS,
        "_rocm_tracks",
        {"id": "id", "thread": "tid"},
        frozenset({"id", "thread"}),
        "pid",
        "no threads of marks are in the database: marks are skipped",
        timed=(),
    ),
    Source(
        "rocpd_event",
        "_rocm_event_details",
        # A call and the GPU work that it launched have the same `stack_id`. The program may set `correlation_id`.
        {"id": "id", "domain_id": "category_id", "correlation": "stack_id", "details": "extdata"},
        frozenset({"id", "domain_id", "correlation"}),
        None,
        "no correlation ids are in the database: which call launched which GPU work is unknown",
        texts=frozenset({"details"}),
    ),
    Source(
        "rocpd_string",
        "_rocm_strings",
        {"id": "id", "value": "string"},
        frozenset({"id", "value"}),
        None,
        "no names of calls and copies are in the database",
        texts=frozenset({"value"}),
    ),
    Source(
        "rocpd_info_kernel_symbol",
        "_rocm_kernels",
        {"id": "id", "display_name": "display_name", "mangled_name": "kernel_name", "registers": "arch_vgpr_count"},
        frozenset({"id", "display_name"}),
        "pid",
        "no names of kernels are in the database",
        texts=frozenset({"display_name", "mangled_name"}),
    ),
    Source(
        "rocpd_info_agent",
        "_rocm_agents",
        {"id": "id", "kind": "type", "type_index": "type_index"},
        frozenset({"id", "kind", "type_index"}),
        "pid",
        "no agents are in the database: devices have the numbers of agents",
        texts=frozenset({"kind"}),
    ),
    Source(
        "rocpd_info_thread",
        "_rocm_threads",
        {"id": "id", "thread": "tid", "name": "name"},
        frozenset(),
        "pid",
        texts=frozenset({"name"}),
    ),
)
ABOUT = ("rocpd_info_node", "rocpd_info_process", "rocpd_metadata")
"""Small tables with facts about the machine, the process and the database."""
# Tables that no model reads. A finding names those that have rows.
LEFT_OUT = ("rocpd_memory_allocate", "rocpd_pmc_event")

_SET = re.compile(rf"{DISPATCHES}|{COPIES}|{REGIONS}")


def sets_of(tables: Iterable[str]) -> list[str]:
    """Return the suffixes of table names, one per set: '' or `_<unique id>`.

    In a database with ids, tables without an id are views over all sets.
    """
    suffixes = {name[match.end() :] for name in tables if (match := _SET.match(name))}
    suffixes = {suffix for suffix in suffixes if not suffix or suffix.startswith("_")}
    return sorted(suffixes - {""} or suffixes)


def sources_of(end: str) -> tuple[Source, ...]:
    """Return the sources for the set of tables with this suffix."""
    return tuple(replace(source, name=source.name + end) for source in SOURCES)
