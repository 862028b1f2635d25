"""The project's definitions, whose asset graph is that of the SQL."""

import ast
from itertools import pairwise
from pathlib import Path

import dagster as dg
import networkx as nx
import pytest

import pipelines
from assets.checks import unique_keys
from assets.groups import GROUPS, group_of
from assets.metadata import PUBLISHED, console_link, upstreams
from dagster_project.definitions import defs
from dagster_project.demo import asset_names
from dagster_project.sensors import daily
from pipelines.lake.names import RUN_MARK, mark_of
from pipelines.models.catalog import load_catalog

PIPELINES = Path(pipelines.__file__).parent


def test_definitions_are_valid() -> None:
    dg.Definitions.validate_loadable(defs)


def test_every_public_table_is_an_asset_and_no_private_one() -> None:
    keys = {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}
    assert keys == {*load_catalog().public, "trace_files", "overlay", "fleet_today"}


def test_lineage_is_the_catalogs() -> None:
    """Each edge of Dagster is a path of the catalog through hidden private models, and each such path is an edge."""
    graph, catalog = defs.resolve_asset_graph(), load_catalog()
    reads = nx.DiGraph((read, name) for name, model in catalog.models.items() for read in model.dependencies)
    reads.add_edges_from((read, name) for name, table in catalog.inputs.items() for read in table.reads or ())
    files = {name for name, table in catalog.inputs.items() if table.layer == "ingest" and not table.reads}
    hidden = {name for name in reads if name not in catalog.public and name not in PUBLISHED and name not in files}
    for name in catalog.public:
        own = {private for private, public in PUBLISHED.items() if public == name}
        between = nx.ancestors(reads.subgraph(hidden | own | {name}), name) if name in reads else set()
        sources = {source for node in (name, *between) for source in reads.pred.get(node, ())} - between
        parents = {key.to_user_string() for key in graph.get(dg.AssetKey(name)).parent_keys}
        expected = {PUBLISHED.get(source, source) for source in sources - files}
        assert parents - {"trace_files"} == expected, name
        assert ("trace_files" in parents) == (bool(sources & files) and mark_of(name) != RUN_MARK), name


def test_a_published_private_model_is_read_by_its_public_table() -> None:
    catalog = load_catalog()
    for private, public in PUBLISHED.items():
        assert private in catalog.models[public].dependencies and catalog.models[private].private


def test_the_path_is_downstream_of_what_it_is_made_of() -> None:
    graph = defs.resolve_asset_graph()
    ways = (
        ("trace_files", "traces", "captures", "fleet_today"),
        ("trace_files", "events", "event_classes", "kernels", "merged_intervals"),
        ("events", "event_classes", "critical_path_edges", "longest_path", "critical_path"),
        ("events", "event_waits", "critical_path_edges", "longest_path", "causes"),
        ("longest_path", "fixes"),
    )
    for table, after in {pair for way in ways for pair in pairwise(way)}:
        assert dg.AssetKey(table) in graph.get_ancestor_asset_keys(dg.AssetKey(after)), (table, after)
    runs = ("schedule_plans", "schedule_runs", "schedule_task_timings", "schedule_speedups")
    assert {graph.get(dg.AssetKey(table)).group_name for table in runs} == {"schedules"}


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


def computing_file(name: str) -> Path:
    """Return the file whose code computes the stored rows of a table."""
    catalog = load_catalog()
    model = catalog.models.get(f"_{name}") if name == "longest_path" else catalog.models[name]
    assert model
    if model.path.suffix == ".py":
        return model.path
    if model.kind == "lake":
        return PIPELINES / ("readers/kineto/events_file.py" if name == "events" else "lake/commit/batches.py")
    return PIPELINES / "models/run.py"


def imported_by(file: Path) -> set[str]:
    """Return the packages that a file imports, at its top or in functions, but not under TYPE_CHECKING."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return {name.partition(".")[0] for name in names}


def test_kinds_are_what_makes_the_rows() -> None:
    """A package is a kind of a table only if the code that computes its rows imports it.

    SQL and CSV are kinds if the table's file is one.
    """
    graph, catalog = defs.resolve_asset_graph(), load_catalog()
    packages = {"duckdb", "networkx", "numpy", "pyarrow", "torch"}
    for name in catalog.public:
        model, kinds = catalog.models[name], graph.get(dg.AssetKey(name)).kinds
        assert kinds and kinds <= {*packages, "csv", "parquet", "python", "sql"}, name
        assert kinds & packages <= imported_by(computing_file(name)), (name, kinds)
        assert ("csv" in kinds, "parquet" in kinds) == (
            model.kind == "rules",
            model.kind in ("sql", "lake") and "python" not in kinds,
        ), name
        assert ("sql" in kinds) == (model.kind in ("sql", "view") and "python" not in kinds), name
        assert ("pyarrow" in kinds) == (name == "events"), name


def test_models_carry_their_documentation() -> None:
    node = defs.resolve_asset_graph().get(dg.AssetKey("kernels"))
    model = load_catalog().models["kernels"]
    columns = node.metadata["dagster/column_schema"].columns
    assert node.description == model.doc
    assert node.group_name == "kernels"
    assert [(c.name, c.description) for c in columns] == [(c.name, c.doc) for c in model.columns]
    assert node.code_version == load_catalog().version("kernels")
    query = "SELECT+%2A+FROM+kernels+LIMIT+100"
    assert node.metadata["console"].value == f"http://127.0.0.1:8050/#sql={query}"


def test_the_console_may_be_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACELAKE_CONSOLE", "https://traces.example/")
    assert console_link("spans") == "https://traces.example/#sql=SELECT+%2A+FROM+spans+LIMIT+100"


def test_models_name_the_line_of_their_file() -> None:
    """A table's code reference names its line in the SQL file, also after private tables in the same file."""
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
    assert sorted(table for check in folded for table, _ in check.of) == sorted(
        m.name for m in stored for _ in m.checks
    )
    for check in folded:
        assert {group_of(load_catalog().models[table]) for table, _ in check.of} == {check.group}
    own = {  # checks by the run itself, and over the lake
        ("schedule_plans", "legal_plan"),
        ("schedule_runs", "no_lost_iteration"),
        ("schedule_runs", "efficiency_not_worse"),
        ("capture_metrics", "no_regression"),
    }
    finding_checks = {("quality", "no_error"), ("quality", "no_warning"), ("capture_quality", "no_warning")}
    finding_checks |= {
        ("rejects", "nothing_rejected"),
        ("execution_traces", "beside_a_profiler_trace"),
        ("quality", "nothing_left_out"),
    }
    assert keys == {(check.of[0][0], "unique_keys") for check in folded} | own | finding_checks


def test_the_lineage_has_nine_groups_from_left_to_right() -> None:
    graph = defs.resolve_asset_graph()
    groups = {key: graph.get(key).group_name or "" for key in graph.get_all_asset_keys()}
    assert set(groups.values()) == set(GROUPS) and len(GROUPS) == 9
    for key, group in groups.items():
        for parent in graph.get(key).parent_keys:
            assert GROUPS.index(groups[parent]) <= GROUPS.index(group), (parent, key)
    page = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
    assert all(f"| `{group}` |" in page for group in GROUPS)


def test_names_for_the_progress_bar() -> None:
    assert {"events", "kernels", "critical_path", "overlay"} <= set(asset_names())
    assert "trace_files" not in asset_names()


def test_the_first_and_the_last_asset_of_a_run_are_due_every_day() -> None:
    graph = defs.resolve_asset_graph()
    due = {key.to_user_string() for key in graph.get_all_asset_keys() if graph.get(key).freshness_policy}
    assert due == {"traces", "fleet_today"}
    assert daily.cron_schedule == "30 0 * * *" and daily.execution_timezone == "UTC"  # before the deadline of both


def test_what_a_run_shows_of_views_comes_after_the_tables_behind_them() -> None:
    """The page of today depends on the tables behind the views that it shows, because a run does not compute views.

    Without these dependencies the page was built before the captures, and showed those of the last run.
    """
    behind = defs.resolve_asset_graph().get(dg.AssetKey("fleet_today")).parent_keys
    tables = ("jobs", "job_days", "regression_samples", "persistent_stragglers", "rejects", "model_failures")
    assert {
        dg.AssetKey(name)
        for name in (*tables, "captures", "cause_totals", "capture_summary", "straggler_ranks", "traces")
    } <= behind
    for job in ("ingest_and_analyse", "analyse"):
        order = [node.name for node in defs.resolve_job_def(job).graph.nodes_in_topological_order]
        assert order.index("fleet_today") > order.index("fleet") > order.index("models"), job
