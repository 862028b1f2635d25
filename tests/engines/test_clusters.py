"""Ray on this machine: results, retries, workers that die, cancelling. No models run here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.engines.engine import ATTEMPTS, Engine
from pipelines.engines.open_engine import open_engine
from tests.engines.chores import Chore, attempts

pytestmark = pytest.mark.slow(together="engines")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with open_engine("ray") as ray:
        yield ray


def test_each_unit_ends_once_and_what_can_be_retried_is(engine: Engine, tmp_path: Path) -> None:
    units = ["a", "b:fails once", "c:fails", "d:kills once", "e:share"]
    ended = {done.unit: done for done in engine.submit(units, Chore(str(tmp_path)))}
    assert sorted(ended) == sorted(units)
    results = {unit: done.result for unit, done in ended.items() if done.error is None}
    assert results == {"a": "A", "b:fails once": "B", "d:kills once": "D", "e:share": "1"}
    failed = ended["c:fails"]
    assert (failed.error, failed.attempts, failed.is_death) == (f"OSError: attempt {ATTEMPTS}", ATTEMPTS, False)
    assert attempts(tmp_path, "c") == ATTEMPTS and attempts(tmp_path, "d") >= 2
    assert engine.slots >= 1 and engine.cpus == 1


def test_a_unit_that_always_kills_its_worker_is_given_up(engine: Engine, tmp_path: Path) -> None:
    ended = {done.unit: done for done in engine.submit(["f:kills", "g", "h"], Chore(str(tmp_path)))}
    assert ended["f:kills"].is_death and ended["f:kills"].error and ended["f:kills"].result is None
    assert attempts(tmp_path, "f") >= ATTEMPTS
    assert (ended["g"].result, ended["h"].result) == ("G", "H")
    (after,) = engine.submit(["k"], Chore(str(tmp_path)))
    assert after.result == "K"


def test_closed_early_it_cancels_the_rest(engine: Engine, tmp_path: Path) -> None:
    units = ["i", *(f"w{n}:waits" for n in range(engine.slots * 3))]
    running = engine.submit(units, Chore(str(tmp_path)))
    assert next(running).unit == "i"
    running.close()  # type: ignore[attr-defined]
    begun = sum(attempts(tmp_path, f"w{n}") for n in range(engine.slots * 3))
    assert begun <= engine.slots * 2  # the other units never began
