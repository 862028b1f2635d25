"""Caveats about the traces and captures of a command.

They are printed above its answer, and in `--json` under `caveats`. A command notes its caveats when it opens its
traces. Every answer that it prints afterwards carries them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from rich.text import Text

from pipelines.faces.cli.console import err, on_json, print_above, styled
from pipelines.faces.limiting_findings import (
    LimitingFinding,
    findings_of_captures,
    findings_of_saved,
    findings_of_traces,
    sentences,
)

_noted: dict[tuple[str | None, str, str, str], LimitingFinding] | None = None
"""Noted findings by trace, file, check and detail, or None if the command has opened no trace.

They are global, because a process runs one command at a time.
"""
_notices: dict[tuple[str, str], None] = {}
"""Notices about rows that the tables of the answer do not contain, as (kind, text)."""


def begin() -> None:
    """Clear the noted caveats at the start of a command."""
    global _noted
    _noted = None
    _notices.clear()
    print_above(())


def note(con: Any, id_prefix: str = "") -> None:
    """Note the findings that limit answers about the traces in `con`. `id_prefix`: as `of` in `findings_of_traces`."""
    add(findings_of_traces(con, id_prefix))


def print_caveat(kind: str, text: str) -> None:
    """Print on stderr which rows the answer's tables do not contain, and note it for `--json`.

    `kind`: such as `left out`.
    """
    err.line("[yellow]{}:[/] {}", kind, text)
    _notices[kind, text] = None


def notices() -> list[str]:
    """Return the notices about missing rows as lines for a page, which does not show stderr."""
    return [f"{kind}: {text}" for kind, text in _notices]


def note_captures(con: Any, id_prefix: str = "") -> None:
    """Note the findings that limit answers about the captures in `con` whose ids have the prefix."""
    add(findings_of_captures(con, id_prefix))


def note_saved(meta: dict[str, Any]) -> None:
    """Note the findings about the trace of a saved path. The trace may no longer exist. `meta`: as in SavedPath."""
    add(findings_of_saved(meta))


def add(findings: Iterable[LimitingFinding]) -> None:
    """Note these findings, and queue at most five caveats of each check to be printed above the answer."""
    global _noted
    new = {(finding.trace_id, finding.file, finding.check, finding.detail): finding for finding in findings}
    _noted = (_noted or {}) | new
    print_above(lines_of(_noted.values()))


def lines_of(findings: Collection[LimitingFinding]) -> Iterator[Text]:
    """Yield lines with at most five caveats of each check."""
    yield from (styled("[yellow]caveat:[/] {}", sentence) for sentence in sentences(findings))


def noted() -> list[LimitingFinding]:
    """Return the noted findings."""
    return list((_noted or {}).values())


def lines() -> list[str]:
    """Return the noted caveats, at most five of each check, and the notices, for a page or a pull-request comment."""
    return [*sentences(noted()), *notices()]


def with_caveats(value: Any) -> Any:
    """Return an answer of `--json` with its caveats.

    A row with a `trace_id` gets the caveats of its trace, of the trace that captured its graphs, and of captures. Any
    other row gets the caveats of all traces. Rows of a command that opened no trace get no caveats.
    """
    print_above(())
    if _noted is None and (not _notices or isinstance(value, list)):
        return value
    if isinstance(value, list):
        return [with_caveats(row) if isinstance(row, dict) else row for row in value]
    trace_id = value.get("trace_id")
    about = (None, trace_id, value.get("capture_trace_id"))
    applicable = [finding for finding in noted() if trace_id is None or finding.trace_id in about]
    existing = in_words(value.get("caveats", []))
    known_details = {caveat.get("detail") for caveat in existing if isinstance(caveat, dict)}
    added = [finding.as_json() for finding in applicable if known_details.isdisjoint(_details(finding))]
    notices = [{"caveat": kind.replace(" ", "_"), "severity": "warning", "detail": text} for kind, text in _notices]
    return {**value, "caveats": [*existing, *added, *notices]}


def in_words(caveats: Iterable[Any]) -> list[Any]:
    """Return the caveats of a table. Noted caveats are worded as in answers, which name the file."""
    by_detail = {finding.detail: finding.as_json() for finding in noted()}
    return [
        by_detail.get(caveat.get("detail", ""), caveat) if isinstance(caveat, dict) else caveat for caveat in caveats
    ]


on_json.append(with_caveats)


def is_noted(detail: str) -> bool:
    """Return whether a caveat was noted. A noted caveat is already printed above the answer."""
    return any(detail in _details(finding) for finding in noted())


def _details(finding: LimitingFinding) -> set[str]:
    """Return both texts of a finding: as in tables, which do not name the file, and as in answers."""
    return {finding.detail, finding.as_json()["detail"]}


def end() -> None:
    """Print the caveats to stderr at the end of a command that printed no answer."""
    for line in print_above(()):
        err.print(line, soft_wrap=True)
