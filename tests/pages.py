"""Pages of docs/ whose code and commands run: each block is followed by what it prints, and a test compares.

A `console` block holds `tracelake` commands, each behind `$ `; `name=$(tracelake … | tail -n 1 | tr -d '"')` keeps the
last line of an answer, and later commands have it as `$name`. Behind `> /dev/null` nothing is shown.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pipelines.faces.cli import console
from pipelines.faces.cli.app import app

DOCS = Path(__file__).resolve().parents[1] / "docs"
WIDTH = 140
Blocks = list[tuple[re.Match[str], str]]
BLOCK = re.compile(
    r"^```(?P<kind>python|console|toml)\n(?P<code>.*?)^```\n(?:\n```text\n(?P<shown>.*?)^```\n)?", re.M | re.DOTALL
)
_KEPT = re.compile(r"(\w+)=\$\((.*) \| tail -n 1 \| tr -d '\"'\)", re.DOTALL)


def ran(page: Path, names: dict[str, Any] | None = None) -> Iterator[tuple[re.Match[str], str]]:
    """Each block with what it printed, in the current folder; TOML becomes the file scenarios.toml. Python's blocks share `names`."""
    text = page.read_text(encoding="utf-8")
    names = {} if names is None else names
    names["__name__"] = "page"
    kept: dict[str, str] = {}
    for block in BLOCK.finditer(text):
        if block["kind"] == "toml":
            Path("scenarios.toml").write_text(block["code"])
            printed = ""
        elif block["kind"] == "python":
            line = text.count("\n", 0, block.start("code"))
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile("\n" * line + block["code"], str(page), "exec"), names)
            printed = out.getvalue()
        else:
            printed = "".join(answer(command.strip(), kept) for command in block["code"].split("$ ")[1:])
        yield block, "".join(f"{line.rstrip()}\n" for line in printed.splitlines())


def answer(command: str, kept: dict[str, str]) -> str:
    """What a command prints on a terminal WIDTH wide, without what changes from run to run."""
    if keep := _KEPT.fullmatch(command):
        said = run(keep[2], kept)
        kept[keep[1]] = said.stdout.splitlines()[-1].replace('"', "")
        return said.stderr
    command, quiet, _ = command.partition(" > /dev/null")
    said = run(command, kept)
    # ingest says how fast it was
    return "" if quiet or command.startswith("tracelake ingest") else said.stdout + said.stderr


def run(command: str, kept: dict[str, str]) -> Result:
    """What a command answers on a terminal WIDTH wide. It fails only with a reason."""
    program, *words = (
        re.sub(r"\$(\w+)", lambda name: kept[name[1]], word) for word in shlex.split(command.replace("\\\n", " "))
    )
    assert program == "tracelake"
    said = CliRunner().invoke(app, words)
    failed = said.exit_code != 0 and not (words[0] == "regressions" and "REGRESSION" in said.stdout)
    assert failed == ("error:" in said.stderr), said.output
    return said


def blocks_of(page: Path, folder: Path) -> Blocks:
    """The blocks of a page with what they printed in an empty folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(console.out, "_width", WIDTH)
        return list(ran(page))


def assert_shown(page: Path, blocks: Blocks) -> None:
    """Every block printed what the page shows behind it, and no block is left out."""
    text = page.read_text(encoding="utf-8")
    for block, printed in blocks:
        assert printed == (block["shown"] or ""), f"the block in line {text.count(chr(10), 0, block.start()) + 1}"
    assert len(blocks) == sum(text.count(f"```{kind}\n") for kind in ("python", "console", "toml"))
    assert len([block for block, _ in blocks if block["shown"]]) == text.count("```text\n")


def assert_links(page: Path) -> None:
    """Every link of a page to a file leads to one."""
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        assert (DOCS / target).is_file(), target


def rewrite(page: Path, pictures: dict[str, Path] | None = None) -> None:
    """Put what the blocks print in their places; `pictures`: files that they write, and where these are kept."""
    text, parts, end = page.read_text(encoding="utf-8"), [], 0
    console.out.width = WIDTH
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for block, printed in ran(page):
            shown = f"\n```text\n{printed}```\n" if printed else ""
            parts += [text[end : block.start()], f"```{block['kind']}\n{block['code']}```\n{shown}"]
            end = block.end()
        for name, path in (pictures or {}).items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(Path(name).read_bytes())
    page.write_text("".join(parts) + text[end:], encoding="utf-8")
