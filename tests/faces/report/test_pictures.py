"""Pictures in Dagster's metadata: those of the newest capture and trace of a lake, and none where there is nothing."""

from __future__ import annotations

import base64
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("dagster", reason="the extra dagster is not installed")

from assets.pictures import pictures
from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.synthetic import CaptureSpec, write_capture


def drawn(value: Any) -> list[str]:
    """The tooltips of a picture that was embedded in Markdown."""
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
