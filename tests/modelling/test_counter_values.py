"""counter_values: both pages of Nsight Compute have the same metrics, in units without prefixes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.readers.counters.lake import INPUT
from tests.readers.counters.test_ncu import BEFORE, DETAILS, csv_line, of
from tests.readers.inputs.read_tables import loaded

# Label, unit and value on page details; metric, unit and value on page raw.
SAME = [
    ("Duration", "us", "93.66", "gpu__time_duration.sum", "ns", "93,660", 93.66e-6, "second"),
    ("DRAM Frequency", "Ghz", "2.5", "dram__cycles_elapsed.avg.per_second", "cycle/nsecond", "2.5", 2.5e9, "hz"),
    ("Memory Throughput", "%", "86.34", "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
     "%", "86.34", 86.34, "%"),
    ("Memory Throughput", "Tbyte/s", "2.5", "dram__bytes.sum.per_second",
     "Gbyte/second", "2,500", 2.5e12, "byte/second"),
    ("L2 Persisting Size", "Kbyte", "9.5", "launch__persisting_l2_cache_size", "byte", "9,500", 9500, "byte"),
    ("Block Limit SM", "block", "32", "launch__occupancy_limit_blocks", "block", "32", 32, "block"),
    ("Local Memory Spilling Requests", "", "0", "derived__local_spilling_requests", "", "0", 0, None),
    ("Local Memory Spilling Request Overhead", "%", "no data", "derived__local_spilling_requests_pct", "%", "n/a", None, "%"),
    ("A label of 2031", "furlong", "7", "A label of 2031", "furlong", "7", 7, "furlong"),
]  # fmt: skip
VALUES = "SELECT metric, value, unit FROM counter_values ORDER BY metric"
# Metrics that do not depend on the run, so that two runs agree to the last digit.
FIXED = "metric LIKE 'launch!_%' ESCAPE '!' OR metric LIKE 'sm!_!_maximum%' ESCAPE '!' OR metric LIKE 'derived%'"


def values(*files: Path) -> duckdb.DuckDBPyConnection:
    """Return a connection with the view over these files."""
    con = loaded(INPUT, files)
    run_models(con, load_catalog(), ["counter_labels", "counter_units"])
    con.execute(f"CREATE VIEW counter_values AS {load_catalog().models['counter_values'].sql}")
    return con


def rows(con: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    return con.execute(query).fetchall()


def test_both_pages_have_equal_values_whatever_prefix_each_chose(tmp_path: Path) -> None:
    details = [csv_line([*BEFORE, *DETAILS])]
    details += [csv_line([*of(0), f"Section {unit}", label, unit, value]) + "," for label, unit, value, *_ in SAME]
    raw = [
        csv_line([*BEFORE, *(case[3] for case in SAME)]),
        csv_line([*[""] * len(BEFORE), *(case[4] for case in SAME)]),
    ]
    raw += [csv_line([*of(0), *(case[5] for case in SAME)])]
    expected = sorted((metric, value, unit) for *_, metric, _, _, value, unit in SAME)
    for lines in (details, raw):
        (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
        assert rows(values(tmp_path / "a.csv"), VALUES) == [
            (metric, None if value is None else pytest.approx(value, rel=1e-12), unit)
            for metric, value, unit in expected
        ]


def test_pages_of_a_real_program_agree(shared: Path) -> None:
    """Both pages of two runs of the same kernels agree.

    The metrics that the launch decides are equal. Measured metrics differ by less than 3 %.
    """
    folder = shared / "traces" / "h100_files"
    if not folder.is_dir():
        pytest.skip(f"not there: {folder}")
    con = values(folder / "ncu_details.csv", folder / "ncu_raw.csv")
    con.execute("""
        CREATE VIEW both_pages AS
        SELECT d.dispatch_id, d.metric, d.unit, d.value AS details, r.value AS raw, r.unit AS raw_unit
        FROM counter_values AS d
        JOIN counter_values AS r USING (dispatch_id, metric, kernel_name, grid_threads, block_threads)
        WHERE d.source = 'ncu details' AND r.source = 'ncu raw'
    """)
    assert rows(con, "SELECT count(*), count(DISTINCT metric), count(DISTINCT dispatch_id) FROM both_pages") == [
        (245, 35, 7)
    ]
    assert rows(con, "SELECT count(*) FROM both_pages WHERE unit IS DISTINCT FROM raw_unit") == [(0,)]
    fixed = f"SELECT count(*), count(*) FILTER (details IS DISTINCT FROM raw) FROM both_pages WHERE {FIXED}"
    assert rows(con, fixed) == [(98, 0)]
    apart = "SELECT max(abs(details - raw) / greatest(abs(raw), 1)) FROM both_pages"
    assert rows(con, apart)[0][0] < 0.03
    durations = (
        "SELECT source, count(DISTINCT dispatch_id), count(duration_ns) = count(*) FROM kernel_counters GROUP BY ALL"
    )
    assert sorted(rows(con, durations)) == [("ncu details", 7, True), ("ncu raw", 7, True)]
    assert rows(con, "SELECT count(*) FROM counter_findings WHERE severity <> 'info'") == [(0,)]
