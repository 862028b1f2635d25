"""Pictures as asset metadata: layers of the newest trace and recorded run, ranks of the newest and the worst capture.

The metadata also states why each of the newest traces takes as long as it does, with a bar of its causes, and what
would help.
"""

import base64
from pathlib import Path

import dagster as dg
import duckdb

from assets.metadata import WHOLE, markdown_table
from pipelines.base.foreign_text import in_markdown
from pipelines.faces.report.pictures.cause_lanes import cause_lanes
from pipelines.faces.report.sections.ranks import rank_map_svg
from pipelines.faces.report.sections.spans import picture, sampled_layers
from pipelines.faces.what_helps import SHOWN, change_of, saving_of
from pipelines.faces.why import TABLES, Why, why
from pipelines.fleet.stragglers import stragglers_of
from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import analyst
from pipelines.lake.read.damage import BrokenFiles

_TRACE = """
    SELECT t.trace_id, t.path FROM traces AS t SEMI JOIN span_utilization AS u ON u.trace_id = t.trace_id
    ORDER BY t.ingested_at DESC, t.trace_id LIMIT 1
"""
_ANSWERED = ("critical_path", "causes", "fixes")
"""Tables whose pages show the answer to why."""
_SAMPLED = ("span_samples", "span_sample_operators", "span_sample_modules", "recordings")
"""Stored tables from which the pictures of recordings are drawn. The page of the first table shows them."""
_MOST_TRACES = 10
_CAPTURES = """
    SELECT c.capture_id, c.job, coalesce(max(s.marginal_percent), 0) AS worst
    FROM captures AS c
    LEFT JOIN straggler_ranks AS s USING (capture_id)
    LEFT JOIN traces AS t ON t.capture_id = c.capture_id
    WHERE NOT c.is_gone AND c.n_ranks > 1 GROUP BY c.capture_id, c.job
    ORDER BY max(t.ingested_at) DESC, c.capture_id
"""


def pictures(lake: Lake, table: str) -> dict[str, dg.MetadataValue]:
    """Return the pictures of a table by name. Empty for most tables, or if there is nothing to draw.

    If files of the lake are damaged, return a sentence that names them. They may be of another day than the run's.
    """
    try:
        return _drawn(lake, table) if lake.exists else {}
    except BrokenFiles as error:
        return {"not_drawn": dg.MetadataValue.text(str(error))}


def _drawn(lake: Lake, table: str) -> dict[str, dg.MetadataValue]:
    if table == "span_utilization":  # not in the analyst file yet, because the run publishes later
        with lake.connect(("traces", "spans", table)) as con:
            svg_by_name = _layers(con)
    elif table in _ANSWERED and all(lake.committed_files(name) for name in TABLES):  # a run may compute only some
        with lake.connect(("traces", *TABLES)) as con:
            return _why(con)
    elif table == "rank_steps":
        with analyst(lake) as con:
            svg_by_name = _rank_map(con)
    elif table == _SAMPLED[0] and lake.committed_files(table):
        if broken := lake.broken(_SAMPLED):  # else a query, and with it the ingesting run, would fail
            raise BrokenFiles(broken)
        with analyst(lake) as con:
            svg_by_name = sampled_layers(con)
    else:
        return {}
    return {name: image(name, svg) for name, svg in svg_by_name.items() if svg}


def _why(con: duckdb.DuckDBPyConnection) -> dict[str, dg.MetadataValue]:
    """Return the answer of `tracelake why` for each of the newest traces: sentence, caveats, fixes and a picture."""
    newest = con.execute(
        f"SELECT trace_id, file FROM traces ORDER BY ingested_at DESC, trace_id LIMIT {_MOST_TRACES}"
    ).fetchall()
    answers = [(file, answer) for trace_id, file in newest if (answer := why(con, trace_id))]
    if not answers:
        return {}
    title = "where the time goes: causes of the newest traces"
    svg = cause_lanes(title, answers)
    sentences = markdown_table(["trace", "why", "caveats"], [_sentence(*row) for row in answers], WHOLE)
    changes = markdown_table(
        ["trace", "what would help", "saves"], [fix for row in answers for fix in _fixes(*row)], 400
    )
    file, answer = answers[0]
    entries: dict[str, dg.MetadataValue] = {
        # The UI shows long Markdown only on a click.
        "newest_trace": dg.MetadataValue.text(f"{file}: {answer.sentence}"),
        "why": dg.MetadataValue.md(sentences),
        "what_would_help": dg.MetadataValue.md(changes),
    }
    return {**entries, **({title: image(title, svg)} if svg else {})}


def _sentence(file: str, answer: Why) -> tuple[str, str, str]:
    limits = "; ".join(row["detail"] for row in answer.caveats if row["severity"] != "info")
    return file, answer.sentence, limits


def _fixes(file: str, answer: Why) -> list[tuple[str, str, str]]:
    return [
        (file, change_of(row), f"{saving_of(row, answer.steps)} ({row['saves_percent']:.1f} %)")
        for row in answer.fixes[:SHOWN]
    ]


def image(name: str, svg: str) -> dg.MetadataValue:
    """Return an SVG as metadata that the UI shows."""
    return dg.MetadataValue.md(
        f"![{in_markdown(name)}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"
    )


def _layers(con: duckdb.DuckDBPyConnection) -> dict[str, str | None]:
    row = con.execute(_TRACE).fetchone()
    if not row:
        return {}
    trace_id, path = row
    return {f"layers of the newest trace, {Path(path).name}": picture(con, trace_id, "utilization")}


def _rank_map(con: duckdb.DuckDBPyConnection) -> dict[str, str | None]:
    """Return the rank maps of the newest capture and, if different, of the capture that would gain most without its straggler."""
    captures = con.execute(_CAPTURES).fetchall()
    if not captures:
        return {}
    newest, worst = captures[0], max(captures, key=lambda row: row[2])
    captures_to_draw = {"newest": newest} | ({"worst": worst} if worst is not newest else {})
    return {
        f"ranks by steps of the {which} capture, {_named(job, capture)}": rank_map_svg(
            stragglers_of(con, capture), f"{_named(job, capture)}: the {which}"
        )
        for which, (capture, job, _) in captures_to_draw.items()
    }


def _named(job: str | None, capture: str) -> str:
    return f"{job or 'no job'} {capture[:12]}"
