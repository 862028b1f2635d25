"""Why a window takes as long as it does: one sentence and its causes, from tables `causes` and `window_gpu_time`.

The same answer for `tracelake why`, the report, notebooks, the console and MCP.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import Any

import duckdb

from pipelines.base import units
from pipelines.base.database import rows_of
from pipelines.base.datafiles import rule_rows, threshold
from pipelines.base.kernel_names import short_name, short_names
from pipelines.faces.advice import advice_of, advice_of_name
from pipelines.faces.what_helps import best_fix, fix_json, what_if_command
from pipelines.models.sqltext import quoted

TABLES = ("causes", "window_gpu_time", "critical_path_caveats", "profiler_cost", "causes_without_profiler", "fixes")
"""What the answer is made of."""
_TOLD, _REMOVED = threshold("profiler_told"), threshold("profiler_removed")
_WHOLE_STEPS = 0.9
"""A window whose steps take up this part of it is told per step."""
CLAUSE = 0.05
"""A cause that takes this part of the window or more has a clause in the sentence."""
_ALL = 0.99  # of a cause's time
NAME = 48  # characters
_SHOWN = 6  # causes
_LEAST = 1  # percent of the window that a cause has on a screen


@dataclass(frozen=True)
class Cause:
    """All rows of a cause in a window, largest first; times in ns. `saves` is what the window is shorter without all of them,
    None where it was not computed.
    """

    kind: dict[str, str]
    rows: list[dict[str, Any]]
    on_gpu: bool = True
    """There is GPU work in the window."""

    @property
    def title(self) -> str:
        """Its plain name; without GPU work nothing is bound by launches, and nobody knows who needed a wait for it."""
        title = self.kind["title"]
        return title if self.on_gpu else title.partition(" (")[0].removesuffix(" that nothing needed")

    @cached_property
    def duration(self) -> int:
        return sum(row["duration_ns"] for row in self.rows)

    @cached_property
    def share(self) -> float:
        """In percent of the window."""
        return sum(row["share_percent"] for row in self.rows)

    @property
    def saves(self) -> int | None:
        return self.rows[0]["cause_saves_ns"]

    @property
    def halved(self) -> int | None:
        """What half of the only row saves."""
        return self.rows[0]["halved_saves_ns"] if len(self.rows) == 1 else None

    @property
    def is_gpu_work(self) -> bool:
        return self.kind["cause"] in ("gpu_computing", "copies", "communication")

    @property
    def felt(self) -> int:
        """The time that the GPU lacks for it: of communication and copies that in which nothing computes, else that in which no GPU
        work runs.
        """
        return sum(row["exposed_ns" if self.is_gpu_work else "gpu_idle_ns"] for row in self.rows)

    def told(self, steps: int) -> str:
        """Its name, its time and what it saves, of each of so many steps."""
        each = " a step" if steps > 1 else ""
        saved = "".join(
            f", {what} saves {units.time(ns / steps)}"
            for ns, what in ((self.saves, "gone"), (self.halved, "halved"))
            if ns is not None
        )
        return f"{self.title}: {units.time(self.duration / steps)}{each}{self._bare(steps)}{saved}"

    def _bare(self, steps: int) -> str:
        """Of communication and copies how much nothing hides, unless that is all. Rows of a capture do not know it."""
        may_be_hidden = self.kind["cause"] in ("copies", "communication") and "rank" not in self.rows[0]
        if not may_be_hidden or self.felt >= _ALL * self.duration:
            return ""
        return f" ({units.time(self.felt / steps)} with no computing beside it)"

    @cached_property
    def advice(self) -> str:
        """What to do about it, in one line: by what most of it is."""
        names = ((row["name"], row["duration_ns"]) for row in self.rows)
        return advice_of(self.kind["cause"], names, on_gpu=self.on_gpu)

    def names(self, most: int) -> str:
        """The names that have most of it."""
        time: dict[tuple[str, str], int] = {}  # of a late rank, and of a name
        for row in self.rows:
            name = whose_name(row)
            time[name] = time.get(name, 0) + row["duration_ns"]
        largest = sorted(time.items(), key=lambda one: -one[1])[:most]
        short = short_names((name for (_, name), _ in largest), NAME)
        shown = [(f"{whose}{name}", ns) for ((whose, _), ns), name in zip(largest, short, strict=True)]
        told = [f"{name} ({100 * ns / self.duration:.0f} %)" for name, ns in shown if 100 * ns >= self.duration]
        more = len(time) - len(told)
        return ", ".join(told) + (f" and {more} more" if more else "")

    def command(self, trace: str, options: Sequence[str] = ()) -> str:
        """The command that gives what it saves; of a capture that was not retimed without it, the one that shows its path. `options`:
        those that other commands need to speak of the same window.
        """
        row = self.rows[0]
        changes = row["cause_options"] if "rank" in row else f"--remove cause:{self.kind['cause']}"
        if changes:
            return what_if_command(trace, changes, options)
        return shlex.join(["tracelake", "capture-path", trace, *options])


@dataclass(frozen=True)
class Why:
    """The answer for one window: its row of `window_gpu_time`, its rows of `causes`, largest first, and its caveats."""

    title: str
    window: dict[str, Any]
    rows: list[dict[str, Any]]
    caveats: list[dict[str, Any]]
    idle_gaps: str = ""
    """What is to be known of gaps between kernels, if much of them is time in which the trace may lack events."""
    without_profiler_ns: int | None = None
    """How long the window takes without the profiler that recorded it; None where that is not known."""
    is_without_profiler: bool = False
    """The rows are those of the window without the profiler."""
    fixes: tuple[dict[str, Any], ...] = ()
    """Rows of table `fixes`, largest saving first: of the same window as the causes."""
    untraced: str = ""
    """What a step takes without the profiler, as it was asked with; the costs are scaled to that."""

    def __str__(self) -> str:
        return printed(self.caveats, self.sentence)

    def doubt_of(self, cause: Cause) -> str:
        """What stands beside a cause's numbers, because they are not to be believed without it; else an empty text."""
        return self.idle_gaps if cause.kind["cause"] in ("gpu_waiting", "launching") else ""

    @property
    def heading(self) -> str:
        """The trace and, if it is not the whole, the window."""
        window = self.window["window_id"]
        return self.title if window == "full" else f"{self.title}, {window}"

    @cached_property
    def causes(self) -> list[Cause]:
        """The causes, each once, largest first."""
        return grouped(self.rows, on_gpu=self.window["busy_ns"] > 0)

    @property
    def length(self) -> int:
        """Of the window, ns, without the profiler if the rows are."""
        without = self.without_profiler_ns if self.is_without_profiler else None
        return self.window["length_ns"] if without is None else without

    @property
    def steps(self) -> int:
        """How many steps the answer divides the window by: 1 if they are not most of it."""
        steps, time = self.window["n_steps"] or 0, self.window["steps_ns"] or 0
        return steps if steps > 1 and time >= _WHOLE_STEPS * self.window["length_ns"] else 1

    @property
    def _whole(self) -> str:
        """The window, or each of its steps, in words: how long it takes, and without the profiler where that is much less."""
        steps, with_it, without = self.steps, self.window["length_ns"], self.without_profiler_ns
        traced = units.time(with_it / steps)
        if without is None or with_it - without <= _TOLD * with_it:
            return f"each {traced} step" if steps > 1 else traced
        about = f"about {units.rounded_time(without / steps)} without the profiler"
        if self.is_without_profiler:
            return f"{'each step of ' if steps > 1 else ''}{about} ({traced} with it)"
        return f"each {traced} step ({about})" if steps > 1 else f"{traced} ({about})"

    @cached_property
    def sentence(self) -> str:
        """What the window's time goes to, in one sentence."""
        length, steps, of = self.length, self.steps, self._whole
        if not self.window["busy_ns"]:
            told = [f"{units.time(one.duration / steps)} {one.title}{name_in_brackets(one)}" for one in self.causes[:2]]
            # There was none, it was not recorded, or the file ends before it: this is true of each.
            return f"In {of} the trace shows no GPU work: {', '.join(told)}."
        computes = f"Of {of} the GPU computes {units.time(self.window['computing_ns'] / steps)}{self._most()}"
        others = [one for one in self.causes if one.kind["cause"] != "gpu_computing"]
        others = sorted((one for one in others if one.felt >= CLAUSE * length), key=lambda one: -one.felt)
        told = [f"{units.time(one.felt / steps)} {one.kind['phrase']}{name_in_brackets(one)}" for one in others[:2]]
        return f"{'; '.join([computes, *told])}.{best_fix(self.fixes, steps)}"

    def options(self, of_window: Sequence[str] = ()) -> list[str]:
        """What `what-if` has to be told to speak of the same window, and of it without the profiler if the causes are."""
        if not self.is_without_profiler:
            return [*of_window]
        return [*of_window, *(["--untraced", self.untraced] if self.untraced else ["--without-profiler"])]

    def _most(self) -> str:
        """The operator that computes most, if computing is the largest cause."""
        first = self.causes[0] if self.causes else None
        if first is None or first.kind["cause"] != "gpu_computing":
            return ""
        row = first.rows[0]
        return f", most for {short_name(row['name'], NAME)} ({100 * row['duration_ns'] / first.duration:.0f} %)"

    def as_json(self, subject: str = "", options: Sequence[str] = ()) -> dict[str, Any]:
        """Returns the object of `--json`: times in us, `causes` with shares that sum to 100, largest first, and `fixes`.

        `subject` is what commands call the trace (its id, if nothing is said), `options` what they need to speak of the window.
        """
        window, trace = self.window, subject or self.window["trace_id"]
        titles, on_gpu = {one.kind["cause"]: one.title for one in self.causes}, self.window["busy_ns"] > 0
        return {
            "sentence": self.sentence,
            "window": {
                "trace_id": window["trace_id"],
                "window_id": window["window_id"],
                "length_us": window["length_ns"] / 1000,
                "without_profiler_us": microseconds(self.without_profiler_ns),
                "causes_without_profiler": self.is_without_profiler,
                "steps": window["n_steps"],
                "gpu_computes_us": window["computing_ns"] / 1000,
                "gpu_busy_us": window["busy_ns"] / 1000,
            },
            "causes": [
                {
                    "cause": row["cause"],
                    "name": row["name"],
                    "share_percent": row["share_percent"],
                    "duration_us": row["duration_ns"] / 1000,
                    "saves_us": microseconds(row["saves_ns"]),
                    "halved_saves_us": microseconds(row["halved_saves_ns"]),
                    "cause_saves_us": microseconds(row["cause_saves_ns"]),
                    "gpu_idle_us": row["gpu_idle_ns"] / 1000,
                    "exposed_us": row["exposed_ns"] / 1000,
                    "times": row["times"],
                    "event_id": row["event_id"],
                    "inferred": row["inferred"],
                    "title": titles[row["cause"]],
                    "advice": advice_of_name(row["cause"], row["name"], on_gpu),
                    # The first gives `saves_us`, the second `cause_saves_us`.
                    "command": self._cause_command(trace, f"{row['cause']}:{row['name']}", options),
                    "cause_command": self._cause_command(trace, row["cause"], options),
                }
                for row in self.rows
            ],
            "fixes": [fix_json(row, self.fix_command(row, trace, options)) for row in self.fixes],
            "caveats": self.caveats,
        }

    def fix_command(self, row: dict[str, Any], trace: str, of_window: Sequence[str] = ()) -> str:
        """The command that gives what a fix saves; as the causes, of the time without the profiler that was asked with."""
        changes = row["options"]
        if self.untraced:
            changes = changes.replace("--without-profiler", shlex.join(["--untraced", self.untraced]))
        return what_if_command(trace, changes, of_window)

    def _cause_command(self, trace: str, target: str, options: Sequence[str]) -> str:
        return what_if_command(trace, shlex.join(["--remove", f"cause:{target}"]), self.options(options))


def printed(caveats: list[dict[str, Any]], sentence: str) -> str:
    """What stands first in an answer: what limits it, then the sentence."""
    return "\n".join(
        [*(f"{one['severity']}: {one['detail']}" for one in caveats if one["severity"] != "info"), sentence]
    )


def grouped(rows: list[dict[str, Any]], *, on_gpu: bool = True) -> list[Cause]:
    """The causes of some rows, each once, largest first."""
    kinds = {row["cause"]: row for row in rule_rows("cause_kinds")}
    by = sorted(rows, key=lambda row: (row["cause"], -row["duration_ns"], row["name"]))
    found = [Cause(kinds[cause], list(of), on_gpu) for cause, of in groupby(by, key=lambda row: row["cause"])]
    return sorted(found, key=lambda one: (-one.duration, one.kind["cause"]))


def whose_name(row: dict[str, Any]) -> tuple[str, str]:
    """The name of a row of causes apart from whose it is: of a late rank `rank 2: `, else nothing."""
    if not row.get("late_cause"):
        return "", row["name"]
    title = next(kind["title"] for kind in rule_rows("cause_kinds") if kind["cause"] == row["late_cause"])
    return f"rank {row['rank']}: ", row["name"].partition(f", {title}: ")[2]


def microseconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1000


def name_in_brackets(one: Cause) -> str:
    """The name that has most of a cause, if it says more than the cause does."""
    row = one.rows[0]
    says = row["duration_ns"] * 2 > one.duration and not row["name"].startswith(
        ("outside operators", "stream ", "earlier work")
    )
    return f" ({short_name(row['name'], NAME)})" if says else ""


def queries(trace_id: str, window_id: str = "full") -> dict[str, str]:
    """Returns the SQL of the rows that an answer is made of, by table."""
    # Not as parameters: DuckDB would import pandas.
    of = f"trace_id = {quoted(trace_id)} AND window_id = {quoted(window_id)}"
    by_size = "duration_ns DESC, cause, name"
    orders = {"causes": by_size, "causes_without_profiler": by_size, "fixes": "saves_ns DESC, fix, name"}
    columns = {"causes_without_profiler": "*, percent AS share_percent"}
    return {
        table: f"SELECT {columns.get(table, '*')} FROM {table} WHERE {of} ORDER BY {orders.get(table, 'ALL')}"
        for table in TABLES
    }


def of_rows(
    found: dict[str, list[dict[str, Any]]],
    title: str,
    *,
    without_profiler: bool | None = None,
) -> Why | None:
    """Returns the answer from the rows of TABLES; None where the window has no causes (no path).

    `without_profiler`: whether its causes are those without the profiler; None: where the profiler is more than a tenth of the window
    (threshold profiler_removed). Where it is less than is told (profiler_told) they are the same.
    """
    if not found["window_gpu_time"] or not found["causes"]:
        return None
    window, without_ns = found["window_gpu_time"][0], None
    for row in found["profiler_cost"]:
        without_ns = row["without_profiler_ns"]
    much = without_ns is not None and window["length_ns"] - without_ns > _REMOVED * window["length_ns"]
    wanted = (much if without_profiler is None else without_profiler) and bool(found["causes_without_profiler"])
    causes = found["causes_without_profiler" if wanted else "causes"]
    caveats = [{key: row[key] for key in ("severity", "detail")} for row in found["critical_path_caveats"]]
    gaps = [row["detail"] for row in found["critical_path_caveats"] if row["caveat"] == "idle_gaps"]
    return Why(title, window, causes, caveats, "".join(gaps[:1]), without_ns, wanted, tuple(found["fixes"]))


def why(
    con: duckdb.DuckDBPyConnection,
    trace_id: str,
    window_id: str = "full",
    title: str = "",
    *,
    without_profiler: bool | None = None,
) -> Why | None:
    """Returns the answer for a window from TABLES in `con`; None where the window has no causes (no path). `without_profiler`: as in
    `of_rows`.
    """
    return asked_why(partial(rows_of, con), trace_id, window_id, title, without_profiler=without_profiler)


def asked_why(
    ask: Callable[[str], list[dict[str, Any]]],
    trace_id: str,
    window_id: str = "full",
    title: str = "",
    *,
    without_profiler: bool | None = None,
) -> Why | None:
    """Returns the same from what `ask` answers to a query: its rows by column name."""
    found = {table: ask(query) for table, query in queries(trace_id, window_id).items()}
    return of_rows(found, title or trace_id, without_profiler=without_profiler)


def on_a_screen(causes: list[Cause]) -> tuple[list[Cause], list[Cause]]:
    """Returns those of an answer's causes that a screen shows, largest first, and the others."""
    shown = [one for one in causes[:_SHOWN] if one.share >= _LEAST]
    return shown, causes[len(shown) :]
