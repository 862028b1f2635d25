"""Grouped traces and windows: groups of any size give the same results as each trace or window alone."""

from __future__ import annotations

import random

import duckdb
import pytest

from pipelines.base.groups import in_groups
from pipelines.critical_path.graph import window_edges
from pipelines.critical_path.longest import slack, window_paths
from pipelines.modelling import stacks
from pipelines.models.catalog import load_catalog
from tests.effort import first_of


def test_groups_keep_the_order_and_stay_below_their_size() -> None:
    sized = [("a", 3), ("b", 9), ("c", 1), ("d", 4), ("e", 0), ("f", 6)]
    assert list(in_groups(sized, 5)) == [["a"], ["b"], ["c", "d", "e"], ["f"]]
    assert list(in_groups(sized, 100)) == [[name for name, _ in sized]]
    assert list(in_groups([], 5)) == []


def _stacks(rows: list[tuple], events: int, monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    monkeypatch.setattr(stacks, "EVENTS", events)
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE _host_events (trace_id VARCHAR, event_id BIGINT, thread_id BIGINT, start_ns BIGINT, end_ns BIGINT, "
            "is_inner BOOLEAN, is_outer BOOLEAN)"
        )
        con.executemany("INSERT INTO _host_events VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        stacks.host_stacks(con)
        stacks.host_ancestors(con)
        tables = ("_host_stacks", "_host_ancestors")
        return [con.execute(f"FROM {table} ORDER BY ALL").fetchall() for table in tables]


def test_an_event_that_is_there_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A duplicate event would be its own parent, and the walk up to the root would never end."""
    rows = [("one", 3, 1, 0, 10, False, True), ("two", 4, 1, 0, 9, False, True), ("two", 5, 1, 2, 3, True, True)]
    assert len(_stacks(rows, 100, monkeypatch)[0]) == 3
    for again in (rows[1], ("two", 4, 2, 5, 6, True, False)):
        with pytest.raises(ValueError, match="trace two has event 4 more than once"):
            _stacks([*rows, again], 100, monkeypatch)


@pytest.mark.parametrize("events", first_of([200, 1, 10_000], 1))  # groups: two traces and one; each alone; all
def test_the_stacks_of_traces_do_not_mix(monkeypatch: pytest.MonkeyPatch, events: int) -> None:
    rng = random.Random(5)
    traces = {}
    for name in ("one", "it's", "three"):
        times = [(rng.randrange(60), rng.randrange(1, 40)) for _ in range(40)]
        numbers = rng.sample(range(90), len(times))
        traces[name] = [
            (
                name,
                number,
                rng.randrange(2) if name == "three" else 1,
                begin,
                begin + took,
                rng.random() < 0.5,
                rng.random() < 0.5,
            )
            for number, (begin, took) in zip(numbers, times, strict=True)
        ]
    alone = [_stacks(rows, 1, monkeypatch) for rows in traces.values()]
    expected = [sorted([row for tables in alone for row in tables[table]], key=repr) for table in range(2)]
    assert all(expected)
    everything = [row for rows in traces.values() for row in rows]
    together = _stacks(everything, events, monkeypatch)
    assert [sorted(table, key=repr) for table in together] == expected


def _paths(windows: dict[int, list[tuple]], edges: int, monkeypatch: pytest.MonkeyPatch) -> list[list[tuple]]:
    monkeypatch.setattr(window_edges, "EDGES", edges)
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE critical_path_windows (trace_id VARCHAR, window_id VARCHAR, profile VARCHAR, window_no BIGINT)"
        )
        con.execute("CREATE TABLE _refused_windows (window_no BIGINT)")
        con.execute(
            "CREATE TABLE _edges (window_no BIGINT, edge_id BIGINT, src_node_id BIGINT, dst_node_id BIGINT, "
            "path_weight_ns BIGINT, attributed_event_id BIGINT)"
        )
        for number, rows in windows.items():
            con.execute("INSERT INTO critical_path_windows VALUES ('t', ?, 'default', ?)", [f"w{number}", number])
            con.executemany(f"INSERT INTO _edges VALUES ({number}, ?, ?, ?, ?, ?)", rows)
        if 3 in windows:
            con.execute("INSERT INTO _refused_windows VALUES (3)")
        window_paths.longest_paths(con)
        slack.event_slacks(con)
        con.execute(f"CREATE TABLE longest_path AS {load_catalog().models['longest_path'].sql}")
        return [con.execute(f"FROM {table} ORDER BY ALL").fetchall() for table in ("longest_path", "event_slack")]


@pytest.mark.slow  # the test above forms groups in the same way
def test_the_paths_of_windows_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(7)
    windows = {}
    for number in range(6):
        pairs = sorted({(a, b) for a, b in (rng.sample(range(20), 2) for _ in range(30)) if a < b})
        rows = [(i, a, b, rng.randrange(3), rng.choice([None, a // 2])) for i, (a, b) in enumerate(pairs)]
        windows[number] = rng.sample(rows, len(rows))
    windows[4] = [(0, 1, 2, 5, 0), (1, 2, 1, 5, None)]  # a cycle, so there is no path
    alone = [_paths({number: rows}, 1, monkeypatch) for number, rows in windows.items()]
    expected = [[row for tables in alone for row in tables[table]] for table in range(2)]
    assert {window for _, window, *_ in expected[0]} == {"w0", "w1", "w2", "w5"}
    for edges in (1, 40, 10_000):
        assert _paths(windows, edges, monkeypatch) == expected
