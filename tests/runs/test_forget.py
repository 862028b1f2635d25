"""Traces that are excluded with a row because a model fails, and traces that `tracelake forget` removes despite kills."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.faces.cli.refresh_tables import open_analyst
from pipelines.lake import Lake, inbox
from pipelines.lake.commit.catalog_file import rebuild
from pipelines.lake.commit.ingested_files import state_of
from pipelines.lake.commit.manifest import read_keys
from pipelines.lake.names import MARK, table_file
from pipelines.lake.read.damage import BrokenFiles
from pipelines.lake.retain.compaction import compact
from pipelines.lake.retain.retention import keep_notice
from pipelines.lake.table_files import table_files
from pipelines.models.catalog import load_catalog
from pipelines.models.errors import CatalogError
from pipelines.readers.ingest import ingest, outcomes
from pipelines.readers.inputs import TraceRow
from pipelines.readers.inputs.events import EventBatch
from pipelines.runs.check import check
from pipelines.runs.forget import Forgotten, NoSuchTrace, _rewrite, begun, forget
from pipelines.runs.materialize import per_trace
from pipelines.runs.materialize.run_order import materialize_all
from tests.effort import first_of
from tests.lake.world import assert_whole, capture, kept, killed, rot, shown, write_trace
from tests.readers.kineto.merging import merged
from tests.readers.kineto.test_merged import rank

COMPUTED = ["kernels", "temporal_breakdown", "capture_ranks"]
SHOWN = [MARK, "events", "findings", *COMPUTED]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a lake with a capture of three ranks in one batch, and compute its tables."""
    folder = tmp_path_factory.mktemp("whole")
    lake = Lake(folder / "lake")
    ingest(capture(folder / "in"), lake)
    materialize_all(lake, COMPUTED)
    return folder


@pytest.fixture
def lake(whole: Path) -> Iterator[Lake]:
    """Yield the lake of `whole`, and restore it afterwards."""
    with kept(whole) as lake:
        yield lake


def traces_of_rank(lake: Lake) -> dict[int, str]:
    """Return the trace id of each rank."""
    with lake.connect([MARK]) as con:
        return dict(con.execute("SELECT rank, trace_id FROM traces").fetchall())


def all_ids(lake: Lake) -> set[str]:
    """Return every trace id in any Parquet file of a batch of traces."""
    batch = lake.batches()[0]
    files = [p for p in lake.root.glob(f"*/day=*/{batch.batch_id}.parquet") if p.parts[-3] != "rejects"]
    return {
        row[0] for p in files for row in duckdb.execute(f"SELECT DISTINCT trace_id FROM read_parquet('{p}')").fetchall()
    }


@pytest.mark.slow  # 2 s; tests/models/test_run.py has a failing model
def test_a_trace_on_which_a_model_fails_is_left_out_with_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path / "lake")
    ingest([write_trace(tmp_path / "in" / f"rank{seed}.json", seed) for seed in range(5)], lake)
    poison = sorted(lake.known_traces())[2]
    run = per_trace.run_models

    def failing(con: duckdb.DuckDBPyConnection, catalog: Any, tables: Any, *, on_model: Any, **named: Any) -> Any:
        def starts(name: str) -> None:
            on_model(name)
            if name == "temporal_breakdown":
                con.execute(
                    f"SELECT CASE WHEN trace_id = '{poison}' THEN error('out of range') END FROM traces"
                ).fetchall()

        return run(con, catalog, tables, on_model=starts, **named)

    with monkeypatch.context() as patch:
        patch.setattr(per_trace, "run_models", failing)
        per_trace.materialize(lake, ["kernels", "temporal_breakdown"])
    with open_analyst(lake.root, ["kernels", "temporal_breakdown"]) as con:
        count = "SELECT count(DISTINCT trace_id), count(*) FILTER (trace_id = '{}') > 0 FROM {}"
        assert con.execute(count.format(poison, "kernels")).fetchall() == [(5, True)]
        assert con.execute(count.format(poison, "temporal_breakdown")).fetchall() == [(4, False)]
        rows = con.execute("SELECT trace_id, table_name, model, reason FROM model_failures").fetchall()
    assert rows == [(poison, "temporal_breakdown", "temporal_breakdown", rows[0][3])] and "out of range" in rows[0][3]
    for asked in (["sql", "SELECT count(*) FROM temporal_breakdown"], ["tables", "temporal_breakdown"]):
        result = CliRunner().invoke(app, [*asked, "--lake", str(lake.root)])
        said = " ".join(result.stderr.split())
        assert (result.exit_code, f"lacks 1 trace, such as {poison}" in said) == (0, True), said
    ingest([write_trace(tmp_path / "late.json", 9)], lake)  # later batches are still computed
    per_trace.materialize(lake, ["temporal_breakdown"], force=True)  # the model no longer fails
    with open_analyst(lake.root, []) as con:
        assert con.execute("SELECT count(*) FROM model_failures").fetchall() == [(0,)]
        assert con.execute("SELECT count(DISTINCT trace_id) FROM temporal_breakdown").fetchall() == [(6,)]


@pytest.mark.slow  # tests/runs/materialize checks the lock that prevents it
def test_what_another_process_computes_meanwhile_lacks_the_trace(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that another process computes during the removal does not contain the trace.

    That process has already read the trace when it is removed.
    """
    trace, run_group, said = min(all_ids(lake)), per_trace._run_group, list[str]()
    waits_or_done, other = threading.Event(), Lake(lake.root)

    def remove() -> None:
        forget(other, trace, on_step=lambda text: (said.append(text), waits_or_done.set()))
        waits_or_done.set()

    thread = threading.Thread(target=remove)

    def run_then_forget(*args: Any) -> None:
        run_group(*args)
        monkeypatch.setattr(per_trace, "_run_group", run_group)
        thread.start()
        assert waits_or_done.wait(60)

    monkeypatch.setattr(per_trace, "_run_group", run_then_forget)
    per_trace.materialize(lake, ["kernels"], force=True)
    thread.join()
    assert said[0] == "another process computes tables, waiting"
    assert trace not in all_ids(lake)


@pytest.mark.parametrize("error", first_of([duckdb.IOException("disk"), CatalogError("code")], 1))
def test_no_trace_is_blamed_for_the_machine_or_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    lake = Lake(tmp_path / "lake")
    ingest([write_trace(tmp_path / "rank0.json", 0)], lake)

    def failing(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(per_trace, "run_models", failing)
    with pytest.raises(type(error)):
        per_trace.materialize(lake, ["kernels"], force=True)


@pytest.mark.slow  # a test above has one trace that cannot be computed
def test_a_batch_of_which_no_trace_can_be_computed_has_an_empty_table(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise OverflowError("too large")

    with monkeypatch.context() as patch:
        patch.setattr(per_trace, "run_models", failing)
        per_trace.materialize(lake, ["kernels"], force=True)
    with lake.connect(["kernels"]) as con:
        assert con.execute("SELECT count(*) FROM kernels").fetchall() == [(0,)]
    per_trace.materialize(lake, ["kernels"], force=True)
    assert len(shown(lake, ["kernels"])["kernels"]) == 12


def test_the_list_of_traces_is_that_of_the_lake(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "of a job")
    with pytest.raises(NoSuchTrace) as error:
        forget(lake, "abcd")
    assert f"`tracelake sql 'SELECT trace_id, path FROM traces' --lake '{lake.root}'`" in error.value.hint


@pytest.mark.slow  # 7 s
def test_a_forgotten_trace_is_in_no_file_and_may_come_again(lake: Lake, whole: Path) -> None:
    expected = shown(lake, SHOWN)
    for beginning in ("", "no-such-trace"):
        with pytest.raises(NoSuchTrace):
            forget(lake, beginning)
    assert len(lake.known_traces()) == 3
    trace = traces_of_rank(lake)[1]
    result = CliRunner().invoke(app, ["forget", trace[:9], "--lake", str(lake.root), "--json"])
    assert result.exit_code == 0 and trace in result.stdout, result.output
    assert all_ids(lake) == set(lake.known_traces()) == set(traces_of_rank(lake).values())
    assert trace not in all_ids(lake) and len(all_ids(lake)) == 2
    with open_analyst(lake.root, COMPUTED) as con:
        assert assert_whole(con) == 2
        assert con.execute("SELECT list(rank ORDER BY rank) FROM capture_ranks").fetchall() == [([0, 2],)]
    assert not check(lake).faults and not per_trace.stale(lake, load_catalog(), ["kernels"], lake.batches()[0])
    assert {row.status for row in ingest([whole / "in"], lake).rows} == {"known", "ok", "rejected"}
    materialize_all(lake, COMPUTED)
    assert {k: v for k, v in shown(lake, SHOWN).items() if k != "capture_ranks"} == {
        k: v for k, v in expected.items() if k != "capture_ranks"
    }


def do_forget(root: Path, trace: str) -> None:
    forget(Lake(root), trace)


@pytest.mark.slow  # 10 s
@pytest.mark.kills
def test_forget_killed_at_a_step(whole: Path) -> None:
    trace = traces_of_rank(Lake(whole / "lake"))[1]
    for step, lake in killed(whole, 16, do_forget, trace, calls=("replace", "unlink")):
        half = shown(lake, SHOWN[:-1])
        assert len(half[MARK]) in (2, 3), f"step {step}"
        n = len(half[MARK])
        assert (len(half["events"]), len(half["kernels"])) == (8 * n, 4 * n), f"step {step}"
        assert [removal.trace_id for removal in begun(lake)] in ([], [trace]), f"step {step}"
        if begun(lake):
            rebuild(lake.root)  # an unfinished removal must survive the loss of the catalog
        if begun(lake) or n == 3:
            forget(lake, trace)
        assert all_ids(lake) == set(lake.known_traces()) and trace not in all_ids(lake), f"step {step}"
        assert not check(lake).faults and not begun(lake), f"step {step}"


@pytest.mark.slow  # 5 s
@pytest.mark.parametrize("is_hidden", [False, True])
def test_a_removal_that_was_killed_survives_a_merge(tmp_path: Path, is_hidden: bool) -> None:
    """A killed removal is completed although its batch is merged.

    The removal was killed before or after it hid the trace. Then the batch is merged, and the merged batches are
    deleted.
    """
    lake = Lake(tmp_path / "lake")
    for seed in range(2):
        ingest([write_trace(tmp_path / "in" / f"rank{seed}.json", seed)], lake)
    trace_id, batch = sorted(lake.known_traces().items())[0]
    trace = Forgotten(trace_id, batch.batch_id, None, False)
    keep_notice(lake, f"forgetting-{trace_id}", [], forgetting=asdict(trace))
    if is_hidden:
        _rewrite(lake, MARK, batch, trace_id)
    merges = compact(lake, older_than=0, grace=timedelta(0))
    assert [merge.state for merge in merges.merges] == ["merged"] and not table_file(lake.root, MARK, batch).exists()
    assert [removal.trace_id for removal in begun(lake)] == [trace_id]
    forget(lake, trace_id)
    assert begun(lake) == [] and trace_id not in lake.known_traces() and len(lake.known_traces()) == 1
    with lake.connect(["events"]) as con:
        assert con.execute(f"SELECT count(*) FROM events WHERE trace_id = '{trace_id}'").fetchall() == [(0,)]


def test_a_removal_that_was_killed_may_be_completed_for_good(tmp_path: Path) -> None:
    lake, file = Lake(tmp_path / "lake"), write_trace(tmp_path / "in" / "0.json", 0)
    ingest([file], lake)
    ((trace_id, batch),) = lake.known_traces().items()
    keep_notice(lake, f"forgetting-{trace_id}", [], forgetting=asdict(Forgotten(trace_id, batch.batch_id, None, False)))
    _rewrite(lake, MARK, batch, trace_id)  # the removal was killed here
    assert forget(lake, trace_id, for_good=True).for_good
    assert [row.status for row in ingest([file], lake).rows] == ["known"] and lake.known_traces() == {}


def test_the_only_trace_of_a_batch_may_come_again(tmp_path: Path) -> None:
    lake, file = Lake(tmp_path / "lake"), write_trace(tmp_path / "in" / "0.json", 0)
    ingest([file], lake)
    forget(lake, next(iter(lake.known_traces())))
    assert lake.known_traces() == {}
    assert [row.status for row in ingest([file], lake).rows] == ["ok"]
    with lake.connect([MARK, "events"]) as con:
        assert assert_whole(con) == 1


def test_what_another_process_read_at_the_same_time_is_deleted_too(tmp_path: Path) -> None:
    lake, files = Lake(tmp_path / "lake"), [write_trace(tmp_path / f"{seed}.json", seed) for seed in (1, 2)]
    with EventBatch(lake, None) as slow:
        for file in files:
            slow.add(file, None)
        (row,) = ingest([files[0]], lake).rows
        assert row.trace_id and slow.commit() == {row.trace_id}
    (other,) = lake.known_traces().keys() - {row.trace_id}

    def rows_of_events(trace: str) -> int:
        paths = [str(path) for path in table_files(lake.root, "events")]
        return duckdb.execute(f"SELECT count(*) FROM read_parquet({paths}) WHERE trace_id = '{trace}'").fetchall()[0][0]

    both = rows_of_events(row.trace_id), rows_of_events(other)
    assert both[0] == 2 * both[1] > 0
    forget(lake, row.trace_id, for_good=True)
    assert (rows_of_events(row.trace_id), rows_of_events(other)) == (0, both[1])


def test_a_file_that_a_rebuilt_catalog_had_read_again_waits_once_its_trace_is_forgotten(
    tmp_path: Path,
) -> None:
    lake, file = Lake(tmp_path / "lake"), write_trace(tmp_path / "in" / "0.json", 0)
    ingest([file], lake)
    rebuild(lake.root)
    assert [row.status for row in ingest([file], lake).rows] == ["known"]
    files = inbox.look(file.parent).files
    assert inbox.waiting(lake, files) == {}
    forget(lake, next(iter(lake.known_traces())))
    assert inbox.waiting(lake, files) == files


def test_a_file_waits_once_one_of_its_traces_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.runs.forget.publish", lambda _: None)
    lake, file = Lake(tmp_path / "lake"), tmp_path / "in" / "merged-2.trace.json"
    file.parent.mkdir()
    file.write_text(json.dumps(merged({f"TP0{number}": rank(number) for number in range(2)})))
    names = [str(row.trace_id) for row in ingest([file], lake).rows]
    files = inbox.look(file.parent).files
    assert inbox.waiting(lake, files) == {}
    forget(lake, names[0])
    assert inbox.waiting(lake, files) == files
    assert [row.status for row in ingest([file], lake).rows] == ["ok", "known"]
    assert inbox.waiting(lake, files) == {}
    forget(lake, names[1], for_good=True)
    assert inbox.waiting(lake, files) == {}


@pytest.mark.parametrize(
    ("first", "last", "status"), [("rejected", "ok", "rejected"), ("known", "ok", "ok"), ("known", "known", "known")]
)
def test_a_file_counts_as_rejected_if_one_of_its_traces_is(tmp_path: Path, first: str, last: str, status: str) -> None:
    file = write_trace(tmp_path / "0.json", 0)
    rows = [TraceRow(str(file), name, None if name == "rejected" else name, unpacked_bytes=9) for name in (first, last)]
    for order in (rows, rows[::-1]):
        (outcome,) = outcomes({file: state_of(file)}, order).values()
        assert outcome.status == status


def test_a_damaged_file_is_not_written_again_as_an_intact_one(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    ingest([write_trace(tmp_path / f"{seed}.json", seed) for seed in range(2)], lake)
    trace, (batch,) = min(lake.known_traces()), lake.batches()
    rot(lake, "events", batch, b"gemm_", b"gexx_")
    for _ in range(2):
        with pytest.raises(BrokenFiles, match=f"{batch.batch_id}.*does not contain the bytes.*check --repair"):
            forget(lake, trace)
    assert trace not in lake.known_traces()  # the trace is hidden
    assert [fault.table for fault in check(lake).faults if fault.batch_id] == ["events"]
    check(lake, repair=True)
    assert forget(lake, trace).n_rows == 0 and begun(lake) == []


@pytest.mark.slow  # 4 s; a test above completes such a removal
def test_a_removal_that_was_killed_leaves_the_trace_that_was_ingested_again(tmp_path: Path) -> None:
    lake, files = Lake(tmp_path / "lake"), [write_trace(tmp_path / "in" / f"{seed}.json", seed) for seed in range(2)]
    for file in files:
        ingest([file], lake)
    (again, batch), (other, _) = sorted(lake.known_traces().items())
    forgetting = asdict(Forgotten(again, batch.batch_id, None, False))
    keep_notice(lake, f"forgetting-{again}", [], forgetting=forgetting)
    _rewrite(lake, MARK, batch, again)  # the removal was killed here
    ingest(files, lake)
    forget(lake, other)
    assert begun(lake) == [] and list(lake.known_traces()) == [again]
    with lake.connect([MARK, "events"]) as con:
        assert assert_whole(con) == 1


@pytest.mark.slow  # 8 s
def test_a_batch_that_was_merged_twice_loses_the_trace_in_each_file(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    for seed in range(3):
        ingest([write_trace(tmp_path / "in" / f"{seed}.json", seed)], lake)
        compact(lake, older_than=0)
    trace = next(
        t for t, path in (read_keys(lake.root, lake.batches()[0]) or {}).items() if f"{path}".endswith("/0.json")
    )
    forget(lake, trace)
    for file in lake.root.glob("events/*/*.parquet"):
        assert duckdb.execute(f"SELECT 1 FROM '{file}' WHERE trace_id = '{trace}'").fetchall() == [], file
    rebuild(lake.root)
    with lake.connect([MARK, "events"]) as con:
        assert assert_whole(con) == 2


@pytest.mark.slow  # 5 s
def test_a_forgotten_capture_stays_away_when_tables_are_computed_by_force(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    ingest([write_trace(tmp_path / "a" / "rank0.json", 0)], lake)
    (gone,) = lake.known_traces()
    materialize_all(lake, ["capture_ranks"])
    ingest([write_trace(tmp_path / "b" / "rank0.json", 1)], lake)
    forget(lake, gone)
    for force in (True, False, True):
        materialize_all(lake, ["capture_ranks"], force=force)
        with lake.connect(["captures", "capture_ranks"]) as con:
            assert con.execute("SELECT count(*) FROM captures").fetchall() == [(1,)]
            assert con.execute("SELECT trace_id FROM capture_ranks").fetchall() != [(gone,)]
