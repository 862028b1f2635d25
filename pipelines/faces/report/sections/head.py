"""Head of the page (job, ranks, devices, span, caveats) and the section on the quality of the traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from pipelines.base.database import rows_of
from pipelines.base.units import count, time
from pipelines.faces.incomplete import incomplete_traces
from pipelines.faces.report.blocks import Block, Column, Section, heading, missing, more, paragraph, section, table
from pipelines.faces.report.formats import words
from pipelines.faces.report.subject import Row, Subject, label
from pipelines.faces.words import in_words
from pipelines.models.sqltext import quoted

_SHOWN = 200
_SEVERITIES = "CASE severity WHEN 'error' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END"


def head(con: duckdb.DuckDBPyConnection, subject: Subject) -> dict[str, Any]:
    """Return the `title`, the `kind` of page, the `facts` under it, and the `caveats` that apply to the whole page."""
    traces = subject.traces
    devices = rows_of(
        con,
        "SELECT DISTINCT coalesce(d.name, t.device_name) AS name, d.device_key FROM traces AS t "
        f"LEFT JOIN trace_devices AS d USING (trace_id) WHERE t.trace_id IN {subject.trace_ids} ORDER BY ALL",
    )
    facts = {
        "traces": _ranks(traces),
        "device": ", ".join(_device(row) for row in devices),
        "host": ", ".join(sorted({t["host"] for t in traces if t["host"]})) or "unknown",
        "longest span": time(max(t["span_ns"] or 0 for t in traces)),
        "events": count(sum(t["n_events"] for t in traces)),
        "read": ", ".join(
            f"{sum(t['status'] == s for t in traces)} {s}" for s in sorted({t["status"] for t in traces})
        ),
    }
    kind = f"capture {subject.capture_id}" if subject.capture_id else f"trace {traces[0]['trace_id']}"
    ids = {trace["trace_id"] for trace in traces}
    caveats = [f"{incomplete.sentence}." for incomplete in incomplete_traces(con) if incomplete.trace_id in ids]
    return {"title": _title(subject), "kind": kind, "facts": facts, "caveats": caveats}


def _title(subject: Subject) -> str:
    """Return the name of the job, or else of the trace's file or the capture's folder."""
    first = subject.traces[0]
    path = Path(first["path"])
    return first["job"] or (path.parent.name if len(subject.traces) > 1 else path.name)


def _ranks(traces: list[Row]) -> str:
    ranks = [t["rank"] for t in traces if t["rank"] is not None]
    world = max((t["world_size"] or 0 for t in traces), default=0)
    ranks_text = f"{len(ranks)} of {world} ranks" if world else f"{len(ranks)} ranks" if ranks else "rank unknown"
    if len(traces) == 1:
        return f"{label(traces[0])} of {world}" if world and ranks else ranks_text
    return ranks_text


def _device(row: Row) -> str:
    if row["name"] is None:
        return "unknown"
    return row["name"] + ("" if row["device_key"] else " (unknown device: no peaks)")


def quality(con: duckdb.DuckDBPyConnection, subject: Subject) -> Section:
    """Return the section on repaired, dropped and missing data, by trace and for the capture."""
    rows = rows_of(
        con,
        "SELECT t.rank, q.check_name, q.severity, q.n, q.detail FROM quality AS q JOIN traces AS t USING (trace_id) "
        f"WHERE trace_id IN {subject.trace_ids} ORDER BY {_SEVERITIES}, q.check_name, t.rank",
    )
    columns = [Column("check_name", "check", words), Column("severity", "severity", words), Column("n", "times", count)]
    columns.append(Column("detail", "meaning", words))
    nothing = paragraph("nothing was found")
    body: list[Block] = []
    if subject.capture_id:
        of_capture = rows_of(
            con,
            f"SELECT check_name, severity, n, detail FROM capture_quality WHERE capture_id = {quoted(subject.capture_id)} "
            f"ORDER BY {_SEVERITIES}, check_name, detail",
        )
        body += [heading("of the capture"), table("capture_quality", columns, of_capture) if of_capture else nothing]
        body.append(heading("of its traces"))
    trace_columns = [Column("rank", "rank", count), *columns]
    body.append(table("quality", trace_columns, rows[:_SHOWN]) if rows else nothing)
    body += more(rows, _SHOWN, "in table quality")
    return section(
        "quality",
        "Quality",
        body,
        _unattributed(con, subject),
        note="What limits the numbers above. Nothing is dropped silently.",
    )


def _unattributed(con: duckdb.DuckDBPyConnection, subject: Subject) -> list[Block]:
    rows = rows_of(
        con,
        f"SELECT reason, n, sum_ns FROM unattributed_gpu_work WHERE trace_id = {subject.shown_id} ORDER BY sum_ns DESC, reason",
    )
    title = heading(f"GPU work that belongs to no span ({label(subject.shown)})")
    columns = [Column("reason", "reason", in_words), Column("n", "pieces", count), Column("sum_ns", "GPU time", time)]
    if rows:
        return [title, table("unattributed_gpu_work", columns, rows)]
    has_work = rows_of(con, f"SELECT 1 FROM span_attribution WHERE trace_id = {subject.shown_id}")
    return [title, paragraph("none: all of it is attributed") if has_work else missing("the trace has no GPU work")]
