"""Files that differ from the files of `nsys export`.

Each is rejected with a clear reason, or gives a trace with findings. None is accepted silently or causes another error.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pipelines.lake import Lake
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.readers.ingest import ingest
from pipelines.readers.inputs.single_trace import load_trace
from pipelines.readers.kineto import TraceRejected
from pipelines.readers.kineto.limits import Limits
from tests.effort import examples
from tests.harness import connect_all, memory
from tests.readers.nsys.small import range_of, sampled, small, written
from tests.readers.sqlite_exports.fuzz import changed_by, distinct_traces, read_or_rejected, steps


def rejection(path: Path) -> str:
    with pytest.raises(TraceRejected) as caught:
        load_trace(memory(), path)
    assert caught.value.path == str(path)
    return caught.value.reason


def changed(folder: Path, *statements: str) -> Path:
    path = written(small(), folder)
    with closing(sqlite3.connect(path)) as con:
        con.executescript(";".join(statements))
        con.commit()
    return path


KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


@pytest.mark.parametrize(
    "statements",
    [
        (f"ALTER TABLE {KERNELS} RENAME TO k", f"CREATE VIEW {KERNELS} AS SELECT * FROM k"),
        (
            f"DROP TABLE {KERNELS}",
            f"CREATE VIEW {KERNELS} AS WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n) SELECT * FROM n",
        ),
        (f"DROP TABLE {KERNELS}", f"CREATE VIRTUAL TABLE {KERNELS} USING fts5(start)"),
        ("DROP TABLE StringIds", "CREATE VIEW StringIds AS SELECT 1 AS id, 'x' AS value"),
        ("DROP TABLE NVTX_EVENTS", "CREATE TABLE NVTX_EVENTS (start, end AS (start * 2))"),
    ],
    ids=["view", "endless view", "virtual table", "view of strings", "generated column"],
)
def test_only_plain_tables_are_read(tmp_path: Path, statements: tuple[str, ...]) -> None:
    reason = rejection(changed(tmp_path, *statements))
    assert "is not a plain table" in reason or "has generated columns" in reason


def test_a_trigger_never_runs_and_nothing_is_written(tmp_path: Path) -> None:
    path = changed(
        tmp_path,
        "CREATE TABLE noted (x)",
        "CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN INSERT INTO noted VALUES (1); END",
    )
    before, state = path.read_bytes(), path.stat().st_mtime_ns
    os.chmod(path, 0o400)
    assert load_trace(memory(), path).n_events == 10
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, state)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_row_that_is_said_to_be_larger_than_memory_is_a_rejection(shared: Path, tmp_path: Path) -> None:
    """A file with a row that would not fit into memory is rejected.

    After 64 bytes of a real file were overwritten, SQLite would need more memory than exists for a row.
    """
    content = bytearray((shared / "traces" / "nsys" / "healthy_1pct.sqlite").read_bytes())
    content[50840:50904] = b"\xff" * 64
    path = tmp_path / "a.sqlite"
    path.write_bytes(content)
    assert "CUPTI_ACTIVITY_KIND_" in (reason := rejection(path)) and "more memory than is available" in reason


def test_a_file_that_is_cut_off_names_the_table(tmp_path: Path) -> None:
    export = small()
    for i in range(20_000):
        range_of(export, f"range number {i}", 100_000 + 10 * i, 100_005 + 10 * i)
    path = written(export, tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    reason = rejection(path)
    assert "SQLite cannot read" in reason and "copy it again" in reason
    pages = bytearray(whole)
    for at in range(8 * 4096, len(pages) - 4096, 4096):
        pages[at : at + 8] = b"\xff" * 8
    path.write_bytes(pages)
    assert "SQLite cannot read" in (reason := rejection(path)) and any(
        table in reason for table in ("NVTX_EVENTS", "CUPTI", "StringIds")
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"SQLite format 3\0 and nothing else", "SQLite cannot"),
        (b"SQLite format 3\0", "SQLite cannot"),
    ],
)
def test_a_header_alone(tmp_path: Path, content: bytes, reason: str) -> None:
    (path := tmp_path / "a.sqlite").write_bytes(content)
    assert reason in rejection(path)


def test_other_databases_are_named(tmp_path: Path) -> None:
    path = tmp_path / "firefox.sqlite"
    with closing(sqlite3.connect(path)) as con:
        con.execute("CREATE TABLE moz_places (url)")
    assert "not an export of Nsight Systems with CUDA or NVTX rows: it has moz_places" in rejection(path)
    (tmp_path / "b.db").write_bytes(path.read_bytes())
    assert "nsys profile --trace=cuda,nvtx" in rejection(tmp_path / "b.db")


def test_an_export_without_names_is_rejected(tmp_path: Path) -> None:
    assert "no table StringIds" in rejection(changed(tmp_path, "DROP TABLE StringIds"))


def test_a_report_is_not_an_export(tmp_path: Path) -> None:
    (path := tmp_path / "report1.nsys-rep").write_bytes(b"\0anything")
    assert "run `nsys export --type sqlite report1.nsys-rep` first" in rejection(path)


def test_json_that_is_called_sqlite_is_still_a_trace(tmp_path: Path) -> None:
    (path := tmp_path / "a.sqlite").write_text(
        '{"traceEvents": [{"ph": "X", "ts": 1, "dur": 2, "name": "n", "cat": "cpu_op"}]}'
    )
    assert load_trace(memory(), path).n_events == 1


def test_an_export_that_is_still_running_is_rejected(tmp_path: Path) -> None:
    path = written(small(), tmp_path)
    (tmp_path / "a.sqlite-journal").write_bytes(b"x")
    assert "the export is still running" in rejection(path)
    (tmp_path / "a.sqlite-journal").unlink()
    with closing(sqlite3.connect(path)) as con:
        con.execute("PRAGMA journal_mode = WAL")
        con.execute("INSERT INTO StringIds VALUES (999, 'late')")
        con.commit()
        assert "a.sqlite-wal is next to it" in rejection(path)
    assert load_trace(memory(), path).n_events == 10  # the connection is closed, so the WAL is merged into the file


@pytest.mark.slow
def test_names_of_files_that_are_not_urls(tmp_path: Path) -> None:
    for name in ("a?b#c%20d.sqlite", "ä b.sqlite", "a&mode=rwc.sqlite", os.fsdecode(b"caf\xe9.sqlite")):
        path = written(small(), tmp_path, "x.sqlite").rename(tmp_path / name)
        assert load_trace(memory(), path).n_events == 10


def test_texts_over_the_limit_are_rejected_by_name(tmp_path: Path) -> None:
    path = changed(tmp_path, "UPDATE StringIds SET value = hex(zeroblob(1 << 20)) WHERE value = 'gemm'")
    lake = Lake(tmp_path / "lake")
    (row,) = ingest([path], lake, limits=Limits(max_event_mib=1)).rows
    assert row.status == "rejected" and "StringIds has a text over 1 MiB; TRACELAKE_MAX_EVENT_MIB" in (row.reason or "")
    (row,) = ingest([path], lake, limits=Limits(max_event_mib=8)).rows
    assert row.status == "ok"


def test_values_of_other_types_are_null_and_counted(tmp_path: Path) -> None:
    path = changed(
        tmp_path,
        f"UPDATE {KERNELS} SET start = 'soon', deviceId = 1.5 WHERE rowid = 1",
        f"UPDATE {KERNELS} SET streamId = x'00' WHERE rowid = 2",
        "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET end = NULL WHERE rowid = 1",
        "UPDATE NVTX_EVENTS SET start = 9e300",
    )
    trace = load_trace(con := memory(), path)
    findings = {
        (finding.check_name, finding.detail.split(":")[0]): (finding.severity, finding.n) for finding in trace.findings
    }
    assert findings == {
        ("nsys_wrong_type", KERNELS): ("error", 3),
        ("nsys_wrong_type", "NVTX_EVENTS"): ("error", 1),
        ("nsys_without_time", KERNELS): ("warning", 1),
        ("nsys_without_time", "CUPTI_ACTIVITY_KIND_RUNTIME"): ("warning", 1),
        ("nsys_without_time", "NVTX_EVENTS"): ("warning", 1),
    }
    query = "SELECT name, start_ns IS NULL, duration_ns IS NULL, device, stream FROM events WHERE cat = 'kernel' ORDER BY name"
    assert con.execute(query).fetchall() == [("gemm", True, True, None, 7), ("relu", False, False, 0, None)]


@pytest.mark.slow  # tests/readers/inputs/test_events_by_sql.py
def test_times_that_no_lake_can_hold(tmp_path: Path) -> None:
    path = changed(
        tmp_path,
        f"UPDATE {KERNELS} SET start = {2**63 - 1}, end = {-(2**63)} WHERE rowid = 1",
        f"UPDATE {KERNELS} SET start = 50000, end = 40000 WHERE rowid = 2",
        f"UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = {2**61}",
    )
    trace = load_trace(memory(), path)
    assert {finding.check_name: finding.n for finding in trace.findings} == {
        "time_out_of_range": 1,
        "negative_duration": 1,
    }


def test_texts_with_one_number_are_refused(tmp_path: Path) -> None:
    """If two texts had the same number, each call with this number as its name would appear twice."""
    again = "INSERT INTO s SELECT * FROM StringIds LIMIT 1"
    path = changed(
        tmp_path, "CREATE TABLE s AS SELECT * FROM StringIds", again, "DROP TABLE StringIds",
        "ALTER TABLE s RENAME TO StringIds",
    )  # fmt: skip
    assert "StringIds has 1 rows too many with the same id" in rejection(path)


@pytest.mark.slow  # types of ranges: test_events.py
def test_ranges_of_an_unknown_type_are_told(tmp_path: Path) -> None:
    trace = load_trace(memory(), changed(tmp_path, "UPDATE NVTX_EVENTS SET eventType = 12345"))
    assert [(finding.check_name, finding.severity, finding.n) for finding in trace.findings] == [
        ("nsys_unknown_range", "warning", 1)
    ]
    trace = load_trace(memory(), changed(tmp_path, "UPDATE NVTX_EVENTS SET eventType = 75"))
    assert not trace.findings  # the type names a domain
    name_type = "CREATE TABLE ENUM_NSYS_EVENT_TYPE AS SELECT 80 AS id, 'NvtxDeferredPushPopRange' AS name, '' AS label"
    trace = load_trace(memory(), changed(tmp_path, name_type, "UPDATE NVTX_EVENTS SET eventType = 80"))
    assert [(finding.check_name, finding.severity, finding.n) for finding in trace.findings] == [
        ("nsys_unknown_range", "warning", 1)
    ]


# Fuzz ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow  # random; tests above cover single damages
@settings(max_examples=examples(80))
@given(steps())
def test_whatever_is_in_the_tables(tmp_path_factory: pytest.TempPathFactory, change: list[tuple[Any, ...]]) -> None:
    """A randomly changed export is either rejected with a remedy or a trace."""
    read_or_rejected(changed_by(change, written(sampled(), tmp_path_factory.mktemp("fuzz"))))


@pytest.mark.slow  # random; tests above cover single damages
@settings(max_examples=examples(60))
@given(st.data())
def test_whatever_happened_to_the_bytes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = written(small(), tmp_path_factory.mktemp("bytes"))
    raw = bytearray(path.read_bytes())
    if data.draw(st.booleans(), "cut"):
        del raw[data.draw(st.integers(16, len(raw) - 1), "at") :]
    for _ in range(data.draw(st.integers(0, 8), "flips")):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw[:16] = b"SQLite format 3\0"
    path.write_bytes(raw)
    read_or_rejected(path)


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(st.sampled_from(sorted(small().rows)), st.data())
def test_nothing_that_is_needed_is_missing_silently(
    tmp_path_factory: pytest.TempPathFactory, table: str, data: st.DataObject
) -> None:
    """If a needed column or its table is missing, a warning names the table, or the file is rejected."""
    from pipelines.readers.nsys.schema import SOURCES

    source = next((source for source in SOURCES if source.name == table), None)
    if source is None or not source.needed:
        return
    ours = data.draw(st.sampled_from(sorted(source.needed)))
    path = written(small(), tmp_path_factory.mktemp("needed"))
    with closing(sqlite3.connect(path)) as con:
        con.execute(f'ALTER TABLE {table} DROP COLUMN "{source.columns[ours]}"')
        con.commit()
    trace = load_trace(memory(), path)
    findings = [
        finding
        for finding in trace.findings
        if finding.check_name == "nsys_missing_column" and finding.severity == "warning"
    ]
    assert [finding.detail for finding in findings] == [f"{table} has no {source.columns[ours]}: NULL"]


ODD = st.sampled_from([None, 0, -1, 1, 5, 2**31, 2**32 - 1, 2**62, 2**63 - 1, -(2**63), 10**18, -(10**18), 61_000])


def odd_values(con: sqlite3.Connection, change: list[tuple[int, int, int, int | None]]) -> None:
    """Overwrite values of a small export with odd integers.

    The values are times, ids, sizes, numbers of streams and devices.
    """
    tables = [name for (name,) in con.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    tables = [name for name in tables if name.startswith(("CUPTI_", "NVTX_", "TARGET_INFO_SESSION"))]
    for table_no, column_no, row_no, value in change:
        table = tables[table_no % len(tables)]
        columns = [
            row[1] for row in con.execute(f'PRAGMA table_info("{table}")') if row[1] not in ("text", "globalPid")
        ]
        (n,) = con.execute(f'SELECT count(*) FROM "{table}"').fetchone()
        column = columns[column_no % len(columns)]
        con.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', [value, row_no % n + 1])


CHANGES = st.lists(st.tuples(*[st.integers(0, 1_000)] * 3, ODD), min_size=1, max_size=5)
# Each case runs the models, so failures are not minimized, which would run the models repeatedly.
BOUNDED = settings(phases=[Phase.explicit, Phase.generate], deadline=None)


def models_run(folder: Path, changes: list[list[tuple[int, int, int, int | None]]], models: Collection[str]) -> None:
    """Run models over all exports that are still traces, together."""
    paths = []
    for number, change in enumerate(changes):
        path = written(small(), folder, f"{number}.sqlite")
        with closing(sqlite3.connect(path)) as con:
            odd_values(con, change)
            con.commit()
        paths.append(path)
    if kept := distinct_traces(paths):
        con, _ = connect_all(kept)
        run_models(con, load_catalog(), models)


@pytest.mark.slow
@settings(BOUNDED, max_examples=2)
@given(st.lists(CHANGES, min_size=10, max_size=10))
def test_all_models_run_on_odd_values(tmp_path_factory: pytest.TempPathFactory, changes: list[Any]) -> None:
    models_run(tmp_path_factory.mktemp("odd"), changes, load_catalog().materialized)
