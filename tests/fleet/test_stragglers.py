"""Stragglers: compared with the reference output on real captures, and with roles of ranks from the user."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.faces.cli.fleet.stragglers import _clock, _verdict
from pipelines.fleet.captures.roles import RolesError, read_roles
from pipelines.fleet.heat_map import rank_step_heat_map
from pipelines.fleet.stragglers import Stragglers, stragglers_of
from pipelines.synthetic import CaptureSpec, write_capture

MICROSECOND = 1_000


def run(*words: object) -> Any:
    result = CliRunner().invoke(app, ["stragglers", *map(str, words), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


@pytest.mark.slow  # test_reference_sets.py tests other captures
@pytest.mark.parametrize(("name", "culprit"), [("dlrm_8", 7), ("torchrec_unequal", 2)])
def test_real_captures(shared: Path, tmp_path: Path, name: str, culprit: int) -> None:
    files = [p for p in (shared / "traces" / "ranks" / name).glob("*.json.gz") if "execution" not in p.name]
    picture = tmp_path / "heat.svg"
    answer = run(*files, "--out", picture)
    whole = json.loads((shared / "golden" / "fleet" / f"collectives_{name}.json").read_text())
    (lane,) = whole["lanes"]
    ranks = {row["rank"]: row for row in answer["ranks"]}
    assert len(ranks) == len(lane["per_rank"])
    for rank, row in ranks.items():
        expected = lane["per_rank"][str(rank)]
        assert row["wait_ns"] == pytest.approx(expected["wait_us"] * 1000, abs=MICROSECOND)
        assert row["caused_wait_ns"] == pytest.approx(expected["caused_wait_us"] * 1000, abs=MICROSECOND)
        assert row["marginal_ns"] == pytest.approx(expected["marginal_us"] * 1000, abs=MICROSECOND)
        assert row["n_last"] == expected["last_by_dur"]
    assert answer["agreement"] == pytest.approx(lane["culprit_agreement"])
    assert next(iter(ranks)) == lane["culprit_ranking"][0]
    assert (answer["stragglers"], answer["culprit_uncertain"]) == ([culprit], False)
    by_step = [row["caused_wait_ns"] or 0 for row in answer["cells"]]
    assert sum(by_step) == sum(row["caused_wait_ns"] for row in answer["ranks"])
    svg = ET.fromstring(picture.read_text())
    boxes = svg.findall(".//{*}rect/{*}title")
    assert len(boxes) == len([row for row in answer["cells"] if row["caused_wait_ns"] is not None])


@pytest.mark.slow  # tests/runs/store/test_user_tables.py tests a changed table of roles
def test_groups_that_the_user_tells(tmp_path: Path) -> None:
    capture = write_capture(CaptureSpec(ranks=4, steps=4, straggler=3, seed=2), tmp_path / "in")
    roles = tmp_path / "roles.csv"
    roles.write_text("rank,role,group\n0,pp,first\n1,pp,first\n2,pp,second\n3,pp,second\n9,pp,third\n")
    answer = run(*capture.paths, "--roles", roles)
    groups = {row["group_name"]: row for row in answer["groups"]}
    assert set(groups) == {"first", "second"} and groups["second"]["worst_rank"] == 3
    caused = {row["rank"]: row["caused_wait_ns"] for row in answer["ranks"]}
    assert groups["first"]["caused_wait_ns"] == caused[0] + caused[1]
    assert groups["second"]["caused_wait_ns"] == caused[2] + caused[3]


@pytest.mark.slow  # 6 s
def test_too_few_collectives_blame_nobody(tmp_path: Path) -> None:
    capture = write_capture(CaptureSpec(ranks=4, steps=2), tmp_path / "in")
    assert capture.n_collectives == 4
    roles = tmp_path / "roles.csv"
    roles.write_text("rank,role,group\n0,pp,first\n1,pp,first\n")
    answer = run(*capture.paths, "--roles", roles)
    assert (answer["ranks"], answer["stragglers"], answer["agreement"]) == ([], [], None)
    assert [(row["worst_rank"], row["caused_wait_ns"]) for row in answer["groups"]] == [(None, None)]
    assert {"refused_lane", "refused_clock"} <= {row["check_name"] for row in answer["quality"]}


EMPTY = """
CREATE TABLE captures AS SELECT 'c' AS capture_id, 'job' AS job, 4 AS n_ranks, 4 AS world_size;
CREATE TABLE clock_offsets AS SELECT 'c' AS capture_id, rank, 0 AS offset_ns, 9 AS error_ns, NULL AS refused_reason
    FROM range(4) AS r(rank);
CREATE TABLE straggler_groups AS SELECT '' AS capture_id, '' AS role, '' AS group_name, 0 AS n_ranks, 0 AS wait_ns,
    0 AS caused_wait_ns, 0.0 AS caused_percent, 0 AS marginal_ns, 0 AS worst_rank, FALSE AS has_straggler LIMIT 0;
CREATE TABLE rank_steps AS SELECT '' AS capture_id, 0 AS step, 0 AS rank, 0 AS step_ns, 0 AS compute_ns, 0 AS n_collectives,
    0 AS wait_ns, 0 AS caused_wait_ns, 0 AS marginal_ns, 0.0 AS last_percent LIMIT 0;
CREATE TABLE capture_quality AS SELECT '' AS capture_id, '' AS check_name, '' AS severity, 0 AS n, '' AS detail LIMIT 0;
CREATE TABLE collectives AS SELECT '' AS capture_id, '' AS matched_by, '' AS refused_reason LIMIT 0;
"""


def answered(*is_straggler: bool | None, aligned: int = 2, is_digest: bool = False) -> Stragglers:
    """Return the answer for four ranks, of which the first `aligned` have a clock.

    Rank 3 caused 90 % of the waiting, rank 2 10 %.
    """
    with duckdb.connect() as con:
        con.execute(f"{EMPTY} DELETE FROM clock_offsets WHERE {is_digest}")
        con.execute(
            "CREATE TABLE straggler_ranks AS SELECT 'c' AS capture_id, rank, 9 AS n_collectives, 5 AS wait_ns, "
            "greatest(10 * (rank - 1), 0) + if(rank = 3, 70, 0) AS caused_wait_ns, caused_wait_ns::DOUBLE AS caused_percent, "
            "0 AS late_ns, 0 AS marginal_ns, 0.0 AS marginal_percent, 0 AS root_wait_ns, 0.0 AS root_percent, 1 AS n_last, "
            f"9.0 AS last_percent, 99 AS span_ns, if({aligned} > 0, 1.0, NULL) AS agreement, rank >= {aligned} AS culprit_uncertain, "
            "($is_straggler)[rank + 1] AS is_straggler FROM range(4) AS r(rank)",
            {"is_straggler": is_straggler},
        )
        return stragglers_of(con, "c")


def test_a_rank_that_cannot_be_judged_is_not_taken_for_no_straggler() -> None:
    """A rank that cannot be judged is reported as unknown.

    Ranks 2 and 3 meet only each other, so their clocks are not aligned with the others'.
    """
    agreed = "durations and clocks name the same culprit in 100 % of the collectives"
    assert said(answered(False, False, False, False)) == f"no straggler; {agreed}"
    late = answered(False, False, False, None)
    unknown = "unknown for rank 3 (90.0 % of all waiting), without an aligned clock"
    assert said(late) == f"no straggler among the ranks with an aligned clock; {agreed}; {unknown}"
    assert (late.culprit_uncertain, late.stragglers) == (False, [])
    several = answered(True, False, None, None)
    unknown = "unknown for ranks 3, 2 (100.0 % of all waiting), without an aligned clock"
    assert said(several) == f"straggler: rank 0; {agreed}; {unknown}"
    nobody = answered(None, None, None, None, aligned=0)
    assert nobody.culprit_uncertain and "no straggler is named" in said(nobody)


def test_a_digest_keeps_the_waiting_without_the_clocks() -> None:
    whole, digest = answered(False, False, False, True), answered(False, False, False, True, is_digest=True)
    assert said(digest) == said(whole) and said(digest).startswith("straggler: rank 3;")
    assert {_clock(row) for row in whole.ranks} == {"+0.0 ± 0.0 us"}
    assert [_clock(row) for row in digest.ranks] == 4 * ["not kept"]
    refused = {"offset_ns": None, "clock_refused": "no collectives"}
    assert _clock(refused) == "not aligned"


def said(answer: Stragglers) -> str:
    return _verdict(answer).plain


def test_a_table_of_roles_for_a_capture_of_a_lake_is_refused(tmp_path: Path) -> None:
    """A table of roles is refused for a capture of a lake.

    The lake has its own roles, so the option would be ignored.
    """
    roles = tmp_path / "roles.csv"
    roles.write_text("rank,role,group\n0,pp,first\n")
    lake = tmp_path / "lake"
    result = CliRunner().invoke(app, ["stragglers", "abc123", "--roles", str(roles), "--lake", str(lake)])
    assert result.exit_code == 1 and "--roles is for files" in result.output


BAD_ROLES = {
    "rank,group\n0,a\n": r"roles\.csv:1: no column 'role'; write a header",
    "rank,role,group\n0,dp,\n": r"roles\.csv:2: 'group' is empty",
    "rank,role,group\n0,dp,a\nlast,dp,a\n": r"roles\.csv:3: rank 'last' is not a whole number",
}


@pytest.mark.parametrize("text", BAD_ROLES)
def test_a_table_of_roles_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "roles.csv"
    path.write_text(text)
    with pytest.raises(RolesError, match=BAD_ROLES[text]):
        read_roles(path)


def cell(step: int | None, rank: int, caused: int | None) -> dict[str, Any]:
    others = dict.fromkeys(("wait_ns", "marginal_ns", "compute_ns", "step_ns"))
    return {"step": step, "rank": rank, "caused_wait_ns": caused, **others}


def test_the_picture() -> None:
    cells = [cell(4, 0, 0), cell(4, 1, 2_000_000), cell(5, 0, 500_000), cell(5, 1, None), cell(None, 1, 1_000_000)]
    svg = ET.fromstring(rank_step_heat_map("job <1>", cells, "caused_wait_ns", frozenset({1})))
    boxes = {title.text: box for box in svg.iterfind("{*}rect") for title in box.iterfind("{*}title")}
    assert set(boxes) == {
        "rank 0, step 4: caused_wait 0.0 us",
        "rank 1, step 4: caused_wait 2.00 ms",
        "rank 0, step 5: caused_wait 500.0 us",
        "rank 1, outside steps: caused_wait 1.00 ms",
    }
    assert boxes["rank 0, step 4: caused_wait 0.0 us"].get("fill") == "#fffaf0"
    assert boxes["rank 1, step 4: caused_wait 2.00 ms"].get("fill") == "#ef6548"
    texts = [text.text for text in svg.iterfind("{*}text")]
    assert {"job <1>", "step 4", "step 5", "no step", "rank 0", "rank 1", "2.00", "2 ms"} <= set(texts)
    assert len([box for box in svg.iterfind("{*}rect") if box.get("class") == "bad"]) == 1


@pytest.mark.parametrize(("least", "begin"), [(780_000, "0.78 ms"), (411_000, "0.411 ms"), (410_000, "0")])
def test_cells_that_differ_little_have_different_colours(least: int, begin: str) -> None:
    cells = [cell(4, 0, least), cell(4, 1, 820_000)]
    svg = ET.fromstring(rank_step_heat_map("job", cells, "caused_wait_ns"))
    colours = [box.get("fill") for box in svg.iterfind("{*}rect") if box.find("{*}title") is not None]
    assert (colours[0] == "#fffaf0") == (begin != "0") and colours[1] == "#ef6548"
    texts = [text.text for text in svg.iterfind("{*}text")]
    assert begin in texts and "0.82 ms" in texts


def test_cells_that_are_all_alike_are_pale() -> None:
    svg = ET.fromstring(rank_step_heat_map("job", [cell(4, 0, 7), cell(4, 1, 7)], "caused_wait_ns"))
    assert {box.get("fill") for box in svg.iterfind("{*}rect") if box.find("{*}title") is not None} == {"#fffaf0"}


def test_a_picture_of_nothing_says_so() -> None:
    with pytest.raises(ValueError, match="no step of any rank has caused_wait_ns"):
        rank_step_heat_map("job", [cell(4, 0, None)], "caused_wait_ns")
    with pytest.raises(ValueError, match="unknown metric 'heat'; choose one of caused_wait_ns"):
        rank_step_heat_map("job", [cell(4, 0, 1)], "heat")


def test_errors_of_the_command(tmp_path: Path) -> None:
    runner = CliRunner()
    result = runner.invoke(app, ["stragglers", str(tmp_path / "nothing.json")])
    assert result.exit_code == 1 and "is not a file, and there is no lake with traces at" in result.stderr
    result = runner.invoke(app, ["stragglers", "x", "--metric", "heat"])
    assert result.exit_code == 1 and "no metric 'heat'" in result.stderr
