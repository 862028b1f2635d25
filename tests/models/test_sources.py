"""Tables declared in Python: they are read without running the code, and their version depends on all code they use."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pipelines.models.errors import CatalogError
from pipelines.models.sources import PACKAGE, code_versions, read_code

MODEL = """
from p.models.python_tables import python_model

_ID = ("trace_id", "VARCHAR", "The trace.")


@python_model("t", layer="gpu", doc="One row: a thing "
    "of a trace.", columns=(_ID, *(("n", "BIGINT", "A number."),)), reads=["events"])
def make(con):
    def inner():
        from p import helper
"""


def package(tmp_path: Path, **files: str) -> Path:
    for name, text in {"a": MODEL, "helper": "import p.deep", "deep": "x = 1", "other": "import p.a", **files}.items():
        path = tmp_path / "p" / f"{name}.py"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
    return tmp_path / "p"


def test_a_declaration_is_read_without_running_it(tmp_path: Path) -> None:
    (table,) = read_code(package(tmp_path, a=MODEL + "raise SystemExit\n")).tables
    assert (table.name, table.layer, table.function, table.is_input) == ("t", "gpu", "p.a:make", False)
    assert table.doc == "One row: a thing of a trace."
    assert table.columns == [["trace_id", "VARCHAR", "The trace."], ["n", "BIGINT", "A number."]]
    assert (table.reads, table.checks) == (["events"], [])


def test_code_is_the_same_wherever_it_is_installed(tmp_path: Path) -> None:
    codes = [read_code(package(tmp_path / folder)) for folder in ("here", "there")]
    assert codes[0].digest == codes[1].digest
    assert [table.path for code in codes for table in code.tables] == [
        str(tmp_path / folder / "p" / "a.py") for folder in ("here", "there")
    ]


def test_what_is_no_literal_is_refused_with_its_place(tmp_path: Path) -> None:
    for number, (literal, other) in enumerate(
        (('("t",', "(NAMES[0],"), ('["events"]', "sorted(X)"), ("doc=", "dock="))
    ):
        text = MODEL.replace(literal, other)
        with pytest.raises(
            CatalogError, match=r"a\.py:7: the declaration of a table cannot be read without running it"
        ):
            read_code(package(tmp_path / str(number), a=text))


def test_the_version_follows_from_all_that_is_imported(tmp_path: Path) -> None:
    before = code_versions(package(tmp_path / "0"))["p.a"]
    changes = {"a": MODEL + "# more", "helper": "import p.deep  # more", "deep": "x = 2"}
    for name, text in changes.items():
        assert code_versions(package(tmp_path / name, **{name: text}))["p.a"] != before
    assert code_versions(package(tmp_path / "other", other="import p.a  # more"))["p.a"] == before


def test_an_import_counts_in_every_kind_of_statement(tmp_path: Path) -> None:
    for number, statement in enumerate(
        (
            "if x:\n    pass\nelse:\n    {}",
            "try:\n    pass\nexcept ValueError:\n    {}",
            "try:\n    pass\nfinally:\n    {}",
            "match x:\n    case 1:\n        {}",
            "class A:\n    async def f(self):\n        with x:\n            for y in x:\n                {}",
        )
    ):
        helper = statement.format("from p.other2 import x")
        before, after = (
            code_versions(package(tmp_path / f"{number}{text}", helper=helper, other2=text))["p.a"] for text in "xy"
        )
        assert before != after, statement


@pytest.mark.slow
def test_a_change_of_the_graph_is_a_change_of_the_paths(tmp_path: Path) -> None:
    """A change of the graph's code changes the version of the paths.

    An earlier list of the modules did not contain the graph.
    """
    copy = tmp_path / PACKAGE.name
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    before = code_versions(copy)
    read_code.cache_clear()
    code_versions.cache_clear()
    with (copy / "critical_path" / "graph" / "chains.py").open("a") as file:
        file.write("# more\n")
    after = code_versions(copy)
    changed = {module.partition(".")[2] for module in before if before[module] != after[module]}
    assert changed >= {"critical_path.longest.window_paths", "critical_path.longest.slack", "fleet.path.capture_walks"}
