"""The project loads, and its asset graph is the SQL's."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import dagster as dg
import pytest

from assets.checks import unique_keys
from assets.groups import LINEAGE, WAY, group_of
from assets.metadata import upstreams
from dagster_project.definitions import defs
from dagster_project.demo import asset_names
from dagster_project.sensors import daily
from pipelines.models.catalog import load_catalog

ROOT = Path(__file__).resolve().parents[2]


def test_definitions_are_valid() -> None:
    dg.Definitions.validate_loadable(defs)


@pytest.mark.slow  # a process; the tests of runs load the same definitions
def test_dagster_definitions_validate(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dagster", "definitions", "validate", "-m", "dagster_project.definitions"]
    env = {**os.environ, "DAGSTER_HOME": str(tmp_path), "DAGSTER_DISABLE_TELEMETRY": "yes"}
    run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_public_table_is_an_asset_and_no_private_one() -> None:
    keys = {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}
    assert keys == {*load_catalog().public, "trace_files", "overlay", "fleet_today"}


def test_lineage_is_the_sqls() -> None:
    graph, catalog = defs.resolve_asset_graph(), load_catalog()
    for name in catalog.public:
        parents = {key.to_user_string() for key in graph.get(dg.AssetKey(name)).parent_keys}
        by_python = catalog.models[name].kind == "python" or name == "longest_path"
        shown_too = {"critical_path_edges"} if by_python else set()  # the public face of `_edges`
        assert parents == {*upstreams(catalog, name), *shown_too}, name


def test_upstreams_pass_through_private_models() -> None:
    catalog = load_catalog()
    assert "_edges" in catalog.models["critical_path_edges"].dependencies
    assert "events" in upstreams(catalog, "critical_path_edges")
    assert not [name for table in catalog.public for name in upstreams(catalog, table) if name.startswith("_")]


def test_longest_path_lies_between_edges_and_path() -> None:
    graph = defs.resolve_asset_graph()
    path = graph.get(dg.AssetKey("longest_path"))
    assert dg.AssetKey("critical_path_edges") in path.parent_keys
    assert dg.AssetKey("critical_path") in path.child_keys
    assert path.kinds == {"networkx", "python"}


def test_models_carry_their_documentation() -> None:
    node = defs.resolve_asset_graph().get(dg.AssetKey("kernels"))
    model = load_catalog().models["kernels"]
    columns = node.metadata["dagster/column_schema"].columns
    assert node.description == model.doc
    assert node.group_name == "gpu"
    assert [(c.name, c.description) for c in columns] == [(c.name, c.doc) for c in model.columns]
    assert node.code_version == load_catalog().version("kernels")


def test_models_name_the_line_of_their_file() -> None:
    """Of a table behind private ones in its file, too."""
    for name, before in (("kernels", ""), ("step_pipeline", "-- model: step_pipeline")):
        node = defs.resolve_asset_graph().get(dg.AssetKey(name))
        (reference,) = node.metadata["dagster/code_references"].code_references
        lines = ["", *Path(reference.file_path).read_text(encoding="utf-8").splitlines()]
        assert lines[reference.line_number - 1] == before
        assert lines[reference.line_number].startswith("-- One row: ")


def test_every_header_check_is_in_the_check_of_its_group() -> None:
    keys = {(k.asset_key.to_user_string(), k.name) for k in defs.resolve_asset_graph().asset_check_keys}
    stored = [m for m in load_catalog().models.values() if not m.private and m.kind != "view"]
    folded = unique_keys()
    assert sorted(table for one in folded for table, _ in one.of) == sorted(m.name for m in stored for _ in m.checks)
    for one in folded:
        assert {group_of(load_catalog().models[table]) for table, _ in one.of} == {one.group}
    own = {  # by the run itself, and over the lake
        ("schedule_plans", "legal_plan"),
        ("schedule_runs", "no_lost_iteration"),
        ("schedule_runs", "efficiency_not_worse"),
        ("capture_metrics", "no_regression"),
    }
    found = {("quality", "no_error"), ("quality", "no_warning"), ("capture_quality", "no_warning")}
    found |= {
        ("rejects", "nothing_rejected"),
        ("execution_traces", "beside_a_profiler_trace"),
        ("quality", "nothing_left_out"),
    }
    assert keys == {(one.of[0][0], "unique_keys") for one in folded} | own | found


def test_a_group_fits_a_screen() -> None:
    graph = defs.resolve_asset_graph()
    groups = Counter(graph.get(key).group_name for key in graph.get_all_asset_keys())
    assert max(groups.values()) <= 12, groups


def test_groups_are_read_from_left_to_right_and_the_way_to_why_fits_one_screen() -> None:
    graph = defs.resolve_asset_graph()
    stage = {group: place for place, groups in enumerate(WAY) for group in groups}
    assert stage.keys() <= {graph.get(key).group_name for key in graph.get_all_asset_keys()}
    for key in graph.get_all_asset_keys():
        own = stage.get(graph.get(key).group_name or "")
        for parent in graph.get(key).parent_keys:
            before = stage.get(graph.get(parent).group_name or "")
            assert own is None or before is None or before <= own, (parent, key)
    selection = unquote(LINEAGE.partition("~")[2])
    way = dg.AssetSelection.from_string(selection).resolve(graph)
    assert {graph.get(key).group_name for key in way} == stage.keys()
    page = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
    assert f"http://127.0.0.1:3000{LINEAGE}" in page


def test_names_for_the_progress_bar() -> None:
    assert {"events", "kernels", "critical_path", "overlay"} <= set(asset_names())
    assert "trace_files" not in asset_names()


def test_the_first_and_the_last_asset_of_a_run_are_due_every_day() -> None:
    graph = defs.resolve_asset_graph()
    due = {key.to_user_string() for key in graph.get_all_asset_keys() if graph.get(key).freshness_policy}
    assert due == {"traces", "fleet_today"}
    assert daily.cron_schedule == "30 0 * * *" and daily.execution_timezone == "UTC"  # before the deadline of both


def test_what_a_run_shows_of_views_comes_after_the_tables_behind_them() -> None:
    """A view is not computed by a run, so that the page of today came before the captures and showed the last run's."""
    behind = defs.resolve_asset_graph().get(dg.AssetKey("fleet_today")).parent_keys
    given = ("jobs", "job_days", "regression_samples", "persistent_stragglers", "rejects", "model_failures")
    assert {
        dg.AssetKey(name) for name in (*given, "captures", "capture_metrics", "straggler_ranks", "traces")
    } <= behind
    for job in ("ingest_and_analyse", "analyse"):
        order = [node.name for node in defs.resolve_job_def(job).graph.nodes_in_topological_order]
        assert order.index("fleet_today") > order.index("fleet") > order.index("models"), job
