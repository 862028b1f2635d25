"""Pictures of the newest data in a lake, as metadata: the layers of a trace, a capture's ranks by steps."""

import base64

import dagster as dg
import duckdb

from pipelines.fleet.stragglers import stragglers_of
from pipelines.foreign_text import in_markdown
from pipelines.lake import Lake
from pipelines.lake.publish import analyst
from pipelines.report.ranks import rank_map_svg
from pipelines.report.spans import picture
from pipelines.sqltext import quoted

_TRACE = """
    SELECT t.trace_id FROM traces AS t SEMI JOIN span_utilization AS u ON u.trace_id = t.trace_id
    ORDER BY t.ingested_at DESC, t.trace_id LIMIT 1
"""
_CAPTURE = "SELECT capture_id FROM captures WHERE NOT is_gone AND n_ranks > 1 ORDER BY batch_id DESC, 1 LIMIT 1"


def pictures(lake: Lake, table: str) -> dict[str, dg.MetadataValue]:
    """Returns the pictures of a table from the lake; none for most tables, or if there is nothing to draw."""
    if not lake.exists:
        return {}
    if table == "span_utilization":  # the run publishes later
        with lake.connect(("traces", "spans", table)) as con:
            drawn = _layers(con)
    elif table == "rank_steps":
        with analyst(lake) as con:
            drawn = _rank_map(con)
    else:
        return {}
    return {name: image(name, svg) for name, svg in drawn.items() if svg}


def image(name: str, svg: str) -> dg.MetadataValue:
    """Returns an SVG as metadata that the UI shows."""
    return dg.MetadataValue.md(
        f"![{in_markdown(name)}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"
    )


def _layers(con: duckdb.DuckDBPyConnection) -> dict[str, str | None]:
    found = con.execute(_TRACE).fetchone()
    return {"layered utilisation": picture(con, quoted(found[0]), "utilization")} if found else {}


def _rank_map(con: duckdb.DuckDBPyConnection) -> dict[str, str | None]:
    found = con.execute(_CAPTURE).fetchone()
    return {"ranks by steps": rank_map_svg(stragglers_of(con, found[0]), f"capture {found[0]}")} if found else {}
