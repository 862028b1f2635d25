"""Superseded traces: a truncated file and the whole one, a clock set back, a file that is replaced while it is read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipelines.lake import Batch, Lake
from pipelines.lake import names as lake_names
from pipelines.readers.ingest import ingest
from pipelines.readers.kineto import reader
from pipelines.runs.materialize.run_order import materialize_all
from tests.effort import first_of
from tests.harness import kernel, op
from tests.lake.world import shown, write_trace


def cut(path: Path, target: Path, share: float = 0.6) -> Path:
    """Write the first `share` of a trace's file to `target`, and return `target`."""
    data = path.read_bytes()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data[: int(len(data) * share)])
    return target


def seen(lake: Lake) -> list[tuple]:
    """Return the status and the number of kernels of each rank."""
    materialize_all(lake, ["kernels", "capture_ranks"])
    with lake.connect(["traces", "kernels", "capture_ranks"]) as con:
        return con.execute(
            "SELECT t.rank, t.status, count(*), (SELECT count(*) FROM capture_ranks AS c WHERE c.rank = t.rank) "
            "FROM traces AS t JOIN kernels USING (trace_id) GROUP BY ALL ORDER BY ALL"
        ).fetchall()


def reasons(lake: Lake) -> list[str]:
    return [row[2] for row in shown(lake, ["rejects"]).get("rejects", []) if "superseded" in row[2]]


@pytest.mark.parametrize(
    ("order", "name"),
    [
        ("together", "rank0.part.json"),
        pytest.param("cut first", "rank0.json", marks=pytest.mark.slow),
        pytest.param("whole first", "rank0.part.json", marks=pytest.mark.slow),
    ],
)
def test_the_whole_file_supersedes_the_cut_one(tmp_path: Path, order: str, name: str) -> None:
    lake, inbox = Lake(tmp_path / "lake"), tmp_path / "in"
    rank = {"distributedInfo": {"rank": 0, "world_size": 1}}
    whole = write_trace(tmp_path / "source" / "rank0.json", 1, n=12, **rank)
    texts = {"cut": cut(whole, tmp_path / "cut.json").read_bytes(), "whole": whole.read_bytes()}
    paths = {"cut": inbox / name, "whole": inbox / "rank0.json"}
    inbox.mkdir()
    if order == "together":
        for which, text in texts.items():
            paths[which].write_bytes(text)
        ingest([inbox], lake)
    else:
        for which in ("cut", "whole") if order == "cut first" else ("whole", "cut"):
            paths[which].write_bytes(texts[which])
            ingest([paths[which]], lake)
    assert seen(lake) == [(0, "ok", 12, 1)]
    (reason,) = reasons(lake)
    assert "superseded by trace" in reason and "24 events, ok" in reason
    assert len(lake.known_traces()) == 2  # neither file is ingested again
    assert ingest([paths["whole"]], lake).rows[0].status == "known" and len(reasons(lake)) == 1


def test_others_are_not_superseded(tmp_path: Path) -> None:
    """Another rank, another time of the same rank, another job, and two whole traces do not supersede each other."""
    lake, inbox = Lake(tmp_path / "lake"), tmp_path / "in"
    rank = {"distributedInfo": {"rank": 0, "world_size": 2}}
    whole = write_trace(inbox / "rank0.json", 1, n=12, **rank)
    cut(write_trace(tmp_path / "a.json", 1, n=9, distributedInfo={"rank": 1, "world_size": 2}), inbox / "rank1.json")
    cut(write_trace(tmp_path / "b.json", 100_000, n=9, **rank), inbox / "later" / "rank0.json")
    cut(write_trace(tmp_path / "c.json", 100_000, n=9, **rank), inbox / "rank0.later.json", 0.5)
    ingest([inbox], lake)
    ingest([cut(whole, inbox / "rank0.of-another-job.json")], lake, job="other")
    with lake.connect(["traces"]) as con:
        assert con.execute("SELECT count(*) FROM traces").fetchall() == [(5,)]
    assert reasons(lake) == []


@pytest.mark.slow  # the test above has other traces that are not superseded
def test_ranks_of_one_cut_file_do_not_supersede_each_other(tmp_path: Path) -> None:
    """Ranks of one truncated file do not supersede each other.

    The file contains the merged traces of two ranks. Both are truncated, and the second rank has more events.
    """
    lake, path = Lake(tmp_path / "lake"), tmp_path / "in" / "merged.json"
    path.parent.mkdir()
    events = [
        {**event, "pid": f"[TP0{rank}] {event['pid']}"}
        for rank in range(2)
        for number in range(4 + 4 * rank)
        for event in (op("aten::mm", 100 * number, 20), kernel("gemm", 100 * number + 30, 10, number + 1))
    ]
    whole = json.dumps({"distributedInfo": {"rank": 0, "world_size": 2}, "traceEvents": events})
    for length, statuses in ((-60, ["partial", "partial"]), (None, ["ok", "ok"])):
        path.write_text(whole[:length])
        ingest([path], lake)
        with lake.connect(["traces"]) as con:
            rows = con.execute("SELECT rank, status FROM traces ORDER BY rank").fetchall()
        assert rows == [*enumerate(statuses)]


@pytest.mark.slow  # a test above has a whole file that supersedes a truncated one
def test_of_two_cut_files_the_longer_counts(tmp_path: Path) -> None:
    lake, path = Lake(tmp_path / "lake"), tmp_path / "in" / "rank0.json"
    whole = write_trace(tmp_path / "source.json", 1, n=12, distributedInfo={"rank": 0})
    for share in (0.4, 0.8):
        ingest([cut(whole, path, share)], lake)
    ((_, status, n, captured),) = seen(lake)
    assert (status, captured) == ("partial", 1) and n in (9, 10)


@pytest.mark.slow  # tests/fleet/test_growth.py has late ranks without a change of the clock
def test_with_the_clock_set_back_a_late_rank_joins_its_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path / "lake")
    files = [write_trace(tmp_path / "in" / f"rank{r}.json", r, distributedInfo={"rank": r}) for r in range(3)]
    ahead = timedelta(hours=2)

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None) -> datetime:
            return datetime.now(tz) + ahead

    monkeypatch.setattr(lake_names, "datetime", Clock)
    ingest(files[:2], lake)
    materialize_all(lake, ["capture_ranks"])
    before = shown(lake, ["captures"])["captures"][0][0]
    ahead = timedelta(0)
    ingest(files[2:], lake)
    materialize_all(lake, ["capture_ranks"])
    with lake.connect(["capture_ranks"]) as con:
        rows = con.execute("SELECT capture_id, list(rank ORDER BY rank) FROM capture_ranks GROUP BY 1").fetchall()
    assert rows == [(before, [0, 1, 2])]
    names = [batch.batch_id for batch in (*lake.batches(), *lake.batches("captures"))]
    assert len(set(names)) == 4 and all(Batch(name).is_valid for name in names)
    assert lake.batches() == sorted(lake.batches()) and lake.new_batch() > max(lake.batches("captures"))
    assert lake.new_batch().batch_id > f"{datetime.now(UTC) + timedelta(hours=1.9):%Y%m%dT%H%M%S%f}"


def _in_place(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _renamed(path: Path, data: bytes) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(data)
    os.replace(other, path)


@pytest.mark.parametrize("replace", first_of([_in_place, _renamed], 1))
def test_a_file_replaced_between_the_passes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replace: Callable[[Path, bytes], None]
) -> None:
    lake = Lake(tmp_path / "lake")
    path = write_trace(tmp_path / "in" / "rank0.json", 1)
    stat, other = path.stat(), path.read_text().replace("gemm_1", "gemm_2").encode()
    assert len(other) == stat.st_size
    scan = reader.scan

    def scanned(*args, **named):
        result = scan(*args, **named)
        replace(path, other)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        return result

    with monkeypatch.context() as patch:
        patch.setattr(reader, "scan", scanned)
        (row,) = ingest([path], lake).rows
    assert (row.status, "changed while it was being read" in (row.reason or "")) == ("rejected", True)
    assert [row.status for row in ingest([path], lake).rows] == ["ok"]
    with lake.connect(["events", "traces"]) as con:
        names = con.execute("SELECT DISTINCT name FROM events WHERE cat = 'kernel'").fetchall()
    assert names == [("gemm_2",)] and json.loads(path.read_text())
