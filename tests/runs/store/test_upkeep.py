"""Merging, expiring and sweeping: they change only the answers that they should."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from pipelines.lake import Lake
from pipelines.lake.commit.batch_rows import LEFT_OUT
from pipelines.models.sqltext import row
from pipelines.runs.store import Store, StoreError, open_store
from pipelines.runs.store.ducklake.schema import FAILURES
from pipelines.runs.store.ducklake.store import DuckLakeStore
from tests.runs.store.world import make_unit, rewrite, shown

Open = Callable[[], Store]
pytestmark = pytest.mark.slow


@pytest.fixture
def ducklake(tmp_path: Path) -> DuckLakeStore:
    """Return an empty DuckLake with its catalog in SQLite."""
    return DuckLakeStore(f"ducklake:sqlite:{tmp_path}/cat.sqlite", f"{tmp_path}/data")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> list[Lake]:
    """Return units of one trace each."""
    folder = tmp_path_factory.mktemp("small")
    return [make_unit(folder / f"unit{seed}", (seed,), ["kernels"]) for seed in range(3)]


@pytest.mark.ducklake("sqlite")
def test_compact_merges_files_and_changes_no_row(ducklake: DuckLakeStore, small: list[Lake], tmp_path: Path) -> None:
    for unit in small:
        ducklake.commit(unit)
    tables = ["traces", "events", "kernels"]
    before = shown(ducklake, tables)
    planned = {table.what: (table.files_before, table.files_after) for table in ducklake.compact(dry_run=True)}
    assert planned["events"] == (3, 1)
    with ducklake.connect() as reader:  # a reader that opened before must not lose its files
        done = {table.what: (table.files_before, table.files_after) for table in ducklake.compact()}
        assert done == planned
        assert reader.execute("SELECT count(*) FROM kernels").fetchall() == [(len(before["kernels"]),)]
    assert shown(ducklake, tables) == before
    assert ducklake.compact() == []
    again = ducklake.commit(small[0])  # the keys moved from the catalog into files, and are still known
    assert again.known and not again.traces
    n_files = len(list((tmp_path / "data/main/events").glob("**/*.parquet")))
    ducklake.compact(grace=timedelta(0))
    assert len(list((tmp_path / "data/main/events").glob("**/*.parquet"))) < n_files
    assert shown(ducklake, tables) == before


@pytest.mark.ducklake("sqlite")
def test_a_forgotten_trace_leaves_the_files_of_its_unit(ducklake: DuckLakeStore, tmp_path: Path) -> None:
    unit = make_unit(tmp_path / "unit", range(3), ["kernels"])
    ducklake.commit(unit)
    trace = min(unit.known_traces())
    ducklake.forget(trace)
    for _ in range(2):  # the second run deletes the files that the first one replaced
        ducklake.compact(grace=timedelta(0))
    files = list((tmp_path / "data/main/events").glob("**/*.parquet"))
    query = f"SELECT DISTINCT trace_id FROM read_parquet({list(map(str, files))}, hive_partitioning = false)"
    assert {name for (name,) in duckdb.execute(query).fetchall()} == unit.known_traces().keys() - {trace}


def test_expired_traces_are_gone_and_stay_known(opened: Open, tmp_path: Path) -> None:
    store = opened()
    unit = make_unit(tmp_path / "unit", (0,), ["kernels"])
    store.commit(unit)
    later = datetime.now(UTC) + timedelta(days=3)
    assert store.expire(5, now=later) == []
    due = store.expire(2, dry_run=True, now=later)
    assert [batch.state for batch in due] == ["due"] and set(due[0].traces) == set(unit.known_traces())
    store.expire(2, timedelta(0), now=later)
    rows = shown(store, ["traces", "events", "kernels"])
    assert rows == {"traces": [], "events": [], "kernels": []}
    assert store.known(unit.known_traces()) == set(unit.known_traces())
    assert store.commit(unit).traces == ()
    with pytest.raises(ValueError, match="at least 1 day"):
        store.expire(0)


@pytest.mark.ducklake("sqlite")
def test_digests_are_of_a_folder(ducklake: DuckLakeStore, small: list[Lake]) -> None:
    ducklake.commit(small[0])
    with pytest.raises(StoreError, match="digests are kept in the folder of a lake"):
        ducklake.expire(14, to_digests=True)


@pytest.mark.ducklake("sqlite")
def test_the_failures_of_expired_traces_are_gone(ducklake: DuckLakeStore, small: list[Lake]) -> None:
    ducklake.commit(small[0])
    failure = (min(small[0].known_traces()), "kernels", "kernels", "reason", LEFT_OUT, small[0].batches()[0].batch_id)
    with ducklake.writer() as con:
        con.execute(f"INSERT INTO {FAILURES} VALUES {row(failure)}")
    assert ducklake.caveats("kernels")
    ducklake.expire(2, now=datetime.now(UTC) + timedelta(days=3))
    assert ducklake.caveats("kernels") == []


@pytest.mark.ducklake("sqlite")
def test_a_sweep_deletes_only_what_no_catalog_names(ducklake: DuckLakeStore, small: list[Lake], tmp_path: Path) -> None:
    ducklake.commit(small[0])
    before = shown(ducklake, ["events"])
    (file,) = (tmp_path / "data/main/events").glob("*.parquet")
    orphan = file.with_stem(f"{file.stem[:-8]}00000000")  # a file of a killed writer
    orphan.write_bytes(file.read_bytes())
    (foreign := tmp_path / "data/main/mine.parquet").write_text("another program's")
    assert ducklake.sweep() == [] and orphan.exists()
    with pytest.raises(StoreError, match=f"{foreign}: not a store's"):
        ducklake.sweep(timedelta(0))
    assert foreign.exists() and orphan.exists()
    foreign.unlink()
    swept = ducklake.sweep(timedelta(0))
    assert [Path(path).name for path in swept] == [orphan.name] and not orphan.exists()
    assert shown(ducklake, ["events"]) == before


@pytest.mark.ducklake("sqlite")
def test_a_newer_writer_adds_columns_and_an_older_one_lacks_them(ducklake: DuckLakeStore, tmp_path: Path) -> None:
    older, newer, last = (make_unit(tmp_path / name, (seed,), ["kernels"]) for seed, name in enumerate("abc"))
    rewrite(newer, "kernels", "*, 7 AS warps")
    ducklake.commit(older)
    ducklake.commit(newer)
    ducklake.commit(last)
    with ducklake.connect(locked=False) as con:
        counts = con.execute(
            "SELECT warps, count(DISTINCT trace_id) FROM lake.kernels GROUP BY 1 ORDER BY 1"
        ).fetchall()
    assert counts == [(7, 1), (None, 2)]
    rewrite(last := make_unit(tmp_path / "d", (9,), ["kernels"]), "kernels", "* REPLACE ('x' AS duration_ns)")
    with pytest.raises(StoreError, match=r"kernels: duration_ns is VARCHAR, BIGINT in the store"):
        ducklake.commit(last)
    assert ducklake.known(last.known_traces()) == set()


@pytest.mark.ducklake("sqlite")
def test_a_store_of_a_newer_version_is_refused(ducklake: DuckLakeStore, small: list[Lake]) -> None:
    ducklake.commit(small[0])
    with ducklake.writer() as con:
        con.execute("UPDATE lake.tracelake.format SET version = 99")
    for call in (lambda: ducklake.commit(small[1]), ducklake.connect, lambda: ducklake.known(["a"])):
        with pytest.raises(StoreError, match="newer tracelake"):
            call()


@pytest.mark.ducklake("sqlite")
def test_a_store_of_an_older_version_is_refused_with_the_command_that_reads_its_files_again(
    ducklake: DuckLakeStore, small: list[Lake]
) -> None:
    ducklake.commit(small[0])
    with ducklake.writer() as con:
        files = [path for (path,) in con.execute("SELECT path FROM lake.traces ORDER BY 1").fetchall()]
        con.execute("UPDATE lake.tracelake.format SET version = 1")
    command = " ".join(["tracelake ingest --lake ADDRESS", *files])
    for call in (lambda: ducklake.commit(small[1]), ducklake.connect, lambda: ducklake.known(["a"])):
        with pytest.raises(
            StoreError, match=f"tracelake 0.1, whose tables have other columns; .*: {re.escape(command)}$"
        ):
            call()


def test_superseded_traces_are_hidden(opened: Open, tmp_path: Path) -> None:
    """Every store hides a truncated trace after a better copy of it arrives, like a folder."""
    from pipelines.readers.ingest import ingest
    from pipelines.runs.materialize.per_trace import materialize
    from tests.lake.world import write_trace

    path = write_trace(tmp_path / "in/rank0.json", 0, n=12, distributedInfo={"rank": 0})
    text = path.read_text()
    units = []
    for name, content in (("cut", text[: len(text) * 2 // 3]), ("whole", text)):
        path.write_text(content)
        units.append(Lake(tmp_path / name))
        ingest([path], units[-1])
        materialize(units[-1], ["kernels"], and_publish=False)
    store, folder = opened(), open_store(str(tmp_path / "folder"))
    for unit in units:
        store.commit(unit)
        folder.commit(unit)
    tables = ["traces", "events", "kernels"]
    rows = shown(store, tables)
    assert len(rows["traces"]) == 1 and rows == shown(folder, tables)
    with store.connect() as con:
        assert con.execute("SELECT DISTINCT status FROM traces").fetchall() == [("ok",)]
