"""Column names of all tables: they follow agreed rules, and column_names.csv lists the older exceptions."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import duckdb
import pytest

from pipelines.models.catalog import load_catalog

# Patterns that a name must not match, with the replacement. docs/sql.md explains the same rules.
RULES = {
    r"(^|_)(dur|actual)_ns$": "duration_ns",
    r"^(ts|started|first_ts|first)_ns$": "start_ns",
    r"^(ended|last_ts|last)_ns$": "end_ns",
    r"(^|_)comm(_|$)": "communication",
    r"(^|_)(share|ratio|fraction|pct|utilization|mfu|hfu)(_|$)": "percent",
    r"(^|_)(gbps|gbs|gb_s)(_|$)": "gigabytes_per_s",
    r"(^|_)(us|ms|ns_us)$": "ns: storage has integer nanoseconds",
    r"(^|_)(time|timestamp)$": "…_at, a TIMESTAMP, or …_ns",
}
EXCEPTIONS = Path(__file__).with_name("column_names.csv")


def reserved() -> set[str]:
    rows = duckdb.sql("SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category = 'reserved'").fetchall()
    return {name for (name,) in rows}


def faults() -> dict[tuple[str, str], str]:
    """Return the proposed name for each table and column whose name breaks a rule."""
    models, words = load_catalog().public, reserved()
    proposals = {}
    for table in models:
        for column in load_catalog().models[table].columns:
            for pattern, instead in RULES.items():
                if re.search(pattern, column.name):
                    proposals[table, column.name] = instead
            if column.name in words:
                proposals[table, column.name] = "another word: this one is reserved in SQL"
    return proposals


def exceptions() -> dict[tuple[str, str], str]:
    with EXCEPTIONS.open(encoding="utf-8", newline="") as file:
        return {(row["table"], row["column"]): row["why"] for row in csv.DictReader(file)}


def test_new_columns_have_agreed_names() -> None:
    new = {f"{table}.{column}": f"call it {instead}" for (table, column), instead in faults().items()}
    assert {name: proposal for name, proposal in new.items() if tuple(name.split(".")) not in exceptions()} == {}


def test_every_exception_is_still_there() -> None:
    """Every exception in the list is still a column.

    A renamed column leaves the list, so the list only gets shorter.
    """
    assert exceptions().keys() - faults().keys() == set()
    assert set(exceptions().values()) == {"term"}


@pytest.mark.parametrize("name", ["dur_ns", "kernel_dur_ns", "n_comm", "exposed_comm_share", "bus_gbps", "started_ns"])
def test_the_rules_see_what_they_are_for(name: str) -> None:
    assert any(re.search(pattern, name) for pattern in RULES)


@pytest.mark.parametrize("name", ["duration_ns", "first_kernel_ts_ns", "communication_ns", "n_commits", "exposed_ns"])
def test_and_nothing_else(name: str) -> None:
    assert not any(re.search(pattern, name) for pattern in RULES)
