"""Sections on the layers of a rank: steps, annotations, modules and tasks, with their GPU work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import duckdb
from markupsafe import Markup

from pipelines.base.units import time
from pipelines.faces.report.blocks import Section, section
from pipelines.faces.report.folded_rows import folded
from pipelines.faces.report.macros import macros
from pipelines.faces.report.pictures.layers import layers
from pipelines.faces.report.pictures.timeless_events import honeycomb, radar
from pipelines.faces.report.subject import Row, Subject, label, of_shown
from pipelines.faces.report.tables import table
from pipelines.models.questions import rows_of_question

_BOXES = 800
_KINDS = {"step": "steps", "annotation": "annotations", "module": "modules", "task": "tasks of a software pipeline"}
_PHASES = ("window", "fwd", "bwd", "recompute", "bwd_direct", "replay")


def spans(subject: Subject) -> Section:
    """Return the section with a picture of the longest step and, per kind of span, the names with the most GPU work."""
    rows = _names(subject)
    if not rows:
        why = f"{subject.label} has no profiler steps, annotations, modules or tasks"
        return section("spans", "Spans", macros.missing(why))
    parts: list[Markup] = [macros.figure(picture(subject.con, subject.shown["trace_id"], "share"))]
    for kind, title in _KINDS.items():
        rows_of_kind = [row for row in rows if row["kind"] == kind]
        rows_of_kind = folded(rows_of_kind, ("n_spans", "host_ns", *_PHASES, "most_ns"), alike=("kind",))
        parts.append(table("span-phases", rows_of_kind, title))
    if not any(row["kind"] == "module" for row in rows):
        parts.append(macros.missing("modules: the trace was recorded without with_modules or with_stack"))
    note = (
        f"{of_shown(subject)}GPU work belongs to the spans around its launch: time in which at least one activity ran. "
        "Columns overlap; never add them up. Layers whose names differ in a number and whose times are alike share a row."
    )
    return section("spans", "Spans", *parts, note=note)


def _names(subject: Subject) -> list[Row]:
    """Return one row per name, with a column of busy time (ns) per phase, most GPU work first."""
    row_by_name: dict[tuple[str, str], Row] = {}
    for row in subject.rows("span-phases"):
        merged = row_by_name.setdefault((row["kind"], row["name"]), {**row, **dict.fromkeys(_PHASES)})
        if row["phase"]:
            merged[row["phase"]] = row["busy_ns"]
    for row in row_by_name.values():
        row["most_ns"] = max(row[phase] or 0 for phase in _PHASES)
    return sorted(row_by_name.values(), key=lambda row: (-row["most_ns"], row["name"]))


def picture(con: duckdb.DuckDBPyConnection, trace_id: str, scale: str) -> str | None:
    """Return SVG of the layers of a trace's longest step, or None if the trace has no spans.

    In a trace without steps, draw its busiest thread. `scale`: share (of the interval's GPU time) or utilization (against the
    roofline).
    """
    rows = rows_of_question(con, "longest-step", _BOXES, trace=trace_id)
    if not rows:
        return None
    max_busy_ns = max(row["busy_ns"] or 0 for row in rows)
    for row in rows:
        row |= {"span_id": row["span"], "parent_id": row["parent"], "end_ns": row["start_ns"] + row["duration_ns"]}
        row |= {"value": _value(row, max_busy_ns, scale), "says": _says(row)}
    step = next((row["name"] for row in rows if row["kind"] == "step"), None)
    title = "the thread with most of its time in spans" if step is None else f"the longest step: {step}"
    meaning = "share of the interval's GPU time" if scale == "share" else "GPU work compared with the device's roofline"
    return layers(title, rows, "value", 0, rows[0]["step_ns"], meaning, scale)


def _value(row: Row, max_busy_ns: int, scale: str) -> float | None:
    if row["busy_ns"] is None:
        return None
    if scale == "share" and max_busy_ns:
        return row["busy_ns"] / max_busy_ns
    return None if row["roofline_percent"] is None else row["roofline_percent"] / 100


def _says(row: Row) -> str:
    text = f"{row['kind']} {row['name']}: {time(row['duration_ns'])} on the host"
    if row["busy_ns"] is None:
        return f"{text}; no GPU work launched inside"
    text += f"; GPU busy {time(row['busy_ns'])} with {row['n']} pieces of work"
    if row["roofline_percent"] is not None:
        text += f"; {row['roofline_percent']:.1f} % of the roofline (models cover {row['modeled_percent']:.0f} %)"
    return text


_LAYERS, _AXES = 24, 8
_PEAKS = {
    "compute (MFU, GPU busy)": "mfu_busy",
    "memory bandwidth": "bandwidth_utilization",
    "of the roofline": "roofline_utilization",
}


def without_time(subject: Subject) -> Section | None:
    """Return the section of pictures without a time axis, or None if no module has GPU work."""
    times = ((rank, row["name"], row["busy_ns"] / 1e6) for rank, row in _module_rows(subject))
    drawn = [_by_rank("GPU time of modules by rank", times, "ms"), _radar(subject)]
    pictures = [macros.figure(svg) for svg in drawn if svg]
    note = f"{of_shown(subject)}Modules, forward and backward; outer ones contain inner ones. No clocks of ranks are compared."
    return section("layers", "Layers", *pictures, note=note) if pictures else None


def _by_rank(title: str, times: Iterable[tuple[int | str, str, float]], unit: str) -> str | None:
    """Return the honeycomb of the layers with the most time. `times`: rank or recording id, layer, and time in `unit`."""
    total: dict[str, float] = {}
    cells: dict[int | str, dict[str, float]] = {}
    for rank, name, ms in times:
        total[name] = total.get(name, 0.0) + ms
        of_rank = cells.setdefault(rank, {})
        of_rank[name] = of_rank.get(name, 0.0) + ms
    names = sorted(total, key=lambda name: (-total[name], name))[:_LAYERS]
    return honeycomb(title, names, cells, unit)


def _module_rows(subject: Subject) -> Iterator[tuple[int | str, Row]]:
    """Yield the modules of each trace with its rank or, without a rank, with its file and id."""
    has_one = len(subject.traces) == 1  # a single trace without a rank is shown as rank 0
    for row in subject.rows_of_all("module-ranks"):
        if has_one or row["rank"] is not None:
            yield row["rank"] or 0, row
    for trace in subject.traces:
        if trace["rank"] is None and not has_one:
            for row in rows_of_question(subject.con, "module-ranks", trace=trace["trace_id"]):
                yield f"{label(trace)} ({trace['trace_id']})", row


def _radar(subject: Subject) -> str | None:
    rows = [row for row in subject.rows("module-peaks") if row["phase"] == "fwd" and row["peak_kind"]][:_AXES]
    shares = {title: {row["name"]: row[column] for row in rows} for title, column in _PEAKS.items()}
    return radar(f"utilization of layers, {subject.label}", [row["name"] for row in rows], shares)


_SAMPLED_PEAKS = {
    "compute (MFU)": "mfu_percent",
    "memory bandwidth": "bandwidth_percent",
    "of the roofline": "roofline_percent",
}


def sampled_layers(con: duckdb.DuckDBPyConnection) -> dict[str, str | None]:
    """Return pictures of the sampled modules of the newest recorded run, SVG by title, or nothing without such modules.

    `con` has the lake's tables. The honeycomb has a row per recording, named by the rank, or by the recording's id if
    the rank is unknown or was recorded more than once. The radar shows the first row.
    """
    rows = rows_of_question(con, "sampled-modules")
    rows = [row for row in rows if row["run_id"] == rows[0]["run_id"]]
    if not rows:
        return {}
    n_recordings = Counter(rank for rank, _ in {(row["rank"], row["recording_id"]) for row in rows})
    for row in rows:
        has_rank = row["rank"] is not None and n_recordings[row["rank"]] == 1
        row["recorded"] = row["rank"] if has_rank else row["recording_id"]
    times = [(row["recorded"], row["name"], row["ms"]) for row in rows]
    first = min((recorded for recorded, *_ in times), key=lambda recorded: (isinstance(recorded, str), recorded))
    rated = [row for row in rows if row["recorded"] == first and row["phase"] == "forward" and row["peak_kind"]][:_AXES]
    shares = {
        title: {row["name"]: None if row[column] is None else row[column] / 100 for row in rated}
        for title, column in _SAMPLED_PEAKS.items()
    }
    whose = first if isinstance(first, str) else f"rank {first}"
    by_rank = f"time of modules by rank, run {rows[0]['run_id']}"
    utilization = f"utilization of modules in forward, run {rows[0]['run_id']}, {whose}"
    return {
        by_rank: _by_rank(by_rank, times, "ms per sampled step"),
        utilization: radar(utilization, [row["name"] for row in rated], shares),
    }
