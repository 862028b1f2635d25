"""Capture ids: traces.capture_id joins captures, whatever the order in which traces arrived."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.engines.capture_units import changed_captures
from pipelines.faces.cli.app import app
from pipelines.fleet.captures.input_tables import lake_captures
from pipelines.lake import Lake
from pipelines.lake.lake import Staged
from pipelines.lake.names import CAPTURE_MARK, DIGEST, table_file
from pipelines.lake.read.views import MEMBERSHIP_TABLES
from pipelines.lake.retain import retention
from pipelines.lake.table_files import table_files
from pipelines.readers.ingest import ingest
from pipelines.runs.forget import forget
from pipelines.runs.materialize.per_capture import known_captures
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.runs.store.folder import FolderStore
from tests.effort import SLOW
from tests.harness import kernel
from tests.lake.world import write_trace

SECOND = 1_000_000
JOINED = "SELECT t.trace_id, c.capture_id FROM traces AS t JOIN captures AS c USING (capture_id)"
MEMBERS = "SELECT trace_id, capture_id FROM capture_ranks"


def write_rank(folder: Path, rank: int, start: int, name: str = "gemm", world_size: int = 3) -> Path:
    """Write a rank's trace with one kernel that starts at `start` seconds, and return its path."""
    path = folder / f"rank{rank}_{start}_{name}.json"
    path.parent.mkdir(exist_ok=True)
    spread = {"rank": rank, "world_size": world_size}
    events = [kernel(name, start * SECOND, SECOND // 2 + rank, 1)]
    path.write_text(json.dumps({"distributedInfo": spread, "traceEvents": events}))
    return path


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Return a lake that does not publish the analysts' file, which takes longer than the tables."""
    monkeypatch.setattr("pipelines.runs.materialize.publishing.publish", lambda *_: None)
    return Lake(tmp_path / "lake")


def pairs(lake: Lake, query: str) -> list[tuple[str, str]]:
    with lake.connect(["traces", "captures", "capture_ranks"]) as con:
        return sorted(con.execute(query).fetchall())


def truth(lake: Lake) -> list[tuple[str, str]]:
    """Return each trace with its capture, recomputed from all traces."""
    captures = lake_captures(lake)
    return sorted((member.trace.trace_id, name) for name, capture in captures.items() for member in capture.members)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2 if SLOW else 1))
def test_every_trace_of_a_capture_joins_it_as_ranks_come_in(lake: Lake, tmp_path: Path, seed: int) -> None:
    """Four captures of two jobs share a folder.

    Their ranks arrive in several batches and any order, and late ranks regroup.
    """
    choice = random.Random(seed)
    starts = [0, 100, 200, 300]
    ranks = [(rank, start) for start in starts for rank in range(3)] + [(0, 101)]  # the last one is a duplicate rank
    choice.shuffle(ranks)
    before: list[tuple[str, str]] = []
    parts = 3 if SLOW else 2
    for n in range(parts):
        files = [write_rank(tmp_path / "in", rank, start) for rank, start in ranks[n::parts]]
        ingest(files, lake, job="one" if n % 2 else None)
        if n:  # no computed capture contains the new traces yet, so their ids join nothing
            assert pairs(lake, JOINED) == before
        materialize_all(lake, ["captures"])
        assert pairs(lake, JOINED) == pairs(lake, MEMBERS) == truth(lake)
        before = truth(lake)
        assert len(before) == len(lake.known_traces())
    assert len({capture for _, capture in truth(lake)}) > 4


def test_a_capture_that_is_split_later(lake: Lake, tmp_path: Path) -> None:
    ingest([write_rank(tmp_path, 0, 0), write_rank(tmp_path, 1, 100)], lake)
    materialize_all(lake, ["captures"])
    ((first, before), (second, same)) = pairs(lake, JOINED)
    assert before == same  # ranks are one capture, whatever their times, until a rank repeats
    ingest([write_rank(tmp_path, 0, 100)], lake)
    materialize_all(lake, ["captures"])
    after = dict(pairs(lake, JOINED))
    assert len(after) == 3 and len({after[first], after[second]}) == 2
    assert sorted(after.items()) == truth(lake)


def two_captures(lake: Lake, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Ingest two captures of one folder, one after the other, and return the capture id of each of their traces."""
    ingest([write_rank(folder, rank, 0) for rank in range(2)], lake)
    first = dict(truth(lake))
    ingest([write_rank(folder, rank, 100) for rank in range(2)], lake)
    return first, {name: capture for name, capture in truth(lake) if name not in first}


def test_no_capture_takes_over_the_id_of_one_that_retention_removed(lake: Lake, tmp_path: Path) -> None:
    """No capture takes over the id of a capture that retention removed.

    Otherwise a baseline of the removed capture would mean the other capture.
    """
    _, later = two_captures(lake, tmp_path / "in")
    retention._hide(lake, lake.batches()[:1])
    assert dict(truth(lake)) == later


def test_no_capture_takes_over_the_id_of_one_that_was_forgotten(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.runs.forget.publish", lambda _: None)
    first, later = two_captures(lake, tmp_path / "in")
    rank0, rank1 = first
    forget(lake, rank0)
    assert dict(truth(lake)) == {rank1: first[rank1], **later}
    forget(lake, rank1)
    assert dict(truth(lake)) == later
    ingest([tmp_path / "in"], lake)
    assert dict(truth(lake)) == {**first, **later}


@pytest.mark.slow  # three forgets; the test above forgets a trace that names its capture
def test_a_capture_keeps_its_id_without_the_trace_that_names_it(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A capture keeps its id after the trace that names it is forgotten.

    The folder's first capture gets most ranks after the second one is complete. Both keep their ids.
    """
    monkeypatch.setattr("pipelines.runs.forget.publish", lambda _: None)
    for ranks, start in (((0,), 0), (range(4), 100), ((1, 2, 3), 0)):
        ingest([write_rank(tmp_path / "in", rank, start, world_size=4) for rank in ranks], lake)
    before, gone = dict(truth(lake)), set()
    assert sorted(map([*before.values()].count, {*before.values()})) == [4, 4]
    first, second, _ = lake.batches()
    (naming,), of_second = (
        sorted(n for n, b in lake.known_traces().items() if b == batch) for batch in (first, second)
    )
    for trace_id in (naming, *of_second[:2]):  # each one names its capture when it is forgotten
        forget(lake, trace_id)
        gone.add(trace_id)
        assert dict(truth(lake)) == {name: capture for name, capture in before.items() if name not in gone}
    ingest([tmp_path / "in"], lake)
    assert dict(truth(lake)) == before


def test_a_capture_keeps_its_id_when_a_whole_file_supersedes_what_named_it_after_forget(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.runs.forget.publish", lambda _: None)
    files = [write_trace(tmp_path / f"rank{rank}.json", rank, 8, distributedInfo={"rank": rank}) for rank in range(3)]
    whole = {str(path): path.read_text() for path in files}
    for path in files:
        path.write_text(whole[str(path)][: len(whole[str(path)]) * 2 // 3])
    paths = {row.trace_id: row.path for row in ingest(files, lake).rows}
    naming, next_naming, last = sorted(map(str, paths))
    (capture_id,) = {*dict(truth(lake)).values()}
    forget(lake, naming)
    path = Path(paths[next_naming])
    path.write_text(whole[str(path)])
    (row,) = ingest([path], lake).rows
    assert dict(truth(lake)) == {row.trace_id: capture_id, last: capture_id}


def as_digests(lake: Lake) -> None:
    """Replace the capture tables with digests, as `retention --keep digest` does."""
    materialize_all(lake, MEMBERSHIP_TABLES)
    for batch in lake.batches(CAPTURE_MARK):
        copies = {table: lake.staging(batch) / table for table in MEMBERSHIP_TABLES}
        for table, copy in copies.items():
            shutil.copy(table_file(lake.root, table, batch), copy)
        lake.put_all(batch, {table: Staged(copy, version=DIGEST) for table, copy in copies.items()})
    assert all(capture.is_digest for capture in lake_captures(lake).values())


def test_what_supersedes_the_only_trace_of_a_digest_has_a_capture(lake: Lake, tmp_path: Path) -> None:
    file = write_rank(tmp_path / "in", 0, 0)
    whole = json.loads(file.read_text())
    file.write_text(json.dumps(whole)[:-3])
    assert [row.status for row in ingest([file], lake).rows] == ["partial"]
    as_digests(lake)
    file.write_text(json.dumps(whole))
    assert [row.status for row in ingest([file], lake).rows] == ["ok"]
    for _ in range(2):
        materialize_all(lake, MEMBERSHIP_TABLES)
        assert pairs(lake, JOINED) == pairs(lake, MEMBERS) == truth(lake) != []
    assert [capture.is_digest for capture in lake_captures(lake).values()] == [False]


def test_a_trace_of_a_digest_that_comes_back_is_of_no_digest(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("pipelines.runs.forget.publish", lambda _: None)
    monkeypatch.setattr("pipelines.runs.forget.materialize_captures", killed)
    file = write_rank(tmp_path / "in", 0, 0)
    ingest([file], lake)
    as_digests(lake)
    with pytest.raises(OSError, match="the disk is full"):
        forget(lake, next(iter(lake.known_traces())))
    assert lake_captures(lake) == {}
    ingest([file], lake)
    assert [capture.is_digest for capture in lake_captures(lake).values()] == [False]
    assert len(changed_captures(FolderStore(lake))) == 1
    assert len(materialize_all(lake, MEMBERSHIP_TABLES)) == 2  # although the digest has the same traces
    assert [lake.is_digest(row.batch) for row in known_captures(lake).values()] == [False]
    assert materialize_all(lake, MEMBERSHIP_TABLES) == changed_captures(FolderStore(lake)) == []


@pytest.mark.slow  # 4 CPU s; tests above check the id, and tests/faces/cli what a query computes
def test_a_query_that_names_the_id_has_it_up_to_date(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    ingest([write_rank(tmp_path / "in", rank, start) for rank in range(3) for start in (0, 100)], lake)

    def ask(query: str) -> list[dict]:
        done = CliRunner().invoke(app, ["sql", query, "--lake", str(lake.root), "--format", "json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    assert ask("SELECT count(rank) AS n FROM traces") == [{"n": 6}]
    assert not table_files(lake.root, "captures")  # not computed without a request
    rows = ask("SELECT trace_id, capture_id FROM traces ORDER BY trace_id")
    assert [(row["trace_id"], row["capture_id"]) for row in rows] == truth(lake)
    assert ask("SELECT count(DISTINCT capture_id) AS n FROM traces JOIN captures USING (capture_id)") == [{"n": 2}]


@pytest.mark.slow  # the test above queries the id
def test_what_was_critical_is_told_by_capture(tmp_path: Path) -> None:
    """kernel_criticality has separate rows for the two captures of a folder.

    If a rank occurs twice, the trace with more events counts.
    """
    lake, folder = Lake(tmp_path / "lake"), tmp_path / "in"
    files = [write_rank(folder, rank, start, name) for start, name in ((0, "a"), (100, "b")) for rank in range(2)]
    twin = write_rank(folder, 1, 100, "twin")
    content = json.loads(twin.read_text())
    twin.write_text(json.dumps({**content, "traceEvents": [*content["traceEvents"], {"ph": "M", "name": "labels"}]}))
    ingest([*files, twin], lake)
    query = "SELECT capture_id, name, n_ranks, n_windows FROM kernel_criticality ORDER BY name"
    done = CliRunner().invoke(app, ["sql", query, "--lake", str(lake.root), "--format", "json"])
    rows = [tuple(row.values()) for row in json.loads(done.stdout)]
    assert [row[1:] for row in rows] == [("a", 2, 2), ("b", 2, 2), ("twin", 2, 2)]
    assert rows[0][0] != rows[1][0] == rows[2][0]
    assert {row[0] for row in rows} == {capture for _, capture in truth(lake)}
