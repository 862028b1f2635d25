"""A lake of another layout is refused in one sentence, which contains the command that ingests its files again."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.lake import Lake
from pipelines.lake.commit.catalog_file import CATALOG, LOCK
from pipelines.lake.publish.analyst_file import publish
from pipelines.lake.read.sandbox import LockedLake
from pipelines.lake.version import (
    LAYOUT,
    LIST,
    MARKER,
    OtherLayout,
    check_layout,
    files_of,
    mark_layout,
    read_again,
    restore_layout,
)
from pipelines.readers.ingest import ingest, listed
from tests.effort import first_of
from tests.lake.world import capture, write_trace


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with `in`, which has 3 traces and one file that is not a trace, and a published lake of it."""
    folder = tmp_path_factory.mktemp("version")
    ingest(capture(folder / "in"), Lake(folder / "lake"))
    publish(Lake(folder / "lake"))
    return folder


@pytest.fixture
def old(made: Path, tmp_path: Path) -> Path:
    """Return the lake as a version without `.layout` left it."""
    root = Path(shutil.copytree(made / "lake", tmp_path / "lake"))
    (root / MARKER).unlink()
    return root


def say_version(root: Path, version: int) -> None:
    """Write the catalog's copy of the layout version; 0 is the value in older lakes."""
    with closing(sqlite3.connect(root / CATALOG)) as con:
        con.execute(f"PRAGMA user_version = {version}")


def command_in(message: str) -> list[str]:
    return shlex.split(message[message.index("tracelake ingest") :])[1:]


def traces(root: Path | str) -> list[tuple]:
    with Lake(root).connect(["traces"]) as con:
        return con.execute("SELECT trace_id, path, rank FROM traces ORDER BY 1").fetchall()


def test_a_lake_says_its_layout_before_anything_else_is_there(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    assert not lake.root.exists()
    with lake.manifest_lock():
        assert sorted(path.name for path in lake.root.iterdir()) == [LOCK, MARKER]
    assert (lake.root / MARKER).read_text() == f"{LAYOUT}\n"
    before = (lake.root / MARKER).stat().st_mtime_ns
    mark_layout(lake.root)
    assert (lake.root / MARKER).stat().st_mtime_ns == before


def test_what_is_no_lake_yet_is_not_refused(tmp_path: Path) -> None:
    for folder in (tmp_path / "none", tmp_path):
        check_layout(folder)
    (tmp_path / "notes.txt").write_text("mine")
    assert not Lake(tmp_path).exists


COMMANDS = (
    *(("sql", "FROM traces"), ("ingest", "x.json"), ("status",), ("materialize",), ("check",), ("tables", "kernels")),
    *(("compact",), ("forget", "00")),
)


@pytest.mark.parametrize("words", first_of([(words,) for words in COMMANDS], 3))
def test_every_command_refuses_it_with_one_sentence(words: tuple[str, ...], old: Path) -> None:
    before = sorted(str(path) for path in old.rglob("*"))
    done = CliRunner().invoke(app, [*words, "--lake", str(old)])
    assert done.exit_code == 1 and len(done.stderr.splitlines()) == 1, done.output
    assert f"{old} has no .layout" in done.stderr and "tracelake ingest --lake" in done.stderr
    assert sorted(str(path) for path in old.rglob("*")) == before  # nothing was written


def test_so_do_all_ways_in_python(old: Path) -> None:
    for way in (Lake, LockedLake, lambda root: ingest([], Lake(root)), lambda root: publish(Lake(root))):
        with pytest.raises(OtherLayout, match="read its 3 files again"):
            way(old)


def test_an_older_layout_is_named(old: Path) -> None:
    (old / MARKER).write_text("1\n")
    say_version(old, 0)
    with pytest.raises(
        OtherLayout, match=rf"older tracelake \(layout 1; this one reads {LAYOUT}\); read its 3 files again"
    ):
        Lake(old)


@pytest.mark.slow  # tests below have a list of one file, and ingest it again
def test_ten_thousand_files_are_in_a_list(old: Path, tmp_path: Path) -> None:
    (old / CATALOG).unlink()
    shutil.rmtree(old / "traces")
    day = old / "traces" / "day=2026-01-01"
    day.mkdir(parents=True)
    rows = f"SELECT '{tmp_path}/in/rank ' || n || '.json' AS path, n AS first_ts_ns FROM range(10000) AS r (n)"
    duckdb.sql(rows).write_parquet(str(day / "20260101T000000000000-00000000.parquet"))
    with pytest.raises(OtherLayout, match="read its 10,000 files again") as refused:
        Lake(old)
    assert len(str(refused.value)) < 1000
    words = command_in(str(refused.value))
    assert words[3:] == ["--from-list", str(old / LIST)]
    assert len(listed(old / LIST)) == 10_000
    for n in (0, 9_999):
        write_trace(tmp_path / "in" / f"rank {n}.json", n)
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 1 and done.output.count('"rejected"') == 9_998  # the files that no longer exist
    assert [Path(path).name for _, path, _ in traces(words[2])] in (
        [f"rank {n}.json" for n in order] for order in ((0, 9_999), (9_999, 0))
    )


@pytest.mark.parametrize("name", first_of(["two\nlines.json", "caf\udce9.json", "it's a $x`y.json"], 1))
def test_any_name_gets_through(name: str, tmp_path: Path) -> None:
    file = tmp_path / "in" / "plain.json"
    write_trace(file, 1)
    odd = file.rename(file.with_name(name))
    lake = Lake(tmp_path / "lake")
    assert [row.status for row in ingest([odd], lake).rows] == ["ok"]
    (lake.root / MARKER).unlink()
    with pytest.raises(OtherLayout) as refused:
        Lake(lake.root)
    words = command_in(str(refused.value))
    assert "\n" not in str(refused.value) and ("--from-list" in words) == (not name.isprintable())
    assert files_of(lake.root) == [odd]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert traces(words[2]) == traces_of(lake.root)


def traces_of(root: Path) -> list[tuple]:
    mark_layout(root)
    return traces(root)


def test_a_list_that_cannot_be_written_into_the_lake_is_a_temporary_file(tmp_path: Path) -> None:
    files = [tmp_path / f"{n}.json" for n in range(30)]
    message = read_again(files, "new", tmp_path / "nowhere")
    assert str(Path(tempfile.gettempdir())) in message
    assert listed(Path(command_in(message)[-1])) == files
    assert "PATH..." in read_again([], "new")


def test_a_newer_layout_is_refused_with_the_way_out(made: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(made / "lake", tmp_path / "lake"))
    (root / MARKER).write_text(f"{LAYOUT + 1}\n")
    say_version(root, LAYOUT + 1)
    with pytest.raises(OtherLayout, match=r"written by a newer tracelake .* pip install -U tracelake"):
        Lake(root)


def test_lists_are_lines_or_ended_by_nul(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"a.json\r\n\nb c.json")
    (tmp_path / "nul").write_bytes(b"a.json\0b\nc.json\0")
    assert listed(tmp_path / "lines") == [Path("a.json"), Path("b c.json")]
    assert listed(tmp_path / "nul") == [Path("a.json"), Path("b\nc.json")]
    nothing = CliRunner().invoke(app, ["ingest"])
    assert nothing.exit_code == 2 and "--from-list FILE" in nothing.output
    missing = CliRunner().invoke(app, ["ingest", "--from-list", str(tmp_path / "none")])
    assert missing.exit_code == 1 and f"{tmp_path / 'none'}: {os.strerror(2)}" in missing.output


DAMAGED = {"a letter": b"x\n", "another number": b"5\n", "empty": b"", "no text": b"\xff\xfe", "a lower number": b"0\n"}


@pytest.mark.parametrize("content", first_of(DAMAGED.values(), 2), ids=DAMAGED.keys())
def test_a_damaged_layout_is_restored_from_the_catalog(made: Path, tmp_path: Path, content: bytes) -> None:
    root = Path(shutil.copytree(made / "lake", tmp_path / "lake"))
    (root / MARKER).write_bytes(content)
    with pytest.raises(OtherLayout, match=rf"lake/\.layout is damaged: tracelake check --repair --lake {root}"):
        Lake(root)
    done = CliRunner().invoke(app, ["check", "--repair", "--lake", str(root), "--json"])
    (fault,) = json.loads(done.stdout)["faults"]
    assert (fault["path"], done.exit_code) == (str(root / MARKER), 0)
    assert (root / MARKER).read_text() == f"{LAYOUT}\n"
    assert traces(root) == traces(made / "lake")


@pytest.mark.parametrize("content, is_restored", [(b"x\n", True), (None, True), (b"5\n", False)])
def test_without_a_copy_in_the_catalog_the_columns_decide(
    made: Path, tmp_path: Path, content: bytes | None, is_restored: bool
) -> None:
    root = Path(shutil.copytree(made / "lake", tmp_path / "lake"))
    say_version(root, 0)
    (root / MARKER).unlink()
    if content is not None:
        (root / MARKER).write_bytes(content)
    assert restore_layout(root) is is_restored


def test_a_lake_of_another_version_is_not_marked_as_of_this_one(made: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(made / "lake", tmp_path / "lake"))
    say_version(root, LAYOUT - 1)
    (root / MARKER).write_text("x\n")
    assert not restore_layout(root)
    (root / CATALOG).unlink()
    file = max(root.glob("traces/day=*/*.parquet"))
    table = parquet.read_table(file)
    parquet.write_table(table.drop_columns(["metadata"]), file)
    assert not restore_layout(root)
    with pytest.raises(OtherLayout, match="read its"):
        Lake(root)


def test_a_new_lake_has_the_copy(made: Path) -> None:
    with closing(sqlite3.connect(made / "lake" / CATALOG)) as con:
        assert con.execute("PRAGMA user_version").fetchall() == [(LAYOUT,)]
