"""Failures that are not a trace's fault: they are not recorded for it, and older rows that blame it are recomputed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.lake import Lake
from pipelines.lake.commit.batch_rows import Failure
from pipelines.lake.names import ANALYST
from pipelines.models.run import ModelRun, run_models
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize import per_trace
from pipelines.runs.materialize.computed_tables import discard
from pipelines.runs.materialize.per_trace import materialize
from tests.effort import first_of
from tests.lake.world import capture, kept

INTERRUPTED = "RuntimeError: Query interrupted"
MEMORY = (
    "the trace needs more memory than the 100MiB that its models may use: profile fewer steps. OutOfMemoryException: x"
)
FULL_DISK = f"{MEMORY.replace('100', '9000')} Out of Memory Error: failed to offload data block of size 256.0 KiB"


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stopped")
    ingest(capture(folder / "in"), Lake(folder / "lake"))
    return folder


@pytest.fixture
def lake(ingested: Path) -> Iterator[Lake]:
    with kept(ingested) as lake:
        yield lake


def failing(error: Exception) -> Callable[..., list[ModelRun]]:
    def run(*_: Any, on_model: Callable[[str], None], **__: Any) -> list[ModelRun]:
        on_model("kernels")
        raise error

    return run


def failures(lake: Lake) -> list[tuple[str, str]]:
    with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con:
        return con.execute("SELECT table_name, reason FROM model_failures").fetchall()


@pytest.mark.parametrize(
    ("error", "raised"),
    first_of(
        [
            (RuntimeError("Query interrupted"), KeyboardInterrupt),
            (duckdb.OutOfMemoryException("Out of Memory Error: failed to offload data block of size 1 KiB"), OSError),
        ],
        1,
    ),
)
def test_what_is_no_fault_of_a_trace_ends_the_run(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, error: Exception, raised: type[BaseException]
) -> None:
    monkeypatch.setattr(per_trace, "run_models", failing(error))
    with pytest.raises(raised):
        materialize(lake, ["kernels"])
    monkeypatch.setattr(per_trace, "run_models", run_models)
    assert [(done.table, done.n_rows) for done in materialize(lake, ["kernels"])] == [("kernels", 12)]
    assert failures(lake) == []
    assert not list(lake.root.glob(".staging/*"))


@pytest.mark.slow  # rows of older versions; the test below lists the failures that are no fault
def test_rows_that_blame_a_trace_for_it_are_computed_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = MEMORY
    blame = lambda work, tables, trace, _: _blame(work, tables, trace, reason)  # noqa: E731
    monkeypatch.setattr(per_trace, "_without_failed", blame)
    monkeypatch.setattr(per_trace, "run_models", failing(ValueError("of an older version")))
    materialize(lake, ["kernels", "temporal_breakdown"])
    assert {(table, why) for table, why in failures(lake)} == {("kernels", reason), ("temporal_breakdown", reason)}
    monkeypatch.undo()
    discard(lake)  # simulates another version of tracelake, which does not accept the row
    assert {done.table: done.n_rows for done in materialize(lake, ["kernels", "temporal_breakdown"])}["kernels"] == 12
    assert failures(lake) == []
    assert materialize(lake, ["kernels", "temporal_breakdown"]) == []


def test_other_failures_stay(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(per_trace, "run_models", failing(ValueError("this trace is odd")))
    materialize(lake, ["kernels"])
    monkeypatch.undo()
    assert materialize(lake, ["kernels"]) == []
    assert {why for _, why in failures(lake)} == {"ValueError: this trace is odd"}
    for no_fault in (INTERRUPTED, MEMORY, FULL_DISK, "InterruptException: INTERRUPT Error: Interrupted!"):
        assert Failure("t", "kernels", no_fault).is_no_fault_of_data, no_fault
    enough = Failure("t", "kernels", MEMORY.replace("100", "1907"))
    assert not enough.is_no_fault_of_data
    monkeypatch.setenv("TRACELAKE_MEMORY", "90")  # less memory than at the time of the failure
    assert not Failure("t", "kernels", MEMORY).is_no_fault_of_data


def _blame(work: Any, tables: list[str], trace: str, reason: str) -> list[str]:
    for table in tables:
        work.failures.setdefault(table, []).append(Failure(trace, "kernels", reason))
    return []
