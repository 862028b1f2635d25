"""Eight standard charts as Vega-Lite, which JupyterLab and VS Code render natively. `.to_altair()` converts them.

A chart is a query over the analysis's traces and a description of axes. `chart.data` contains the drawn rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any, Protocol

from pipelines.base.extras import need
from pipelines.faces.notebook.answers import Answer, question

_MIME = "application/vnd.vegalite.v5+json"
# A unique name of each trace, even for equal ranks of several captures. Charts group by it, so that no chart adds up
# two traces.
_TRACES = (
    "WITH _labels AS (SELECT *, coalesce('rank ' || rank, file) AS _label FROM traces), "
    "_traces AS (SELECT *, _label || CASE WHEN count(*) OVER (PARTITION BY _label) > 1 THEN ' of ' || trace_id ELSE '' END "
    "AS trace FROM _labels) "
)
_GPU = "t.trace || coalesce(', device ' || {}.device, '') AS gpu"
_SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"


class _Asked(Protocol):
    def sql(self, query: str) -> Answer: ...


class Chart:
    """A chart: `data` are its rows, `spec` is its Vega-Lite description including the rows."""

    def __init__(self, title: str, answer: Answer, spec: Mapping[str, Any]) -> None:
        self.title, self.data, self._spec = title, answer, dict(spec)

    @property
    def spec(self) -> dict[str, Any]:
        """Return the full Vega-Lite description, including the rows, as JSON values."""
        rows = [{name: _plain(value) for name, value in row.items()} for row in self.data.to_dicts()]
        return {"$schema": _SCHEMA, "title": self.title, "data": {"values": rows}, "width": 480, **self._spec}

    def save(self, path: str | Path) -> str:
        """Write the description as JSON (`.vl.json`) for Vega-Lite editors and return the path."""
        Path(path).write_text(json.dumps(self.spec, ensure_ascii=False), encoding="utf-8")
        return str(path)

    def to_altair(self) -> Any:
        """Return an altair.Chart. Raise MissingExtra if altair is not installed."""
        need("plots", "a chart in altair")
        import altair  # pyright: ignore[reportMissingImports]

        return altair.Chart.from_dict(self.spec)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {_MIME: self.spec, "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"<Chart {self.title!r}: {len(self.data)} rows; .data, .spec, .to_altair()>"


class Plots:
    """The charts of an analysis, with times in ms (unless a name ends in _us) and shares in percent."""

    def __init__(self, analysis: _Asked) -> None:
        self._analysis = analysis

    def breakdown(self) -> Chart:
        """Return each device's time, split into computing, exposed communication and memory, other work, and idle."""
        parts, _ = question("gpu-parts", 0)
        query = (
            f"{_TRACES} SELECT t.trace, p.* FROM ({parts}) AS p JOIN _traces AS t ON t.trace_id = p.trace_id "
            "ORDER BY p.rank, t.trace, p.device, p.part"
        )
        stacked = {"x": _q("percent", stack="zero"), "y": _in_order("trace"), "color": _n("part"), "row": _n("device")}
        return self._chart("Where the GPUs' time went", query, "bar", stacked)

    def kernels(self, top: int = 10) -> Chart:
        """Return the kernels with the most time: their share, and their shortest, mean and longest duration."""
        query = (
            "SELECT k.name, k.class, count(*) AS n, sum(k.duration_ns) / 1e6 AS ms, min(k.duration_ns) / 1e3 AS min_us, "
            "avg(k.duration_ns) / 1e3 AS mean_us, max(k.duration_ns) / 1e3 AS max_us, "
            "100 * sum(k.duration_ns) / sum(sum(k.duration_ns)) OVER () AS percent "
            f"FROM kernels AS k GROUP BY k.name, k.class ORDER BY sum(k.duration_ns) DESC, k.name LIMIT {int(top)}"
        )
        axes = {"x": _q("percent"), "y": _n("name", sort="-x"), "color": _n("class")}
        tooltip = [_q("n"), _q("ms"), _q("min_us"), _q("mean_us"), _q("max_us")]
        return self._chart("Kernels with the most time", query, "bar", {**axes, "tooltip": tooltip})

    def queue_length(self, points: int = 500) -> Chart:
        """Return the longest queue of waiting launches by stream, in each of `points` equal intervals of the trace."""
        query = (
            f"{_TRACES} SELECT t.rank, q.device, {_GPU.format('q')}, q.stream, {_slot('q.at_ns', points)} AS ms, "
            "max(q.queue_length) AS queue_length FROM queue_length AS q JOIN _traces AS t ON t.trace_id = q.trace_id "
            "GROUP BY t.rank, q.device, gpu, q.stream, ms ORDER BY ALL"
        )
        axes = {"x": _q("ms"), "y": _q("queue_length"), "color": _n("stream"), "row": _in_order("gpu")}
        return self._chart("Launches that wait", query, {"type": "line", "interpolate": "step-after"}, axes)

    def bandwidth(self, points: int = 500) -> Chart:
        """Return the bandwidth of copies over time, by kind of copy. A copy counts in the interval in which it starts."""
        query = (
            f"{_TRACES} SELECT t.rank, k.device, {_GPU.format('k')}, k.name, {_slot('k.start_ns', points)} AS ms, "
            "sum(k.bytes) / nullif(sum(k.duration_ns), 0) AS gigabytes_per_s "
            "FROM kernels AS k JOIN _traces AS t ON t.trace_id = k.trace_id "
            "WHERE k.bytes IS NOT NULL AND k.duration_ns > 0 GROUP BY t.rank, k.device, gpu, k.name, ms ORDER BY ALL"
        )
        axes = {"x": _q("ms"), "y": _q("gigabytes_per_s"), "color": _n("name"), "row": _in_order("gpu")}
        return self._chart("Bandwidth of copies", query, "point", axes)

    def overlap(self) -> Chart:
        """Return the share of each device's communication that is hidden behind computing."""
        query = (
            f"{_TRACES} SELECT t.rank, b.device, {_GPU.format('b')}, b.communication_ns / 1e6 AS communication_ms, "
            "100 * (b.communication_ns - b.exposed_communication_ns) / b.communication_ns AS hidden_percent "
            "FROM temporal_breakdown AS b JOIN _traces AS t ON t.trace_id = b.trace_id "
            "WHERE b.communication_ns > 0 ORDER BY ALL"
        )
        axes = {"x": _in_order("gpu"), "y": _q("hidden_percent"), "color": _n("device")}
        axes_and_tooltip = {**axes, "tooltip": [_q("communication_ms")]}
        return self._chart("Communication that computing hides", query, "bar", axes_and_tooltip)

    def steps(self) -> Chart:
        """Return the duration of each step, by rank."""
        query = (
            f"{_TRACES} SELECT DISTINCT t.rank, t.trace, s.step, s.duration_ns / 1e6 AS ms FROM step_times AS s "
            "JOIN _traces AS t ON t.trace_id = s.trace_id ORDER BY t.rank, t.trace, s.step"
        )
        mark = {"type": "line", "point": True}
        return self._chart("Step time", query, mark, {"x": _q("step"), "y": _q("ms"), "color": _in_order("trace")})

    def roofline(self) -> Chart:
        """Return operators by arithmetic intensity and rate.

        `suspect`: above the peak, so its peak, type or shapes are wrong.
        """
        query = (
            "SELECT o.op, o.dtype, o.dims, sum(o.gpu_ns) / 1e6 AS ms, sum(w.flops_matrix) / sum(w.bytes) AS flops_per_byte, "
            "sum(w.flops_matrix) / sum(o.gpu_ns) / 1e3 AS teraflops_per_s, any_value(o.bound_by) AS bound_by, "
            "bool_or(o.suspect) AS suspect FROM op_utilization AS o "
            "JOIN op_work AS w ON w.trace_id = o.trace_id AND w.event_id = o.event_id "
            "WHERE o.peak_kind IS DISTINCT FROM 'measured' AND w.flops_matrix > 0 AND w.bytes > 0 AND o.gpu_ns > 0 "
            "GROUP BY o.op, o.dtype, o.dims ORDER BY ms DESC, o.op, o.dtype, o.dims"
        )
        axes = {
            "x": _q("flops_per_byte", scale={"type": "log"}),
            "y": _q("teraflops_per_s", scale={"type": "log"}),
            "size": _q("ms"),
            "color": _n("op"),
            "shape": _n("suspect"),
        }
        return self._chart("Roofline", query, "point", axes)

    def stragglers(self) -> Chart:
        """Return the waiting that each rank causes on the other ranks. Captures with one rank have no rows."""
        query = (
            "SELECT s.capture_id, s.rank, s.caused_wait_ns / 1e6 AS caused_wait_ms, s.caused_percent, s.is_straggler "
            "FROM straggler_ranks AS s WHERE s.capture_id IN (SELECT t.capture_id FROM traces AS t) "
            "ORDER BY s.capture_id, s.rank"
        )
        axes = {"x": _n("rank"), "y": _q("caused_wait_ms"), "color": _n("is_straggler"), "row": _n("capture_id")}
        return self._chart("Waiting that each rank caused", query, "bar", axes)

    def _chart(self, title: str, query: str, mark: str | dict[str, Any], axes: Mapping[str, Any]) -> Chart:
        return Chart(title, self._analysis.sql(query), {"mark": mark, "encoding": dict(axes)})


def _slot(time: str, points: int) -> str:
    """Return SQL for a time in ms since the trace's start, rounded down to one of `points` equal intervals of the trace."""
    width = f"greatest((t.trace_end_ns - t.trace_start_ns) // {max(int(points), 1)}, 1)"
    return f"({time} - t.trace_start_ns) // {width} * {width} / 1e6"


def _q(name: str, **more: Any) -> dict[str, Any]:
    return {"field": name, "type": "quantitative", **more}


def _n(name: str, **more: Any) -> dict[str, Any]:
    return {"field": name, "type": "nominal", **more}


def _in_order(name: str) -> dict[str, Any]:
    """Return a channel in the order of the rows, because, sorted as text, rank 10 would precede rank 2."""
    return _n(name, sort=None)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date | datetime) else value
