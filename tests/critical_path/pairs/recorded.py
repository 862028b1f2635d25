"""Recorded pairs of runs: each program's change, the duration of both runs, and the expected analysis."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import SHARED
from tests.critical_path.pairs.earlier import EARLIER

FOLDERS = (Path(__file__).parents[3] / "bench/pairs/recorded/h100", SHARED / "traces/h100_pairs")
"""Recordings of bench/pairs, whose README.md explains the fields of truth.json, and of the first recorder."""


@dataclass(frozen=True)
class Pair:
    """A program, recorded unchanged (A, `before`) and with one change (B, `after`), with a trace for each rank.

    `timed_us` is the duration of all steps of A with the profiler. It excludes the first milliseconds of the trace,
    which no change of the program shortens. `plain_us` is the duration without the profiler. `traced` and `untraced`
    are the duration of a step of B divided by that of A, with and without the profiler. `plain_us` and `untraced` are
    None if they were not measured.
    """

    name: str
    change: str
    before: tuple[Path, ...]
    after: tuple[Path, ...]
    timed_us: float
    plain_us: float | None
    traced: float
    untraced: float | None
    causes: tuple[str, ...]
    forbidden: tuple[str, ...] = ()
    whatif: tuple[str, ...] = ()
    ratio: tuple[str, ...] = ()
    fix: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class Recording:
    """The pairs of a folder, and the machine that they ran on."""

    folder: Path
    device: str
    torch: str
    pairs: tuple[Pair, ...]


def read(folder: Path) -> Recording:
    """Read a folder's pairs, except those whose program did not run in both variants.

    Raise FileNotFoundError if truth.json or one of its traces is missing.
    """
    content = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    ran = {name: program for name, program in content["programs"].items() if {"A", "B"} <= {*program}}
    pairs = tuple(_pair(folder, name, program) for name, program in ran.items())
    return Recording(folder, content["device"], content["torch"], pairs)


def _pair(folder: Path, name: str, program: dict[str, Any]) -> Pair:
    a, b = program["A"], program["B"]
    # The first recorder did not write the expected results into truth.json.
    expected = program if "causes" in program else EARLIER[name]
    lists = ("causes", "forbidden", "whatif", "ratio")
    return Pair(
        name=name,
        change=program["change"],
        before=_traces(folder, name, "A", a),
        after=_traces(folder, name, "B", b),
        timed_us=1e6 * a["traced_step_s"] * a["steps"],
        plain_us=1e6 * a["plain_step_s"] * a["steps"] if a["plain_step_s"] else None,
        traced=b["traced_step_s"] / a["traced_step_s"],
        untraced=b["plain_step_s"] / a["plain_step_s"] if a["plain_step_s"] else None,
        **{key: tuple(expected.get(key, ())) for key in lists},
        fix=expected.get("fix"),
        note=expected.get("note"),
    )


def _traces(folder: Path, name: str, variant: str, measured: dict[str, Any]) -> tuple[Path, ...]:
    traces = tuple(folder / file for file in measured.get("files", [f"{name}.{variant}.json.gz"]))
    for trace in traces:
        if not trace.is_file():
            raise FileNotFoundError(f"{trace} is not there: unpack the archives beside truth.json")
    return traces
