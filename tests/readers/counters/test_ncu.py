"""`ncu --csv`: both pages give the same rows, and findings report values, metrics and lines that cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.readers.counters.lake import INPUT, counter_files
from pipelines.readers.inputs import Rejected
from tests.readers.inputs.read_tables import loaded

BEFORE = [
    *("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream"),
    *("Block Size", "Grid Size", "Device", "CC"),
]
DETAILS = ["Section Name", "Metric Name", "Metric Unit", "Metric Value", "Rule Name"]
UNITS = {"gpu__time_duration.sum": "us", "dram__bytes.sum": "Mbyte", "sm__warps_active.avg.pct_of_peak": "%"}
VALUES = {
    0: ["1,234.50", "12,345,678.25", "33.02"],
    1: ["2", "n/a", "0"],
    2: ["n/a", "8", "9"],  # its duration is not copied from the previous kernel
}
FINDINGS = "SELECT fault, severity, n, detail FROM counter_findings ORDER BY fault"
ROWS = (
    "SELECT process_id, dispatch_id, kernel_name, device, stream, grid_threads, block_threads, counter, value, unit, "
    "start_ns, duration_ns FROM kernel_counters ORDER BY dispatch_id, counter"
)


def of(dispatch: Any) -> list[Any]:
    return [dispatch, 77, "python", "h", 'void f<2>(int, ""x"")', 1, 7, "(256, 1, 1)", "(4, 2, 1)", 0, "9.0"]


def csv_line(fields: list[Any]) -> str:
    return ",".join(f'"{field}"' for field in fields)


def raw() -> list[str]:
    units = csv_line([""] * len(BEFORE) + [*UNITS.values(), ""])
    table = [csv_line([*of(n), *values, "CacheNone"]) for n, values in VALUES.items()]
    return ["==PROF== Connected", "loss 3.2", csv_line([*BEFORE, *UNITS, "launch__func_cache_config"]), units, *table]


def details() -> list[str]:
    table = [
        csv_line([*of(n), "Speed Of Light", name, unit, value, ""])
        for n, values in VALUES.items()
        for (name, unit), value in zip(UNITS.items(), values, strict=True)
    ]
    advice = csv_line([*of(1), "Speed Of Light", "", "", "", "SOLBottleneck"])
    return [csv_line([*BEFORE, *DETAILS]), *table, advice, "==PROF== Disconnected"]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def rows(con: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    return con.execute(query).fetchall()


def test_both_pages_become_the_same_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "raw.csv", raw())
    assert counter_files([path, write(tmp_path / "other.csv", ["ID,Kernel Name,Time", "1,k,2"])]) == {path: [path]}
    con = loaded(INPUT, [path])
    kernel = (0, 7, 2048, 256)
    name = 'void f<2>(int, "x")'
    assert rows(con, ROWS) == [
        (77, 0, name, *kernel, "dram__bytes.sum", 12345678.25, "Mbyte", None, 1_234_500),
        (77, 0, name, *kernel, "gpu__time_duration.sum", 1234.5, "us", None, 1_234_500),
        (77, 0, name, *kernel, "sm__warps_active.avg.pct_of_peak", 33.02, "%", None, 1_234_500),
        (77, 1, name, *kernel, "dram__bytes.sum", None, "Mbyte", None, 2_000),
        (77, 1, name, *kernel, "gpu__time_duration.sum", 2, "us", None, 2_000),
        (77, 1, name, *kernel, "sm__warps_active.avg.pct_of_peak", 0, "%", None, 2_000),
        (77, 2, name, *kernel, "dram__bytes.sum", 8, "Mbyte", None, None),
        (77, 2, name, *kernel, "gpu__time_duration.sum", None, "us", None, None),
        (77, 2, name, *kernel, "sm__warps_active.avg.pct_of_peak", 9, "%", None, None),
    ]
    assert [(fault, severity, n, detail.partition(":")[0]) for fault, severity, n, detail in rows(con, FINDINGS)] == [
        ("not_measured", "info", 2, "line 6"),
        ("other_output", "info", 2, "line 1 is another output of the profiler or the program"),
        ("text_value", "info", 3, "line 5"),
    ]
    again = loaded(INPUT, [write(tmp_path / "details.csv", details())])
    assert rows(again, ROWS) == rows(con, ROWS)
    assert rows(again, "SELECT DISTINCT section, source FROM kernel_counters") == [("Speed Of Light", "ncu details")]
    assert [row[:3] for row in rows(again, FINDINGS)] == [
        ("no_metric", "info", 1), ("not_measured", "info", 2), ("other_output", "info", 1)
    ]  # fmt: skip


RULES = ["Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup"]


def details_of_2025(full_every: int = 0) -> list[str]:
    """Return page details as ncu 2025 writes it: a metric's line ends after its value.

    Every `full_every`-th line has all fields, as in earlier versions.
    """
    _, *table = details()
    columns = csv_line([*BEFORE, *DETAILS, *RULES])
    short = [
        line.removesuffix('""') if '"SOLBottleneck"' not in line else f'{line},"INF","Text, and more.","",""'
        for line in table
    ]
    for n in range(0, len(short), full_every) if full_every else ():
        short[n] += '"","","","",""' if short[n].endswith('",') else ""
    return [columns, *short]


@pytest.mark.parametrize("full_every", [0, 3, 1])
def test_lines_of_metrics_may_end_after_the_value(tmp_path: Path, full_every: int) -> None:
    expected = loaded(INPUT, [write(tmp_path / "a.csv", details())])
    con = loaded(INPUT, [write(tmp_path / "b.csv", details_of_2025(full_every))])
    assert rows(con, ROWS) == rows(expected, ROWS) and len(rows(con, ROWS)) == 9
    assert rows(con, FINDINGS) == rows(expected, FINDINGS)


def test_the_last_line_without_its_end_is_read_where_its_value_is_whole(tmp_path: Path) -> None:
    *table, last = details_of_2025()[:4]
    for text, n in ((last, 3), (last.removesuffix(","), 2), (last[:-4], 2)):
        (tmp_path / "a.csv").write_text("\n".join([*table, text]))
        con = loaded(INPUT, [tmp_path / "a.csv"])
        assert rows(con, "SELECT count(*) FROM kernel_counters") == [(n,)], text
        assert [fault for fault, *_ in rows(con, FINDINGS)] == ["cut_line"] * (3 - n), text


def test_page_raw_needs_all_columns(tmp_path: Path) -> None:
    *table, last = raw()
    con = loaded(INPUT, [write(tmp_path / "a.csv", [*table, last.rpartition(",")[0]])])
    assert ("broken_line", "warning", 1) in [row[:3] for row in rows(con, FINDINGS)]


def test_no_data_is_a_value_that_was_not_measured(tmp_path: Path) -> None:
    for lines in (raw(), details()):
        con = loaded(INPUT, [write(tmp_path / "a.csv", [line.replace('"n/a"', '"no data"') for line in lines])])
        assert rows(con, "SELECT count(*), count(value) FROM kernel_counters") == [(9, 7)]
        assert ("not_measured", "info", 2) in [row[:3] for row in rows(con, FINDINGS)]


@pytest.mark.parametrize(
    ("text", "expected"), [("CachePreferNone", ("text_value", "info", 1)), ("3,5", ("wrong_value", "warning", 1))]
)
def test_a_text_on_page_details_is_no_wrong_value(tmp_path: Path, text: str, expected: tuple[str, str, int]) -> None:
    """Texts in page details, as in the section Launch Statistics of ncu's default set, are not faults.

    A number with a decimal comma is a fault.
    """
    table = details()
    launch = csv_line([*of(0), "Launch Statistics", "Function Cache Configuration", "", text, ""])
    con = loaded(INPUT, [write(tmp_path / "a.csv", [*table[:2], launch, *table[2:]])])
    assert expected in [row[:3] for row in rows(con, FINDINGS)] and len(rows(con, FINDINGS)) == 4
    is_row = expected[0] == "wrong_value"
    assert rows(con, "SELECT count(*) FROM kernel_counters WHERE section = 'Launch Statistics'") == [(int(is_row),)]


def test_bad_lines_and_values_are_told_with_their_place(tmp_path: Path) -> None:
    table = details()
    table[2:2] = [
        csv_line([*of("x"), "S", "a", "", 1, ""]),
        csv_line([*of(0), "S", "a", "", 2**64, ""]),
        csv_line([*of(0), "S", "a", "", 1, ""]),
        "the program writes",
    ]
    con = loaded(INPUT, [write(tmp_path / "a.csv", [*table[:-2], table[-3][:-30]])])
    assert [(fault, n, detail.partition(":")[0]) for fault, severity, n, detail in rows(con, FINDINGS) if severity == "warning"] == [
        ("broken_line", 3, "line 3"), ("repeated", 1, "line 5"), ("wrong_value", 1, "line 4"),
    ]  # fmt: skip
    assert rows(con, "SELECT value FROM kernel_counters WHERE counter = 'a'") == [(None,)]
    assert rows(con, "SELECT count(*) FROM kernel_counters") == [(10,)]


def test_without_its_line_of_units_page_raw_has_none(tmp_path: Path) -> None:
    table = raw()
    con = loaded(INPUT, [write(tmp_path / "a.csv", [*table[:3], *table[4:]])])
    assert rows(con, "SELECT count(*), count(unit), count(duration_ns) FROM kernel_counters") == [(9, 0, 0)]
    assert ("no_units", "info", 1, "line 4 is not a line of units: unit is NULL") in rows(con, FINDINGS)


def test_a_summary_is_rejected(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", ['"Process ID","Kernel Name","Invocations","Metric Name","Average"'])
    with pytest.raises(Rejected, match="line 1 does not name id, metric value: print without --print-summary"):
        loaded(INPUT, [path])


def test_a_duration_of_zero_without_a_unit_is_unknown(tmp_path: Path) -> None:
    table = [csv_line([*BEFORE, *DETAILS]), csv_line([*of(1), "Speed Of Light", "gpu__time_duration.sum", "", "0", ""])]
    con = loaded(INPUT, [write(tmp_path / "a.csv", table)])
    assert rows(con, "SELECT value, unit, duration_ns FROM kernel_counters") == [(0.0, None, None)]
