"""The results of a run for Dagster: rows, seconds, pictures, and column lineage of its tables."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import dagster as dg

from assets.lineage import column_lineage
from assets.metadata import Span, shown
from assets.pictures import pictures
from pipelines.lake import Lake
from pipelines.runs.materialize.publishing import Materialized


def results(
    lake: Lake, tables: Iterable[str], span: Span, done: Iterable[Materialized]
) -> Iterator[dg.MaterializeResult]:
    """Returns one result per table, including those that were up to date."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for step in done:
        seconds[step.table] += step.seconds
    for name in tables:
        metadata = {
            **shown(lake, name, span),
            "seconds": seconds.get(name, 0.0),
            "computed": name in seconds,
            **pictures(lake, name),
        }
        lineage = column_lineage(name)
        yield dg.MaterializeResult(
            name, metadata={**metadata, **({"dagster/column_lineage": lineage} if lineage else {})}
        )
