"""The behaviour of every store, the same for both backends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipelines.base import database
from pipelines.lake import Lake
from pipelines.lake.names import CAPTURE_MARK, RECORDING_MARK, RUN_MARK, Batch, time_in_id
from pipelines.lake.status import Limits
from pipelines.readers.ingest import ingest
from pipelines.record.folder import Recording
from pipelines.runs.materialize.per_capture import compute_captures
from pipelines.runs.store import Store, open_store
from pipelines.runs.store.interface import BatchSpan, CommittedRows
from tests.harness import op
from tests.lake.world import write_trace
from tests.readers.test_schedule_runs import write_run
from tests.runs.store.conftest import ALL_KINDS
from tests.runs.store.world import STORED, make_unit, shown, trace_ids

Open = Callable[[], Store]
REAL = (
    "single/cpu_only_rank34_of_300.json.gz",
    "single/mi250_minitoy.json.gz",
    "critical_path/cuda_event_sync.json.gz",
    "stragglers/ms-ST.json",
)


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Lake]:
    """Return units that share a trace."""
    folder = tmp_path_factory.mktemp("units")
    seeds = {"first": (0, 1), "second": (1, 2)}
    return {name: make_unit(folder / name, of) for name, of in seeds.items()}


def test_a_unit_is_shown_with_all_its_tables(opened: Open, units: dict[str, Lake]) -> None:
    store = opened()
    done = store.commit(units["first"])
    assert set(done.traces) == trace_ids(units["first"]) and not done.known
    assert done.n_files >= 4
    with units["first"].connect(STORED) as con:
        n_events = con.execute("SELECT count(*) FROM events").fetchall()
    with store.connect() as con:
        assert con.execute("SELECT count(*) FROM events").fetchall() == n_events
    assert store.known(["none", *done.traces]) == set(done.traces)


def test_a_unit_committed_twice_is_there_once(opened: Open, units: dict[str, Lake]) -> None:
    store = opened()
    store.commit(units["first"])
    before = shown(store, STORED)
    again = opened().commit(units["first"])
    assert not again.traces and set(again.known) == trace_ids(units["first"]) and not again.n_files
    assert shown(store, STORED) == before


@pytest.mark.slow  # 5 s; a test below and tests/runs/test_forget.py forget traces
def test_a_forgotten_trace_is_committed_again_beside_the_others_of_its_batch(opened: Open, tmp_path: Path) -> None:
    store, unit = opened(), make_unit(tmp_path / "unit", (0, 1), ["kernels"])
    store.commit(unit)
    before, trace = shown(store, STORED), min(trace_ids(unit))
    store.forget(trace)
    assert store.commit(unit).traces == (trace,)
    assert shown(store, STORED) == before


@pytest.mark.parametrize("opened", ALL_KINDS, indirect=True)
def test_commands_get_the_same_answers_from_each_kind(opened: Open, units: dict[str, Lake]) -> None:
    store, everything = opened(), BatchSpan(frozenset(), "")
    store.commit(units["first"])
    first, *_ = ids = sorted(trace_ids(units["first"]))
    time.sleep(0.05)  # in a folder, the time of their file orders the rows
    with store.rows() as rows:
        until = rows.until
        assert n_traces(rows, everything) == 2 and n_traces(rows, BatchSpan(frozenset({"2020-01-01"}), "9")) == 0
        assert n_traces(rows, everything, until) == 0 and rows.of("captures", everything) is None
    store.commit(units["second"])
    with store.rows() as rows:
        assert (n_traces(rows, everything), n_traces(rows, everything, until)) == (3, 1)

    assert store.find_trace(first) == first and store.exists
    with database.connect() as con:
        assert store.show_trace(con, first) == first
        assert con.execute("SELECT DISTINCT trace_id FROM events").fetchall() == [(first,)]
    assert store.left_out(["kernels"]) == store.caveats("kernels") == store.asked(["kernels"]).lacks() == []
    assert store.asked(["kernels"]).read == ["kernels"] and not store.asked(["kernels"]).can_compute
    assert store.stale_batches(["kernels"]) == [] and len(store.stale_batches(["kernels"], force=True)) == 2
    assert store.capture_contents() == {} and store.stale_captures(["captures"]) == []
    assert store.status(None, Limits()).traces == 3 and store.check().faults == []
    assert store.forget(first).trace_id == first and not store.has_captures_to_update()
    assert store.accounted_for(ids) == {*ids[1:]}
    assert len(store.expire(1, dry_run=True, now=datetime.now(UTC) + timedelta(days=3))) == 2


def n_traces(rows: CommittedRows, span: BatchSpan, since: float | str = "") -> int:
    kernels = rows.of("kernels", span, since)
    query = "SELECT count(DISTINCT trace_id) FROM {}"
    return rows.con.execute(query.format(kernels.sql)).fetchall()[0][0] if kernels else 0


def test_a_rejected_file_is_written_once(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"mean": 1}')
    unit = Lake(tmp_path / "unit")
    ingest([tmp_path / "result.json", write_trace(tmp_path / "rank0.json", 0)], unit)
    store = opened()
    assert store.commit(unit).n_files
    assert not store.commit(unit).n_files
    assert len(shown(store, ["rejects"])["rejects"]) == 1


def test_a_file_that_was_read_before_it_broke_again_is_rejected_again(opened: Open, tmp_path: Path) -> None:
    """A file that was ingested before it broke again is rejected again, although the reason is the same.

    Units that are committed again add nothing.
    """
    file, store = tmp_path / "rank0.json", opened()
    units = [Lake(tmp_path / name) for name in ("empty", "written", "empty_again")]
    for unit, n_launches in zip(units, (0, 4, 0), strict=True):
        write_trace(file, 0, n_launches) if n_launches else file.write_text("")
        ingest([file], unit)
        assert store.commit(unit).n_files
    assert not any(store.commit(unit).n_files for unit in units)
    assert len(shown(store, ["rejects"])["rejects"]) == 2


def test_of_a_recording_only_news_are_committed(opened: Open, tmp_path: Path) -> None:
    recording, store = Recording(tmp_path / "in", "counters", "run", 42, 3), opened()

    def unit_of(name: str) -> Lake:
        unit = Lake(tmp_path / name)
        ingest([recording.folder], unit)
        return unit

    def add(at: int) -> None:
        sample = {"source": "proc", "pid": 42, "t_unix_ns": at * 10**9, "t_mono_ns": at * 10**9, "start_ticks": 1}
        recording.add("host_samples", [sample])
        recording.flush()

    add(0)
    older = unit_of("older")
    assert store.commit(older).keys.keys() == {RECORDING_MARK}
    add(1)
    newer = unit_of("newer")
    assert not store.commit(newer).known_keys
    recording.close(source="none: made", interval_ns=10**9, n_late=0, cost_ns=5, start_ns=1, end_ns=2)
    assert store.commit(unit_of("complete")).keys.keys() == {RECORDING_MARK}
    for unit in (newer, unit_of("again")):
        done = store.commit(unit)
        assert (done.known_keys.keys(), done.keys, done.n_files) == ({RECORDING_MARK}, {}, 0)
    with store.look([RECORDING_MARK, "host_samples"]) as con:
        assert con.execute("SELECT state, n_rows FROM recordings").fetchall() == [("complete", 2)]
        assert con.execute("SELECT count(*) FROM host_samples").fetchall() == [(2,)]


@pytest.mark.parametrize("is_cut_first", [True, False])
def test_a_cut_trace_that_a_whole_one_in_another_unit_supersedes_is_in_rejects(
    opened: Open, tmp_path: Path, is_cut_first: bool
) -> None:
    store, file = opened(), tmp_path / "job" / "rank0.json"
    file.parent.mkdir()
    whole = json.dumps({"traceEvents": [op("aten::mm", 0, 50), op("aten::add", 60, 50), op("aten::relu", 120, 50)]})
    units = [Lake(tmp_path / name) for name in ("cut", "whole")]
    for unit, text in zip(units, (whole[: whole.index("aten::relu") + 5], whole), strict=True):
        file.write_text(text)
        ingest([file], unit)
    for unit in units if is_cut_first else reversed(units):
        assert store.commit(unit).traces
    assert not any(store.commit(unit).n_files for unit in units)
    with store.look(["traces", "rejects"]) as con:
        assert con.execute("SELECT status, n_events FROM traces").fetchall() == [("ok", 3)]
        ((path, reason),) = con.execute("SELECT path, reason FROM rejects").fetchall()
    (cut_trace,), (whole_trace,) = map(trace_ids, units)
    assert path == str(file) and reason == (
        f"trace {cut_trace} was truncated (2 events) and is excluded from all tables: superseded by trace {whole_trace} "
        f"({file}, 3 events, ok)"
    )


def test_a_plan_is_stored_with_the_first_unit_that_has_it(opened: Open, tmp_path: Path) -> None:
    store = opened()
    for run, plan in (("a", "h1"), ("b", "h1"), ("c", "h2")):
        unit = Lake(tmp_path / run)
        ingest([write_run(tmp_path / "in" / run, run, "serial", 40, plan=plan)], unit)
        assert store.commit(unit).keys == {RUN_MARK: (run,)}
    assert not store.commit(unit).n_files
    with store.look(["schedule_plans"]) as con:
        plans = con.execute("SELECT plan_hash, run_id, task FROM schedule_plans ORDER BY ALL").fetchall()
        assert plans == [(p, r, task) for p, r in (("h1", "a"), ("h2", "c")) for task in ("Copy", "Forward")]


def test_what_is_newer_counts_although_the_clock_was_set_back(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unit_of(name: str, ranks: range, hours_ahead: int) -> Lake:
        now = datetime.now(UTC) + timedelta(hours=hours_ahead)
        ids = (Batch(f"{time_in_id(now + timedelta(seconds=n))}-00000000") for n in range(9))
        monkeypatch.setattr(Batch, "new", lambda: next(ids))
        unit = make_unit(tmp_path / name, ranks, [])
        list(compute_captures(unit, ["captures"]))
        return unit

    store = opened()
    first, later = unit_of("first", range(1), 2), unit_of("later", range(2), 0)
    for unit, n_ranks in ((first, 1), (later, 2)):
        assert len(store.commit(unit).keys[CAPTURE_MARK]) == 1
        with store.look([CAPTURE_MARK]) as con:
            assert con.execute("SELECT n_ranks FROM captures").fetchall() == [(n_ranks,)]


def test_a_capture_that_another_worker_computed_meanwhile_counts(opened: Open, tmp_path: Path) -> None:
    store, units = opened(), []
    for n_ranks in (1, 2):
        units.append(make_unit(tmp_path / str(n_ranks), range(n_ranks), []))
        list(compute_captures(units[-1], ["captures"]))
    for unit in reversed(units):
        store.commit(unit)
    with store.look([CAPTURE_MARK]) as con:
        assert con.execute("SELECT n_ranks FROM captures").fetchall() == [(2,)]


@pytest.fixture(scope="module")
def with_all_tables(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> tuple[Lake, Lake]:
    """Return a unit of real traces with all tables, and a folder lake that computed the same tables itself."""
    from pipelines.lake.publish.analyst_file import publish
    from pipelines.runs.materialize.run_order import materialize_all

    made, files = tmp_path_factory.mktemp("all"), [shared / "traces" / name for name in REAL]
    files += [write_trace(made / f"capture/rank{rank}.json", rank, distributedInfo={"rank": rank}) for rank in (0, 1)]
    unit, folder = Lake(made / "unit"), Lake(made / "folder")
    for lake in (unit, folder):
        ingest(files, lake)
        materialize_all(lake, None)
    publish(folder)
    return unit, folder


@pytest.mark.slow
def test_all_tables_show_the_rows_of_a_folder_lake(opened: Open, with_all_tables: tuple[Lake, Lake]) -> None:
    (unit, folder), store = with_all_tables, opened()
    done = store.commit(unit)
    assert done.traces and done.keys["captures"]
    assert shown(store) == shown(open_store(str(folder.root)))
    before = shown(store, ["captures", "capture_ranks"])
    assert not store.commit(unit).n_files
    assert shown(store, ["captures", "capture_ranks"]) == before
