"""`tracelake memory`: the allocations of a GPU at its memory peak, from a memory snapshot."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from pipelines.base import units
from pipelines.base.paths import path_text
from pipelines.faces.cli.console import fail, new_table, out, print_json
from pipelines.faces.cli.options import JsonOption, local

if TYPE_CHECKING:
    import duckdb

_NONE = "not recorded"
_STACKS = """
    SELECT stack_id, user_frame, n_allocations, size_bytes, size_percent FROM snapshot_peak_stacks
    WHERE device = $device ORDER BY size_bytes DESC, stack_id NULLS LAST
"""
_FRAMES = """
    SELECT file AS filename, line, function AS name FROM snapshot_frames WHERE stack_id = $stack_id ORDER BY depth
"""
_ARGUMENTS = re.compile(r"(?<=[\w>])\(.*$")  # of a C++ function, except (anonymous namespace)
_PEAKS = (
    *("device", "allocated_bytes", "reserved_bytes", "first_allocated_bytes", "peak_allocated_bytes"),
    *("peak_reserved_bytes", "peak_seq", "peak_ns", "n_allocs", "n_ooms", "n_contradictions", "is_consistent"),
    *("peak_reserved_seq", "peak_reserved_ns"),
)
_SEGMENTS = (
    *(
        "n_segments",
        "reserved_bytes",
        "used_bytes",
        "rounding_bytes",
        "pending_bytes",
        "releasable_bytes",
        "stuck_bytes",
    ),
    "largest_free_bytes",
)
_FAILED = ("at_ns", "size_bytes", "device_free_bytes", "allocated_bytes", "reserved_bytes")


def memory(
    file: Annotated[
        Path, typer.Argument(help="A memory snapshot, optionally compressed (.gz).", parser=local, metavar="FILE")
    ],
    top: Annotated[int, typer.Option(help="Show at most this many stacks and failures per device.", min=1)] = 10,
    json: JsonOption = False,
) -> None:
    """What held GPU memory at its peak, from a memory snapshot of PyTorch: by stack, with fragmentation and failures.

    Example: `tracelake memory rank3_snapshot.pickle --top 5`
    """
    from pipelines.readers.inputs import Rejected
    from pipelines.readers.memory_snapshots.single_snapshot import opened_snapshot

    try:
        with opened_snapshot(file) as con:
            document = answer(con, top)
    except Rejected as error:
        raise fail(f"{path_text(file)}: {error}") from None
    except OSError as error:
        raise fail(f"{path_text(file)}: {error.strerror or error}") from None
    if json:
        print_json(document)
    else:
        _show(document)


def answer(con: duckdb.DuckDBPyConnection, top: int) -> dict[str, Any]:
    """Return the answer for the snapshot in `con`: sizes in bytes, times in ns since the Unix epoch, None if unknown."""
    from pipelines.base.database import rows_of
    from pipelines.models.questions import rows_of_question

    about = "SELECT snapshot_id, path, rank, first_event_ns, last_event_ns, n_events, n_unknown_actions FROM memory_snapshots"
    (snapshot,) = rows_of(con, about)
    failed = rows_of_question(con, "out-of-memory")
    devices = [_device(con, row, failed, top) for row in rows_of_question(con, "snapshot-memory")]
    caveats = [f"device {device['device']}: {caveat}" for device in devices for caveat in _caveats(device)]
    if snapshot["n_unknown_actions"]:
        caveats.append(
            f"{snapshot['n_unknown_actions']:,} events are of kinds that this version does not know, and were skipped"
        )
    if not devices:
        caveats.append("it has neither segments nor a history: nothing was allocated, or CUDA was not used")
    return {**snapshot, "devices": devices, "caveats": caveats}


def _device(
    con: duckdb.DuckDBPyConnection, row: dict[str, Any], failures: list[dict[str, Any]], top: int
) -> dict[str, Any]:
    from pipelines.base.database import rows_of
    from pipelines.readers.flight_recorder.frames import called_frames, frame_text, is_python

    stacks = rows_of(con, _STACKS, {"device": row["device"]})
    top_stacks, omitted_stacks = stacks[:top], stacks[top:]
    for stack in top_stacks:
        frames = called_frames(rows_of(con, _FRAMES, {"stack_id": stack["stack_id"]}))
        stack["frames"] = [frame_text(frame) for frame in frames]
        inner = next((frame for frame in frames if is_python(frame)), None) or next(iter(frames), None)
        stack["called"] = frame_text(inner) if inner else None
    device_failures = [failure for failure in failures if failure["device"] == row["device"]][:top]
    return {
        **{name: row[name] for name in _PEAKS},
        "without_stack_percent": sum(
            (stack["size_percent"] or 0 for stack in stacks if stack["stack_id"] is None), 0.0
        ),
        "n_stacks_at_peak": len(stacks),
        "alive_at_peak": top_stacks,
        "left_out_bytes": sum(stack["size_bytes"] for stack in omitted_stacks),
        "fragmentation": {name: row[name] for name in _SEGMENTS} if row["n_segments"] else None,
        "out_of_memory": [
            {**{name: failure[name] for name in _FAILED}, "user_frame": failure["frame"]} for failure in device_failures
        ],
    }


def _caveats(device: dict[str, Any]) -> list[str]:
    """Return the caveats about a device's numbers."""
    caveats = []
    if device["peak_allocated_bytes"] is None:
        caveats.append(
            "no history was recorded, so the peak is unknown: the memory shown was in use at the snapshot "
            "(torch.cuda.memory._record_memory_history before the program allocates)"
        )
    elif device["is_consistent"] and device["first_allocated_bytes"]:
        caveats.append(
            f"{_size(device['first_allocated_bytes'])} were in use when the history begins: an earlier peak may have been "
            "higher, and what was released since has no stack (a longer history: max_entries)"
        )
    if device["is_consistent"] is False:
        n = device["n_contradictions"]
        why = f"{n:,} allocations disappear without a release" if n else "more is released than was in use"
        caveats.append(
            f"the history does not fit the snapshot ({why}): levels and peak are off; was recording stopped before the snapshot?"
        )
    if device["without_stack_percent"]:
        caveats.append(f"{device['without_stack_percent']:.1f} % of that memory has no stack: it was not recorded")
    return caveats


def _show(document: dict[str, Any]) -> None:
    levels = new_table("device", "", "in use", "reserved", "at")
    for device in document["devices"]:
        levels.add_row(
            str(device["device"]),
            "peak in use",
            _size(device["peak_allocated_bytes"]),
            "",
            _peak_at(device, "peak", document),
        )
        peak_time = _peak_at(device, "peak_reserved", document)
        levels.add_row("", "peak reserved", "", _size(device["peak_reserved_bytes"]), peak_time)
        levels.add_row("", "at the snapshot", _size(device["allocated_bytes"]), _size(device["reserved_bytes"]), "")
    out.print(levels)
    for device in document["devices"]:
        out.print(_stacks(device))
        for line in _ends(device, document):
            out.print(line, soft_wrap=True)
    for caveat in document["caveats"]:
        out.print(f"note: {caveat}", soft_wrap=True)


def _stacks(device: dict[str, Any]) -> Table:
    when = "at the snapshot" if device["peak_allocated_bytes"] is None else "at the peak"
    title = f"device {device['device']}: in use {when}"
    table = new_table("allocated by", "called", "allocations", "size", "share", title=title)
    for stack in device["alive_at_peak"]:
        share = "" if stack["size_percent"] is None else f"{stack['size_percent']:.1f} %"
        called = "" if stack["called"] == stack["user_frame"] else _short(stack["called"])
        row = (f"{stack['n_allocations']:,}", _size(stack["size_bytes"]), share)
        table.add_row(_short(stack["user_frame"]) or _NONE, called, *row)
    return table


def _short(frame: str | None) -> str:
    return _ARGUMENTS.sub("", frame or "")


def _ends(device: dict[str, Any], document: dict[str, Any]) -> list[str]:
    lines, fragmentation = [], device["fragmentation"]
    if n_more := device["n_stacks_at_peak"] - len(device["alive_at_peak"]):
        lines.append(f"and {n_more:,} more stacks with {_size(device['left_out_bytes'])} (--top)")
    if fragmentation:
        lines.append(
            f"device {device['device']}, at the snapshot: {_size(fragmentation['used_bytes'])} used, {_size(fragmentation['rounding_bytes'])} lost "
            f"to rounding, {_size(fragmentation['pending_bytes'])} waiting for another stream, {_size(fragmentation['releasable_bytes'])} "
            f"releasable (torch.cuda.empty_cache), {_size(fragmentation['stuck_bytes'])} free between blocks in use; largest free "
            f"block {_size(fragmentation['largest_free_bytes'])}"
        )
    if device["n_ooms"]:
        lines.append(f"device {device['device']} ran out of memory in its history ({device['n_ooms']:,}), last:")
    for failure in device["out_of_memory"]:
        where = failure["user_frame"] or f"stack {_NONE}"
        lines.append(
            f"  {_at(failure['at_ns'], document)}: {_size(failure['size_bytes'])} wanted, {_size(failure['device_free_bytes'])} free "
            f"on the device, {_size(failure['allocated_bytes'])} in use, {_size(failure['reserved_bytes'])} reserved; {where}"
        )
    return lines


def _size(n_bytes: int | None) -> str:
    return _NONE if n_bytes is None else units.size(n_bytes)


def _peak_at(device: dict[str, Any], which: str, document: dict[str, Any]) -> str:
    return "when the history begins" if device[f"{which}_seq"] == -1 else _at(device[f"{which}_ns"], document)


def _at(ns: int | None, document: dict[str, Any]) -> str:
    """Return the time of an event as UTC, and its distance from the first event of the file."""
    if ns is None:
        return _NONE
    after = units.time(ns - document["first_event_ns"])
    return f"{datetime.fromtimestamp(ns / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC (+{after})"
