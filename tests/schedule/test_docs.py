"""The page docs/software-pipelines.md: its code runs and prints the shown output, and its picture is current.

After a change of the page's code, `python -m tests.schedule.test_docs` writes the output and the picture.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import DOCS, assert_links, assert_shown, blocks_of, rewrite

PAGE = DOCS / "software-pipelines.md"
PICTURE = "software-pipelines.svg"


@pytest.mark.slow
@pytest.mark.filterwarnings("error::pipelines.schedule.PlanWarning")  # the page's examples must not warn
def test_every_block_prints_what_the_page_shows(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the engines need torch")
    blocks = blocks_of(PAGE, tmp_path)
    assert_shown(PAGE, blocks)
    assert len(blocks) > 10
    assert (tmp_path / PICTURE).read_bytes() == (DOCS / "images" / PICTURE).read_bytes()


def test_the_picture_is_shown_and_links_lead_somewhere() -> None:
    assert f"](images/{PICTURE})" in PAGE.read_text(encoding="utf-8")
    assert_links(PAGE)


if __name__ == "__main__":
    rewrite(PAGE, {PICTURE: DOCS / "images" / PICTURE})
