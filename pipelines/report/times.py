"""Where the time went: the temporal breakdown of every rank, and what bounds its critical path."""

from __future__ import annotations

from collections import defaultdict

import duckdb

from pipelines.database import rows_of
from pipelines.fleet.path.answer import PathRefused, capture_path
from pipelines.report.blocks import (
    Block,
    Column,
    Part,
    Section,
    bars,
    heading,
    missing,
    paragraph,
    section,
    table,
    verdict,
)
from pipelines.report.subject import Row, Subject, label
from pipelines.report.values import count, percent, time, words
from pipelines.sqltext import quoted

_TARGET = "last_gpu_end"
_NAMES = 15
_BREAKDOWN = {
    "computing": "compute",
    "exposed communication": "communication",
    "exposed copies": "memory",
    "other work": "other",
    "idle": "idle",
}
_BOUNDS = {
    "gpu_compute_bound": "compute",
    "gpu_communication_bound": "communication",
    "gpu_memory_bound": "memory",
    "gpu_other_bound": "other",
    "cpu_bound": "cpu",
    "gpu_kernel_launch_overhead": "launch",
    "gpu_kernel_kernel_overhead": "gap",
    "gpu_earlier_work": "idle",
    "dependency": "other",
}
_CAUSES = {
    "compute": "compute",
    "straggler_wait": "straggler",
    "exposed_communication": "communication",
    "exposed_memory": "memory",
    "launch_overhead": "launch",
    "idle_host": "idle",
    "not_in_trace": "gap",
    "unattributed": "other",
}


def breakdown(con: duckdb.DuckDBPyConnection, subject: Subject) -> Section:
    """How the GPU time of every rank divides."""
    rows = rows_of(
        con,
        "SELECT t.rank, t.path, b.* FROM temporal_breakdown AS b JOIN traces AS t USING (trace_id) "
        f"WHERE b.trace_id IN {subject.trace_ids} AND b.device IS NOT NULL ORDER BY t.rank NULLS LAST, t.path, b.device",
    )
    if not rows:
        return section("breakdown", "Temporal breakdown", missing("the traces have no GPU work (CPU only)"))
    many = len(rows) > len({row["trace_id"] for row in rows})
    stacked = [(label(row) + (f", device {row['device']}" if many else ""), _divided(row)) for row in rows]
    columns = [
        *(Column("rank", "rank", count), Column("device", "device", count), Column("span_ns", "span", time)),
        *(Column("compute_percent", "computing", percent), Column("non_compute_percent", "other", percent)),
        *(Column("idle_percent", "idle", percent), Column("communication_ns", "communication", time)),
        *(Column("exposed_communication_ns", "exposed", time), Column("n_kernels", "pieces of work", count)),
    ]
    note = "From the first to the last GPU work. Exposed: nothing was computed at the same time."
    body = [bars(stacked, _BREAKDOWN), table("temporal_breakdown", columns, rows)]
    return section("breakdown", "Temporal breakdown", body, _costs(con, subject), note=note)


def _divided(row: Row) -> list[Part]:
    rest = row["non_compute_ns"] - row["exposed_communication_ns"] - row["exposed_memory_ns"]
    lengths = (row["compute_ns"], row["exposed_communication_ns"], row["exposed_memory_ns"], rest, row["idle_ns"])
    return [
        Part(kind, ns, f"{time(ns)}, {percent(100 * ns / (row['span_ns'] or 1))}")
        for kind, ns in zip(_BREAKDOWN, lengths, strict=True)
    ]


def _costs(con: duckdb.DuckDBPyConnection, subject: Subject) -> list[Block]:
    """What the GPU time of all ranks of a capture was spent on; the causes add up to its span times its GPUs."""
    if subject.capture_id is None:
        return []
    rows = rows_of(
        con,
        "SELECT cause, gpu_ns, percent, price, currency FROM capture_costs "
        f"WHERE capture_id = {quoted(subject.capture_id)} AND gpu_ns IS NOT NULL ORDER BY gpu_ns DESC, cause",
    )
    if not rows:
        return []
    parts = [Part(row["cause"], row["gpu_ns"], f"{time(row['gpu_ns'])}, {percent(row['percent'])}") for row in rows]
    columns = [
        Column("cause", "cause", words),
        Column("gpu_ns", "GPU time", time),
        Column("percent", "of all", percent),
    ]
    if any(row["price"] is not None for row in rows):
        columns += [Column("price", "price", lambda value: f"{value:,.2f}"), Column("currency", "", words)]
    said = heading("what took the GPU time of all ranks together")
    return [said, bars([("all ranks", parts)], _CAUSES), table("capture_costs", columns, rows)]


def critical_path(con: duckdb.DuckDBPyConnection, subject: Subject) -> Section:
    """What bounds the longest path of every rank, the names on the path of one rank, and the path through the ranks."""
    rows = rows_of(
        con,
        "SELECT t.rank, t.path, s.trace_id, s.bound_by, s.n_edges, s.duration_ns, s.percent, s.percent_of_window "
        "FROM critical_path_summary AS s JOIN traces AS t USING (trace_id) "
        f"WHERE s.window_id = 'full' AND s.trace_id IN {subject.trace_ids} "
        "ORDER BY t.rank NULLS LAST, t.path, s.duration_ns DESC, s.bound_by",
    )
    if not rows:
        return section("path", "Critical path", missing("no trace has a critical path"), _caveats(con, subject))
    by_trace: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_trace[row["trace_id"]].append(row)
    stacked = [
        (label(own[0]), [Part(r["bound_by"], r["duration_ns"], f"{time(r['duration_ns'])}, {percent(r['percent'] or 0)}") for r in own])
        for own in by_trace.values()
    ]  # fmt: skip
    shown = by_trace[subject.shown["trace_id"]]
    note = "The longest chain of dependent work in each trace, by what bounds its edges. docs/critical-path.md says how to read it."
    body = (bars(stacked, _BOUNDS), _bounds(subject, shown), _names(con, subject), _through(con, subject))
    return section("path", "Critical path", _caveats(con, subject), *body, note=note)


def _caveats(con: duckdb.DuckDBPyConnection, subject: Subject) -> list[Block]:
    """The caveats of the paths, before their numbers: each once, with the ranks it applies to."""
    rows = rows_of(
        con,
        "SELECT t.rank, t.path, c.caveat, c.detail FROM critical_path_caveats AS c JOIN traces AS t USING (trace_id) "
        f"WHERE c.window_id = 'full' AND c.severity <> 'info' AND c.trace_id IN {subject.trace_ids} "
        f"ORDER BY c.trace_id <> {subject.shown_id}, t.rank NULLS LAST, t.path, c.time_ns DESC NULLS LAST, c.caveat",
    )
    of: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        of[row["caveat"]].append(row)
    return [_caveat(*own) for own in of.values()]


def _caveat(first: Row, *others: Row) -> Block:
    also = f" (likewise {', '.join(map(label, others))})" if others else ""
    return verdict(f"{label(first)}: {first['detail']}{also}")


def _bounds(subject: Subject, rows: list[Row]) -> list[Block]:
    if not rows:
        return [missing(f"{label(subject.shown)} has no critical path")]
    columns = [
        *(Column("bound_by", "bound by", words), Column("n_edges", "edges", count)),
        *(Column("duration_ns", "time", time), Column("percent", "of the path", percent)),
        Column("percent_of_window", "of the window", percent),
    ]
    return [heading(label(subject.shown)), table("critical_path_summary", columns, rows)]


def _names(con: duckdb.DuckDBPyConnection, subject: Subject) -> list[Block]:
    rows = rows_of(
        con,
        "SELECT name, cat, n_events, duration_ns FROM critical_path_by_name "
        f"WHERE window_id = 'full' AND trace_id = {subject.shown_id} ORDER BY duration_ns DESC, name, cat LIMIT {_NAMES}",
    )
    if not rows:
        return []
    columns = [Column("name", "name"), Column("cat", "category", words), Column("n_events", "times", count)]
    columns.append(Column("duration_ns", "time on the path", time))
    return [heading(f"the largest parts, {label(subject.shown)}"), table("critical_path_by_name", columns, rows)]


def _through(con: duckdb.DuckDBPyConnection, subject: Subject) -> list[Block]:
    """The path through all ranks of a capture."""
    if subject.capture_id is None or len(subject.traces) < 2:
        return []
    head = heading("through all ranks, to the last end on a GPU")
    try:
        found = capture_path(con, subject.capture_id, _TARGET)
    except PathRefused as error:
        return [head, missing(str(error))]
    own: defaultdict[int, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for segment in found.segments:
        own[segment.rank][segment.kind] += segment.dur_us
    kinds = {kind: _CYCLE[i % len(_CYCLE)] for i, kind in enumerate(found.kind_us)}
    stacked = [
        (f"rank {rank}: {percent(found.share_percent[rank])}", [Part(k, us * 1000, time(us * 1000)) for k, us in own[rank].items()])
        for rank in found.share_us
    ]  # fmt: skip
    guessed = f"; {found.n_guessed} hops are guesses ({time(found.guessed_us * 1000)})" if found.n_guessed else ""
    said = (
        f"{time(found.span_us * 1000)} through {found.n_ranks} ranks; unexplained {percent(found.gap_percent)}{guessed}"
    )
    return [head, paragraph(said), bars(stacked, kinds)]


_CYCLE = ("compute", "communication", "cpu", "memory", "launch", "straggler", "gap", "idle", "other")
