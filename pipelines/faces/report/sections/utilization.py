"""Section on hardware utilization relative to the peaks: by steps, families of operators, modules and operators."""

from __future__ import annotations

from markupsafe import Markup

from pipelines.base.units import time
from pipelines.faces.report.blocks import Part, Section, section
from pipelines.faces.report.folded_rows import folded
from pipelines.faces.report.macros import bars, macros
from pipelines.faces.report.pictures.roofline import roofline
from pipelines.faces.report.sections.measured import has_counters
from pipelines.faces.report.sections.spans import picture
from pipelines.faces.report.subject import Row, Subject, of_shown
from pipelines.faces.report.tables import answer, table

_OPS, _DRAWN = 12, 300
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


def utilization(subject: Subject) -> Section:
    """Return the section on hardware utilization.

    If no operator has a model, or the peaks of the device are unknown, the section states that.
    """
    covered = subject.rows("work-coverage")
    if not covered:
        return section("utilization", "Utilization", macros.missing(f"{subject.label} has no GPU work"))
    shapes = subject.rows("shape-peaks")
    modules = folded(subject.rows("module-peaks"), ("n_spans", "busy_ns"), alike=("phase", "bound_by"))
    note = (
        f"{of_shown(subject)}Operations and bytes that operators require, relative to data-sheet peaks. fp32 is compared with the fp32 peak; "
        "if TF32 was used, MFU is too high. Values above 1.05 are kept and marked."
    )
    return section(
        "utilization",
        "Utilization",
        _coverage(covered[0]),
        _pictures(subject, covered[0], shapes),
        answer(subject, "step-peaks"),
        table("step-stages", _stages(subject)),
        answer(subject, "family-peaks"),
        table("module-peaks", modules),
        table("shape-peaks", _without_tf32(shapes[:_OPS])),
        note=note,
        docs=("modelling.md", "hardware utilization"),
    )


def _coverage(row: Row) -> Markup:
    parts = [Part(kind, row[key], time(row[key])) for kind, (key, _) in _MODELLED.items()]
    colours = {kind: style for kind, (_, style) in _MODELLED.items()}
    why = "no operator has a model: record shapes (record_shapes=True) to count operations"
    divided = bars([("GPU time", parts)], colours) + table("work-coverage", [row])
    return divided if row["n_ops_modelled"] else divided + macros.missing(why)


def _pictures(subject: Subject, covered: Row, shapes: list[Row]) -> Markup:
    """Return the layers of the longest step and the roofline, or the reason if the peaks of the device are unknown."""
    devices = subject.rows("devices")
    if not any(row["device_key"] for row in devices):
        names = ", ".join(row["name"] or "without a name" for row in devices if row["device"] is not None)
        names = names or "the trace does not name its device"
        return macros.missing(f"peaks of the device are unknown ({names}), so nothing is compared with them")
    if not covered["n_ops_modelled"]:
        return Markup()
    if has_counters(subject):
        measured = {_key(row): row for row in subject.rows("counted-bytes")}
        fields = ("bytes_measured", "bytes_modelled")
        shapes = [{**row, **{f: measured.get(_key(row), {}).get(f) for f in fields}} for row in shapes]
    shapes = sorted(shapes, key=lambda row: (-row["gpu_ns"], row["op"], row["dims"] or "", row["dtype"] or ""))
    drawn = roofline(f"roofline of {subject.label}", shapes[:_DRAWN])
    layers = macros.figure(picture(subject.con, subject.shown["trace_id"], "utilization"))
    return layers + macros.figure(drawn) if drawn else layers


def _key(row: Row) -> tuple[str, str, str]:
    return row["op"], row["dims"], row["dtype"]


def _stages(subject: Subject) -> list[Row]:
    """Return the steps, with the shown rank's exposed communication, which only a comparison with other ranks shows."""
    exposures = [row for row in subject.rows_of_capture("step-exposures") if row["rank"] == subject.shown["rank"]]
    by_step = {row["step"]: {key: value for key, value in row.items() if value is not None} for row in exposures}
    return [{**row, **by_step.get(row["step"], {})} for row in subject.rows("step-stages")]


def _without_tf32(rows: list[Row]) -> list[Row]:
    """Return the rows without `mfu_tf32` if it is the same as `mfu` in all of them."""
    same = all(row["mfu_tf32"] == row["mfu"] for row in rows)
    return [{**row, "mfu_tf32": None} for row in rows] if same else rows
