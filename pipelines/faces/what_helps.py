"""Changes that would shorten a window (table `fixes`), as a sentence, in lists and as JSON, with their commands."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from pipelines.base import units
from pipelines.base.kernel_names import short_name

SHOWN = 5
"""Maximum number of fixes on a screen and on a page."""
_NAME = 48  # characters
_WORTH = 5  # minimum saving of a fix in the sentence, percent of the window


def what_if_command(trace: str, changes: str, options: Sequence[str]) -> str:
    """Return a what-if command. `changes`: options that are already quoted for the shell."""
    return " ".join([shlex.join(["tracelake", "what-if", trace]), changes, *map(shlex.quote, options)])


def change_of(row: dict[str, Any]) -> str:
    """Return the change of a fix as text, with a shortened name."""
    return row["change"].replace(row["name"], short_name(row["name"], _NAME)) if row["name"] else row["change"]


def saving_of(row: dict[str, Any], steps: int) -> str:
    """Return the saving of a fix as text, divided by `steps`."""
    each = " a step" if steps > 1 else ""
    return f"{'at most ' if row['is_bound'] else ''}{units.time(row['saves_ns'] / steps)}{each}"


def same_stretch(row: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    """Return a caveat if the fix is an alternative to a larger one among `rows`, or to a cause, or "" if it is not."""
    same = row["same_stretch_as"]
    if not same:
        return ""
    larger = next((other for other in rows if other["change"] == same), None)
    if larger:
        return f"an alternative to this, savings do not add up: {change_of(larger)}"
    return f"host and GPU take turns: less of {same} saves the same time"


def best_fix(rows: Sequence[dict[str, Any]], steps: int) -> str:
    """Return a sentence about the first fix, with a leading space, or "" if it saves less than _WORTH percent."""
    for row in rows[:1]:
        if row["saves_percent"] >= _WORTH:
            return f" To save {saving_of(row, steps)} ({row['saves_percent']:.0f} %): {change_of(row)}."
    return ""


def fix_json(row: dict[str, Any], command: str) -> dict[str, Any]:
    """Return a fix as an object for `--json`."""
    return {
        "fix": row["fix"],
        "name": row["name"],
        "change": row["change"],
        "saves_us": row["saves_ns"] / 1000,
        "saves_percent": row["saves_percent"],
        "is_bound": row["is_bound"],
        "same_stretch_as": row["same_stretch_as"],
        "command": command,
        "caveat": row["caveat"],
    }
