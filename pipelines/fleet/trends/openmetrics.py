"""The state of the fleet as metrics in OpenMetrics text, for Prometheus and node_exporter's textfile collector.

The format is https://github.com/prometheus/OpenMetrics. A family consists of `# HELP`, `# TYPE`, `# UNIT` and its
samples. The text ends with `# EOF`. A value that was not measured has no sample.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC
from typing import Any, NamedTuple

from pipelines.base.foreign_text import visible
from pipelines.fleet.trends.fleet_today import Fleet

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}


class Family(NamedTuple):
    """A metric family: name without the prefix, unit ('' if none), help text, and each sample's labels and value."""

    name: str
    unit: str
    says: str
    samples: Iterable[tuple[dict[str, Any], float | None]]


def openmetrics(families: Iterable[Family]) -> str:
    """Return the OpenMetrics text. Samples without a value, and families without samples, are omitted."""
    return "".join(line for family in families for line in _lines(family)) + "# EOF\n"


def families_of(fleet: Fleet) -> Iterator[Family]:
    """Yield the fleet's metrics, which are all gauges. A job's metrics are about its newest capture.

    Metrics without a job label are about the whole lake. If the fleet is a single job, they are omitted.
    """

    def of_jobs(name: str, unit: str, help_text: str, column: str, scale: float = 1) -> Family:
        return Family(name, unit, help_text, [(_of(job), _scaled(job[column], scale)) for job in fleet.jobs])

    if fleet.is_of_lake:
        yield Family("traces", "", "Traces in the lake", [({}, fleet.n_traces)])
        yield Family("captures", "", "Captures in the lake", [({}, fleet.n_captures)])
        yield Family("rejected_files", "", "Files that were not ingested", [({}, fleet.n_rejects)])
        yield Family(
            "model_failures",
            "",
            "Traces missing from tables because a model failed, each counted per table",
            [({}, fleet.n_failures)],
        )
    yield of_jobs("job_captures", "", "Captures of the job", "n_captures")
    yield Family(
        "job_newest_capture_timestamp_seconds", "seconds", "When the job's newest capture began",
        [(_of(job), job["began_at"].replace(tzinfo=UTC).timestamp()) for job in fleet.jobs if job["began_at"]],
    )  # fmt: skip
    yield of_jobs("job_ranks", "", "Ranks of the newest capture", "n_ranks")
    yield of_jobs("job_step_seconds", "seconds", "Mean step time of the newest capture", "step_ns", 1e9)
    yield of_jobs(
        "job_earlier_step_seconds", "seconds", "Median step time of the captures before it", "earlier_step_ns", 1e9
    )
    yield of_jobs("job_gpu_idle_ratio", "ratio", "GPU time without work", "idle_percent", 100)
    yield of_jobs(
        "job_exposed_communication_ratio", "ratio", "Exposed communication as a share of the GPU's span",
        "exposed_communication_percent", 100,
    )  # fmt: skip
    yield of_jobs("job_gpu_seconds", "seconds", "GPU time of the newest capture", "gpu_seconds")
    yield Family(
        "job_straggler_wait_ratio", "ratio", "Share of all waiting that the straggler of the newest capture caused",
        [
            ({**_of(job), "rank": job["straggler_rank"]}, _scaled(job["straggler_percent"], 100))
            for job in fleet.jobs
            if job["straggler_rank"] is not None
        ],
    )  # fmt: skip
    yield Family(
        "job_price", "", "Price of the newest capture",
        [({**_of(job), "currency": job["currency"] or ""}, job["price"]) for job in fleet.jobs],
    )  # fmt: skip
    yield Family(
        "job_worse", "", "A metric of the job's newest captures that got worse, with its verdict",
        [
            ({"job": w.job, "hardware": w.hardware or "", "ranks": w.n_ranks, "metric": w.metric, "verdict": w.verdict.status}, 1)
            for w in fleet.worse
        ],
    )  # fmt: skip


def _of(job: dict[str, Any]) -> dict[str, Any]:
    return {"job": job["job"] or ""}


def _scaled(value: float | None, divisor: float) -> float | None:
    """Return value / divisor, rounded to 12 decimal places.

    The last digits of a sum depend on the order of its rows, which differs between lakes.
    """
    return None if value is None else round(value / divisor, 12)


def _lines(family: Family) -> Iterator[str]:
    samples = [(labels, value) for labels, value in family.samples if value is not None]
    if not samples:
        return
    name = f"tracelake_{family.name}"
    yield f"# HELP {name} {family.says}\n# TYPE {name} gauge\n"
    if family.unit:
        yield f"# UNIT {name} {family.unit}\n"
    for labels, value in samples:
        label_text = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{name}{'{' + label_text + '}' if label_text else ''} {value!r}\n"


def _escaped(text: Any) -> str:
    return re.sub(r'[\\"\n]', lambda match: _ESCAPES[match.group()], visible(str(text)))
