"""Users' tables of jobs and ranks in a store: prices.csv and roles.csv, the same for both backends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.engines.capture_units import changed_captures
from pipelines.fleet.captures.grouping import Role
from pipelines.fleet.captures.roles import RolesError
from pipelines.models.errors import CatalogError
from pipelines.runs.store import Store
from tests.runs.store.world import make_unit

Open = Callable[[], Store]


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def _prices(store: Store) -> list[tuple]:
    with store.connect() as con:
        return con.execute("SELECT job, team, price_per_gpu_hour, currency FROM job_prices ORDER BY job").fetchall()


def test_prices_and_roles_of_a_store(opened: Open, tmp_path: Path) -> None:
    store = opened()
    store.commit(make_unit(tmp_path / "unit", (0, 1), []))
    assert _prices(store) == [] and list(store.roles()) == []
    (before,) = changed_captures(store)
    prices = written(tmp_path / "my.csv", "job,team,price_per_gpu_hour,currency", "a,x,2.50,EUR", 'b,"y, z",,')
    roles = written(tmp_path / "roles.csv", "rank,role,group", "0,tp,first", "1,tp,it's")
    store.set_user_tables(prices, roles)
    assert _prices(opened()) == [("a", "x", "2.50", "EUR"), ("b", "y, z", None, None)]
    assert list(opened().roles()) == [Role(None, 0, "tp", "first"), Role(None, 1, "tp", "it's")]
    (after,) = changed_captures(store)
    assert before.items[0].content != after.items[0].content  # so captures are recomputed

    wrong = written(tmp_path / "wrong.csv", "job,team,price_per_gpu_hour,currency", "a,x,2.50,EUR", "b,x,cheap,EUR")
    with pytest.raises(CatalogError, match=r"wrong\.csv:3: price 'cheap'"):
        store.set_user_tables(wrong, roles)
    with pytest.raises(RolesError, match=r"bad\.csv:2: rank 'x'"):
        store.set_user_tables(prices, written(tmp_path / "bad.csv", "rank,role,group", "x,tp,first"))
    with pytest.raises(FileNotFoundError):
        store.set_user_tables(tmp_path / "none.csv")
    assert len(_prices(store)) == 2 and len(store.roles()) == 2

    store.set_user_tables(prices=written(tmp_path / "empty.csv", "job,team,price_per_gpu_hour,currency"))
    assert _prices(store) == [] and len(store.roles()) == 2


def _shown_formulas(store: Store) -> list[tuple]:
    """Return the user's formulas that queries see, like in a folder."""
    with store.connect() as con:
        return con.execute(
            "SELECT op, formula, owns_below FROM op_kinds WHERE starts_with(op, 'mylib::') ORDER BY op"
        ).fetchall()


@pytest.mark.slow  # tests/lake/test_formulas.py has formulas of a folder
def test_formulas_of_a_store_are_used_and_make_tables_outdated(opened: Open, tmp_path: Path) -> None:
    store = opened()
    formulas = written(tmp_path / "op_formulas.csv", "op,formula,owns_below", "mylib::b,copy,", "mylib::a,gemm,true")
    store.set_user_tables(formulas=formulas)
    expected = [("mylib::b", None, "copy", "copy", "false"), ("mylib::a", None, "gemm", "gemm", "true")]
    assert list(opened().formulas()) == expected
    assert _shown_formulas(store) == [("mylib::a", "gemm", True), ("mylib::b", "copy", False)]
    wrong = written(tmp_path / "wrong.csv", "op,formula", "mylib::a,gem")
    with pytest.raises(CatalogError, match=r"wrong\.csv:2: formula 'gem' is unknown"):
        store.set_user_tables(formulas=wrong)
    assert list(opened().formulas()) == expected
    store.set_user_tables(formulas=written(tmp_path / "none.csv", "op,formula"))
    assert list(opened().formulas()) == [] == _shown_formulas(store)
