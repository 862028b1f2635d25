"""Missing, truncated, foreign and corrupted files: reported or skipped, found by `tracelake check`, and repaired."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.lake import Lake, inbox
from pipelines.lake.commit import manifest
from pipelines.lake.commit.catalog_file import CATALOG
from pipelines.lake.lake import Staged
from pipelines.lake.names import ANALYST, QUARANTINE, RECORDING_MARK, table_file
from pipelines.lake.publish.analyst_file import analyst
from pipelines.lake.table_files import table_files
from pipelines.readers.ingest import ingest
from pipelines.record.folder import Recording
from pipelines.runs.check import check
from pipelines.runs.materialize.run_order import materialize_all
from tests.effort import first_of, steps
from tests.lake.world import capture, kept, killed, run_killed, shown, steps_of, write_trace

COMPUTED = ["kernels", "temporal_breakdown", "captures", "capture_ranks"]
SHOWN = ["traces", "events", "findings", "rejects", *COMPUTED]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a lake of two batches: two ranks and a rejected file, and a third trace of a separate folder."""
    folder = tmp_path_factory.mktemp("whole")
    lake = Lake(folder / "lake")
    ingest(capture(folder / "in", ranks=2), lake)
    ingest([write_trace(folder / "other" / "rank0.json", 7)], lake)
    materialize_all(lake, COMPUTED)
    return folder


@pytest.fixture
def lake(whole: Path) -> Iterator[Lake]:
    """Yield the lake of `whole`, and restore it afterwards."""
    with kept(whole) as lake:
        yield lake


def _remove(path: Path) -> None:
    path.unlink()


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _replace(path: Path) -> None:
    duckdb.execute(f"COPY (SELECT 1 AS something) TO '{path}' (FORMAT parquet)")


def _flip(path: Path, at: int | None = None, bit: int = 3) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1 << bit
    stamp = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # a disk flips bits without changing the times


def sql(lake: Lake, query: str, *options: str) -> tuple[int, str, str]:
    """Return the exit status, output and errors of `tracelake sql`."""
    result = CliRunner().invoke(app, ["sql", query, "--lake", str(lake.root), "--format", "csv", *options])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("fault", [_remove, pytest.param(_replace, marks=pytest.mark.slow)])
def test_a_query_fails_naming_the_file_or_answers_without_it(lake: Lake, fault: Callable[[Path], None]) -> None:
    path = table_files(lake.root, "events")[0]
    fault(path)
    status, out, said = sql(lake, "SELECT count(*) FROM events")
    assert (status, out) == (1, "")
    assert str(path) in said and "tracelake check --repair" in said
    assert sql(lake, "SELECT count(*) AS n FROM kernels")[:2] == (0, '"n"\n12\n')
    assert sql(lake, "SELECT count(*) AS n FROM traces")[:2] == (0, '"n"\n3\n')
    status, out, said = sql(lake, "SELECT count(*) AS n FROM events", "--without-broken")
    assert (status, out) == (0, '"n"\n8\n')
    assert f"left out: {path}" in said


@pytest.mark.slow  # test_a_query_fails_naming_the_file_or_answers_without_it has a missing file
def test_a_broken_mark_blocks_neither_ingestion_nor_other_tables(lake: Lake, tmp_path: Path) -> None:
    (lake.root / "prices.csv").write_text("job,team,price_per_gpu_hour,currency\nj,t,2.5,USD\n")
    path = table_files(lake.root, "traces")[0]
    _remove(path)
    assert sql(lake, "SELECT job FROM job_prices")[0] == 0
    status, _, said = sql(lake, "SELECT count(*) FROM kernels")
    assert status == 1 and str(path) in said and "is missing" in said
    assert sql(lake, "SELECT count(*) AS n FROM schedule_runs")[:2] == (0, '"n"\n0\n')
    assert len(lake.known_traces()) == 3  # traces that may be restored are not ingested twice
    assert [row.status for row in ingest([write_trace(tmp_path / "new.json", 9)], lake).rows] == ["ok"]
    assert sql(lake, "SELECT count(*) AS n FROM kernels", "--without-broken")[:2] == (0, '"n"\n8\n')


@pytest.mark.slow  # the test below does the same for captures
def test_tables_whose_sources_are_broken_are_not_computed_without_a_word(lake: Lake) -> None:
    path = table_files(lake.root, "events")[0]
    _cut(path)
    status, _, said = sql(lake, "SELECT count(*) FROM launches")
    assert status == 1 and str(path) in said
    assert sql(lake, "SELECT count(*) AS n FROM launches", "--without-broken")[:2] == (0, '"n"\n4\n')


def test_captures_are_not_computed_of_a_part_of_their_traces(lake: Lake, whole: Path) -> None:
    path = table_files(lake.root, "events")[0]
    path.unlink()
    ingest([write_trace(whole / "in" / "rank2.json", 2, distributedInfo={"rank": 2})], lake)
    status, _, said = sql(lake, "SELECT count(*) FROM capture_ranks")
    assert status == 1 and str(path) in said
    (whole / "in" / "rank2.json").unlink()


def test_a_broken_table_of_captures_leaves_traces_but_for_the_column_it_tells(lake: Lake) -> None:
    path = table_files(lake.root, "captures")[0]
    _cut(path)
    assert sql(lake, "SELECT count(*) AS n FROM traces")[:2] == (0, '"n"\n3\n')
    for query in ("SELECT capture_id FROM traces", "SELECT count(*) FROM captures"):
        status, _, said = sql(lake, query)
        assert status == 1 and str(path) in said


def test_files_that_are_none_of_the_lakes_are_passed_over_and_named(lake: Lake) -> None:
    stray = table_files(lake.root, "traces")[0].with_name("notes.parquet")
    stray.write_text("hello")
    assert sql(lake, "SELECT count(*) AS n FROM traces")[:2] == (0, '"n"\n3\n')
    assert [(fault.path, fault.why) for fault in check(lake).faults] == [(str(stray), "is not a file of the lake")]
    check(lake, repair=True)
    assert not stray.exists() and not check(lake).faults


@pytest.mark.slow  # `make attack` flips more bits
def test_every_flipped_bit_is_found_in_every_kind_of_file(lake: Lake) -> None:
    analyst(lake).close()
    assert not check(lake).faults
    choice = random.Random(14)
    one_of_each = {path.parts[-3]: path for path in lake.root.glob("*/day=*/*.parquet")}
    for path in [*one_of_each.values(), lake.root / ANALYST]:
        whole = path.read_bytes()
        for at in {0, len(whole) - 1, choice.randrange(len(whole))}:
            _flip(path, at, choice.randrange(8))
            faulty = {fault.path for fault in check(lake).faults}
            assert str(path) in faulty, (path, at)
            path.write_bytes(whole)
    assert not check(lake).faults


@pytest.mark.parametrize(
    ("table", "fault"),
    first_of([("kernels", _remove), ("captures", _flip)], 1),
)
def test_repair_computes_again(lake: Lake, table: str, fault: Callable[[Path], None]) -> None:
    expected = shown(lake, SHOWN)
    path = table_files(lake.root, table)[0]
    fault(path)
    (finding,) = check(lake).faults
    assert (finding.path, finding.table, finding.repaired) == (str(path), table, None)
    assert [fault.repaired for fault in check(lake, repair=True).faults] == ["computed again"]
    assert not check(lake).faults
    assert shown(lake, SHOWN) == expected


@pytest.mark.slow  # test_repair_computes_again
@pytest.mark.parametrize(("table", "fault"), [("events", _flip), ("traces", _remove)])
def test_repair_takes_out_what_cannot_be_computed(
    lake: Lake, whole: Path, table: str, fault: Callable[[Path], None]
) -> None:
    expected = shown(lake, [*SHOWN[:3], *COMPUTED[:2]])
    path = table_files(lake.root, table)[0]
    traces = sorted(manifest.read_keys(lake.root, lake.batches()[0]) or {})
    fault(path)
    run = CliRunner().invoke(app, ["check", "--lake", str(lake.root), "--json"])
    assert run.exit_code == 1
    (finding,) = json.loads(run.stdout)["faults"]
    assert (finding["path"], finding["table"], finding["keys"]) == (str(path), table, traces)
    run = CliRunner().invoke(app, ["check", "--lake", str(lake.root), "--repair"])
    assert run.exit_code == 0, run.output
    assert not check(lake).faults
    assert any((lake.root / QUARANTINE).rglob("*.parquet"))
    rejected = [row for row in shown(lake, ["rejects"])["rejects"] if "took its batch" in row[2]]
    assert sorted(row[0] for row in rejected) == [str(whole / "in" / f"rank{rank}.json") for rank in (0, 1)]
    assert sql(lake, "SELECT count(*) AS n FROM traces")[:2] == (0, '"n"\n1\n')
    assert [row.status for row in ingest([whole / "in"], lake).rows] == ["rejected", "ok", "ok"]
    materialize_all(lake, COMPUTED)
    assert shown(lake, [*SHOWN[:3], *COMPUTED[:2]]) == expected


@pytest.mark.slow  # tests/lake/test_catalog.py loses the catalog, too
def test_a_lake_whose_catalog_is_lost_works_and_is_told(lake: Lake) -> None:
    expected = shown(lake, SHOWN)
    (lake.root / CATALOG).unlink()
    assert shown(lake, SHOWN) == expected
    report = check(lake)
    assert (report.faults, report.n_not_recorded) == ([], report.n_files)
    path = table_file(lake.root, "kernels", lake.batches()[0])
    path.unlink()
    materialize_all(lake, ["kernels"])
    assert shown(lake, SHOWN) == expected and not check(lake).faults
    assert check(lake).n_not_recorded == report.n_files - 1
    _flip(table_files(lake.root, "events")[0], 40)
    assert len(check(lake).faults) == 1  # found by page checksums


def test_of_a_table_that_this_version_does_not_have_only_the_files_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damaged files of a table that this version does not have are quarantined, and their batches stay.

    The table was renamed since, or belongs to a newer version.
    """
    monkeypatch.setattr("pipelines.runs.check.publish", lambda *_: None)
    lake = Lake(tmp_path / "lake")
    for seed in range(2):
        ingest([write_trace(tmp_path / "in" / f"{seed}.json", seed)], lake)
    for batch in lake.batches():
        copy = shutil.copy(table_file(lake.root, "findings", batch), lake.staging(batch))
        lake.put_all(batch, {"no_table_of_now": Staged(Path(copy), version="older")})
    missing, cut = table_files(lake.root, "no_table_of_now")
    missing.unlink()
    _cut(cut)
    repairs = {fault.path: fault.repaired for fault in check(lake, repair=True).faults}
    assert repairs == {str(missing): "quarantined", str(cut): "quarantined"}
    assert not check(lake).faults and len(lake.known_traces()) == 2


def test_files_of_a_set_that_was_taken_out_wait_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.runs.check.publish", lambda *_: None)
    lake, recording = Lake(tmp_path / "lake"), Recording(tmp_path / "in", "counters", "run", 42, 3)
    recording.add("host_samples", [{"source": "proc", "pid": 42, "t_unix_ns": 9, "t_mono_ns": 1, "start_ticks": 1}])
    recording.close(source="none: made", interval_ns=1, n_late=0, cost_ns=5, start_ns=1, end_ns=2)
    other = write_trace(tmp_path / "in" / "rank0.json", 0)
    ingest([tmp_path / "in"], lake)
    files = inbox.look(tmp_path / "in").files
    assert inbox.waiting(lake, files, and_rejected=True) == {}
    _cut(table_files(lake.root, "host_samples")[0])
    assert {fault.repaired for fault in check(lake, repair=True).faults} == {"quarantined with its batch"}
    assert inbox.waiting(lake, files).keys() == files.keys() - {other}
    ((path, reason),) = [(path, reason) for path, *_, reason in shown(lake, ["rejects"])["rejects"]]
    assert path == str(recording.folder) and reason.endswith("ingest its folder again")
    ingest([tmp_path / "in"], lake)
    assert len(lake.batches(RECORDING_MARK)) == 1 and inbox.waiting(lake, files) == {}


def check_and_repair(root: Path) -> None:
    check(Lake(root), repair=True)


@pytest.mark.slow  # tests/lake/test_crash.py kills a writer, and a test above repairs without a kill
@pytest.mark.kills
@pytest.mark.parametrize("table", ["events", "captures"])
def test_repair_killed_at_a_step(whole: Path, table: str) -> None:
    with kept(whole) as broken:
        _flip(table_files(broken.root, table)[0])
        for step, lake in killed(whole, 6, check_and_repair):
            check(lake, repair=True)
            assert not check(lake).faults, f"step {step}"
            n = 1 if table == "events" else 3
            assert len(shown(lake, ["traces"])["traces"]) == n, f"step {step}"


def put_until_killed(root: Path, staged: Path) -> None:
    lake = Lake(root)
    lake.put("kernels", lake.batches()[0], staged)


@pytest.mark.slow  # tests/lake/test_crash.py checks the files of a batch after a kill
@pytest.mark.kills
def test_a_file_put_by_a_writer_that_was_killed_is_whole(lake: Lake, tmp_path: Path) -> None:
    """After a kill before or after any write, flush or rename, the file is either the old or the new one, and intact."""
    (tmp_path / "old.parquet").write_bytes(table_files(lake.root, "kernels")[0].read_bytes())
    calls = ("replace", "fsync", "pread")

    def new(n: int) -> Path:
        path = tmp_path / "new.parquet"
        duckdb.execute(f"COPY (FROM read_parquet('{tmp_path}/old.parquet') LIMIT {1 + n % 3}) TO '{path}'")
        return path

    n = steps_of(put_until_killed, lake.root, new(0), calls=calls)
    assert n > 8
    for step in steps(n):
        assert run_killed(step, put_until_killed, lake.root, new(step), calls=calls)
        assert not check(lake).faults, f"step {step}"
