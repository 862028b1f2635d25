"""The published job. Every number matches the reference output and the published results to 1e-6."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.fleet.op_job import WhatIf, read_job, what_if
from pipelines.fleet.op_job.template import build_template

TOLERANCE = 1e-6
SCOPES = {"by_dp_rank": "dp_rank", "by_stage": "stage", "by_optype": "optype"}


@pytest.fixture(scope="module")
def analysis(shared: Path) -> WhatIf:
    return what_if(read_job(shared / "traces/stragglers/trace-ST.parquet"))


@pytest.fixture(scope="module")
def expected(shared: Path) -> dict[str, Any]:
    return json.loads((shared / "golden/fleet/whatif_ST.json").read_text())


def near(value: Any) -> Any:
    return pytest.approx(value, rel=TOLERANCE, abs=1e-12)


def test_steps(analysis: WhatIf, expected: dict[str, Any]) -> None:
    assert analysis.job.meta.name == expected["job"]
    assert list(analysis.job.steps) == expected["steps"]
    assert list(analysis.base) == near(expected["step_t_base"])
    assert list(analysis.now) == near(expected["step_t_nodelay"])
    assert list(analysis.ideal) == near(expected["step_t_noblk"])
    assert list(analysis.parts[0].by_step) == near(expected["blocking_step_slowdown"])


def test_slowdowns(analysis: WhatIf, expected: dict[str, Any]) -> None:
    assert analysis.slowdown == near(expected["blocking_slowdown"])
    assert analysis.launch_slowdown == near(expected["launch_slowdown"])
    for name, scope in SCOPES.items():
        assert {key: part.slowdown for key, part in analysis.of(scope).items()} == near(expected[name])
    assert analysis.ideals == near(expected["ideal"])


def test_what_the_last_stage_and_the_worst_ranks_explain(analysis: WhatIf, expected: dict[str, Any]) -> None:
    for name, scope, key in (("ms", "last_stage", "3"), ("mw", "worst_ranks", "7")):
        part = analysis.of(scope)[key]
        times = {
            "tori": analysis.now.mean(),
            "tideal": analysis.ideal.mean(),
            "trem": part.removed_s,
            "tadd": part.added_s,
        }
        assert {**times, "rem": part.explained, "add": part.explained_alone} == near(expected[name])
    assert ",".join(map(str, expected["worst"])) in analysis.of("worst_ranks")


def test_scores(analysis: WhatIf, expected: dict[str, Any]) -> None:
    assert analysis.scores is not None
    scores = {str(rank): score for rank, score in zip(analysis.job.ranks.flat, analysis.scores.flat, strict=True)}
    assert scores == near(expected["rank_score"])


def test_published_slowdowns_of_every_step(analysis: WhatIf, shared: Path) -> None:
    published = json.loads((shared / "traces/stragglers/result-ST.json").read_text())
    for scope in SCOPES.values():
        by_step = published[f"blocking_decompose_by_{scope}_per_step"]
        for at, step in enumerate(analysis.job.steps):
            assert {key: part.by_step[at] for key, part in analysis.of(scope).items()} == near(by_step[str(step)])
    launch = dict(zip(map(str, analysis.job.steps), analysis.base / analysis.now, strict=True))
    assert launch == near(published["launch_step_slowdown"])


def test_lost_gpu_seconds(analysis: WhatIf) -> None:
    lost = analysis.gpu_seconds  # rounded as printed in the description of the model
    assert {cause: round(seconds, 2) for cause, seconds in lost.items()} == {
        "total": 566.9,
        "straggler": 84.33,
        "launch": 10.69,
    }


def test_depth_of_the_template(analysis: WhatIf) -> None:
    template = build_template(analysis.job)
    start, end = {}, {}
    for unit in template.units:
        start |= {op: max((end[d] + 1 for d in template.deps[op]), default=0) for op in unit.ops}
        end |= dict.fromkeys(unit.ops, max(start[op] for op in unit.ops) + 1)
    assert max(end.values()) + 1 == 62
