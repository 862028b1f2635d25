"""Imports between modules: no file imports itself through others, and no package imports a higher one.

Imports in functions and under TYPE_CHECKING count, because they only hide a cycle.
"""

from __future__ import annotations

import ast
from pathlib import Path

import networkx as nx
import pytest

from pipelines.models.sources import imported, module_names

ROOT = Path(__file__).parents[1]
TOPS = ("pipelines", "assets", "dagster_project")

# From bottom to top: the folders of pipelines/, then the packages built on them. A package may only import packages
# that come before it in this list.
ROOMS = (
    "base",
    "record",
    "synthetic",
    "models",
    "modelling",
    "schedule",
    "lake",
    "readers",
    "critical_path",
    "fleet",
    "runs",
    "engines",
    "faces",
    "assets",
    "dagster_project",
)
MOST_FILES = 16
"""Modules in one folder, without `__init__.py`. A reader who looks for a file reads all their names."""


def imports(folders: list[Path]) -> nx.DiGraph:
    """Return a graph from each module to the modules of the same folders that it imports."""
    names = {path: name for folder in folders for path, name in module_names(folder).items()}
    graph = nx.DiGraph()
    for path, name in names.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        modules = imported(tree, name, path.name == "__init__.py", set(names.values()))
        graph.add_node(name)
        graph.add_edges_from((name, other) for other in modules if other != name)
    return graph


def circles(graph: nx.DiGraph) -> list[list[str]]:
    return sorted(sorted(component) for component in nx.strongly_connected_components(graph) if len(component) > 1)


def room_of(module: str) -> str:
    top, _, rest = module.partition(".")
    return rest.partition(".")[0] if top == "pipelines" and rest else top


def upward(graph: nx.DiGraph) -> list[tuple[str, str]]:
    """Return the imports of modules in other packages that are not below the importing package."""
    level = {room: i for i, room in enumerate(ROOMS)}
    return sorted(
        (module, other)
        for module, other in graph.edges
        if other != "pipelines"  # it only contains the version
        and room_of(module) != room_of(other)
        and level[room_of(other)] >= level[room_of(module)]
    )


@pytest.fixture(scope="module")
def project() -> nx.DiGraph:
    return imports([ROOT / top for top in TOPS])


def test_no_file_imports_itself_through_others(project: nx.DiGraph) -> None:
    assert circles(project) == []


def test_no_import_goes_upward(project: nx.DiGraph) -> None:
    assert {room_of(module) for module in project} - {"pipelines"} == set(ROOMS)
    assert upward(project) == []


def test_rooms_are_folders_and_a_folder_is_read_at_a_glance() -> None:
    assert [path.name for path in (ROOT / "pipelines").glob("*.py")] == ["__init__.py"]
    folders = [path.parent for top in TOPS for path in (ROOT / top).rglob("__init__.py")]
    files = {folder: [path for path in folder.glob("*.py") if path.name != "__init__.py"] for folder in folders}
    assert {str(folder): len(paths) for folder, paths in files.items() if len(paths) > MOST_FILES} == {}


def test_imports_that_hide_are_found(tmp_path: Path) -> None:
    files = {
        "__init__.py": "",
        "lake/__init__.py": "from .store import Lake",
        "lake/store.py": "def f():\n    from pipelines.readers import ingest",
        "readers/__init__.py": "",
        "readers/ingest.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pipelines.models.run\n",
        "models/__init__.py": "",
        "models/run.py": "from ..lake import (\n    Lake,\n    store,\n)",
        "sqltext.py": "import os",
    }
    for name, text in files.items():
        path = tmp_path / "pipelines" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    graph = imports([tmp_path / "pipelines"])
    around = ["pipelines.lake", "pipelines.lake.store", "pipelines.models.run", "pipelines.readers.ingest"]
    assert circles(graph) == [around]
    assert upward(graph) == [
        ("pipelines.lake.store", "pipelines.readers.ingest"),
        *(("pipelines.models.run", m) for m in around[:2]),
    ]
