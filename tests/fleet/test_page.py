"""The page docs/reading-a-fleet.md: its code and commands run, print the shown output, and draw its charts.

After a change to the page, `python -m tests.fleet.test_page` writes the new output and charts.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from pipelines.faces.cli import console
from tests.conftest import SHARED
from tests.pages import DOCS, WIDTH, Blocks, answer, assert_links, assert_shown, blocks_of, rewrite

PAGE = DOCS / "reading-a-fleet.md"
PICTURES = {name: DOCS / "images" / "fleet" / name for name in ("heat.svg", "victims.svg")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def blocks(folder: Path) -> Blocks:
    return blocks_of(PAGE, folder)


@pytest.mark.slow(together="page of a fleet")
def test_every_block_prints_what_the_page_shows(blocks: Blocks) -> None:
    assert_shown(PAGE, blocks)
    assert len(blocks) >= 20


@pytest.mark.slow(together="page of a fleet")
def test_pictures_are_what_the_commands_draw(blocks: Blocks, folder: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert blocks
    for name, path in PICTURES.items():
        assert path.read_bytes() == (folder / name).read_bytes()
        assert f"](images/fleet/{name})" in page


@pytest.mark.slow(together="page of a fleet")
def test_what_is_planted_is_found(blocks: Blocks) -> None:
    """The page's answers name the planted waits, straggler, clock offsets and night.

    These come from the simulation, not from the page.
    """
    said = {block["code"]: printed for block, printed in blocks}

    def rows(of: str) -> list[list[str]]:
        text = next(printed for code, printed in said.items() if of in code and "┃" in printed)
        return [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if line[:1] == "│"]

    planted = re.findall(r"rank (\d) waits +([\d.]+) us, comes last to (\d)", next(iter(said.values())))[:4]
    by_rank = {rank: (waits, last) for rank, waits, *_, last, _ in rows("--out heat.svg")[:4]}
    for rank, us, last in planted:
        ms = float(us) / 1000
        shown = float(by_rank[rank][0].split()[0])
        assert (abs(shown - ms) < 0.02, by_rank[rank][1]) == (True, f"{last} of 8")
    clocks = {int(row[0]): (int(row[1]), int(row[2])) for row in rows("FROM clock_offsets")}
    for rank, offset in enumerate((0, 40_000, -25_000, 15_000)):
        assert abs(clocks[rank][0] - offset) <= clocks[rank][1] + clocks[0][1]
    assert [row[-1] for row in rows("AS night")[:15]].count("rank 1") == 5
    assert rows("persistent_stragglers")[-1][:4] == ["nightly", "1", "15", "5"]
    for day, causes, span in rows("all_causes_ms")[-3:]:
        assert causes == span, day


def recorded(shared: Path, folder: Path) -> tuple[str, str]:
    """Return the page's block about a recorded capture, and this block with the output of its commands now.

    The commands run in the empty folder `folder`.
    """
    (block,) = re.findall(r"<!-- recorded -->\n```\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.DOTALL)
    printed, kept = "", {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(console.out, "_width", WIDTH)
        for text in re.findall(r"^\$ .*\n(?: .*\n)*", block, re.M):
            printed += text
            command = text.removeprefix("$ ").strip().replace("../shared", str(shared))
            if command.startswith("tracelake "):
                printed += answer(command, kept)
            else:
                subprocess.run(command, shell=True, check=True)
    return block, printed


@pytest.mark.slow  # 12 s
def test_groups_of_a_recorded_capture(shared: Path, tmp_path: Path) -> None:
    shown, printed = recorded(shared, tmp_path)
    assert printed == shown


def test_links_lead_somewhere() -> None:
    assert_links(PAGE)


if __name__ == "__main__":
    rewrite(PAGE, PICTURES)
    with tempfile.TemporaryDirectory() as empty:
        before, after = recorded(SHARED, Path(empty))
    PAGE.write_text(PAGE.read_text(encoding="utf-8").replace(before, after), encoding="utf-8")
