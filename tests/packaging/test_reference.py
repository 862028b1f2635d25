"""The site's page of tables, made by `make docs`, and the flow in docs/architecture.md, written by `make reference`."""

from __future__ import annotations

import re

import networkx as nx
import pytest

from pipelines.faces.flow import flow, with_flow
from pipelines.faces.reference import reference
from pipelines.models.catalog import load_catalog
from tests.packaging.installed import ROOT


@pytest.fixture(scope="module")
def page() -> str:
    return reference()


def test_links_of_other_pages_lead_to_a_table(page: str) -> None:
    """In the repository tables.md has ten lines. `make docs` replaces it with the page that has the anchors."""
    titles = set(re.findall(r"^### (\w+)$", page, re.M))
    pages = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
    links = {name: set(re.findall(r"\]\(tables\.md#(\w+)\)", text)) for name, text in pages.items()}
    assert {name: anchors - titles for name, anchors in links.items() if anchors - titles} == {}
    assert len(links["why.md"]) > 3 and len(pages["tables.md"].splitlines()) <= 12


def test_the_site_is_built_from_the_copy_with_the_made_pages() -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").split("\ndocs: ")[1].split("\n\n")[0]
    folder = re.findall(r"^docs_dir: (\S+)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M)
    assert folder == ["build/docs"] and "cp -R docs build/docs" in recipe
    assert "pipelines.faces.reference build/docs/tables.md" in recipe
    assert "tests.faces.questions.page build/docs/questions.md" in recipe


def test_the_flow_of_the_path_is_up_to_date() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert page == with_flow(page), "run `make reference` and commit"
    assert page.count("\n## ") == with_flow(page.replace("_call_claims", "gone")).count("\n## ")
    with pytest.raises(ValueError, match="put it back"):
        with_flow("a page")


def test_the_flow_leads_from_events_to_the_path_through_all_that_it_is_made_of() -> None:
    catalog = load_catalog()
    chart = flow(catalog, "critical_path")
    boxes = dict(re.findall(r'^    (n\d+)\(?\["(\w+)(?:\(\))?"\]\)?$', chart, re.M))
    arrows = [(boxes[a], boxes[b]) for a, b in re.findall(r"^  (n\d+) --> (n\d+)$", chart, re.M)]
    graph = nx.DiGraph(arrows)
    assert nx.is_directed_acyclic_graph(graph) and sorted(boxes.values()) == sorted(graph)
    assert all(nx.has_path(graph, box, "critical_path") for box in graph)
    made = {
        catalog.models[name].path.stem
        for name in catalog.closure(["critical_path"])
        if catalog.models[name].kind == "sql"
    }
    assert made <= set(graph) and {"events", "host_edges", "longest_paths"} <= set(graph)


def test_every_table_and_column_is_in_it_and_every_link_leads_to_a_table(page: str) -> None:
    catalog = load_catalog()
    titles = re.findall(r"^### (\w+)$", page, re.M)
    assert sorted(titles) == sorted(catalog.public)
    assert set(re.findall(r"\]\(#(\w+)\)", page)) <= set(titles)
    for name in catalog.public:
        own = page.split(f"### {name}\n")[1].split("\n###")[0]
        assert re.findall(r"^\| `(\w+)` \|", own, re.M) == [column.name for column in catalog.models[name].columns]


def test_lineage_passes_through_private_tables(page: str) -> None:
    own = page.split("### critical_path_edges\n")[1].split("\n###")[0]
    reads = next(line for line in own.splitlines() if line.startswith("- Reads:"))
    assert "[events](#events)" in reads and "[_" not in reads
