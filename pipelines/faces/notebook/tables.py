"""Tables of a lake as Ibis expressions with the rows of some traces, and the aggregates that HTA's methods return."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pipelines.faces.notebook.sources import RankTrace
from pipelines.lake.lake import Lake

if TYPE_CHECKING:
    import ibis.expr.types as ir

# Tables used in expressions are typed Any: what a column supports depends on its type in the lake, unknown to a
# checker.


def of_traces(lake: Lake, names: Iterable[str], traces: Iterable[RankTrace]) -> list[ir.Table]:
    """Returns tables of one backend. Tables with a trace_id have only the rows of `traces`."""
    from pipelines.faces.ibis_tables import open_tables

    listed = list(names)
    backend, mine = open_tables(lake, *listed), _ranks(traces)
    show_rows()
    found = [backend.table(name) for name in listed]
    return [table.semi_join(mine, "trace_id") if "trace_id" in table.columns else table for table in found]


def with_rank(lake: Lake, name: str, traces: Iterable[RankTrace]) -> ir.Table:
    """Returns a table's rows of `traces`, with the rank as the first column."""
    from pipelines.faces.ibis_tables import open_tables

    joined = open_tables(lake, name).table(name).join(_ranks(traces), "trace_id")
    show_rows()
    return joined.relocate("rank", before="trace_id")


def show_rows() -> None:
    """In IPython and Jupyter, have Ibis show an expression's first rows instead of its text; elsewhere nothing changes."""
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


def profiler_steps(events: Any) -> list[int]:
    """Returns the numbers in the names of the annotations `ProfilerStep#…`."""
    steps = events.filter(events.cat == "user_annotation", events.name.startswith("ProfilerStep#"))
    names: list[str] = steps.select("name").distinct().to_pyarrow()["name"].to_pylist()
    return sorted({int(number) for name in names if (number := name.partition("#")[2]).isdecimal()})


def overlap(breakdown: Any) -> ir.Table:
    """Returns the hidden part of communication in percent, from table `temporal_breakdown`."""
    hidden = breakdown.communication_ns - breakdown.exposed_communication_ns
    percent = 100.0 * hidden / breakdown.communication_ns.nullif(0)
    return breakdown.select("rank", "trace_id", "device", "communication_ns", comp_comm_overlap_percent=percent)


def kernel_classes(intervals: Any, with_memory: bool) -> ir.Table:
    """Returns the busy time of each class, from table `merged_intervals`."""
    left_out = ["all"] if with_memory else ["all", "MEMORY"]
    kept = intervals.filter(intervals.scope.notin(left_out))
    summed = kept.group_by(kept.rank, kept.trace_id, kept.device, **{"class": kept.scope}).agg(
        busy_ns=(kept.end_ns - kept.start_ns).sum(), n_kernels=kept.n_kernels.sum()
    )
    return summed.order_by("rank", "device", summed.busy_ns.desc())


def kernel_names(kernels: Any, most: int | None, with_memory: bool) -> ir.Table:
    """Returns the times of each kernel name, from table `kernels`."""
    import ibis

    kept = kernels if with_memory else kernels.filter(kernels["class"] != "MEMORY")
    time = kept.duration_ns
    summed = kept.group_by("rank", "trace_id", "class", "name").agg(
        n=kept.count(), sum_ns=time.sum(), max_ns=time.max(), min_ns=time.min(), mean_ns=time.mean(), std_ns=time.std()
    )
    if most is not None:
        of_class = ibis.window(
            group_by=["rank", "trace_id", "class"], order_by=[summed.sum_ns.desc(), summed.name.asc()]
        )
        numbered = summed.mutate(place=ibis.row_number().over(of_class))
        summed = numbered.filter(numbered.place < most).drop("place")
    return summed.order_by("rank", "class", summed.sum_ns.desc(), "name")


def queue_summary(queue: Any) -> ir.Table:
    """Returns the statistics of a data frame's `describe`, from table `queue_length`."""
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
    """Returns the time with a full queue: from each change that leaves it full to the next change; from `queue_length`."""
    import ibis

    of_stream = ibis.window(
        group_by=["trace_id", "rank", "device", "stream"],
        order_by=[queue.at_ns, queue.change.desc(), queue.event_id],
    )
    lasting = queue.mutate(lasts_ns=queue.at_ns.lead().over(of_stream) - queue.at_ns)
    full = lasting.filter(lasting.queue_length >= at_least)
    summed = full.group_by("rank", "trace_id", "device", "stream").agg(full_ns=full.lasts_ns.sum())
    return summed.order_by("rank", "device", "stream")
