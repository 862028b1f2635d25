"""The script that compares two checkouts' answers sees every kind of difference."""

from pathlib import Path

import duckdb
import pytest

from tests.benchmarks.same_answers import compare, write_hashes

_ROWS = "VALUES (1, 'a', 0.5), (1, 'a', 0.5), (2, NULL, 'nan'::DOUBLE)"
_COLUMNS = "id, name, share"


def answers(
    folder: Path,
    rows: str = _ROWS,
    batch: str = "b1",
    table: str = "kernels",
    path: str = "{}",
    columns: str = _COLUMNS,
) -> Path:
    """A folder as `make` writes it."""
    (folder / "lake").mkdir(parents=True)
    with duckdb.connect(folder / "lake" / "analyst.duckdb") as con:
        con.execute(f"CREATE TABLE {table} AS SELECT *, '{batch}' AS batch_id FROM ({rows}) AS t ({columns})")
        con.execute(f"CREATE VIEW jobs AS SELECT *, now() AS began_at FROM {table}")
    write_hashes(folder)
    (folder / "paths").mkdir()
    (folder / "paths" / "a.json").write_text(path)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"rows": _ROWS.replace("(1, 'a', 0.5), ", "", 1)}, "kernels: 1 rows only before"),
        ({"rows": _ROWS.replace("0.5)", "0.5000000000000001)", 1)}, "kernels: 1 rows only after"),
        ({"rows": _ROWS.replace("NULL", "''")}, "kernels: 1 rows only after"),
        ({"rows": _ROWS.replace("(1, 'a', 0.5)", "(1.5, 'a', 0.5)")}, "kernels: other types: id "),
        ({"columns": "id, name, percent"}, "only in one: columns of kernels: percent, share"),
        ({"table": "streams"}, "only in one: table streams"),
        ({"path": "{ }"}, "path of a.json differs"),
    ],
)
def test_a_difference_is_told(tmp_path: Path, change: dict[str, str], told: str) -> None:
    found = list(compare(answers(tmp_path / "before"), answers(tmp_path / "after", **change)))
    assert any(line.startswith(told) for line in found), found


def test_another_order_of_columns_is_a_difference(tmp_path: Path) -> None:
    turned = answers(
        tmp_path / "after", "SELECT b, a, c FROM (" + _ROWS + ") AS s (a, b, c)", columns="name, id, share"
    )
    found = list(compare(answers(tmp_path / "before"), turned))
    assert found == ["jobs: the columns have another order", "kernels: the columns have another order"]


def test_of_tables_that_differ_in_columns_the_common_ones_are_compared(tmp_path: Path) -> None:
    before = answers(tmp_path / "before")
    same = answers(tmp_path / "same", columns="id, name, percent")
    other = answers(tmp_path / "other", _ROWS.replace("(2,", "(3,"), columns="id, name, percent")
    alone = [f"only in one: columns of {table}: percent, share" for table in ("jobs", "kernels")]
    assert list(compare(before, same, common=True)) == alone
    assert {*alone} < {*compare(before, other, common=True)}


def test_runs_differ_in_their_ids_and_times_alone(tmp_path: Path) -> None:
    rows = "SELECT * FROM (" + _ROWS + ") AS s (a, b, c) ORDER BY a DESC"  # the order of rows is no answer
    assert list(compare(answers(tmp_path / "before"), answers(tmp_path / "after", rows, "b2"))) == []
