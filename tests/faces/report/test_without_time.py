"""Charts without a time axis: a hexagon for each rank and layer, and an area for each utilization.

Unknown values have neither.
"""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.faces.report.pictures.timeless_events import honeycomb, radar
from pipelines.faces.report.sections.spans import sampled_layers, without_time
from pipelines.faces.report.subject import Subject


def test_the_honeycomb_has_a_cell_for_each_rank_and_layer_that_is_there() -> None:
    drawn = honeycomb("t", ["a<b", "c"], {3: {"a<b": 1.0, "c": 4.0}, 0: {"c": 2.0}}, "ms") or ""
    ElementTree.fromstring(drawn)
    says = re.findall(r"<title>(.*?)</title>", drawn)
    assert says == ["rank 0, c: 2 ms", "rank 3, a&lt;b: 1 ms", "rank 3, c: 4 ms"]
    assert len(set(re.findall(r'class="cell" points="[^"]*" fill="([^"]*)"', drawn))) == 3
    assert honeycomb("t", ["a"], {0: {"a": 0.0}}, "ms") is None and honeycomb("t", [], {}, "ms") is None


def test_the_radar_ends_at_the_rim_and_does_not_close_over_the_unknown() -> None:
    shares = {
        "compute": {"a": 0.5, "b": 0.25, "c": 9.0},
        "memory": {"a": 0.5, "b": None, "c": 1.0},
        "none": {"a": None},
    }
    drawn = radar("t", ["a", "b", "c"], shares) or ""
    ElementTree.fromstring(drawn)
    whole, open_area = re.findall(r'<(polygon|polyline) class="area" points="([^"]*)"', drawn)
    assert whole[0] == "polygon" and open_area[0] == "polyline" and len(open_area[1].split()) == 2
    assert whole[1].split()[0] == "330.0,165.0" and whole[1].split()[2] == open_area[1].split()[1]
    assert "none</text>" not in drawn
    assert radar("t", ["a", "b"], shares) is None and radar("t", ["a", "b", "c"], {"x": {"a": None}}) is None


def test_the_section_has_what_modules_of_each_rank_took() -> None:
    """A trace without modules has no cells. Ranks are aligned by layer, and a rank without peaks has no radar chart."""
    traces = [
        {"trace_id": trace_id, "rank": rank, "path": f"{trace_id}.json"} for trace_id, rank in (("a", 0), ("b", 5))
    ]
    con = duckdb.connect()
    subject = Subject(con, "c", traces, traces[0], "")
    con.execute("CREATE TABLE traces AS SELECT trace_id, 'j' AS job, trace_id AS file, rank "
                "FROM (VALUES ('a', 0), ('b', 5), ('c', 1)) AS t (trace_id, rank)")  # fmt: skip
    con.execute("CREATE TABLE span_names (trace_id VARCHAR, name VARCHAR, kind VARCHAR, phase VARCHAR, busy_ns BIGINT)")
    con.execute("CREATE TABLE span_name_utilization (trace_id VARCHAR, name VARCHAR, peak_kind VARCHAR, kind VARCHAR, "
                "phase VARCHAR, busy_ns BIGINT, mfu_busy DOUBLE, bandwidth_utilization DOUBLE, roofline_utilization DOUBLE)")  # fmt: skip
    con.execute("INSERT INTO span_names VALUES ('a', 'all', 'step', 'fwd', 9e6), ('c', 'x', 'module', 'fwd', 9e6)")
    assert without_time(subject) is None
    con.execute("INSERT INTO span_names VALUES ('a', 'mlp', 'module', 'fwd', 1e6), ('a', 'mlp', 'module', 'bwd', 2e6), "
                "('b', 'mlp', 'module', 'fwd', 4e6), ('b', 'attn', 'module', 'fwd', 0)")  # fmt: skip
    drawn = str(without_time(subject))
    assert re.findall(r"<title>(.*?)</title>", drawn) == ["rank 0, mlp: 3 ms", "rank 5, mlp: 4 ms"]
    assert "utilization of layers" not in drawn
    con.execute("UPDATE traces SET rank = NULL WHERE trace_id = 'b'")
    con.execute("INSERT INTO traces VALUES ('d', 'j', 'b', NULL)")
    con.execute("INSERT INTO span_names VALUES ('d', 'mlp', 'module', 'fwd', 8e6)")
    unranked = [{"trace_id": trace_id, "rank": None, "path": "x/b.json"} for trace_id in ("b", "d")]
    drawn = str(without_time(Subject(con, "c", [traces[0], *unranked], traces[0], "")))
    says = ["rank 0, mlp: 3 ms", "b.json (b), mlp: 4 ms", "b.json (d), mlp: 8 ms"]
    assert re.findall(r"<title>(.*?)</title>", drawn) == says
    drawn = str(without_time(Subject(con, None, unranked[:1], unranked[0], "")))
    assert re.findall(r"<title>(.*?)</title>", drawn) == ["rank 0, mlp: 4 ms"]
    con.execute("INSERT INTO span_name_utilization SELECT 'a', name, 'datasheet', 'module', 'fwd', 1, 0.5, 0.5, 0.5 "
                "FROM unnest(['m', 'n', 'o']) AS names(name)")  # fmt: skip
    assert "utilization of layers" in str(without_time(subject))


def test_sampled_modules_of_the_newest_recorded_run_are_drawn_likewise() -> None:
    """A rank that was recorded twice and a recording without a rank have separate rows.

    The radar chart is about rank 0.
    """
    con = duckdb.connect()
    con.execute("CREATE TABLE recordings AS SELECT * FROM (VALUES ('old', 'spans', 1), ('new', 'spans', 2)) AS t (run_id, kind, start_ns)")  # fmt: skip
    con.execute("CREATE TABLE span_sample_utilization (recording_id VARCHAR, run_id VARCHAR, rank BIGINT, step BIGINT, span_id BIGINT, "
                "name VARCHAR, phase VARCHAR, duration_ns BIGINT, not_measured VARCHAR, peak_kind VARCHAR, mfu_wall DOUBLE, "
                "bandwidth_utilization DOUBLE, roofline_utilization DOUBLE, suspect BOOLEAN)")  # fmt: skip
    con.execute("CREATE TABLE span_sample_modules (recording_id VARCHAR, step BIGINT, name VARCHAR, is_census BOOLEAN)")
    con.execute("CREATE TABLE span_samples (recording_id VARCHAR, phase VARCHAR, is_census BOOLEAN)")
    assert sampled_layers(con) == {}
    con.execute("INSERT INTO span_sample_utilization SELECT recording_id, run_id, rank, 0, row_number() OVER (), name, phase, ms * 1e6, "
                "NULL, 'datasheet', percent / 100, NULL, NULL, false FROM (VALUES "
                "('o', 'old', 7, 'm', 'forward', 9, 90), ('a', 'new', 0, 'm', 'forward', 3, 50), ('a', 'new', 0, 'm', 'backward', 2, 10), "
                "('a', 'new', 0, 'n', 'forward', 2, 25), ('b', 'new', 1, 'm', 'forward', 4, 75), ('c', 'new', 1, 'm', 'forward', 5, 75), "
                "('d', 'new', NULL, 'm', 'forward', 6, 75)) AS t (recording_id, run_id, rank, name, phase, ms, percent)")  # fmt: skip
    cells, radar_of_two = sampled_layers(con).values()
    says = ["rank 0, m: 5", "rank 0, n: 2", "b, m: 4", "c, m: 5", "d, m: 6"]
    assert re.findall(r"<title>(.*?)</title>", cells or "") == [f"{text} ms per sampled step" for text in says]
    assert radar_of_two is None
    con.execute("INSERT INTO span_sample_utilization BY NAME SELECT * REPLACE (99 AS span_id, 'o' AS name) "
                "FROM span_sample_utilization WHERE name = 'n'")  # fmt: skip
    title, drawn = list(sampled_layers(con).items())[1]
    assert title == "utilization of modules in forward, run new, rank 0"
    (area,) = re.findall(r'<polygon class="area" points="([^"]*)"', drawn or "")
    assert area.split()[0] == "330.0,165.0" and "memory bandwidth" not in (drawn or "")


@pytest.mark.slow  # the section itself is tested above
def test_the_section_on_a_trace_with_modules(shared: Path, tmp_path: Path) -> None:
    file = shared / "traces" / "single" / "mi300_sglang_decode_graph.json.gz"
    if not file.is_file():
        pytest.skip("needs ../shared")
    done = CliRunner().invoke(app, ["report", str(file), "--out", str(tmp_path / "page.html")])
    assert done.exit_code == 0 and "GPU time of modules by rank" in (tmp_path / "page.html").read_text()
