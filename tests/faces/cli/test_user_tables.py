"""Errors in prices.csv and roles.csv, which stop only the queries that need these files, with a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner, Result

from pipelines.faces.cli.app import app
from pipelines.fleet.captures.roles import RolesError
from pipelines.lake import Lake
from pipelines.lake.names import ANALYST
from pipelines.lake.publish.prices import read_prices
from pipelines.lake.table_files import table_files
from pipelines.models.errors import CatalogError
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.run_order import materialize_all
from tests.lake.world import write_trace

PRICES = {
    "an unknown column": ("job,price\na,1\n", r":1: a column 'price' is unknown; write a header of `job`"),
    "a comma in a number": (
        "job,price_per_gpu_hour,currency\na,1,5,EUR\n",
        r":2: more values than columns; write decimals with a point",
    ),
    "semicolons": ("job;team\na;b\n", r":1: no column 'job'"),
    "an open quote": ('job,team\n"a,b\n', r":1: not CSV: unexpected end"),
    "a column twice": ("job,team,team\na,b,c\n", r":1: a column appears twice"),
    "the line behind one of two lines": ('job,team\n"a\nb",x\n,y\n', r":4: 'job' is empty"),
    "UTF-16": ("job\na\n".encode("utf-16"), r": not UTF-8 text"),
    "nothing": ("", r":1: no column 'job'"),
}


@pytest.mark.parametrize("kind", PRICES)
def test_prices_that_cannot_be_read(tmp_path: Path, kind: str) -> None:
    text, message = PRICES[kind]
    path = tmp_path / "prices.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CatalogError, match=r"prices\.csv" + message):
        read_prices(path)


def test_prices_that_are_no_file(tmp_path: Path) -> None:
    assert read_prices(tmp_path / "prices.csv") == []
    (tmp_path / "prices.csv").symlink_to(tmp_path / "gone.csv")
    with pytest.raises(CatalogError, match=r"prices\.csv: cannot be read: No such file"):
        read_prices(tmp_path / "prices.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(CatalogError, match=r"folder\.csv: cannot be read: Is a directory"):
        read_prices(tmp_path / "folder.csv")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path / "lake")
    spread = {"world_size": 3}
    files = [write_trace(tmp_path / f"rank{n}.json", n, distributedInfo={"rank": n, **spread}) for n in range(2)]
    ingest(files, lake, job="train")
    return lake


def ask(lake: Lake, table: str) -> Result:
    words = ["sql", f"SELECT count(*) AS n FROM {table}", "--lake", str(lake.root), "--format", "json"]
    return CliRunner().invoke(app, words)


def assert_refused(said: Result, message: str) -> None:
    assert said.exit_code == 1 and isinstance(said.exception, SystemExit)
    assert said.stderr.startswith("error: ") and message in said.stderr


def test_wrong_prices_stop_what_needs_prices(lake: Lake, tmp_path: Path) -> None:
    (lake.root / "prices.csv").write_text("job,price\ntrain,1\n")
    assert json.loads(ask(lake, "kernels").stdout) == [{"n": 8}]
    for table in ("job_prices", "Capture_Costs"):
        assert_refused(ask(lake, table), "prices.csv:1: a column 'price' is unknown")
    said = CliRunner().invoke(app, ["ingest", str(tmp_path / "rank0.json"), "--lake", str(lake.root)])
    assert said.exit_code == 0 and "no prices: " in said.stderr
    # A user who opens the file directly sees why the table is empty.
    with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con:
        shown = con.execute("SELECT comment FROM duckdb_tables() WHERE table_name = 'job_prices'").fetchall()
    assert "No rows, because of " in shown[0][0] and "prices.csv:1" in shown[0][0]
    (lake.root / "prices.csv").write_text("job\ntrain\n")
    assert json.loads(ask(lake, "job_prices").stdout) == [{"n": 1}]


@pytest.mark.slow  # wrong prices are tested above, wrong roles in tests/fleet
def test_wrong_roles_stop_what_needs_roles(lake: Lake, tmp_path: Path) -> None:
    roles = lake.root / "roles.csv"
    roles.write_text("rank,role,group\n0,pp,a\n1,pp,b\n")
    materialize_all(lake, ["capture_roles", "collectives"])
    before = {table: table_files(lake.root, table) for table in ("captures", "capture_roles", "collectives")}
    roles.write_text("rank,role,group\n0,pp\n")
    assert_refused(ask(lake, "straggler_groups"), "roles.csv:2: 'group' is empty")  # the view reads capture_roles
    for table, n in (("kernels", 8), ("capture_ranks JOIN collectives USING (capture_id)", 0)):
        assert json.loads(ask(lake, table).stdout) == [{"n": n}]
    assert {table: table_files(lake.root, table) for table in before} == before  # nothing was recomputed for it
    ingest([write_trace(tmp_path / "rank2.json", 2, distributedInfo={"rank": 2})], lake, job="train")
    assert json.loads(ask(lake, "capture_ranks").stdout) == [{"n": 3}]
    with pytest.raises(RolesError, match=r"roles\.csv:2: 'group' is empty"):
        materialize_all(lake, ["capture_roles"])
    # a capture that was computed without roles is recomputed with them
    roles.write_text("rank,role,group\n0,pp,a\n2,pp,b\n")
    assert json.loads(ask(lake, "capture_roles").stdout) == [{"n": 2}]


def test_given_roles_are_refused_by_their_own_name(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "rank0.json", 0)
    for name, text, message in (
        ("no.csv", None, "no.csv: there is no such file"),
        ("bad.csv", "rank\n", "bad.csv:1: no"),
    ):
        if text:
            (tmp_path / name).write_text(text)
        said = CliRunner().invoke(app, ["stragglers", str(trace), "--roles", str(tmp_path / name)])
        assert_refused(said, str(tmp_path / message))
