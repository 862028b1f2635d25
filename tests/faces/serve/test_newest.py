"""The answer that the page shows first: why the newest capture or trace takes as long as it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")

from pipelines.base.foreign_text import visible
from pipelines.faces import capture_why
from pipelines.faces.serve.newest import NEWEST, newest_why
from pipelines.faces.untrusted_queries import LakeQuery
from pipelines.faces.why import TABLES, Why, why
from pipelines.lake import Lake
from pipelines.lake.read.sandbox import QueryStopped
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.synthetic import CaptureSpec, write_capture
from tests.faces.serve.world import write_hostile

CAPTURE = [*capture_why.TABLES]
TRACE = [*TABLES]


@pytest.mark.slow  # 5 s; test_capture_causes.py tests `why` of a capture
def test_it_is_the_newest_and_says_what_why_says(tmp_path: Path) -> None:
    """The shown answer is about the newest capture or trace, and equals that of `why`.

    The newest is a capture with its tables, then a newer trace without its tables, then with them.
    """
    lake = Lake(tmp_path / "lake")
    write_capture(CaptureSpec(), tmp_path / "capture")
    ingest([tmp_path / "capture"], lake, job="train")
    materialize_all(lake, [*TRACE, *CAPTURE])
    shown = newest_why(LakeQuery(lake.root, NEWEST))
    with lake.connect(CAPTURE) as con:
        ((capture,),) = con.execute("SELECT DISTINCT capture_id FROM traces").fetchall()
        of_all = capture_why.capture_why(con, capture)
    assert of_all is not None and (shown["id"], shown["sentence"]) == (capture, of_all.sentence)
    assert shown["title"] == "The newest capture of job train" and "2 ranks" in shown["sentence"]
    assert [cause["description"] for cause in shown["causes"]] == [
        cause.description(1) for cause in of_all.causes[: len(shown["causes"])]
    ]
    assert all(cause["command"].endswith(f" --lake {lake.root}") for cause in shown["causes"]) and shown["causes"]

    path = write_hostile(tmp_path / "\u202e<i>.json", 7)
    trace = ingest([path], lake, job="<b>").rows[0].trace_id
    assert trace is not None
    shown = newest_why(LakeQuery(lake.root, NEWEST))
    assert (shown["id"], shown["causes"]) == (trace, []) and "not computed yet" in shown["sentence"]
    (command,) = (caveat for caveat in shown["caveats"] if " are not computed" in caveat)
    assert all(name in command.partition(": tracelake materialize ")[2] for name in TRACE)

    materialize_all(lake, TRACE)
    shown = newest_why(LakeQuery(lake.root, NEWEST))
    with lake.connect(["events", *TRACE]) as con:
        answer = why(con, trace)
    assert answer is not None and (shown["id"], shown["sentence"]) == (trace, visible(answer.sentence))
    assert shown["title"] == r"The newest trace of job <b>: \u202e<i>.json, rank 7"
    assert sum(float(cause["share"].removesuffix(" %")) for cause in shown["causes"]) == pytest.approx(100, abs=0.2)
    names = next(cause["names"] for cause in shown["causes"] if cause["description"].startswith("GPU computing"))
    assert r"\u202e=1+1" in names  # it is text, so the page does not turn it into markup

    stopped = LakeQuery(lake.root, NEWEST)
    stopped.stop()
    with pytest.raises(QueryStopped):
        newest_why(stopped)


def test_it_says_that_only_a_digest_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer says that only a digest is kept, which is not a caveat of the path."""
    newest = {"trace_id": "a", "file": "a.json", "job": None, "rank": None}
    finding = ["a", "a.json", "reduced_to_digest", "info", "only its digest is kept"]
    cut = {"caveat": "truncated", "severity": "error", "detail": "ends in an event"}
    findings = [finding, ["a", "a.json", *cut.values()]]

    def asked(_: LakeQuery, query: str) -> tuple[list[dict[str, Any]], list[str]]:
        rows = [dict(zip("abcde", row, strict=True)) for row in findings]
        return ([newest] if query == NEWEST else rows if "JOIN findings" in query and "= 'a'" in query else [{}]), []

    of_trace = Why("", {"length_ns": 9, "busy_ns": 0, "n_steps": 0, "steps_ns": 0}, [], [cut])
    monkeypatch.setattr("pipelines.faces.serve.newest._asked", asked)
    monkeypatch.setattr("pipelines.faces.serve.newest._answer", lambda *_: of_trace)
    (early, digest) = newest_why(LakeQuery(Path("lake"), NEWEST))["caveats"]
    assert early.startswith("a.json is truncated") and digest == "a.json: only its digest is kept"
