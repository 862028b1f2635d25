"""A lake used by several processes and several users: the catalog's locks, file permissions, paths."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.base.paths import UnusablePath, without_parents
from pipelines.base.whole_file import write_whole
from pipelines.lake import Lake
from pipelines.lake.baselines import set_baseline
from pipelines.lake.commit import catalog_file
from pipelines.lake.commit.catalog_file import CATALOG, note, record_of, writing
from pipelines.readers.ingest import ingest
from tests.lake.world import write_trace

_LOOKS = """
import sqlite3, sys
con = sqlite3.connect(f"file:{sys.argv[1]}?mode=rw", uri=True)
con.execute("SELECT * FROM state").fetchall()
con.close()
"""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path / "lake")
    ingest([write_trace(tmp_path / "in" / "rank0.json", 0)], lake)
    return lake


def test_another_process_that_looks_does_not_take_the_writers_log_away(lake: Lake) -> None:
    """Another process that reads the catalog does not remove the writer's log.

    The last process to close a catalog removes its log. While a writer has the catalog open, no other process is the
    last.
    """
    with writing(lake.root) as catalog:
        catalog.record("before", 1)
        catalog.commit()
        assert record_of(lake.root, "before") == 1  # on a second connection in the writer's process
        subprocess.run([sys.executable, "-c", _LOOKS, str(lake.root / CATALOG)], check=True)
        assert (lake.root / f"{CATALOG}-wal").exists()
        catalog.record("after", 2)
    assert (record_of(lake.root, "before"), record_of(lake.root, "after")) == (1, 2)


def test_a_damaged_header_is_noticed_by_the_first_connection(lake: Lake) -> None:
    note(lake.root, "kept", 1)
    raw = bytearray((lake.root / CATALOG).read_bytes())
    raw[18] = 7  # a file format version that SQLite opens read-only
    (lake.root / CATALOG).write_bytes(raw)
    with pytest.raises(catalog_file.Damaged), catalog_file.reading(lake.root):
        pass
    assert len(Lake(lake.root).known_traces()) == 1


@pytest.fixture
def mask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("mask")
def test_others_may_read_what_the_umask_lets_them(lake: Lake) -> None:
    set_baseline(lake.root, "main", "t")
    for name in (".layout", "baselines.json", CATALOG):
        assert (lake.root / name).stat().st_mode & 0o777 == 0o644, name


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_layout_that_may_not_be_read_is_said(lake: Lake) -> None:
    (lake.root / ".layout").chmod(0)
    with pytest.raises(UnusablePath, match=r"\.layout: Permission denied; its owner can change that"):
        Lake(lake.root)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_whole(tmp_path / "a", "old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            write_whole(tmp_path / "a", "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]


def test_a_path_with_dots_names_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path with dots names the same folder as without.

    From within the lake's folder, `../in` is outside the lake, and its ranks form one capture with those of `in`.
    """
    files = [write_trace(tmp_path / "in" / f"rank{rank}.json", rank) for rank in range(2)]
    (tmp_path / "lake").mkdir()
    monkeypatch.chdir(tmp_path / "lake")
    lake = Lake("../lake")
    rows = ingest(["../in/rank0.json", "../in/*1.json"], lake).rows
    assert [row.status for row in rows] == ["ok", "ok"]
    with lake.connect(["traces"]) as con:
        assert con.execute("SELECT path FROM traces ORDER BY path").fetchall() == [(str(file),) for file in files]
        assert con.execute("SELECT count(DISTINCT group_id) FROM traces").fetchall() == [(1,)]
    assert [row.status for row in ingest(["../lake/../in", "../lake/x/.."], lake).rows] == [
        "known",
        "known",
        "rejected",
    ]


def test_dots_behind_a_link_are_those_of_its_target(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
    assert without_parents(tmp_path / "link" / ".." / "x") == tmp_path / "a" / "x"
    assert without_parents(tmp_path / "a" / "b" / ".." / "x") == tmp_path / "a" / "x"
    assert without_parents(Path("link/x")) == Path("link/x")
