"""The script that compares two checkouts' answers sees every kind of difference."""

from pathlib import Path

import duckdb
import pytest

from tests.benchmarks.same_answers import compare

_ROWS = "VALUES (1, 'a', 0.5), (1, 'a', 0.5), (2, NULL, 'nan'::DOUBLE)"


def answers(folder: Path, rows: str = _ROWS, batch: str = "b1", table: str = "kernels", path: str = "{}") -> Path:
    """A folder as `make` writes it."""
    lake = folder / "lake" / table / "day=2026-01-01"
    lake.mkdir(parents=True)
    query = f"SELECT *, '{batch}' AS batch_id FROM ({rows}) AS t (id, name, share)"
    with duckdb.connect() as con:
        con.execute(f"COPY ({query}) TO '{lake / batch}.parquet'")
    (folder / "paths").mkdir()
    (folder / "paths" / "a.json").write_text(path)
    return folder


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"rows": _ROWS.replace("(1, 'a', 0.5), ", "", 1)}, "kernels: 1 rows only before"),
        ({"rows": _ROWS.replace("0.5)", "0.5000000000000001)", 1)}, "kernels: 1 rows only after"),
        ({"rows": _ROWS.replace("NULL", "''")}, "kernels: 1 rows only after"),
        ({"rows": _ROWS.replace("(1, 'a', 0.5)", "(1.5, 'a', 0.5)")}, "kernels: columns differ"),
        ({"table": "streams"}, "only in one: table streams"),
        ({"path": "{ }"}, "path of a.json differs"),
    ],
)
def test_a_difference_is_told(tmp_path: Path, change: dict[str, str], told: str) -> None:
    found = list(compare(answers(tmp_path / "before"), answers(tmp_path / "after", **change)))
    assert any(line.startswith(told) for line in found), found


def test_runs_differ_in_their_ids_alone(tmp_path: Path) -> None:
    rows = "SELECT * FROM (" + _ROWS + ") AS s (a, b, c) ORDER BY a DESC"  # the order of rows is no answer
    assert list(compare(answers(tmp_path / "before"), answers(tmp_path / "after", rows, "b2"))) == []
