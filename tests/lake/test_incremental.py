"""Incremental updates of the analysts' file: the content equals that of a new build, and only changes are read."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.lake import Lake
from pipelines.lake.commit import catalog_file, manifest
from pipelines.lake.commit.batch_rows import merged_away
from pipelines.lake.names import ANALYST, MARK, Batch, table_file
from pipelines.lake.publish.analyst_file import publish
from pipelines.lake.publish.file_lists import chunks
from pipelines.lake.publish.increment import Anew
from pipelines.lake.read import snapshot
from pipelines.lake.read.snapshot import look
from pipelines.lake.retain.retention import retire
from pipelines.lake.table_files import table_files
from pipelines.models.catalog import Catalog
from pipelines.readers.ingest import ingest
from pipelines.runs.forget import forget
from pipelines.runs.materialize.per_capture import materialize_captures
from pipelines.runs.materialize.per_trace import materialize
from tests.effort import SLOW, first_of
from tests.lake.world import TABLES, do_publish, kept, run_killed, write_trace

CAPTURES = ["captures", "capture_ranks", "capture_quality"]


def held(lake: Lake) -> dict[tuple[str, str], object]:
    """Return the whole content of the analysts' file: rows, columns with types and comments, texts of views."""
    content: dict[tuple[str, str], object] = {}
    with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con:
        relations = con.execute(
            "SELECT schema_name, table_name, estimated_size, comment, '' FROM duckdb_tables() UNION ALL "
            "SELECT schema_name, view_name, NULL, comment, sql FROM duckdb_views() WHERE NOT internal"
        ).fetchall()
        for schema, name, most, *texts in relations:
            columns = "*" if name != "published" else "root"
            # `most` also counts deleted rows. If it is 0, the table is empty.
            rows = [] if most == 0 else con.execute(f'SELECT {columns} FROM {schema}."{name}"').fetchall()
            content[schema, name] = (texts, sorted(map(repr, rows)))
        content["", "columns"] = sorted(
            map(
                repr,
                con.execute(
                    "SELECT schema_name, table_name, column_name, data_type, comment FROM duckdb_columns() WHERE NOT internal"
                ).fetchall(),
            )
        )
    return content


def look_anew(lake: Lake) -> snapshot.Now:
    """Return the state of the lake as a process sees it that reads the lake for the first time."""
    catalog_file._memory.clear()
    manifest._memory.clear()
    snapshot._memory.clear()
    return look(lake.root)


def assert_as_anew(lake: Lake) -> None:
    assert look(lake.root) == look_anew(lake)
    updated = held(lake)
    publish(lake, anew=True)
    anew = held(lake)
    assert updated.keys() == anew.keys()
    for name, content in anew.items():
        assert updated[name] == content, name


@pytest.fixture
def updates(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record each publication: "updated", or why the file was rebuilt."""
    made = []
    update = publish.__globals__["update"]

    def noted(*args: object) -> None:
        try:
            update(*args)
        except Anew as error:
            made.append(str(error))
            raise
        made.append("updated")

    monkeypatch.setitem(publish.__globals__, "update", noted)
    return made


class World:
    """A lake and random changes to it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.lake, self.folder, self.choice = Lake(folder / "lake"), folder, random.Random(seed)
        self.n = 0

    def add(self, job: str = "", rank: int = 0, **top: object) -> None:
        self.n += 1
        folder = self.folder / (job or f"job{self.n}")
        write_trace(folder / f"rank{rank}_{self.n}.json", self.n, distributedInfo={"rank": rank}, **top)
        ingest([folder], self.lake)

    def late_rank(self) -> None:
        self.add("job1", rank=self.n)

    def superseded(self) -> None:
        """Ingest a truncated trace, and then the whole trace of the same rank."""
        self.n += 1
        folder = self.folder / f"cut{self.n}"
        whole = write_trace(folder / "rank0.json", self.n, 8).read_text()
        (folder / "rank0.json").write_text(whole[: len(whole) * 2 // 3])
        ingest([folder], self.lake)
        self.compute()
        publish(self.lake)
        (folder / "rank0.json").write_text(whole)
        ingest([folder], self.lake)

    def compute(self) -> None:
        materialize(self.lake, TABLES, and_publish=False)

    def captures(self) -> None:
        materialize_captures(self.lake, CAPTURES)

    def reject(self) -> None:
        self.n += 1
        (self.folder / f"none{self.n}.json").write_text("no trace at all")
        ingest([self.folder / f"none{self.n}.json"], self.lake)

    def hide(self) -> None:
        """Hide the oldest batch, as retention does."""
        first = self.lake.batches()[0].batch_id
        at = datetime.strptime(first.partition("-")[0], "%Y%m%dT%H%M%S%f").replace(tzinfo=UTC)
        retire(self.lake, 1, now=at + timedelta(days=1, microseconds=1))

    def forget(self) -> None:
        forget(self.lake, self.choice.choice(sorted(self.lake.known_traces())))

    def lose(self) -> None:
        """Delete a file of table temporal_breakdown, publish, and recompute the table."""
        if files := table_files(self.lake.root, "temporal_breakdown"):
            self.choice.choice(files).unlink()
            publish(self.lake)
            self.compute()

    def killed(self) -> None:
        self.add()
        run_killed(self.choice.choice([3, 5]), do_publish, self.lake.root)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "each"), [(0, True), (1, False)])
def test_a_file_that_was_updated_holds_what_one_built_anew_holds(
    tmp_path: Path, updates: list[str], seed: int, each: bool
) -> None:
    """Compare the updated file with a new build, either after each step or once after all steps.

    Each comparison builds the file from scratch, so with `each` every step starts from a new build.
    """
    world = World(tmp_path, seed)
    world.add("job1")
    world.superseded()
    world.compute()
    world.captures()
    steps: list[Callable[[], None]] = [
        *(world.add, world.late_rank, world.superseded, world.compute, world.captures),
        *(world.reject, world.hide, world.forget, world.lose, world.killed),
    ]
    world.choice.shuffle(steps)
    updates.clear()
    for step in steps:
        step()
        publish(world.lake)
        if each:
            assert_as_anew(world.lake)
    assert_as_anew(world.lake)
    assert updates.count("updated") >= 5, updates


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build and publish a lake of two batches with a trace each, and their tables."""
    folder = tmp_path_factory.mktemp("two")
    for number in range(2):
        ingest([write_trace(folder / f"in{number}" / "rank0.json", number)], Lake(folder / "lake"))
    materialize(Lake(folder / "lake"), TABLES)
    return folder


@pytest.fixture
def lake(two: Path) -> Iterator[Lake]:
    """Yield the lake of `two`, and restore it afterwards."""
    with kept(two) as lake:
        yield lake


@pytest.mark.slow  # 7 s
def test_a_new_batch_does_not_read_the_files_of_others(lake: Lake, tmp_path: Path, updates: list[str]) -> None:
    old = [path for table in ("findings", *TABLES, MARK) for path in table_files(lake.root, table)]
    ingest([write_trace(tmp_path / "late.json", 9)], lake)
    kept = {path: path.read_bytes() for path in old}
    for path in old:
        path.write_bytes(b"?" * len(kept[path]))
    publish(lake)
    for path, content in kept.items():
        path.write_bytes(content)
    assert updates == ["updated"]
    assert_as_anew(lake)


@pytest.mark.slow  # the test above adds a batch
def test_first_files_need_no_new_build(tmp_path: Path, updates: list[str]) -> None:
    lake = Lake(tmp_path / "lake")
    publish(lake)
    updates.clear()
    ingest([write_trace(tmp_path / "rank0.json", 1)], lake)
    publish(lake)
    materialize(lake, TABLES)
    publish(lake)
    assert updates == ["updated"] * 2
    assert_as_anew(lake)


@pytest.mark.slow  # 2 s each
@pytest.mark.parametrize(
    ("table", "column"),
    first_of([("traces", "unpacked_bytes"), ("kernels", "stream"), ("temporal_breakdown", "idle_ns")], 1),
)
def test_files_of_another_version_are_shown_with_their_own_columns(
    lake: Lake, tmp_path: Path, table: str, column: str
) -> None:
    """Files of another version are shown with their own columns and types.

    The tables are a large one, a copied computed one, and an ingested one. Their new files have another type and a new
    column.
    """
    for batch in lake.batches():
        path, other = table_file(lake.root, table, batch), tmp_path / "other.parquet"
        rows = f"SELECT * REPLACE ('none' AS {column}), 7 AS of_another_version FROM read_parquet('{path}', hive_partitioning = false)"
        duckdb.execute(f"COPY ({rows}) TO '{other}'")
        lake.put(table, batch, other)
    publish(lake)
    assert_as_anew(lake)
    with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con:
        values = con.execute(f"SELECT {column}, of_another_version FROM {table} UNION SELECT 'none', 7").fetchall()
        assert values == [("none", 7)]
        documented = con.execute(
            f"SELECT count(*) FROM duckdb_columns() WHERE table_name = '{table}' AND comment IS NULL"
        )
        assert documented.fetchall() == [(1,)]  # this version does not know the column, so it has no comment


def test_a_query_of_one_trace_opens_the_files_of_its_batch_alone(lake: Lake) -> None:
    first, second = lake.batches()
    for table in ("kernels", "events"):
        path = table_file(lake.root, table, second)
        path.write_bytes(b"?" * path.stat().st_size)
    with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con:
        (mine,) = con.execute("SELECT trace_id FROM traces WHERE batch_id = ?", [first.batch_id]).fetchall()[0]
        for table in ("kernels", "events"):
            for named in (f"= '{mine}'", f"IN ('{mine}', 'none')", f"LIKE '{mine[:12]}%'"):
                counts = con.execute(f"SELECT count(*) FROM {table} WHERE trace_id {named}").fetchall()
                assert counts != [(0,)], (table, named)
            with pytest.raises(duckdb.Error):
                con.execute(f"SELECT max(name) FROM {table}").fetchall()


@pytest.mark.slow  # the test above checks which files a query opens
def test_files_that_were_not_opened_are_read_past_the_mark_and_not_kept_in_memory(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    ingest([write_trace(tmp_path / "rank0.json", 1)], lake)  # DuckDB would expect no rows in a single file
    publish(lake)
    with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con:
        plan = json.loads(con.execute("EXPLAIN (FORMAT json) SELECT sum(duration_ns) FROM events").fetchall()[0][1])
    text = json.dumps(plan)
    # DuckDB streams the left side of a join past the right side, which it keeps in memory.
    assert text.index("READ_PARQUET") < text.index("main.traces"), text


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("a file was cut", "another size"),
        pytest.param("another version", "version", marks=pytest.mark.slow),
    ],
)
def test_what_is_not_certain_is_built_anew(
    lake: Lake, tmp_path: Path, updates: list[str], monkeypatch: pytest.MonkeyPatch, what: str, why: str
) -> None:
    ingest([write_trace(tmp_path / "late.json", 9)], lake)
    new = max(batch.batch_id for batch in lake.batches())
    if what == "another version":
        with monkeypatch.context() as patched:
            patched.setattr(Catalog, "version", lambda self, name: "before")
            materialize(lake, ["kernels"], [Batch(new)], and_publish=False)
    elif what == "a file was cut":
        (path,) = (path for path in table_files(lake.root, "findings") if path.stem == new)
        os.truncate(path, path.stat().st_size - 1)
    publish(lake)
    assert len(updates) == 1 and why in updates[0]
    if what == "a file was cut":
        with (
            duckdb.connect(str(lake.root / ANALYST), read_only=True) as con,
            pytest.raises(duckdb.Error, match="findings is damaged"),
        ):
            con.execute("FROM findings")
    else:
        assert_as_anew(lake)


def test_parts_depend_on_the_ids_alone() -> None:
    ids = [f"20260101T{n:012d}-{n:08x}" for n in range(5000)]
    whole = chunks(ids)
    assert [name for names in whole.values() for name in names] == ids
    assert chunks([]) == {}
    assert 5 < len(whole) < 60
    later = chunks([*ids, "20260102T000000000000-00000000"])
    assert list(later.values())[: len(whole) - 1] == list(whole.values())[:-1]
    assert list(chunks(ids[3:]).values())[1:] == list(whole.values())[1:]


def test_adding_a_batch_changes_few_files() -> None:
    """The parts that a new batch changes have fewer than 64 files on average.

    The average is over 1,000 batches (300 without SLOW), and does not grow with the number of existing batches.
    """
    ids = [f"20260101T{n:012d}-{n:08x}" for n in range(3000)]
    changed = []
    before: set[tuple[str, ...]] = set()
    for n in range(2000 if SLOW else 2700, 3000):
        parts = set(chunks(ids[:n]).values())
        changed.append(sum(map(len, parts - before)) if before else 0)
        before = parts
    assert sum(changed) / len(changed) < 64


def test_what_was_seen_is_seen_again_until_something_is_committed(lake: Lake, tmp_path: Path) -> None:
    def written() -> None:
        ingest([write_trace(tmp_path / "late.json", 9)], lake)

    def gone() -> None:
        lake.take_away(lake.batches()[0], ["kernels"])

    def hidden() -> None:
        with catalog_file.writing(lake.root) as catalog:
            catalog.notice(lake.batches()[-1].batch_id, merged_away("another"))

    assert look(lake.root).has("kernels", lake.batches()[0].batch_id)
    for change in (written, gone, hidden):
        before = look(lake.root)
        assert look(lake.root) is before, change
        change()
        after = look(lake.root)
        assert after.digest != before.digest, change
        assert after == look_anew(lake), change
    assert not look(lake.root).has("kernels", lake.batches()[0].batch_id)


@pytest.mark.slow  # `make growth` also measures costs that grow with the lake
def test_a_commit_is_read_without_those_before_it(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        ingest([write_trace(tmp_path / f"{number}.json", 100 + number)], lake)
    look(lake.root)
    read: list[int] = []
    rows = catalog_file._rows

    def counted(*args: Any) -> Any:
        result = rows(*args)
        read.append(len(result))
        return result

    monkeypatch.setattr(catalog_file, "_rows", counted)
    ingest([write_trace(tmp_path / "late.json", 9)], lake)
    publish(lake)
    assert set(read) <= {0, 1} and look(lake.root) == look_anew(lake)
