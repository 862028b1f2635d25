"""The table of rules that infer waits: each rule is a row, and each row agrees with its model, thresholds and test."""

from __future__ import annotations

import re
from pathlib import Path

from pipelines.base.datafiles import rule_rows
from pipelines.models.catalog import load_catalog

ROOT = Path(__file__).parents[3]
ROWS = rule_rows("wait_rules")


def text_of(table: str) -> str:
    """Return the SQL file of a table.

    For a Python table, return all Python files in its folder, which read the thresholds.
    """
    model = load_catalog().models[table]
    if model.kind != "python":
        return model.path.read_text()
    return "".join(path.read_text() for path in model.path.parent.glob("*.py"))


def test_what_tables_name_is_a_row() -> None:
    models = load_catalog().models
    evidence = models["_waits_for_events"].sql.rpartition("CASE")[2]
    named = {
        "_event_waits": {*re.findall(r"(?:THEN|ELSE) '(\w+)'", evidence), "none"},
        "_inferred_waits": {*re.findall(r"(?:event_id|TRUE|FALSE), '(\w+)'", models["_inferred_waits"].sql)},
    }
    assert len({row["rule"] for row in ROWS}) == len(ROWS)
    for table, rules in named.items():
        assert rules == {row["rule"] for row in ROWS if row["table_name"] == table}, table


def test_each_row_is_what_its_file_says() -> None:
    for row in ROWS:
        assert re.match(r"(chosen|measured|document): \w", row["source"]), row
        text = text_of(row["table_name"])
        for name in (row["thresholds"] or "").split():
            assert re.search(rf"threshold\(['\"]{name}['\"]\)", text), (row["rule"], name)
        example = (ROOT / row["example"]).read_text()
        assert row["rule"] in example or row["table_name"].lstrip("_") in example, row
