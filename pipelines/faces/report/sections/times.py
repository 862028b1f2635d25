"""Sections on where the time goes: the temporal breakdown of every rank, and what bounds its critical path."""

from __future__ import annotations

from collections import defaultdict

from markupsafe import Markup

from pipelines.base.units import percent, time
from pipelines.faces.report.blocks import Part, Section, section
from pipelines.faces.report.macros import bars, macros
from pipelines.faces.report.subject import ONLY_DIGEST, Row, Subject, label
from pipelines.faces.report.tables import answer, table
from pipelines.fleet.path.answer import PathRefused, capture_path
from pipelines.lake.read.one_trace import OnlyDigest

_TARGET = "last_gpu_end"
_TEXTS = 5  # maximum number of texts of a caveat
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
    "recompute": "optimizer",
    "straggler_wait": "straggler",
    "exposed_communication": "communication",
    "unsplit_communication": "communication",
    "exposed_memory": "memory",
    "launch_overhead": "launch",
    "idle_host": "idle",
    "not_in_trace": "gap",
    "unattributed": "other",
}
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


def breakdown(subject: Subject) -> Section:
    """Return the section that breaks down the GPU time of every rank."""
    rows = subject.rows_of_all("breakdown")
    if not rows:
        return section("breakdown", "Where the time goes", macros.missing("the traces have no GPU work (CPU only)"))
    many = len(rows) > len({row["trace_id"] for row in rows})
    stacked = [(_gpu(row, many), _divided(row)) for row in rows]
    note = (
        "From the first to the last GPU work. Exposed communication: a communication kernel runs and nothing computes. Its "
        "kernels also run while they wait for other ranks, so it is the waiting for late ranks plus the transfer."
    )
    return section(
        "breakdown",
        "Where the time goes",
        bars(stacked, _BREAKDOWN),
        table("breakdown", rows),
        _overlap(subject, [row for row in rows if row["communication_ns"]], many),
        _costs(subject),
        note=note,
        docs=("reading-a-fleet.md", "reading a fleet"),
    )


def _gpu(row: Row, many: bool) -> str:
    """Return the label of a device. `many`: whether the traces have several devices."""
    return label(row) + (f", device {row['device']}" if many else "")


def _overlap(subject: Subject, rows: list[Row], many: bool) -> Markup:
    """Return bars of communication: the time hidden behind computing, and the exposed time.

    In a capture, the exposed time is split into waiting and transfer. `many`: as in `_gpu`.
    """
    if not rows:
        return Markup()
    waits = _exposed_parts(subject)
    stacked = []
    for row in rows:
        exposed = row["exposed_communication_ns"]
        ns_by_kind = {"hidden behind computing": row["communication_ns"] - exposed}
        of_row = waits.get((row["rank"], row["device"]))
        ns_by_kind |= {"exposed": exposed} if of_row is None else dict(zip(list(_OVERLAP)[1:4], of_row, strict=True))
        stacked.append(
            (_gpu(row, many), [Part(kind, ns, time(ns)) for kind, ns in ns_by_kind.items() if ns or kind != _UNSPLIT])
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
        parts += [f"{time(unsplit)} in which waiting cannot be distinguished from transfer"] if unsplit else []
        sentence += f": {', '.join(parts)}"
    heading = macros.heading("how communication overlaps with computing")
    return heading + macros.paragraph(f"{sentence}.") + bars(stacked, _OVERLAP)


def _exposed_parts(subject: Subject) -> dict[tuple[int, int], tuple[int, int, int]]:
    """Return the parts of exposed communication by (rank, device), in ns.

    The parts are waiting for late ranks, transfer, and time that cannot be split. They add up to
    `exposed_communication_ns`. Return an empty dict if no other rank is known, because the page is about a single
    trace, or the lake has no other rank of the job.
    """
    rows = [row for row in subject.rows_of_capture("exposed-communication") if row["wait_ns"] is not None]
    return {(row["rank"], row["device"]): (row["wait_ns"], row["transfer_ns"], row["unsplit_ns"]) for row in rows}


def _divided(row: Row) -> list[Part]:
    other_ns = row["non_compute_ns"] - row["exposed_communication_ns"] - row["exposed_memory_ns"]
    lengths = (row["compute_ns"], row["exposed_communication_ns"], row["exposed_memory_ns"], other_ns, row["idle_ns"])
    return [
        Part(kind, ns, f"{time(ns)}, {percent(100 * ns / (row['span_ns'] or 1))}")
        for kind, ns in zip(_BREAKDOWN, lengths, strict=True)
    ]


def _costs(subject: Subject) -> Markup:
    """Return the GPU time of all ranks of a capture by cause, which adds up to the capture's span times its GPUs."""
    rows = subject.rows_of_capture("capture-costs")
    if not rows:
        return Markup()
    parts = [Part(row["cause"], row["gpu_ns"], f"{time(row['gpu_ns'])}, {percent(row['percent'])}") for row in rows]
    heading = macros.heading("what took the GPU time of all ranks together")
    explanation = macros.paragraph(
        "Each moment counts once: waiting for late ranks counts also while other kernels compute, "
        "exposed transfer is the rest of the exposed communication above, except where it is unknown who waits for whom."
    )
    return heading + explanation + bars([("all ranks", parts)], _CAUSES) + table("capture-costs", rows)


def critical_path(subject: Subject) -> Section:
    """Return the section on critical paths.

    It shows what bounds the path of every rank, the names on the shown rank's path, and the path through all ranks.
    """
    by_trace: defaultdict[str, list[Row]] = defaultdict(list)
    for row in subject.rows_of_all("path-bounds"):
        by_trace[row["trace_id"]].append(row)
    if not by_trace:
        why = ONLY_DIGEST if subject.is_digest else "no trace has a critical path"
        missing = macros.missing(why)
        return section("path", "Critical path", missing, _caveats(subject))
    stacked = [
        (label(rows[0]), [Part(row["bound_by"], row["duration_ns"], f"{time(row['duration_ns'])}, {percent(row['percent'] or 0)}") for row in rows])
        for rows in by_trace.values()
    ]  # fmt: skip
    bounds = table("path-bounds", by_trace[subject.shown["trace_id"]], subject.label)
    return section(
        "path",
        "Critical path",
        _caveats(subject),
        bars(stacked, _BOUNDS),
        answer(subject, "path-owners", f"where the time goes, {subject.label}"),
        bounds or macros.missing(f"{subject.label} has no critical path"),
        answer(subject, "path-parts", f"the largest parts, {subject.label}"),
        _through(subject),
        note="The longest chain of dependent work in each trace, by what bounds its edges.",
        docs=("critical-path.md", "how to read a critical path"),
    )


def _caveats(subject: Subject) -> Markup:
    """Return the caveats of the paths, each text once with the ranks that it applies to, the shown rank's first.

    The texts of a caveat differ in their numbers. After the first _TEXTS texts, only the ranks are listed.
    """
    rows_by_text: defaultdict[str, defaultdict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    rows = subject.rows_of_all("path-warnings")
    for row in sorted(rows, key=lambda row: row["trace_id"] != subject.shown["trace_id"]):
        rows_by_text[row["caveat"]][row["detail"]].append(row)
    lines = []
    for caveat, by_text in rows_by_text.items():
        texts = [*by_text.values()]
        lines += [_caveat(*rows) for rows in texts[:_TEXTS]]
        if others := [label(row) for rows in texts[_TEXTS:] for row in rows]:
            where = f"see caveat {caveat} in table critical_path_caveats"
            lines.append(macros.verdict(f"{', '.join(others)}: the same with other numbers ({where})"))
    return Markup().join(lines)


def _caveat(first: Row, *repeats: Row) -> Markup:
    also = f" (likewise {', '.join(map(label, repeats))})" if repeats else ""
    return macros.verdict(f"{label(first)}: {first['detail']}{also}")


def _through(subject: Subject) -> Markup:
    """Return the path through all ranks of a capture, or nothing if there is only one trace."""
    if subject.capture_id is None or len(subject.traces) < 2:
        return Markup()
    heading = macros.heading("through all ranks, to the last end on a GPU")
    try:
        path = capture_path(subject.con, subject.capture_id, _TARGET)
    except (PathRefused, OnlyDigest) as error:
        return heading + macros.missing(str(error))
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
    return heading + macros.paragraph(summary) + bars(stacked, kinds)
