"""Both sides of each threshold of captures: at the value, and one unit beyond."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pytest

from pipelines.faces.why import Why
from pipelines.fleet.captures.grouping import RankTrace, is_dated
from pipelines.fleet.clocks import clock_offsets
from pipelines.fleet.clocks.clock_offsets import _drifts, _fit_and_drop, _Polished, _refusal, fit_clocks
from pipelines.fleet.collectives.entries import Entries, Instances
from pipelines.fleet.collectives.pairing import _apart, _in_steps
from pipelines.fleet.collectives.rank_lane import RankLane
from pipelines.fleet.collectives.shifts import Shifts, shifts_of
from pipelines.fleet.op_job import WhatIf, read_job, what_if, whatif
from pipelines.fleet.op_job.durations import own_times
from pipelines.fleet.op_job.p2p import P2P, _real
from pipelines.fleet.op_job.whatif import worst_ranks
from pipelines.fleet.trends.compared_windows import _paired_steps
from pipelines.fleet.trends.comparison import Window, _trace
from pipelines.fleet.trends.comparison_verdict import _in_the_median, _or_unchanged
from pipelines.fleet.trends.regression import discoveries, judge
from pipelines.models.catalog import load_catalog
from tests.effort import first_of
from tests.fleet.op_job.make import write_job
from tests.fleet.op_job.test_planted import SHAPE, base

MS = 1_000_000
HOUR = 3_600_000 * MS
DATED = 10**18 + 1


def ended(*moved: int, n: int = 10, start_ns: int = -MS) -> Instances:
    """Return collectives of three ranks that end together, 10 ms apart.

    The last rank's first collectives end later by `moved` ns.
    """
    end = np.tile(np.arange(n, dtype=np.int64) * 10 * MS, (3, 1))
    end[2, : len(moved)] += np.array(moved, np.int64)
    start = np.tile(end[0] + start_ns, (3, 1))
    return Instances(start, end, np.ones((3, n), bool), np.ones(n, bool))


def all_kept(late_ns: int) -> bool:
    return bool(fit_clocks(ended(late_ns)).kept.all())


def all_kept_in_noise(late_ns: int) -> bool:
    """Return whether all collectives are kept if the last rank ends one of them `late_ns` later.

    The noise is 30 us, and ten times the noise exceeds 200 us.
    """
    entries = Entries.of(ended(late_ns))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock_offsets, "_sigmas", lambda *_: np.full(3, 30_000.0))
        return bool(_fit_and_drop(entries, entries.end_ns.astype(float), np.zeros(3))[1].all())


def fitted(sigma: float = 0, contradiction: float = 0) -> bool:
    """Return whether a fit with noise `sigma` or this contradiction is accepted."""
    some = np.zeros(3)
    fit = _Polished(Entries.of(ended()), some, some, some, some + sigma, some + 1, np.ones(10, bool))
    return _refusal(fit, contradiction, False, 0.0) is None


def certain(parts_of_wait: float) -> bool:
    """Return whether noisy ends are used if the match does not need them.

    The rank's wait is `parts_of_wait` times the error of its clock.
    """
    noise = [150_000, -150_000] * 20
    error = max(clock.error_ns for clock in fit_clocks(ended(*noise, n=40), one_clock=True).clocks)
    wait = int(parts_of_wait * error)
    some = ended(*noise, n=40, start_ns=-10 * MS)
    some.start_ns[1] -= wait
    return not fit_clocks(some, is_certain=True).refused


def drifts(span_ns: int, moved_ns: float) -> bool:
    """Return whether a rank's clock drifts if it moves `moved_ns` over this span. The error is 100 us."""
    end = np.tile(np.linspace(0, span_ns, 6).astype(np.int64), (3, 1))
    entries = Entries.of(Instances(end, end, np.ones((3, 6), bool), np.ones(6, bool)))
    some = np.zeros(3)
    fit = _Polished(entries, entries.start_ns * 1.0, entries.end_ns * 1.0, some, some, some + 100_000, np.ones(6, bool))
    return bool(_drifts(np.array([0, 0, moved_ns / span_ns]), fit, 2)[2])


def lane(n: int = 1, at_ns: int = 0, steps: list[int] | None = None) -> RankLane:
    times = at_ns + np.arange(n, dtype=np.int64)
    return RankLane(0, np.zeros(n, np.int8), times, times, None, np.array(steps) if steps else None)


def apart(ns: int) -> bool:
    first = np.zeros(1, np.int64)
    return bool(_apart(lane(), lane(at_ns=ns), (first, first)))


def stepped(paired: int) -> bool:
    """Return whether steps are evidence if `paired` of 1000 kernels are in steps that both ranks have equally often."""
    own, _ = _in_steps(
        lane(1000, steps=[1] * paired + [2] * (1000 - paired)), lane(1001, steps=[1] * paired + [2] * (1001 - paired))
    )
    return bool(len(own))


# name[/use]: the decision, a value for which it is true, and a value for which it is false
CLOCKS = {
    "min_matched": (lambda n: not fit_clocks(ended(n=n)).refused, 5, 4),
    "min_matched/overlap": (lambda n: bool(shifts_of(lane(n), lane(n)).ordered), 5, 4),
    "clock_drop_ns": (all_kept, 200_000, 200_001),
    "clock_drop_sigmas": (all_kept_in_noise, 300_000, 300_001),
    "clock_max_dropped": (lambda n: not fit_clocks(ended(*[5 * MS] * n, n=1000)).refused, 200, 201),
    "clock_max_sigma_ns": (lambda ns: fitted(sigma=ns), 150_000, 150_001),
    "clock_max_contradiction_ns": (lambda ns: fitted(contradiction=ns), 50_000, 50_001),
    "clock_error_parts": (certain, 3.001, 2.999),
    "clock_drift_errors": (lambda ns: drifts(2_000_000_000, ns), 250_001, 250_000),
    "clock_drift_span_ns": (lambda ns: drifts(ns, 1e6), 1_000_000_000, 999_999_999),
    "clock_slack_ns": (apart, 200_001, 200_000),
    "shift_min_overlap": (lambda shift: shifts_of(lane(1000), lane(1000)).spread_at(shift) is not None, 400, 401),
    "shift_min_overlap/steps": (stepped, 600, 599),
    "shift_ambiguity": (lambda ns: Shifts(((10_000, 0), (ns, 1))).is_ambiguous, 49_999, 50_000),
    "shift_resolution_ns": (lambda ns: Shifts(((0, 0), (ns, 1))).is_ambiguous, 4_999, 5_000),
}  # fmt: skip


@pytest.mark.parametrize("name", CLOCKS)
def test_clocks_and_pairs_on_both_sides(name: str) -> None:
    decide, holds, does_not = CLOCKS[name]
    assert (decide(holds), decide(does_not)) == (True, False)


def straggler(
    *, ranks: int = 20, last: int = 50, of: int = 100, caused: int = 900_000, marginal: int = 90_000, agree: int = 1000
) -> tuple[Any, Any]:
    """Return whether rank 0 is a straggler, and whether that is certain.

    The others wait for it in `last` of `of` collectives. It causes `caused` ns of 1 ms of waiting, and delays the
    others by `marginal` ns of 1 ms. Durations and clocks agree in `agree` of the collectives.
    """
    rows = []
    for number in range(of):
        culprit = 0 if number < last else 1
        clock = culprit if number < agree else 1 - culprit
        wait = caused if number == 0 else MS - caused if number == last else 0
        rows.append((number, culprit, clock, wait, marginal if (clock, number) == (0, 0) else 0))
    values = ", ".join(f"('c', {n}, {a}, {b}, {w}, {m}, {m}, NULL, NULL)" for n, a, b, w, m in rows)
    with duckdb.connect() as con:
        con.execute(
            f"CREATE TABLE collectives AS FROM (VALUES {values}) AS v(capture_id, collective_id, culprit_rank, "
            "culprit_clock_rank, wait_ns, late_ns, late_of_median_ns, root_rank, refused_reason);"
            "CREATE TABLE collective_ranks AS SELECT 'c' AS capture_id, collective_id, rank, 10 AS duration_ns, 0 AS wait_ns, "
            "0 AS wait_clock_ns, 0 AS aligned_start_ns, 1000000 AS aligned_end_ns "
            f"FROM collectives, range({ranks}) AS r(rank)"
        )
        query = f"SELECT is_straggler, NOT culprit_uncertain FROM ({load_catalog().models['straggler_ranks'].sql}) WHERE rank = 0"
        (row,) = con.execute(query).fetchall()
        return row


def is_persistent(captures: int) -> bool:
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE captures AS SELECT 'c' || n AS capture_id, 'j' AS job, n AS started_at FROM range(9) AS r(n);"
            f"CREATE TABLE straggler_ranks AS SELECT 'c' || n AS capture_id, 0 AS rank, n < {captures} AS is_straggler, "
            "5 AS caused_wait_ns FROM range(9) AS r(n)"
        )
        return bool(con.execute(load_catalog().models["persistent_stragglers"].sql).fetchall())


def is_near(before_ns: int = 0, after_ns: int = 0) -> bool:
    """Return whether a ring's entry matches a call of 30 us by time.

    The entry is `before_ns` before the call's start, or `after_ns` after its end.
    """
    return match_of_entry(10 * MS - before_ns if before_ns else 10 * MS + 30_000 + after_ns, 10 * MS) == "time"


def match_of_entry(created_ns: int, start_ns: int, seq: str = "NULL", dtype: str = "half") -> str:
    """Return the evidence that matches entry 1 of a ring with a call of 30 us."""
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE flight_recorder_dumps AS SELECT 's' AS set_id, 'j' AS job, 'f' AS folder, 0 AS rank, 0 AS ingested_at;"
            "CREATE TABLE traces AS SELECT 't' AS trace_id, 0 AS rank, 'j' AS job, 'f/t' AS path;"
            "CREATE TABLE flight_recorder_entries AS SELECT 's' AS set_id, 0 AS rank, 1 AS record_id, 'g' AS group_name, "
            f"{created_ns} AS created_ns, 8 AS in_elements, FALSE AS is_p2p, 0 AS p2p_seq, 1 AS seq, 'allreduce' AS op, "
            "'[\"float\"]' AS input_dtypes;"
            f"CREATE TABLE collective_calls AS SELECT 't' AS trace_id, 1 AS event_id, 'g' AS group_name, {start_ns} AS start_ns, "
            f"{start_ns + 30_000} AS end_ns, 'allreduce' AS op, CAST({seq} AS BIGINT) AS seq, 8 AS in_elements, '{dtype}' AS dtype"
        )
        ((matched_by,),) = con.execute(
            f"SELECT matched_by FROM ({load_catalog().models['flight_recorder_matches'].sql})"
        ).fetchall()
        return matched_by


TABLES = {
    "persistent_captures": (is_persistent, 3, 2),
    "flight_recorder_ns": (lambda ns: is_near(before_ns=ns), MS, MS + 1),
    "straggler_share": (lambda ns: straggler(caused=ns)[0], 250_001, 250_000),
    "straggler_share_fair": (lambda ns: straggler(caused=ns, ranks=4)[0], 500_001, 500_000),
    "straggler_share_of_two": (lambda ns: straggler(caused=ns, ranks=2)[0], 750_001, 750_000),
    "straggler_marginal": (lambda ns: straggler(marginal=ns)[0], 10_001, 10_000),
    "straggler_last": (lambda n: straggler(last=n, of=1000)[0], 250, 249),
    "straggler_agreement": (lambda n: straggler(agree=n, last=500, of=1000)[0], 800, 799),
    "straggler_agreement/certain": (lambda n: straggler(agree=n, last=500, of=1000)[1], 800, 799),
    "flight_recorder_ns/after": (lambda ns: is_near(after_ns=ns), MS, MS + 1),
    "flight_recorder_run_ns": (lambda ns: match_of_entry(DATED + ns, DATED, seq="1") == "seq", HOUR - 1, HOUR),
    "flight_recorder_run_ns/before": (lambda ns: match_of_entry(DATED, DATED + ns, seq="1") == "seq", HOUR - 1, HOUR),
    "flight_recorder_run_ns/order": (
        lambda ns: match_of_entry(DATED + ns, DATED, dtype="float") == "order",
        HOUR - 1,
        HOUR,
    ),
    "dated_ns/entry": (lambda ns: match_of_entry(ns, DATED + HOUR, seq="1") == "unmatched", DATED, DATED - 1),
    "dated_ns/call": (lambda ns: match_of_entry(DATED + HOUR, ns, seq="1") == "unmatched", DATED, DATED - 1),
}


@pytest.mark.parametrize("name", first_of(TABLES, 3))
def test_tables_of_captures_on_both_sides(name: str) -> None:
    decide, holds, does_not = TABLES[name]
    assert (decide(holds), decide(does_not)) == (True, False)


def window(**more: Any) -> Any:
    return SimpleNamespace(step=None, where="", **more)


def said_beside_the_mean(ns: int) -> bool:
    """Return whether the sentence names the median, which changes by `ns` in a window of 1 ms.

    The mean does not change.
    """
    pair: Any = SimpleNamespace(control=window(duration_ns=MS), test=window(duration_ns=MS + ns), where="")
    return _in_the_median([pair], 0, MS) != ""


def said_on_average(ns: int) -> bool:
    """Return whether the sentence says "on average" if the median step is `ns` shorter than the mean step of 1 ms."""
    steps = {"length_ns": 4 * MS, "n_steps": 4, "steps_ns": 4 * MS, "median_step_ns": MS - ns}
    return "on average" in Why("t", steps, [], [])._whole


def left_out_as_warm_up(times: float) -> bool:
    """Return whether the first step is left out if it is `times` as long as later steps of its side."""
    (control, test) = (
        [Window("t", step, 0, 0, 1, 0, 0, warm_up_times=of if step == 1 else None) for step in (1, 2, 3)]
        for of in (None, times)
    )
    return len(_paired_steps(control, test).pairs) == 2


def paired_by_number(common: int) -> bool:
    """Return whether steps are paired by number if `common` of 10 and 20 steps have the same numbers."""
    control, test = (
        [Window("t", first + n, 0, 0, 1, 0, 0) for n in range(of)] for first, of in ((0, 10), (10 - common, 20))
    )
    return all(before.step == after.step for before, after in _paired_steps(control, test).pairs)


def by_operators(ns: int) -> bool:
    """Return whether operators are used if `ns` of 1 ms of GPU time has an operator."""
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE traces AS SELECT 't' AS trace_id, 'p' AS path, 'f' AS file, 0 AS rank, 'd' AS device_name, 'ok' AS status;"
            "CREATE TABLE _compared_windows AS SELECT 't' AS trace_id, CAST(NULL AS BIGINT) AS step, 0 AS start_ns, 1000 AS end_ns, "
            "1000 AS duration_ns, 0 AS idle_ns, 0 AS earlier_ns, NULL AS host_ns, NULL AS warm_up_times;"
            "CREATE TABLE _compared_causes AS SELECT 't' AS trace_id, 0 AS step, 1 AS duration_ns LIMIT 0;"
            f"CREATE TABLE _compared_work AS SELECT 't' AS trace_id, n = 0 AS has_operator, abs({ns} - n * 1000000) AS duration_ns "
            "FROM range(2) AS r(n)"
        )
        return _trace(con, con, "t").has_operators


def change(ns: int) -> bool:
    """Return whether a kernel of 1000 ns in test and `ns` in control is unchanged."""
    with duckdb.connect() as con:
        sides = "SELECT 1 AS part, 'kernel' AS by_what, side AS trace_id, CAST(NULL AS BIGINT) AS step, side"
        con.execute(
            f"CREATE TABLE compared AS {sides} FROM (VALUES ('control'), ('test')) AS v(side);"
            "CREATE TABLE _compared_work AS SELECT side AS trace_id, CAST(NULL AS BIGINT) AS step, 1 AS n, ns AS duration_ns, "
            "'kernel' AS cat, 'k' AS name, 'o' AS operator, 'c' AS category, 'm' AS module, 'd' AS input_dims, 't' AS input_types "
            f"FROM (VALUES ('control', {ns}), ('test', 1000)) AS v(side, ns);"
            "CREATE TABLE _compared_causes AS SELECT '' AS trace_id, 0 AS step, '' AS cause, '' AS name, 1 AS times, 1 AS duration_ns LIMIT 0;"
            "CREATE TABLE _compared_host AS SELECT '' AS trace_id, 0 AS step, 1 AS n, 1 AS self_ns, '' AS cat, '' AS name LIMIT 0"
        )
        query = f"SELECT change = 'unchanged' FROM ({load_catalog().models['_comparison'].sql})"
        return con.execute(query).fetchall() == [(True,)]


def judged(base: list[float], new: list[float]) -> Any:
    return judge({"m": (base, new)})["m"]


def is_large(grown: float, spread: float = 0) -> bool:
    """Return whether a median that grew by `grown` is large, if the base's values deviate by `spread`."""
    base = [1000 * (1 + spread * sign) for sign in (-1, 1) * 5]
    return judged(base, [1000 * (1 + grown)] * 5).reason.startswith("the effect exceeds")


def is_rare(*new: float) -> bool:
    """Return whether five captures that rank like `new` among ten others are rare."""
    return "and the new captures rank higher" in judged([float(n) for n in range(10)], list(new)).reason


def has_verdict(n_base: int, n_new: int) -> bool:
    return judged([1.0] * n_base, [2.0] * n_new).status != "INSUFFICIENT"


def carries_data(kind: str, at_s: float) -> bool:
    """Return whether a transfer that ends or starts at `at_s` carries data. A compute starts and ends at 1 s."""
    ops: Any = (SimpleNamespace(start=1.0, end=1.0), SimpleNamespace(start=at_s, end=at_s))
    return _real(kind, ops, {P2P[kind][0]: [0], kind: [1]}) == [1]


def takes_no_time(before_s: float) -> bool:
    """Return whether a transfer takes no time if it ends `before_s` before the start of the other transfer."""
    start = np.array([0.0, 0.1], np.float32).reshape(2, 1, 1)
    end = np.array([0.1 - before_s, 0.2], np.float32).reshape(2, 1, 1)
    unit = SimpleNamespace(grouped=True, ops=[0, 1], across_dp=False)
    job: Any = SimpleNamespace(start=start, end=end, duration=end - start)
    template: Any = SimpleNamespace(units=[unit])
    return float(own_times(job, template)[0, 0, 0]) == 0


def is_broken_down(slowdown: float, folder: Path) -> bool:
    job = read_job(write_job(folder, SHAPE, base))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WhatIf, "slowdown", slowdown)
        patch.setattr(whatif, "_decomposed", lambda *_: None)
        return what_if(job) is None


def three_hundred_are_worst(ranks: int) -> bool:
    return len(worst_ranks(np.arange(ranks), np.arange(ranks))) == 300


TRENDS = {
    "compare_unchanged_percent": (lambda ns: _or_unchanged(ns, 1000) == "unchanged", 990, 989),
    "compare_unchanged_percent/rows": (change, 990, 989),
    "compare_apart_percent": (said_beside_the_mean, 30_001, 30_000),
    "steps_apart_percent": (said_on_average, 250_001, 250_000),
    "compare_warm_up_alone": (left_out_as_warm_up, 8.01, 8),
    "compare_common_steps": (paired_by_number, 5, 4),
    "compare_operators": (by_operators, 500_000, 499_999),
    "regression_effect": (is_large, 0.010001, 0.009999),
    "regression_errors": (lambda grown: is_large(grown, 0.01), 0.024930, 0.024928),
    "regression_p": (lambda new: is_rare(*new), (9.5, 9.5, 9.5, 9.5, 3.5), (9.5, 9.5, 9.5, 9.5, 2.5)),
    "regression_false_discoveries": (lambda p: bool(discoveries({"m": p})), 0.05, 0.050001),
    "regression_base": (lambda n: has_verdict(n, 5), 10, 9),
    "regression_new": (lambda n: has_verdict(10, n), 5, 4),
    "op_job_clock_s": (lambda s: carries_data("forward-send", 1 - s), 0.0000499999, 0.0000500001),
    "op_job_clock_s/after": (lambda s: carries_data("forward-recv", 1 + s), 0.0000499999, 0.0000500001),
    "op_job_late_s": (takes_no_time, 0.0100001, 0.0099999),
    "op_job_worst_share": (three_hundred_are_worst, 10_000, 10_001),
    "dated_ns": (lambda ns: is_dated(RankTrace("t", "b", "p", "g", None, 0, 1, ns, ns)), 10**18 + 1, 10**18),
}


@pytest.mark.parametrize("name", TRENDS)
def test_trends_and_jobs_on_both_sides(name: str) -> None:
    decide, holds, does_not = TRENDS[name]
    assert (decide(holds), decide(does_not)) == (True, False)


DECOMPOSED = {"op_job_decomposed": (1.03, 1.0299)}


def test_a_job_that_loses_little_is_not_broken_down(tmp_path: Path) -> None:
    assert [is_broken_down(slowdown, tmp_path) for slowdown in DECOMPOSED["op_job_decomposed"]] == [True, False]


BOUNDARIES = (CLOCKS, TABLES, TRENDS, DECOMPOSED)
