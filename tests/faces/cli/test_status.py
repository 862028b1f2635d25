"""`tracelake status`: the values that it reports, and the limits at which it exits with 1."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

import pipelines.lake.inbox
import pipelines.lake.status
from pipelines.faces.cli.app import app
from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import publish
from pipelines.lake.publish.contents import no_row
from pipelines.lake.status import Limits, Status, status, status_of_store
from pipelines.lake.table_files import table_files
from pipelines.models.catalog import load_catalog
from pipelines.readers.ingest import ingest
from pipelines.runs.store.interface import StoreError
from tests.dagster.tiny import age, write_trace
from tests.lake import world


class Watched:
    """A lake with one trace from a watched folder."""

    def __init__(self, folder: Path) -> None:
        self.lake, self.inbox = Lake(folder / "lake"), folder / "inbox"
        self.inbox.mkdir()
        ingest([age(write_trace(self.inbox / "rank0.json"))], self.lake)

    def ask(self, *options: str) -> tuple[int, dict, str]:
        command = ["status", "--lake", str(self.lake.root), "--inbox", str(self.inbox), "--json", *options]
        done = CliRunner().invoke(app, command)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, json.loads(done.stdout), done.stderr


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_nothing_is_wrong(watched: Watched) -> None:
    code, answer, said = watched.ask()
    assert (code, answer["wrong"], said) == (0, [], "")
    assert (answer["batches"], answer["traces"], answer["backlog"], answer["lag_seconds"]) == (1, 1, 0, None)
    assert answer["idle_seconds"] < 60
    assert answer["published"] == "never"
    assert answer["lake_bytes"] == sum(p.stat().st_size for p in watched.lake.root.rglob("*") if p.is_file())
    publish(watched.lake)
    assert watched.ask()[1]["published"] == "fresh"
    ingest([write_trace(watched.inbox / "rank1.json", 1)], watched.lake)
    assert watched.ask()[1]["published"] == "stale"


def test_files_that_wait(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files wait since their arrival, not since their last change.

    `cp -p` copies the time of an old file's last change.
    """
    age(write_trace(watched.inbox / "rank1.json", 1), 7 * 86_400)
    monkeypatch.setattr(pipelines.lake.status, "time", SimpleNamespace(time=lambda: time.time() + 1800))
    code, answer, _ = watched.ask()
    assert (code, answer["backlog"]) == (0, 1)
    assert answer["lag_seconds"] == pytest.approx(1800, abs=60)
    code, _, said = watched.ask("--max-lag", "20")
    assert code == 1 and "(of 1) has been waiting for 1,8" in said
    assert watched.ask("--max-backlog", "0")[0] == 1


def test_rejected_files(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    (watched.inbox / "notes.txt").write_text("this is no trace")
    ingest([watched.inbox / "notes.txt"], watched.lake)
    code, answer, said = watched.ask()
    assert (code, answer["backlog"], answer["rejected_last_day"]) == (0, 0, 1)
    sentence = "1 file was rejected in the last day"
    assert f"warning: {sentence}" in said and [warning[: len(sentence)] for warning in answer["warnings"]] == [sentence]
    assert answer["warnings"][0].endswith(f": tracelake ask rejected-files --lake {watched.lake.root}")
    for option, wrong in (("--strict", 1), ("--max-rejected=0", 1), ("--max-rejected=1", 0)):
        code, answer, said = watched.ask(option)
        assert (code, len(answer["wrong"]), answer["warnings"]) == (wrong, wrong, [])
        assert (f"wrong: {sentence}" in said) == bool(wrong)
    assert status(watched.lake, None, now=time.time() + 90_000).rejected_last_day == 0


def test_a_lake_that_is_idle_or_full(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    assert watched.ask("--max-idle", "10")[0] == 0
    assert watched.ask("--max-idle", "0")[0] == 1
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(pipelines.lake.status.shutil, "disk_usage", lambda _: usage(1000, 960, 40))
    code, answer, said = watched.ask()
    assert (code, answer["free_percent"]) == (1, 4.0)
    assert "only 4.0 % of the disk is free" in said
    assert watched.ask("--min-free", "3")[0] == 0


def test_runs_that_failed(watched: Watched) -> None:
    path = watched.lake.root / ".dagster" / "history" / "runs.db"
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as con:
        con.execute("CREATE TABLE runs (id INTEGER PRIMARY KEY, run_id TEXT, pipeline_name TEXT, status TEXT)")
        rows = [("a", "one", "FAILURE"), ("b", "one", "SUCCESS"), ("c", "two", "FAILURE"), ("d", "two", "STARTED")]
        con.executemany("INSERT INTO runs (run_id, pipeline_name, status) VALUES (?, ?, ?)", rows)
    con.close()
    code, answer, _ = watched.ask()
    assert (code, answer["failed_runs"]) == (1, ["two c"])
    assert answer["dagster_bytes"] == path.stat().st_size
    path.write_bytes(b"no database at all, and longer than its header would be" * 50)
    code, _, said = watched.ask()
    assert code == 1 and "is unknown" in said


def test_models_that_failed(watched: Watched) -> None:
    with duckdb.connect(str(watched.lake.root / "analyst.duckdb")) as con:
        rows = "('a', 'm', 'left_out'), ('b', 'm', 'left_out'), ('b', 'n', 'left_out'), ('c', 'whole', 'optimizer_off')"
        con.execute(
            f"CREATE TABLE {pipelines.lake.status.FAILURES} AS FROM (VALUES {rows}) AS v(trace_id, model, outcome)"
        )
    code, answer, said = watched.ask()
    assert (code, answer["failed_models"]) == (1, ["m (2 traces)", "n (1 trace)"])
    assert "models failed: m (2 traces), n (1 trace)" in said
    assert [watched.ask("--max-failed", most)[0] for most in "12"] == [1, 0]


@pytest.mark.slow  # an instance of Dagster; its table, written by hand, is tested above
def test_dagster_still_keeps_its_runs_so(tmp_path: Path) -> None:
    dg = pytest.importorskip("dagster", reason="the extra dagster is not installed")

    from tests.dagster.test_old_runs import chatty

    lake = Lake(tmp_path)
    (tmp_path / ".dagster").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / ".dagster")) as instance:
        run = instance.create_run_for_job(chatty)
        instance.report_run_failed(run)
    assert status(lake, None).failed_runs == [f"chatty {run.run_id}"]


def test_what_cannot_be_looked_at(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    (watched.inbox / "linked").symlink_to(watched.lake.root)
    code, answer, _ = watched.ask()
    assert code == 0  # it may be on purpose, so it is only named
    assert list(answer["passed_over"]) == [str(watched.inbox / "linked")]
    really = os.scandir
    locked = watched.inbox / "locked"
    locked.mkdir()

    def scandir(path):
        if str(path) == str(locked):
            raise PermissionError(13, "Permission denied")
        return really(path)

    monkeypatch.setattr(pipelines.lake.inbox.os, "scandir", scandir)
    code, _, said = watched.ask()
    assert code == 1 and f"{locked} cannot be listed: Permission denied" in said


def test_what_is_broken(watched: Watched, tmp_path: Path) -> None:
    (mark,) = table_files(watched.lake.root, "traces")
    mark.write_bytes(b"nothing")
    code, _, said = watched.ask()
    assert code == 1 and str(mark) in said
    none = CliRunner().invoke(app, ["status", "--lake", str(tmp_path / "none")])
    assert none.exit_code == 1 and "there is no lake" in none.stderr
    gone = CliRunner().invoke(app, ["status", "--lake", str(watched.lake.root), "--inbox", str(tmp_path / "gone")])
    assert gone.exit_code == 1 and "is not a folder on this machine" in gone.stderr


NOT_MEASURED = {"published": None, "lake_bytes": None, "dagster_bytes": None, "free_bytes": None, "free_percent": None}


def test_what_is_not_measured_is_null(tmp_path: Path) -> None:
    command = ["status", "--lake", str(tmp_path / "none")]
    done = CliRunner().invoke(app, [*command, "--json"])
    unknown = {"batches": None, "traces": None, "rejected_last_day": None}
    assert NOT_MEASURED | unknown == {key: json.loads(done.stdout)[key] for key in NOT_MEASURED | unknown}
    text = CliRunner().invoke(app, command).stdout
    assert str(tmp_path)[:20] in text and "traces" not in text and "GB" not in text and "analyst.duckdb" not in text


class FakeStore:
    """A store without a folder, like a DuckLake, with one trace of one batch."""

    lake = None

    def status(self, inbox: Path | None, limits: Limits) -> Status:
        if inbox:
            raise StoreError("--inbox is for the folder of a lake")
        with duckdb.connect() as con:
            for table in ("traces", "rejects"):
                con.execute(f"CREATE TABLE {table} AS {no_row(load_catalog(), table)} WHERE {table == 'traces'}")
            con.execute(
                f"CREATE TABLE {pipelines.lake.status.FAILURES} (trace_id VARCHAR, model VARCHAR, outcome VARCHAR)"
            )
            return status_of_store(con, "ducklake:x", ["20261130T000000-a"], limits)


def test_of_a_store_without_a_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For a store without a disk, the watched folder of the environment is not scanned.

    Our image sets this variable. A folder that the user named is an error.
    """
    monkeypatch.setattr("pipelines.runs.store.open_store", lambda _: FakeStore())
    monkeypatch.setenv("TRACELAKE_INBOX", str(tmp_path))
    command = ["status", "--lake", "ducklake:x", "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    expected = {**NOT_MEASURED, "inbox": None, "traces": 1, "rejected_last_day": 0, "wrong": []}
    assert expected == {key: json.loads(done.stdout)[key] for key in expected}
    assert "1 with 1 trace " in CliRunner().invoke(app, command[:-1]).stdout
    refused = CliRunner().invoke(app, [*command, "--inbox", str(tmp_path)])
    assert refused.exit_code == 1 and "--inbox is for the folder" in refused.stderr


def test_it_reads_no_events_and_writes_nothing(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in table_files(watched.lake.root, "events"):
        path.write_bytes(b"nothing that could be read")
    before = {path: path.stat().st_mtime_ns for path in watched.lake.root.rglob("*")}
    con, asked = duckdb.connect, []
    monkeypatch.setattr(duckdb, "connect", lambda *args, **more: asked.append(1) or con(*args, **more))
    assert watched.ask()[0] == 0
    assert len(asked) <= 2
    assert {path: path.stat().st_mtime_ns for path in watched.lake.root.rglob("*")} == before


def test_for_people(watched: Watched) -> None:
    done = CliRunner().invoke(app, ["status", "--lake", str(watched.lake.root), "--inbox", str(watched.inbox)])
    assert done.exit_code == 0
    assert "last commit" in done.stdout and "waiting files" in done.stdout


@pytest.mark.slow  # tests/lake/test_superseded.py tests which trace supersedes which
def test_a_trace_that_gave_way_to_a_better_one_is_nothing_wrong(watched: Watched) -> None:
    """A trace that was superseded by a better one is not reported as wrong.

    A file that is ingested while it is being written arrives truncated first, and whole later.
    """
    whole = world.write_trace(watched.inbox / "rank5.json", 5, n=12)
    data = whole.read_bytes()
    for content in (data[: len(data) // 2], data):
        whole.write_bytes(content)
        ingest([age(whole)], watched.lake)
    with watched.lake.connect(["rejects"]) as con:
        assert con.execute("SELECT count(*) FROM rejects WHERE contains(reason, 'superseded')").fetchall() == [(1,)]
    assert watched.ask()[0] == 0


def test_a_file_that_disappears_while_sizes_are_summed_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "folder/c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"12345")
    scan = os.scandir

    @contextmanager
    def with_a_lost_file(folder: str) -> Iterator[list[Any]]:
        def lost(**_: bool) -> None:
            raise FileNotFoundError(folder)

        with scan(folder) as entries:
            yield [SimpleNamespace(is_dir=lambda **_: False, stat=lost), *entries]

    monkeypatch.setattr(os, "scandir", with_a_lost_file)
    assert pipelines.lake.status._size(tmp_path) == 15
    assert pipelines.lake.status._size(tmp_path / "nowhere") == 0
