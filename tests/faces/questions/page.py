"""The site's page of questions: the main tables, their joins, and every saved question with query and answer.

`make docs` writes it, from sql/ask and the head below. The answers are from a small synthetic lake.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

from pipelines.lake import Lake
from pipelines.lake.read.sandbox import LockedLake
from pipelines.models.questions import TOPICS, Question, load_questions
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.synthetic import CaptureSpec, write_capture
from tests.harness import op, x
from tests.readers.execution.make import Op, write

_ROWS, _CELL = 4, 44
_CAPTURE_ID = "3f2a…"
_INGESTED = datetime(2026, 11, 22, 10, 30)
"""Replaces the time at which the lake was made. The captures in it are from 2024."""
HEAD = """# Questions and answers

<!-- Made by `make docs` from sql/ask: edit the questions there, this head in tests/faces/questions/page.py. -->

`tracelake ask` lists these questions, `tracelake ask NAME` answers one, and `tracelake ask leak` lists those about leaks (or any word). `--job`, `--capture`, `--trace` and `--rank` choose the
part of the lake, `--top` how many rows are shown (by default 20 in a table, and all in other formats), `--format` how; `--sql`
prints the query instead, so that you can change it and run it with `tracelake sql`. Add your own as a file in a folder of `sql/ask/`.

## How the tables join

`||` is one row, `o{` any number of rows, `o|` at most one. A `trace_id` is a file's content, so the same file has the same id
in every lake; an `event_id` is the position in the file's `traceEvents`. All times are integer nanoseconds (`…_ns`).
NULL means "not measured". [All tables](tables.md) has every column.

```mermaid
erDiagram
    captures ||--o{ capture_ranks : "capture_id"
    traces ||--o| capture_ranks : "trace_id"
    captures ||--o{ collectives : "capture_id"
    collectives ||--o{ collective_ranks : "capture_id, collective_id"
    captures ||--o{ straggler_ranks : "capture_id"
    captures ||--o{ clock_offsets : "capture_id"
    traces ||--o{ events : "trace_id"
    traces ||--o{ temporal_breakdown : "trace_id"
    temporal_breakdown ||--o{ idle_gaps : "trace_id, device"
    traces ||--o{ profiler_steps : "trace_id"
    profiler_steps ||--o| step_lengths : "trace_id, step"
    step_lengths ||--o{ step_times : "trace_id, step"
    step_lengths ||--o{ step_causes : "trace_id, step"
    step_times ||--o| step_losses : "trace_id, step, device"
    traces ||--o{ host_gpu_overlap : "trace_id"
    events ||--o| kernels : "trace_id, event_id"
    events ||--o| call_stacks : "trace_id, event_id"
    events ||--o| launches : "trace_id, event_id"
    launches ||--o{ kernels : "trace_id, event_id = launch_event_id"
    kernels ||--o| collective_kernels : "trace_id, event_id"
    kernels ||--o| op_kernels : "trace_id, event_id"
    kernels ||--o| idle_gaps : "trace_id, event_id = ended_by_event_id"
    op_work ||--o{ op_kernels : "trace_id, event_id = op_event_id"
    spans ||--o{ span_gpu_work : "trace_id, span_id"
    kernels ||--o{ span_gpu_work : "trace_id, event_id"
    traces ||--o{ critical_path_windows : "trace_id"
    critical_path_windows ||--o{ critical_path_summary : "trace_id, window_id"
    critical_path_windows ||--o{ critical_path_edges : "trace_id, window_id"
    critical_path_edges ||--o| critical_path : "trace_id, window_id, edge_id"
    events ||--o{ critical_path : "trace_id, event_id"
    events ||--o{ event_slack : "trace_id, event_id"
```

A trace has several windows: `window_id` is `full` for the whole trace, and the step's name for each profiler step. Name one,
or every event counts several times.
"""


def make_lake(folder: Path) -> Lake:
    """Make a lake of a job with three captures, a trace without ranks, and a file that is not a trace.

    The three captures have the same slow rank. There is an execution trace of the slow rank, and one of a missing rank.
    """
    lake = Lake(folder / "lake")
    for day in range(3):
        captured = write_capture(CaptureSpec(ranks=4, steps=3, straggler=2, seed=7 + day), folder / str(day))
        for path in captured.paths:
            _put_off(path, day)
        if not day:
            write(folder / "0" / "rank2_et.json", [Op("aten::mm", [1], [2]), Op("aten::relu", [2], [3])])
        ingest([str(folder / str(day))], lake, job="llama-70b")
    (folder / "server").mkdir()
    # The trace has a time, because captures without a time are ordered by their ids, which hash the folder's path.
    march = {"distributedInfo": {"rank": 0}, "baseTimeNanoseconds": 1_711_879_200 * 10**9}
    server = {**march, "traceEvents": [event for i in range(12) for event in _step(i)]}
    (folder / "server" / "rank0.json").write_text(json.dumps(server))
    ingest([str(folder / "server")], lake, job="server")
    ingest([str(path) for path in _others(folder / "others")], lake)
    materialize_all(lake)
    return lake


def _put_off(path: Path, days: int) -> None:
    """Move a trace `days` days later, so that captures have the same order in every lake, whatever their ids are."""
    trace = json.loads(gzip.decompress(path.read_bytes()))
    trace["baseTimeNanoseconds"] += days * 86_400 * 10**9
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))


def _others(folder: Path) -> list[Path]:
    folder.mkdir()
    (folder / "notes.json").write_text('{"notes": "not a trace"}')
    (folder / "cut.json").write_text(json.dumps({"traceEvents": [_memory(i) for i in range(3)]})[:-2])
    write(folder / "rank9_et.json", [Op("aten::add", [1], [2])])
    return sorted(folder.iterdir())


def _memory(number: int) -> dict[str, Any]:
    total = (number + 1) << 20
    args = {"Device Type": 1, "Device Id": 0, "Addr": number + 1, "Bytes": 1 << 20, "Total Allocated": total}
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": number, "args": args}


def _step(number: int) -> list[dict[str, Any]]:
    """Return the events of a server's step. Every sixth step is the prefill of two prompts, the others decode."""
    name, dur = ("step[DECODE bs=8]", 1500 + 10 * number) if number % 6 else ("step[EXTEND bs=2 toks=2048]", 9000)
    ts = 10_000 * number
    return [x("user_annotation", name, ts, dur), op("aten::linear", ts + 10, dur - 20)]


def page(lake: Lake) -> str:
    """Return the page as Markdown."""
    with LockedLake(lake) as locked:
        parts = [HEAD]
        for topic in TOPICS.values():
            parts.append(f"\n## {topic}\n")
            parts += [_section(locked, question) for question in load_questions().values() if question.topic == topic]
    return "".join(parts)


def _section(locked: LockedLake, question: Question) -> str:
    with locked.asked(question.asked(_ROWS)) as answer:
        assert answer
        rows = "\n".join(_table(answer.columns, answer.rows()))
    words = f" ({question.words})" if question.words else ""
    return f"\n### {question.question}\n\n`tracelake ask {question.name}`{words}\n\n{question.reading}\n\n```sql\n{question.sql}\n```\n\n{rows}\n"


def _table(columns: list[str], rows: list[tuple[Any, ...]]) -> Iterator[str]:
    if not rows:
        yield "*No rows: the synthetic lake has nothing of this kind.*"
        return
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(_cell(name, value) for name, value in zip(columns, row, strict=True))} |"


def _cell(name: str, value: Any) -> str:
    """Return a value as Markdown.

    Paths, times of ingestion and ids of captures are replaced, because they differ between runs.
    """
    if name == "path":
        value = Path(value).name
    if name == "capture_id":
        value = _CAPTURE_ID
    if isinstance(value, date) and value.year > 2024:
        value = _INGESTED if isinstance(value, datetime) else _INGESTED.date()
    if isinstance(value, datetime):
        value = f"{value:%Y-%m-%d %H:%M:%S}"
    if value is None:
        return "NULL"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    if len(text) > _CELL and " " not in text[:_CELL]:
        text = f"{text[: _CELL // 2]}…{text[-_CELL // 2 :]}"
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        Path(sys.argv[1]).write_text(page(make_lake(Path(made))), encoding="utf-8")
