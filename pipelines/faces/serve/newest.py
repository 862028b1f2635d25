"""What the page opens on: why the newest capture, or the newest trace, takes as long as it does."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from pipelines.base.foreign_text import visible
from pipelines.faces.asking import Asking, NotAnswered, first_rows
from pipelines.faces.capture_why import CaptureWhy, asked_capture_why
from pipelines.faces.why import Why, asked_why, on_a_screen

# Of the newest trace, what is there. All tables of the answer are in it: what they lack is told once, by this query.
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
    (SELECT count(*) FROM capture_fixes AS f WHERE f.capture_id = newest.capture_id) AS n_capture_fixes
FROM (
    SELECT * FROM traces
    ORDER BY status = 'partial' AND started_at IS NULL, -- ends early and says not when: old, for all we know
        ingested_at DESC, started_at DESC NULLS LAST, rank NULLS LAST, trace_id
    LIMIT 1
) AS newest
"""
_NAMES = 3  # of a cause
_MOST_ROWS, _MOST_BYTES = 100_000, 16_000_000


def newest_why(asking: Asking) -> dict[str, Any]:
    """Returns the title, the id, the sentence, the causes and the caveats of the newest capture or trace, as texts for people.

    Raises NotAnswered for a lake without traces, QueryStopped. `asking` is that of NEWEST; it asks everything else, so that who
    stops it stops all.
    """
    found, known = _asked(asking, NEWEST)
    if not found:
        lake = shlex.quote(str(asking.lake))
        raise NotAnswered(f"no traces in the lake {asking.lake}", f"Ingest some: tracelake ingest FILES --lake {lake}")
    (newest,) = found
    answer = _answer(asking, newest)
    ident = newest["capture_id" if isinstance(answer, CaptureWhy) else "trace_id"]
    told = {"title": visible(_title(newest, answer)), "id": ident, "caveats": [visible(one) for one in known]}
    if answer is None:
        lacks = "is not computed yet: the caveats say how" if known else "has no answer: the trace has no critical path"
        return {**told, "sentence": f"Why it takes as long as it does {lacks}.", "causes": [], "rest": ""}
    told["caveats"] += [visible(one["detail"]) for one in answer.caveats]
    shown, rest = on_a_screen(answer.causes)
    less = ", ".join(one.title for one in rest)
    return {
        **told,
        "sentence": visible(answer.sentence),
        "causes": [_cause(one, answer, ident, asking.lake) for one in shown],
        "rest": f"{sum(one.share for one in rest):.1f} %: {less}" if rest else "",
    }


def _cause(one: Any, answer: Why | CaptureWhy, ident: str, lake: Path | str) -> dict[str, str]:
    command = (
        f"{one.command(ident, answer.options())} --lake {shlex.quote(str(lake))}" if isinstance(lake, Path) else ""
    )
    told = {
        "share": f"{one.share:.1f} %",
        "told": one.told(answer.steps),
        "doubt": answer.doubt_of(one),
        "names": one.names(_NAMES),
        "advice": one.advice,
        "command": command,
    }
    return {key: visible(text) for key, text in told.items()}


def _answer(asking: Asking, newest: dict[str, Any]) -> Why | CaptureWhy | None:
    def ask(query: str) -> list[dict[str, Any]]:
        return _asked(asking, query)[0]

    if newest["is_capture"] and (of_all := asked_capture_why(ask, newest["capture_id"])):
        return of_all
    return asked_why(ask, newest["trace_id"]) if newest["is_computed"] else None


def _title(newest: dict[str, Any], answer: Why | CaptureWhy | None) -> str:
    job = f" of job {newest['job']}" if newest["job"] else ""
    if isinstance(answer, CaptureWhy):
        return f"The newest capture{job}"
    rank = "" if newest["rank"] is None else f", rank {newest['rank']}"
    return f"The newest trace{job}: {newest['file']}{rank}"


def _asked(asking: Asking, query: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns the rows of one query by column name, and what to know of them."""
    asking.query = query
    with asking.answer() as (answer, known):
        found = first_rows(answer, _MOST_ROWS, _MOST_BYTES)
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows], known
