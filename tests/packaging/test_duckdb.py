"""The project on several DuckDB versions.

No query depends on the guesses of a version. Combinations that would fail, such as Ibis on DuckDB 2, are refused.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import duckdb
import pytest

from pipelines.base import database, extras
from pipelines.base.database import WrongDuckDB
from pipelines.models.catalog import load_catalog
from tests.packaging.installed import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CODE = sorted(
    path for folder in ("pipelines", "sql") for path in (ROOT / folder).rglob("*.*") if path.suffix in (".py", ".sql")
)
CALL = re.compile(r"\bread_(?:nd)?(?:json|csv)(?:_objects|_auto)*\(")
GUESSES = ("read_json_auto", "read_csv_auto", "sample_size", "auto_detect = true", "maximum_sample", "sniff_csv")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?|true|false")


def calls(text: str) -> list[str]:
    """Return the arguments of each call that reads JSON or CSV."""
    texts = []
    for call in CALL.finditer(text):
        depth, at = 1, call.end()
        while depth and at < len(text):
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
        texts.append(text[call.end() : at])
    return texts


def test_columns_are_declared_wherever_duckdb_reads_json_or_csv() -> None:
    read = {path: calls(path.read_text(encoding="utf-8")) for path in CODE}
    assert sum(map(len, read.values())) >= 4
    for path, texts in read.items():
        assert all("columns = {" in call for call in texts), path
    for path in CODE:
        text = path.read_text(encoding="utf-8")
        assert [guess for guess in GUESSES if guess in text] == [], path


def test_numbers_of_rule_tables_are_declared_as_such() -> None:
    con = database.connect()
    for model in load_catalog().models.values():
        if model.kind != "rules":
            continue
        columns = ", ".join(f"'{name}': 'VARCHAR'" for name in model.types)
        rows = con.execute(
            f"FROM read_csv('{model.path}', auto_detect = false, columns = {{{columns}}}, header = true, comment = '#', "
            "delim = ',', quote = '\"', escape = '\"')"
        ).fetchall()
        for at, (name, kind) in enumerate(model.types.items()):
            values = {row[at] for row in rows} - {None, ""}
            if values and all(map(NUMBER.fullmatch, values)):
                assert kind != "VARCHAR", f"{model.path}: write `# {name} BIGINT: …` (or DOUBLE, BOOLEAN)"


def test_division_by_zero_is_null_on_every_version() -> None:
    rows = "SELECT 5 // n, 5 % n, 5 / n, 0 / n FROM (VALUES (0)) AS t(n)"
    with database.connect() as con:
        for opened in (con, database.cursor(con), database.scratch()):
            ((whole, rest, infinite, nothing),) = opened.execute(rows).fetchall()
            assert (whole, rest, infinite) == (None, None, float("inf")) and nothing != nothing


def test_files_can_be_read_by_older_versions(tmp_path: Path) -> None:
    with database.connect(tmp_path / "a.duckdb") as con:
        con.execute("CREATE TABLE t AS SELECT 1 AS a")
        ((tags,),) = con.execute(
            "SELECT tags['storage_version'] FROM duckdb_databases() WHERE database_name = 'a'"
        ).fetchall()
    assert tags.startswith("v1.0.0"), tags  # DuckDB 2 would write v2.0.0+


def test_the_error_names_the_bound_of_the_project() -> None:
    (bound,) = [name for name in PYPROJECT["project"]["dependencies"] if name.startswith("duckdb")]
    assert WrongDuckDB.hint.endswith(f"pip install '{bound}'")
    (other,) = PYPROJECT["dependency-groups"]["duckdb2"]
    assert re.fullmatch(r"duckdb==2\.\d+\.\d+", other)


def test_ibis_is_refused_on_duckdb_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: True)
    for version in ("2.0.1", "3.1.0", "10.0.0"):
        monkeypatch.setattr(extras, "version", lambda _, version=version: version)
        with pytest.raises(
            extras.MissingExtra, match=f"a table in Ibis needs Ibis, which fails on DuckDB {version}: .*pip"
        ):
            extras.need("notebook", "a table in Ibis")
        assert extras.missing() == ["notebook"]
        extras.need("serve", "the console")
    monkeypatch.setattr(extras, "version", lambda _: "1.5.5")
    extras.need("notebook", "a table in Ibis")
    assert extras.missing() == []


def test_what_a_query_gives_arrow_is_the_same_with_and_without_a_relation() -> None:
    with database.connect() as con:
        con.execute("CREATE TABLE t AS SELECT range AS a FROM range(5000)")
        table = database.arrow_result(con, "SELECT a FROM t ORDER BY a").to_arrow_table()
        parts = database.arrow_result(con, "SELECT a FROM t ORDER BY a").to_arrow_reader(1000)
        assert table["a"].to_pylist() == [a for part in parts for a in part["a"].to_pylist()] == [*range(5000)]


def test_the_makefile_has_one_rule_for_environments_beside_venv() -> None:
    text = (ROOT / "Makefile").read_text()
    assert text.count("-m venv --without-pip") == 1
    for name in re.findall(r"^VENV_\w+ := (\S+)$", text, re.M):
        assert name.startswith(".venv-")
    listed = re.findall(r"^CORE_TESTS := (.*?[^\\])$", text, re.M | re.S)[0].replace("\\\n", " ")
    listed = re.sub(r"\$\(addprefix (\S+),(.*?)\)", lambda m: " ".join(m[1] + name for name in m[2].split()), listed)
    assert [path for path in listed.split() if not (ROOT / path).exists()] == []


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
@pytest.mark.slow  # 3 s
def test_all_slow_tests_have_those_on_duckdb_2_and_on_ducklake_and_a_share_has_neither() -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "SLOW"))}
    for slow, has_them in {"0": False, "1": True, "1/20": False, "3/20": False}.items():
        command = ["make", "-n", "-o", ".venv/.installed-dev", "-o", ".venv/.installed-slow", "test", f"SLOW={slow}"]
        commands = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, check=True).stdout
        assert (".venv-duckdb2/bin/python -m pytest" in commands) == has_them, slow
        assert (".venv-lake/bin/python -m pytest" in commands) == has_them, slow


def test_this_environment_has_the_duckdb_that_it_is_for() -> None:
    """`make test-duckdb2` is useless if Python finds the other environment's DuckDB first."""
    if ".venv-duckdb2" in duckdb.__file__:
        assert duckdb.__version__.startswith("2.")
