"""Names that have an effect on the program that shows them, unless it treats them as text.

All interfaces are tested with this list.
"""

from __future__ import annotations

import re

MARKUP = (
    r"\[/x]",
    "[red]",
    "[/]",
    "[bold red]danger[/]",
    "[link=http://evil.example]here[/link]",
    "[@click=app.bell]x[/]",
)
MARKUP += ("[", "]", "\\", "\\[", "x\\", "[[red]]", ":boom:", "{0} {name} %s %(x)s", "{", "}")
TERMINAL = (
    "\x1b[2J\x1b[31mred",
    "\x1b]0;title\x07",
    "\x1b]8;;http://evil.example\x1b\\here\x1b]8;;\x1b\\",
    "\x9b31m",
    "\x9d0;t\x9c",
)
TERMINAL += (
    "a\rb",
    "a\nerror: b",
    "a\x08\x08b",
    "tab\there",
    "\x7f",
    "nul\x00byte",
    "\u202egnp.exe",
    "\u2066x\u2069",
    "z\u200bw\ufeff",
)
TERMINAL += ("line\u2028sep\u2029", "\x85next")
MARKDOWN = (
    "a|b",
    "`code`",
    "**bold** _it_",
    "![i](http://evil.example/x.png)",
    "[l](javascript:alert(1))",
    "# head",
    "&lt;b&gt;",
)
HTML = (
    "<script>alert(1)</script>",
    "</title></svg><img src=x onerror=alert(1)>",
    '" onload="x',
    "' or '",
    "&amp;",
    "]]>",
    "<!--",
)
CSV = ("=1+1", "=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", 'quote"d', "a,b;c", "-5", "+1e3")
SQL = ("x'); DROP TABLE traces; --", "'", "''", "$$", "/*", "--")
PLAIN = ("void gemm<float, 3>(int*)", "été 核 \U0001f600", "a" * 300, " ", "..", "-rf", "--help", "*?[a-z]", "%2e%2e")

NASTY: tuple[str, ...] = (*MARKUP, *TERMINAL, *MARKDOWN, *HTML, *CSV, *SQL, *PLAIN)

# Characters that may only be sent to a terminal on purpose. The caller handles newlines.
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def is_file_name(name: str) -> bool:
    """Return whether most systems allow this file name."""
    return "/" not in name and "\0" not in name and name not in ("", ".", "..") and len(name.encode()) < 200
