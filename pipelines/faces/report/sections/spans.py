"""The layers of a rank: steps, annotations, modules and tasks, with the GPU work that belongs to them."""

from __future__ import annotations

import duckdb

from pipelines.base.database import rows_of
from pipelines.base.units import count, time
from pipelines.faces.report.blocks import Block, Column, Section, figure, heading, missing, more, section, table
from pipelines.faces.report.folded_rows import folded
from pipelines.faces.report.pictures.layers import layers
from pipelines.faces.report.pictures.without_time import honeycomb, radar
from pipelines.faces.report.subject import Row, Subject, label, of_shown
from pipelines.models.questions import rows_of_question

_NAMES, _BOXES = 12, 800
_KINDS = {"step": "steps", "annotation": "annotations", "module": "modules", "task": "tasks of a software pipeline"}
_PHASES = ("window", "fwd", "bwd", "recompute", "bwd_direct", "replay")


def spans(con: duckdb.DuckDBPyConnection, subject: Subject) -> Section:
    """The picture of the longest step, and the names with the most GPU work of each kind."""
    rows = _names(con, subject)
    if not rows:
        why = f"{label(subject.shown)} has no profiler steps, annotations, modules or tasks"
        return section("spans", "Spans", missing(why))
    body = [figure(picture(con, subject.shown["trace_id"], "share"))]
    for kind, said in _KINDS.items():
        own = [row for row in rows if row["kind"] == kind]
        if own:
            own = folded(own, ("n_spans", "host_ns", *_PHASES, "most_ns"), alike=("kind",))
            body += [heading(said), _table(own[:_NAMES]), *more(own, _NAMES, "names in table span_names")]
    if not any(row["kind"] == "module" for row in rows):
        body.append(missing("modules: the trace was recorded without with_modules or with_stack"))
    note = (
        f"{of_shown(subject)}GPU work belongs to the spans around its launch: time in which at least one piece ran. "
        "Columns overlap; never add them up. Layers whose names differ in a number and whose times are alike share a row."
    )
    return section("spans", "Spans", body, note=note)


def _names(con: duckdb.DuckDBPyConnection, subject: Subject) -> list[Row]:
    """One row per name, with its busy time by phase in columns; most GPU work first."""
    found: dict[tuple[str, str], Row] = {}
    query = (
        "SELECT kind, name, phase, n_spans, host_ns, busy_ns FROM span_names "
        f"WHERE trace_id = {subject.shown_id} ORDER BY kind, name, phase"
    )
    for row in rows_of(con, query):
        one = found.setdefault((row["kind"], row["name"]), {**row, **dict.fromkeys(_PHASES)})
        if row["phase"]:
            one[row["phase"]] = row["busy_ns"]
    for row in found.values():
        row["most_ns"] = max(row[phase] or 0 for phase in _PHASES)
    return sorted(found.values(), key=lambda row: (-row["most_ns"], row["name"]))


def _table(rows: list[Row]) -> Block:
    headings = {
        "window": "during the span",
        "fwd": "launched inside",
        "bwd": "its backward",
        "recompute": "computed again",
        "replay": "in graph replays",
    }
    used = [phase for phase in headings if any(row[phase] is not None for row in rows)]
    columns = [Column("name", "name"), Column("n_spans", "spans", count), Column("host_ns", "on the host", time)]
    return table("span_names", [*columns, *(Column(phase, f"GPU: {headings[phase]}", time) for phase in used)], rows)


def picture(con: duckdb.DuckDBPyConnection, trace_id: str, scale: str) -> str | None:
    """Returns the layers of a trace's longest step (without steps: of its busiest thread) as SVG; None if it has no
    spans.

    `scale`: share (of the stretch's GPU time) or utilization (against the roofline).
    """
    rows = rows_of_question(con, "longest-step", _BOXES, trace=trace_id)
    if not rows:
        return None
    whole = max(row["busy_ns"] or 0 for row in rows)
    for row in rows:
        row |= {"span_id": row["span"], "parent_id": row["parent"], "end_ns": row["start_ns"] + row["duration_ns"]}
        row |= {"value": _value(row, whole, scale), "says": _says(row)}
    step = next((row["name"] for row in rows if row["kind"] == "step"), None)
    title = "the thread with most of its time in spans" if step is None else f"the longest step: {step}"
    what = "share of the stretch's GPU time" if scale == "share" else "GPU work compared with the device's roofline"
    return layers(title, rows, "value", 0, rows[0]["step_ns"], what, scale)


def _value(row: Row, whole: int, scale: str) -> float | None:
    if row["busy_ns"] is None:
        return None
    if scale == "share" and whole:
        return row["busy_ns"] / whole
    return None if row["roofline_percent"] is None else row["roofline_percent"] / 100


def _says(row: Row) -> str:
    said = f"{row['kind']} {row['name']}: {time(row['duration_ns'])} on the host"
    if row["busy_ns"] is None:
        return f"{said}; no GPU work launched inside"
    said += f"; GPU busy {time(row['busy_ns'])} with {row['n']} pieces of work"
    if row["roofline_percent"] is not None:
        said += f"; {row['roofline_percent']:.1f} % of the roofline (models cover {row['modeled_percent']:.0f} %)"
    return said


_LAYERS, _AXES = 24, 8
_PEAKS = {
    "compute (MFU, GPU busy)": "mfu_busy",
    "memory bandwidth": "bandwidth_utilization",
    "of the roofline": "roofline_utilization",
}


def without_time(con: duckdb.DuckDBPyConnection, subject: Subject) -> Section | None:
    """The section; None for traces without modules that have GPU work."""
    spent = rows_of_question(con, "module-ranks", trace=subject.ids)
    total: dict[str, float] = {}
    cells: dict[int, dict[str, float]] = {}
    for one in spent:
        ms = one["busy_ns"] / 1e6
        total[one["name"]] = total.get(one["name"], 0.0) + ms
        cells.setdefault(one["rank"] or 0, {})[one["name"]] = ms
    names = sorted(total, key=lambda name: (-total[name], name))[:_LAYERS]
    drawn = [honeycomb("GPU time of modules by rank", names, cells, "ms"), _radar(con, subject)]
    pictures = [figure(one) for one in drawn if one]
    note = f"{of_shown(subject)}Modules, forward and backward; outer ones contain inner ones. No clocks of ranks are compared."
    return section("layers", "Layers", pictures, note=note) if pictures else None


def _radar(con: duckdb.DuckDBPyConnection, subject: Subject) -> str | None:
    rows = rows_of(
        con,
        f"SELECT name, {', '.join(_PEAKS.values())} FROM span_name_utilization WHERE trace_id = {subject.shown_id} "
        "AND peak_kind = 'datasheet' AND kind = 'module' AND phase = 'fwd' ORDER BY busy_ns DESC, name",
    )[:_AXES]
    shares = {said: {one["name"]: one[column] for one in rows} for said, column in _PEAKS.items()}
    return radar(f"utilization of layers, {label(subject.shown)}", [one["name"] for one in rows], shares)
