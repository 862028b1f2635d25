"""Sections on where the time goes: the temporal breakdown of every rank, and what bounds its critical path."""

from __future__ import annotations

from collections import defaultdict

import duckdb

from pipelines.base.database import rows_of
from pipelines.base.units import count, percent, time
from pipelines.faces.report.blocks import (
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
from pipelines.faces.report.formats import words
from pipelines.faces.report.subject import Row, Subject, label
from pipelines.faces.words import in_words
from pipelines.fleet.path.answer import PathRefused, capture_path
from pipelines.models.questions import rows_of_question
from pipelines.models.sqltext import quoted

_TARGET = "last_gpu_end"
_NAMES = 15
_BREAKDOWN = {
    "computing": "compute",
    "exposed communication": "communication",
    "exposed copies": "memory",
    "other work": "other",
    "idle": "idle",
}
_UNSPLIT = "exposed: waiting or transfer"
_OVERLAP = {
    "hidden behind computing": "compute",
    "exposed: waiting for late ranks": "straggler",
    "exposed: transfer": "communication",
    _UNSPLIT: "communication",
    "exposed": "communication",
}
_BOUNDS = {
    "gpu_compute_bound": "compute",
    "gpu_communication_bound": "communication",
    "gpu_memory_bound": "memory",
    "gpu_other_bound": "other",
    "cpu_bound": "cpu",
    "host_gap": "host",
    "gpu_kernel_launch_overhead": "launch",
    "gpu_kernel_kernel_overhead": "gap",
    "gpu_earlier_work": "idle",
    "dependency": "other",
}
_CAUSES = {
    "compute": "compute",
    "straggler_wait": "straggler",
    "exposed_communication": "communication",
    "unsplit_communication": "communication",
    "exposed_memory": "memory",
    "launch_overhead": "launch",
    "idle_host": "idle",
    "not_in_trace": "gap",
    "unattributed": "other",
}


def breakdown(con: duckdb.DuckDBPyConnection, subject: Subject) -> Section:
    """Return the section that breaks down the GPU time of every rank."""
    rows = rows_of(
        con,
        "SELECT t.rank, t.path, b.* FROM temporal_breakdown AS b JOIN traces AS t USING (trace_id) "
        f"WHERE b.trace_id IN {subject.trace_ids} AND b.device IS NOT NULL ORDER BY t.rank NULLS LAST, t.path, b.device",
    )
    if not rows:
        return section("breakdown", "Where the time goes", missing("the traces have no GPU work (CPU only)"))
    many = len(rows) > len({row["trace_id"] for row in rows})
    stacked = [(label(row) + (f", device {row['device']}" if many else ""), _divided(row)) for row in rows]
    columns = [
        *(Column("rank", "rank", count), Column("device", "device", count), Column("span_ns", "span", time)),
        *(Column("compute_percent", "computing", percent), Column("non_compute_percent", "other", percent)),
        *(Column("idle_percent", "idle", percent), Column("communication_ns", "communication", time)),
        *(Column("exposed_communication_ns", "exposed", time), Column("n_kernels", "pieces of work", count)),
    ]
    note = (
        "From the first to the last GPU work. Exposed communication: a communication kernel runs and nothing computes. Its "
        "kernels also run while they wait for other ranks, so it is the waiting for late ranks plus the transfer."
    )
    body = [bars(stacked, _BREAKDOWN), table("temporal_breakdown", columns, rows)]
    parts = (_overlap(con, subject, rows), _costs(con, subject))
    return section(
        "breakdown", "Where the time goes", body, *parts, note=note, docs=("reading-a-fleet.md", "reading a fleet")
    )


def _overlap(con: duckdb.DuckDBPyConnection, subject: Subject, rows: list[Row]) -> list[Block]:
    """Return blocks on communication: the time hidden behind computing, and the exposed time.

    In a capture, the exposed time is split into waiting and transfer.
    """
    rows = [row for row in rows if row["communication_ns"]]
    if not rows:
        return []
    waits = exposed_parts(con, subject)
    stacked = []
    for row in rows:
        exposed = row["exposed_communication_ns"]
        ns_by_kind = {"hidden behind computing": row["communication_ns"] - exposed}
        of_row = waits.get((row["rank"], row["device"]))
        ns_by_kind |= {"exposed": exposed} if of_row is None else dict(zip(list(_OVERLAP)[1:4], of_row, strict=True))
        stacked.append(
            (label(row), [Part(kind, ns, time(ns)) for kind, ns in ns_by_kind.items() if ns or kind != _UNSPLIT])
        )
    total = sum(row["communication_ns"] for row in rows)
    exposed = sum(row["exposed_communication_ns"] for row in rows)
    sentence = f"{time(exposed)} of {time(total)} of communication are exposed ({percent(100 * exposed / total)})"
    if waits:
        wait, transfer, unsplit = (sum(part) for part in zip(*waits.values(), strict=True))
        parts = (
            [f"{time(wait)} waiting for late ranks, {time(transfer)} transfer"]
            if wait or transfer or not unsplit
            else []
        )
        parts += [f"{time(unsplit)} in which waiting cannot be told from transfer"] if unsplit else []
        sentence += f": {', '.join(parts)}"
    return [heading("how communication overlaps with computing"), paragraph(f"{sentence}."), bars(stacked, _OVERLAP)]


def exposed_parts(con: duckdb.DuckDBPyConnection, subject: Subject) -> dict[tuple[int, int], tuple[int, int, int]]:
    """Return exposed communication by (rank, device): ns of waiting for late ranks, of transfer, and of time that cannot be split.

    The three add up to `exposed_communication_ns`. Return an empty dict if nothing is known about other ranks.
    """
    if subject.capture_id is None:
        return {}
    rows = rows_of_question(con, "exposed-communication", capture=subject.capture_id)
    return {(row["rank"], row["device"]): (row["wait_ns"], row["transfer_ns"], row["unsplit_ns"]) for row in rows}


def _divided(row: Row) -> list[Part]:
    other_ns = row["non_compute_ns"] - row["exposed_communication_ns"] - row["exposed_memory_ns"]
    lengths = (row["compute_ns"], row["exposed_communication_ns"], row["exposed_memory_ns"], other_ns, row["idle_ns"])
    return [
        Part(kind, ns, f"{time(ns)}, {percent(100 * ns / (row['span_ns'] or 1))}")
        for kind, ns in zip(_BREAKDOWN, lengths, strict=True)
    ]


def cost_rows(con: duckdb.DuckDBPyConnection, subject: Subject) -> list[Row]:
    """Return the GPU time of all ranks of a capture by cause, largest first. It adds up to the capture's span times its GPUs."""
    return rows_of(
        con,
        "SELECT cause, gpu_ns, percent, price, currency FROM capture_costs "
        f"WHERE capture_id = {quoted(subject.capture_id or '')} AND gpu_ns IS NOT NULL ORDER BY gpu_ns DESC, cause",
    )


def _costs(con: duckdb.DuckDBPyConnection, subject: Subject) -> list[Block]:
    rows = cost_rows(con, subject)
    if not rows:
        return []
    parts = [Part(row["cause"], row["gpu_ns"], f"{time(row['gpu_ns'])}, {percent(row['percent'])}") for row in rows]
    columns = [
        Column("cause", "cause", in_words),
        Column("gpu_ns", "GPU time", time),
        Column("percent", "of all", percent),
    ]
    if any(row["price"] is not None for row in rows):
        columns += [Column("price", "price", lambda value: f"{value:,.2f}"), Column("currency", "", words)]
    intro = [
        heading("what took the GPU time of all ranks together"),
        paragraph(
            "Each moment counts once: waiting for late ranks counts also while other kernels compute, "
            "exposed transfer is the rest of the exposed communication above, except where it is not known who waits for whom."
        ),
    ]
    return [*intro, bars([("all ranks", parts)], _CAUSES), table("capture_costs", columns, rows)]


def critical_path(con: duckdb.DuckDBPyConnection, subject: Subject) -> Section:
    """Return the section on critical paths.

    It shows what bounds the path of every rank, the names on the shown rank's path, and the path through all ranks.
    """
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
        (label(trace_rows[0]), [Part(r["bound_by"], r["duration_ns"], f"{time(r['duration_ns'])}, {percent(r['percent'] or 0)}") for r in trace_rows])
        for trace_rows in by_trace.values()
    ]  # fmt: skip
    shown_rows = by_trace[subject.shown["trace_id"]]
    note = "The longest chain of dependent work in each trace, by what bounds its edges."
    tables = (_owners(con, subject), _bounds(subject, shown_rows), _names(con, subject), _through(con, subject))
    body = (bars(stacked, _BOUNDS), *tables)
    return section(
        "path",
        "Critical path",
        _caveats(con, subject),
        *body,
        note=note,
        docs=("critical-path.md", "how to read a critical path"),
    )


def _caveats(con: duckdb.DuckDBPyConnection, subject: Subject) -> list[Block]:
    """Return the caveats of the paths, each once with the ranks that it applies to."""
    rows = rows_of(
        con,
        "SELECT t.rank, t.path, c.caveat, c.detail FROM critical_path_caveats AS c JOIN traces AS t USING (trace_id) "
        f"WHERE c.window_id = 'full' AND c.severity <> 'info' AND c.trace_id IN {subject.trace_ids} "
        f"ORDER BY c.trace_id <> {subject.shown_id}, t.rank NULLS LAST, t.path, c.time_ns DESC NULLS LAST, c.caveat",
    )
    rows_by_caveat: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        rows_by_caveat[row["caveat"]].append(row)
    return [_caveat(*caveat_rows) for caveat_rows in rows_by_caveat.values()]


def _caveat(first: Row, *repeats: Row) -> Block:
    also = f" (likewise {', '.join(map(label, repeats))})" if repeats else ""
    return verdict(f"{label(first)}: {first['detail']}{also}")


def _bounds(subject: Subject, rows: list[Row]) -> list[Block]:
    if not rows:
        return [missing(f"{label(subject.shown)} has no critical path")]
    columns = [
        *(Column("bound_by", "bound by", in_words), Column("n_edges", "edges", count)),
        *(Column("duration_ns", "time", time), Column("percent", "of the path", percent)),
        Column("percent_of_window", "of the window", percent),
    ]
    return [heading(label(subject.shown)), table("critical_path_summary", columns, rows)]


def _owners(con: duckdb.DuckDBPyConnection, subject: Subject) -> list[Block]:
    rows = rows_of(
        con,
        "SELECT owner, coalesce(owner_cat, 'gap') AS owner_cat, bound_by, duration_ns FROM critical_path_by_owner "
        f"WHERE window_id = 'full' AND trace_id = {subject.shown_id} "
        f"ORDER BY duration_ns DESC, owner, owner_cat, bound_by LIMIT {_NAMES}",
    )
    if not rows:
        return []
    columns = [
        Column("owner", "owner"),
        Column("owner_cat", "category", in_words),
        Column("bound_by", "bound by", in_words),
    ]
    columns.append(Column("duration_ns", "time on the path", time))
    return [heading(f"where the time goes, {label(subject.shown)}"), table("critical_path_by_owner", columns, rows)]


def path_names(con: duckdb.DuckDBPyConnection, subject: Subject) -> list[Row]:
    """Return the names with the most time on the shown rank's path, largest first."""
    return rows_of(
        con,
        "SELECT name, cat, n_events, duration_ns FROM critical_path_by_name "
        f"WHERE window_id = 'full' AND trace_id = {subject.shown_id} ORDER BY duration_ns DESC, name, cat LIMIT {_NAMES}",
    )


def _names(con: duckdb.DuckDBPyConnection, subject: Subject) -> list[Block]:
    rows = path_names(con, subject)
    if not rows:
        return []
    columns = [Column("name", "name"), Column("cat", "category", in_words), Column("n_events", "times", count)]
    columns.append(Column("duration_ns", "time on the path", time))
    return [heading(f"the largest parts, {label(subject.shown)}"), table("critical_path_by_name", columns, rows)]


def _through(con: duckdb.DuckDBPyConnection, subject: Subject) -> list[Block]:
    """Return the path through all ranks of a capture, or no blocks if there is only one trace."""
    if subject.capture_id is None or len(subject.traces) < 2:
        return []
    head = heading("through all ranks, to the last end on a GPU")
    try:
        path = capture_path(con, subject.capture_id, _TARGET)
    except PathRefused as error:
        return [head, missing(str(error))]
    us_by_rank: defaultdict[int, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for segment in path.segments:
        us_by_rank[segment.rank][segment.kind] += segment.dur_us
    kinds = {kind: _SEGMENTS.get(kind, "other") for kind in path.kind_us}
    stacked = [
        (f"rank {rank}: {percent(path.share_percent[rank])}", [Part(k, us * 1000, time(us * 1000)) for k, us in us_by_rank[rank].items()])
        for rank in path.share_us
    ]  # fmt: skip
    guessed = f"; {path.n_guessed} waits are inferred ({time(path.guessed_us * 1000)})" if path.n_guessed else ""
    summary = (
        f"{time(path.span_us * 1000)} through {path.n_ranks} ranks; outside operators {percent(path.gap_percent)}"
        f"{guessed}"
    )
    return [head, paragraph(summary), bars(stacked, kinds)]


_SEGMENTS = {
    "gpu_kernel": "compute",
    "transfer": "communication",
    "gpu_memcpy": "memory",
    "gpu_memset": "memory",
    "cpu_op": "cpu",
    "user_annotation": "host",
    "python_function": "host",
    "gap": "host",
    "thread_hand_off": "setup",
    "launch_delay": "launch",
    "cuda_runtime": "launch",
    "cuda_driver": "launch",
    "kernel_delay": "gap",
    "cross_stream_wait": "straggler",
    "sync_return": "sync",
    "head": "edge",
}
