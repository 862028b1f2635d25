"""Head of the page (job, ranks, devices, span, caveats) and the section on the quality of the traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from markupsafe import Markup

from pipelines.base.units import count, time
from pipelines.faces.limiting_findings import findings_of_captures, findings_of_traces
from pipelines.faces.report.blocks import Section, section
from pipelines.faces.report.macros import macros
from pipelines.faces.report.subject import ONLY_DIGEST, Row, Subject, label
from pipelines.faces.report.tables import answer, table

_OF_DIGEST = (
    "Only a digest is kept, so this page does not show kernels, launches, utilization, collectives, memory, spans, and the "
    "events on the critical path."
)


def head(subject: Subject) -> dict[str, Any]:
    """Return the `title`, the `kind` of page, the `facts` under the title, and the `caveats` of the whole page."""
    traces = subject.traces
    devices = sorted({_device(row, subject.is_digest) for row in subject.rows_of_all("devices")})
    facts = {
        "traces": _ranks(traces),
        "device": ", ".join(devices),
        "host": ", ".join(sorted({t["host"] for t in traces if t["host"]})) or "unknown",
        "longest span": time(max(t["span_ns"] or 0 for t in traces)),
        "events": count(sum(t["n_events"] for t in traces)),
        "read": ", ".join(
            f"{sum(t['status'] == s for t in traces)} {s}" for s in sorted({t["status"] for t in traces})
        ),
    }
    kind = f"capture {subject.capture_id}" if subject.capture_id else f"trace {traces[0]['trace_id']}"
    ids = {trace["trace_id"] for trace in traces}
    of_capture = findings_of_captures(subject.con, subject.capture_id) if subject.capture_id else []
    findings = [*of_capture, *(finding for finding in findings_of_traces(subject.con) if finding.trace_id in ids)]
    caveats = [f"{finding.sentence}." for finding in findings]
    if subject.is_digest:
        caveats.append(_OF_DIGEST)
    return {"title": _title(subject), "kind": kind, "facts": facts, "caveats": caveats}


def _title(subject: Subject) -> str:
    """Return the title of the page: the name of the job, or else of the trace's file or the capture's folder."""
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


def _device(row: Row, is_digest: bool) -> str:
    """Return the name of a device, with a note if its peaks are unknown. A digest does not contain the device's key."""
    if row["name"] is None:
        return "unknown"
    return row["name"] + ("" if row["device_key"] or is_digest else " (unknown device: no peaks)")


def quality(subject: Subject) -> Section:
    """Return the section on repaired, dropped and missing data, by trace and for the capture."""
    nothing = macros.paragraph("nothing was found")
    parts = [table("trace-findings", subject.rows_of_all("trace-findings")) or nothing]
    if subject.capture_id:
        of_capture = table("capture-findings", subject.rows_of_capture("capture-findings")) or nothing
        parts = [macros.heading("of the capture"), of_capture, macros.heading("of its traces"), *parts]
    title = macros.heading(f"GPU work that belongs to no span ({subject.label})")
    note = "What limits the numbers above. Nothing is dropped silently."
    return section("quality", "Quality", *parts, title, _without_span(subject), note=note)


def _without_span(subject: Subject) -> Markup:
    if subject.is_digest:
        return macros.missing(ONLY_DIGEST)
    if reasons := answer(subject, "without-span"):
        return reasons
    if subject.rows("breakdown"):
        return macros.paragraph("none: all of it is attributed")
    return macros.missing("the trace has no GPU work")
