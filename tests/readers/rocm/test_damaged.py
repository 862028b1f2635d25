"""Databases that differ from the databases of rocprofv3.

Each is rejected with a clear reason, or gives a trace with findings. None is accepted silently or causes another error.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.readers.inputs.single_trace import load_trace
from pipelines.readers.kineto import TraceRejected
from pipelines.readers.rocm.schema import sources_of
from tests.effort import examples, first_of
from tests.harness import connect_all, memory
from tests.readers.rocm.small import small
from tests.readers.sqlite_exports.fuzz import changed_by, distinct_traces, read_or_rejected, steps

END = small().end
MODELS = ("kernels", "launches", "temporal_breakdown", "critical_path", "critical_path_caveats", "quality")


def changed(folder: Path, *statements: str) -> Path:
    (folder / "a.db").unlink(missing_ok=True)
    path = small().write(folder / "a.db")
    with closing(sqlite3.connect(path)) as con:
        con.executescript(";".join(statements))
        con.commit()
    return path


def test_a_view_in_place_of_a_table_is_refused(tmp_path: Path) -> None:
    table = f"rocpd_kernel_dispatch{END}"
    path = changed(tmp_path, f"ALTER TABLE {table} RENAME TO k", f"CREATE VIEW {table} AS SELECT * FROM k")
    with pytest.raises(TraceRejected, match=r"is not a plain table.*rocprofv3"):
        load_trace(memory(), path)


def test_a_file_that_is_cut_off_names_the_table(tmp_path: Path) -> None:
    database = small()
    for i in range(5_000):
        database.marker(f"range {i}", 100_000 + 10 * i, 100_005 + 10 * i, 1_000 + i, 4000)
    path = database.write(tmp_path / "a.db")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(TraceRejected, match=r"SQLite cannot (read|open).*(copy it again|malformed)"):
        load_trace(memory(), path)


def test_values_of_other_types_are_null_and_counted(tmp_path: Path) -> None:
    path = changed(
        tmp_path,
        f"UPDATE rocpd_kernel_dispatch{END} SET start = 'soon' WHERE id = 1",
        f"UPDATE rocpd_event{END} SET extdata = x'00', stack_id = 1.5 WHERE id = 1",
        f'UPDATE rocpd_region{END} SET "end" = NULL WHERE id = 2',
    )
    trace = load_trace(memory(), path)
    findings = {
        (finding.check_name, finding.detail.split(END)[0]): (finding.severity, finding.n)
        for finding in trace.findings
        if END in finding.detail
    }
    assert findings == {
        ("rocm_wrong_type", "rocpd_kernel_dispatch"): ("error", 1),
        ("rocm_wrong_type", "rocpd_event"): ("error", 2),
        ("rocm_without_time", "rocpd_kernel_dispatch"): ("warning", 1),
        ("rocm_without_time", "rocpd_region"): ("warning", 1),
    }
    # There is a finding per table, and none for all tables.
    assert sum(finding.check_name == "rocm_without_time" for finding in trace.findings) == 2


@pytest.mark.slow  # a test below covers calls that no trace contains
def test_marks_of_threads_that_are_not_there_are_told(tmp_path: Path) -> None:
    for wrong in (f"UPDATE rocpd_sample{END} SET track_id = -1", f"UPDATE rocpd_track{END} SET pid = 'x'"):
        trace = load_trace(memory(), changed(tmp_path, wrong))
        assert [
            (finding.severity, finding.n) for finding in trace.findings if finding.check_name == "rocm_no_track"
        ] == [("warning", 1)]


@pytest.mark.parametrize(("pid", "check"), first_of([("'x'", "rocm_no_process"), ("77", "rocm_idle_processes")], 1))
def test_calls_that_are_in_no_trace_are_told(tmp_path: Path, pid: str, check: str) -> None:
    path = changed(tmp_path, f"UPDATE rocpd_region{END} SET pid = {pid} WHERE id = 2")
    trace = load_trace(con := memory(), path)
    assert [finding.n for finding in trace.findings if finding.check_name == check] == [1]
    assert con.execute("SELECT count(*) FROM events WHERE cat = 'cuda_runtime'").fetchall() == [(3,)]


@pytest.mark.parametrize(
    "table", first_of(["rocpd_string", "rocpd_event", "rocpd_info_kernel_symbol", "rocpd_track"], 2)
)
def test_rows_with_one_number_are_refused(tmp_path: Path, table: str) -> None:
    """If two rows had the same number, each reference to it would yield both rows."""
    path = small().write_plainly(tmp_path / "a.db")
    with closing(sqlite3.connect(path)) as con:
        con.execute(f"INSERT INTO {table}{END} SELECT * FROM {table}{END}")
        con.commit()
    with pytest.raises(TraceRejected, match=f"{table}{END} has [0-9]+ rows too many with the same id"):
        load_trace(memory(), path)


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(steps())
def test_whatever_is_in_the_tables(tmp_path_factory: pytest.TempPathFactory, change: list[tuple[Any, ...]]) -> None:
    """A randomly changed database is either rejected with a remedy or a trace."""
    read_or_rejected(changed_by(change, small().write_plainly(tmp_path_factory.mktemp("fuzz") / "a.db")))


@pytest.mark.slow
@settings(max_examples=2, phases=[Phase.explicit, Phase.generate], deadline=None)
@given(st.lists(steps(), min_size=8, max_size=8))
def test_models_run_on_whatever_is_in_the_tables(
    tmp_path_factory: pytest.TempPathFactory, changes: list[list[tuple[Any, ...]]]
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    paths = [
        changed_by(change, small().write_plainly(folder / f"{number}.db")) for number, change in enumerate(changes)
    ]
    if kept := distinct_traces(paths):
        con, _ = connect_all(kept)
        run_models(con, load_catalog(), MODELS)


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(st.data())
def test_nothing_that_is_needed_is_missing_silently(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """If a needed column is missing, a warning names the table."""
    source = data.draw(st.sampled_from([source for source in sources_of(END) if source.needed]))
    theirs = source.columns[data.draw(st.sampled_from(sorted(source.needed)))]
    path = small().write_plainly(tmp_path_factory.mktemp("needed") / "a.db")
    with closing(sqlite3.connect(path)) as con:
        con.execute(f'ALTER TABLE "{source.name}" DROP COLUMN "{theirs}"')
        con.commit()
    trace = load_trace(memory(), path)
    details = [
        finding.detail
        for finding in trace.findings
        if finding.check_name == "rocm_missing_column" and finding.severity == "warning"
    ]
    assert details == [f"{source.name} has no {theirs}: NULL"]
