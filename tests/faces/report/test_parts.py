"""Separate parts of the page: folded layers, the queue's curve, the roofline, words, links into the docs."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.faces.report import macros
from pipelines.faces.report.cause_bars import cause_bars
from pipelines.faces.report.folded_rows import folded
from pipelines.faces.report.pictures.curve import STRETCHES
from pipelines.faces.report.pictures.roofline import roofline
from pipelines.faces.report.sections.launches import queue
from pipelines.faces.report.sections.times import _caveats, _through, breakdown
from pipelines.faces.report.tables import _tables
from pipelines.models.catalog import load_catalog
from pipelines.models.dry_run import types_of_tables
from tests.effort import examples


def layer(name: str, ns: int | None, mfu: float | None = 0.5, **more: Any) -> dict[str, Any]:
    return {"name": name, "n": 1, "mfu": mfu, "bound_by": "memory", "ns": ns, **more}


def test_equal_layers_are_one_row_and_the_odd_one_stands_out() -> None:
    rows = [layer(f"Block_{i}.mlp", 100 + i, 0.4) for i in range(8)]
    rows += [layer("Block_8.mlp", 200), layer("Head_0", 50), layer("Head_1", 51), layer("Tail_0", None)]
    folded_rows = folded(rows, ("n", "ns"), alike=("bound_by",))
    assert [(row["name"], row["n"], row["ns"]) for row in folded_rows] == [
        ("Block_{0…7}.mlp (8 alike)", 8, sum(range(100, 108))),
        ("Block_8.mlp", 1, 200),
        ("Head_1", 1, 51),
        ("Head_0", 1, 50),
        ("Tail_0", 1, None),
    ]
    assert folded_rows[0]["mfu"] == pytest.approx(0.4) and folded_rows[0]["bound_by"] == "memory"


def test_ratios_of_folded_layers_are_weighted_by_their_time() -> None:
    rows = [layer("L_0", 100, 0.2), layer("L_1", 120, 0.4), layer("L_2", 110, None)]
    (row,) = folded(rows, ("n", "ns"))
    assert row["mfu"] == pytest.approx((100 * 0.2 + 120 * 0.4) / 220)


@pytest.mark.parametrize(
    ("numbers", "lines"),
    [
        ([3, 3], ["rank 0: 3 waits (likewise rank 1)"]),
        ([3, 950], ["rank 0: 3 waits", "rank 1: 950 waits"]),
        ([3, 4, 3], ["rank 0: 3 waits (likewise rank 2)", "rank 1: 4 waits"]),
        ([0, 1, 2, 3, 4], [f"rank {rank}: {rank} waits" for rank in range(5)]),
        (
            [0, 1, 2, 3, 4, 5],
            [f"rank {rank}: {rank} waits" for rank in range(5)]
            + ["rank 5: the same with other numbers (see caveat no_sync_events in table critical_path_caveats)"],
        ),
    ],
)
def test_a_rank_has_its_own_numbers_in_caveats_of_paths(numbers: list[int], lines: list[str]) -> None:
    rows = [
        {"rank": rank, "path": "f", "trace_id": f"t{rank}", "caveat": "no_sync_events", "detail": f"{n} waits"}
        for rank, n in enumerate(numbers)
    ]
    subject: Any = SimpleNamespace(rows_of_all=lambda _: rows, shown={"trace_id": "t0"})
    assert re.findall(r"<p[^>]*>(.*?)</p>", _caveats(subject)) == lines


def test_bars_of_several_devices_of_a_rank_name_the_device() -> None:
    times = dict.fromkeys(("span_ns", "non_compute_ns", "communication_ns", "exposed_communication_ns"), 50)
    for n_devices, names in ((2, ["rank 0, device 0", "rank 0, device 1"]), (1, ["rank 0"])):
        row = {"trace_id": "t", "rank": 0, "path": "f", **times}
        rows = [defaultdict(int, row, device=device) for device in range(n_devices)]
        subject: Any = SimpleNamespace(rows_of_all=lambda *_, r=rows: r, rows_of_capture=lambda _: [])
        assert re.findall(r'class="label">([^<]*)<', breakdown(subject).body) == 2 * names


@pytest.mark.parametrize(("wait_ns", "is_split"), [(None, False), (0, True)])
def test_exposed_communication_is_split_only_if_other_ranks_are_known(wait_ns: int | None, is_split: bool) -> None:
    times = dict.fromkeys(("span_ns", "non_compute_ns", "communication_ns", "exposed_communication_ns"), 50)
    row = defaultdict(int, {"trace_id": "t", "rank": 0, "path": "f", "device": 0, **times})
    transfer_ns, unsplit_ns = (None, 50) if wait_ns is None else (50, 0)
    parts = {"rank": 0, "device": 0, "wait_ns": wait_ns, "transfer_ns": transfer_ns, "unsplit_ns": unsplit_ns}
    answers = {"exposed-communication": [parts]}
    subject: Any = SimpleNamespace(
        rows_of_all=lambda *_: [row], rows_of_capture=lambda question: answers.get(question, [])
    )
    assert ("waiting for late ranks, " in breakdown(subject).body) == is_split


def test_a_page_says_that_the_path_through_a_capture_is_gone_while_the_shown_rank_is_whole() -> None:
    """The page says that only a digest of the capture is kept, although the shown rank a is whole.

    A killed reduction leaves such a capture. The capture's tables and rank b are digests.
    """
    con, types = duckdb.connect(), types_of_tables(load_catalog())
    rows = {
        "captures": "'c' AS capture_id",
        "capture_paths": "'c' AS capture_id, 'last_gpu_end' AS target, 7980000 AS span_ns",
        "capture_ranks": "'c' AS capture_id, unnest(['a', 'b']) AS trace_id",
        "findings": "'b' AS trace_id, 'reduced_to_digest' AS check_name",
    }
    for table, values in rows.items():
        con.execute(f"CREATE TABLE {table} ({', '.join(f'{column} {kind}' for column, kind in types[table])})")
        con.execute(f"INSERT INTO {table} BY NAME SELECT {values}")
    subject: Any = SimpleNamespace(con=con, capture_id="c", traces=[{"trace_id": "a"}, {"trace_id": "b"}])
    assert "only a digest of this capture is kept" in _through(subject)


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a_#", "b_#.c", "d", "e_#_#"]), st.integers(0, 9), st.integers(1, 50), st.booleans()
        ),
        max_size=30,
    )
)
def test_folding_loses_nothing(layers: list[tuple[str, int, int, bool]]) -> None:
    rows = [layer(shape.replace("#", str(i)), ns, kind=kind) for shape, i, ns, kind in layers]
    folded_rows = folded(rows, ("n", "ns"), alike=("kind",))
    assert sum(row["n"] for row in folded_rows) == len(rows)
    assert sum(row["ns"] for row in folded_rows) == sum(row["ns"] for row in rows)
    assert [row["ns"] for row in folded_rows] == sorted((row["ns"] for row in folded_rows), reverse=True)


@pytest.mark.parametrize("seed", range(4))
def test_the_queue_s_curve_is_the_longest_queue_of_each_stretch(seed: int) -> None:
    dice = random.Random(seed)
    span = (1, 50, 3_000, 10**6)[seed]
    changes = []
    for _ in range((1, 6, 60, 90)[seed]):
        start = dice.randrange(span)
        changes += [(start, 1), (dice.randrange(start, span + 1), -1)]
    con = duckdb.connect()
    con.execute("CREATE TABLE traces AS SELECT 't' AS trace_id, 'j' AS job, 'f' AS file, 0 AS rank")
    con.execute("CREATE TABLE queue_length (trace_id VARCHAR, at_ns BIGINT, change BIGINT)")
    con.executemany("INSERT INTO queue_length VALUES ('t', ?, ?)", changes)
    curve, length = queue(con, "t")
    times = sorted({at for at, _ in changes})
    first, whole = times[0], times[-1] - times[0] + 1
    assert length == whole
    expected = [0.0] * STRETCHES
    for at, until in zip(times, [*times[1:], times[-1]], strict=True):
        waiting = float(sum(change for ts, change in changes if ts <= at))
        for place in range((at - first) * STRETCHES // whole, (until - first) * STRETCHES // whole + 1):
            expected[place] = max(expected[place], waiting)
    assert curve == expected


def operator(flops: int, size: int, gpu_ns: int, dtype: str = "bf16") -> dict[str, Any]:
    """Return an operator on a device of 1000 TFLOP/s and 2000 GB/s."""
    return {
        "op": "aten::mm", "dtype": dtype, "n_ops": 1, "flops_matrix": flops, "bytes": size, "gpu_ns": gpu_ns,
        "ideal_ns": flops / 1e6, "memory_ns": size / 2000, "tflops": flops / gpu_ns / 1000, "roofline_utilization": 0.5,
    }  # fmt: skip


def test_no_operator_is_above_its_roof_and_slower_ones_are_lower() -> None:
    rows = [operator(10**9, 10**6, 2_000), operator(10**9, 10**6, 4_000), operator(10**7, 10**6, 1_000)]
    svg = roofline("r", rows) or ""
    boxes = [
        (float(x) + float(w) / 2, float(y) + float(w) / 2)
        for x, y, w in re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="[\d.]+" class="op"', svg)
    ]
    roofs = [tuple(map(float, roof)) for roof in re.findall(r'class="roof" x1="([\d.]+)" y1="([\d.]+)" x2="([\d.]+)" y2="([\d.]+)"', svg)]  # fmt: skip
    assert len(boxes) == 3 and len(roofs) == 2
    assert boxes[0][0] == pytest.approx(boxes[1][0], abs=0.1) and boxes[0][1] < boxes[1][1]
    for x, y in boxes:
        x1, y1, x2, y2 = next(roof for roof in roofs if roof[0] <= x <= roof[2])
        assert y >= y1 + (y2 - y1) * (x - x1) / (x2 - x1) - 0.2
    assert roofline("r", [{**rows[0], "ideal_ns": None}]) is None and roofline("r", []) is None


@pytest.mark.parametrize(
    ("base", "address"),
    [
        ("", ""),
        ("https://x.org/docs", "https://x.org/docs/critical-path.md"),
        ("https://x.org/site/", "https://x.org/site/critical-path/"),
    ],
)
def test_links_into_the_docs(base: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(macros.DOCS, base)
    assert macros.docs_address("critical-path.md") == address


def test_causes_that_are_often_in_one_window_differ_in_colour() -> None:
    """Causes that often occur in one window differ in colour.

    The reader identifies the parts of the bar only by the legend.
    """
    often = ("gpu_computing", "communication", "late_rank", "copies", "launching", "gpu_waiting", "host_operators",
             "host_between_operators", "data_loading", "synchronization", "optimizer", "start", "earlier_work")  # fmt: skip
    bars = cause_bars([("the window", [(cause, 1) for cause in often])])
    colours = re.findall(r'<span class="([^"]*)" style=', bars)
    assert len(set(colours)) == len(often)
    style = files("pipelines.faces.report").joinpath("templates/page.css").read_text()
    for colour in set(colours):
        assert f".{colour} {{ background: var(--{colour})" in style and f"--{colour}: #" in style, colour


def test_the_legend_has_only_causes_that_can_be_seen() -> None:
    bars = cause_bars(
        [("long", [("gpu_computing", 9_989), ("copies", 11)]), ("short", [("launching", 9), ("data_loading", 0)])]
    )
    legend = bars[bars.index('class="legend"') :]
    assert "GPU computing" in legend and "copies exposed" in legend
    assert "launching" not in legend and "data loading" not in legend


def test_numbers_of_the_lake_have_formats_of_numbers() -> None:
    """Every numeric column of a report's table has the format of a number.

    The name of a column selects its format. Without a matching rule a number would be shown as a name, with all digits.
    """
    types = {table: dict(columns) for table, columns in types_of_tables(load_catalog()).items()}
    numbers = {"BIGINT", "DOUBLE", "INTEGER"}
    names = {
        (question, column.key)
        for question, table in _tables().items()
        for column in table.columns
        if types.get(table.of, {}).get(column.key) in numbers and not column.is_number
    }
    assert names == set()
