"""Jobs with a planted cause. The model's numbers match a simulation that is independent of the model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.fleet.op_job import WhatIf, read_job, what_if
from tests.fleet.op_job.make import FIXED, UNIT, B, F, Key, Shape, simulate, step_times, write_job

SHAPE = Shape(pp=3, dp=2, steps=(4, 9), batches=4)
OPTYPES = {F, B, "forward-pp-comm", "backward-pp-comm", *(k for k in FIXED if k not in ("forward", "backward"))}


def base(key: Key) -> float:
    """Return durations that are equal on all stages: forward 32 units, backward 64, others as in FIXED."""
    kind = key[0]
    units = {F: 32, B: 64}.get(kind) or FIXED.get(kind, FIXED.get(kind.split("-")[0], 0))
    return units * UNIT


def planted(where: Callable[[Key], bool], factor: int = 2) -> Callable[[Key], float]:
    return lambda key: base(key) * (factor if where(key) else 1)


def analysis_of(tmp_path: Path, own: Callable[[Key], float], shape: Shape = SHAPE) -> WhatIf:
    return what_if(read_job(write_job(tmp_path, shape, own)))


def expected(own: Callable[[Key], float], is_part: Callable[[Key], bool]) -> tuple[float, float, float]:
    """Compute by simulation the slowdown of the job and of a part, and the share of the loss that the part explains."""
    by_kind: dict[str, list[float]] = defaultdict(list)
    for key in SHAPE.ops():
        by_kind[key[0]].append(own(key))
    ideals = {kind: (fmean if kind in (F, B, "gc", "optimizer") else median)(v) for kind, v in by_kind.items()}

    def mean_step(times: Callable[[Key], float]) -> float:
        return fmean(step_times(SHAPE, simulate(SHAPE, times)))

    ideal = mean_step(lambda key: ideals[key[0]])
    part = mean_step(lambda key: own(key) if is_part(key) else ideals[key[0]])
    without = mean_step(lambda key: ideals[key[0]] if is_part(key) else own(key))
    now = mean_step(own)
    return now / ideal, part / ideal, (now - without) / (now - ideal)


CAUSES = {
    "stage": ("stage", "1", lambda key: key[0] in (F, B) and key[1] == 1, lambda key: key[1] == 1),
    "dp rank": ("dp_rank", "1", lambda key: key[0] in (F, B) and key[2] == 1, lambda key: key[2] == 1),
    "last stage": ("stage", "2", lambda key: key[0] in (F, B) and key[1] == 2, lambda key: key[1] == 2),
    "op type": (
        "optype",
        "backward-compute",
        lambda key: key[0] == B and key[3] == 9 and key[1:3] == (0, 0),
        lambda key: key[0] == B,
    ),
    "transfers": (
        "optype",
        "forward-pp-comm",
        lambda key: key[0] == "forward-recv" and key[1] == 1 and key[4] % 2 == 0,
        lambda key: key[0] in ("forward-send", "forward-recv"),
    ),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_a_planted_cause_is_named_with_its_slowdown(cause: str, tmp_path: Path) -> None:
    scope, key, where, is_part = CAUSES[cause]
    own = planted(where, 40 if cause == "transfers" else 2)
    analysis = analysis_of(tmp_path, own)
    job, part, explained = expected(own, is_part)
    assert analysis.slowdown == pytest.approx(job, rel=1e-7)
    parts = analysis.of(scope)
    assert parts[key].slowdown == pytest.approx(part, rel=1e-7)
    assert max(parts, key=lambda k: parts[k].slowdown) == key
    assert set(analysis.of("optype")) == OPTYPES
    if (scope, key) == ("stage", "2"):
        assert analysis.of("last_stage")["2"].explained == pytest.approx(explained, rel=1e-7)


def test_one_slow_rank_has_the_highest_score(tmp_path: Path) -> None:
    own = planted(lambda key: key[0] in (F, B) and key[1:3] == (1, 1), 3)
    analysis = analysis_of(tmp_path, own)
    assert list(analysis.of("worst_ranks")) == ["3"]  # stage 1, dp rank 1 of two
    assert analysis.scores is not None and analysis.scores.argmax() == 3
    _, part, explained = expected(own, lambda key: key[1:3] == (1, 1))
    (worst,) = analysis.of("worst_ranks").values()
    assert (worst.slowdown, worst.explained) == pytest.approx((part, explained), rel=1e-7)


def test_an_uneven_stage_is_no_straggler_to_an_ideal_of_each_stage(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, planted(lambda key: key[0] in (F, B) and key[1] == 2))
    assert analysis.of("stage")["2"].slowdown > 1.2
    assert analysis.of("stage")["2"].slowdown_stage_ideal == pytest.approx(1, abs=1e-6)


def test_a_job_without_stragglers_is_not_taken_apart(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, base)
    assert analysis.slowdown == pytest.approx(1, abs=1e-7)
    assert [part.scope for part in analysis.parts] == ["job"] and analysis.scores is None


def test_one_stage_is_a_sum(tmp_path: Path) -> None:
    shape = Shape(pp=1, dp=2, steps=(0,), batches=1)
    analysis = analysis_of(tmp_path, planted(lambda key: key[0] == F and key[2] == 1, 5), shape)
    # Forward takes 32 and 160 units. The reduction of gradients waits for the slower rank. gc takes no time.
    rest = 4 + 64 + 1 + 5 + 6 + 2 + 7
    assert analysis.slowdown == pytest.approx((160 + rest) / (96 + rest), rel=1e-7)
    assert analysis.of("dp_rank")["0"].slowdown == pytest.approx(1, rel=1e-7)
    assert analysis.of("optype")[F].slowdown == pytest.approx(analysis.slowdown, rel=1e-7)


def test_starts_since_1970_give_the_same_answer(tmp_path: Path) -> None:
    """Starts in seconds since 1970 give the same answer.

    They are doubles, because float32 only distinguishes seconds since 1970 two minutes apart.
    """
    path = write_job(tmp_path, SHAPE, planted(lambda key: key[1] == 1))
    expected = what_if(read_job(path))
    table = pq.read_table(path)
    at = table.schema.get_field_index("start_ts")
    since_1970 = pa.array([start + 1_790_000_000 for start in table.column(at).to_pylist()], pa.float64())
    pq.write_table(table.set_column(at, "start_ts", since_1970), path)
    analysis = what_if(read_job(path))
    assert (analysis.slowdown, analysis.gpu_seconds) == (expected.slowdown, expected.gpu_seconds)
