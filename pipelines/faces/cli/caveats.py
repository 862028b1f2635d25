"""What every number of a command is subject to: it stands above the answer for people, and in `--json` under `caveats`.

A command notes it when it opens its traces. What it prints then has it, whatever it prints.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pipelines.faces.cli.console import err, on_json, print_above, styled
from pipelines.faces.incomplete import Incomplete, incomplete_of_saved, incomplete_traces

_SHOWN = 5
_noted: dict[tuple[str, str], Incomplete] | None = None
"""By trace and check; None in a command that opened none. A process runs one command at a time."""


def begin() -> None:
    """A command begins: nothing is known of its traces."""
    global _noted
    _noted = None
    print_above(())


def note(con: Any, of: str = "") -> None:
    """Note the traces in `con` that lack a part of their run (see `incomplete_traces`)."""
    add(incomplete_traces(con, of))


def note_saved(meta: dict[str, Any]) -> None:
    """Note the trace of a saved path, which may be gone. `meta`: as in SavedPath."""
    add(incomplete_of_saved(meta))


def add(traces: Iterable[Incomplete]) -> None:
    """Note these traces."""
    global _noted
    _noted = (_noted or {}) | {(one.trace_id, one.check): one for one in traces}
    lines = []
    for check in dict.fromkeys(one.check for one in _noted.values()):
        of_check = [styled("[yellow]caveat:[/] {}", one.sentence) for one in _noted.values() if one.check == check]
        lines += of_check[:_SHOWN]
        if len(of_check) > _SHOWN:
            lines.append(styled("[yellow]caveat:[/] so do {:,} other files", len(of_check) - _SHOWN))
    print_above(lines)


def noted() -> list[Incomplete]:
    """Returns what was noted."""
    return list((_noted or {}).values())


def with_caveats(value: Any) -> Any:
    """Returns an answer of `--json` with its caveats: those of all traces, or in a row that names its trace, those of it."""
    print_above(())
    if _noted is None:
        return value
    if isinstance(value, list):
        return [with_caveats(one) if isinstance(one, dict) else one for one in value]
    of = value.get("trace_id")
    ours = [one for one in _noted.values() if of in (None, one.trace_id)]
    there = value.get("caveats", [])
    known = {one.get("detail") for one in there if isinstance(one, dict)}
    return {**value, "caveats": [*there, *(one.as_json() for one in ours if one.detail not in known)]}


on_json.append(with_caveats)


def is_above(detail: str) -> bool:
    """Returns whether a caveat of a table is one that was noted, so that it stands above already."""
    return any(one.detail == detail for one in noted())


def end() -> None:
    """A command ends: what it printed no answer for is told on stderr."""
    for line in print_above(()):
        err.print(line, soft_wrap=True)
