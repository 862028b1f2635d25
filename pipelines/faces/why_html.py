"""The answer to why as an HTML fragment for notebooks: caveats, the sentence, a bar of causes, and the fixes."""

from __future__ import annotations

from html import escape
from typing import Any

from pipelines.base.foreign_text import visible
from pipelines.base.units import percent
from pipelines.faces.report.cause_bars import colour_of
from pipelines.faces.what_helps import SHOWN, change_of, saving_of

_LEAST = 1  # minimum percent of the window of a cause in the legend


def why_html(answer: Any) -> str:
    """Return the answer (a Why) as HTML without scripts. Every text from the trace is escaped."""
    caveats = [caveat for caveat in answer.caveats if caveat["severity"] != "info"]
    caveats_html = "".join(f"<p>{_text(caveat['severity'])}: {_text(caveat['detail'])}</p>" for caveat in caveats)
    return f"<div>{caveats_html}<p><b>{_text(answer.sentence)}</b></p>{_bar(answer)}{_fixes(answer)}</div>"


def _bar(answer: Any) -> str:
    parts, legend = "", ""
    for cause in answer.causes:
        colour, share = colour_of(cause.kind["cause"]), f"{cause.share:.1f} %"
        title = f"{cause.title}: {share}"
        parts += f'<span title="{_text(title)}" style="width:{cause.share:.2f}%;background:{colour}"></span>'
        if cause.share >= _LEAST:
            square = f'<span style="color:{colour}">&#9632;</span>'
            legend += f'<span style="white-space:nowrap">{square} {_text(cause.title)} {share}</span> &emsp;'
    return f'<div style="display:flex;height:18px;max-width:60em">{parts}</div><p>{legend}</p>'


def _fixes(answer: Any) -> str:
    rows = [
        f"<li>{percent(row['saves_percent'])}: {_text(saving_of(row, answer.steps))}, {_text(change_of(row))}</li>"
        for row in answer.fixes[:SHOWN]
    ]
    return f"<p>What would help, each by itself:</p><ul>{''.join(rows)}</ul>" if rows else ""


def _text(text: str) -> str:
    return escape(visible(text))
