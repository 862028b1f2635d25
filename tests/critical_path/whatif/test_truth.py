"""A sample of `make truth`: predictions compared with programs that the simulator runs again with changed durations."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.synthetic import CaptureSpec, write_capture
from tests.critical_path.truth import SHAPES, errors_of, floors_hold
from tests.effort import SLOW, first_of


@pytest.mark.parametrize("shapes", first_of([[*SHAPES[:3]], *([shape] for shape in SHAPES[3:])], 1))
def test_predictions_are_what_happens(shapes: list[str], tmp_path: Path) -> None:
    with_or_without = {shape: (True, False) if SLOW else (SHAPES.index(shape) % 2 == 0,) for shape in shapes}
    seeds = range(500, 502 if SLOW else 501)
    programs = [(shape, seed, has) for shape in shapes for seed in seeds for has in with_or_without[shape]]
    errors = [*errors_of(programs, 4, tmp_path)]
    for shape in shapes:
        of_shape = [error for error in errors if error.shape == shape]
        assert len(of_shape) >= 2 * len(with_or_without[shape]) and floors_hold(of_shape), max(
            of_shape, key=lambda error: abs(error.percent)
        )


def test_a_run_without_changes_is_the_same_run(tmp_path: Path) -> None:
    for shape in ("training", "inference", "inference_graph", "loop"):
        capture = write_capture(CaptureSpec(ranks=1, steps=1, shape=shape, tokens=2, gz=False), tmp_path / "a")
        again = capture.again({"nothing like this": 0.5}, tmp_path / "b")
        assert capture.paths[0].read_bytes() == again.paths[0].read_bytes()


def test_changes_change_what_they_name(tmp_path: Path) -> None:
    """Changes scale kernels by name and all host time together, and keep the program's order."""
    capture = write_capture(CaptureSpec(ranks=1, steps=2, shape="loop", gz=False), tmp_path / "a")
    truth = capture.ranks[0].truth
    faster = capture.again({"host": 0.5}, tmp_path / "b").ranks[0].truth
    assert faster.full.length_ns < truth.full.length_ns
    assert faster.breakdown.compute_ns == truth.breakdown.compute_ns
    kernels = capture.again({"*": 2.0}, tmp_path / "c").ranks[0].truth
    assert kernels.breakdown.compute_ns == pytest.approx(2 * truth.breakdown.compute_ns, rel=1e-6)
    assert kernels.machine.n_kernels == truth.machine.n_kernels
