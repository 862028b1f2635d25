"""Tables of a lake as Ibis expressions, limited to some traces, and the aggregates that HTA's methods return."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pipelines.faces.notebook.sources import RankTrace, rank_caveats
from pipelines.lake.lake import Lake

if TYPE_CHECKING:
    import ibis.expr.types as ir

# Tables in expressions are typed Any, because a type checker does not know the types of their columns.


def of_traces(lake: Lake, names: Iterable[str], traces: Iterable[RankTrace]) -> list[ir.Table]:
    """Return tables of one backend. Tables with a trace_id are limited to the rows of `traces`, and `traces` has their ranks."""
    from pipelines.faces.ibis_tables import open_tables

    listed, traces = list(names), list(traces)
    backend, mine = open_tables(lake, *listed), _ranks(traces)
    for caveat in rank_caveats(traces, listed):
        warnings.warn(caveat, stacklevel=4)
    show_rows()
    return [_limited(backend.table(name), name, mine) for name in listed]


def _limited(table: Any, name: str, mine: Any) -> ir.Table:
    if name == "traces":
        return table.drop("rank").join(mine, "trace_id").select(*table.columns)
    return table.semi_join(mine, "trace_id") if "trace_id" in table.columns else table


def with_rank(lake: Lake, name: str, traces: Iterable[RankTrace]) -> ir.Table:
    """Return a table's rows of `traces`, with the rank as the first column."""
    from pipelines.faces.ibis_tables import open_tables

    joined = open_tables(lake, name).table(name).join(_ranks(traces), "trace_id")
    show_rows()
    return joined.relocate("rank", before="trace_id")


def as_ibis(table: Any) -> ir.Table:
    """Return a table in Ibis. `table`: an Ibis table or a pandas data frame."""
    import ibis

    return ibis.memtable(table) if hasattr(table, "iloc") else table


def show_rows() -> None:
    """Make Ibis show the first rows of an expression instead of its text in IPython and Jupyter."""
    import sys

    import ibis

    shell = sys.modules.get("IPython")
    if shell is not None and shell.get_ipython() is not None:
        ibis.options.interactive = True


def _ranks(traces: Iterable[RankTrace]) -> ir.Table:
    import ibis
    import pyarrow as pa

    listed = list(traces)
    columns = {
        "trace_id": pa.array([trace.trace_id for trace in listed], pa.string()),
        "rank": pa.array([trace.rank for trace in listed], pa.int64()),
    }
    return ibis.memtable(pa.table(columns))


def profiler_steps(steps: Any) -> list[int]:
    """Return the numbers of the steps, ascending, from table `profiler_steps`."""
    return sorted(steps.select("step").distinct().to_pyarrow()["step"].to_pylist())


def overlap(breakdown: Any) -> ir.Table:
    """Return the share of communication that is hidden behind computing, in percent, from table `temporal_breakdown`."""
    hidden = breakdown.communication_ns - breakdown.exposed_communication_ns
    percent = 100.0 * hidden / breakdown.communication_ns.nullif(0)
    return breakdown.select("rank", "trace_id", "device", "communication_ns", comp_comm_overlap_percent=percent)


def kernel_classes(intervals: Any, with_memory: bool) -> ir.Table:
    """Return the busy time (ns) and number of kernels of each class, from table `merged_intervals`."""
    left_out = ["all"] if with_memory else ["all", "MEMORY"]
    filtered = intervals.filter(intervals.scope.notin(left_out))
    summed = filtered.group_by(filtered.rank, filtered.trace_id, filtered.device, **{"class": filtered.scope}).agg(
        busy_ns=(filtered.end_ns - filtered.start_ns).sum(), n_kernels=filtered.n_kernels.sum()
    )
    return summed.order_by("rank", "device", summed.busy_ns.desc())


def kernel_names(kernels: Any, most: int | None, with_memory: bool) -> ir.Table:
    """Return statistics of the durations (ns) of each kernel name, from table `kernels`.

    `most`: number of names per rank and class, largest sum first (None: all).
    """
    import ibis

    filtered = kernels if with_memory else kernels.filter(kernels["class"] != "MEMORY")
    time = filtered.duration_ns
    summed = filtered.group_by("rank", "trace_id", "class", "name").agg(
        n=filtered.count(),
        sum_ns=time.sum(),
        max_ns=time.max(),
        min_ns=time.min(),
        mean_ns=time.mean(),
        std_ns=time.std(),
    )
    if most is not None:
        of_class = ibis.window(
            group_by=["rank", "trace_id", "class"], order_by=[summed.sum_ns.desc(), summed.name.asc()]
        )
        numbered = summed.mutate(place=ibis.row_number().over(of_class))
        summed = numbered.filter(numbered.place < most).drop("place")
    return summed.order_by("rank", "class", summed.sum_ns.desc(), "name")


def queue_summary(queue: Any) -> ir.Table:
    """Return the statistics of pandas' `describe` of each stream's queue length, from table `queue_length`."""
    length = queue.queue_length
    summed = queue.group_by("rank", "trace_id", "device", "stream").agg(
        count=length.count(),
        mean=length.mean(),
        std=length.std(),
        min=length.min(),
        p25=length.quantile(0.25),
        p50=length.quantile(0.5),
        p75=length.quantile(0.75),
        max=length.max(),
    )
    return summed.order_by("rank", "device", "stream")


def full_queue(queue: Any, at_least: int) -> ir.Table:
    """Return the time (ns) with a full queue by stream, from table `queue_length`.

    A queue counts as full from a change that fills it until the next change.
    """
    import ibis

    of_stream = ibis.window(
        group_by=["trace_id", "rank", "device", "stream"],
        order_by=[queue.at_ns, queue.change.desc(), queue.event_id],
    )
    lasting = queue.mutate(lasts_ns=queue.at_ns.lead().over(of_stream) - queue.at_ns)
    full = lasting.filter(lasting.queue_length >= at_least)
    summed = full.group_by("rank", "trace_id", "device", "stream").agg(full_ns=full.lasts_ns.sum())
    return summed.order_by("rank", "device", "stream")
