"""Traces of several ranks in one file, as SGLang merges them.

The file gives one trace per rank, equal to the trace of the rank's own file, and one capture.
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.readers.inputs.single_trace import load_trace
from pipelines.readers.kineto import TraceRejected, reader
from pipelines.readers.kineto.merged import MergedRank, labels_of, ranks_of
from pipelines.synthetic import CaptureSpec, write_capture
from tests.effort import first_of
from tests.harness import call, kernel, memory, op, x

from .dialects import document
from .merging import merged


def rank(number: int, gpus: int = 2) -> dict[str, Any]:
    """Return a trace like Kineto's, with a text as a process id and with an empty process id."""
    work = [
        op("aten::mm", 0, 20),
        call("cudaLaunchKernel", 5, 10, 1),
        kernel(f"gemm {number}", 30, 40, 1, device=number),
    ]
    ends = [{**x("Trace", "PyTorch Profiler (0)", 0, 90, "PyTorch Profiler", "Spans")}]
    ends += [{"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 90}]
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": i, "name": "NVIDIA H100"} for i in range(gpus)],
        "distributedInfo": {"backend": "nccl", "rank": number, "world_size": 4},
        "traceEvents": [*work, *ends],
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
    }


def events(con: duckdb.DuckDBPyConnection) -> list[tuple]:
    return con.execute("SELECT * EXCLUDE (trace_id, batch_id) FROM events ORDER BY event_id").fetchall()


def loaded(path: Path, part: str | None = None) -> tuple[Any, list[tuple]]:
    con = memory()
    trace = load_trace(con, path, process=part)
    return trace, events(con)


def written(folder: Path, trace: dict[str, Any], name: str = "merged-1.trace.json.gz") -> Path:
    path = folder / name
    text = json.dumps(trace).encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return path


def check_each_rank(traces: dict[str, dict[str, Any]], folder: Path) -> None:
    path = written(folder, merged(traces))
    assert labels_of(path) == [*traces]
    seen = set()
    for number, (label, trace) in enumerate(traces.items()):
        own, expected = loaded(written(folder, trace, f"{number}.json"))
        part, rows = loaded(path, label)
        assert rows == expected and part.n_events == own.n_events
        assert (part.trace_start_ns, part.trace_end_ns) == (own.trace_start_ns, own.trace_end_ns)
        assert part.metadata["deviceProperties"] == own.metadata["deviceProperties"]
        spread = part.metadata["distributedInfo"]
        assert (spread["rank"], spread["rank_source"]) == (number, "label")
        assert spread.get("world_size") == own.metadata["distributedInfo"].get("world_size")
        assert {finding.check_name for finding in part.findings} - {finding.check_name for finding in own.findings} == {
            "merged_ranks"
        }
        # The event ids count within the rank's own events, not within the merged file.
        (detail,) = (finding.detail for finding in part.findings if finding.check_name == "merged_ranks")
        assert "event_id is the position among the rank's own events" in detail
        seen.add(part.trace_id)
    assert len(seen) == len(traces)


@pytest.mark.parametrize(("piece", "ranks"), first_of([(400, 4), (1500, 8)], 1))
def test_pieces_of_other_ranks_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, ranks: int
) -> None:
    """Reading a rank skips the pieces of other ranks, wherever pieces are cut.

    Cuts are within ranks and between them. With the smallest pieces, cuts are also in the metadata after the array.
    """
    from pipelines.readers.kineto import segments, source

    monkeypatch.setattr(segments, "PIECE_BYTES", piece)
    monkeypatch.setattr(segments, "TAIL_BYTES", 300)
    monkeypatch.setattr(source, "INFLATED_BYTES", 300)
    looked_at: list[str] = []
    read: list[str] = []
    is_in = MergedRank.is_in

    def noted(self: MergedRank, entries: bytes) -> bool:
        looked_at.append(self.label)
        return is_in(self, entries)

    monkeypatch.setattr(MergedRank, "is_in", noted)
    table = reader._Pieces._table

    def counted(self: Any, *words: Any, **more: Any) -> Any:
        read.append(self.part and self.part.label)
        return table(self, *words, **more)

    monkeypatch.setattr(reader._Pieces, "_table", counted)
    check_each_rank({f"TP{i:02}": rank(i) for i in range(ranks)}, tmp_path)
    assert 1 <= 2 * read.count("TP02") <= looked_at.count("TP02")


@pytest.mark.slow  # real files
def test_real_ranks(shared: Path, tmp_path: Path) -> None:
    paths = sorted((shared / "traces" / "ranks" / "torchrec_4").glob("[0-9].json.gz"))
    check_each_rank({f"TP{i:02}": document(path) for i, path in enumerate(paths)}, tmp_path)


@pytest.mark.slow  # test_malformed.py tests repairs, and tests above the ranks
def test_broken_text_is_mended_in_its_rank(tmp_path: Path) -> None:
    text = json.dumps(merged({f"TP{i:02}": rank(i) for i in range(3)}))
    broken = text.replace('"gemm 1"', '"gemm "1"').replace('"dur": 40', '"dur": NaN', 1)
    path = tmp_path / "merged.json"
    path.write_text(broken)
    rows_by_rank = [loaded(path, label)[1] for label in labels_of(path)]
    names = [[name for _, _, cat, name, *_ in rows if cat == "kernel"] for rows in rows_by_rank]
    assert names == [["gemm 0"], ['gemm "1'], ["gemm 2"]]
    assert [len(rows) for rows in rows_by_rank] == [5, 5, 5]


def test_what_has_no_label_is_the_first_rank_s(tmp_path: Path) -> None:
    trace = merged({f"TP{i:02}": rank(i) for i in range(2)})
    trace["traceEvents"] += [op("merging", 200, 1), {"ph": "i", "name": "no process", "ts": 300}, None]
    path = written(tmp_path, trace)
    assert [len(loaded(path, label)[1]) for label in ("TP00", "TP01")] == [8, 5]


@pytest.mark.slow  # tests above cover several ranks
def test_one_rank_alone(tmp_path: Path) -> None:
    alone, expected = loaded(written(tmp_path, merged({"TP03": rank(3)}), "alone.json"))
    assert alone.metadata["distributedInfo"]["rank"] == 3
    assert expected == loaded(written(tmp_path, rank(3), "own.json"))[1]


def test_files_that_only_look_merged(tmp_path: Path) -> None:
    for name, pid in (("name", "[TP00]"), ("other", "[ZZ00] 0"), ("quoted", '"pid": "[TP00] 0')):
        path = written(tmp_path, {"traceEvents": [x("cpu_op", '"pid": "[TP00] 0', 0, 5, pid=pid)]}, f"{name}.json")
        assert labels_of(path) == []
        assert [row[4] for row in loaded(path)[1]] == [pid]


def test_a_rank_is_to_be_chosen(tmp_path: Path) -> None:
    path = written(tmp_path, merged({f"TP{i:02}-PP00": rank(i) for i in range(2)}))
    with pytest.raises(
        TraceRejected, match="of 2 ranks were merged into it: choose one with --process: TP00-PP00, TP01"
    ):
        load_trace(memory(), path)
    with pytest.raises(TraceRejected, match="no process TP07 to choose: it has TP00-PP00, TP01-PP00"):
        load_trace(memory(), path, process="TP07")


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    """Only files are opened, because reading a pipe would never end, and a folder has no bytes."""
    os.mkfifo(tmp_path / "pipe.json")
    for path, why in (
        (tmp_path / "pipe.json", "not a regular file"),
        (tmp_path, "a folder"),
        (tmp_path / "no", "no such"),
    ):
        assert labels_of(path) == []
        with pytest.raises(TraceRejected, match=why):
            load_trace(memory(), path)


RANKS = {
    ("TP00", "TP01"): [0, 1],
    ("TP04", "TP06"): [4, 6],  # ranks of the second node, not all of which were profiled
    ("TP00-EP00", "TP01-EP01"): [0, 1],
    ("TP00-DP00", "TP01-DP00", "TP02-DP01", "TP03-DP01"): [0, 1, 2, 3],  # attention is data-parallel
    ("TP00-PP00", "TP01-PP00", "TP00-PP01", "TP01-PP01"): [0, 1, 2, 3],
    ("TP00-DP00", "TP00-DP01"): [0, 1],
    ("TP00-DP00-PP00", "TP00-DP00-PP01", "TP00-DP01-PP00", "TP00-DP01-PP01"): [0, 1, 2, 3],
    ("TP01-PP01", "TP00-PP01"): [1, 0],
    ("TP00-DP01-PP01", "TP00-DP01-PP00", "TP00-DP00-PP01", "TP00-DP00-PP00"): [3, 2, 1, 0],
    ("PP00", "PP01"): [0, 1],
    ("EP00", "EP01"): [0, 1],
    ("TP00-EP00", "TP00-EP01"): [0, 1],
}


@pytest.mark.parametrize("labels", RANKS)
def test_ranks_of_labels(labels: tuple[str, ...]) -> None:
    assert [*ranks_of(labels).values()] == RANKS[labels]


def test_the_ranks_are_one_capture(tmp_path: Path) -> None:
    """The ranks of a merged file are one capture.

    If the ranks' own files are next to the merged file, they are another capture.
    """
    capture = write_capture(CaptureSpec(ranks=2, steps=2, gz=False), tmp_path / "job")
    traces = {f"TP{i:02}": json.loads(path.read_text()) for i, path in enumerate(capture.paths)}
    path = written(tmp_path / "job", merged(traces))
    lake = Lake(tmp_path / "lake")
    rows = ingest([path], lake).rows
    assert [(row.status, row.rank) for row in rows] == [("ok", 0), ("ok", 1)]
    assert {row.status for row in ingest([path], lake).rows} == {"known"}
    ingest([tmp_path / "job"], lake)
    with lake.connect(["traces"]) as con:
        files = con.execute(
            "SELECT file, count(DISTINCT group_id), count(*), max(rank_source) FROM traces GROUP BY ALL"
        ).fetchall()
        groups = con.execute("SELECT count(DISTINCT group_id) FROM traces").fetchall()
    assert sorted(files) == [
        (path.name, 1, 2, "label"), ("rank0.json", 1, 1, "trace"), ("rank1.json", 1, 1, "trace")
    ]  # fmt: skip
    assert groups == [(2,)]
