"""`tracelake skill`: instructions for language models that use tracelake."""

from __future__ import annotations

from importlib.resources import files

import typer


def skill() -> None:
    """Print a skill for language models: how to ask why, how to prove a fix, what not to conclude.

    Example: `tracelake skill > ~/.claude/skills/tracelake/SKILL.md`
    """
    typer.echo(files("pipelines.faces.mcp_tools").joinpath("skill.md").read_text(encoding="utf-8"), nl=False)
