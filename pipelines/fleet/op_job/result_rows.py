"""The what-if model's results as rows, for both the lake and `--json`. Columns `…_ns` are in ns."""

from __future__ import annotations

from typing import Any

from pipelines.base.paths import path_text
from pipelines.fleet.op_job.whatif import Part, WhatIf

Row = dict[str, Any]


def job_row(result: WhatIf) -> Row:
    """Return the row of table `op_jobs`, with sizes, mean step times, slowdowns and GPU-seconds."""
    job, meta, spent = result.job, result.job.meta, result.gpu_seconds
    sizes = {name: getattr(meta, name) for name in ("dp", "dsp", "pp", "tp", "vpp", "world_size")}
    return {
        "job": meta.name,
        "path": path_text(job.path.absolute()),
        **sizes,
        "n_steps": len(job.steps),
        "n_ops": job.n_ops,
        "slowdown": result.slowdown,
        "launch_slowdown": result.launch_slowdown,
        "recorded_ns": _ns(result.base.mean()),
        "step_ns": _ns(result.now.mean()),
        "ideal_ns": _ns(result.ideal.mean()),
        "gpu_seconds": spent["total"],
        "straggler_gpu_seconds": spent["straggler"],
        "launch_gpu_seconds": spent["launch"],
    }


def part_rows(result: WhatIf) -> list[Row]:
    """Return the rows of table `op_job_what_if`, for the job and its parts."""
    names = ("scope", "key", "slowdown", "explained", "explained_alone", "slowdown_stage_ideal")
    return [{name: getattr(part, name) for name in names} for part in result.parts]


def step_rows(result: WhatIf) -> list[Row]:
    """Return the rows of table `op_job_steps`, for every part in every step."""
    return [row for part in result.parts for row in _steps_of(result, part)]


def _steps_of(result: WhatIf, part: Part) -> list[Row]:
    recorded = result.base if part.scope == "job" else [None] * len(result.base)
    columns = zip(result.job.steps, recorded, result.ideal, part.by_step, strict=True)
    return [
        {
            "scope": part.scope,
            "key": part.key,
            "step": int(step),
            "recorded_ns": None if base is None else _ns(base),
            "step_ns": _ns(slowdown * ideal),
            "ideal_ns": _ns(ideal),
            "slowdown": float(slowdown),
        }
        for step, base, ideal, slowdown in columns
    ]


def score_rows(result: WhatIf) -> list[Row]:
    """Return the rows of table `op_job_rank_scores` (the heat map's cells), or [] if the job was not decomposed."""
    if result.scores is None:
        return []
    worst = {rank for key in result.of("worst_ranks") for rank in key.split(",")}
    return [
        {
            "stage": stage,
            "dp_rank": dp,
            "rank": int(rank),
            "score": float(result.scores[stage, dp]),
            "is_worst": str(rank) in worst,
        }
        for stage, ranks in enumerate(result.job.ranks)
        for dp, rank in enumerate(ranks)
    ]


def excess_rows(result: WhatIf, scope: str) -> list[Row]:
    """Return each part's excess alone as a share of the job's loss, and last the `residual` that makes the sum 1.

    share = max(S_X - 1, 0) / (S - 1). Parts overlap, so the residual may be negative. The list is empty if the job has
    no loss or the scope has no parts.
    """
    loss = result.slowdown - 1
    parts = result.of(scope)
    if not parts or loss <= 0:
        return []
    shares = {key: max(part.slowdown - 1, 0) / loss for key, part in parts.items()}
    rows = [{"key": key, "share": share} for key, share in sorted(shares.items(), key=lambda item: -item[1])]
    return [*rows, {"key": "residual", "share": 1 - sum(shares.values())}]


def _ns(seconds: float) -> int:
    return round(float(seconds) * 1e9)
