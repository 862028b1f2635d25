"""The part of a table that a digest keeps: the largest rows, and the sums of the others."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import duckdb
import pytest

from pipelines.base.datafiles import threshold
from pipelines.models.catalog import load_catalog
from tests.effort import first_of

COLUMNS = {
    "_compared_work": "trace_id VARCHAR, step BIGINT, operator VARCHAR, has_operator BOOLEAN, category VARCHAR, module VARCHAR, "
    "cat VARCHAR, name VARCHAR, n BIGINT, duration_ns BIGINT",
    "_compared_host": "trace_id VARCHAR, step BIGINT, cat VARCHAR, name VARCHAR, n BIGINT, self_ns BIGINT",
    "causes": "trace_id VARCHAR, window_id VARCHAR, cause VARCHAR, name VARCHAR, duration_ns BIGINT, share_percent DOUBLE, "
    "gpu_idle_ns BIGINT, exposed_ns BIGINT, saves_ns BIGINT, halved_saves_ns BIGINT, cause_saves_ns BIGINT, times BIGINT, "
    "event_id BIGINT, inferred BOOLEAN",
    "step_causes": "trace_id VARCHAR, step BIGINT, cause VARCHAR, name VARCHAR, duration_ns BIGINT, percent DOUBLE, "
    "n_stretches BIGINT",
    "fixes": "trace_id VARCHAR, window_id VARCHAR, fix VARCHAR, name VARCHAR, change VARCHAR, saves_ns BIGINT, "
    "saves_percent DOUBLE, without_profiler BOOLEAN, options VARCHAR, same_stretch_as VARCHAR, is_bound BOOLEAN, caveat VARCHAR",
    "collectives": "capture_id VARCHAR, collective_id BIGINT, kind VARCHAR, group_name VARCHAR, bytes BIGINT, wait_ns BIGINT, "
    "culprit_rank BIGINT, refused_reason VARCHAR",
    "collective_ranks": "capture_id VARCHAR, collective_id BIGINT, rank BIGINT, step BIGINT, duration_ns BIGINT, "
    "wait_ns BIGINT, wait_clock_ns BIGINT",
}
COLUMNS["causes_without_profiler"] = COLUMNS["causes"].replace("share_percent", "percent")


def kept(model: str, tables: dict[str, Iterable[tuple[Any, ...]]]) -> list[dict[str, Any]]:
    """Return the rows of a model over these rows of the tables that it reads."""
    with duckdb.connect() as con:
        for table, values in tables.items():
            con.execute(f"CREATE TABLE {table} ({COLUMNS[table]})")
            con.executemany(
                f"INSERT INTO {table} VALUES ({', '.join(['?'] * len(COLUMNS[table].split(', ')))})", [*values]
            )
        return con.execute(load_catalog().models[model].sql).to_arrow_table().to_pylist()


def work(n: int, step: int | None = 1, category: str = "gemm") -> list[tuple[Any, ...]]:
    return [("t", step, f"aten::{i}", True, category, "(no module)", "kernel", f"k{i}", 2, 100 + i) for i in range(n)]


def causes(n: int, cause: str = "host_operators") -> list[tuple[Any, ...]]:
    return [("t", "full", cause, f"op{i}", 100 + i, 2.5, 1, 2, 3, 4, 50, 6, i, i == 0) for i in range(n)]


def n_work(n: int) -> int:
    return len(kept("digest_work", {"_compared_work": work(n)}))


def n_host(n: int) -> int:
    rows = [("t", 1, "cpu_op", f"op{i}", 2, 100 + i) for i in range(n)]
    return len(kept("digest_host", {"_compared_host": rows}))


def n_names(n: int) -> int:
    return len(kept("_digest_causes", {"causes": causes(n)}))


def n_fixes(n: int) -> int:
    rows = [("t", "full", "do_not_wait", f"op{i}", "", i, 1.0, False, "", None, False, None) for i in range(n)]
    return len(kept("_digest_fixes", {"fixes": rows}))


def n_waits(n: int) -> int:
    groups = [("c", i, "allreduce", f"group{i}", 8, 10, 0, None) for i in range(n)]
    ranks = [("c", i, 0, 1, 100 + i, 5, 5) for i in range(n)]
    return len(kept("digest_waits", {"collectives": groups, "collective_ranks": ranks}))


KEPT = {
    "digest_work": (n_work, 24, 25),
    "digest_names": (n_names, 4, 5),
    "digest_fixes": (n_fixes, 5, 6),
    "digest_host": (n_host, 12, 13),
    "digest_waits": (n_waits, 8, 9),
}
BOUNDARIES = KEPT


@pytest.mark.parametrize("name", first_of(KEPT, 3))
def test_as_many_rows_as_the_threshold_says_and_one_for_the_others(name: str) -> None:
    count, all_of_them, too_many = KEPT[name]
    assert count(all_of_them) == all_of_them
    with_others = {"digest_names": 4, "digest_fixes": 5}.get(name, all_of_them + 1)
    assert count(too_many) == count(3 * too_many) == with_others
    assert int(threshold(name)) == (3 if name == "digest_names" else all_of_them)


def test_the_largest_are_kept() -> None:
    rows = kept("digest_work", {"_compared_work": work(30)})
    others = [r for r in rows if r["name"] == "(other kernels)"]
    assert {r["name"] for r in rows if r not in others} == {f"k{i}" for i in range(6, 30)}
    assert [(r["operator"], r["has_operator"], r["category"], r["n"], r["duration_ns"]) for r in others] == [
        ("(other operators)", True, "gemm", 12, sum(100 + i for i in range(6)))
    ]


def test_the_others_of_a_cause() -> None:
    (other,) = [r for r in kept("_digest_causes", {"causes": causes(6)}) if r["name"] == "(other names)"]
    expected = {"duration_ns": 303, "share_percent": 7.5, "gpu_idle_ns": 3, "exposed_ns": 6, "times": 18}
    assert {key: other[key] for key in expected} == expected
    assert (other["saves_ns"], other["halved_saves_ns"], other["event_id"]) == (None, None, None)
    assert (other["cause_saves_ns"], other["inferred"]) == (50, False)


@pytest.mark.parametrize("table", ["causes", "causes_without_profiler", "step_causes"])
def test_shares_and_times_add_up(table: str) -> None:
    random, percent = Random(7), "share_percent" if table == "causes" else "percent"
    rows: list[tuple[Any, ...]] = []
    for window in range(6):
        for cause in range(random.randint(1, 5)):
            for name in range(random.randint(1, 9)):
                ns = random.randint(0, 1000)
                start = ("t", window if table == "step_causes" else f"w{window}", f"c{cause}", f"n{name}", ns, ns / 7)
                rows.append((*start, 1) if table == "step_causes" else (*start, 1, 1, 1, 1, 1, 1, 1, False))
    window = "step" if table == "step_causes" else "window_id"
    result = kept(f"_digest_{table}", {table: rows})
    assert len(result) < len(rows)
    before: dict[tuple[Any, ...], list[float]] = {}
    after: dict[tuple[Any, ...], list[float]] = {}
    for r in rows:
        sums = before.setdefault((r[1], r[2]), [0, 0.0])
        sums[0], sums[1] = sums[0] + r[4], sums[1] + r[5]
    for r in result:
        sums = after.setdefault((r[window], r["cause"]), [0, 0.0])
        sums[0], sums[1] = sums[0] + r["duration_ns"], sums[1] + r[percent]
    assert after == {key: [ns, pytest.approx(share)] for key, (ns, share) in before.items()}


def test_the_work_of_steps_and_categories_adds_up() -> None:
    rows = [*work(40), *work(30, None, "norm"), *work(3, 2)]
    result = kept("digest_work", {"_compared_work": rows})

    def sums(pairs: Iterable[tuple[Any, Any, int]]) -> dict[tuple[Any, Any], int]:
        total: dict[tuple[Any, Any], int] = {}
        for step, category, ns in pairs:
            total[step, category] = total.get((step, category), 0) + ns
        return total

    assert sums((r["step"], r["category"], r["duration_ns"]) for r in result) == sums((r[1], r[4], r[9]) for r in rows)


def test_modules_and_shapes_are_added_up() -> None:
    same = [("t", 1, "aten::mm", True, "gemm", f"layer{i}", "kernel", "k", 1, 10) for i in range(5)]
    (only,) = kept("digest_work", {"_compared_work": same})
    assert (only["n"], only["duration_ns"]) == (5, 50)
