"""The list of all commands that `tracelake --help` prints, drawn without rich, whose import takes longer than all else.

A test compares it with the output of typer and rich, which also serve unusual terminals.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import Any

import typer

_NARROW = 60  # columns; on narrower terminals rich folds better
_UNUSUAL = ("TERMINAL_WIDTH", "_TYPER_FORCE_DISABLE_TERMINAL", "NO_COLOR", "GITHUB_ACTIONS", "PY_COLORS")
_BORDER, _NAME, _BOLD, _USAGE, _TYPE = "2", "1;36", "1", "1;33", "1;33"


def is_usual() -> bool:
    """Return whether the terminal, file or pipe of stdout can display the text of `overview`."""
    utf8 = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"
    unusual = any(os.environ.get(name) for name in _UNUSUAL) or os.environ.get("TERM") in ("dumb", "unknown")
    return utf8 and not unusual and sys.platform != "win32" and _width() >= _NARROW


def overview(usage: str, description: str, options: Iterable[Any], commands: Iterable[tuple[str, str]]) -> str:
    """Return the help with colours: usage, description, options, and the commands with their first sentences."""
    width = _width()
    blank = _styled(" " * width, _BOLD)
    lines = [blank, " " + _styled("Usage: ", _USAGE) + _styled(usage.ljust(width - 8), _BOLD), blank]
    lines += [f" {line}".ljust(width) for line in textwrap.wrap(description, width - 2)]
    lines.append(" " * width)
    lines += _panel("Options", [(option.opts[0], option.help, "<bool>") for option in options], width)
    lines += _panel("Commands", [(name, text.replace("`", ""), "") for name, text in commands], width)
    return "\n".join(lines)


def write(text: str) -> None:
    """Write a text to stdout, without colours unless stdout is a terminal or FORCE_COLOR is set."""
    typer.echo(text, color=True if os.environ.get("FORCE_COLOR") else None)


def _width() -> int:
    return shutil.get_terminal_size().columns


def _panel(title: str, rows: list[tuple[str, str, str]], width: int) -> list[str]:
    """Return the lines of a box. Each row has a name, the kind of its value, and a text."""
    column = max(len(name) for name, _, _ in rows) + 2
    kinds = max(len(kind) for _, _, kind in rows)
    before = column + (kinds + 8 if kinds else 0)  # 8: columns for short and negative names in typer's layout
    side = _styled("│", _BORDER)
    lines = [_styled(f"╭─ {title} ".ljust(width - 1, "─") + "╮", _BORDER)]
    for name, text, kind in rows:
        first = _styled(name, _NAME) + " " * (before - len(name) - (len(kind) + 2 if kind else 0))
        first += _styled(kind, _TYPE) + "  " if kind else ""
        for number, part in enumerate(textwrap.wrap(text, width - 4 - before, break_on_hyphens=False)):
            start = " " * before if number else first
            lines.append(f"{side} {start}{part.ljust(width - 4 - before)} {side}")
    return [*lines, _styled("╰" + "─" * (width - 2) + "╯", _BORDER)]


def _styled(text: str, codes: str) -> str:
    return f"\x1b[{codes}m{text}\x1b[0m" if text else ""
