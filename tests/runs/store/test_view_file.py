"""The cached views of a DuckLake: a file that is rebuilt if its sources change."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.lake.publish.contents import column_types
from pipelines.lake.read import views
from pipelines.models import rule_tables
from pipelines.models.catalog import load_catalog
from pipelines.runs.store import Store
from pipelines.runs.store.ducklake import reader_views, user_tables
from tests.runs.store.conftest import of_kind
from tests.runs.store.world import make_unit


@pytest.mark.parametrize("module", [reader_views, rule_tables, views, user_tables])
def test_kept_views_are_those_of_this_program(module: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = reader_views._Build(load_catalog(), {}, False, True, False)
    before = build.digest
    assert build.digest == before
    (tmp_path / "newer.py").write_text("another version")
    monkeypatch.setattr(module, "__file__", str(tmp_path / "newer.py"))
    assert build.digest != before


@pytest.mark.parametrize(
    "opened",
    [
        of_kind("sqlite"),
        *(of_kind(kind, pytest.mark.slow) for kind in ("duckdb", "postgres")),
    ],
    indirect=True,
)
def test_columns_and_types_are_those_of_a_folder(opened: Callable[[], Store], tmp_path: Path) -> None:
    """The tables and their types equal those of an analysts' file."""
    store = opened()
    store.commit(make_unit(tmp_path / "unit", (0, 1), ["kernels"]))
    with store.connect() as con:
        for table, columns in column_types(load_catalog()).items():
            described = {(row[0], row[1]) for row in con.execute(f"DESCRIBE {table}").fetchall()}
            assert described - {("batch_id", "VARCHAR")} == {*columns} - {("batch_id", "VARCHAR")}, table
        rows = con.execute("SELECT start_ns, duration_ns FROM kernels").fetchall()
        assert rows and all(start >= 0 and duration > 0 for start, duration in rows)
        assert con.execute("SELECT count(hbm_gigabytes_per_s) > 0 FROM devices").fetchall() == [(True,)]
