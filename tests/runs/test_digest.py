"""Digests of old traces: the same answers from few rows, nothing recomputed, whether or not the run is killed."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.faces.capture_why import TABLES as WHY_CAPTURE
from pipelines.faces.cli.app import app
from pipelines.faces.fleet_tables import FLEET_TABLES
from pipelines.faces.why import grouped
from pipelines.fleet.captures.input_tables import lake_captures
from pipelines.lake import Batch, Lake
from pipelines.lake.commit.batch_rows import Failure
from pipelines.lake.commit.catalog_file import rebuild
from pipelines.lake.commit.parquet import options
from pipelines.lake.lake import Staged
from pipelines.lake.names import CAPTURE_MARK, OVERLAYS, table_file
from pipelines.lake.retain import retention
from pipelines.lake.retain.compaction import Merge, compact
from pipelines.lake.retain.digest_files import OF_CAPTURES, OF_TRACES
from pipelines.lake.retain.retention import retire
from pipelines.readers.ingest import ingest
from pipelines.runs import digest
from pipelines.runs.check import _mask, check
from pipelines.runs.digest import reduce_old
from pipelines.runs.forget import _rewrite, forget
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.runs.store.requested_tables import requested_tables
from pipelines.synthetic import CaptureSpec, write_capture
from tests.effort import first_of
from tests.lake.test_retention import Ages, files_of
from tests.lake.world import kept, killed, rot

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
NONE = timedelta(0)
ANSWERS = (
    ["why", "{trace}", "--json"],
    ["why", "{capture}", "--json"],
)
MORE_ANSWERS = (
    ["fleet", "--json"],
    ["why", "{trace}", "--step", "all", "--json"],
    ["compare", "{trace}", "{other}", "--json"],
    ["compare", "{trace}", "{other}", "--by", "cause", "--json"],
    ["compare", "{trace}", "{other}", "--by", "kernel", "--step", "all", "--json"],
    ["sql", "FROM jobs ORDER BY ALL", "--format", "json"],
    ["regressions", "--json"],
    ["metrics"],
)


def run(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*map(str, words)])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output


def put(lake: Lake, folder: Path, days_ago: float, *ranks: int) -> list[str]:
    """Ingest ranks of the folder's capture as one batch that is `days_ago` days older than NOW.

    Return the ids of their traces.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lake, "new_batch", Ages(days_ago).new)
        report = ingest([next(folder.glob(f"*rank{rank}.*")) for rank in ranks], lake)
    return [row.trace_id for row in report.rows if row.trace_id]


AGES = {"old": 20, "new": 1}
"""Ages of the captures in days."""


def write(folder: Path, name: str) -> None:
    """Write a capture of two ranks."""
    write_capture(CaptureSpec(ranks=2, steps=3, seed=AGES[name]), folder / name)


def prepared(folder: Path, *names: str) -> Path:
    """Return the folder, with captures and a lake of them that has the tables of a digest and others."""
    lake = Lake(folder / "lake")
    for name in names:
        write(folder, name)
        put(lake, folder / name, AGES[name], 0, 1)
    materialize_all(lake, (*OF_TRACES, *OF_CAPTURES, *FLEET_TABLES))
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build two captures, one of 20 days ago and one of yesterday.

    For slow tests, as it takes twice as long as `only_old`.
    """
    return prepared(tmp_path_factory.mktemp("whole"), "old", "new")


@pytest.fixture(scope="module")
def only_old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build only the capture of 20 days ago."""
    return prepared(tmp_path_factory.mktemp("old"), "old")


@pytest.fixture
def lake(whole: Path) -> Iterator[Lake]:
    """Yield the lake of `whole`, and restore it afterwards."""
    with kept(whole) as lake:
        yield lake


@pytest.fixture(scope="module")
def after(whole: Path) -> Path:
    """Return a copy of the lake of `whole` after its old capture was reduced to a digest."""
    with kept(whole) as lake:
        reduce_old(lake, 14, NONE, now=NOW)
        return Path(shutil.copytree(lake.root, whole / "after"))


@pytest.fixture
def reduced(lake: Lake, after: Path) -> Lake:
    """Return the lake of `after`, at the path of the lake of `whole`."""
    shutil.rmtree(lake.root)
    shutil.copytree(after, lake.root)
    return Lake(lake.root)


@pytest.fixture
def small(only_old: Path) -> Iterator[Lake]:
    """Yield the lake of `only_old`, and restore it afterwards."""
    with kept(only_old) as lake:
        yield lake


def rows(lake: Lake, query: str, *tables: str) -> list[tuple[Any, ...]]:
    with lake.connect(tables) as con:
        return con.execute(query).fetchall()


def names(lake: Lake) -> dict[str, str]:
    """Return the names in ANSWERS: the traces and the capture of 20 days ago."""
    traces = rows(lake, "SELECT trace_id, capture_id FROM traces ORDER BY batch_id, rank", "traces")
    return {"trace": traces[0][0], "other": traces[1][0], "capture": traces[0][1]}


def answers(lake: Lake, commands: Iterable[list[str]]) -> dict[str, Any]:
    of_lake = names(lake)
    return {
        " ".join(words): without(run(*(word.format(**of_lake) for word in words), "--lake", lake.root))
        for words in commands
    }


def without(text: str) -> Any:
    """Return an answer without the caveat about its digest and without names of the lake's files."""
    if not text.startswith(("[", "{")):
        return [line for line in text.splitlines() if "bytes" not in line and "files" not in line]

    def is_about_it(value: Any) -> bool:
        if isinstance(value, dict):
            return value.get("caveat") == "reduced_to_digest"
        return isinstance(value, str) and "its digest sums up" in value

    def cleaned(value: Any) -> Any:
        is_why = isinstance(value, dict) and "fixes" in value and "jobs" not in value  # excludes answers of `fleet`
        if is_why:  # a digest keeps only the largest fixes and the largest names of each cause
            by_cause: dict[str, float] = {}
            for cause in value["causes"]:
                by_cause[cause["cause"]] = round(by_cause.get(cause["cause"], 0) + cause["duration_us"], 3)
            value = {**value, "causes": by_cause, "fixes": value["fixes"][:5]}
        if isinstance(value, dict) and "host" in value:  # a digest keeps only the largest names of each category
            by_cat: dict[str, list[int]] = {}
            for row in value["host"]:
                times = by_cat.setdefault(row["cat"], [0, 0])
                by_cat[row["cat"]] = [times[0] + row["control_ns"], times[1] + row["test_ns"]]
            value = {**value, "host": by_cat}
        if isinstance(value, dict):
            return {key: cleaned(v) for key, v in value.items() if key != "batch_id"}
        if isinstance(value, list):
            return [cleaned(v) for v in value if not is_about_it(v)]
        return value

    return cleaned(json.loads(text))


@pytest.mark.parametrize(
    ("of", "commands"),
    first_of([("small", ANSWERS), ("lake", MORE_ANSWERS)], 1),
    ids=["small", "more"],
)
def test_answers_are_the_same(of: str, commands: Iterable[list[str]], request: pytest.FixtureRequest) -> None:
    lake: Lake = request.getfixturevalue(of)
    before = answers(lake, commands)
    assert ("reduced", 2) in [(r.state, len(r.traces)) for r in reduce_old(lake, 14, NONE, now=NOW)]
    after = answers(lake, commands)
    for words, answer in before.items():
        assert after[words] == answer, words


@pytest.mark.slow  # 4 s
def test_answers_say_that_only_the_digest_is_kept(reduced: Lake) -> None:
    of_lake = names(reduced)
    for command, *subjects in (["why", "trace"], ["why", "capture"], ["compare", "trace", "other"]):
        answer = run(command, *(of_lake[subject] for subject in subjects), "--json", "--lake", reduced.root)
        (text,) = {caveat["detail"] for caveat in _caveats(answer)}
        assert "only its digest is kept" in text, command


def _caveats(text: str) -> list[dict[str, str]]:
    caveats: list[dict[str, str]] = []

    def search(value: Any) -> None:
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            search(inner)
        if isinstance(value, dict) and value.get("caveat") == "reduced_to_digest":
            caveats.append({**value, "detail": value["detail"].partition(": ")[2] or value["detail"]})

    search(json.loads(text))
    return caveats


@pytest.mark.slow  # 15 s
def test_what_it_cannot_answer_is_said(reduced: Lake, tmp_path: Path) -> None:
    lake = reduced
    of_lake, at = names(lake), ("--lake", lake.root)
    for words in (
        ["what-if", of_lake["trace"], "--scale", "stream:7=0.5"],
        ["what-if", of_lake["capture"], "--remove", "cause:late_rank"],
        ["why", of_lake["trace"], "--annotation", "forward"],
        ["graphs", of_lake["trace"]],
        ["timeline", of_lake["capture"], "--out", tmp_path / "t.json"],
        ["capture-path", of_lake["capture"]],
    ):
        assert "only a digest of this" in run(*words, *at, code=1), words
    for by in ("module", "shape"):
        assert "only a digest" in run("compare", of_lake["trace"], of_lake["other"], "--by", by, *at, code=1)
    result = CliRunner().invoke(app, ["sql", "SELECT count(*) FROM kernels, events", "--lake", str(lake.root)])
    assert "events, kernels have no rows of 1 batch of traces" in result.stderr
    assert not CliRunner().invoke(app, ["sql", "SELECT count(*) FROM causes", "--lake", str(lake.root)]).stderr


@pytest.mark.slow  # 5 s
def test_its_files_are_small(small: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a digest are written small.

    Sorted rows repeat and so compress well. Bloom filters would take a tenth of a digest of ten small traces. The files
    stay small if their secrets are masked or a trace is forgotten.
    """
    forgotten = min(small.known_traces())
    (file,) = small.root.glob("causes/day=*/*.parquet")
    assert not is_written_small(file)
    reduce_old(small, 14, NONE, now=NOW)
    for table in ("traces", "findings", *OF_TRACES, *OF_CAPTURES):
        (file,) = small.root.glob(f"{table}/day=*/*.parquet")
        assert is_written_small(file), table
    (batch,) = small.batches()
    forms: list[str] = []
    for module in ("check", "forget"):
        of_file = f"pipelines.runs.{module}.options"
        monkeypatch.setattr(of_file, lambda *args: (forms.append(options(*args)), forms[-1])[1])
    for table in ("traces", "findings"):
        _mask(small, table_file(small.root, table, batch))
        assert _rewrite(small, table, batch, forgotten)
    assert len(forms) == 4 and all(form.startswith(options(None, (), of_digest=True)) for form in forms)


def is_written_small(file: Path) -> bool:
    """Return whether a file begins with its trace or capture, is sorted by all columns, and has no Bloom filter."""
    with duckdb.connect() as con:
        filters = f"SELECT count(bloom_filter_offset) FROM parquet_metadata('{file}')"
        ((n_filters,),) = con.execute(filters).fetchall()
        rows = con.read_parquet(str(file), hive_partitioning=False)
        in_order = con.execute("SELECT * FROM rows ORDER BY ALL").fetchall()
        return rows.columns[0] in ("trace_id", "capture_id") and rows.fetchall() == in_order and not n_filters


def test_it_is_compressed_more_than_other_files(tmp_path: Path) -> None:
    rows = "SELECT hash(range) % 1000 AS n, 'operator ' || hash(range) % 1000 AS name FROM range(5000)"

    def n_bytes(form: str) -> int:
        """Return the compressed size of a Parquet file's pages, without its footer."""
        file = tmp_path / "rows.parquet"
        with duckdb.connect() as con:
            con.execute(f"COPY ({rows}) TO '{file}' ({form})")
            return con.execute(f"SELECT sum(total_compressed_size) FROM parquet_metadata('{file}')").fetchall()[0][0]

    best = n_bytes("FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 19")
    assert n_bytes(options(None, (), of_digest=True)) == best < n_bytes(options(None, ()))


def test_a_digest_has_what_answers_read() -> None:
    assert {*FLEET_TABLES, *WHY_CAPTURE} <= {*OF_TRACES, *OF_CAPTURES, "traces", "findings"}


@pytest.mark.slow  # 6 s; tests/lake/test_retention.py checks the grace period
def test_only_its_tables_are_left_and_the_others_go_after_the_grace(lake: Lake) -> None:
    before = files_of(lake)
    (old, _) = lake.batches()
    assert [r.state for r in reduce_old(lake, 14, dry_run=True, now=NOW)] == ["due"]
    assert files_of(lake) == before
    assert [r.state for r in reduce_old(lake, 14, now=NOW)] == ["reduced", "hidden"]
    assert before.items() <= files_of(lake).items()
    of_old, _ = lake.batches()
    assert of_old.day == old.day and lake.is_digest(of_old)
    assert reduce_old(lake, 14, dry_run=True, now=NOW) == []
    assert [r.state for r in reduce_old(lake, 14, now=NOW + DAY)] == ["removed"]
    left = {name.partition("/")[0] for name in files_of(lake) if of_old.batch_id in name}
    assert left == {*OF_TRACES, "traces", "findings"}
    assert not [name for name in files_of(lake) if old.batch_id in name]
    assert check(lake).faults == []


@pytest.mark.slow  # 10 s
def test_nothing_of_it_is_computed_again(reduced: Lake, whole: Path) -> None:
    lake = reduced
    of_digest = {name: size for name, size in files_of(lake).items() if lake.is_digest(Batch(Path(name).stem))}
    assert of_digest
    assert not requested_tables(lake, (*OF_TRACES, *OF_CAPTURES)).are_stale
    computed = materialize_all(lake, ("causes", "captures", "capture_metrics", "step_lengths"), force=True)
    assert computed and not [done for done in computed if lake.is_digest(done.batch)]
    assert of_digest.items() <= files_of(lake).items()
    assert reduce_old(lake, 14, NONE, now=NOW) == []
    assert {row.status for row in ingest([whole / "old"], lake).rows if row.trace_id} == {"known"}


@pytest.mark.slow  # 5 s; tests/lake/test_retention.py and test_catalog.py rebuild catalogs, too
def test_a_rebuilt_catalog_knows_it(lake: Lake) -> None:
    reduce_old(lake, 14, now=NOW)
    digests = [batch for batch in (*lake.batches(), *lake.batches(CAPTURE_MARK)) if lake.is_digest(batch)]
    assert len(digests) == 2
    reduce_old(lake, 14, NONE, now=NOW)
    rebuild(lake.root)
    assert [batch for batch in (*lake.batches(), *lake.batches(CAPTURE_MARK)) if lake.is_digest(batch)] == digests
    assert not requested_tables(lake, OF_CAPTURES).are_stale


def test_a_trace_stays_whole_while_a_rank_of_its_capture_is_younger(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    for name in AGES:
        write(tmp_path, name)
    put(lake, tmp_path / "old", 20, 0)
    put(lake, tmp_path / "old", 3, 1)
    put(lake, tmp_path / "new", 20, 0)
    assert [len(r.traces) for r in reduce_old(lake, 14, dry_run=True, now=NOW)] == [1]
    assert len(reduce_old(lake, 14, dry_run=True, now=NOW + 12 * DAY)) == 3


@pytest.fixture(scope="module")
def first_rank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a lake with a digest of the capture's first rank. The other rank has not been ingested."""
    folder = tmp_path_factory.mktemp("first")
    lake = Lake(folder / "lake")
    write(folder, "old")
    put(lake, folder / "old", 20, 0)
    reduce_old(lake, 14, NONE, now=NOW)
    return folder


@pytest.fixture
def lone(first_rank: Path) -> Iterator[Lake]:
    """Yield the lake of `first_rank`, and restore it afterwards."""
    with kept(first_rank) as lake:
        yield lake


@pytest.mark.slow  # 11 s
def test_no_rank_joins_it_any_more(lone: Lake, first_rank: Path) -> None:
    lake = lone
    (first,) = lake.known_traces()
    before = rows(lake, "SELECT * FROM capture_causes ORDER BY ALL", "capture_causes")
    (late,) = put(lake, first_rank / "old", 1, 1)
    materialize_all(lake, OF_CAPTURES)
    of_trace = dict(rows(lake, "SELECT trace_id, capture_id FROM capture_ranks", "capture_ranks"))
    assert of_trace[first] != of_trace[late]
    assert not requested_tables(lake, OF_CAPTURES).are_stale
    assert before == rows(
        lake, f"SELECT * FROM capture_causes WHERE capture_id = '{of_trace[first]}' ORDER BY ALL", "capture_causes"
    )


@pytest.mark.slow  # 12 s
def test_another_job_in_its_folder_changes_nothing(lone: Lake, first_rank: Path) -> None:
    lake = lone
    before = rows(lake, "SELECT * FROM captures", "captures")
    ingest([next((first_rank / "old").glob("*rank1.*"))], lake, job="another")
    materialize_all(lake, OF_CAPTURES)
    assert before[0] in rows(lake, "SELECT * FROM captures", "captures")
    assert not requested_tables(lake, OF_CAPTURES).are_stale


@pytest.mark.slow  # 5 s
def test_states_of_captures_that_digests_replace_go(lake: Lake) -> None:
    assert len(lake.batches(CAPTURE_MARK)) == 1
    reduce_old(lake, 14, NONE, now=NOW)  # one of this batch's two captures is too recent
    assert len(lake.batches(CAPTURE_MARK)) == 2
    reduce_old(lake, 14, NONE, now=NOW + 30 * DAY)
    digests = lake.batches(CAPTURE_MARK)
    assert len(digests) == 2 and all(map(lake.is_digest, digests))
    assert {Path(name).stem for name in files_of(lake) if name.startswith("captures/")} == {b.batch_id for b in digests}
    assert not rows(lake, "FROM capture_metrics WHERE step IS NOT NULL OR name IS NOT NULL", "capture_metrics")
    assert rows(lake, "SELECT count(*) FROM capture_metrics WHERE rank IS NULL", "capture_metrics")[0][0] > 10


@pytest.mark.slow  # 8 s
def test_a_forgotten_rank_takes_its_capture_along(reduced: Lake) -> None:
    lake = reduced
    of_lake = names(lake)
    forget(lake, of_lake["trace"])
    materialize_all(lake, OF_CAPTURES, force=True)  # without its events, the other rank forms no capture
    traces = rows(lake, "SELECT trace_id, capture_id FROM traces ORDER BY batch_id", "traces")
    assert of_lake["trace"] not in dict(traces) and of_lake["other"] in dict(traces)
    captures = {name for (name,) in rows(lake, "SELECT capture_id FROM capture_ranks", "capture_ranks")}
    assert of_lake["capture"] not in captures and len(captures) == 1
    assert not requested_tables(lake, OF_CAPTURES).are_stale


def test_a_damaged_batch_stays_as_it_is(small: Lake) -> None:
    lake = small
    old = lake.batches()[0]
    file = lake.root / "events" / f"day={old.day}" / f"{old.batch_id}.parquet"
    file.write_bytes(file.read_bytes()[:-1])
    for dry_run in (True, False):
        assert [(r.state, r.batch_id) for r in reduce_old(lake, 14, NONE, dry_run, NOW)] == [("damaged", old.batch_id)]
    assert lake.batches()[0] == old


def test_a_batch_with_wrong_bytes_stays_as_it_is(small: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch with wrong bytes is not reduced.

    The damage is found before any table is computed from the batch. A dry run does not read the files.
    """
    monkeypatch.setattr(retention, "publish", lambda _: None)
    monkeypatch.setattr(digest, "materialize_all", lambda *_, **__: pytest.fail("computed"))
    (old,) = small.batches()
    rot(small, "events", old, b"aten::", b"aTen::")
    assert [r.state for r in reduce_old(small, 14, NONE, dry_run=True, now=NOW)] == ["due"]
    words = ["retention", "--keep", "digest", "--older-than", "14d", "--json", "--lake", str(small.root)]
    result = CliRunner().invoke(app, words)
    assert [(r["state"], r["batch_id"]) for r in json.loads(result.stdout)] == [("damaged", old.batch_id)]
    assert "1 batch has a damaged file and stays as before: tracelake check --repair" in result.stderr
    assert small.batches() == [old]


@pytest.mark.slow  # 5 s each
@pytest.mark.parametrize("table", ["digest_work", "capture_ranks"])
def test_a_damaged_file_of_a_digest_is_not_said_to_be_computed_again(reduced: Lake, table: str) -> None:
    lake = reduced
    (file,) = (path for path in lake.root.glob(f"{table}/day=*/*.parquet") if lake.is_digest(Batch(path.stem)))
    file.write_bytes(file.read_bytes()[:-1])
    (fault,) = check(lake, repair=True).faults
    assert fault.repaired == "quarantined: a digest cannot be computed again"
    assert check(lake).faults == [] and not file.exists()
    captures = rows(lake, "SELECT count(*) FROM captures", "captures")
    assert captures == [(2 - (table == "capture_ranks"),)]  # only capture_ranks records which traces its captures had
    materialize_all(lake, OF_CAPTURES)
    assert rows(lake, "SELECT count(*) FROM captures", "captures") == captures


def leave_out(lake: Lake, batch: Batch, trace_id: str) -> None:
    """Record that a model failed on a trace, so that the trace is missing in a table of a digest."""
    table = "temporal_breakdown"
    staged = lake.staging(batch) / "staged.parquet"
    shutil.copy(table_file(lake.root, table, batch), staged)
    failures = (Failure(trace_id, table, "this trace is odd"),)
    lake.put_all(batch, {table: Staged(staged, None, failures, lake.catalog().version(table))})


def test_a_capture_in_a_batch_that_stays_whole_is_not_reduced(small: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture with traces in a batch that stays whole is not reduced.

    A reduced capture's tables are never recomputed, so the capture would lose the tables that a digest omits.
    """
    monkeypatch.setattr(retention, "publish", lambda _: None)
    monkeypatch.setattr(digest, "materialize_all", lambda *_, **__: [])
    (old,) = small.batches()
    leave_out(small, old, min(small.known_traces()))
    assert [(r.state, r.batch_id) for r in reduce_old(small, 14, NONE, now=NOW)] == [("incomplete", old.batch_id)]
    assert not any(capture.is_digest for capture in lake_captures(small).values())


def test_a_reduced_capture_keeps_ranks_whose_batch_is_reduced_later(small: Lake) -> None:
    """A reduced capture keeps ranks whose batch is reduced later.

    The run was killed after it committed the capture's digest.
    """
    (name,) = lake_captures(small)
    digest._reduce_captures(small, [name])
    (capture,) = lake_captures(small).values()
    assert capture.is_digest and len(capture.ranks) == 2
    assert not requested_tables(small, OF_CAPTURES).are_stale


@pytest.fixture(scope="module")
def two_days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a capture whose ranks are in batches of 20 and 19 days ago, with its tables."""
    folder = tmp_path_factory.mktemp("two-days")
    lake = Lake(folder / "lake")
    write(folder, "old")
    for rank in range(2):
        put(lake, folder / "old", 20 - rank, rank)
    materialize_all(lake, (*OF_TRACES, *OF_CAPTURES, "rank_steps"))
    return folder


def n_ranks(lake: Lake) -> list[tuple[Any, ...]]:
    """Bring tables up to date, and return each capture's number of ranks with the number of ranks in `rank_steps`."""
    materialize_all(lake, (*OF_CAPTURES, "rank_steps"))
    query = "SELECT n_ranks, (SELECT count(DISTINCT rank) FROM rank_steps) FROM captures"
    return rows(lake, query, "captures", "rank_steps")


@pytest.mark.slow  # 10 s; a short version is above
def test_batches_of_a_capture_stay_whole_together(two_days: Path) -> None:
    with kept(two_days) as lake:
        leave_out(lake, lake.batches()[1], next(t for t, b in lake.known_traces().items() if b == lake.batches()[1]))
        assert [r.state for r in reduce_old(lake, 14, NONE, now=NOW)] == ["incomplete"] * 2
        assert not any(map(lake.is_digest, lake.batches()))
        assert n_ranks(lake) == [(2, 2)]


@pytest.mark.slow  # 14 s
def test_a_better_copy_of_a_trace_leaves_the_capture_of_the_digest(tmp_path: Path) -> None:
    lake, folder = Lake(tmp_path / "lake"), tmp_path / "in"
    first, second = write_capture(CaptureSpec(ranks=2, steps=3, seed=4), folder).paths
    content = gzip.decompress(first.read_bytes())
    first.unlink()
    first = first.with_suffix("")
    first.write_bytes(content[: len(content) * 3 // 5])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lake, "new_batch", Ages(20).new)
        ingest([first, second], lake)
    reduce_old(lake, 14, NONE, now=NOW)
    (capture,) = rows(lake, "SELECT capture_id, n_ranks FROM captures", "captures")
    first.write_bytes(content)
    ingest([first], lake)
    materialize_all(lake, OF_CAPTURES)
    assert capture in rows(lake, "SELECT capture_id, n_ranks FROM captures", "captures")
    assert rows(lake, "SELECT count(*) FROM captures", "captures") == [(2,)]


@pytest.mark.slow  # 20 s
def test_forgotten_captures_stay_forgotten(tmp_path: Path) -> None:
    """A forgotten capture stays forgotten.

    The batch that records only the removal of the capture looks as if it had the newest state of no capture.
    """
    lake, traces = Lake(tmp_path / "lake"), []
    for name, days_ago in (("old", 20), ("new", 1), ("gone", 1)):
        write_capture(CaptureSpec(ranks=1, steps=2, seed=len(traces)), tmp_path / name)
        traces += put(lake, tmp_path / name, days_ago, 0)
    materialize_all(lake, (*OF_TRACES, *OF_CAPTURES))
    forget(lake, traces[-1])
    before = rows(lake, "SELECT capture_id FROM captures ORDER BY ALL", "captures")
    reduce_old(lake, 14, NONE, now=NOW)
    assert len(before) == 2 and rows(lake, "SELECT capture_id FROM captures ORDER BY ALL", "captures") == before


@pytest.mark.slow  # 4 s
def test_a_batch_that_changes_meanwhile_is_left_to_the_next_run(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    old = lake.batches()[0]
    with monkeypatch.context() as patch:
        patch.setattr(digest, "replace_batches", lambda *_: Merge(old.day, "changed", (old.batch_id,), 2, 1, 1))
        assert [r.state for r in reduce_old(lake, 14, NONE, now=NOW)] == ["changed"]
    assert not lake.is_digest(old)
    assert "reduced" in [r.state for r in reduce_old(lake, 14, NONE, now=NOW)]


def test_small_names_of_a_cause_are_others() -> None:
    """The sum of the small names is listed last, however large it is.

    It does not count as the cause's largest name, and the advice ignores it.
    """
    row = {"cause": "gpu_computing", "saves_ns": None, "halved_saves_ns": None, "cause_saves_ns": 7}
    times = {"(other names)": 900, "aten::mm": 60, "aten::addmm": 30, "aten::bmm": 10}
    (cause,) = grouped([{**row, "name": name, "duration_ns": ns} for name, ns in times.items()])
    assert [r["name"] for r in cause.rows] == ["aten::mm", "aten::addmm", "aten::bmm", "(other names)"]
    assert cause.names(3) == "aten::mm (6 %), aten::addmm (3 %), aten::bmm (1 %) and others"
    (few,) = grouped([{**row, "name": name, "duration_ns": ns} for name, ns in [*times.items()][1:]])
    assert few.names(2) == "aten::mm (60 %), aten::addmm (30 %) and 1 more" and cause.advice == few.advice
    (tiny,) = grouped([{**row, "name": f"op{i}", "duration_ns": 1} for i in range(300)])
    assert tiny.names(3) == "300 more"


@pytest.mark.slow  # 3 s
def test_overlays_go_along(lake: Lake) -> None:
    old = lake.batches()[0]
    overlay = lake.root / OVERLAYS / f"day={old.day}" / names(lake)["trace"] / "overlay.json"
    overlay.parent.mkdir(parents=True)
    overlay.write_text("{}")
    reduce_old(lake, 14, now=NOW)
    assert not overlay.parent.exists()


@pytest.mark.slow  # 18 s
def test_digests_are_compacted_and_removed_like_other_batches(whole: Path, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    for name in ("old", "new"):
        put(lake, whole / name, 20, 0)
        reduce_old(lake, 14, NONE, now=NOW)
    assert len(lake.batches()) == 2
    causes = rows(lake, "SELECT * EXCLUDE (batch_id) FROM causes ORDER BY ALL", "causes")
    assert [merge.n_traces for merge in compact(lake, grace=NONE, now=NOW).merges] == [2]
    (merged,) = lake.batches()
    assert lake.is_digest(merged)
    assert all(is_written_small(table_file(lake.root, table, merged)) for table in (*OF_TRACES, "traces", "findings"))
    assert rows(lake, "SELECT * EXCLUDE (batch_id) FROM causes ORDER BY ALL", "causes") == causes
    assert [len(r.traces) for r in retire(lake, 15, NONE, now=NOW)] == [2]
    assert not lake.exists or not lake.batches()


@pytest.mark.parametrize(("days", "grace"), [(0, DAY), (-1, DAY), (5, -DAY)])
def test_nonsense_is_refused(small: Lake, days: int, grace: timedelta) -> None:
    with pytest.raises(ValueError, match="keep at least 1 day"):
        reduce_old(small, days, grace)


@pytest.mark.slow  # 4 s
def test_command_line(lake: Lake) -> None:
    arguments = ("retention", "--lake", lake.root, "--json")
    assert json.loads(run(*arguments, "--keep", "digest", "--older-than", "14d", "--dry-run")) != []
    assert json.loads(run(*arguments, "--keep", "digest", "--older-than", "40")) == []
    assert "reduced" in [row["state"] for row in json.loads(run(*arguments, "--keep", "digest", "--older-than", "14d"))]
    assert lake.is_digest(lake.batches()[0])


def test_wrong_options_are_refused(small: Lake) -> None:
    arguments = ("retention", "--lake", small.root, "--json")
    for wrong in (
        (),
        ("--keep", "digest"),
        ("--older-than", "14d"),
        ("--keep-days", "14", "--older-than", "14d"),
        ("--keep", "digest", "--keep-days", "14", "--older-than", "14d"),
    ):
        assert "either --keep-days DAYS or --keep digest --older-than DAYS" in run(*arguments, *wrong, code=1)
    for wrong in ("0d", "2w", "-3", ""):
        run(*arguments, "--keep", "digest", f"--older-than={wrong}", code=1)


def do_reduce(root: Path, now: datetime) -> None:
    reduce_old(Lake(root), 14, NONE, now=now)


@pytest.mark.slow  # 10 s
@pytest.mark.kills
def test_killed_at_a_step_and_run_again(whole: Path) -> None:
    """After a kill before or after any rename or removal, a reader sees each trace once, whole or as a digest."""
    lake = Lake(whole / "lake")
    causes = "SELECT trace_id, round(sum(share_percent), 6) FROM causes WHERE window_id = 'full' GROUP BY 1 ORDER BY 1"
    before = rows(lake, causes, "causes")
    ranks = "SELECT capture_id, rank, trace_id FROM capture_ranks ORDER BY ALL"
    members = rows(lake, ranks, "capture_ranks")
    for step, lake in killed(whole, 40, do_reduce, NOW, calls=("replace", "unlink")):
        assert rows(lake, causes, "causes") == before, step
        assert rows(lake, ranks, "capture_ranks") == members, step
        do_reduce(lake.root, NOW)
        assert rows(lake, causes, "causes") == before, step
        assert rows(lake, ranks, "capture_ranks") == members, step
        assert [lake.is_digest(batch) for batch in lake.batches()] == [True, False], step
        assert reduce_old(lake, 14, NONE, now=NOW) == [], step
        assert check(lake).faults == [], step
        shutil.rmtree(lake.root / ".staging", ignore_errors=True)
