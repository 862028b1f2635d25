"""docs/sources.md: it explains every requirement code that the project mentions, and no other code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "sources.md"
FOLDERS = ("pipelines", "sql", "assets", "dagster_project", "docs", "tests", "bench")
SUFFIXES = {".py", ".sql", ".csv", ".md", ".toml"}
_CODE = re.compile(r"\b(HTA|LWC|SWP|TB|PRB)-(\d+)\b(?:(?: to | … )\1-(\d+)\b)?")
_LISTED = re.compile(r"\b(trap|case)s? ((?:[TS]\d+)(?:(?:, | and )[TS]\d+)*)")


def codes(text: str) -> Iterator[str]:
    """Yield the codes in a text: `SWP-9 to SWP-11` has three, and so does `traps T2, T3 and T5`."""
    for prefix, first, last in _CODE.findall(text):
        yield from (f"{prefix}-{n}" for n in range(int(first), int(last or first) + 1))
    for kind, names in _LISTED.findall(text):
        yield from (f"{kind} {name}" for name in re.findall(r"[TS]\d+", names))


def mentioned() -> dict[str, Path]:
    files = [ROOT / "README.md", *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]
    texts = [path for path in files if path.suffix in SUFFIXES and path not in (PAGE, Path(__file__))]
    return {code: path for path in texts for code in codes(path.read_text(encoding="utf-8"))}


def test_codes_are_found_in_text() -> None:
    said = "(SWP-9 to SWP-11, traps T2, T3 and T5), as TB-1 … TB-2 say: cases S1, S12"
    assert sorted(codes(said)) == sorted(
        ["SWP-9", "SWP-10", "SWP-11", "trap T2", "trap T3", "trap T5", "TB-1", "TB-2", "case S1", "case S12"]
    )


def test_the_page_explains_exactly_the_codes_in_use() -> None:
    rows = re.findall(
        r"^\| ((?:HTA|LWC|SWP|TB|PRB)-\d+|trap T\d+|case S\d+) \| (\S.*\S) \|$", PAGE.read_text("utf-8"), re.M
    )
    explained = [code for code, _ in rows]
    assert len(set(explained)) == len(explained) > 100
    used = mentioned()
    assert {code: used[code] for code in used.keys() - set(explained)} == {}, "explain these in docs/sources.md"
    assert set(explained) - used.keys() == set(), "nothing mentions these: remove them from docs/sources.md"
