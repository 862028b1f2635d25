"""What every store does, the same for both backends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.runs.store import Store, open_store
from tests.lake.world import write_trace
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
    """Units that share a trace, and one with the traces of both."""
    folder = tmp_path_factory.mktemp("units")
    seeds = {"first": (0, 1), "second": (1, 2), "both": (0, 1, 2)}
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


def test_a_rejected_file_is_written_once(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"mean": 1}')
    unit = Lake(tmp_path / "unit")
    ingest([tmp_path / "result.json", write_trace(tmp_path / "rank0.json", 0)], unit)
    store = opened()
    assert store.commit(unit).n_files
    assert not store.commit(unit).n_files
    assert len(shown(store, ["rejects"])["rejects"]) == 1


def test_of_a_partly_known_unit_the_rest_is_committed(opened: Open, units: dict[str, Lake], tmp_path: Path) -> None:
    store = opened()
    store.commit(units["first"])
    done = store.commit(units["second"])
    assert set(done.known) == trace_ids(units["first"]) & trace_ids(units["second"])
    assert set(done.traces) == trace_ids(units["second"]) - trace_ids(units["first"])
    whole = open_store(str(tmp_path / "whole"))
    whole.commit(units["both"])
    assert shown(store, STORED) == shown(whole, STORED)


@pytest.mark.slow
def test_all_tables_show_the_rows_of_a_folder_lake(opened: Open, tmp_path: Path, shared: Path) -> None:
    """Real traces with all tables, as a unit, against a folder lake that computed them itself."""
    from pipelines.lake.publish.analyst_file import publish
    from pipelines.runs.materialize.run_order import materialize_all

    files = [shared / "traces" / name for name in REAL]
    files += [
        write_trace(tmp_path / f"capture/rank{rank}.json", rank, distributedInfo={"rank": rank}) for rank in (0, 1)
    ]
    unit, folder = Lake(tmp_path / "unit"), Lake(tmp_path / "folder")
    for lake in (unit, folder):
        ingest(files, lake)
        materialize_all(lake, None)
    publish(folder)
    store = opened()
    done = store.commit(unit)
    assert done.traces and done.keys["captures"]
    assert shown(store) == shown(open_store(str(folder.root)))
    before = shown(store, ["captures", "capture_ranks"])
    assert not store.commit(unit).n_files
    assert shown(store, ["captures", "capture_ranks"]) == before
