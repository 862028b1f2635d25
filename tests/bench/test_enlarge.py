"""A longer capture made from copies of a real trace."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from bench.enlarge import enlarge
from pipelines.synthetic import CaptureSpec, write_capture

REAL = Path(__file__).parents[2].parent / "shared" / "traces" / "critical_path" / "cuda_event_sync.json.gz"


def load(path: Path) -> dict:
    return json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())


def test_synthetic_three_times(tmp_path: Path) -> None:
    src = write_capture(CaptureSpec(ranks=1, steps=2, include_python_frames=True), tmp_path).paths[0]
    before, dst = load(src)["traceEvents"], tmp_path / "long" / "out.json"
    assert enlarge(src, dst, 3) == 3 * len(before)
    document = load(dst)
    events = document["traceEvents"]
    assert len(events) == 3 * len(before)
    assert {k: v for k, v in document.items() if k != "traceEvents"} == {
        k: v for k, v in load(src).items() if k != "traceEvents"
    }
    assert events[: len(before)] == before
    _check_copies(events, len(before), 3)


@pytest.mark.skipif(not REAL.exists(), reason="the shared real traces are not beside this checkout")
def test_real_four_times(tmp_path: Path) -> None:
    n = len(load(REAL)["traceEvents"])
    assert enlarge(REAL, tmp_path / "out.json.gz", 4) == 4 * n
    _check_copies(load(tmp_path / "out.json.gz")["traceEvents"], n, 4)


def _check_copies(events: list[dict], n: int, times: int) -> None:
    """Check that the copies keep their shape, follow each other in time, and share no id."""
    copies = [events[i * n : (i + 1) * n] for i in range(times)]
    ids, last_end = set(), float("-inf")
    for copy in copies:
        spans = [(e["ts"], e["ts"] + e["dur"]) for e in copy if e["ph"] == "X"]
        assert min(s for s, _ in spans) > last_end
        last_end = max(e for _, e in spans)
        correlations = {e["args"]["correlation"] for e in copy if e.get("args", {}).get("correlation", -1) > 0}
        flows = {e["id"] for e in copy if e["ph"] in "sf"}
        assert flows <= correlations and not ids & correlations
        ids |= correlations
        for old, new in zip(copies[0], copy, strict=True):
            assert old.keys() == new.keys() and old.get("dur") == new.get("dur")
    steps = [{e["name"] for e in c if e["name"].startswith("ProfilerStep#")} for c in copies]
    assert steps[0] and len(set().union(*steps)) == times * len(steps[0])


def test_times_that_no_double_holds(tmp_path: Path) -> None:
    src = tmp_path / "in.json"
    src.write_text('{"traceEvents": [{"ph": "X", "name": "50% \\"x\\"", "ts": 1712195495505583.123, "dur": 1.5}]}')
    enlarge(src, tmp_path / "out.json", 2)
    text = (tmp_path / "out.json").read_text()
    assert '"ts": 1712195495505583.123' in text and '"ts": 1712195495506584.123' in text
    assert [e["name"] for e in json.loads(text)["traceEvents"]] == ['50% "x"'] * 2


def test_copies_follow_the_last_event_of_any_kind_and_negative_times_keep_their_sign(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text(
        '{"traceEvents": [{"ph": "X", "ts": -1.5, "dur": 1}, {"ph": "i", "ts": 9000}, {"ph": "C", "ts": 2e3}]}'
    )
    enlarge(tmp_path / "in.json", tmp_path / "out.json", 2)
    times = [event["ts"] for event in load(tmp_path / "out.json")["traceEvents"]]
    assert times == [-1.5, 9000, 2000, 9999.5, 19001, 12001]


@pytest.mark.parametrize("text", ["[]", *(f'{{"traceEvents": [{{"ph": "{ph}", "ts": "1"}}]}}' for ph in "MX")])
def test_what_it_refuses(text: str, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text(text)
    with pytest.raises(ValueError):
        enlarge(tmp_path / "in.json", tmp_path / "out.json", 2)
