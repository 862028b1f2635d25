"""The sections of a page put together, with the style they share."""

from __future__ import annotations

from pathlib import Path

import duckdb

from pipelines.report.collectives import collectives
from pipelines.report.hangs import hangs
from pipelines.report.head import heading, quality, title
from pipelines.report.html import text
from pipelines.report.memory import memory
from pipelines.report.ranks import stragglers
from pipelines.report.spans import spans
from pipelines.report.subject import Subject
from pipelines.report.times import breakdown, critical_path
from pipelines.report.utilization import utilization

_STYLE = Path(__file__).with_name("page.css")
_SECTIONS = (hangs, breakdown, critical_path, spans, utilization, memory, collectives, stragglers, quality)
# Names in traces are foreign text. They are escaped; should that ever fail, the page still may run and load nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(con: duckdb.DuckDBPyConnection, subject: Subject) -> str:
    """The page of a subject from the tables in `con` (see subject.TABLES and CAPTURE_TABLES)."""
    body = "\n".join(section(con, subject) for section in _SECTIONS)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title(subject))}: tracelake</title>\n<style>{_STYLE.read_text(encoding='utf-8')}</style></head>\n"
        f"<body><main>{heading(con, subject)}\n{body}</main></body></html>\n"
    )
