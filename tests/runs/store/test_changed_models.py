"""Changed models: tables of traces already in a store are recomputed, the same for both backends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.engines.in_process import InProcess
from pipelines.engines.run import Followed, ingest_on, materialize_on
from pipelines.engines.stale_batches import stale_groups
from pipelines.lake import Lake
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.runs.left_out import left_out_at
from pipelines.runs.materialize.per_capture import trace_tables
from pipelines.runs.store import Store, open_store
from pipelines.runs.store.ducklake import recompute
from pipelines.runs.store.ducklake.store import DuckLakeStore
from pipelines.synthetic import CaptureSpec, write_capture
from tests.lake.world import PROCESSES
from tests.runs.store.conftest import of_kind
from tests.runs.store.test_kills import keys
from tests.runs.store.world import make_unit, rewrite, shown, trace_ids

Open = Callable[[], Store]
TRACES = ["kernels", "temporal_breakdown"]
TABLES = ["traces", "events", *TRACES]
CAPTURES = ["captures", "capture_ranks", "capture_quality"]
FOLDER_FIRST = ["folder", *(of_kind(kind, pytest.mark.slow) for kind in ("sqlite", "postgres"))]
OLD = "* REPLACE (duration_ns + 1000 AS duration_ns)"  # the result of an older version of `kernels`


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> list[Lake]:
    """Return two traces with an old table `kernels`, a trace with a new one, and all three without these tables."""
    folder = tmp_path_factory.mktemp("units")
    lakes = [
        make_unit(folder / name, seeds, tables)
        for name, seeds, tables in (("old", (0, 1), TRACES), ("new", (2,), TRACES), ("bare", (0, 1, 2), []))
    ]
    rewrite(lakes[0], "kernels", OLD, version="old")
    return lakes


@pytest.fixture(scope="module")
def right(units: list[Lake], tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple]]:
    """Return the rows that a store shows for these traces if all tables are new."""
    store = open_store(str(tmp_path_factory.mktemp("right") / "lake"))
    store.commit(make_unit(units[0].root.parent / "right", (0, 1, 2), TRACES))
    return shown(store, TABLES)


def materialized(store: Store, *tables: str) -> Followed:
    run = materialize_on(InProcess(), store.address, tables)
    assert run.failed == []
    return run


def forced(store: Store, *tables: str) -> Followed:
    run = materialize_on(InProcess(), store.address, tables, force=True)
    assert run.failed == []
    return run


def n_written(run: Followed) -> int:
    return sum(result.n_files for result in run.results)


def materialize_in(address: str, environment: dict[str, str]) -> None:
    """Bring the tables up to date. This function may run in a separate process."""
    os.environ.update(environment)
    assert materialize_on(InProcess(), address, TRACES).failed == []


@pytest.mark.slow  # tests/lake/test_incremental.py has changed models in a folder
def test_old_rows_are_replaced(opened: Open, units: list[Lake], right: dict[str, list[tuple]]) -> None:
    store = opened()
    for unit in units[:2]:
        store.commit(unit)
    assert shown(store, ["kernels"])["kernels"] != right["kernels"]
    run = materialized(store, *TRACES)
    assert (run.n_units, n_written(run)) == (1, 1)  # one table of one batch
    assert shown(store, TABLES) == right
    assert materialized(opened(), *TRACES).n_units == 0
    assert not store.commit(units[0]).traces  # the traces are still known


@pytest.mark.slow
def test_missing_tables_are_added(opened: Open, units: list[Lake], right: dict[str, list[tuple]]) -> None:
    store = opened()
    store.commit(units[2])
    assert shown(store, TRACES) == {"kernels": [], "temporal_breakdown": []}
    assert n_written(materialized(store, "kernels")) == 1
    assert shown(store, TRACES) == {"kernels": right["kernels"], "temporal_breakdown": []}
    assert n_written(materialized(store, *TRACES)) == 1
    assert shown(store, TABLES) == right


def _failing_on(patch: pytest.MonkeyPatch, trace_id: str, error: Exception | None = None) -> None:
    from pipelines.runs.materialize import per_trace

    run_models = per_trace.run_models

    def failing(con: Any, catalog: Any, tables: Any, **named: Any) -> Any:
        for table in tables:
            named["on_model"](table)
        if con.execute("SELECT 1 FROM traces WHERE trace_id = ?", [trace_id]).fetchall():
            raise error or ValueError("an odd trace")
        return run_models(con, catalog, tables, **named)

    patch.setattr(per_trace, "run_models", failing)


def _rows(store: Store, query: str) -> list[tuple]:
    with store.connect() as con:
        return con.execute(f"SELECT {query}").fetchall()


@pytest.mark.slow
def test_a_removed_trace_is_not_brought_back(opened: Open, units: list[Lake]) -> None:
    store = opened()
    store.commit(units[0])
    store.expire(1, timedelta(0), now=datetime.now(UTC) + timedelta(days=3))
    assert materialized(store, *TRACES).n_units == 0
    assert not any(shown(store, TABLES).values())


@pytest.mark.slow
def test_captures_are_computed_again(opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of a model that only captures use recomputes the captures.

    They are not recomputed while tables of traces that they read could not be computed.
    """
    store, version = opened(), Catalog.version
    write_capture(CaptureSpec(seed=1, ranks=2, steps=1, layers=1, ops_per_layer=1), tmp_path / "job1")
    assert ingest_on(InProcess(), store.address, sorted((tmp_path / "job1").glob("rank*"))).failed == []
    materialized(store, "captures", "capture_quality")
    before = shown(store, CAPTURES)
    assert len(before["captures"]) == 1 and before["capture_quality"]
    assert materialized(store, "captures", "capture_quality").n_units == 0
    changed = {"capture_quality"}
    monkeypatch.setattr(Catalog, "version", lambda self, name: version(self, name) + "-newer" * (name in changed))
    assert materialized(store, "captures", "capture_quality").n_units == 1
    assert shown(store, CAPTURES) == before
    assert materialized(store, "captures", "capture_quality").n_units == 0

    read = next(table for table in trace_tables(load_catalog(), ["capture_quality"]))
    changed |= {read}
    with monkeypatch.context() as patch:
        patch.setattr("pipelines.engines.stale_batches.Modelling.__call__", _failing)
        run = materialize_on(InProcess(), store.address, ["captures", "capture_quality"])
        assert len(run.failed) == 1 and "an odd batch" in run.failed[0].error
        assert len(stale_groups(store, [read])) == 1
    materialized(store, "captures", "capture_quality")
    assert shown(store, CAPTURES) == before
    assert materialized(store, "captures", "capture_quality").n_units == 0


@pytest.mark.parametrize("opened", FOLDER_FIRST, indirect=True)
def test_a_trace_that_was_left_out_is_named_until_it_is_computed(
    opened: Open, units: list[Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trace on which a model failed is named until its table is computed.

    A trace that failed for lack of memory is retried once there is more. Any other is retried with --force.
    """
    store = opened()
    store.commit(units[2])
    bad = min(trace_ids(units[2]))
    for error, memory in ((duckdb.OutOfMemoryException("Out of Memory"), "3000"), (ValueError("odd"), None)):
        with monkeypatch.context() as patch:
            _failing_on(patch, bad, error)
            forced(store, "kernels")
            assert materialized(store, "kernels").n_units == 0
        (left,) = left_out_at(store.address, ["kernels"])
        assert (left.trace_id, left.tables) == (bad, ("kernels",)) and left.file.endswith(".json")
        assert str(error) in left.reason and ("1907MiB" in left.reason) == bool(memory)
        assert left_out_at(store.address, ["temporal_breakdown"]) == []
        with monkeypatch.context() as patch:
            if memory:
                patch.setenv("TRACELAKE_MEMORY", memory)
            assert n_written(materialized(store, "kernels") if memory else forced(store, "kernels")) >= 1
            assert left_out_at(store.address) == []


def _failing(*_: object) -> None:
    raise ValueError("an odd batch")


MOMENTS = [("put_files", "before"), ("put_files", "after"), ("add_files", "before"), ("all_or_nothing", "after")]


def _die_at(address: str, environment: dict[str, str], name: str, when: str) -> None:
    original = getattr(recompute, name)

    def wrapped(*args: Any, **named: Any) -> Any:
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        original(*args, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(recompute, name, wrapped)
    materialize_in(address, environment)


@pytest.mark.slow
def test_a_kill_leaves_the_old_or_the_new_rows(opened: Open, units: list[Lake], right: dict[str, list[tuple]]) -> None:
    store = opened()
    if not isinstance(store, DuckLakeStore):
        pytest.skip("tests/lake kills what computes tables of a folder")
    for unit in units[:2]:
        store.commit(unit)
    old = shown(store, TABLES)
    for name, when in MOMENTS:
        process = PROCESSES.Process(target=_die_at, args=(store.address, keys(), name, when))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert shown(store, TABLES) == (right if name == "all_or_nothing" else old), (name, when)
    assert materialized(store, *TRACES).n_units == 0
    with store.writer() as con:
        assert con.execute("SELECT count(*), count(DISTINCT batch_id) FROM lake.tracelake.batches").fetchall() == [
            (2, 2)
        ]


@pytest.mark.slow
def test_two_at_once_and_a_merge_beside_them(opened: Open, units: list[Lake], right: dict[str, list[tuple]]) -> None:
    store = opened()
    for unit in units[:2]:
        store.commit(unit)
    both = [PROCESSES.Process(target=materialize_in, args=(store.address, keys())) for _ in range(2)]
    for process in both:
        process.start()
    while any(process.is_alive() for process in both):
        store.compact(grace=timedelta(days=1))
    assert [process.exitcode for process in both] == [0, 0]
    assert shown(store, TABLES) == right
    assert materialized(store, *TRACES).n_units == 0


@pytest.fixture
def ducklake(tmp_path: Path) -> DuckLakeStore:
    """Return an empty DuckLake with its catalog in SQLite."""
    return DuckLakeStore(f"ducklake:sqlite:{tmp_path}/cat.sqlite", f"{tmp_path}/data")


@pytest.mark.slow
@pytest.mark.ducklake("sqlite")
def test_what_another_process_did_meanwhile_stays(
    ducklake: DuckLakeStore, units: list[Lake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recomputation keeps the changes that another process made in the meantime.

    If two processes compute the same table, only the first replaces it. Traces that were removed stay removed.
    """
    ducklake.commit(units[0])
    (batch,) = units[0].batches()
    upload = recompute._upload

    def meanwhile(do: Callable[[], object]) -> Callable[..., Any]:
        def wrapped(*args: Any) -> Any:
            monkeypatch.setattr(recompute, "_upload", upload)
            do()
            return upload(*args)

        return wrapped

    def other() -> None:
        assert recompute.recompute(ducklake, Lake(tmp_path / "other"), batch, ["kernels"]) == ["kernels"]

    monkeypatch.setattr(recompute, "_upload", meanwhile(other))
    assert recompute.recompute(ducklake, Lake(tmp_path / "one"), batch, TRACES) == []
    assert len(_rows(ducklake, "* FROM kernels")) == 8

    version = Catalog.version
    monkeypatch.setattr(Catalog, "version", lambda self, name: version(self, name) + "-newer")
    later = datetime.now(UTC) + timedelta(days=3)
    monkeypatch.setattr(recompute, "_upload", meanwhile(lambda: ducklake.expire(1, now=later)))
    assert recompute.recompute(ducklake, Lake(tmp_path / "two"), batch, TRACES) == []
    assert _rows(ducklake, "* FROM kernels") == []


@pytest.mark.slow
@pytest.mark.ducklake("sqlite")
def test_a_store_of_an_older_tracelake_is_computed_again(
    ducklake: DuckLakeStore, units: list[Lake], right: dict[str, list[tuple]]
) -> None:
    """The tables of a store of an older tracelake are recomputed.

    That store recorded no versions, so the versions of its tables are unknown.
    """
    for unit in units[:2]:
        ducklake.commit(unit)
    with ducklake.writer() as con:
        con.execute("DROP TABLE lake.tracelake.batches")
        con.execute("DROP TABLE lake.tracelake.kinds")
    assert len(stale_groups(ducklake, TRACES)) == 2
    assert n_written(materialized(ducklake, *TRACES)) == 4
    assert shown(ducklake, TABLES) == right


@pytest.mark.slow  # a test above replaces old rows
@pytest.mark.parametrize("opened", FOLDER_FIRST, indirect=True)
def test_force_computes_again_what_is_up_to_date_and_nothing_else(
    opened: Open, units: list[Lake], right: dict[str, list[tuple]]
) -> None:
    """--force recomputes only the requested table, although it is up to date.

    The table has today's version but wrong rows, as after a hardware fault.
    """
    store = opened()
    wrong = make_unit(units[0].root.parent / f"wrong{opened().address[-8:].replace('/', '')}", (0, 1), TRACES)
    rewrite(wrong, "kernels", OLD, version=load_catalog().version("kernels"))
    for unit in (wrong, units[1]):
        store.commit(unit)
    assert materialized(store, *TRACES).n_units == 0
    assert shown(store, ["kernels"])["kernels"] != right["kernels"]
    run = forced(store, "kernels")
    assert n_written(run) == 2  # one table of two batches
    assert shown(store, TABLES) == right
    assert materialized(store, *TRACES).n_units == 0


@pytest.mark.slow
def test_force_computes_captures_again(opened: Open, units: list[Lake]) -> None:
    store = opened()
    store.commit(units[1])
    materialized(store, *CAPTURES)
    expected = shown(store, CAPTURES)
    assert materialized(store, *CAPTURES).n_units == 0
    for _ in range(2):
        run = forced(store, *CAPTURES)
        (done,) = run.results
        assert getattr(done, "n_captures", 0) == 1 or done.n_files == len(CAPTURES)
        assert shown(store, CAPTURES) == expected


@pytest.mark.parametrize("opened", FOLDER_FIRST, indirect=True)
def test_formulas_that_are_told_make_tables_outdated(opened: Open, tmp_path: Path) -> None:
    store = opened()
    store.commit(make_unit(tmp_path / "unit", (0,), ["kernels", "op_work"]))
    tables = ["kernels", "op_work"]
    assert stale_groups(store, tables) == []
    (tmp_path / "op_formulas.csv").write_text("op,formula\nmylib::a,gemm\n")
    store.set_user_tables(formulas=tmp_path / "op_formulas.csv")
    assert stale_groups(store, ["kernels"]) == [] and len(stale_groups(store, ["op_work"])) == 1
    materialized(store, *tables)
    assert stale_groups(opened(), tables) == []
