"""Publishing once per run: a run over an up-to-date lake writes nothing, and every change is noticed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner

import pipelines.lake.publish.analyst_file as publishing
from pipelines.faces.cli.app import app
from pipelines.faces.cli.refresh_tables import open_analyst
from pipelines.fleet.captures.roles import ROLES, RolesError
from pipelines.lake import Lake
from pipelines.lake.commit.catalog_file import CATALOG, note, record_of
from pipelines.lake.lake import Staged
from pipelines.lake.names import ANALYST, table_file
from pipelines.lake.publish.analyst_file import PUBLISHED, publish
from pipelines.lake.publish.prices import PRICES
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.readers.ingest import ingest
from pipelines.runs.forget import forget
from pipelines.runs.materialize import computed_tables, per_capture, per_trace, run_order
from pipelines.runs.materialize.computed_tables import COMPUTED, is_complete
from tests.effort import first_of
from tests.lake.world import capture, write_trace

TABLES = ["kernels", "temporal_breakdown", "captures", "capture_ranks"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build and publish a lake with a capture of two ranks whose tables one run computed."""
    folder = tmp_path_factory.mktemp("whole")
    ingest(capture(folder / "in", ranks=2), Lake(folder / "lake"))
    run_order.materialize_all(Lake(folder / "lake"), TABLES)
    return folder


@pytest.fixture
def lake(whole: Path) -> Iterator[Lake]:
    """Yield the lake of `whole`, and restore it afterwards."""
    kept, root = whole / "kept", whole / "lake"
    shutil.copytree(root, kept)  # keeps the modification times, so the file counts as published
    yield Lake(root)
    shutil.rmtree(root, ignore_errors=True)
    kept.rename(root)


@pytest.fixture
def rewritten(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return a list that gets the lake's root each time an analysts' file is written."""
    roots, rewrite = [], publishing._rewrite

    def counted(lake: Lake, catalog: Catalog, *how: bool) -> None:
        roots.append(lake.root)
        rewrite(lake, catalog, *how)

    monkeypatch.setattr(publishing, "_rewrite", counted)
    return roots


def files(lake: Lake) -> dict[str, tuple[int, int, int]]:
    """Return the attributes of each file that change if it is written, replaced or opened for writing."""
    paths = (path for path in lake.root.rglob("*") if path.is_file())
    return {str(path): (s.st_ino, s.st_size, s.st_mtime_ns) for path in paths for s in [path.stat()]}


def complete(lake: Lake) -> bool:
    return is_complete(lake, load_catalog(), TABLES)


def test_a_run_over_what_is_up_to_date_writes_nothing(lake: Lake, rewritten: list[Path]) -> None:
    before = files(lake)
    assert complete(lake)
    assert run_order.materialize_all(lake, TABLES) == []
    assert per_trace.materialize(lake, TABLES[:2]) == per_trace.materialize(lake, TABLES[:1], lake.batches()) == []
    assert per_capture.materialize_captures(lake, TABLES[2:]) == []
    assert publish(lake) == lake.root / ANALYST
    result = CliRunner().invoke(app, ["materialize", *TABLES, "--lake", str(lake.root), "--json"])
    assert (result.exit_code, result.stdout) == (0, "[]\n")
    assert (files(lake), rewritten) == (before, [])


def test_it_needs_no_look_at_the_tables_files(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lake, "versions", None)
    monkeypatch.setattr(per_capture, "lake_captures", None)
    assert run_order.materialize_all(lake, TABLES) == []
    with pytest.raises(TypeError):
        run_order.materialize_all(lake, [*TABLES, "launches"])


def test_without_its_note_a_run_looks_at_everything_and_writes_only_that(lake: Lake, rewritten: list[Path]) -> None:
    notes = {str(lake.root / CATALOG)}
    before = {path: stamp for path, stamp in files(lake).items() if path not in notes}
    note(lake.root, COMPUTED, None)
    assert not complete(lake)
    assert run_order.materialize_all(lake, TABLES) == []
    assert complete(lake)
    # Only lock files may be opened for writing.
    after = {path: stamp for path, stamp in files(lake).items() if path not in notes and not path.endswith(".lock")}
    assert after == {path: stamp for path, stamp in before.items() if not path.endswith(".lock")}
    assert rewritten == []


@pytest.mark.slow  # needs a separate lake
def test_a_run_publishes_once(lake: Lake, rewritten: list[Path], tmp_path: Path) -> None:
    ingest([write_trace(tmp_path / "rank2.json", 2, distributedInfo={"rank": 2})], lake)
    assert not complete(lake)
    done = run_order.materialize_all(lake, TABLES)
    assert {result.table for result in done} == set(TABLES) and len(rewritten) == 1
    assert complete(lake)
    untouched = {path: stamp for path, stamp in files(lake).items() if "day=" in path}
    for table in TABLES:
        assert {result.batch for result in per_trace.materialize(lake, [table], force=True)} <= set(lake.batches())
    assert len(rewritten) == 3  # `force` recomputes the tables of traces
    changed = {path for path, stamp in files(lake).items() if untouched.get(path, stamp) != stamp}
    assert {Path(path).parts[-3] for path in changed} == set(TABLES[:2])


@pytest.mark.slow  # 3 s
def test_what_was_made_before_a_failure_is_published(lake: Lake, rewritten: list[Path], tmp_path: Path) -> None:
    ingest([write_trace(tmp_path / "rank2.json", 2, distributedInfo={"rank": 2})], lake)
    (lake.root / ROLES).write_text("no,table\n")
    with pytest.raises(RolesError):
        run_order.materialize_all(lake, [*TABLES, "capture_roles"])
    assert len(rewritten) == 1 and not complete(lake)
    with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con:
        assert con.execute("SELECT count(DISTINCT trace_id) FROM kernels").fetchall() == [(3,)]


def _table_gone(lake: Lake) -> None:
    lake.take_away(lake.batches()[0], ["kernels"])


def _file_rewritten(lake: Lake) -> None:
    path = table_file(lake.root, "kernels", lake.batches()[0])
    staged = Path(shutil.copy(path, lake.staging(lake.batches()[0]) / "again.parquet"))
    lake.put_all(lake.batches()[0], {"kernels": Staged(staged, version=load_catalog().version("kernels"))})


_CHANGES: dict[str, Callable[[Lake], object]] = {
    "a table's file went": _table_gone,
    "prices": lambda lake: (lake.root / PRICES).write_text("job,team,price_per_gpu_hour,currency\nj,t,2.5,USD\n"),
    "the catalog is lost": lambda lake: (lake.root / CATALOG).unlink(),
    "a table's file was put in place": _file_rewritten,
    "a trace was forgotten": lambda lake: forget(lake, sorted(lake.known_traces())[0]),
    "the analysts' file is damaged": lambda lake: os.truncate(lake.root / ANALYST, 5000),
    "what is told of it is cut": lambda lake: note(lake.root, PUBLISHED, None),
}


@pytest.mark.parametrize("change", first_of(_CHANGES, 1))
def test_what_changed_is_published(lake: Lake, rewritten: list[Path], change: str) -> None:
    _CHANGES[change](lake)
    rewritten.clear()
    if change == "a trace was forgotten":  # forget publishes by itself
        with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con:
            assert con.execute("SELECT count(*), (SELECT n_ranks FROM captures) FROM traces").fetchall() == [(1, 1)]
        return
    assert not complete(lake)
    done = run_order.materialize_all(lake, TABLES)
    assert [result.table for result in done] == (["kernels"] if change == "a table's file went" else [])
    assert len(rewritten) == 1
    assert run_order.materialize_all(lake, TABLES) == [] and len(rewritten) == 1


def test_a_file_that_duckdb_refuses_is_rewritten_though_it_is_as_it_was_told(lake: Lake, rewritten: list[Path]) -> None:
    (lake.root / ANALYST).write_bytes(b"of another version of DuckDB")
    note(
        lake.root, PUBLISHED, record_of(lake.root, PUBLISHED) | {"checksum": publishing._checksum(lake.root / ANALYST)}
    )
    with publishing.analyst(lake) as con:
        assert con.execute("SELECT count(*) FROM traces").fetchall() == [(2,)]
    assert len(rewritten) == 1


def test_a_query_notices_damage_that_changes_neither_size_nor_time(lake: Lake) -> None:
    path = table_file(lake.root, "kernels", lake.batches()[0])
    stamp, content = path.stat(), path.read_bytes()
    path.write_bytes(content[:-64] + bytes(64))
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert complete(lake)
    with open_analyst(lake.root, ["kernels"]) as con:
        assert con.execute("SELECT count(*) FROM kernels").fetchall() == [(8,)]


@pytest.mark.slow  # tests/lake/test_publish.py has a moved lake, too
def test_a_lake_that_moved_is_published_with_its_new_place(lake: Lake, rewritten: list[Path], tmp_path: Path) -> None:
    moved = Lake(lake.root.rename(tmp_path / "moved"))
    assert run_order.materialize_all(moved, TABLES) == []
    assert rewritten == [moved.root] and complete(moved)


def test_other_versions_of_models_and_of_the_program_are_noticed(
    lake: Lake, rewritten: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(computed_tables, "code_digest", lambda: "another")
        assert not complete(lake)
    version = Catalog.version
    monkeypatch.setattr(
        Catalog, "version", lambda catalog, name: version(catalog, name) + ("x" if name == "kernels" else "")
    )
    assert not complete(lake)
    assert [result.table for result in run_order.materialize_all(lake, TABLES)] == ["kernels"] and len(rewritten) == 1


@pytest.mark.slow  # tests/runs/store/test_user_tables.py has roles, too
def test_roles_that_changed_are_noticed(lake: Lake) -> None:
    (lake.root / ROLES).write_text("rank,role,group\n0,pp,a\n1,pp,a\n")
    assert not complete(lake)
    assert {result.table for result in run_order.materialize_all(lake, TABLES)} == set(TABLES[2:])


@pytest.mark.slow
def test_what_comes_in_during_a_run_is_not_taken_for_complete(lake: Lake, tmp_path: Path) -> None:
    late = write_trace(tmp_path / "late.json", 9)

    def on_step(_: str) -> None:
        if late.exists():
            ingest([late.rename(tmp_path / "taken.json")], lake)

    assert run_order.materialize_all(lake, TABLES, force=True, on_step=on_step)
    assert not complete(lake)
    assert {result.table for result in run_order.materialize_all(lake, TABLES)} >= {"kernels"}
    assert complete(lake)


def test_a_part_is_not_taken_for_the_whole(lake: Lake, tmp_path: Path) -> None:
    (first,) = lake.batches()
    ingest([write_trace(tmp_path / "late.json", 9)], lake)
    publish(lake)
    assert per_trace.materialize(lake, TABLES[:2], [first]) == []
    assert not is_complete(lake, load_catalog(), TABLES[:2])
    assert run_order.materialize_all(lake, TABLES[:2], part=per_capture.part_of(lake, "nothing begins so")) == []
    assert not is_complete(lake, load_catalog(), TABLES[:2])
