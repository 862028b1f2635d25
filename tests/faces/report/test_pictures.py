"""Charts in Dagster's metadata: they show the newest capture and trace of a lake, and an empty lake has none."""

from __future__ import annotations

import base64
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("dagster", reason="the extra dagster is not installed")

from assets.pictures import pictures
from pipelines.faces.what_helps import SHOWN
from pipelines.faces.why import TABLES
from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.synthetic import CaptureSpec, write_capture


def drawn(value: Any) -> list[str]:
    """Return the tooltips of a chart that is embedded in Markdown."""
    data = value.value.partition("base64,")[2].removesuffix(")")
    return [title.text or "" for title in ET.fromstring(base64.b64decode(data)).iterfind(".//{*}title")]


def _newest(lake: Lake) -> str:
    with lake.connect(["traces"]) as con:
        return con.execute("SELECT path FROM traces ORDER BY ingested_at DESC, trace_id").fetchall()[0][0]


@pytest.mark.slow
def test_a_capture_s_pictures(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    assert pictures(lake, "rank_steps") == {}
    capture = write_capture(CaptureSpec(ranks=2, steps=3), tmp_path / "in")
    ingest(capture.paths, lake)
    materialize_all(lake, ["straggler_ranks", "rank_steps", "spans", "span_utilization"])
    ((name, ranks),) = pictures(lake, "rank_steps").items()
    assert name.startswith("ranks by steps of the newest capture, no job ")
    cells = drawn(ranks)
    assert len(cells) == 2 * 3 and any(cell.startswith("rank 1, step 2:") for cell in cells)
    ((name, layers),) = pictures(lake, "span_utilization").items()
    assert name == f"layers of the newest trace, {Path(_newest(lake)).name}"
    boxes = drawn(layers)
    assert any(box.startswith("step ProfilerStep#") for box in boxes)
    assert pictures(lake, "kernels") == {}


@pytest.mark.slow
def test_the_answer_is_on_the_pages_of_path_causes_and_fixes(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    capture = write_capture(CaptureSpec(ranks=2, steps=3), tmp_path / "in")
    ingest(capture.paths, lake)
    assert pictures(lake, "causes") == {}  # not computed yet
    materialize_all(lake, [*TABLES, "critical_path"])
    for table in ("critical_path", "causes", "fixes"):
        newest, why, fixes, bars = pictures(lake, table).values()
        assert str(newest.value).startswith(f"{Path(_newest(lake)).name}: Of ")
        for path in capture.paths:
            (line,) = (line for line in str(why.value).splitlines() if path.name in line)
            assert "the GPU computes" in line
            shares = [float(text.rpartition("(")[2].removesuffix(" %)")) for text in drawn(bars) if path.name in text]
            assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares))
        with lake.connect(["fixes"]) as con:
            numbers = con.execute("SELECT count(*) FROM fixes WHERE window_id = 'full' GROUP BY trace_id").fetchall()
        assert len(str(fixes.value).splitlines()) - 2 == sum(min(n, SHOWN) for (n,) in numbers) > 0
