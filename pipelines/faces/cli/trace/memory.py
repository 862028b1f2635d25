"""`tracelake memory`: what held the memory of a GPU at its peak, from a memory snapshot."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from pipelines.base import units
from pipelines.base.paths import path_text
from pipelines.faces.cli.console import JsonOption, fail, local, out, print_json

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
_ARGUMENTS = re.compile(r"(?<=[\w>])\(.*$")  # of a C++ function; (anonymous namespace) stays
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
    file: Annotated[Path, typer.Argument(help="A memory snapshot, also packed (.gz).", parser=local, metavar="FILE")],
    top: Annotated[int, typer.Option(help="At most this many stacks, and failures, per device.", min=1)] = 10,
    json: JsonOption = False,
) -> None:
    """What held GPU memory at its peak, from a memory snapshot of PyTorch: by stack, with fragmentation and failures.

    Example: `tracelake memory rank3_snapshot.pickle --top 5`
    """
    from pipelines.readers.inputs import Rejected
    from pipelines.readers.memory_snapshots.single_snapshot import opened_snapshot

    try:
        with opened_snapshot(file) as con:
            found = answer(con, top)
    except Rejected as error:
        raise fail(f"{path_text(file)}: {error}") from None
    except OSError as error:
        raise fail(f"{path_text(file)}: {error.strerror or error}") from None
    if json:
        print_json(found)
    else:
        _show(found)


def answer(con: duckdb.DuckDBPyConnection, top: int) -> dict[str, Any]:
    """Returns what the command tells of the one snapshot in `con`; bytes, ns since the Unix epoch, None where unknown."""
    from pipelines.base.database import rows_of
    from pipelines.models.questions import rows_of_question

    about = "SELECT snapshot_id, path, rank, first_event_ns, last_event_ns, n_events, n_unknown_actions FROM memory_snapshots"
    (told,) = rows_of(con, about)
    failed = rows_of_question(con, "out-of-memory")
    devices = [_device(con, row, failed, top) for row in rows_of_question(con, "snapshot-memory")]
    caveats = [f"device {one['device']}: {said}" for one in devices for said in _caveats(one)]
    if told["n_unknown_actions"]:
        caveats.append(
            f"{told['n_unknown_actions']:,} events are of kinds that this version does not know, and left out"
        )
    if not devices:
        caveats.append("it has neither segments nor a history: nothing was allocated, or CUDA was not used")
    return {**told, "devices": devices, "caveats": caveats}


def _device(
    con: duckdb.DuckDBPyConnection, row: dict[str, Any], failed: list[dict[str, Any]], top: int
) -> dict[str, Any]:
    from pipelines.base.database import rows_of
    from pipelines.readers.flight_recorder.frames import called_frames, frame_text, is_python

    stacks = rows_of(con, _STACKS, {"device": row["device"]})
    shown, others = stacks[:top], stacks[top:]
    for stack in shown:
        frames = called_frames(rows_of(con, _FRAMES, {"stack_id": stack["stack_id"]}))
        stack["frames"] = [frame_text(frame) for frame in frames]
        inner = next((frame for frame in frames if is_python(frame)), None) or next(iter(frames), None)
        stack["called"] = frame_text(inner) if inner else None
    own = [one for one in failed if one["device"] == row["device"]][:top]
    return {
        **{name: row[name] for name in _PEAKS},
        "without_stack_percent": sum((one["size_percent"] or 0 for one in stacks if one["stack_id"] is None), 0.0),
        "n_stacks_at_peak": len(stacks),
        "alive_at_peak": shown,
        "left_out_bytes": sum(one["size_bytes"] for one in others),
        "fragmentation": {name: row[name] for name in _SEGMENTS} if row["n_segments"] else None,
        "out_of_memory": [{**{name: one[name] for name in _FAILED}, "user_frame": one["frame"]} for one in own],
    }


def _caveats(one: dict[str, Any]) -> list[str]:
    """What a reader of a device's numbers must know."""
    found = []
    if one["peak_allocated_bytes"] is None:
        found.append(
            "no history was recorded, so the peak is not known: what is shown was in use at the snapshot "
            "(torch.cuda.memory._record_memory_history before the program allocates)"
        )
    elif one["is_consistent"] and one["first_allocated_bytes"]:
        found.append(
            f"{_size(one['first_allocated_bytes'])} were in use when the history begins: an earlier peak may have been "
            "higher, and what was released since has no stack (a longer history: max_entries)"
        )
    if one["is_consistent"] is False:
        n = one["n_contradictions"]
        why = f"{n:,} allocations are gone without a release" if n else "more is released than was in use"
        found.append(
            f"the history does not fit the snapshot ({why}): levels and peak are off; was recording stopped before the snapshot?"
        )
    if one["without_stack_percent"]:
        found.append(f"{one['without_stack_percent']:.1f} % of that memory has no stack: it was not recorded")
    return found


def _show(found: dict[str, Any]) -> None:
    levels = Table("device", "", "in use", "reserved", "at")
    for one in found["devices"]:
        levels.add_row(
            str(one["device"]), "peak in use", _size(one["peak_allocated_bytes"]), "", _peak_at(one, "peak", found)
        )
        at = _peak_at(one, "peak_reserved", found)
        levels.add_row("", "peak reserved", "", _size(one["peak_reserved_bytes"]), at)
        levels.add_row("", "at the snapshot", _size(one["allocated_bytes"]), _size(one["reserved_bytes"]), "")
    out.print(levels)
    for one in found["devices"]:
        out.print(_stacks(one))
        for line in _ends(one, found):
            out.print(line, soft_wrap=True)
    for said in found["caveats"]:
        out.print(f"note: {said}", soft_wrap=True)


def _stacks(one: dict[str, Any]) -> Table:
    when = "at the snapshot" if one["peak_allocated_bytes"] is None else "at the peak"
    table = Table("allocated by", "called", "allocations", "size", "share", title_justify="left")
    table.title = f"device {one['device']}: in use {when}"
    for stack in one["alive_at_peak"]:
        share = "" if stack["size_percent"] is None else f"{stack['size_percent']:.1f} %"
        called = "" if stack["called"] == stack["user_frame"] else _short(stack["called"])
        row = (f"{stack['n_allocations']:,}", _size(stack["size_bytes"]), share)
        table.add_row(_short(stack["user_frame"]) or _NONE, called, *row)
    return table


def _short(frame: str | None) -> str:
    return _ARGUMENTS.sub("", frame or "")


def _ends(one: dict[str, Any], found: dict[str, Any]) -> list[str]:
    lines, held = [], one["fragmentation"]
    if n_more := one["n_stacks_at_peak"] - len(one["alive_at_peak"]):
        lines.append(f"and {n_more:,} more stacks with {_size(one['left_out_bytes'])} (--top)")
    if held:
        lines.append(
            f"device {one['device']}, at the snapshot: {_size(held['used_bytes'])} used, {_size(held['rounding_bytes'])} lost "
            f"to rounding, {_size(held['pending_bytes'])} waiting for another stream, {_size(held['releasable_bytes'])} "
            f"releasable (torch.cuda.empty_cache), {_size(held['stuck_bytes'])} free between blocks in use; largest free "
            f"block {_size(held['largest_free_bytes'])}"
        )
    if one["n_ooms"]:
        lines.append(f"device {one['device']} ran out of memory in its history ({one['n_ooms']:,}), last:")
    for failed in one["out_of_memory"]:
        where = failed["user_frame"] or f"stack {_NONE}"
        lines.append(
            f"  {_at(failed['at_ns'], found)}: {_size(failed['size_bytes'])} wanted, {_size(failed['device_free_bytes'])} free "
            f"on the device, {_size(failed['allocated_bytes'])} in use, {_size(failed['reserved_bytes'])} reserved; {where}"
        )
    return lines


def _size(n_bytes: int | None) -> str:
    return _NONE if n_bytes is None else units.size(n_bytes)


def _peak_at(one: dict[str, Any], which: str, found: dict[str, Any]) -> str:
    return "when the history begins" if one[f"{which}_seq"] == -1 else _at(one[f"{which}_ns"], found)


def _at(ns: int | None, found: dict[str, Any]) -> str:
    """The time of an event, and how long after the first one of the file that is."""
    if ns is None:
        return _NONE
    after = units.time(ns - found["first_event_ns"])
    return f"{datetime.fromtimestamp(ns / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC (+{after})"
