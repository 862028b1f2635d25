"""Caveats about the traces of a command: printed above its answer, and in `--json` under `caveats`.

A command notes its caveats when it opens its traces. Every answer that it prints afterwards carries them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pipelines.faces.cli.console import err, on_json, print_above, styled
from pipelines.faces.incomplete import Incomplete, incomplete_of_saved, incomplete_traces

_SHOWN = 5
_noted: dict[tuple[str, str], Incomplete] | None = None
"""By trace and check. None if the command has opened no trace. A process runs one command at a time."""


def begin() -> None:
    """Clear the noted caveats at the start of a command."""
    global _noted
    _noted = None
    print_above(())


def note(con: Any, id_prefix: str = "") -> None:
    """Note the traces in `con` of which a part of the run is missing.

    `id_prefix`: see `of` of `incomplete_traces`.
    """
    add(incomplete_traces(con, id_prefix))


def note_saved(meta: dict[str, Any]) -> None:
    """Note the trace of a saved path, if it is incomplete. The trace need not exist any more. `meta`: as in SavedPath."""
    add(incomplete_of_saved(meta))


def add(traces: Iterable[Incomplete]) -> None:
    """Note these traces, and queue at most five caveats of each check to be printed above the answer."""
    global _noted
    _noted = (_noted or {}) | {(trace.trace_id, trace.check): trace for trace in traces}
    lines = []
    for check in dict.fromkeys(trace.check for trace in _noted.values()):
        of_check = [
            styled("[yellow]caveat:[/] {}", trace.sentence) for trace in _noted.values() if trace.check == check
        ]
        lines += of_check[:_SHOWN]
        if len(of_check) > _SHOWN:
            lines.append(styled("[yellow]caveat:[/] so do {:,} other files", len(of_check) - _SHOWN))
    print_above(lines)


def noted() -> list[Incomplete]:
    """Return the noted traces."""
    return list((_noted or {}).values())


def with_caveats(value: Any) -> Any:
    """Return an answer of `--json` with its caveats.

    A row with a `trace_id` gets the caveats of its trace, any other row those of all traces.
    """
    print_above(())
    if _noted is None:
        return value
    if isinstance(value, list):
        return [with_caveats(row) if isinstance(row, dict) else row for row in value]
    trace_id = value.get("trace_id")
    applicable = [trace for trace in _noted.values() if trace_id in (None, trace.trace_id)]
    existing = value.get("caveats", [])
    known_details = {caveat.get("detail") for caveat in existing if isinstance(caveat, dict)}
    return {
        **value,
        "caveats": [*existing, *(trace.as_json() for trace in applicable if trace.detail not in known_details)],
    }


on_json.append(with_caveats)


def is_noted(detail: str) -> bool:
    """Return whether a caveat of a table was noted, so that it is printed above the answer already."""
    return any(trace.detail == detail for trace in noted())


def end() -> None:
    """Print the caveats to stderr at the end of a command that printed no answer."""
    for line in print_above(()):
        err.print(line, soft_wrap=True)
