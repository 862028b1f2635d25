"""Kernel names from public source and real traces, with class, kind and `fused`: communication and look-alikes.

kernel_names.csv lists each name with its source. Arguments are shortened if the source does not fix them. The function
has the same name as in the source.
"""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from pipelines.models.catalog import load_catalog
from pipelines.models.rule_functions import create_function
from pipelines.models.rule_tables import create_rules
from pipelines.models.run import run_models
from pipelines.models.sqltext import row
from tests.harness import connect, kernel

NAMES = Path(__file__).with_name("kernel_names.csv")


def corpus() -> list[dict[str, str]]:
    with NAMES.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def con() -> duckdb.DuckDBPyConnection:
    """Return a connection with the models of a kernel of each name."""
    con, _ = connect([kernel(entry["name"], 10 * i, 5, i + 1) for i, entry in enumerate(corpus())])
    run_models(con, load_catalog(), ["kernels", "collective_kernels", "event_classes"])
    return con


def test_class_kind_and_fused_of_each_name(con: duckdb.DuckDBPyConnection) -> None:
    rows = corpus()
    kernels = con.execute(
        "SELECT k.name, k.class, coalesce(c.kind, ''), coalesce(CAST(c.fused AS VARCHAR), '') FROM kernels AS k "
        "LEFT JOIN collective_kernels AS c USING (trace_id, event_id) ORDER BY k.start_ns"
    ).fetchall()
    assert kernels == [(entry["name"], entry["class"], entry["kind"], entry["fused"]) for entry in rows]
    per_name = con.execute("SELECT name, coalesce(CAST(fused AS VARCHAR), '') FROM event_classes").fetchall()
    assert dict(per_name) == {entry["name"]: entry["fused"] for entry in rows}


def test_the_corpus_is_large_and_says_where_each_name_is_from() -> None:
    rows = corpus()
    classes = Counter(entry["class"] for entry in rows)
    assert len({entry["name"] for entry in rows}) == len(rows) >= 150
    assert classes["COMMUNICATION"] >= 75 and classes["COMPUTATION"] >= 75
    assert all(entry["source"] for entry in rows)


def test_without_any_one_rule_a_name_is_of_another_class() -> None:
    rows, catalog = corpus(), load_catalog()
    con = duckdb.connect()
    create_rules(con, catalog.models["kernel_classes"])
    con.execute("CREATE TABLE names (name VARCHAR)")
    con.execute(f"INSERT INTO names VALUES {', '.join(row([entry['name']]) for entry in rows)}")
    con.execute("CREATE TABLE rules AS FROM kernel_classes")

    def classes() -> dict[str, tuple[str, bool | None]]:
        create_function(con, "kernel_classes")
        return {
            name: (kind, fused)
            for name, kind, fused in con.execute(
                "SELECT n.name, r.class, r.fused FROM names AS n JOIN rules AS r "
                "ON r.profile = 'default' AND r.rule_order = first_kernel_classes('default', 'kernel', n.name)"
            ).fetchall()
        }

    whole = classes()
    assert whole == {
        entry["name"]: (entry["class"], {"": None, "true": True, "false": False}[entry["fused"]]) for entry in rows
    }
    ours = "SELECT rule_id FROM rules WHERE profile = 'default' AND rule_order BETWEEN 20 AND 39 ORDER BY rule_order"
    rule_ids = [rule for (rule,) in con.execute(ours).fetchall()]
    assert len(rule_ids) > 10
    for rule in rule_ids:
        con.execute(f"CREATE OR REPLACE TABLE kernel_classes AS FROM rules WHERE rule_id <> '{rule}'")
        assert classes() != whole, f"{rule} decides nothing"


def test_who_waits_for_all(con: duckdb.DuckDBPyConnection) -> None:
    """In no dispatch and no push a rank waits for all ranks.

    Half of a dispatch only sends, and a push of userbuffers goes to one peer.
    """
    waits = dict(con.execute("SELECT name, waits_for_all FROM collective_kernels").fetchall())
    assert [n for n, waiting in waits.items() if waiting and ("dispatch" in n.lower() or "push" in n)] == []
    reducing = [n for n, waiting in waits.items() if "all_reduce" in n or "cross_device_reduce" in n]
    assert len(reducing) > 15 and all(waits[n] for n in reducing)
    assert waits["ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"]
    # XLA starts and ends some collectives separately. The start waits for no rank.
    assert not waits["all-gather-start.3"] and not waits["%all-reduce-start = f32[8] all-reduce-start(%fusion.3)"]
    assert waits["%all-gather-done.3 = bf16[4] all-gather-done(%all-reduce.3)"]
