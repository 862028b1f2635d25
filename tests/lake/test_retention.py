"""Retention of old batches: when they are hidden, what a kill leaves, what open readers keep, what must not return."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from pipelines.lake import Batch, Lake
from pipelines.lake.commit.catalog_file import LOCK, rebuild
from pipelines.lake.commit.locks import is_held
from pipelines.lake.names import ANALYST, MARK, OVERLAYS, RETIRED, table_file
from pipelines.lake.publish.analyst_file import publish
from pipelines.lake.retain import retention
from pipelines.lake.retain.compaction import compact
from pipelines.lake.retain.retention import notices, retire
from pipelines.readers.ingest import ingest
from pipelines.runs.digest import reduce_old
from pipelines.runs.materialize.per_trace import materialize
from tests.lake.world import TABLES, assert_whole, kept, killed, shown, write_trace

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
SHOWN = ["traces", "events", "findings", *TABLES, "rejects"]


class Ages:
    """A frozen clock for the names of batches."""

    def __init__(self, days_ago: float) -> None:
        self.time = NOW - timedelta(days=days_ago)

    def new(self) -> Batch:
        return Batch(f"{self.time:%Y%m%dT%H%M%S%f}-{os.urandom(4).hex()}")


def put(lake: Lake, folder: Path, monkeypatch: pytest.MonkeyPatch, days_ago: float, *seeds: int) -> list[Path]:
    """Ingest the traces `seeds` as one batch whose time is `days_ago` days before NOW."""
    files = [write_trace(folder / f"rank{seed}.json", seed) for seed in seeds]
    with monkeypatch.context() as patch:
        patch.setattr(Lake, "new_batch", Ages(days_ago).new)
        ingest(files, lake)
    return files


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a lake of two traces of 40 days ago, one of 20 and one of yesterday, all computed and published."""
    folder = tmp_path_factory.mktemp("whole")
    lake = Lake(folder / "lake")
    with pytest.MonkeyPatch.context() as patch:
        for days_ago, seeds in ((40, (1, 2)), (20, (3,)), (1, (4,))):
            put(lake, folder / "in", patch, days_ago, *seeds)
    materialize(lake, TABLES)
    return folder


@pytest.fixture
def lake(whole: Path, tmp_path: Path) -> Iterator[Lake]:
    """Yield the lake of `whole`, and restore it afterwards. Its source files are in tmp_path/in."""
    shutil.copytree(whole / "in", tmp_path / "in")
    with kept(whole) as lake:
        yield lake


def n_traces(lake: Lake) -> int:
    """Return the number of traces that new readers see, the same in the files and in the analysts' file."""
    with lake.connect(["events", "traces"]) as con:
        n = assert_whole(con)
    with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con:
        assert assert_whole(con) == n
    return n


def files_of(lake: Lake) -> dict[str, int]:
    """Return the size of every Parquet file."""
    return {str(p.relative_to(lake.root)): p.stat().st_size for p in lake.root.glob("*/day=*/*.parquet")}


def test_dry_run_lists_batches_traces_and_bytes_and_changes_nothing(lake: Lake) -> None:
    before = files_of(lake)
    retirements = retire(lake, 30, dry_run=True, now=NOW)
    oldest = lake.batches()[0].batch_id
    old = {name: size for name, size in before.items() if oldest in name}
    assert [(r.batch_id, r.state, len(r.traces), r.n_files, r.n_bytes) for r in retirements] == [
        (oldest, "due", 2, len(old), sum(old.values()))
    ]
    assert (files_of(lake), n_traces(lake)) == (before, 4)
    assert [len(retire(lake, days, dry_run=True, now=NOW)) for days in (50, 30, 10, 2)] == [0, 1, 2, 2]


def test_hidden_at_once_removed_after_the_grace(lake: Lake) -> None:
    before = files_of(lake)
    assert [r.state for r in retire(lake, 30, now=NOW)] == ["hidden"]
    assert (n_traces(lake), files_of(lake)) == (2, before)
    assert [r.state for r in retire(lake, 30, now=NOW + 0.9 * DAY)] == ["hidden"]
    assert files_of(lake) == before
    (removed,) = retire(lake, 30, now=NOW + DAY)
    assert (removed.state, len(removed.traces)) == ("removed", 2)
    assert files_of(lake) == {name: size for name, size in before.items() if removed.batch_id not in name}
    assert retire(lake, 30, now=NOW + DAY) == []
    assert n_traces(lake) == 2


def test_no_file_of_a_batch_is_moved_into_place_while_its_files_are_deleted(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that `materialize` moved meanwhile would remain without its batch."""
    files, deletions = retention._files, []

    def listed(lake: Lake, batch: Batch, traces: Collection[str]) -> list[Path]:
        if not table_file(lake.root, MARK, batch).exists():
            deletions.append(is_held(lake.root, LOCK))
        return files(lake, batch, traces)

    monkeypatch.setattr(retention, "_files", listed)
    retire(lake, 30, now=NOW)
    assert [r.state for r in retire(lake, 30, now=NOW + DAY)] == ["removed"]
    assert deletions == [True]


def test_a_full_disk_gets_room(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches whose grace period is over are deleted before the analysts' file is rewritten."""
    retire(lake, 30, now=NOW)
    (oldest,) = notices(lake)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(retention, "publish", full)
    with pytest.raises(OSError, match="No space left"):
        retire(lake, 10, now=NOW + DAY)
    assert not [name for name in files_of(lake) if oldest in name]
    monkeypatch.undo()
    assert [r.state for r in retire(lake, 10, now=NOW + DAY)] == ["hidden"]


def test_every_upkeep_deletes_what_retention_has_hidden(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(retention, "publish", lambda _: None)
        retire(lake, 30, now=NOW)
        retire(lake, 10, now=NOW + DAY / 2)
    oldest, second = sorted(notices(lake))
    removed = [r.batch_id for r in compact(lake, now=NOW + DAY).removed]
    assert removed == [oldest] and {r.state for r in reduce_old(lake, 60, now=NOW + DAY)} == {"hidden"}
    assert [(r.batch_id, r.state) for r in reduce_old(lake, 60, now=NOW + 2 * DAY)] == [(second, "removed")]
    assert {Path(name).stem for name in files_of(lake)} == {batch.batch_id for batch in lake.batches()}


@pytest.mark.slow  # a test above checks that hidden files stay
def test_ingestion_sweeps_nothing_that_is_hidden(lake: Lake, tmp_path: Path) -> None:
    """Ingestion does not sweep the files of a hidden batch, which wait for their grace period.

    A sweep removes day-old files without a commit marker.
    """
    retire(lake, 30, now=NOW)
    for path in lake.root.glob("*/day=*/*.parquet"):
        os.utime(path, (0, 0))
    before = files_of(lake)
    ingest([write_trace(tmp_path / "new.json", 9)], lake)
    assert files_of(lake).keys() >= before.keys()


def test_what_was_removed_does_not_come_back_from_the_inbox(lake: Lake, tmp_path: Path) -> None:
    retire(lake, 30, grace=timedelta(0), now=NOW)
    assert n_traces(lake) == 2
    assert [row.status for row in ingest([tmp_path / "in"], lake).rows] == ["known"] * 4
    assert n_traces(lake) == 2
    for notice in (lake.root / RETIRED).iterdir():
        notice.unlink()  # the documented way to ingest a removed batch again
    rebuild(lake.root)
    assert sorted(row.status for row in ingest([tmp_path / "in"], lake).rows) == ["known", "known", "ok", "ok"]


@pytest.mark.slow  # the test above covers removed batches
def test_a_hidden_batch_comes_back_while_its_files_are_there(lake: Lake) -> None:
    everything = shown(lake, SHOWN)
    retire(lake, 30, now=NOW)
    assert shown(lake, SHOWN) != everything
    rebuild(lake.root)  # the documented way to restore a hidden batch
    publish(lake)
    assert shown(lake, SHOWN) == everything


@pytest.mark.slow  # tests above check which files are removed
def test_overlays_and_rejects_go_along(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("no trace at all")
    with monkeypatch.context() as patch:
        patch.setattr(Lake, "new_batch", Ages(35).new)
        ingest([broken], lake)
    trace_id = next(id for id, batch in lake.known_traces().items() if batch == lake.batches()[0])
    overlay = lake.root / OVERLAYS / f"day={lake.batches()[0].day}" / trace_id / "overlay.json"
    overlay.parent.mkdir(parents=True)
    overlay.write_text("{}")
    removed = retire(lake, 30, grace=timedelta(0), now=NOW)
    assert [len(r.traces) for r in removed] == [2, 0]
    assert not overlay.parent.exists()
    assert "rejects" not in shown(lake, ["rejects"])


def test_a_removal_that_was_killed_is_completed_after_the_catalog_is_lost(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed removal is completed even if the catalog is lost afterwards.

    The run was killed after it wrote the notice in `.retired/`, and before it deleted a file.
    """
    monkeypatch.setattr(retention, "publish", lambda _: None)

    def ended(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "unlink", ended)
        retire(lake, 30, grace=timedelta(0), now=NOW)
    (notice,) = (lake.root / RETIRED).iterdir()
    assert [name for name in files_of(lake) if notice.stem in name]
    rebuild(lake.root)
    assert notice.stem not in {batch.batch_id for batch in lake.batches()}
    assert [r.state for r in retire(lake, 30, grace=timedelta(0), now=NOW)] == ["removed"]
    assert {Path(name).stem for name in files_of(lake)} == {batch.batch_id for batch in lake.batches()}


def test_a_lake_whose_batches_are_all_old_is_empty_afterwards(lake: Lake) -> None:
    assert len(retire(lake, 1, grace=timedelta(0), now=NOW + 30 * DAY)) == 3
    assert (files_of(lake), lake.exists) == ({}, False)
    with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con:
        assert con.execute("SELECT count(*) FROM kernels").fetchall() == [(0,)]


@pytest.mark.parametrize(("days", "grace"), [(0, DAY), (-1, DAY), (5, -DAY)])
def test_nonsense_is_refused(lake: Lake, days: int, grace: timedelta) -> None:
    with pytest.raises(ValueError, match="keep at least 1 day"):
        retire(lake, days, grace)


def test_a_limit_before_the_year_1000_removes_nothing(lake: Lake) -> None:
    assert retire(lake, 400_000, dry_run=True) == []


@pytest.mark.slow  # 4 s
@pytest.mark.kills
def test_killed_at_a_step_and_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill before or after any rename or removal leaves whole batches for readers. The next run completes it."""
    lake = Lake(tmp_path / "lake")
    for days_ago, seeds in ((40, (1,)), (35, (2,)), (1, (3, 4))):
        put(lake, tmp_path / "in", monkeypatch, days_ago, *seeds)
    materialize(lake, TABLES)
    # At least two steps for each of: the analysts' file, 5 files per batch, 2 notices.
    least = 2 * (1 + 2 * 5 + 2)
    for step, lake in killed(tmp_path, least, do_retire, NOW, calls=("replace", "unlink")):
        with lake.connect(["events", "traces"]) as con:
            assert assert_whole(con) in (2, 3, 4), step
        with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con:
            # The analysts' file is replaced before a batch's files are deleted, so it names only complete batches.
            assert assert_whole(con) in (2, 4), step
        assert_no_half_batch(lake)
        retire(lake, 30, grace=timedelta(0), now=NOW)
        assert n_traces(lake) == 2, step
        assert len({Path(name).stem for name in files_of(lake)}) == 1, step
        assert [notice["is_removed"] for notice in notices(lake).values()] == [True, True], step
        # If the kill leaves a part of a notice, the part is swept after a day.
        assert len(list((lake.root / RETIRED).glob("*.json"))) == 2, step
        for part in (lake.root / RETIRED).glob(".*"):
            os.utime(part, (0, 0))
        lake.sweep()
        assert len(list((lake.root / RETIRED).iterdir())) == 2, step


def assert_no_half_batch(lake: Lake) -> None:
    """Assert that a reader who reads the Parquet only by the commit markers sees all events of each trace."""
    with duckdb.connect() as con:
        for table in ("traces", "events"):
            con.execute(f"CREATE VIEW {table}_all AS FROM read_parquet('{lake.root}/{table}/day=*/*.parquet')")
        con.execute("CREATE VIEW traces AS FROM traces_all")
        con.execute("CREATE VIEW events AS FROM events_all SEMI JOIN traces_all USING (trace_id, batch_id)")
        assert_whole(con)


def do_retire(root: Path, now: datetime) -> None:
    """Retire batches older than 30 days. It may run in a separate process, whose clock differs from the test's."""
    retire(Lake(root), 30, grace=timedelta(0), now=now)


def test_command_line(lake: Lake, tmp_path: Path) -> None:
    """`--json` lists a dry run's batches. A missing lake is an error."""
    from typer.testing import CliRunner

    from pipelines.faces.cli.app import app

    (oldest, *_) = lake.batches()
    arguments = ["retention", "--keep-days", "30", "--lake", str(lake.root), "--dry-run", "--json"]
    answer = json.loads(CliRunner().invoke(app, arguments).stdout)
    assert [(row["batch_id"], row["state"], len(row["traces"])) for row in answer] == [(oldest.batch_id, "due", 2)]
    missing = CliRunner().invoke(app, ["retention", "--keep-days", "1", "--lake", str(tmp_path / "nowhere")])
    assert missing.exit_code == 1
