"""The answer on the start page: why the newest capture, or the newest trace, takes as long as it does."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from pipelines.base.foreign_text import visible
from pipelines.faces.capture_why import CaptureWhy, capture_why_from_queries
from pipelines.faces.limiting_findings import findings_of_trace, with_findings, worded
from pipelines.faces.untrusted_queries import LakeQuery, QueryFailed, first_rows
from pipelines.faces.why import Why, on_a_screen, why_from_queries

# The newest trace, and which answers exist for it. The query reads every table of the answer, so its caveats cover all
# of them.
NEWEST = """
SELECT
    trace_id, capture_id, file, job, rank,
    EXISTS (SELECT 1 FROM capture_causes AS c JOIN capture_paths AS p USING (capture_id)
        WHERE c.capture_id = newest.capture_id) AS is_capture,
    EXISTS (SELECT 1 FROM causes AS c JOIN window_gpu_time AS w USING (trace_id, window_id)
        WHERE c.trace_id = newest.trace_id) AS is_computed,
    (SELECT count(*) FROM critical_path_caveats AS c WHERE c.trace_id = newest.trace_id) AS n_caveats,
    (SELECT count(*) FROM profiler_cost AS c WHERE c.trace_id = newest.trace_id) AS n_costs,
    (SELECT count(*) FROM causes_without_profiler AS c WHERE c.trace_id = newest.trace_id) AS n_causes_without_profiler,
    (SELECT count(*) FROM fixes AS f WHERE f.trace_id = newest.trace_id) AS n_fixes,
    (SELECT count(*) FROM capture_quality AS f JOIN capture_ranks USING (capture_id)
        WHERE f.capture_id = newest.capture_id) AS n_capture_findings,
    (SELECT count(*) FROM capture_fixes AS f WHERE f.capture_id = newest.capture_id) AS n_capture_fixes
FROM (
    SELECT * FROM traces
    ORDER BY status = 'partial' AND started_at IS NULL, -- ends early and says not when: old, for all we know
        ingested_at DESC, started_at DESC NULLS LAST, rank NULLS LAST, trace_id
    LIMIT 1
) AS newest
"""
_NAMES = 3  # maximum number of names of a cause
_MOST_ROWS, _MOST_BYTES = 100_000, 16_000_000


def newest_why(asking: LakeQuery) -> dict[str, Any]:
    """Return the title, id, sentence, causes and caveats of the newest capture or trace, as human-readable texts.

    `asking` starts with the query NEWEST and runs all further queries, so stopping it stops them all. Raise QueryFailed if the
    lake has no traces, QueryStopped if the query is stopped.
    """
    rows, caveats = _asked(asking, NEWEST)
    if not rows:
        lake = shlex.quote(str(asking.lake))
        raise QueryFailed(f"no traces in the lake {asking.lake}", f"Ingest some: tracelake ingest FILES --lake {lake}")
    (newest,) = rows
    answer = _answer(asking, newest)
    ident = newest["capture_id" if isinstance(answer, CaptureWhy) else "trace_id"]
    answer_texts = {
        "title": visible(_title(newest, answer)),
        "id": ident,
        "caveats": [visible(cause) for cause in caveats],
    }
    if answer is None:
        lacks = (
            "is not computed yet: the caveats say how" if caveats else "has no answer: the trace has no critical path"
        )
        return {**answer_texts, "sentence": f"Why it takes as long as it does {lacks}.", "causes": [], "rest": ""}
    of_answer = worded(answer.caveats, newest["file"])
    if isinstance(answer, Why):  # the caveats of a capture's answer include its findings already
        of_answer = with_findings(
            of_answer, findings_of_trace(lambda query: _asked(asking, query)[0], newest["trace_id"])
        )
    answer_texts["caveats"] += [visible(caveat["detail"]) for caveat in of_answer]
    on_screen, remaining = on_a_screen(answer.causes)
    less = ", ".join(cause.title for cause in remaining)
    return {
        **answer_texts,
        "sentence": visible(answer.sentence),
        "causes": [_cause(cause, answer, ident, asking.lake) for cause in on_screen],
        "rest": f"{sum(cause.share for cause in remaining):.1f} %: {less}" if remaining else "",
    }


def _cause(cause: Any, answer: Why | CaptureWhy, ident: str, lake: Path | str) -> dict[str, str]:
    command = (
        f"{cause.command(ident, answer.options())} --lake {shlex.quote(str(lake))}" if isinstance(lake, Path) else ""
    )
    texts = {
        "share": f"{cause.share:.1f} %",
        "description": cause.description(answer.steps),
        "doubt": answer.caveat_for(cause),
        "names": cause.names(_NAMES),
        "advice": cause.advice,
        "command": command,
    }
    return {key: visible(text) for key, text in texts.items()}


def _answer(asking: LakeQuery, newest: dict[str, Any]) -> Why | CaptureWhy | None:
    def ask(query: str) -> list[dict[str, Any]]:
        return _asked(asking, query)[0]

    if newest["is_capture"] and (capture_answer := capture_why_from_queries(ask, newest["capture_id"])):
        return capture_answer
    return why_from_queries(ask, newest["trace_id"]) if newest["is_computed"] else None


def _title(newest: dict[str, Any], answer: Why | CaptureWhy | None) -> str:
    job = f" of job {newest['job']}" if newest["job"] else ""
    if isinstance(answer, CaptureWhy):
        return f"The newest capture{job}"
    rank = "" if newest["rank"] is None else f", rank {newest['rank']}"
    return f"The newest trace{job}: {newest['file']}{rank}"


def _asked(asking: LakeQuery, query: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows of a query by column name, and their caveats."""
    asking.query = query
    with asking.answer() as (answer, caveats):
        result = first_rows(answer, _MOST_ROWS, _MOST_BYTES)
    return [dict(zip(result.columns, row, strict=True)) for row in result.rows], caveats
