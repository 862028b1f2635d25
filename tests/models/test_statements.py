"""The files of models: several statements in a file, topics below a layer, and the rules that sql/ follows."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from pipelines.base.datafiles import SQL_DIR, rule_rows
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.models.errors import CatalogError
from pipelines.models.header import LAKE, stored_tables
from pipelines.models.portable import refuse_unportable
from pipelines.models.questions import load_questions
from pipelines.models.run import run_models
from pipelines.models.statements import read_statements

MOST_FILES = 16
"""Maximum per folder, because a reader scans the names to find a file. The same number as in tests/test_rooms.py."""

SOURCE = "-- One row: a number.\nSELECT\n    v.n  -- The number.\nFROM (VALUES (0), (1), (2)) AS v (n)\n"
MIDDLE = "-- One row: a number.\n-- Every second one.\nSELECT\n    n  -- The number.\nFROM _source\nWHERE n % 2 = 0\n"
LAST = "-- One row: a sum.\nSELECT\n    '' AS trace_id,  -- The trace.\n    sum(n) AS n  -- The sum.\nFROM _middle\n"


def file_text(**texts: str) -> str:
    return "\n".join(f"-- model: {name}\n{text[:-1]};\n" for name, text in texts.items())


TEXT = file_text(_source=SOURCE, _middle=MIDDLE, last=LAST)


def catalog_of(folder: Path, files: dict[str, str]) -> Catalog:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return load_catalog(folder)


def test_a_file_of_several_statements_is_as_many_files(tmp_path: Path) -> None:
    """A file of several statements has the same models as a file for each, except for their location.

    Each model has its own text, and so its own version.
    """
    apart = {"summary/sums/_source.sql": SOURCE, "summary/_middle.sql": MIDDLE, "summary/last.sql": LAST}
    together = catalog_of(tmp_path / "1", {"summary/sums/deep/last.sql": TEXT})
    alone = catalog_of(tmp_path / "2", apart)
    nowhere = {name: [replace(c.models[name], path=Path(), line=1) for c in (together, alone)] for name in alone.models}
    assert list(together.models) == list(alone.models) == ["_source", "_middle", "last"]
    assert all(model == other for model, other in nowhere.values())
    assert [together.version(name) for name in nowhere] == [alone.version(name) for name in nowhere]
    with duckdb.connect() as con:
        run_models(con, together, ["last"])
        assert con.execute("SELECT n FROM last").fetchall() == [(2,)]


def test_a_version_is_of_the_own_statement(tmp_path: Path) -> None:
    before = catalog_of(tmp_path / "1", {"summary/last.sql": TEXT})
    after = catalog_of(tmp_path / "2", {"summary/last.sql": TEXT.replace("% 2", "% 3")})
    changed = [name for name in before.models if before.version(name) != after.version(name)]
    assert changed == ["_middle", "last"]
    moved = catalog_of(tmp_path / "3", {"summary/last.sql": f"\n\n{TEXT}"})
    assert [moved.version(name) for name in moved.models] == [before.version(name) for name in before.models]


def test_other_files_may_read_a_private_statement(tmp_path: Path) -> None:
    files = {"summary/last.sql": TEXT, "modelling/other.sql": LAST.replace("_middle", "_source")}
    with duckdb.connect() as con:
        run_models(con, catalog_of(tmp_path, files), ["other"])
        assert con.execute("SELECT n FROM other").fetchall() == [(3,)]


BROKEN = {
    "unknown table": (TEXT.replace("FROM _middle", "FROM _midle"), r"last\.sql:20: reads '_midle'"),
    "no header": (TEXT.replace("-- One row: a sum.\n", ""), r"last\.sql:16: start last with `-- One row: …`"),
    "no meaning": (TEXT.replace("  -- The sum.", ""), r"last\.sql:19: column 'n' has no description"),
    "unreadable": (TEXT.replace("FROM _source\n", "FROM (\n"), r"last\.sql:13: unreadable SQL"),
    "no select": (TEXT.replace(SOURCE[:-1], "-- One row: a.\nDROP TABLE a"), r"last\.sql:2: "),
    "two selects": (TEXT.replace("AS v (n)", "AS v (n);\nSELECT 1"), r"last\.sql:2: write one SELECT for _source"),
    "behind its reader": (
        file_text(_middle=MIDDLE, _source=SOURCE, last=LAST),
        r"last\.sql:10: put _source before _middle, which reads it",
    ),
    "a public one": (
        TEXT.replace("_source", "source"),
        r"last\.sql:1: the model 'source': begin its name with an underscore, or make it the last .* name it 'last'",
    ),
    "another name": (TEXT.replace("model: last", "model: _other"), r"last\.sql:15: the model '_other'"),
    "a main one first": (file_text(last=SOURCE, _middle=MIDDLE), r"last\.sql:1: the model 'last'"),
    "text before it": (f"-- One row: a.\n{TEXT}", r"last\.sql:1: begin the file with `-- model: NAME`"),
    "twice": (
        file_text(_source=SOURCE, _middle=MIDDLE, last=LAST).replace("_middle\n--", "_source\n--"),
        r"last\.sql:8: ",
    ),
    "rejected": (TEXT.replace("sum(n)", "sum(m)"), r"last\.sql:16: DuckDB rejects last: "),
    "a scope": (
        TEXT.replace("-- One row: a sum.", "-- One row: a sum.\n-- scope: rank"),
        r"last\.sql:17: unknown scope",
    ),
    "a circle": (TEXT.replace("(VALUES (0), (1), (2)) AS v (n)", "_middle AS v"), r"last\.sql:\d+: "),
}


@pytest.mark.parametrize("case", BROKEN)
def test_errors_name_the_line_of_the_file(tmp_path: Path, case: str) -> None:
    text, message = BROKEN[case]
    with pytest.raises(CatalogError, match=message), duckdb.connect() as con:
        run_models(con, catalog_of(tmp_path, {"summary/sums/last.sql": text}), ["last"])


def test_the_parts_of_a_whole_may_share_a_file_with_its_reader(tmp_path: Path) -> None:
    part = SOURCE.replace("\nSELECT", "\n-- part of: _whole\nSELECT", 1)
    text = file_text(_a=part, _b=part, last=LAST.replace("_middle", "_whole"))
    with duckdb.connect() as con:
        run_models(con, catalog_of(tmp_path, {"summary/last.sql": text}), ["last"])
        assert con.execute("SELECT n FROM last").fetchall() == [(6,)]


def test_rules_and_questions_are_found_in_their_topics(tmp_path: Path) -> None:
    rules = "# One row: a rule.\n# name: Its name.\nname\nx\n"
    files = {"rules/a/b/r.csv": rules, "ask/steps/last.sql": "-- Question: Of what?\nSELECT 1"}
    assert list(catalog_of(tmp_path, files).models) == ["r"]


def test_what_is_stored_is_told_by_headers_alone() -> None:
    """The headers of the SQL files name every public table that is not a view, no private model, and no question."""
    models = load_catalog().models.values()
    expected = {m.name: m.scope for m in models if m.sql and not m.private and m.scope != LAKE}
    assert {name: scope for name, (scope, _) in stored_tables(SQL_DIR).items()} == expected


def test_a_process_reads_the_statements_and_lists_the_rule_files_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second time took 6 % of the CPU time of `tracelake why` on a small file."""
    statements, rules = read_statements(SQL_DIR), rule_rows("thresholds")

    def rglob(path: Path, pattern: str) -> list[Path]:
        raise AssertionError(f"{path} is searched again for {pattern}")

    monkeypatch.setattr(Path, "rglob", rglob)
    assert read_statements(SQL_DIR) is statements
    assert rule_rows("thresholds") == rules


# Rules for the folder sql/.


def too_full(folder: Path) -> dict[str, int]:
    """Return the number of files in each folder with too many files of SQL and rules, by its path."""
    files = [path for path in folder.rglob("*.*") if path.suffix in (".sql", ".csv")]
    counts = Counter(path.parent.relative_to(folder).as_posix() for path in files)
    return {name: n for name, n in counts.items() if n > MOST_FILES}


def test_no_folder_of_sql_has_too_many_files(tmp_path: Path) -> None:
    assert too_full(SQL_DIR) == {}
    shutil.copytree(SQL_DIR, tmp_path / "sql")
    topic = tmp_path / "sql" / "modelling" / "spans"
    for i in range(MOST_FILES + 1 - len(list(topic.iterdir()))):
        (topic / f"more_{i}.sql").touch()
    assert too_full(tmp_path / "sql") == {"modelling/spans": MOST_FILES + 1}


def astray(catalog: Catalog) -> dict[str, Path]:
    """Return the private models that only one other file reads, and that file.

    Models read by a function are excluded, because its file cannot contain SQL. So are tables made of parts, which have
    no file, and parts, which may be in any file.
    """
    homes, wholes = {}, {model.part_of for model in catalog.models.values()}
    for name, model in catalog.models.items():
        if model.kind == "sql" and model.private and not model.part_of and name not in wholes:
            readers = (r for r in catalog.models.values() if name in {*catalog.sources_of(r.name), *r.runs})
            paths = {reader.path for reader in readers}
            if len(paths) == 1 and paths.isdisjoint({model.path}) and (path := paths.pop()).suffix == ".sql":
                homes[name] = path
    return homes


def test_a_private_model_stands_in_the_file_of_its_only_reader(tmp_path: Path) -> None:
    assert astray(load_catalog()) == {}
    apart = catalog_of(tmp_path, {"summary/last.sql": file_text(_middle=MIDDLE, last=LAST), "gpu/_source.sql": SOURCE})
    assert astray(apart) == {"_source": tmp_path / "summary" / "last.sql"}


def test_questions_run_on_spark_too() -> None:
    from sqlglot import parse_one

    for question in load_questions().values():
        refuse_unportable(Path(question.name), parse_one(question.sql, dialect="duckdb"))


FLOW = ("canonical", "gpu", "sync", "waits", "host", "host_edges", "stack_order", "edges", "longest_paths", "path")
"""The folders of the critical path's models and the Python steps between them, in order."""


def test_the_critical_path_flows_one_way() -> None:
    """Models depend only on the same or an earlier folder.

    No folder waits for a Python step that waits for the folder.
    """
    catalog, place = load_catalog(), {}
    for name in catalog.closure(["critical_path"]):
        model = catalog.models[name]
        if model.kind in ("sql", "python"):
            folders = model.path.relative_to(SQL_DIR).parts if model.kind == "sql" else model.function.split(":")
            place[name] = max((FLOW.index(folder) for folder in folders if folder in FLOW), default=0)
    assert {*place.values()} == {*range(len(FLOW))}
    back = [(s, name) for name in place for s in catalog.models[name].dependencies if place.get(s, 0) > place[name]]
    assert back == []


def test_the_critical_path_has_at_most_41_private_models() -> None:
    """An author who changes the path must read its private models.

    A model with a single reader can be a step of its reader instead.
    """
    catalog = load_catalog()
    models = [catalog.models[name] for name in catalog.closure(["critical_path"]) if name.startswith("_")]
    assert sum(model.kind != "rules" for model in models) <= 41
