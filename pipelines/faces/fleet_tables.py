"""The tables that a fleet needs every day: for its pages, metrics, regressions and alerts, and for `why`."""

from __future__ import annotations

from pipelines.faces.capture_why import TABLES as _WHY_CAPTURE
from pipelines.faces.why import TABLES as _WHY
from pipelines.fleet.trends.fleet_today import TABLES as _TODAY

FLEET_TABLES = tuple(dict.fromkeys((*_TODAY, *_WHY, *_WHY_CAPTURE)))
"""Their inputs among the tables of traces are computed and stored with the tables of captures that read them."""
