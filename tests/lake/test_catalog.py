"""A damaged or lost catalog, or a killed writer: no rows are lost, and none are duplicated."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.lake import Lake
from pipelines.lake.commit import catalog_file, manifest
from pipelines.lake.commit.catalog_file import CATALOG, content, note, rebuild, record_of, writing
from pipelines.lake.commit.ingested_files import settled
from pipelines.lake.lake import Staged
from pipelines.lake.names import MARK, table_file
from pipelines.lake.retain import retention
from pipelines.lake.retain.compaction import compact
from pipelines.lake.table_files import table_files
from pipelines.readers.ingest import ingest
from pipelines.runs.check import check
from pipelines.runs.materialize.per_trace import materialize
from tests.effort import SEED, SLOW, first_of, steps
from tests.lake.world import TABLES, capture, kept, run_killed, shown, steps_of, write_trace

SHOWN = ["traces", "events", "findings", "rejects", *TABLES]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a lake of three batches, one with a rejected file. Two are merged into a fourth, but not deleted yet."""
    folder = tmp_path_factory.mktemp("catalog")
    lake = Lake(folder / "lake")
    ingest(capture(folder / "in", ranks=2), lake)
    ingest([write_trace(folder / "in" / "more.json", 5)], lake)
    materialize(lake, TABLES)
    assert [merge.state for merge in compact(lake, older_than=0).merges] == ["merged"]
    ingest([write_trace(folder / "in" / "last.json", 6)], lake)
    materialize(lake, TABLES)
    return folder


@pytest.fixture
def lake(whole: Path) -> Iterator[Lake]:
    """Yield the lake of `whole`, and restore it afterwards."""
    with kept(whole) as lake:
        yield lake


def assert_as_before(lake: Lake, expected: dict[str, list[tuple]], what: object) -> None:
    assert shown(lake, SHOWN) == expected, what
    assert len(lake.batches()) == 2, what
    again = ingest([lake.root.parent / "in"], lake).rows
    assert {row.status for row in again} <= {"known", "rejected"}, what
    assert materialize(lake, TABLES) == [], what
    assert shown(lake, SHOWN[:3]) == {table: expected[table] for table in SHOWN[:3]}, what


def test_a_lost_catalog_is_made_again_from_the_files(lake: Lake) -> None:
    expected, ids = shown(lake, SHOWN), {n: sorted(e.sizes) for n, e in manifest.entries(lake.root).items()}
    (lake.root / CATALOG).unlink()
    assert {name: sorted(entry.sizes) for name, entry in manifest.entries(lake.root).items()} == ids
    assert_as_before(lake, expected, "lost")
    assert not check(lake).faults


def test_rejected_files_of_a_merged_batch_are_not_there_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, broken = Lake(tmp_path / "lake"), tmp_path / "none.json"
    broken.write_text("no trace at all")
    ingest([broken], lake)
    for seed in range(2):
        ingest([write_trace(tmp_path / f"{seed}.json", seed)], lake)
    (alone,) = set(manifest.shown(lake.root)) - {batch.batch_id for batch in lake.batches()}
    rebuild(lake.root)
    assert alone in manifest.shown(lake.root)  # no other file contains it
    monkeypatch.setattr(retention, "publish", lambda _: None)
    assert [len(merge.batches) for merge in compact(lake, older_than=0).merges] == [3]
    rebuild(lake.root)
    assert len(shown(lake, ["rejects"])["rejects"]) == 1
    compact(lake, older_than=0, grace=timedelta(0))
    assert list(manifest.entries(lake.root)) == [batch.batch_id for batch in lake.batches()]


@pytest.mark.slow  # 4 s; a test above loses the catalog
def test_the_command_makes_it_again(lake: Lake) -> None:
    expected, before = shown(lake, SHOWN), content(lake.root).state
    done = CliRunner().invoke(app, ["check", "--rebuild", "--lake", str(lake.root)])
    assert done.exit_code == 0 and "no checksums" in done.output, done.output
    assert content(lake.root).state[0] != before[0]
    assert_as_before(lake, expected, "rebuilt")


def test_damage_anywhere_is_noticed_and_mended(lake: Lake) -> None:
    """A flipped bit anywhere in the catalog is noticed and repaired.

    The offsets are random, in the header as well as in rows. After each flip the lake answers as before.
    """
    choice, path = random.Random(SEED), lake.root / CATALOG
    expected, whole = shown(lake, SHOWN), path.read_bytes()
    state = content(lake.root).state
    sizes_before = {name: sorted(entry.sizes) for name, entry in manifest.shown(lake.root).items()}
    places = [*choice.sample(range(100), 20), *(choice.randrange(len(whole)) for _ in range(100 if SLOW else 30))]
    mended = 0
    for at in places:
        catalog_file._memory.clear()  # simulates a process that has not read the catalog yet
        damaged = bytearray(whole)
        damaged[at] ^= 1 << choice.randrange(8)
        path.write_bytes(damaged)
        sizes = {name: sorted(entry.sizes) for name, entry in manifest.shown(lake.root).items()}
        mended += content(lake.root).state[0] != state[0]
        assert sizes == sizes_before, at
        assert set(lake.known_traces()) == {row[0] for row in _ids(lake)} and len(lake.batches()) == 2, at
    assert mended
    assert_as_before(lake, expected, "the last place")


def _ids(lake: Lake) -> list[tuple]:
    files = ", ".join(f"'{path}'" for path in table_files(lake.root, MARK))
    return duckdb.sql(f"SELECT DISTINCT trace_id FROM read_parquet([{files}])").fetchall()


_DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "another file": lambda path: path.write_bytes(b"no database at all" * 300),
    "zeros": lambda path: path.write_bytes(path.read_bytes()[:4096] + bytes(path.stat().st_size - 4096)),
}


@pytest.mark.slow  # 4 s; the test above covers other damage
def test_the_log_of_a_damaged_catalog_is_not_applied_to_the_new_one(lake: Lake) -> None:
    expected, path = shown(lake, SHOWN), lake.root / CATALOG
    log = path.with_name(f"{CATALOG}-wal")
    with closing(sqlite3.connect(path)) as con, con:
        con.execute("UPDATE batches SET brief = 'x'")
        con.commit()
        kept_log = log.read_bytes()
    path.write_bytes(b"no catalog" + path.read_bytes()[10:])  # SQLite cannot open the file, so it keeps the log
    log.write_bytes(kept_log)
    assert_as_before(lake, expected, "log")


@pytest.mark.slow  # 4 s
def test_a_catalog_that_is_none_is_made_again(lake: Lake) -> None:
    expected = shown(lake, SHOWN)
    for what, damage in _DAMAGES.items():
        damage(lake.root / CATALOG)
        assert shown(lake, SHOWN) == expected and len(lake.batches()) == 2, what
    assert_as_before(lake, expected, "all")


def _sql(lake: Lake, statement: str) -> None:
    with sqlite3.connect(lake.root / CATALOG) as con:
        con.execute(statement)
    con.close()


@pytest.mark.parametrize(
    "statement",
    first_of(
        [
            "UPDATE batches SET brief = replace(brief, '1', '7')",
            "DELETE FROM state",
            "UPDATE batches SET keys = replace(keys, 'a', 'b')",
            "DELETE FROM batches WHERE name = (SELECT max(name) FROM batches)",
            "DELETE FROM notices",
            "UPDATE state SET sum = sum + 1",
        ],
        2,
    ),
)
def test_rows_that_are_not_as_they_were_written_are_noticed(lake: Lake, statement: str) -> None:
    expected, before = shown(lake, SHOWN), content(lake.root).state[0]
    _sql(lake, statement)
    catalog_file._memory.clear()
    assert content(lake.root).state[0] != before
    assert shown(lake, SHOWN) == expected


def test_tables_that_only_save_time_are_lost_without_a_word(lake: Lake) -> None:
    note(lake.root, "something", {"a": 1})
    assert record_of(lake.root, "something") == {"a": 1} and settled(lake)
    _sql(lake, "UPDATE records SET text = text || ' '")
    assert record_of(lake.root, "something") is None
    _sql(lake, "DROP TABLE settled")
    assert settled(lake) == {}
    assert {row.status for row in ingest([lake.root.parent / "in"], lake).rows} == {"known", "rejected"}


def test_where_models_failed_is_in_the_files_too(lake: Lake) -> None:
    batch = lake.batches()[0]
    failure = manifest.Failure(min(lake.known_traces()), "kernels", 'Error: it\'s "so"')
    from pipelines.lake.commit.parquet import options

    staged = lake.staging(batch) / "kernels.parquet"
    source = table_file(lake.root, "kernels", batch)
    duckdb.sql(f"COPY (FROM read_parquet('{source}')) TO '{staged}' ({options('v', [failure])})")
    lake.put_all(batch, {"kernels": Staged(staged, 1, (failure,), "v")})
    before = manifest.shown(lake.root)[batch.batch_id]
    rebuild(lake.root)
    after = manifest.shown(lake.root)[batch.batch_id]
    assert before.failures == after.failures == {"kernels": (failure,)}
    assert (before.kind.versions["kernels"], before.key_paths()) == ("v", after.key_paths())


def do_rebuild(root: Path) -> None:
    rebuild(root)


@pytest.mark.slow  # 4 s
@pytest.mark.kills
def test_a_rebuild_is_killed(lake: Lake) -> None:
    expected, calls = shown(lake, SHOWN), ("replace", "unlink")
    n = steps_of(do_rebuild, lake.root, calls=calls)
    assert n >= 4
    for step in steps(n, few=2):
        assert run_killed(step, do_rebuild, lake.root, calls=calls)
        assert shown(lake, SHOWN) == expected, step
        assert len(lake.batches()) == 2, step


def put_again(root: Path, staged: Path) -> None:
    lake = Lake(root)
    lake.put_all(lake.batches()[-1], {"kernels": Staged(staged, 1, (), "new")})


@pytest.mark.slow  # 4 s
@pytest.mark.kills
def test_what_a_killed_writer_announced_is_what_is_in_place(lake: Lake, tmp_path: Path) -> None:
    """A writer killed at any step leaves either the old file or the new one.

    Its recorded version and digest match the file.
    """
    batch = lake.batches()[-1]
    target, seen = table_file(lake.root, "kernels", batch), set()
    duckdb.sql(f"COPY (FROM read_parquet('{target}') LIMIT 1) TO '{tmp_path / 'new.parquet'}' (FORMAT parquet)")
    old = target.read_bytes()
    n = 8
    for step in range(1, n + 1):
        shutil.copy(tmp_path / "new.parquet", tmp_path / "staged.parquet")
        if not run_killed(step, put_again, lake.root, tmp_path / "staged.parquet"):
            break
        is_new = target.read_bytes() != old
        seen.add(is_new)
        entry = manifest.shown(lake.root)[batch.batch_id]
        assert (entry.kind.versions["kernels"] == "new") == is_new and entry.is_plain, step
        assert not check(lake).faults, step
        if is_new:
            break
    assert seen == {False, True}


def test_a_batch_is_not_there_before_it_is_confirmed_nor_by_halves(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a writer works, other processes see the old state. Afterwards one SELECT shows them its whole commit."""
    serial, states = content(lake.root).state[1], []
    place = Lake._place

    def watched(self: Lake, *args: Any) -> list[Path]:
        states.append((content(lake.root).state[1], len(Lake(lake.root).batches())))
        return place(self, *args)

    monkeypatch.setattr(Lake, "_place", watched)
    ingest([write_trace(lake.root.parent / "late" / "late.json", 77)], lake)
    assert [n for _, n in states] == [2] * len(states) and states[0][0] == serial + 1
    assert len(lake.batches()) == 3 and content(lake.root).state[1] > states[-1][0]


def test_a_file_that_no_row_names_is_garbage(lake: Lake) -> None:
    expected = shown(lake, SHOWN)
    there = table_file(lake.root, "events", lake.batches()[-1])
    stray = there.with_name("20261124T000000000000-00000000.parquet")
    shutil.copy(there, stray)
    assert shown(lake, SHOWN) == expected and not check(lake).faults
    assert stray not in lake.sweep()
    os.utime(stray, (0, 0))
    assert stray in lake.sweep() and not stray.exists()
    assert shown(lake, SHOWN) == expected


def test_a_lake_that_may_not_be_written_is_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lake that may not be written can be read.

    SQLite cannot open its catalog, so tracelake reads a copy, including the content of the catalog's log.
    """
    expected, connect = shown(lake, SHOWN), sqlite3.connect

    def refused(name: str, *args: Any, **more: Any) -> sqlite3.Connection:
        if str(lake.root) in name:
            connect("file:/nowhere/at/all?mode=ro", uri=True)
        return connect(name, *args, **more)

    monkeypatch.setattr(sqlite3, "connect", refused)
    catalog_file._memory.clear()
    assert shown(lake, SHOWN) == expected
    with pytest.raises(OSError, match="unable to open"), writing(lake.root) as catalog:
        catalog.notice("x", "{}")


def test_a_copy_of_a_catalog_that_is_written_meanwhile_is_of_one_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of a catalog has one state, even if another process commits while it is copied.

    Without a check, half of the copy would be older than the commit.
    """
    lake, connect, copyfile = Lake(tmp_path / "lake"), sqlite3.connect, shutil.copyfile
    ingest([write_trace(tmp_path / "in" / "0.json", 0)], lake)

    def refused(name: str, *args: Any, **more: Any) -> sqlite3.Connection:
        return connect("file:/nowhere/at/all?mode=ro" if str(lake.root) in name else name, *args, **more)

    def overtaken(source: Path, target: Path) -> None:
        before = source.read_bytes()
        monkeypatch.setattr(shutil, "copyfile", copyfile)
        with monkeypatch.context() as patch:
            patch.setattr(sqlite3, "connect", connect)
            ingest([write_trace(tmp_path / "in" / "1.json", 1)], lake)
        half = len(before) // 2
        target.write_bytes(before[:half] + source.read_bytes()[half:])

    monkeypatch.setattr(sqlite3, "connect", refused)
    monkeypatch.setattr(shutil, "copyfile", overtaken)
    catalog_file._memory.clear()
    with catalog_file.reading(lake.root) as con:
        assert con and con.execute("SELECT count(*) FROM batches").fetchall() == [(2,)]
        assert con.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
