"""Kernel classes: a class that one reader does not know is refused, and a known class means the same to all readers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipelines.base.datafiles import SQL_DIR, rule_rows
from pipelines.critical_path.graph.windows import WindowRequest
from pipelines.critical_path.whatif import overlap
from pipelines.critical_path.whatif.before_after import what_if
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.window import load
from pipelines.faces.words import WORDS
from pipelines.models.catalog import Added, Catalog, load_catalog
from pipelines.models.class_kinds import NAMED
from pipelines.models.errors import CatalogError
from pipelines.models.run import run_models
from tests.harness import call, connect, kernel, op

TABLES = ("class_kinds", "kernel_classes", "bound_by")
RULE = "default,5,quantization,^kernel$,^quantize_,QUANTIZATION,,a test"
KIND = "QUANTIZATION,COMPUTATION,quantization,Kernels that quantize."
LABEL = "default,OPERATOR_KERNEL,gpu,QUANTIZATION,gpu_compute_bound,1"


def shipped(table: str) -> str:
    (path,) = (SQL_DIR / "rules").rglob(f"{table}.csv")
    return path.read_text()


def rules(folder: Path, **more: str) -> Path:
    """Write the three tables, some of them with an additional row.

    A value `-TEXT` instead removes the rows that begin with TEXT.
    """
    (folder / "rules").mkdir(parents=True)
    for table in TABLES:
        text = shipped(table)
        change = more.get(table, "")
        if change.startswith("-"):
            text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(change[1:]))
        elif change:
            text += change + "\n"
        (folder / "rules" / f"{table}.csv").write_text(text)
    return folder


REFUSED = {
    "unknown to class_kinds": ({"kernel_classes": RULE}, "add `QUANTIZATION,COMPUTATION,WORDS,MEANING` to .*class_kinds"),
    "unknown to the path": ({"class_kinds": KIND}, f"add `{LABEL}` to .*bound_by.csv"),
    "another label than it counts as": (
        {"class_kinds": KIND, "bound_by": LABEL.replace("compute", "memory")}, f"counts as COMPUTATION; write `{LABEL}`"
    ),
    "no words": ({"class_kinds": KIND.replace("quantization", ""), "bound_by": LABEL}, "has no words; write"),
    "nothing to the breakdown": ({"class_kinds": KIND.replace(",COMPUTATION", ","), "bound_by": LABEL}, "write COMPUTATION"),
    "its own to the breakdown": (
        {"class_kinds": KIND.replace("COMPUTATION", "QUANTIZATION"), "bound_by": LABEL}, "write COMPUTATION"
    ),
    "another's to the causes": (
        {"class_kinds": KIND.replace("COMPUTATION", "MEMORY"), "bound_by": LABEL}, "write COMPUTATION"
    ),
    "a label of no class": ({"bound_by": LABEL}, "bound_by.csv:[0-9]+: class 'QUANTIZATION' is unknown"),
    "one that models name is missing": ({"class_kinds": "-MEMORY"}, "class MEMORY is missing"),
    "one of the path's labels is missing": ({"bound_by": "-default,OPERATOR_KERNEL,gpu,MEMORY"}, "add `default,.*MEMORY,"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_class_that_a_reader_does_not_know_is_refused(tmp_path: Path, case: str) -> None:
    more, message = REFUSED[case]
    with pytest.raises(CatalogError, match=message) as error:
        load_catalog(rules(tmp_path, **more))
    assert re.match(rf"{tmp_path}/rules/\w+\.csv:", str(error.value))


def test_the_line_of_the_rule_is_named(tmp_path: Path) -> None:
    rows = shipped("kernel_classes").count("\n")
    with pytest.raises(CatalogError, match=rf"kernel_classes\.csv:{rows + 1}: rule 'quantization' gives class 'QUANT"):
        load_catalog(rules(tmp_path, kernel_classes=RULE))


def test_the_rules_as_shipped_and_a_class_with_all_its_rows_are_accepted(tmp_path: Path) -> None:
    for folder, more in {
        "shipped": {},
        "more": {"kernel_classes": RULE, "class_kinds": KIND, "bound_by": LABEL},
    }.items():
        assert {*load_catalog(rules(tmp_path / folder, **more)).models} == {*TABLES}


def test_a_row_that_a_user_adds_is_refused_alike() -> None:
    with pytest.raises(CatalogError, match=r"kernel_classes\.csv, added row 1: rule 'quantization' gives class"):
        load_catalog().with_added({"kernel_classes": Added(b"", (tuple(RULE.split(",")),))})


def extended() -> Catalog:
    """Return the catalog with an additional class QUANTIZATION.

    Added rows replace all rows with the same first value, so all rows of the profile are added.
    """
    of_profile = {
        table: tuple(tuple(row.values()) for row in rule_rows(table) if row["profile"] == "default")
        for table in ("kernel_classes", "bound_by")
    }
    rows = {
        "kernel_classes": (tuple(RULE.split(",")), *of_profile["kernel_classes"]),
        "bound_by": (tuple(LABEL.split(",")), *of_profile["bound_by"]),
        "class_kinds": (tuple(KIND.split(",")),),
    }
    nulls = {table: tuple(tuple(v or None for v in row) for row in these) for table, these in rows.items()}
    return load_catalog().with_added({table: Added(repr(these).encode(), these) for table, these in nulls.items()})


TRACE = [
    op("aten::mm", 0, 30), call("cudaLaunchKernel", 5, 10, 1), kernel("quantize_fp8", 20, 600, 1),
    op("aten::mul", 40, 30), call("cudaLaunchKernel", 45, 10, 2), kernel("gemm", 620, 200, 2),
    op("aten::to", 80, 30), call("cudaMemcpyAsync", 85, 10, 3), kernel("Memcpy DtoD", 820, 100, 3, cat="gpu_memcpy"),
    call("cudaLaunchKernel", 120, 10, 4), kernel("ncclDevKernel_AllReduce", 150, 300, 4, stream=9),
]  # fmt: skip


def test_why_path_and_breakdown_agree_about_a_class_with_all_its_rows() -> None:
    con, _ = connect(TRACE)
    run_models(
        con,
        extended(),
        ["causes", "critical_path_summary", "temporal_breakdown", "tensor_core_use", "_only_communication", "kernels"],
    )
    assert con.execute("SELECT class FROM kernels ORDER BY start_ns").fetchall() == [
        ("QUANTIZATION",), ("COMMUNICATION",), ("COMPUTATION",), ("MEMORY",),
    ]  # fmt: skip
    assert con.execute("SELECT name FROM tensor_core_use ORDER BY name").fetchall() == [("gemm",), ("quantize_fp8",)]
    assert con.execute("SELECT count(*) FROM _only_communication").fetchall() == [(0,)]
    ((causes,),) = con.execute("SELECT sum(duration_ns) FROM causes WHERE cause = 'gpu_computing'").fetchall()
    summary = dict(con.execute("SELECT bound_by, duration_ns FROM critical_path_summary").fetchall())
    percents = con.execute("SELECT sum(percent) FROM critical_path_summary").fetchone()
    breakdown = con.execute(
        "SELECT compute_ns, compute_percent + non_compute_percent + idle_percent FROM temporal_breakdown"
    ).fetchone()
    assert causes == summary["gpu_compute_bound"] == 800_000 and breakdown == (800_000, pytest.approx(100))
    assert percents == (pytest.approx(100),) and "gpu_other_bound" not in summary


@pytest.mark.slow  # 2 s
@pytest.mark.parametrize(("target", "saved_us"), [("class:COMPUTATION", 400), ("class:QUANTIZATION", 300)])
def test_what_if_scales_whatever_counts_as_a_class(target: str, saved_us: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = rule_rows("class_kinds")
    more = [*kinds, dict(zip(kinds[0], KIND.split(","), strict=True))]
    monkeypatch.setattr(overlap, "rule_rows", lambda _: more)
    con, trace_id = connect(TRACE)
    window = load(con, extended(), WindowRequest(trace_id, profile="default"))
    (comparison,) = what_if(window, [Scenario(((target, 0.5),))])
    assert comparison.before.length_us - comparison.after.length_us == saved_us


def test_models_compare_with_the_six_classes_and_computing_by_what_a_class_counts_as() -> None:
    files = [path for path in SQL_DIR.rglob("*.sql") if path.relative_to(SQL_DIR).parts[0] != "ask"]
    texts = {path.name: re.sub(r"--.*", "", path.read_text()) for path in files}
    compared = re.compile(r"\b(class|counts_as|scope|what) (?:=|<>|IN) (\('[^)]*\)|'\w+')")
    literals = {
        (name, column, word)
        for name, text in texts.items()
        for column, values in compared.findall(text)
        for word in re.findall(r"'([A-Z]+)'", values)
        if column != "what" or word in NAMED
    }
    assert len({name for name, *_ in literals}) >= 12
    assert {word for *_, word in literals} <= set(NAMED) == {row["class"] for row in rule_rows("class_kinds")}
    assert [name for name, column, word in literals if (column, word) == ("class", "COMPUTATION")] == []


def test_each_label_of_the_path_and_each_class_has_words() -> None:
    labels = {row["bound_by"] for table in ("bound_by", "edge_types") for row in rule_rows(table)} - {""}
    assert {label for label in labels if label not in WORDS} == set()
    assert set(NAMED) <= WORDS.keys()
