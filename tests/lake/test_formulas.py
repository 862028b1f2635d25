"""A user's formulas: the tables that they make outdated, the rows that they change, and files that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from pipelines.base import database
from pipelines.faces import subject
from pipelines.faces.cli.app import app
from pipelines.faces.notebook import TraceAnalysis
from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import analyst, publish
from pipelines.lake.publish.user_formulas import (
    COLUMNS,
    OP_FORMULAS,
    catalog_of,
    catalog_with,
    read_formulas,
    write_formulas,
)
from pipelines.modelling.formulas import _FORMULAS
from pipelines.modelling.op_formulas import _formulas_of
from pipelines.models.catalog import load_catalog
from pipelines.models.errors import CatalogError
from pipelines.models.rule_tables import create_rules
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_trace import materialize
from tests.harness import call, kernel, x

TABLES = ["kernels", "op_work"]
SHAPES = {"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"], "Concrete Inputs": ["", ""]}
PRODUCT = 2 * 2 * 3 * 4


def _lake(folder: Path) -> Lake:
    """Build a lake of one trace with a user's product, a user's Triton kernel, and aten::mm."""
    events = []
    for i, name in enumerate(("mylib::product", "my_swiglu_v2", "aten::mm")):
        at = 100 * i
        events += [x("cpu_op", name, at, 10, **SHAPES), x("cpu_op", "aten::copy_", at + 1, 5, **SHAPES)]
        events += [call("cudaLaunchKernel", at + 2, 1, i + 1), kernel(f"k{i}", at + 20, 10, i + 1)]
    folder.mkdir(exist_ok=True)
    trace = folder / "rank0.json"
    trace.write_text(json.dumps({"traceEvents": events}))
    lake = Lake(folder / "lake")
    assert [row.status for row in ingest([trace], lake).rows] == ["ok"]
    return lake


def _write(lake: Lake, *lines: str) -> None:
    (lake.root / OP_FORMULAS).write_text("\n".join(lines) + "\n")


def _work(lake: Lake) -> list[tuple]:
    with lake.connect(["op_work"]) as con:
        return con.execute(
            "SELECT op, family, flops_matrix, bytes, not_modelled FROM op_work ORDER BY event_id"
        ).fetchall()


def _done(lake: Lake) -> list[str]:
    return sorted(result.table for result in materialize(lake, TABLES, and_publish=False))


@pytest.mark.slow
def test_formulas_of_a_lake_make_outdated_what_reads_them(tmp_path: Path) -> None:
    lake = _lake(tmp_path)
    assert _done(lake) == sorted(TABLES) and _done(lake) == []
    copied = ("aten::copy_", "copy", 0, 4 * 6 + 4 * 6, None)
    product = ("gemm", PRODUCT, 4 * (6 + 12 + 8), None)
    shipped = [copied, copied, ("aten::mm", *product)]
    assert _work(lake) == shipped  # by the innermost operator that has a formula

    _write(
        lake,
        "op,name_pattern,formula,family,owns_below",
        "mylib::product,,gemm,,true",
        "my_swiglu_v2,,triton,softmax,TRUE",
        "aten::mm,,elementwise_1,,true",
    )
    assert _done(lake) == ["op_work"] and _done(lake) == []
    mine = [
        ("mylib::product", *product),
        ("my_swiglu_v2", "softmax", 0, 4 * (6 + 12), None),
        ("aten::mm", "elementwise", 0, 4 * (6 + 6), None),
    ]
    assert _work(lake) == mine
    with analyst(lake, ["op_work"]) as con:
        assert con.execute("SELECT count(*) FROM op_work WHERE flops_matrix > 0").fetchall() == [(1,)]
        rules = con.execute("SELECT op, formula, owns_below FROM op_kinds WHERE op IN ('mylib::product', 'aten::mm')")
        assert sorted(rules.fetchall()) == [("aten::mm", "elementwise_1", True), ("mylib::product", "gemm", True)]

    (lake.root / OP_FORMULAS).unlink()
    assert _done(lake) == ["op_work"] and _work(lake) == shipped


def test_commands_on_a_trace_of_the_lake_have_its_models(tmp_path: Path) -> None:
    (tmp_path / OP_FORMULAS).write_text("op,formula,owns_below\nmylib::product,gemm,true\n")
    version = catalog_of(tmp_path / OP_FORMULAS).version("kernel_owners")
    assert subject.catalog_of("4bab96", tmp_path).version("kernel_owners") == version
    assert subject.catalog_of(str(tmp_path / OP_FORMULAS), tmp_path) is load_catalog()  # a file uses shipped formulas


@pytest.mark.slow
def test_scenarios_of_a_trace_of_the_lake_know_its_operators(tmp_path: Path) -> None:
    lake = _lake(tmp_path)
    _write(lake, "op,formula,owns_below", "mylib::product,gemm,true")
    with lake.connect(["traces"]) as con:
        ((trace_id,),) = con.execute("SELECT trace_id FROM traces").fetchall()
    words = ["what-if", trace_id, "--lake", str(lake.root), "--scale", "op:mylib::product=0.5"]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0, answer.output
    of_file = CliRunner().invoke(app, ["what-if", str(tmp_path / "rank0.json"), *words[2:]])
    assert of_file.exit_code == 1 and "op:aten::copy_" in of_file.output
    with TraceAnalysis(lake=lake.root) as analysis:
        path, _ = analysis.critical_path_analysis(trace_id)
        assert path.what_if({"op:mylib::product": 0.5}).before.length_us > 0


def test_a_pattern_of_the_user_comes_before_those_shipped(tmp_path: Path) -> None:
    (tmp_path / OP_FORMULAS).write_text(
        "name_pattern,formula,family\n^triton_poi_fused_my,triton_part,\n^triton_poi_,gemm,copy\n"
    )
    catalog = catalog_of(tmp_path / OP_FORMULAS)
    with database.connect() as con:
        for name in ("op_kinds", "op_patterns"):
            create_rules(con, catalog.models[name])
        names = ("triton_poi_fused_my_0", "triton_poi_fused_add_0", "triton_red_fused_add_0", "aten::mm", "aten::nope")
        con.execute(f"CREATE TABLE _op_calls AS SELECT unnest({list(names)}) AS op")
        formulas = _formulas_of(con)
    assert formulas.of_op("triton_poi_fused_my_0") == ("fused", "triton_part")
    assert formulas.of_op("triton_poi_fused_add_0") == ("copy", "gemm")
    assert formulas.of_op("triton_red_fused_add_0") == ("fused", "triton")
    assert formulas.of_op("aten::mm") == ("gemm", "gemm") and formulas.of_op("aten::nope") is None


def test_no_pattern_runs_for_ever(tmp_path: Path) -> None:
    """No pattern of a user takes exponential time.

    Python's regular expressions would try 2^60 ways to match this name.
    """
    (tmp_path / OP_FORMULAS).write_text("name_pattern,formula\n^(a+)+$,copy\n")
    with database.connect() as con:
        for name in ("op_kinds", "op_patterns"):
            create_rules(con, catalog_of(tmp_path / OP_FORMULAS).models[name])
        con.execute(f"CREATE TABLE _op_calls AS SELECT unnest(['{'a' * 60}!', 'aa']) AS op")
        formulas = _formulas_of(con)
    assert formulas.of_op("aa") == ("copy", "copy") and formulas.of_op("a" * 60 + "!") is None


def test_rows_of_a_file_are_read_again_as_they_were_written(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        'op,name_pattern,formula,family,owns_below\n"a,b",,gemm,,true\n,^x+$,triton,copy,\n'
    )
    formulas = read_formulas(tmp_path / "a.csv")
    assert formulas == [("a,b", None, "gemm", "gemm", "true"), (None, "^x+$", "triton", "copy", "false")]
    write_formulas(tmp_path / "b.csv", formulas)
    assert read_formulas(tmp_path / "b.csv") == formulas
    write_formulas(tmp_path / "c.csv", [])
    assert not (tmp_path / "c.csv").exists() and read_formulas(tmp_path / "c.csv") == []


def test_versions_follow_the_rows_and_not_the_text(tmp_path: Path) -> None:
    path = tmp_path / OP_FORMULAS
    versions = []
    for text in ("op,formula\n", "op,formula\na,gemm\n", "formula,op,family\ngemm, a ,gemm\n", "op,formula\na,copy\n"):
        path.write_text(text)
        catalog = catalog_of(path)
        versions.append((catalog.version("op_work"), catalog.version("span_utilization"), catalog.version("kernels")))
    plain = load_catalog()
    assert versions[0] == (plain.version("op_work"), plain.version("span_utilization"), plain.version("kernels"))
    assert versions[1] == versions[2]
    assert len({v[0] for v in versions}) == len({v[1] for v in versions}) == 3
    assert len({v[2] for v in versions}) == 1


WRONG = (
    ("operator,formula\na,gemm\n", r":1: a column 'operator' is unknown; write a header"),
    ("op,family\na,gemm\n", r":1: no column 'formula'"),
    ("op,formula\na,gem\n", r":2: formula 'gem' is unknown; choose one of .*gemm"),
    ("op,formula\na,\n", r":2: 'formula' is empty"),
    ("op,formula\n,gemm\n", r":2: neither of 'op' and 'name_pattern'"),
    ("op,name_pattern,formula\na,^a,gemm\n", r":2: both of 'op' and 'name_pattern'"),
    ("name_pattern,formula\n^(a,gemm\n", r":2: name_pattern '\^\(a' is not a regular expression"),
    ("name_pattern,formula\na*,gemm\n", r":2: name_pattern 'a\*' fits every name"),
    ("op,formula,family\na,gemm,matmul\n", r":2: family 'matmul' is unknown"),
    ("op,formula,owns_below\na,gemm,yes\n", r":2: owns_below 'yes' is neither true nor false"),
    ("name_pattern,formula,owns_below\n^a,gemm,true\n", r":2: owns_below 'true' is only for a row with 'op'"),
    ("op,formula\na,gemm\nb,gemm\na,copy\n", r":4: op 'a' was in line 2 already"),
    ("op,formula\na,gemm,more\n", r":2: more values than columns"),
    ('op,formula\n"a,gemm\n', r":\d: not CSV: "),
    (
        "name_pattern,formula\n^(a)\\1,gemm\n",
        r":2: name_pattern '.*' is not a regular expression of DuckDB \(invalid escape",
    ),
    (
        "name_pattern,formula\n^a(?=b),gemm\n",
        r":2: name_pattern '.*' is not a regular expression of DuckDB \(invalid perl",
    ),
    ("op,formula\n" + "a,gemm\n" * 10_001, r": more than 10,000 rows"),
    ("op,formula\n" + "a,gemm\n" * 30_000, r": more than 10,000 rows"),
)


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[message for _, message in WRONG])
def test_a_wrong_file_is_refused_by_file_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / OP_FORMULAS
    path.write_text(text)
    with pytest.raises(CatalogError, match=r"op_formulas\.csv" + message):
        read_formulas(path)


def test_a_wrong_file_stops_only_what_reads_formulas(tmp_path: Path) -> None:
    lake = _lake(tmp_path)
    _write(lake, "op,formula", "mylib::product,gem")
    assert [result.table for result in materialize(lake, ["kernels"], and_publish=False)] == ["kernels"]
    publish(lake)
    with analyst(lake) as con:
        assert con.execute("SELECT count(*) FROM kernels").fetchall() == [(3,)]
    with pytest.raises(CatalogError, match=r"op_formulas\.csv:2: formula 'gem' is unknown"):
        materialize(lake, TABLES)
    _write(lake, "op,formula", "mylib::product,gemm")
    assert _done(lake) == ["op_work"]


def test_a_folder_or_bytes_in_its_place_are_refused(tmp_path: Path) -> None:
    path = tmp_path / OP_FORMULAS
    path.write_bytes(b"op,formula\n\xff\xfe,gemm\n")
    with pytest.raises(CatalogError, match="not UTF-8"):
        read_formulas(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(CatalogError, match="cannot be read"):
        catalog_of(path).refuse_errors(["op_work"])
    path.rmdir()
    path.symlink_to(tmp_path / "nothing")  # like a link to an unmounted disk, which must not mean "no formulas"
    with pytest.raises(CatalogError, match="cannot be read"):
        catalog_of(path).refuse_errors(["op_work"])


def test_every_formula_can_be_named() -> None:
    rows = load_catalog().models
    with database.connect() as con:
        for name in ("op_kinds", "op_patterns"):
            create_rules(con, rows[name])
        known = con.execute("SELECT formula FROM op_kinds UNION SELECT formula FROM op_patterns").fetchall()
    assert {name for (name,) in known} == _FORMULAS.keys()


cells = st.one_of(
    st.sampled_from(
        ["", "gemm", "triton", "copy", "aten::mm", "^x", "(", "true", "FALSE", '"', "a,b", "x\ny", "\0", "'"]
    ),
    st.text(max_size=8),
)


@pytest.mark.slow  # random; tests above cover wrong files
@given(header=st.one_of(st.just(list(COLUMNS)), st.lists(st.sampled_from([*COLUMNS, "x", ""]), max_size=6)),
       rows=st.lists(st.lists(cells, max_size=6), max_size=5))  # fmt: skip
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, header: list[str], rows: list) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.csv"
    path.write_bytes("\n".join(",".join(row) for row in [header, *rows]).encode("utf-8", "surrogatepass"))
    try:
        formulas = read_formulas(path)
    except CatalogError as error:
        assert str(error).startswith(str(path))
        assert catalog_of(path).version("op_work") != load_catalog().version("op_work")
        return
    catalog = catalog_with(formulas)
    with database.connect() as con:
        create_rules(con, catalog.models["op_kinds"])
        create_rules(con, catalog.models["op_patterns"])
        kinds = con.execute("SELECT op, formula FROM op_kinds").fetchall()
        patterns = con.execute("SELECT name_pattern, formula FROM op_patterns ORDER BY rowid").fetchall()
    assert {(op, formula) for op, _, formula, *_ in formulas if op} <= set(kinds)
    assert len({op for op, _ in kinds}) == len(kinds)
    mine = [(pattern, formula) for _, pattern, formula, *_ in formulas if pattern]
    assert patterns[: len(mine)] == mine
