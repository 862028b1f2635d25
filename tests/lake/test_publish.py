"""The analysts' file: complete or unchanged, repaired on the next look, and never answering from another lake's files."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.faces.cli.refresh_tables import open_analyst
from pipelines.faces.ibis_tables import open_tables
from pipelines.lake import Lake
from pipelines.lake.commit.catalog_file import record_of
from pipelines.lake.names import ANALYST
from pipelines.lake.publish.analyst_file import PUBLISHED, analyst, is_published, publish
from pipelines.lake.publish.contents import column_types
from pipelines.lake.publish.empty_file import NotPublished
from pipelines.models.catalog import load_catalog
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_trace import materialize
from tests.effort import first_of
from tests.lake.world import PROCESSES, TABLES, assert_whole, capture, do_publish, write_trace


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a lake of two traces with a few tables, published in `lake`."""
    folder = tmp_path_factory.mktemp("whole")
    ingest(capture(folder / "in", ranks=2), Lake(folder / "lake"))
    materialize(Lake(folder / "lake"), TABLES)
    return folder


@pytest.fixture
def lake(whole: Path) -> Iterator[Lake]:
    """Yield the lake of `whole`, and restore it afterwards. Publishing it again would cost a second each time."""
    kept, root = whole / "kept", whole / "lake"
    shutil.copytree(root, kept)  # keeps the modification times, so the file counts as published
    yield Lake(root)
    shutil.rmtree(root, ignore_errors=True)
    kept.rename(root)


def published_with_limit(root: Path, n_bytes: int) -> None:
    """Publish under a file size limit, so that a write fails as on a full or broken disk."""
    column_types(load_catalog())  # fills the cache, which is another file
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))
    try:
        do_publish(root)
    except (OSError, duckdb.IOException, NotPublished):
        os._exit(3)


@pytest.mark.slow  # many processes; the old file also stays in a test below
def test_a_write_that_fails_leaves_the_old_file(lake: Lake, tmp_path: Path) -> None:
    before = (lake.root / ANALYST).read_bytes()
    ingest([write_trace(tmp_path / "late.json", 9)], lake)
    failed, limit = 0, 0
    while True:
        process = PROCESSES.Process(target=published_with_limit, args=(lake.root, limit))
        process.start()
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == 3, limit
        assert (lake.root / ANALYST).read_bytes() == before, limit
        assert not is_published(lake, []), limit
        failed, limit = failed + 1, limit + len(before) // 4
    assert failed >= 4
    with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con:
        assert assert_whole(con) == 3


def _afterwards(monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    """Run a statement in each file after it was built or updated."""
    for name in ("build", "update"):
        make = publish.__globals__[name]

        def made(path: Path, *args: object, make: Callable[..., None] = make) -> None:
            make(path, *args)
            with duckdb.connect(str(path)) as con:
                con.execute(statement)

        monkeypatch.setitem(publish.__globals__, name, made)


def _lost_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    _afterwards(monkeypatch, "DELETE FROM traces")


def _lost_table(monkeypatch: pytest.MonkeyPatch) -> None:
    _afterwards(monkeypatch, "DROP VIEW kernels")


@pytest.mark.parametrize("fault", first_of([_lost_rows, _lost_table], 1))
def test_what_is_not_whole_is_not_published(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None]
) -> None:
    before = (lake.root / ANALYST).read_bytes()
    late = write_trace(tmp_path / "late.json", 9)
    with monkeypatch.context() as patch:
        fault(patch)
        result = CliRunner().invoke(app, ["ingest", str(late), "--lake", str(lake.root)])
        assert (result.exit_code, "so the old one stays" in " ".join(result.output.split())) == (1, True)
        assert (lake.root / ANALYST).read_bytes() == before
        assert not is_published(lake, [])
    with analyst(lake) as con:
        assert assert_whole(con) == 3


_FAULTS: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: os.truncate(path, 5000),
    "empty": lambda path: os.truncate(path, 0),
    "header": lambda path: path.write_bytes(bytes(4096) + path.read_bytes()[4096:]),
    "flipped": lambda path: path.write_bytes(path.read_bytes()[:-9000] + b"\xff" + path.read_bytes()[-8999:]),
}


@pytest.mark.parametrize("fault", first_of(_FAULTS, 1))
def test_a_broken_file_heals_on_the_next_look(lake: Lake, fault: str) -> None:
    path = lake.root / ANALYST
    stamp = path.stat()
    _FAULTS[fault](path)
    if path.exists():
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # a failing disk keeps the time
    if fault == "cut":  # open the file as notebooks do
        tables = open_tables(lake)
        assert (tables.table("traces").count().execute(),) == (2,)
        tables.disconnect()
    else:
        with open_analyst(lake.root, []) as con:
            assert assert_whole(con) == 2


@pytest.mark.slow  # 2 s; tests below have a copied file and two names of a lake
def test_a_copied_lake_reads_its_own_files_and_a_moved_one_works(lake: Lake, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(lake.root, copy)
    ingest([write_trace(tmp_path / "late.json", 9)], Lake(copy))
    with open_analyst(copy, ["kernels"]) as con:
        assert assert_whole(con) == 3
        assert con.execute("SELECT root FROM tracelake.published").fetchall() == [(str(copy),)]
    with open_analyst(lake.root, ["kernels"]) as con:
        assert assert_whole(con) == 2
    moved = tmp_path / "moved"
    lake.root.rename(moved)
    with open_analyst(moved, ["kernels"]) as con:
        assert assert_whole(con) == 2
        assert con.execute("SELECT count(*) FROM kernels").fetchall() == [(8,)]


def test_a_copied_file_refuses_to_answer_from_the_originals(lake: Lake, tmp_path: Path) -> None:
    copy = Path(shutil.copy(lake.root / ANALYST, tmp_path / "copy.duckdb"))
    with duckdb.connect(str(copy), read_only=True) as con:
        with pytest.raises(duckdb.InvalidInputException, match=f"made as {lake.root}"):
            con.execute("SELECT count(*) FROM kernels")
        assert con.execute("SELECT count(*) FROM traces").fetchall() == [(2,)]  # the file contains the rows
    link = tmp_path / "link"
    link.symlink_to(lake.root)
    for path in (link / ANALYST, Path(os.path.relpath(lake.root / ANALYST))):
        with duckdb.connect(str(path), read_only=True) as con:
            assert assert_whole(con) == 2


def test_two_names_of_one_lake_publish_once(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(lake.root)
    before = (lake.root / ANALYST).stat().st_mtime_ns
    with open_analyst(tmp_path / "link", TABLES) as con:
        assert assert_whole(con) == 2
    assert (lake.root / ANALYST).stat().st_mtime_ns == before
    assert record_of(lake.root, PUBLISHED)["root"] == str(lake.root)


def test_what_is_committed_during_a_build_is_shown_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, files_of = Lake(tmp_path / "lake"), Lake.files_of
    ingest([write_trace(tmp_path / "in" / "0.json", 0)], lake)

    def overtaken(*args: Any, **kwargs: Any) -> dict[str, list[Path]]:
        monkeypatch.setattr(Lake, "files_of", files_of)
        ingest(capture(tmp_path / "in", ranks=0), lake)  # acts as another process between two looks at the lake
        return files_of(*args, **kwargs)

    monkeypatch.setattr(Lake, "files_of", overtaken)
    publish(lake, anew=True)
    with analyst(lake) as con:
        assert con.execute("SELECT count(*) FROM rejects").fetchall() == [(1,)]


@pytest.mark.slow  # 2 s; test_compact.py has readers that opened before a change
def test_a_connection_that_is_open_does_not_hide_later_commits(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    ingest([write_trace(tmp_path / "in" / "0.json", 0)], lake)
    with analyst(lake) as before:
        ingest([write_trace(tmp_path / "in" / "1.json", 1)], lake)
        with analyst(lake) as after:
            assert after.execute("SELECT count(*) FROM traces").fetchall() == [(2,)]
        assert before.execute("SELECT count(*) FROM traces").fetchall() == [(1,)]
