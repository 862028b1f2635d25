"""Answers of the commands that are printed next to the numbers of a capture.

The capture's graphs are joined once for all commands.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from pipelines.critical_path.whatif.scenario import Scenario, of_options
from pipelines.faces.cli.fleet.opened_capture import opened_capture
from pipelines.fleet.path.answer import find_capture
from pipelines.fleet.path.load_capture import TABLES, load_capture
from pipelines.fleet.path.retimed import CaptureGain


def gains(folder: Path, commands: Iterable[str]) -> list[CaptureGain]:
    """Return the gain of each what-if command on a folder."""
    scenarios = [_scenario(folder, command) for command in commands]
    with opened_capture([str(folder)], folder, TABLES) as (con, beginning):
        whole = load_capture(con, find_capture(con, beginning), None, scenarios)
        return [whole.gain(scenario) for scenario in scenarios]


def check_commands(folder: Path, saves_us: Mapping[str, float]) -> None:
    """Check that each command gains its printed saving.

    `saves_us`: the saving that is printed with each command, us.
    """
    assert saves_us
    for (command, saves), gain in zip(saves_us.items(), gains(folder, saves_us), strict=True):
        assert gain.before_us - gain.after_us == pytest.approx(saves, abs=0.002), command


def _scenario(folder: Path, command: str) -> Scenario:
    program, subcommand, subject, *words = shlex.split(command)
    assert (program, subcommand, subject) == ("tracelake", "what-if", str(folder))
    options: dict[str, list[str]] = {"--scale": [], "--remove": [], "--ahead": []}
    hides = "--perfect-overlap" in words
    words = [word for word in words if word != "--perfect-overlap"]
    for name, value in zip(words[::2], words[1::2], strict=True):
        options[name].append(value)
    return of_options(options["--scale"], options["--remove"], hides, options["--ahead"])
