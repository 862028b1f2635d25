"""The tables that a fleet needs every day: for its pages, metrics, regressions and alerts, and for `why`."""

from __future__ import annotations

from functools import cache

from pipelines.faces.capture_why import TABLES as _WHY_CAPTURE
from pipelines.faces.why import TABLES as _WHY
from pipelines.fleet.trends.fleet_today import TABLES as _TODAY
from pipelines.models.catalog import load_catalog

FLEET_TABLES = tuple(dict.fromkeys((*_TODAY, *_WHY, *_WHY_CAPTURE)))
"""The trace tables that these tables read are computed and stored together with the capture tables that read them."""
_DAILY = ("quality", "rank_steps")
"""`quality` has the check that reports traces on which a model failed.

Without it, the step that computes tables would fail instead. `rank_steps` has a picture, and reads only tables that the
others need, too.
"""


@cache
def daily_tables() -> frozenset[str]:
    """Return the stored tables that a daily run in Dagster computes.

    They include the trace tables that the capture tables read, so that the path is computed once, in the same step.
    """
    from pipelines.runs.materialize.per_capture import trace_tables

    catalog, tables = load_catalog(), {*FLEET_TABLES, *_DAILY}
    inputs = trace_tables(catalog, tables & {*catalog.of_captures})
    return frozenset({*tables, *inputs} & {*catalog.materialized, *catalog.of_captures})
