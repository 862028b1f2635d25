"""The page docs/critical-path.md: its code and commands run and print what it shows; its pictures are what draws them.

After a change to what is on the page, `python -m tests.critical_path.test_page` writes what it prints, and the pictures.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.cli import shared
from pipelines.cli.app import app

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, PICTURES = DOCS / "critical-path.md", DOCS / "images" / "critical-path"
WIDTH = 140
_BLOCK = re.compile(
    r"^```(?P<kind>python|console|toml)\n(?P<code>.*?)^```\n(?:\n```text\n(?P<shown>.*?)^```\n)?", re.M | re.DOTALL
)


def ran(page: str) -> Iterator[tuple[re.Match[str], str]]:
    """Each block with what it printed, in the current folder; TOML becomes the file scenarios.toml."""
    names: dict[str, Any] = {"__name__": "page"}
    for block in _BLOCK.finditer(page):
        if block["kind"] == "toml":
            Path("scenarios.toml").write_text(block["code"])
            printed = ""
        elif block["kind"] == "python":
            line = page.count("\n", 0, block.start("code"))
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile("\n" * line + block["code"], str(PAGE), "exec"), names)
            printed = out.getvalue()
        else:
            printed = "".join(answer(command) for command in block["code"].split("$ ")[1:])
        yield block, "".join(f"{line.rstrip()}\n" for line in printed.splitlines())


def answer(command: str) -> str:
    """What a command prints on a terminal WIDTH wide, without what changes from run to run."""
    program, *words = shlex.split(command)
    assert program == "tracelake"
    said = CliRunner().invoke(app, words)
    assert (said.exit_code != 0) == ("error:" in said.stderr), said.output
    return "" if words[0] == "ingest" else said.stdout + said.stderr  # ingest says how fast it was


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[re.Match[str], str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("page"))
        patch.setattr(shared.out, "_width", WIDTH)
        return list(ran(PAGE.read_text(encoding="utf-8")))


def test_every_block_prints_what_the_page_shows(blocks: list[tuple[re.Match[str], str]]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    for block, printed in blocks:
        assert printed == (block["shown"] or ""), f"the block in line {page.count(chr(10), 0, block.start()) + 1}"


def test_what_the_text_says_of_the_numbers(blocks: list[tuple[re.Match[str], str]]) -> None:
    """The page's claims in words: half in NCCL, a drag below its duration, a rival 4 us behind, what hiding gains."""
    said = {block["code"]: printed for block, printed in blocks}
    text = "\n".join(said.values())
    assert "2.63 ms, 99.4 % of the window" in text
    communication = next(line for line in text.splitlines() if "gpu_communication_bound" in line)
    assert 45 < float(re.findall(r"\d+\.\d+", communication)[0]) < 55
    first = next(
        line for code, out in said.items() if "event_slack" in code for line in out.splitlines() if "nccl" in line
    )
    us, drag, slack = (float(number) for number in re.findall(r"│\s+([\d.]+)\s+(?=│)", first))
    assert (round(us), round(drag), slack) == (927, 668, 0)
    assert re.search(r"│\s+4\.\d us │", text)
    hidden = text.partition("all communication hidden")[2]
    lengths = [float(ms) for ms in re.findall(r"([\d.]+) ms (?:before|after)", hidden)[:2]]
    on_path = re.findall(r"gpu_communication_bound .*│ +([\d.]+) ms │ +0.0 us", hidden)[0]
    assert (float(on_path), round(lengths[0] - lengths[1], 2)) == (3.28, 2.48)
    entered = hidden.partition("entered the path")[2].partition("left the path")[0]
    assert "sm90_xmma_gemm" in entered and "nccl" not in entered


def test_pictures_and_blocks_are_all_on_the_page(blocks: list[tuple[re.Match[str], str]]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    kinds = ("python", "console", "toml")
    assert len(blocks) == sum(page.count(f"```{kind}\n") for kind in kinds) >= 15
    assert len([block for block, _ in blocks if block["shown"]]) == page.count("```text\n")
    files = runpy.run_path(str(PICTURES / "draw.py"))["files"]()
    assert {path.name for path in PICTURES.glob("*.svg")} == set(files)
    for name, text in files.items():
        assert (PICTURES / name).read_text(encoding="utf-8") == text
        assert f"](images/critical-path/{name})" in page


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)", PAGE.read_text(encoding="utf-8")):
        assert (DOCS / target).is_file(), target


def rewrite() -> None:
    """Put what the blocks print in their places, and draw the pictures."""
    runpy.run_path(str(PICTURES / "draw.py"), run_name="__main__")
    page = PAGE.read_text(encoding="utf-8")
    home, parts, end = Path.cwd(), [], 0
    shared.out.width = WIDTH
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for block, printed in ran(page):
                text = f"\n```text\n{printed}```\n" if printed else ""
                parts += [page[end : block.start()], f"```{block['kind']}\n{block['code']}```\n{text}"]
                end = block.end()
        finally:
            os.chdir(home)
    PAGE.write_text("".join(parts) + page[end:], encoding="utf-8")


if __name__ == "__main__":
    rewrite()
