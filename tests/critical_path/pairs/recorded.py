"""Pairs in the folders of a recorder: what each program changed, what its two runs took, and what an analysis should say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import SHARED
from tests.critical_path.pairs.earlier import EARLIER

FOLDERS = (Path(__file__).parents[3] / "bench/pairs/recorded/h100", SHARED / "traces/h100_pairs")
"""The first is of bench/pairs, whose README.md says what the fields of truth.json are."""


@dataclass(frozen=True)
class Pair:
    """A program, recorded as it is (A, `before`) and with one change (B, `after`): a trace for each rank.

    `timed_us` is how long the steps of A took together, traced: the trace begins milliseconds before them, which no change of
    the program shortens. `plain_us` is how long they took without the profiler, None where that was not measured. `traced` and `untraced` are what a step of B takes over what one of A takes; `untraced` is None where that was not measured.
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
    """Read the pairs of a folder whose program ran; raises FileNotFoundError if it has no truth.json, or lacks a trace of it."""
    content = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    ran = {name: program for name, program in content["programs"].items() if {"A", "B"} <= {*program}}
    pairs = tuple(_pair(folder, name, program) for name, program in ran.items())
    return Recording(folder, content["device"], content["torch"], pairs)


def _pair(folder: Path, name: str, program: dict[str, Any]) -> Pair:
    a, b = program["A"], program["B"]
    # The first recorder said in other words what to expect.
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
