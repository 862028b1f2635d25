"""The page docs/critical-path.md, whose code and commands run and print the shown output.

A script draws its pictures. After a change of the page's content, run `python -m tests.critical_path.test_page`, which
writes the output and the pictures.
"""

from __future__ import annotations

import re
import runpy

import pytest

from tests.pages import DOCS, Blocks, assert_links, assert_shown, blocks_of
from tests.pages import rewrite as rewrite_page

PAGE, PICTURES = DOCS / "critical-path.md", DOCS / "images" / "critical-path"


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Blocks:
    return blocks_of(PAGE, tmp_path_factory.mktemp("page"))


@pytest.mark.slow(together="page of paths")
def test_every_block_prints_what_the_page_shows(blocks: Blocks) -> None:
    assert_shown(PAGE, blocks)
    assert len(blocks) >= 15


@pytest.mark.slow(together="page of paths")
def test_what_the_text_says_of_the_numbers(blocks: Blocks) -> None:
    """The output confirms the numbers in the page's text.

    The text mentions that communication is about half of the path, a drag below its kernel's duration, an alternative 4
    us behind, and the gain of hiding communication.
    """
    said = {block["code"]: printed for block, printed in blocks}
    text = "\n".join(said.values())
    assert "2.65 ms, 100.0 % of the window" in text
    communication = next(line for line in text.splitlines() if "│ communication " in line)
    assert 45 < float(re.findall(r"\d+\.\d+", communication)[0]) < 55
    first = next(
        line for code, out in said.items() if "event_slack" in code for line in out.splitlines() if "nccl" in line
    )
    us, drag, slack = (float(number) for number in re.findall(r"│\s+([\d.]+)\s+(?=│)", first))
    assert (round(us), round(drag), slack) == (927, 668, 0)
    assert re.search(r"│\s+4\.\d us │", text)
    hidden = text.partition("all communication hidden")[2]
    lengths = [float(ms) for ms in re.findall(r"takes ([\d.]+) ms instead of ([\d.]+) ms", hidden)[0]]
    on_path = re.findall(r"│ communication .*│ +([\d.]+) ms │ +0.0 us", hidden)[0]
    assert (float(on_path), round(lengths[1] - lengths[0], 2)) == (3.28, 2.48)
    entered = hidden.partition("entered the path")[2].partition("left the path")[0]
    assert "gemm tf32" in entered and "nccl" not in entered


def test_pictures_are_all_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    files = runpy.run_path(str(PICTURES / "draw.py"))["files"]()
    assert {path.name for path in PICTURES.glob("*.svg")} == set(files)
    for name, text in files.items():
        assert (PICTURES / name).read_text(encoding="utf-8") == text
        assert f"](images/critical-path/{name})" in page


def test_links_lead_somewhere() -> None:
    assert_links(PAGE)


def rewrite() -> None:
    """Write the output of the code blocks into the page, and draw the pictures."""
    runpy.run_path(str(PICTURES / "draw.py"), run_name="__main__")
    rewrite_page(PAGE)


if __name__ == "__main__":
    rewrite()
