"""Tests of the tables of recorded pairs: their input, the measured factors, and the comparison of predictions."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.base.datafiles import rule_rows
from tests.critical_path.pairs import predictions
from tests.critical_path.pairs.earlier import EARLIER
from tests.critical_path.pairs.predictions import Judged, Prediction, Refused, first_cause, judge
from tests.critical_path.pairs.ratios import NothingMeasured, measured_scales
from tests.critical_path.pairs.recorded import FOLDERS, Pair, read
from tests.critical_path.pairs.tables import causes_table, fixes_score, predictions_table, profiler_table
from tests.effort import first_of
from tests.harness import call, kernel
from tests.pages import DOCS

RECORDED, FIRST = FOLDERS


def pair(name: str) -> Pair:
    """Return the pair recorded by bench/pairs with this name."""
    (pair,) = (pair for pair in read(RECORDED).pairs if pair.name == name)
    return pair


def test_recorded_pairs_are_read_with_their_traces() -> None:
    recording = read(RECORDED)
    assert len(recording.pairs) == 62 and "H100" in recording.device
    assert len(pair("late_rank").before) == 4 and len(pair("products").after) == 1
    assert pair("products").traced == pytest.approx(0.518, abs=0.001)
    assert pair("products").untraced == pytest.approx(0.512, abs=0.001)


def test_the_first_twelve_are_expected_in_the_same_words(shared: Path) -> None:
    recording = read(FIRST)
    assert {pair.name for pair in recording.pairs} == {*EARLIER}
    causes = {row["cause"] for row in rule_rows("cause_kinds")}
    for known in recording.pairs:
        assert known.causes and {*known.causes, *known.forbidden} <= causes, known.name
        assert not {*known.causes} & {*known.forbidden}, known.name
    assert {known.name for known in recording.pairs if known.untraced is None} == {"recompiles"}


def test_a_folder_without_its_traces_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "truth.json").write_bytes((RECORDED / "truth.json").read_bytes())
    with pytest.raises(FileNotFoundError, match="unpack the archives"):
        read(tmp_path)


def raw_time(trace: Path, part: str, category: str) -> float:
    with gzip.open(trace) as file:
        events = json.load(file)["traceEvents"]
    return sum(event["dur"] for event in events if event.get("cat") == category and part in event["name"])


@pytest.mark.parametrize(
    ("name", "target", "part", "category"),
    first_of(
        [
            ("products", "op:aten::mm", "gemm", "kernel"),
            ("products", "kernel:*gemm*", "gemm", "kernel"),
            ("products", "class:COMPUTATION", "", "kernel"),
            ("products", "aten::mm", "aten::mm", "cpu_op"),
        ],
        1,
    ),
)
def test_factors_are_those_of_the_raw_traces(name: str, target: str, part: str, category: str) -> None:
    known = replace(pair(name), ratio=(target,))
    (option, scale) = measured_scales(known)
    named, _, factor = scale.rpartition("=")
    of_a, of_b = (raw_time(trace, part, category) for (trace,) in (known.before, known.after))
    assert (option, named) == ("--scale", target)
    assert float(factor) == pytest.approx(of_b / of_a, rel=1e-3)


def test_streams_are_matched_by_their_first_launch_not_by_their_number(tmp_path: Path) -> None:
    traces = []
    for variant, streams in (("A", (20, 24)), ("B", (28, 8))):
        path = tmp_path / f"{variant}.json"
        durations = (100, 40) if variant == "A" else (50, 40)
        work = [
            (call("cudaLaunchKernel", 10 * n, 2, n), kernel("gemm", 100, duration, n, stream))
            for n, (stream, duration) in enumerate(zip(streams, durations, strict=True), start=1)
        ]
        path.write_text(json.dumps({"traceEvents": [event for pair in work for event in pair]}))
        traces.append((path,))
    known = replace(pair("products"), before=traces[0], after=traces[1], ratio=("stream:*",))
    assert measured_scales(known) == ["--scale", "stream:20=0.5", "--scale", "stream:24=1"]


@pytest.mark.slow  # 2 s
def test_a_target_without_time_has_no_factor() -> None:
    with pytest.raises(NothingMeasured, match=r"products: nothing in products\.A\.json\.gz is kernel:nothing"):
        measured_scales(replace(pair("products"), ratio=("kernel:nothing",)))
    with pytest.raises(ValueError, match=r"only stream:\*"):
        measured_scales(replace(pair("products"), ratio=("stream:7",)))


@pytest.mark.slow  # 4 s
def test_a_pair_is_judged_by_its_command_and_its_sentence() -> None:
    judged = judge(replace(pair("products"), whatif=("--scale", "op:aten::mm=0.5"), ratio=()))
    assert judged.cause == "gpu_computing"
    (prediction,) = judged.predictions
    assert prediction.way == "--scale op:aten::mm=0.5"
    assert prediction.percent == pytest.approx(100 * (judged.pair.traced - 1), abs=4)


@pytest.mark.slow  # 4 s
def test_a_command_that_fails_is_a_prediction_without_a_number() -> None:
    (refused,) = judge(replace(pair("products"), whatif=("--remove", "no such name"), ratio=())).predictions
    assert refused.percent is None and "no such name" in refused.reason
    assert refused.way == "--remove 'no such name'"


def test_a_fix_predicts_what_why_says_it_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    known = replace(pair("garbage"), whatif=(), ratio=())
    fixes = [{"fix": "no_gc", "saves_us": part * known.timed_us} for part in (0.5, 0.75)]
    answer = {"causes": [], "fixes": fixes}
    monkeypatch.setattr(predictions, "_answer", lambda *words: answer)
    assert judge(known).predictions == (Prediction("fix no_gc", -75.0),)
    assert [prediction.percent for prediction in judge(replace(known, fix="even_ranks")).predictions] == [None]
    del answer["fixes"]
    assert judge(known).predictions == ()


def test_the_first_cause_has_most_of_all_its_rows() -> None:
    rows = [("copies", 40), ("launching", 30), ("launching", 25)]
    assert first_cause({"causes": [{"cause": cause, "share_percent": share} for cause, share in rows]}) == "launching"
    assert first_cause({"causes": []}) is None


def test_without_a_sentence_there_is_no_judgement(tmp_path: Path) -> None:
    with pytest.raises(Refused):
        judge(replace(pair("products"), before=(tmp_path / "missing.json",)))


def test_tables_have_errors_in_points_scores_and_reasons() -> None:
    known = replace(pair("products"), traced=0.5, untraced=None, causes=("copies",), forbidden=("launching",))
    judged = [
        Judged(known, (Prediction("--remove x", -48.0),), "copies"),
        Judged(known, (Prediction("--remove y", -38.0), Prediction("fix z", None, "no such fix")), "launching"),
        Judged(replace(known, note="a reason"), (Prediction("--remove w", -20.0),), "start"),
    ]
    table = predictions_table(read(RECORDED), judged)
    assert "| products | half the columns | `--remove x` | -48.0 | -50.0 |  | +2.0 |" in table
    assert "3 of 4 answered: median 12.0 points off, nine of ten within 26.4, 2 more than 10." in table
    assert [line for line in table.splitlines() if line.startswith("- ")] == [
        "- products, `--remove y`: no reason is known",
        "- products, `fix z`: no such fix",
        "- products, `--remove w`: a reason",
    ]
    known = replace(known, untraced=0.7)  # -50 with the profiler, -30 without
    judged = [
        Judged(
            known,
            (
                Prediction("--remove y", -20.1),
                Prediction("--remove x", -19.9),
                Prediction("fix z", -59.9, is_untraced=True),
            ),
            "copies",
        )
    ]
    table = predictions_table(read(RECORDED), judged)
    assert "| `--remove x` | -19.9 | -50.0 | -30.0 | +30.1 |" in table
    assert "| `fix z`, without the profiler | -59.9 | -50.0 | -30.0 | -29.9 |" in table
    assert [line for line in table.splitlines() if line.startswith("- ")] == [
        "- products, `--remove y`: the profiler: 9.9 points off the runs without it",
        "- products, `--remove x`: no reason is known",
        "- products, `fix z`: the profiler: 9.9 points off the runs with it",
    ]


def test_the_predictions_of_fixes_have_a_score_of_their_own() -> None:
    known = replace(pair("products"), traced=0.5, untraced=0.7)
    predictions = (
        *(
            Prediction("--remove x", -10.0),
            Prediction("fix a", -48.0),
            Prediction("fix b", None, "not among the fixes"),
        ),
        Prediction("fix c", -18.0, is_untraced=True),
    )
    score = fixes_score(read(RECORDED), [Judged(known, predictions, "copies")])
    assert score.startswith("- `h100` (") and score.endswith(
        ": 2 of 3 answered: median 7.0 points off, nine of ten within 11.0, 1 more than 10."
    )


def test_first_causes_have_scores() -> None:
    known = replace(pair("products"), causes=("copies",), forbidden=("launching",))
    judged = [Judged(known, (), cause) for cause in ("copies", "launching", "start")]
    scores = causes_table(read(RECORDED), judged)
    assert "| products | launching | copies | **no** | **launching** |" in scores
    assert "1 of 3 right, 1 forbidden." in scores


def test_lengths_without_the_profiler_are_counted_and_those_far_off_listed() -> None:
    known = replace(pair("products"), timed_us=3000.0, plain_us=2000.0)
    judged = [Judged(known, (), None, computed_us) for computed_us in (2300.0, 1700.0, None)]
    judged.append(Judged(replace(known, plain_us=None), (), None, 9000.0))
    assert profiler_table(read(RECORDED), judged).endswith(": 2 of 2 within 15 %.")
    table = profiler_table(read(RECORDED), [*judged, Judged(known, (), None, 2301.0), Judged(known, (), None, 1699.0)])
    assert ": 2 of 4 within 15 %; the others:" in table
    assert table.splitlines()[-2:] == ["| products | 2.00 | +50.0 | +15.1 |", "| products | 2.00 | +50.0 | -15.1 |"]


def test_the_pages_have_places_for_the_tables() -> None:
    for page in ("what-if.md", "why.md"):
        text = (DOCS / page).read_text(encoding="utf-8")
        assert text.count("<!-- pairs -->\n") == text.count("<!-- /pairs -->") == 1, page
    for name in ("profiler", "fixes"):
        assert text.count(f"<!-- {name} -->\n") == text.count(f"<!-- /{name} -->") == 1, name
