"""Flowchart (Mermaid) of a table's sources: the files under sql/ and the Python functions between them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import networkx as nx

from pipelines.base.datafiles import SQL_DIR
from pipelines.models.catalog import Catalog, Model, load_catalog

_FLOW, _END = "<!-- The flow of critical_path: made by `make reference`. -->\n```mermaid\n", "\n```"
Place = tuple[str, str]
"""(Folder under sql/, file), ("ingest", table) or ("Python", function)."""


def flow(catalog: Catalog, table: str) -> str:
    """Return the flowchart of all sources of a table, except rules.

    The flowchart omits arrows that other arrows imply, and tables that only contain the rows of their parts.
    """
    parts: dict[str, list[str]] = {}
    for model in catalog.models.values():
        parts.setdefault(model.part_of or "", []).append(model.name)
    graph = nx.DiGraph()
    for name in catalog.closure([table]):
        model = catalog.models[name]
        reads = {*model.dependencies, *model.runs} & catalog.models.keys()
        for source in [part for read in sorted(reads) for part in parts.get(read, [read])]:
            ends = _place(catalog.models[source]), _place(model)
            if name not in parts and catalog.models[source].kind != "rules" and ends[0] != ends[1]:
                graph.add_edge(*ends)
    return "\n".join(_chart(nx.transitive_reduction(graph), list(graph)))


def _place(model: Model) -> Place:
    if model.kind == "python":
        return "Python", model.function.partition(":")[2]
    if model.kind == "lake":
        return "ingest", model.name
    return model.path.parent.relative_to(SQL_DIR).as_posix(), Path(model.path).stem


def _chart(graph: nx.DiGraph, places: list[Place]) -> Iterator[str]:
    number = {node: i for i, node in enumerate(places)}
    yield "flowchart LR"
    for folder in dict.fromkeys(folder for folder, _ in places):
        yield f'  subgraph {folder.replace("/", "_")} ["{folder}"]'
        shape = '(["{}()"])' if folder == "Python" else '["{}"]'
        yield from (f"    n{number[node]}{shape.format(node[1])}" for node in places if node[0] == folder)
        yield "  end"
    arrows = sorted((number[source], number[target]) for source, target in graph.edges)
    yield from (f"  n{source} --> n{target}" for source, target in arrows)


def with_flow(page: str) -> str:
    """Return the page with the current flowchart of `critical_path`.

    Raise ValueError if the page contains no flowchart of it.
    """
    before, separator, after = page.partition(_FLOW)
    if not separator:
        raise ValueError(f"the page has no line that begins with {_FLOW.splitlines()[0]!r}: put it back")
    return f"{before}{_FLOW}{flow(load_catalog(), 'critical_path')}\n```{after.partition(_END)[2]}"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_flow(page.read_text(encoding="utf-8")), encoding="utf-8")
