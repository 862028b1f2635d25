"""The page docs/software-pipelines.md: its code runs, prints what the page shows, and draws the picture on it.

After a change to the code on the page, `python -m tests.schedule.test_docs` writes what it prints, and the picture.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.schedule import PlanWarning

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "software-pipelines.md"
PICTURE = "software-pipelines.svg"
_BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<shown>.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def ran(page: str) -> Iterator[tuple[re.Match[str], str]]:
    """Each block of code with what it printed; all in one namespace, in the current folder."""
    names: dict[str, Any] = {"__name__": "page"}
    for block in _BLOCK.finditer(page):
        line = page.count("\n", 0, block.start("code"))
        out = io.StringIO()
        with contextlib.redirect_stdout(out), warnings.catch_warnings():
            warnings.simplefilter("error", PlanWarning)  # what the page teaches draws no warnings
            exec(compile("\n" * line + block["code"], str(PAGE), "exec"), names)
        yield block, out.getvalue()


@pytest.mark.slow
def test_every_block_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="the engines need torch")
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text(encoding="utf-8")
    for block, printed in ran(page):
        assert printed == (block["shown"] or ""), f"the block in line {page.count(chr(10), 0, block.start()) + 1}"
    assert (tmp_path / PICTURE).read_bytes() == (DOCS / "images" / PICTURE).read_bytes()


def test_all_code_is_found_and_the_picture_is_shown() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(_BLOCK.findall(page)) == page.count("```python") > 10
    assert len([block for block in _BLOCK.finditer(page) if block["shown"]]) == page.count("```text")
    assert f"](images/{PICTURE})" in page


def rewrite() -> None:
    """Put what the code prints, and the picture, in their places."""
    page = PAGE.read_text(encoding="utf-8")
    home, parts, end = Path.cwd(), [], 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for block, printed in ran(page):
                text = f"\n```text\n{printed}```\n" if printed else ""
                parts += [page[end : block.start()], f"```python\n{block['code']}```\n{text}"]
                end = block.end()
            picture = Path(PICTURE).read_bytes()
        finally:
            os.chdir(home)
    PAGE.write_text("".join(parts) + page[end:], encoding="utf-8")
    (DOCS / "images" / PICTURE).write_bytes(picture)


if __name__ == "__main__":
    rewrite()
