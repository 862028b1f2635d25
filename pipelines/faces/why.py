"""The answer to why a window takes as long as it does: one sentence and its causes, from the rows of TABLES.

`tracelake why`, the report, notebooks, the console and MCP share it.
"""

from __future__ import annotations

import re
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
from pipelines.base.kernel_names import glob_of, short_name, short_names
from pipelines.faces.advice import advice_of, advice_of_name
from pipelines.faces.what_helps import best_fix, fix_json, what_if_command
from pipelines.models.sqltext import quoted

TABLES = ("causes", "window_gpu_time", "critical_path_caveats", "profiler_cost", "causes_without_profiler", "fixes")
"""Tables that the answer reads."""
_REPORTED, _REMOVED = threshold("profiler_reported"), threshold("profiler_removed")
_WHOLE_STEPS = threshold("whole_steps")
_APART = threshold("steps_apart_percent") / 100
CLAUSE = 0.05
"""Minimum share of the window that gets a cause a clause in the sentence."""
_ALL = 0.99  # share of a cause's time that counts as all of it
NAME = 48  # characters
_OTHERS = "(other names)"  # the small names of a cause, added up in a digest (sql/fleet/digest)
_SHOWN = 6  # causes on a screen
_LEAST = 1  # minimum percent of the window of a cause on a screen


@dataclass(frozen=True)
class Cause:
    """All rows of a cause in a window, largest first, with times in ns.

    `saves`: by how much removing all of them shortens the window, or None if it was not computed.
    """

    kind: dict[str, str]
    rows: list[dict[str, Any]]
    on_gpu: bool = True
    """Whether the window has GPU work."""

    @property
    def title(self) -> str:
        """Return the display name.

        In a window without GPU work, drop "(launch bound)" and "unnecessary", which cannot be known.
        """
        title = self.kind["title"]
        return title if self.on_gpu else title.partition(" (")[0].removeprefix("unnecessary ")

    @cached_property
    def duration(self) -> int:
        return sum(row["duration_ns"] for row in self.rows)

    @cached_property
    def share(self) -> float:
        """Return the cause's share of the window, in percent."""
        return sum(row["share_percent"] for row in self.rows)

    @property
    def saves(self) -> int | None:
        return self.rows[0]["cause_saves_ns"]

    @property
    def halved(self) -> int | None:
        """Return the saving of halving the cause, in ns, or None if the cause has more than one row."""
        return self.rows[0]["halved_saves_ns"] if len(self.rows) == 1 else None

    @property
    def is_gpu_work(self) -> bool:
        return self.kind["cause"] in ("gpu_computing", "copies", "communication")

    @property
    def felt(self) -> int:
        """Return the GPU time lost to the cause, in ns.

        GPU work loses its exposed time, in which no kernel computes. Any other cause loses the time in which no GPU
        work runs.
        """
        return sum(row["exposed_ns" if self.is_gpu_work else "gpu_idle_ns"] for row in self.rows)

    def description(self, steps: int) -> str:
        """Return the cause's name, its time and its savings as text, with times divided by `steps`."""
        each = " a step" if steps > 1 else ""
        described = f"{self.title}: {units.time(self.duration / steps)}{each}{self._bare(steps)}"
        if self.saves is None:
            return described
        halving = "" if self.halved is None else f", halving it {units.time(self.halved / steps)}"
        return f"{described}; removing it{self._on_rank} saves {units.time(self.saves / steps)}{halving}"

    @property
    def _on_rank(self) -> str:
        """Return the retimed rank as text for a late rank's saving, else "".

        Several ranks may be late, but only one is retimed.
        """
        options = self.rows[0]["cause_options"] if self.kind["cause"] == "late_rank" else None
        match = re.search(r"rank:(\d+):", options or "")
        return f" on rank {match[1]}" if match else ""

    def _bare(self, steps: int) -> str:
        """Return the exposed time of communication or copies in brackets, or "" if (almost) all of it is exposed.

        Return "" for other causes, and for rows of a capture, which do not contain exposed time.
        """
        may_be_hidden = self.kind["cause"] in ("copies", "communication") and "rank" not in self.rows[0]
        if not may_be_hidden or self.felt >= _ALL * self.duration:
            return ""
        return f" ({units.time(self.felt / steps)} not overlapped with compute)"

    @cached_property
    def advice(self) -> str:
        """Return the one line of advice that applies to most of the cause's time."""
        names = ((row["name"], row["duration_ns"]) for row in self.rows if row["name"] != _OTHERS)
        return advice_of(self.kind["cause"], names, on_gpu=self.on_gpu)

    def names(self, most: int) -> str:
        """Return up to `most` names of at least 1 % of the cause, with their shares, and the number of further names.

        The number is unknown if they are added up (_OTHERS).
        """
        time: dict[tuple[str, str], int] = {}  # ns by prefix of a late rank (or "") and name
        named = [row for row in self.rows if row["name"] != _OTHERS]
        for row in named:
            name = whose_name(row)
            time[name] = time.get(name, 0) + row["duration_ns"]
        largest = sorted(time.items(), key=lambda item: -item[1])[:most]
        short = short_names((name for (_, name), _ in largest), NAME)
        labelled = [
            (f"{prefix}{name or '(no name)'}", ns) for ((prefix, _), ns), name in zip(largest, short, strict=True)
        ]
        parts = [f"{name} ({100 * ns / self.duration:.0f} %)" for name, ns in labelled if 100 * ns >= self.duration]
        more = len(time) - len(parts)
        rest = "others" if len(named) < len(self.rows) else f"{more} more" if more else ""
        return " and ".join(text for text in (", ".join(parts), rest) if text)

    def command(self, trace: str, options: Sequence[str] = ()) -> str:
        """Return the what-if command that computes the cause's savings.

        If a capture was not retimed without the cause, return the command that shows its path. `options` select the same window
        in other commands.
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
    """Caveat about gaps between kernels, or "" unless the trace may lack events in much of them."""
    without_profiler_ns: int | None = None
    """Length of the window without the overhead of the profiler, in ns, or None if it is unknown."""
    is_without_profiler: bool = False
    """Whether the rows are those of the window without the profiler."""
    fixes: tuple[dict[str, Any], ...] = ()
    """Rows of table `fixes` of the same window, largest saving first."""
    untraced: str = ""
    """Value of --untraced: the length of a step without the profiler, to which the profiler's costs are scaled."""
    subject: str = ""
    """Name of the trace in commands, if `as_json` is called without it ("": its id)."""
    of_lake: tuple[str, ...] = ()
    """The options with which commands find the trace, if `as_json` is called without options."""

    def __str__(self) -> str:
        return printed(self.caveats, self.sentence)

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: caveats, the sentence, a bar of causes, and the fixes."""
        from pipelines.faces.why_html import why_html

        return why_html(self)

    def caveat_for(self, cause: Cause) -> str:
        """Return the caveat to print with this cause's numbers, or an empty string."""
        return self.idle_gaps if cause.kind["cause"] in ("gpu_waiting", "launching") else ""

    @property
    def heading(self) -> str:
        """Return the trace's title, followed by the window unless the window is the whole trace."""
        window = self.window["window_id"]
        return self.title if window == "full" else f"{self.title}, {window}"

    @cached_property
    def causes(self) -> list[Cause]:
        """Return the causes, each with all of its rows, largest first."""
        return grouped(self.rows, on_gpu=self.window["busy_ns"] > 0)

    @property
    def length(self) -> int:
        """Return the length of the window in ns, without the profiler if the rows are without it."""
        without = self.without_profiler_ns if self.is_without_profiler else None
        return self.window["length_ns"] if without is None else without

    @property
    def steps(self) -> int:
        """Return the number of steps to divide times by, or 1 if steps take less than _WHOLE_STEPS of the window."""
        steps, time = self.window["n_steps"] or 0, self.window["steps_ns"] or 0
        return steps if steps > 1 and time >= _WHOLE_STEPS * self.window["length_ns"] else 1

    @property
    def _median_ns(self) -> int | None:
        """Return the median length of the steps in ns, or None if it is close to their mean, which then suffices.

        Digests of earlier versions have no median.
        """
        steps, median = self.steps, self.window.get("median_step_ns")
        mean = (self.window["steps_ns"] or 0) / steps
        return None if steps == 1 or median is None or abs(mean - median) <= _APART * mean else median

    @property
    def _whole(self) -> str:
        """Return the length of the window, or of each of its steps, as text.

        Include the length without the profiler if the profiler costs more than _REPORTED of the window. Include the
        median of the steps if it differs from their mean.
        """
        steps, with_it, without = self.steps, self.window["length_ns"], self.without_profiler_ns
        traced, about = units.time(with_it / steps), ""
        if without is not None and with_it - without > _REPORTED * with_it:
            about = f"about {units.rounded_time(without / steps)}"
        if self._median_ns is not None:
            median = f"the median {units.time(self._median_ns)}"
            if about and self.is_without_profiler:
                return f"{about} a step on average without the profiler ({traced} with it, {median})"
            return f"{traced} a step on average ({f'{about} without the profiler, ' if about else ''}{median})"
        if not about:
            return f"each {traced} step" if steps > 1 else traced
        if self.is_without_profiler:
            return f"{'each step of ' if steps > 1 else ''}{about} without the profiler ({traced} with it)"
        return f"{f'each {traced} step' if steps > 1 else traced} ({about} without the profiler)"

    @cached_property
    def sentence(self) -> str:
        """Return one sentence that states where the window's time goes."""
        length, steps, length_text = self.length, self.steps, self._whole
        if not self.window["busy_ns"]:
            clauses = [
                f"{units.time(cause.duration / steps)} {cause.title}{name_in_brackets(cause)}"
                for cause in self.causes[:2]
            ]
            # This is true whether the program has no GPU work, the profiler did not record it, or the file is truncated
            # before it.
            return f"In {length_text} the trace shows no GPU work: {', '.join(clauses)}."
        computes = f"Of {length_text} the GPU computes {units.time(self.window['computing_ns'] / steps)}{self._most()}"
        other_causes = [cause for cause in self.causes if cause.kind["cause"] != "gpu_computing"]
        other_causes = sorted(
            (cause for cause in other_causes if cause.felt >= CLAUSE * length), key=lambda cause: -cause.felt
        )
        clauses = [
            f"{units.time(cause.felt / steps)} {cause.kind['phrase']}{name_in_brackets(cause)}"
            for cause in other_causes[:2]
        ]
        return f"{'; '.join([computes, *clauses])}.{best_fix(self.fixes, steps)}"

    def options(self, of_window: Sequence[str] = ()) -> list[str]:
        """Return the options with which `what-if` answers for the same window, with or without the profiler's cost."""
        if not self.is_without_profiler:
            return [*of_window]
        return [*of_window, *(["--untraced", self.untraced] if self.untraced else ["--without-profiler"])]

    def _most(self) -> str:
        """Return a clause about the operator that computes most, or "" unless computing is the largest cause."""
        first = self.causes[0] if self.causes else None
        if first is None or first.kind["cause"] != "gpu_computing":
            return ""
        row = first.rows[0]
        return f", most for {short_name(row['name'], NAME)} ({100 * row['duration_ns'] / first.duration:.0f} %)"

    def as_json(self, subject: str = "", options: Sequence[str] = ()) -> dict[str, Any]:
        """Return the object of `--json`: times in us, `causes` with shares that sum to 100, largest first, and `fixes`.

        `subject`: name of the trace in commands (default: the attribute). `options`: options that select the window in
        commands (default: those of a step by its name, and `of_lake`).
        """
        window, trace = self.window, subject or self.subject or self.window["trace_id"]
        if not options:
            of_step = [] if window["window_id"] == "full" else ["--annotation", window["window_id"]]
            options = [*of_step, *self.of_lake]
        titles, on_gpu = {cause.kind["cause"]: cause.title for cause in self.causes}, self.window["busy_ns"] > 0
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
                    # `command` computes `saves_us`, `cause_command` computes `cause_saves_us`.
                    "command": self._cause_command(trace, f"{row['cause']}:{glob_of(row['name'])}", options),
                    "cause_command": self._cause_command(trace, row["cause"], options),
                }
                for row in self.rows
            ],
            "fixes": [fix_json(row, self.fix_command(row, trace, options)) for row in self.fixes],
            "caveats": self.caveats,
        }

    def fix_command(self, row: dict[str, Any], trace: str, of_window: Sequence[str] = ()) -> str:
        """Return the what-if command that computes a fix's saving, with the same --untraced as the causes."""
        changes = row["options"]
        if self.untraced:
            changes = changes.replace("--without-profiler", shlex.join(["--untraced", self.untraced]))
        return what_if_command(trace, changes, of_window)

    def _cause_command(self, trace: str, target: str, options: Sequence[str]) -> str:
        return what_if_command(trace, shlex.join(["--remove", f"cause:{target}"]), self.options(options))


def printed(caveats: list[dict[str, Any]], sentence: str) -> str:
    """Return the first lines of an answer: its caveats, except those of severity info, then the sentence."""
    return "\n".join(
        [*(f"{caveat['severity']}: {caveat['detail']}" for caveat in caveats if caveat["severity"] != "info"), sentence]
    )


def grouped(rows: list[dict[str, Any]], *, on_gpu: bool = True) -> list[Cause]:
    """Group rows by cause and return one Cause per group, largest first. Its row of _OTHERS is the last."""
    kinds = {row["cause"]: row for row in rule_rows("cause_kinds")}
    by = sorted(rows, key=lambda row: (row["cause"], row["name"] == _OTHERS, -row["duration_ns"], row["name"]))
    causes = [Cause(kinds[kind], list(group), on_gpu) for kind, group in groupby(by, key=lambda row: row["cause"])]
    return sorted(causes, key=lambda cause: (-cause.duration, cause.kind["cause"]))


def whose_name(row: dict[str, Any]) -> tuple[str, str]:
    """Return the name of a row of `causes` as (prefix, name). The prefix is `rank 2: ` for a late rank, else ""."""
    if not row.get("late_cause"):
        return "", row["name"]
    title = next(kind["title"] for kind in rule_rows("cause_kinds") if kind["cause"] == row["late_cause"])
    return f"rank {row['rank']}: ", row["name"].partition(f", {title}: ")[2]


def microseconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1000


def name_in_brackets(cause: Cause) -> str:
    """Return the name of more than half of a cause, in brackets, or "" if no name has that much or the title implies it."""
    row = cause.rows[0]
    is_informative = row["duration_ns"] * 2 > cause.duration and not row["name"].startswith(
        ("outside operators", "stream ", "earlier work")
    )
    return f" ({short_name(row['name'], NAME)})" if row["name"] and is_informative else ""


def queries(trace_id: str, window_id: str) -> dict[str, str]:
    """Return the queries for the rows of an answer, by table of TABLES."""
    # The ids are literals because DuckDB imports pandas for query parameters.
    condition = f"trace_id = {quoted(trace_id)} AND window_id = {quoted(window_id)}"
    by_size = "duration_ns DESC, cause, name"
    orders = {"causes": by_size, "causes_without_profiler": by_size, "fixes": "saves_ns DESC, fix, name"}
    columns = {"causes_without_profiler": "*, percent AS share_percent"}
    return {
        table: f"SELECT {columns.get(table, '*')} FROM {table} WHERE {condition} ORDER BY {orders.get(table, 'ALL')}"
        for table in TABLES
    }


def of_rows(
    rows_by_table: dict[str, list[dict[str, Any]]],
    title: str,
    *,
    without_profiler: bool | None = None,
) -> Why | None:
    """Return the answer from the rows of TABLES, or None if the window has no causes (no critical path).

    `without_profiler`: whether to use the causes without the profiler. With None, they are used if the profiler costs more than
    the threshold profiler_removed, a share of the window. If table `causes_without_profiler` has no rows for the window, because
    the profiler costs at most profiler_reported, `causes` is used.
    """
    if not rows_by_table["window_gpu_time"] or not rows_by_table["causes"]:
        return None
    window, without_ns = rows_by_table["window_gpu_time"][0], None
    for row in rows_by_table["profiler_cost"]:
        without_ns = row["without_profiler_ns"]
    much = without_ns is not None and window["length_ns"] - without_ns > _REMOVED * window["length_ns"]
    use_without_profiler = (much if without_profiler is None else without_profiler) and bool(
        rows_by_table["causes_without_profiler"]
    )
    causes = rows_by_table["causes_without_profiler" if use_without_profiler else "causes"]
    caveats = [
        {key: row[key] for key in ("caveat", "severity", "detail")} for row in rows_by_table["critical_path_caveats"]
    ]
    gaps = [row["detail"] for row in rows_by_table["critical_path_caveats"] if row["caveat"] == "idle_gaps"]
    return Why(
        title,
        window,
        causes,
        caveats,
        "".join(gaps[:1]),
        without_ns,
        use_without_profiler,
        tuple(rows_by_table["fixes"]),
    )


def why(
    con: duckdb.DuckDBPyConnection,
    trace_id: str,
    window_id: str = "full",
    title: str = "",
    *,
    without_profiler: bool | None = None,
) -> Why | None:
    """Return the answer for a window from TABLES in `con`, or None if the window has no causes (no critical path).

    `without_profiler`: as in `of_rows`.
    """
    return why_from_queries(partial(rows_of, con), trace_id, window_id, title, without_profiler=without_profiler)


def why_from_queries(
    ask: Callable[[str], list[dict[str, Any]]],
    trace_id: str,
    window_id: str = "full",
    title: str = "",
    *,
    without_profiler: bool | None = None,
) -> Why | None:
    """Return the same answer as `why`, with rows from `ask`, which maps a query to its rows by column name."""
    rows_by_table = {table: ask(query) for table, query in queries(trace_id, window_id).items()}
    return of_rows(rows_by_table, title or trace_id, without_profiler=without_profiler)


def on_a_screen(causes: list[Cause]) -> tuple[list[Cause], list[Cause]]:
    """Split causes, largest first, into (the causes that a screen shows, the remaining causes)."""
    on_screen = [cause for cause in causes[:_SHOWN] if cause.share >= _LEAST]
    return on_screen, causes[len(on_screen) :]
