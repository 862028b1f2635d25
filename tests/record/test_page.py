"""docs/recorders.md: its code blocks run and print the shown output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import DOCS, assert_links, assert_shown, blocks_of

PAGE = DOCS / "recorders.md"


@pytest.mark.slow  # 2 s
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_the_page_s_blocks_print_what_it_shows(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    assert_shown(PAGE, blocks_of(PAGE, tmp_path))


def test_links_lead_somewhere() -> None:
    assert_links(PAGE)
