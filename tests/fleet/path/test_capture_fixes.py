"""Fixes of a capture: each saving equals that of the printed command and of a second run.

Rules decide which fixes exist.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from pipelines.critical_path.causes import fix_candidates, fixes
from pipelines.critical_path.causes.edge_causes import CAUSES
from pipelines.critical_path.causes.fixes import options
from pipelines.faces import capture_why
from pipelines.faces.cli.app import app
from pipelines.fleet.path import segment_causes
from pipelines.fleet.path.capture_fixes import RankOnPath, _even
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.synthetic import CaptureSpec, write_capture
from tests.fleet.path.commands import check_commands
from tests.fleet.path.opened_once import opened_once
from tests.fleet.path.test_capture_causes import check, check_numbers
from tests.fleet.path.test_retimed import drifting
from tests.harness import memory

EVEN = CaptureSpec(ranks=3, steps=6, shape="planted", sync_each_step=False, collective_skew_ns=0)
LATE = replace(EVEN, plant="late_rank", straggler=1, straggler_slowdown=20.0)
POINTS = 2.0


@pytest.fixture(scope="module", autouse=True)
def once() -> Iterator[None]:
    with opened_once("pipelines.faces.cli.fleet.whatif_capture"):
        yield


def asked(*words: object) -> Any:
    result = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def gives_its_number(fix: dict[str, Any]) -> None:
    _, *words = shlex.split(fix["command"])
    gain = asked(*words)
    before, after = (gain[when]["length_us"] for when in ("before", "after"))
    assert before - after == pytest.approx(fix["saves_us"], abs=0.002), fix["command"]
    assert 100 * (before - after) / before == pytest.approx(fix["saves_percent"], abs=1e-6)


@pytest.mark.slow  # test_capture_causes.py tests shared captures
def test_a_late_rank_is_named_and_as_fast_as_the_others_it_saves_what_a_second_run_does(tmp_path: Path) -> None:
    """Making the late rank as fast as the others saves what a second run with equal ranks does.

    Equal ranks have no late rank. The screen shows each fix with its command.
    """
    lengths = []
    for folder, spec in (("late", LATE), ("even", EVEN)):
        capture = write_capture(spec, tmp_path / folder)
        lengths.append(max(rank.truth.full.length_ns for rank in capture.ranks))
    saved = pytest.approx(100 * (1 - lengths[1] / lengths[0]), abs=POINTS)
    answer = asked("why", tmp_path / "late")
    check(answer)
    cause, suggestions = answer["causes"][0], answer["fixes"]
    assert (cause["cause"], cause["late_cause"], cause["rank"]) == ("late_rank", "gpu_computing", 1)
    assert cause["name"] == "rank 1, GPU computing: aten::mm"
    assert 100 * cause["cause_saves_us"] / answer["window"]["length_us"] == saved
    assert "waiting for a late rank (rank 1, GPU computing: aten::mm)" in answer["sentence"]
    first = suggestions[0]
    assert (first["fix"], first["name"]) == ("even_ranks", "rank 1")
    assert first["saves_percent"] == saved
    assert "make rank 1 as fast as the others" in answer["sentence"] and "{" not in first["change"]
    assert [fix["saves_us"] for fix in suggestions] == sorted((fix["saves_us"] for fix in suggestions), reverse=True)
    check_numbers(tmp_path / "late", answer)
    gives_its_number(first)
    even = asked("why", tmp_path / "even")
    assert all(cause["cause"] != "late_rank" for cause in even["causes"])
    assert all(fix["fix"] != "even_ranks" for fix in even["fixes"])
    shown = " ".join(CliRunner().invoke(app, ["why", str(tmp_path / "late")]).stdout.split())
    assert "What would help, each by itself: -" in shown
    for fix in suggestions[:5]:
        assert f"{-fix['saves_percent']:.1f} %" in shown and " ".join(fix["command"].split()) in shown


@pytest.mark.slow
def test_of_a_rank_whose_clock_drifts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (fixes, fix_candidates):  # its steps are short compared with the seconds between them
        monkeypatch.setattr(module, "_PERCENT", 0.001)
    drifting(tmp_path)
    suggestions = asked("why", tmp_path)["fixes"]
    check_commands(tmp_path, {fix["command"]: fix["saves_us"] for fix in suggestions})


@pytest.mark.slow
@pytest.mark.parametrize(("more", "there"), [(0, True), (-1, False)])
def test_of_graphs_with_too_many_edges_no_fix_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int, there: bool
) -> None:
    write_capture(LATE, tmp_path)
    of_paths = segment_causes.CausesOfSegments.of_paths

    def counted(self: Any, joined: Any, paths: Any) -> Any:
        for module, limit in ((segment_causes, "MOST_EDGES"), (capture_why, "_RETIMED_EDGES")):
            monkeypatch.setattr(module, limit, joined.n_edges + more)
        return of_paths(self, joined, paths)

    monkeypatch.setattr(segment_causes.CausesOfSegments, "of_paths", counted)
    answer = asked("why", tmp_path)
    said = any("too many to compute what would help" in caveat["detail"] for caveat in answer["caveats"])
    assert (bool(answer["fixes"]), said) == (there, not there)


HOST, COMPUTE = CAUSES.index("host_between_operators"), CAUSES.index("gpu_computing")


def rank(number: int, times: Sequence[tuple[int, int, int]], late: dict[tuple[str, str, int], int]) -> RankOnPath:
    """Return a rank on the path. `times`: the cause, the key of the name and the weight (ns) of each edge."""
    cause, key, weight = (np.array(column) for column in zip(*times, strict=True))
    window: Any = SimpleNamespace(graph=SimpleNamespace(weight=weight))
    causes: Any = SimpleNamespace(cause=cause, key=key)
    return RankOnPath(number, window, causes, [], late)


def even(*ranks: RankOnPath, length: int = 10_000) -> list[tuple[str, str]]:
    return [(candidate.name, options(candidate.scenario)) for candidate in _even(ranks, length)]


def test_a_late_rank_takes_what_the_median_of_the_others_takes() -> None:
    others = [rank(number, [(HOST, 4, ns), (COMPUTE, 4, 9000)], {}) for number, ns in ((0, 100), (2, 300), (3, 200))]
    late = rank(1, [(HOST, 4, 500), (HOST, 4, 300), (HOST, 8, 7000)], {("host_between_operators", "f", 4): 600})
    assert even(others[0], late, *others[1:]) == [("rank 1", "--scale rank:1:cause:host_between_operators:f=0.25")]


def test_what_only_the_late_rank_does_goes() -> None:
    late = rank(0, [(HOST, 4, 500)], {("host_between_operators", "f", 4): 500})
    assert even(late, rank(1, [(COMPUTE, 4, 500)], {})) == [
        ("rank 0", "--remove rank:0:cause:host_between_operators:f")
    ]


@pytest.mark.parametrize(
    ("fourth", "options"),
    [
        (100, "--scale rank:0:cause:gpu_computing:a=0.5 --scale rank:0:cause:gpu_computing:b=0.25 --scale rank:0:cause:gpu_computing:c=0.25"),
        (101, "--scale rank:0:cause:gpu_computing=0.3748"),
    ],
)  # fmt: skip
def test_three_names_with_nine_tenths_of_it_or_the_whole_cause(fourth: int, options: str) -> None:
    """The command scales three names if these explain nine tenths of the lateness, and otherwise the whole cause.

    The first three names take 300 ns longer each than on the other rank, and the fourth name takes `fourth` ns longer.
    """
    names = {("gpu_computing", name, key): 100 for name, key in (("a", 4), ("b", 8), ("c", 12), ("d", 16))}
    own = [(COMPUTE, 4, 600), (COMPUTE, 8, 400), (COMPUTE, 12, 400), (COMPUTE, 16, 100 + fourth)]
    late = rank(0, own, names)
    other = rank(1, [(COMPUTE, 4, 300), (COMPUTE, 8, 100), (COMPUTE, 12, 100), (COMPUTE, 16, 100)], {})
    assert even(late, other) == [("rank 0", options)]


@pytest.mark.parametrize(("ns", "there"), [(100, True), (99, False)])
def test_a_rank_is_late_by_a_percent_or_more(ns: int, there: bool) -> None:
    late = rank(0, [(HOST, 4, 500)], {("host_between_operators", "f", 4): ns})
    assert bool(even(late, rank(1, [(HOST, 4, 100)], {}))) == there


def test_a_rank_that_takes_no_longer_than_the_others_is_not_made_faster() -> None:
    late = rank(0, [(HOST, 4, 500)], {("host_between_operators", "f", 4): 500})
    assert even(late, rank(1, [(HOST, 4, 500)], {})) == []
    waiting = rank(0, [(CAUSES.index("synchronization"), 4, 500)], {("synchronization", "f", 4): 500})
    assert even(waiting, rank(1, [(HOST, 4, 500)], {})) == []


def test_a_change_of_what_has_no_name_says_so() -> None:
    with memory() as con:
        con.execute(
            "CREATE TABLE _capture_fix_rows AS SELECT 'c' AS capture_id, place, 'move_host_work' AS fix, name, "
            "1 AS saves_ns, 2 AS length_ns, '' AS options, NULL::INTEGER AS same_place, NULL::VARCHAR AS same_cause, "
            "NULL::VARCHAR AS caveat "
            "FROM (VALUES (1, 'load'), (2, '')) AS names(place, name)"
        )
        run_models(con, load_catalog(), ["capture_fixes"], frozenset({"_capture_fix_rows"}))
        changes = con.execute("SELECT change FROM capture_fixes ORDER BY name DESC").fetchall()
    assert changes == [(f"move {name} to another process, or do it before",) for name in ("load", "what has no name")]
