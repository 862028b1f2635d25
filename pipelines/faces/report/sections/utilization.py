"""Section on hardware utilization relative to the peaks: by steps, families of operators, modules and operators."""

from __future__ import annotations

import duckdb

from pipelines.base.database import rows_of
from pipelines.base.units import count, percent, ratio, share, time
from pipelines.faces.report.blocks import Block, Column, Part, Section, bars, figure, missing, section, table, titled
from pipelines.faces.report.folded_rows import folded
from pipelines.faces.report.formats import shapes, words
from pipelines.faces.report.pictures.roofline import roofline
from pipelines.faces.report.sections.spans import picture
from pipelines.faces.report.subject import Row, Subject, label, of_shown
from pipelines.faces.words import in_words
from pipelines.models.sqltext import quoted

_STEPS, _MODULES, _OPS, _DRAWN = 40, 12, 12, 300
# Columns that several tables share.
_MFU, _MFU_TF32 = Column("mfu_busy", "MFU, GPU busy", share), Column("mfu_tf32", "with TF32", share)
_BUSY, _COVERAGE = Column("busy_ns", "GPU busy", time), Column("coverage", "covered", share)
_BANDWIDTH = Column("bandwidth_utilization", "bandwidth", share)
_ROOFLINE = Column("roofline_utilization", "of the roofline", share)
_LIMIT, _PEAKS = Column("bound_by", "limit", in_words), Column("peak_kind", "peaks", words)
# Parts of the GPU time: columns of op_work_coverage that add up to gpu_ns, with their CSS classes.
_MODELLED = {
    "with a model": ("modelled_ns", "compute"),
    "operator without a formula": ("op_not_modelled_ns", "other"),
    "shapes not recorded": ("no_shapes_ns", "communication"),
    "unknown arguments": ("bad_args_ns", "gap"),
    "CUDA or HIP graph, operator unknown": ("graph_ns", "launch"),
    "launch not in the trace": ("no_launch_ns", "idle"),
    "launched outside operators": ("launch_without_op_ns", "memory"),
}


def utilization(con: duckdb.DuckDBPyConnection, subject: Subject) -> Section:
    """Return the section. It states the reason if nothing is modeled or the peaks of the device are unknown."""
    covered = rows_of(con, f"SELECT * FROM op_work_coverage WHERE trace_id = {subject.shown_id}")
    if not covered:
        return section("utilization", "Utilization", missing(f"{label(subject.shown)} has no GPU work"))
    body = _coverage(covered[0])
    peaks = rows_of(
        con, f"SELECT name, device_key FROM trace_devices WHERE trace_id = {subject.shown_id} ORDER BY device"
    )
    if not any(row["device_key"] for row in peaks):
        names = ", ".join(row["name"] or "without a name" for row in peaks) or "the trace does not name its device"
        body.append(missing(f"peaks of the device are unknown ({names}), so nothing is compared with them"))
    elif covered[0]["n_ops_modelled"]:
        body.append(figure(picture(con, subject.shown["trace_id"], "utilization")))
        body += _roofline(con, subject)
    tables = (part(con, subject) for part in (_steps, _pipeline, _families, _modules, _ops))
    note = (
        f"{of_shown(subject)}Operations and bytes that operators require, relative to data-sheet peaks. fp32 is compared with the fp32 peak; "
        "if TF32 was used, MFU is too high. Values above 1.05 are kept and marked."
    )
    return section(
        "utilization", "Utilization", body, *tables, note=note, docs=("modelling.md", "hardware utilization")
    )


def _coverage(row: Row) -> list[Block]:
    columns = [
        *(
            Column("coverage", "GPU time with a model", share),
            Column("n_ops_modelled", "operators with a model", count),
        ),
        *(Column("n_ops", "of operators", count), Column("flops_matrix", "matrix operations", count)),
        Column("bytes", "bytes", count),
    ]
    parts = [Part(kind, row[key], time(row[key])) for kind, (key, _) in _MODELLED.items()]
    colours = {kind: style for kind, (_, style) in _MODELLED.items()}
    why = "no operator has a model: record shapes (record_shapes=True) to count operations"
    divided = [bars([("GPU time", parts)], colours), table("op_work_coverage", columns, [row])]
    return divided if row["n_ops_modelled"] else [*divided, missing(why)]


def _roofline(con: duckdb.DuckDBPyConnection, subject: Subject) -> list[Block]:
    rows = rows_of(
        con,
        f"SELECT * FROM op_shape_utilization WHERE trace_id = {subject.shown_id} AND peak_kind = 'datasheet' "
        f"ORDER BY gpu_ns DESC, op, dims, dtype LIMIT {_DRAWN}",
    )
    if con.execute("SELECT 1 FROM counter_files LIMIT 1").fetchall():
        query = f"SELECT op, dims, dtype, bytes_measured, bytes_modelled FROM op_bytes_measured WHERE trace_id = {subject.shown_id}"
        bytes_of = {(record["op"], record["dims"], record["dtype"]): record for record in rows_of(con, query)}
        rows = [{**row, **bytes_of.get((row["op"], row["dims"], row["dtype"]), {})} for row in rows]
    drawn = roofline(f"roofline of {label(subject.shown)}", rows)
    return [figure(drawn)] if drawn else []


def _steps(con: duckdb.DuckDBPyConnection, subject: Subject) -> list[Block]:
    rows = rows_of(
        con,
        f"SELECT * FROM span_utilization WHERE trace_id = {subject.shown_id} AND kind = 'step' "
        f"AND phase = 'window' ORDER BY wall_ns DESC, span_id, peak_kind LIMIT {_STEPS}",
    )
    columns = [
        *(Column("name", "step"), Column("wall_ns", "host", time), _BUSY, _COVERAGE),
        *(Column("mfu_wall", "MFU, host", share), _MFU, Column("hfu_busy", "HFU, GPU busy", share)),
        *(_BANDWIDTH, _ROOFLINE, _LIMIT, _PEAKS),
    ]
    why = "there are no profiler steps with GPU work"
    return titled("steps, longest first", "span_utilization", columns, rows, why)


def _pipeline(con: duckdb.DuckDBPyConnection, subject: Subject) -> list[Block]:
    rows = rows_of(
        con,
        f"SELECT *, NULL AS exposed_wait_ns FROM step_pipeline WHERE trace_id = {subject.shown_id} "
        f"ORDER BY duration_ns DESC, step LIMIT {_STEPS}",
    )
    if (
        subject.capture_id and subject.shown["rank"] is not None
    ):  # the waiting of this rank, which only a comparison with other ranks shows
        exposed = rows_of(
            con,
            "SELECT step, exposure_ratio, exposed_transfer_percent AS exposed_communication_percent, exposed_wait_ns "
            f"FROM step_exposure WHERE capture_id = {quoted(subject.capture_id)} AND rank = {subject.shown['rank']}",
        )
        values_by_step = {
            record["step"]: {key: value for key, value in record.items() if value is not None} for record in exposed
        }
        rows = [{**row, **values_by_step.get(row["step"], {})} for row in rows]
    columns = [
        *(Column("step", "step", count), Column("duration_ns", "took", time), Column("load_ns", "loading", time)),
        *(Column("comp_ns", "computing", time), Column("save_ns", "saving", time)),
        *(Column("efficiency", "efficiency", ratio), Column("dragging_stage", "dragging", in_words)),
        Column("loader_stall_ns", "loader stalls", time),
        *(
            Column("exposure_ratio", "exposure", ratio),
            Column("exposed_communication_percent", "communication exposed", percent),
        ),
        *(Column("exposed_wait_ns", "waiting for ranks", time), Column("bubble_upper", "bubble, at most", share)),
    ]
    return titled("steps as pipelines", "step_pipeline", columns, rows, "there are no profiler steps")


def _families(con: duckdb.DuckDBPyConnection, subject: Subject) -> list[Block]:
    rows = rows_of(
        con,
        f"SELECT * FROM family_utilization WHERE trace_id = {subject.shown_id} "
        "ORDER BY gpu_ns DESC, family, dtype, not_modelled, peak_kind",
    )
    columns = [
        *(
            Column("family", "family", words),
            Column("dtype", "type", words),
            Column("not_modelled", "no model", in_words),
        ),
        *(Column("n_ops", "operators", count), Column("gpu_ns", "GPU time", time)),
        *(Column("flops_matrix", "matrix operations", count), Column("bytes", "bytes", count)),
        *(Column("mfu", "MFU", share), _MFU_TF32, _BANDWIDTH, _ROOFLINE, _PEAKS),
    ]
    return titled("families of operators", "family_utilization", columns, rows, "no GPU work belongs to an operator")


def _modules(con: duckdb.DuckDBPyConnection, subject: Subject) -> list[Block]:
    rows = rows_of(
        con,
        f"SELECT * FROM span_name_utilization WHERE trace_id = {subject.shown_id} AND kind = 'module' "
        f"AND coalesce(peak_kind, 'datasheet') = 'datasheet' ORDER BY busy_ns DESC, name, phase",
    )
    rows = folded(rows, ("n_spans", "busy_ns"), alike=("phase", "bound_by"))[:_MODULES]
    columns = [
        *(Column("name", "module"), Column("phase", "phase", in_words), Column("n_spans", "calls", count)),
        *(_BUSY, _COVERAGE, _MFU, _BANDWIDTH, _ROOFLINE, _LIMIT),
    ]
    why = "the trace names no modules"
    return titled("modules with the most GPU time", "span_name_utilization", columns, rows, why)


def _ops(con: duckdb.DuckDBPyConnection, subject: Subject) -> list[Block]:
    rows = rows_of(
        con,
        "SELECT *, gpu_ns - roofline_ns AS above_ns FROM op_shape_utilization "
        f"WHERE trace_id = {subject.shown_id} AND peak_kind = 'datasheet' "
        f"ORDER BY above_ns DESC NULLS LAST, op, dims, dtype LIMIT {_OPS}",
    )
    columns = [
        *(Column("op", "operator"), Column("dims", "shapes", shapes), Column("dtype", "type", words)),
        *(Column("n_ops", "calls", count), Column("gpu_ns", "GPU time", time)),
        Column("above_ns", "above it", time, "GPU time less the larger ideal time of each call, ns."),
        *(Column("tflops", "TFLOP/s", ratio), Column("gigabytes_per_s", "GB/s", ratio), Column("mfu", "MFU", share)),
        *([_MFU_TF32] if any(row["mfu_tf32"] != row["mfu"] for row in rows) else []),
        *(_BANDWIDTH, _ROOFLINE, _LIMIT),
    ]
    title = "operators with the most time above their roofline, calls of equal shapes grouped"
    why = "no operator has a model and a peak"
    return titled(title, "op_shape_utilization", columns, rows, why)
