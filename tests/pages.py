"""Pages of docs/ whose code and commands run. Each block is followed by its output, which a test compares.

A `console` block contains `tracelake` commands, each after `$ `. `name=$(tracelake … | tail -n 1 | tr -d '"')` stores
the last line of an answer, and later commands read it as `$name`. A command with `> /dev/null` shows no output.
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
    """Yield each block with its output, run in the current folder.

    TOML is written to the file scenarios.toml. Python's blocks share `names`.
    """
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
    """Return the output of a command on a terminal WIDTH wide, without parts that differ between runs."""
    if keep := _KEPT.fullmatch(command):
        said = run(keep[2], kept)
        kept[keep[1]] = said.stdout.splitlines()[-1].replace('"', "")
        return said.stderr
    command, quiet, _ = command.partition(" > /dev/null")
    said = run(command, kept)
    # ingest prints its speed
    return "" if quiet or command.startswith("tracelake ingest") else said.stdout + said.stderr


def run(command: str, kept: dict[str, str]) -> Result:
    """Run a command on a terminal WIDTH wide, and return its result. A failure must have an error message."""
    program, *words = (
        re.sub(r"\$(\w+)", lambda name: kept[name[1]], word) for word in shlex.split(command.replace("\\\n", " "))
    )
    assert program == "tracelake"
    said = CliRunner().invoke(app, words)
    failed = said.exit_code != 0 and not (words[0] == "regressions" and "REGRESSION" in said.stdout)
    assert failed == ("error:" in said.stderr), said.output
    return said


def blocks_of(page: Path, folder: Path) -> Blocks:
    """Return the blocks of a page with their output in an empty folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(console.out, "_width", WIDTH)
        return list(ran(page))


def assert_shown(page: Path, blocks: Blocks) -> None:
    """Check that every block printed the output that the page shows, and that no block is left out."""
    text = page.read_text(encoding="utf-8")
    for block, printed in blocks:
        assert printed == (block["shown"] or ""), f"the block in line {text.count(chr(10), 0, block.start()) + 1}"
    assert len(blocks) == sum(text.count(f"```{kind}\n") for kind in ("python", "console", "toml"))
    assert len([block for block, _ in blocks if block["shown"]]) == text.count("```text\n")


def assert_links(page: Path) -> None:
    """Check that every link of a page to a file leads to an existing file."""
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        assert (DOCS / target).is_file(), target


def rewrite(page: Path, pictures: dict[str, Path] | None = None) -> None:
    """Replace the output on the page by the blocks' output.

    `pictures`: the files that they write, and where these are stored.
    """
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
