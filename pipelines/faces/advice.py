"""Advice on a cause, chosen by its largest names (`sql/rules/causes/cause_advice.csv`), or else its general advice."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache

from pipelines.base.datafiles import rule_rows

REPLAY_INPUTS = (
    "a trace of the program's start, in which the graphs are captured (--capture-trace), a few steps without graphs, "
    "as a warm-up has, or the names of graph nodes (--annotations)"
)
"""Inputs that identify the operators, modules and layers of graph replays, which a trace does not record."""


def advice_of(cause: str, names: Iterable[tuple[str, int]], *, on_gpu: bool = True) -> str:
    """Return the advice, in one line, that applies to most of a cause's time.

    `names`: pairs of a name and its time, ns. `on_gpu`: whether the window has GPU work.
    """
    time: dict[str, int] = {}
    for name, ns in names:
        advice = advice_of_name(cause, name, on_gpu)
        time[advice] = time.get(advice, 0) + ns
    return max(time, key=lambda advice: time[advice])


@lru_cache(maxsize=4096)
def advice_of_name(cause: str, name: str, on_gpu: bool = True) -> str:
    """Return the advice of the first rule that matches a name of a cause, or else the cause's general advice."""
    for row in _rules(cause):
        if row["needs_gpu"] == "true" and not on_gpu:
            continue
        categories = row["categories"].split("|")
        if (not row["categories"] or category_of(name) in categories) and re.search(row["name_pattern"], name):
            return row["advice"]
    kind = next(row for row in rule_rows("cause_kinds") if row["cause"] == cause)
    return kind["advice"] if on_gpu else kind["advice_without_gpu"] or kind["advice"]


@lru_cache(maxsize=4096)
def category_of(name: str) -> str:
    """Return the family of an operator or a kernel (gemm, attention, elementwise, …), or `other` if no rule matches."""
    family = _families().get(name)
    return family or next((row["category"] for row in _categories() if re.search(row["name_pattern"], name)), "other")


@cache
def _rules(cause: str) -> list[dict[str, str]]:
    rows = (row for row in rule_rows("cause_advice") if row["cause"] == cause)
    return sorted(rows, key=lambda row: int(row["rule_order"]))


@cache
def _families() -> dict[str, str]:
    return {row["op"]: row["family"] for row in rule_rows("op_kinds")}


@cache
def _categories() -> list[dict[str, str]]:
    return sorted(rule_rows("kernel_categories"), key=lambda row: int(row["rule_order"]))
