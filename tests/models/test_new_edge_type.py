"""A new edge type: one row and one SQL file add it, and every command of a copy of the project knows it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines.models import statements
from pipelines.models.catalog import load_catalog
from pipelines.models.errors import CatalogError
from pipelines.models.run import run_models
from tests.effort import SLOW
from tests.harness import connect, op

ROOT = Path(__file__).parents[2]

ROW = '6,HAND_OFF,critical_path_hand_off,host_hand_off,nobody,true,true,false,false,hand_offs,,"hand-off: ",true,true,Test.\n'
# An edge from the end of `produce` to the start of `consume`, which no other edge joins, and one superfluous edge.
EDGES = """-- One row: an edge from an operator that hands something over to the one on another thread that takes it.
-- part of: _edge_parts
WITH named AS (
    SELECT c.window_no, c.event_id, c.start_ns, c.start_ns + c.duration_ns AS end_ns, e.name
    FROM _clip AS c
    JOIN critical_path_windows AS w ON w.window_no = c.window_no
    JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = c.event_id
    WHERE e.name IN ('produce', 'consume')
),
ends AS (
    SELECT
        a.window_no, a.event_id * 2 + 1 AS src_node_id, b.event_id * 2 AS dst_node_id, b.start_ns - a.end_ns AS weight_ns
    FROM named AS a
    JOIN named AS b ON b.window_no = a.window_no AND a.name = 'produce' AND b.name = 'consume'
    UNION ALL
    SELECT window_no, event_id * 2, event_id * 2 + 1, 99 FROM named
)
SELECT
    e.window_no,  -- The window.
    7 AS kind,  -- See _edges.
    e.src_node_id AS ordinal,  -- Any order.
    e.src_node_id,  -- Source node.
    e.dst_node_id,  -- Destination node.
    edge_code('HAND_OFF') AS edge_code,  -- Type of the edge.
    e.weight_ns,  -- Weight, ns.
    FALSE AS ends_blocking_call,  -- No.
    CAST(NULL AS BIGINT) AS attributed_event_id,  -- Nobody's.
    FALSE AS is_earlier,  -- No.
    FALSE AS is_inferred  -- No.
FROM ends AS e
"""
TRACE = [op("produce", 0, 40), op("consume", 50, 30, tid=2)]
ASK = """
import json, sys
from pathlib import Path
import pyarrow.parquet as pq
from typer.testing import CliRunner
from pipelines.faces.cli.app import app

def ask(*words):
    result = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.stdout

ask("ingest", "in.json", "--lake", "lake")
ask("materialize", *sys.argv[1:], "--lake", "lake")
query = "SELECT src_event_id, dst_event_id, weight_ns FROM critical_path_edges WHERE edge_type = 'HAND_OFF'"
print(json.dumps({
    "edges": json.loads(ask("sql", query, "--lake", "lake", "--format", "json")),
    "text": ask("critical-path", "in.json"),
    "json": json.loads(ask("critical-path", "in.json", "--json", "--edges", "edges.parquet", "--save", "saved.zip")),
    "drawn": json.loads(Path(json.loads(ask("overlay", "in.json", "--json", "--out", "."))["path"]).read_text()),
    "what_if": [json.loads(ask("what-if", trace, "--json", "--remove", target)) for trace in ("in.json", "saved.zip")
        for target in ("hand_offs", "edge:HAND_OFF", "edge:critical_path_hand_off")],
    "help": ask("what-if", "--help"),
    "redrawn": (ask("what-if", "in.json", "--scale", "hand_offs=3", "--redraw", "."),
        json.loads(Path("overlaid_critical_path_what_if_in.json").read_text()))[1],
    "parquet": pq.read_table("edges.parquet")["edge_type"].to_pylist(),
}))

from pipelines.critical_path.answer.saved_path import restore_path
from pipelines.faces.notebook.critical_path import CriticalPath

path = CriticalPath.of(restore_path(Path("saved.zip")))
kinds = {data["type"]: data["object"].type.name for *_, data in path.edges(data=True)}
path.remove_edge(*next(pair for *pair, kind in path.edges(data="type") if kind == "critical_path_hand_off"))
path.add_edge(1, 2, weight=7, type="critical_path_hand_off")
path.critical_path()
print(json.dumps({"kinds": kinds, "edited": path.answer.as_json()}))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the output of the commands of a copy with the new type, all run in one process."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("pipelines", "sql"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / "sql/rules/path/edge_types.csv").open("a") as rows:
        rows.write(ROW)
    (folder / "sql/critical_path/edges/_hand_off_edges.sql").write_text(EDGES)
    (folder / "in.json").write_text(json.dumps({"traceEvents": TRACE}))
    tables = [] if SLOW else ["critical_path_edges"]  # computing all tables takes long
    env = {**os.environ, "PYTHONPATH": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", ASK, *tables], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()[-2:]
    return json.loads(first) | json.loads(second)


@pytest.mark.slow  # a copy of the project, as in test_new_tables.py; tests below cover parts of a whole
def test_its_edges_are_in_the_graph(answers: dict[str, Any]) -> None:
    """An edge between two nodes that are already joined is dropped, so an event keeps its own time."""
    assert answers["edges"] == [{"src_event_id": 0, "dst_event_id": 1, "weight_ns": 10_000}]
    assert sorted(answers["parquet"]) == ["HAND_OFF", "OPERATOR_KERNEL", "OPERATOR_KERNEL"]
    answer = answers["json"]
    assert answer["edges_by_type"]["HAND_OFF"] == {"count": 1, "weight_us": 10}
    assert [(step["edge_type"], step["name"], step["duration_us"]) for step in answer["path"]] == [
        ("OPERATOR_KERNEL", "produce", 40),
        ("HAND_OFF", "consume", 10),
        ("OPERATOR_KERNEL", "consume", 30),
    ]
    assert answer["summary"] == {"cpu_bound": 87.5, "host_hand_off": 12.5}
    assert "host_hand_off" in answers["text"] and "12.50" in answers["text"]


@pytest.mark.slow  # a copy of the project, as in test_new_tables.py; tests below cover parts of a whole
def test_it_is_drawn(answers: dict[str, Any]) -> None:
    for name, weight in (("drawn", 10), ("redrawn", 30)):
        events = [event for event in answers[name]["traceEvents"] if event.get("cat") == "critical_path"]
        arrows = [event["args"] for event in events if event["ph"] == "s"]
        assert {"weight": weight, "critical": True, "type": "critical_path_hand_off"} in arrows
        (slice_,) = [event for event in events if event["name"] == "hand-off: consume"]
        assert (slice_["dur"], slice_["args"]["bound_by"]) == (weight, "host_hand_off")


@pytest.mark.slow  # a copy of the project, as in test_new_tables.py; tests below cover parts of a whole
def test_a_scenario_names_it(answers: dict[str, Any]) -> None:
    for answer in answers["what_if"]:
        assert (answer["before"]["length_us"], answer["after"]["length_us"]) == (80, 70)
    assert "hand_offs" in answers["help"]


@pytest.mark.slow  # a copy of the project, as in test_new_tables.py; tests below cover parts of a whole
def test_notebooks_and_edits_know_it(answers: dict[str, Any]) -> None:
    assert answers["kinds"]["critical_path_hand_off"] == "HAND_OFF"
    edited = answers["edited"]
    assert (edited["length_us"], edited["edges_by_type"]["HAND_OFF"]["weight_us"]) == (77, 7)
    assert edited["path"][1] | {"duration_us": 0} == answers["json"]["path"][1] | {"duration_us": 0}


@pytest.mark.slow  # reads all models of a copy; tests above add such an edge to a copy of the whole project
def test_it_leads_to_a_thread_that_nothing_else_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new edge binds the first node of another process.

    Without this edge, the node is only known to follow the window's start.
    """
    codes = statements._edge_codes()  # the codes of this project, not of the copy
    monkeypatch.setattr(statements, "_edge_codes", lambda: {**codes, "HAND_OFF": ROW.partition(",")[0]})
    shutil.copytree(ROOT / "sql", tmp_path / "sql")
    with (tmp_path / "sql/rules/path/edge_types.csv").open("a") as rows:
        rows.write(ROW)
    (tmp_path / "sql/critical_path/edges/_hand_off_edges.sql").write_text(EDGES)
    con, _ = connect([TRACE[0], {**TRACE[1], "pid": 200}])
    run_models(con, load_catalog(tmp_path / "sql"), ["critical_path"])
    path = con.execute("SELECT edge_type, duration_ns FROM critical_path ORDER BY seq").fetchall()
    assert path == [("OPERATOR_KERNEL", 40_000), ("HAND_OFF", 10_000), ("OPERATOR_KERNEL", 30_000)]


PART = "-- One row: a thing.\n-- part of: _whole\nSELECT\n    1 AS n  -- A number.\nFROM window_requests\n"
REFUSED = {
    "other columns": ({"gpu/_b.sql": PART.replace("AS n", "AS m")}, r"_b\.sql:1: the parts of _whole .*_a\.sql: n$"),
    "other folder": ({"cpu/_b.sql": PART}, "the parts of _whole have one layer"),
    "a public part": ({"gpu/b.sql": PART}, r"b\.sql:1: .*underscore"),
    "a public whole": ({"gpu/_b.sql": PART.replace("_whole", "whole")}, "underscore"),
    "a file of its name": ({"gpu/_whole.sql": PART.replace("part of: _whole", "How: so.")}, "already defined"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_parts_that_do_not_fit_are_refused(case: str, tmp_path: Path) -> None:
    files, message = REFUSED[case]
    for name, text in {"gpu/_a.sql": PART, **files}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(CatalogError, match=message):
        load_catalog(tmp_path)


def test_a_whole_has_the_rows_of_its_parts(tmp_path: Path) -> None:
    (tmp_path / "gpu").mkdir()
    for i, name in enumerate("abc"):  # two parts have equal rows
        (tmp_path / "gpu" / f"_{name}.sql").write_text(PART.replace("1 AS n", f"{i // 2} AS n"))
    con, _ = connect(TRACE)
    catalog = load_catalog(tmp_path)
    assert (catalog.models["_whole"].doc, catalog.models["_whole"].dependencies) == (
        "One row: a row of one of _a, _b, _c.",
        ("_a", "_b", "_c"),
    )
    before = catalog.version("_whole")
    run_models(con, catalog, ["_whole"])
    assert con.execute("SELECT n FROM _whole ORDER BY n").fetchall() == [(0,), (0,), (1,)]
    (tmp_path / "gpu" / "_c.sql").write_text(PART.replace("1 AS n", "9 AS n"))
    load_catalog.cache_clear()
    assert load_catalog(tmp_path).version("_whole") != before
    load_catalog.cache_clear()
