"""docs/tables.md is what sql/ says: `make reference` writes it anew."""

from __future__ import annotations

import re

import pytest

from pipelines.faces.reference import reference
from pipelines.models.catalog import load_catalog
from tests.packaging.installed import ROOT


@pytest.fixture(scope="module")
def page() -> str:
    return reference()


def test_the_reference_of_tables_is_up_to_date(page: str) -> None:
    assert (ROOT / "docs" / "tables.md").read_text(encoding="utf-8") == page, "run `make reference` and commit"


def test_every_table_and_column_is_in_it_and_every_link_leads_to_a_table(page: str) -> None:
    catalog = load_catalog()
    titles = re.findall(r"^### (\w+)$", page, re.M)
    assert sorted(titles) == sorted(catalog.public)
    assert set(re.findall(r"\]\(#(\w+)\)", page)) <= set(titles)
    for name in catalog.public:
        own = page.split(f"### {name}\n")[1].split("\n###")[0]
        assert re.findall(r"^\| `(\w+)` \|", own, re.M) == [one.name for one in catalog.models[name].columns]


def test_lineage_passes_through_private_tables(page: str) -> None:
    own = page.split("### critical_path_edges\n")[1].split("\n###")[0]
    reads = next(line for line in own.splitlines() if line.startswith("- Reads:"))
    assert "[events](#events)" in reads and "[_" not in reads
