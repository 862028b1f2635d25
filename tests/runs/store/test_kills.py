"""Killed commits: they leave all or none of a unit, and the next commit completes it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.lake import Lake
from pipelines.runs.store import Store, open_store
from pipelines.runs.store.ducklake import store as ducklake
from tests.effort import steps
from tests.lake.world import PROCESSES, assert_whole, run_killed, steps_of
from tests.runs.store.conftest import of_kind
from tests.runs.store.world import STORED, make_unit, shown

MOMENTS = [
    ("put_files", "before"),
    ("put_files", "after"),  # uploaded, before taking the lock
    ("add_columns", "before"),  # within the transaction
    ("_note", "before"),  # after all files were added
    ("_note", "after"),  # just before the transaction's commit
    ("_outcome", "before"),  # committed, but not yet reported
]


def keys() -> dict[str, str]:
    """Return the environment variables of S3, for a process that was forked before they were set."""
    return {name: value for name, value in os.environ.items() if name.startswith("AWS_")}


def do_commit(address: str, unit: Path, environment: dict[str, str] | None = None) -> None:
    """Commit a unit. This function may run in a separate process."""
    os.environ.update(environment or {})
    open_store(address).commit(Lake(unit))


def _die_at(address: str, unit: Path, environment: dict[str, str], name: str, when: str) -> None:
    original = getattr(ducklake, name)

    def wrapped(*args: Any, **named: Any) -> Any:
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        original(*args, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(ducklake, name, wrapped)
    do_commit(address, unit, environment)


@pytest.mark.kills
def test_a_folder_commit_killed_at_a_step(tmp_path: Path) -> None:
    unit = make_unit(tmp_path / "unit", (0, 1))
    n = steps_of(do_commit, str(tmp_path / "whole"), unit.root)
    assert n >= 8  # before and after each file
    expected = shown(open_store(str(tmp_path / "whole")), STORED)
    for step in steps(n):
        store = open_store(str(tmp_path / f"store{step}"))
        assert run_killed(step, do_commit, store.address, unit.root)
        with Lake(tmp_path / f"store{step}").connect(["traces", "events"]) as con:
            assert not store.known(unit.known_traces()) or assert_whole(con) == 2, f"step {step}"
        store.commit(unit)
        assert shown(store, STORED) == expected, f"step {step}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", [of_kind(kind) for kind in ("sqlite", "duckdb", "postgres")])
def test_a_ducklake_commit_killed_at_several_moments(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    from tests.runs.store import servers

    unit = make_unit(tmp_path / "unit", (0, 1))
    whole = open_store(str(tmp_path / "whole"))
    whole.commit(unit)
    expected = shown(whole, STORED)
    for number, (name, when) in enumerate(MOMENTS):
        address = f"ducklake:{kind}:{tmp_path}/{number}.cat?data={tmp_path}/data{number}"
        if kind == "postgres":
            server, data = request.getfixturevalue("postgres_server"), request.getfixturevalue("on_s3")
            address = f"ducklake:postgres:{servers.new_database(server)}?data={data}/{number}"
        process = PROCESSES.Process(target=_die_at, args=(address, unit.root, keys(), name, when))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        store = open_store(address)
        assert len(store.known(unit.known_traces())) == (2 if name == "_outcome" else 0), (name, when)
        started = time.monotonic()
        store.commit(unit)  # the killed process no longer has the lock
        assert time.monotonic() - started < 300  # waiting for a lock times out after 600 s
        assert shown(store, STORED) == expected, (name, when)
        left = store.sweep()
        assert not left  # too recent, because another writer may be about to commit these files


@pytest.mark.slow
def test_writers_side_by_side_with_kills(opened: Callable[[], Store], tmp_path: Path) -> None:
    """Three writers run concurrently, and four commits are killed.

    Two writers commit each unit, from copies with other batches.
    """
    address, choice = opened().address, random.Random(3)
    seeds = [(0, 1), (1, 2), (3, 4), (4, 5)]
    units = [make_unit(tmp_path / f"unit{who}{seeds_of}", seeds_of) for seeds_of in seeds for who in "ab"]
    todo, live, kills = [unit.root for unit in units], [], 4
    while todo or live:
        while todo and len(live) < 3:
            process = PROCESSES.Process(target=do_commit, args=(address, todo[0], keys()))
            process.start()
            live.append((process, todo.pop(0)))
        process, root = live.pop(0)
        if kills:
            process.join(choice.uniform(0.1, 4.0))
            kills -= process.is_alive()
            process.kill()
        process.join()
        if process.exitcode == -signal.SIGKILL:
            todo.append(root)
        else:
            assert process.exitcode == 0
    store = opened()
    with store.connect() as con:
        assert assert_whole(con) == 6
        for table in ("kernels", "temporal_breakdown"):
            assert con.execute(f"SELECT count(DISTINCT trace_id) FROM {table}").fetchall() == [(6,)]
    whole = open_store(str(tmp_path / "whole"))
    whole.commit(make_unit(tmp_path / "all", range(6)))
    assert shown(store, STORED) == shown(whole, STORED)


@pytest.mark.slow
def test_readers_see_whole_traces_during_commits(opened: Callable[[], Store], tmp_path: Path) -> None:
    store = opened()
    store.commit(make_unit(tmp_path / "first", (0,)))
    roots = [make_unit(tmp_path / f"unit{seed}", (seed,)).root for seed in (1, 2, 3)]
    process = PROCESSES.Process(target=_commit_all, args=(store.address, roots, keys()))
    process.start()
    counts = []
    while process.is_alive():
        with store.connect() as con:
            con.begin()  # the following queries see one state
            counts.append(assert_whole(con))
            breakdown = con.execute("SELECT count(DISTINCT trace_id) FROM temporal_breakdown").fetchall()[0][0]
            assert breakdown == counts[-1]
    assert process.exitcode == 0
    assert counts == sorted(counts) and counts[0] >= 1
    with store.connect() as con:
        assert assert_whole(con) == 4


def _commit_all(address: str, roots: list[Path], environment: dict[str, str]) -> None:
    for root in roots:
        do_commit(address, root, environment)
