"""The causes of a capture's length: the planted cause is first, and invariants hold for every capture.

test_capture_fixes.py tests a late rank.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.base import units
from pipelines.faces.capture_why import capture_why_from_queries
from pipelines.faces.cli.app import app
from pipelines.fleet.path.segment_causes import _arrivals
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.synthetic import write_capture
from tests.critical_path.causes.test_planted import PLANTS, POINTS, USUAL
from tests.fleet.path.commands import check_commands
from tests.harness import connect, op, x


def why(*words: object) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["why", *map(str, words), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def check(answer: dict[str, Any]) -> None:
    causes = answer["causes"]
    assert sum(cause["share_percent"] for cause in causes) == pytest.approx(100, abs=0.1)
    assert sum(cause["duration_us"] for cause in causes) == pytest.approx(answer["window"]["length_us"], abs=0.01)
    assert len({(cause["cause"], cause["rank"], cause["name"]) for cause in causes}) == len(causes)
    for cause in causes:
        assert (cause["late_cause"] is not None) == (cause["cause"] == "late_rank")
        assert cause["saves_us"] is None or 0 <= cause["saves_us"] <= answer["window"]["length_us"]
        if cause["cause"] == "late_rank":
            assert cause["name"].startswith(f"rank {cause['rank']}, ")
        for saves, command in (("saves_us", "command"), ("cause_saves_us", "cause_command")):
            assert (cause[saves] is None) == (cause[command] is None)


def check_numbers(folder: Path, answer: dict[str, Any]) -> None:
    numbers = {cause["command"]: cause["saves_us"] for cause in answer["causes"]}
    numbers |= {cause["cause_command"]: cause["cause_saves_us"] for cause in answer["causes"]}
    numbers |= {fix["command"]: fix["saves_us"] for fix in answer["fixes"]}
    numbers.pop(None, None)
    check_commands(folder, numbers)


def saves_what_a_second_run_saves(plant: str, cause: str, like: dict, changed: dict, tmp_path: Path) -> None:
    spec = replace(USUAL, **{"plant": plant, "ranks": 3, "steps": 6, **like})
    capture = write_capture(spec, tmp_path / "with")
    without = replace(spec, plant="none", collective_ns=USUAL.collective_ns)
    again = capture.again(changed, tmp_path / "without") if changed else write_capture(without, tmp_path / "without")
    answer = why(tmp_path / "with")
    check(answer)
    first = answer["causes"][0]
    assert first["cause"] == cause
    # The path of a capture leads to the last GPU work, so lengths are measured until then.
    lengths = [answer["window"]["length_us"], why(tmp_path / "without")["window"]["length_us"]]
    assert max(rank.truth.full.length_ns for rank in again.ranks) >= 1000 * lengths[1] * 0.9
    saved = 100 * first["cause_saves_us"] / lengths[0]
    assert saved == pytest.approx(100 * (lengths[0] - lengths[1]) / lengths[0], abs=POINTS)


# tests/critical_path/causes/test_planted.py tests all eleven, on one rank.
@pytest.mark.slow
@pytest.mark.parametrize(
    "plant",
    [plant for plant in PLANTS if plant[0] in ("loader", "synchronize", "slow_collective", "compute_bound")],
    ids=lambda plant: plant[0],
)
def test_what_a_planted_cause_of_three_ranks_saves(plant: tuple[str, str, dict, dict], tmp_path: Path) -> None:
    saves_what_a_second_run_saves(*plant, tmp_path)


@pytest.mark.slow  # synthetic captures are tested above, and their fixes in test_capture_fixes.py
@pytest.mark.parametrize("name", ["dlrm_8", "torchrec_unequal", "h100_ddp_late"])
def test_shared_captures(shared: Path, name: str) -> None:
    """The answers about three real captures are consistent.

    The first fix of h100_ddp_late saves what a second run measured. A step takes 132.5 ms, and 88.9 ms without 50 ms of
    `augment` on a rank.
    """
    folder = shared / "traces" / "ranks" / name
    answer = why(folder)
    check(answer)
    check_numbers(folder, answer)
    if name == "h100_ddp_late":
        first = answer["fixes"][0]
        assert (first["fix"], first["name"]) == ("even_ranks", "rank 3") and "augment" in first["command"]
        assert first["saves_percent"] == pytest.approx(100 * (1 - 88.9 / 132.5), abs=4)
    path = json.loads(CliRunner().invoke(app, ["capture-path", str(folder), "--json"]).stdout)
    guessed = [caveat["detail"] for caveat in answer["caveats"] if "inferred" in caveat["detail"]]
    said = f"{units.time(round(1000 * path['guessed_us']))} of it follow from waits that are inferred"
    assert guessed == ([said] if path["guessed_us"] else [])


@pytest.mark.slow
def test_ranks_without_a_path_through_them_are_told_one_by_one_the_longest_first(tmp_path: Path) -> None:
    """If no path leads through the ranks, each rank's own answer is printed, the longest path first.

    The ranks meet on the host, which the capture's path does not cover.
    """
    for rank, ns in enumerate((3000, 9000)):
        events = [op("aten::mm", 0, 1000), op("gloo:all_reduce", 1000, ns, tid=2), op("aten::add", 1000 + ns, 100)]
        of = {"backend": "gloo", "rank": rank, "world_size": 3}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps({"distributedInfo": of, "traceEvents": events}))
    of = {"backend": "gloo", "rank": 2, "world_size": 3}
    idle = {"distributedInfo": of, "traceEvents": [op("aten::mm", 0, 0)]}
    (tmp_path / "rank2.json").write_text(json.dumps(idle))
    result = CliRunner().invoke(app, ["why", str(tmp_path)])
    assert result.exit_code == 0
    assert "left out: rank 2 has no critical path" in result.stderr
    assert "rank by rank:" in result.stderr and "no path through its ranks: no matched collectives" in result.stderr
    lines = result.stdout.splitlines()
    first, second = lines.index("rank 1"), lines.index("rank 0")
    assert first < second and lines[first + 1].startswith("In 10.10 ms") and lines[second + 1].startswith("In 4.10 ms")
    assert f"tracelake what-if {tmp_path / 'rank1.json'}" in result.stdout
    ranks: Any = why(tmp_path)
    assert [sum(cause["share_percent"] for cause in rank["causes"]) for rank in ranks] == pytest.approx([100, 100])
    of_capture = [rank["caveats"][-1] for rank in ranks]
    assert [caveat["caveat"] for caveat in of_capture] == ["rank_by_rank"] * 2
    assert all("no path through its ranks: no matched collectives" in caveat["detail"] for caveat in of_capture)


def cause_events(trace: list[dict[str, Any]], has_nodes: str, shown_by_owner: dict[int, int]) -> list[tuple[int, int]]:
    """Return (event_id, duration_ns) of the rows of _capture_cause_events for a trace.

    `has_nodes`: the SQL condition of events that are nodes. `shown_by_owner`: for each event that owns a gap, the event
    that is shown for the gap.
    """
    con, _ = connect(trace)
    with con:
        window = "trace_id, 'full' AS window_id"
        nodes = f"SELECT {window}, event_id, 'cpu' AS side FROM events WHERE {has_nodes}"
        gaps = f"'HOST_GAP' AS edge_type, unnest({[*shown_by_owner]}::BIGINT[]) AS attributed_event_id"
        shown = f"unnest({[*shown_by_owner.values()]}::BIGINT[]) AS owner_event_id"
        con.execute(f"CREATE TABLE critical_path_nodes AS {nodes}")
        con.execute(f"CREATE TABLE critical_path_edges AS SELECT {window}, {gaps}, {shown} FROM traces")
        ranks = "'c' AS capture_id, trace_id, CAST(NULL AS VARCHAR) AS left_out_reason"
        con.execute(f"CREATE TABLE capture_ranks AS SELECT {ranks} FROM traces")
        have = {"critical_path_nodes", "critical_path_edges", "capture_ranks"}
        run_models(con, load_catalog(), ["_capture_cause_events"], frozenset(have))
        return con.execute("SELECT event_id, duration_ns FROM _capture_cause_events ORDER BY ALL").fetchall()


def test_owners_of_host_time_that_are_no_nodes_are_events_of_a_rank() -> None:
    """An annotation from one operator into the next owns the gap between them, and another annotation is shown for it.

    Both annotations are included, although they are not nodes.
    """
    trace = [
        *(x("user_annotation", "shown", 4, 1020), x("user_annotation", "exchange", 5, 1015)),
        *(op("aten::a", 0, 10), op("aten::b", 1000, 30), x("user_annotation", "in an operator", 1002, 5)),
    ]
    events = cause_events(trace, "cat = 'cpu_op'", {1: 0, 3: 3})
    assert [event_id for event_id, _ in events] == [0, 1, 2, 3]


def test_functions_below_the_limit_of_printed_commands_give_no_cause() -> None:
    """Python functions shorter than frame_ns, 10 us, are left out. Annotations are included whatever their length."""
    name = "torch/utils/data/dataloader.py(630): __next__"
    trace = [*(x("python_function", name, 100 * us, us) for us in (9.999, 10)), x("user_annotation", name, 2000, 0.001)]
    durations = [duration_ns for _, duration_ns in cause_events(trace, "FALSE", {})]
    assert sorted(durations) == [1, 10_000]


@pytest.mark.parametrize(("n_ranks", "expected"), [(3, []), (4, ["1 of its 4 ranks"])])
def test_ranks_that_the_path_cannot_lead_through_are_told(n_ranks: int, expected: list[str]) -> None:
    tables = {
        "FROM capture_causes": [{"cause": "gpu_computing", "inferred_ns": 0}],
        "FROM capture_paths": [{"n_ranks": 3, "n_edges": 9, "matched_by": None}],
        "SELECT count(*) AS n FROM capture_ranks": [{"n": n_ranks}],
    }
    answer = capture_why_from_queries(
        lambda query: next((rows for table, rows in tables.items() if table in query), []), "c"
    )
    assert answer is not None
    assert [caveat["detail"].partition(" cannot be joined")[0] for caveat in answer.caveats] == expected


def test_a_folder_has_no_steps(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["why", str(tmp_path), "--step", "3"])
    assert result.exit_code == 1
    assert "--step, --annotation and --process are for a trace" in result.output


def test_late_is_later_than_the_median_of_the_others() -> None:
    """Lateness of the last rank counts from the median arrival of the other ranks. Half of the ranks are early."""
    arrived = [100, 900, 300, 200, 250]
    ranks = [SimpleNamespace(common_ns=[at]) for at in arrived]
    meeting: Any = SimpleNamespace(members=[(rank, 0) for rank in range(len(arrived))])
    joined: Any = SimpleNamespace(ranks=ranks)
    assert _arrivals(joined, meeting) == (900, 200)
