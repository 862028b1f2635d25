"""Merging small batches: answers do not change, whatever step is killed and whatever happens to the lake afterwards."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.lake import Lake
from pipelines.lake.commit import manifest
from pipelines.lake.names import ANALYST, MARK, Batch, batch_files
from pipelines.lake.publish.analyst_file import publish
from pipelines.lake.retain import retention
from pipelines.lake.retain.compaction import compact
from pipelines.lake.retain.retention import notices, retire, retired_traces
from pipelines.models.questions import rejected_files
from pipelines.readers.ingest import ingest
from pipelines.readers.inputs.events import EventBatch
from pipelines.runs.check import check
from pipelines.runs.forget import forget
from pipelines.runs.materialize.per_capture import known_captures, materialize_captures
from pipelines.runs.materialize.per_trace import materialize
from tests.lake.test_incremental import CAPTURES, assert_as_anew
from tests.lake.test_retention import Ages
from tests.lake.world import TABLES, kept, killed, rot, shown, write_trace

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
NOON = datetime(NOW.year, NOW.month, NOW.day, 12, tzinfo=UTC) - 5 * DAY
ALL = ["traces", "events", "findings", *TABLES, "rejects", *CAPTURES]
NO_GRACE = timedelta(0)


def ingest_at(lake: Lake, at: datetime, *files: Path) -> None:
    """Ingest files as one batch with that time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lake, "new_batch", Ages((NOW - at) / DAY).new)
        ingest(files, lake)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a lake with four batches of one past day and one of today, and compute all tables.

    One batch of the past day has only a rejected file. The past day's traces form two captures of a job. Of all five
    traces, the smallest id is not in the first batch, which names a capture.
    """
    folder = tmp_path_factory.mktemp("whole")
    lake = Lake(folder / "lake")

    def traces(first: int, *ranks: int) -> list[Path]:
        names = [folder / "in" / f"{first}_{rank}.json" for rank in ranks]
        return [write_trace(p, first + r, distributedInfo={"rank": r}) for p, r in zip(names, ranks, strict=True)]

    (folder / "in").mkdir()
    (folder / "in" / "none.json").write_text("no trace at all")
    early, late = [traces(1, 0, 1)], [traces(10_000, 0), traces(10_000, 1, 2)]
    least = min((path for files in (*early, *late) for path in files), key=_id_of)
    batches = [*late, *early] if least in early[0] else [*early, *late]
    for number, files in enumerate([*batches, [folder / "in" / "none.json"]]):
        ingest_at(lake, NOON + number * timedelta(minutes=10), *files)
    ingest([write_trace(folder / "new" / "rank0.json", 4)], lake)
    materialize(lake, TABLES, and_publish=False)
    materialize_captures(lake, CAPTURES)
    assert len(known_captures(lake)) == 3
    return folder


def _id_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


@pytest.fixture
def lake(whole: Path) -> Iterator[Lake]:
    with kept(whole) as lake:
        yield lake


def in_analyst(lake: Lake) -> dict[str, list[str]]:
    """Return the rows of the analysts' file without batch ids and times."""
    with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con:
        left_out = "batch_id|ingest_batch_id|ingested_at|seen_at"
        query = "SELECT COLUMNS(lambda c: NOT regexp_matches(c, '^({})$')) FROM {}"
        return {table: sorted(map(repr, con.execute(query.format(left_out, table)).fetchall())) for table in ALL}


def everything(lake: Lake) -> dict[str, list]:
    tables = shown(lake, ALL)
    return {table: sorted(map(repr, rows)) for table, rows in tables.items()}


def do_compact(root: Path) -> None:
    """Compact without a grace period. This function may run in a separate process."""
    compact(Lake(root), grace=NO_GRACE)


@pytest.mark.slow  # 13 s
def test_the_batches_of_a_past_day_become_one(lake: Lake) -> None:
    before, files, captures = everything(lake), len(batch_files(lake.root)), known_captures(lake)
    due = compact(lake, dry_run=True).merges
    assert (everything(lake), len(batch_files(lake.root))) == (before, files)
    (merge,) = compact(lake).merges
    assert [(planned.state, planned.batches, planned.n_bytes) for planned in due] == [
        ("due", merge.batches, merge.n_bytes)
    ]
    assert (merge.state, len(merge.batches), merge.n_traces) == ("merged", 4, 5)
    assert (merge.n_files, merge.n_files_after) == (19, 7)
    assert everything(lake) == before
    assert known_captures(lake) == captures
    assert len(lake.batches()) == 2
    assert not check(lake).faults
    assert materialize(lake, TABLES) == [] and materialize_captures(lake, CAPTURES) == []
    assert_as_anew(lake)
    with lake.connect(["traces"]) as con:
        kept_ids = con.execute("SELECT DISTINCT ingest_batch_id FROM traces ORDER BY 1 NULLS LAST").fetchall()
    assert [name for (name,) in kept_ids] == [*merge.batches[:3], None]  # the fourth has a rejected file
    assert compact(lake).merges == []
    removed = compact(lake, now=NOW + 2 * DAY, older_than=4).removed
    assert [retirement.batch_id for retirement in removed] == list(merge.batches)
    assert everything(lake) == before and in_analyst(lake).keys() == before.keys()
    assert len(batch_files(lake.root)) == files - merge.n_files + (merge.n_files_after or 0)
    assert not check(lake).faults and not notices(lake)


def test_a_reader_that_opened_before_goes_on(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")  # two batches, because `whole` takes longer
    for number in range(2):
        ingest_at(lake, NOON + number * timedelta(minutes=10), write_trace(tmp_path / f"rank{number}.json", number))
    materialize(lake, ["kernels"])
    with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con, lake.connect(["events", "traces"]) as other:
        count = "SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM traces), (SELECT count(*) FROM kernels)"
        before, direct = con.execute(count).fetchall(), sorted(other.execute("FROM events").fetchall(), key=repr)
        assert compact(lake).merges
        assert con.execute(count).fetchall() == before
        assert sorted(other.execute("FROM events").fetchall(), key=repr) == direct


def test_a_batch_with_wrong_bytes_stays_until_it_is_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch with wrong bytes is not merged. Otherwise the merged file would have a valid checksum."""
    monkeypatch.setattr(retention, "publish", lambda _: None)
    lake = Lake(tmp_path / "lake")
    for number in range(3):
        ingest_at(lake, NOON + number * timedelta(minutes=10), write_trace(tmp_path / f"{number}.json", number))
    first, rotten, last = lake.batches()
    rot(lake, "events", rotten, b"gemm_1", b"gemm_7")
    result = CliRunner().invoke(app, ["compact", "--lake", str(lake.root), "--json"])
    states = {merge["state"]: merge["batches"] for merge in json.loads(result.stdout)["merges"]}
    assert states == {"damaged": [rotten.batch_id], "merged": [first.batch_id, last.batch_id]}
    assert "1 batch has a damaged file and stays as before: tracelake check --repair" in result.stderr
    assert lake.batches()[0] == rotten and [fault.table for fault in check(lake, repair=True).faults][:1] == ["events"]
    assert rotten not in lake.batches() and len(lake.known_traces()) == 2


@pytest.mark.slow  # 11 s
@pytest.mark.kills
def test_killed_at_a_step_and_run_again(whole: Path) -> None:
    with kept(whole) as lake:
        before, captures, in_file = everything(lake), known_captures(lake), in_analyst(lake)
    for step, lake in killed(whole, 40, do_compact, calls=("replace", "unlink")):
        assert everything(lake) == before, step
        publish(lake)
        assert in_analyst(lake) == in_file, step
        do_compact(lake.root)
        assert everything(lake) == before and known_captures(lake) == captures, step
        assert not check(lake).faults, step
        assert len(lake.batches()) == 2
        assert materialize_captures(lake, CAPTURES) == []


@pytest.mark.slow  # other tests cover forget, retention and late ranks on unmerged batches
def test_what_is_done_with_a_merged_batch(lake: Lake, tmp_path: Path) -> None:
    compact(lake)
    folder = lake.root.parent
    ids = sorted(lake.known_traces())
    assert {row.status for row in ingest([folder / "in", folder / "new"], lake).rows} == {"known", "rejected"}
    late = write_trace(folder / "in" / "late" / "rank7.json", 7, distributedInfo={"rank": 7})
    ingest([late], lake)
    gone = forget(lake, ids[0])
    assert gone.n_rows and sorted(lake.known_traces()) == sorted({*ids[1:], *lake.known_traces()})
    held = "SELECT count(*) FROM read_parquet(?) WHERE trace_id = ?"
    for path in batch_files(lake.root):  # also the old files, which readers may still have open
        if path.parts[-3] in ("events", "kernels", MARK):
            assert duckdb.execute(held, [str(path), ids[0]]).fetchall() == [(0,)], path
    assert not retired_traces(lake)
    materialize(lake, TABLES)
    assert_as_anew(lake)
    shutil.rmtree(folder / "in" / "late")
    hidden = retire(lake, 2, grace=NO_GRACE)
    assert len(hidden) == 5 and len(lake.batches()) == 2
    assert len(retired_traces(lake)) == 4
    assert_as_anew(lake)
    assert not check(lake).faults


@pytest.mark.slow  # two ingests and two compactions
def test_what_was_rejected_stays_rejected_in_a_merged_batch(tmp_path: Path) -> None:
    """Rejected files stay rejected in a merged batch.

    This includes a file of two processes of which only one was rejected. A file that a later run of the day ingested
    stays ingested.
    """
    lake, late, two = Lake(tmp_path / "lake"), tmp_path / "late.json", write_trace(tmp_path / "two.json", 1)
    late.write_text("")
    ingest([late], lake)
    with EventBatch(lake, None) as batch:
        batch.reject(two, "process 1: broken", None, 0.0)
        batch.add(two, None)
        batch.commit()
    ingest([write_trace(late, 2)], lake)
    for _ in range(2):
        with lake.connect([MARK, "rejects"]) as con:
            assert con.execute(f"SELECT path FROM {rejected_files(con)}").fetchall() == [(str(two),)]
        compact(lake, older_than=0)
    assert len(lake.batches()) == 1


@pytest.mark.slow  # a test above kills each step
def test_a_merge_that_ends_before_its_mark_shows_nothing_twice(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    before, place = everything(lake), Lake._place

    def ended(self: Lake, batch: Batch, staged: Mapping[str, Path]) -> list[Path]:
        place(self, batch, {table: path for table, path in staged.items() if table != MARK})
        if MARK in staged:
            raise OSError("killed")
        return []

    with monkeypatch.context() as patched:
        patched.setattr(Lake, "_place", ended)
        with pytest.raises(OSError, match="killed"):
            compact(lake)
    assert everything(lake) == before and not check(lake).faults
    assert [merge.state for merge in compact(lake).merges] == ["merged"]
    assert everything(lake) == before


@pytest.mark.slow
def test_a_batch_that_changes_meanwhile_is_left_alone(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    before, there = everything(lake), manifest.entries(lake.root).keys()
    merged_files = compact.__globals__["merged_files"]

    def changing(*args: object) -> object:
        files = merged_files(*args)
        materialize(lake, ["streams"], and_publish=False)
        return files

    monkeypatch.setitem(compact.__globals__, "merged_files", changing)
    (merge,) = compact(lake).merges
    assert merge.state == "changed"
    assert len(lake.batches()) == 4 and everything(lake) == before
    assert manifest.entries(lake.root).keys() == there and not check(lake).faults
    monkeypatch.undo()
    assert [merge.state for merge in compact(lake).merges] == ["merged"]
    assert everything(lake) == before


@pytest.mark.slow  # needs a separate lake
def test_batches_of_other_versions_and_large_ones_stay(lake: Lake) -> None:
    first, *_ = sorted(lake.batches())
    materialize(lake, ["streams"], [first])
    assert sorted(len(merge.batches) for merge in compact(lake, dry_run=True).merges) == [2, 2]
    assert compact(lake, smaller_than=1, dry_run=True).merges == []
    for days in (9, 400_000):  # 400,000 days ago is the year 931
        assert compact(lake, older_than=days, dry_run=True).merges == []
    with pytest.raises(ValueError, match="at least"):
        compact(lake, older_than=-1)


@pytest.mark.slow  # 5 s each
@pytest.mark.parametrize("moment", ["before a model", "before the move", "before the lock of the move"])
def test_tables_are_computed_although_their_batches_are_merged_meanwhile(
    lake: Lake, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables are computed although their batches are merged in the meantime.

    `compact --grace-hours 0` during `materialize` deletes batches that `materialize` has not processed yet, or the one
    that it is processing, with the files staged for it.
    """
    rows = everything(lake)
    merges = []

    def merge_once(_model: str = "") -> None:
        if not merges:
            merges.append(None)  # compact itself moves files
            merges[:] = compact(lake, grace=NO_GRACE).merges

    put_all, describe = Lake.put_all, manifest.describe
    if moment == "before the move":
        monkeypatch.setattr(Lake, "put_all", lambda *args, **named: (merge_once(), put_all(*args, **named))[1])
    if moment == "before the lock of the move":
        monkeypatch.setattr(manifest, "describe", lambda *args: (describe(*args), merge_once())[0])
    done = materialize(lake, TABLES, force=True, on_step=merge_once if moment == "before a model" else lambda _: None)
    assert [merge.state for merge in merges] == ["merged"]
    assert {row.batch.batch_id for row in done} >= {merges[0].into}
    assert everything(lake) == rows and check(lake).faults == []
    assert {batch.batch_id for batch in lake.batches()} == {path.stem for path in lake.root.glob("kernels/*/*.parquet")}
    assert {batch.batch_id for batch in lake.all_batches()} == manifest.entries(lake.root).keys()
