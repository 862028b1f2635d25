"""Section on the shown rank's kernels and operators with hardware counters of another run."""

from __future__ import annotations

import duckdb

from pipelines.base.database import rows_of
from pipelines.base.kernel_names import short_names
from pipelines.base.units import count, percent, size, time
from pipelines.faces.report.blocks import Column, Section, more, section, table, titled
from pipelines.faces.report.formats import shapes, short_name, words
from pipelines.faces.report.subject import Subject, of_shown

_SHOWN, _NAME = 20, 60
_HOW = (
    "How counters met kernels: order (the n-th met the n-th of the same name, grid and block), shape (their mean), name (the "
    "trace tells no grid)."
)
_KERNELS = [
    *(Column("shown", "kernel", short_name), Column("grid", "grid", words), Column("block", "block", words)),
    *(Column("n_kernels", "times", count), Column("duration_ns", "GPU time", time)),
    *(Column("n_measured", "measured", count), Column("matched_by", "met by", words, _HOW)),
    *(Column("occupancy_percent", "occupancy", percent), Column("l1_hit_percent", "L1 hits", percent)),
    *(Column("l2_hit_percent", "L2 hits", percent), Column("tensor_percent", "tensor cores", percent)),
    *(Column("bytes_read", "read", size), Column("bytes_written", "written", size)),
    Column(
        "bandwidth_percent",
        "of bandwidth",
        percent,
        "Bytes read and written over the trace's time and the data sheet's bandwidth.",
    ),
]
_OPERATORS = [
    *(Column("op", "operator"), Column("dims", "shapes", shapes), Column("n_ops", "times", count)),
    *(Column("bytes_modelled", "bytes by the model", size), Column("bytes_measured", "measured", size)),
    Column("bytes_read", "of them read", size),
]


def measured(con: duckdb.DuckDBPyConnection, subject: Subject) -> Section | None:
    """Return the section, or None if the lake has no counter files or no kernel of the trace has counters."""
    if not con.execute("SELECT 1 FROM counter_files LIMIT 1").fetchall():  # the views below would read all kernels
        return None
    condition = f"WHERE trace_id = {subject.shown_id}"
    rows = rows_of(
        con,
        f"SELECT * FROM kernels_measured {condition} AND n_measured > 0 ORDER BY duration_ns DESC, name, grid, block",
    )
    if not rows:
        return None
    top_rows = rows[:_SHOWN]
    for row, name in zip(top_rows, short_names((row["name"] for row in top_rows), _NAME), strict=True):
        row["shown"] = (row["name"], name)
    operators = rows_of(
        con,
        f"SELECT * FROM op_bytes_measured {condition} ORDER BY bytes_modelled DESC NULLS LAST, op, dims LIMIT {_SHOWN}",
    )
    why = "no operator of the trace launched a kernel that was measured"
    note = (
        f"{of_shown(subject)}Counters are of another run, in which kernels are slower: times here are the trace's. What was not "
        "measured is empty."
    )
    return section(
        "measured",
        "Measured kernels",
        table("kernels_measured", _KERNELS, top_rows),
        more(rows, _SHOWN, "kinds of kernels in table kernels_measured"),
        titled("bytes of operators", "op_bytes_measured", _OPERATORS, operators, why),
        note=note,
        docs=("hardware-counters.md", "hardware counters"),
    )
