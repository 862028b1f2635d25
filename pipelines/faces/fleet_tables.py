"""The tables that a fleet needs every day: for its pages, metrics, regressions and alerts, and for `why`."""

from __future__ import annotations

from functools import cache

from pipelines.faces.capture_why import TABLES as _WHY_CAPTURE
from pipelines.faces.why import TABLES as _WHY
from pipelines.fleet.trends.fleet_today import TABLES as _TODAY
from pipelines.models.catalog import load_catalog

FLEET_TABLES = tuple(dict.fromkeys((*_TODAY, *_WHY, *_WHY_CAPTURE)))
"""Their inputs among the tables of traces are computed and stored with the tables of captures that read them."""
_DAILY = ("quality", "rank_steps")
"""`quality` has the check that reports traces on which a model failed; without it, the step that computes would fail.
`rank_steps` has a picture, and reads no table that the others do not need."""


@cache
def daily_tables() -> frozenset[str]:
    """Return the stored tables that a daily run in Dagster computes.

    The tables of traces that those of captures read are among them, so the path is computed once, in the same step.
    """
    from pipelines.runs.materialize.per_capture import trace_tables

    catalog, tables = load_catalog(), {*FLEET_TABLES, *_DAILY}
    inputs = trace_tables(catalog, tables & {*catalog.of_captures})
    return frozenset({*tables, *inputs} & {*catalog.materialized, *catalog.of_captures})
