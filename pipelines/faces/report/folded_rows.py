"""Merging of rows of similar layers, such as `DecoderLayer_0` … `DecoderLayer_23`, if their times are about equal."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Any

Row = dict[str, Any]
_NUMBER = re.compile(r"\d+")
_LEAST = 3
_APART = 0.25  # maximum relative deviation of a merged layer's time from the median


def folded(rows: Sequence[Row], sums: Sequence[str], alike: Sequence[str] = ()) -> list[Row]:
    """Return the rows, after merging rows whose names differ in one number only and whose times are about equal.

    `sums`: the columns to add up. The last one is the time to compare, by which the result is sorted, largest first. `alike`:
    columns that must be equal. Ratios become means weighted by the time. Groups of fewer than _LEAST rows are not merged.
    Layers whose time differs from the median by more than _APART keep their own rows.
    """
    time = sums[-1]
    groups: defaultdict[tuple, list[Row]] = defaultdict(list)
    for row in rows:
        shape = _NUMBER.sub("#", row["name"])
        groups[(shape, *(row[key] for key in alike), row[time] is None)].append(row)
    result: list[Row] = []
    for group in groups.values():
        if len(group) < _LEAST or group[0][time] is None:
            result += group
            continue
        middle = median(row[time] for row in group)
        usual = [row for row in group if abs(row[time] - middle) <= _APART * middle]
        if len(usual) < _LEAST or not _one_number_differs(usual):
            result += group
            continue
        result.append(_folded(usual, sums))
        result += [row for row in group if not any(row is other for other in usual)]
    return sorted(result, key=lambda row: (-(row[time] or 0), row["name"]))


def _one_number_differs(group: Sequence[Row]) -> bool:
    numbers = [_NUMBER.findall(row["name"]) for row in group]
    return sum(len(set(column)) > 1 for column in zip(*numbers, strict=True)) == 1


def _folded(layers: Sequence[Row], sums: Sequence[str]) -> Row:
    weights = [row[sums[-1]] for row in layers]
    merged = {key: _merged(key in sums, [row[key] for row in layers], weights) for key in layers[0]}
    return {**merged, "name": _range([row["name"] for row in layers])}


def _merged(is_summed: bool, values: Sequence[Any], weights: Sequence[float]) -> Any:
    """Return a sum, the weighted mean of ratios, whether any flag is set, or the common value (None if the values differ)."""
    weighted = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
    if is_summed:
        return sum(value for value, _ in weighted) if weighted else None
    if any(isinstance(value, bool) for value, _ in weighted):
        return any(value for value, _ in weighted)
    if any(isinstance(value, float) for value, _ in weighted):
        total_weight = sum(weight for _, weight in weighted)
        return sum(value * weight for value, weight in weighted) / total_weight if total_weight else None
    return values[0] if all(value == values[0] for value in values) else None


def _range(names: Sequence[str]) -> str:
    """Return a name such as `Layer_{0…23} (24 alike)`, with the lowest and the highest of the numbers in which they differ."""
    split = [re.split(r"(\d+)", name) for name in names]
    index = next(i for i, parts in enumerate(zip(*split, strict=True)) if len(set(parts)) > 1)
    numbers = sorted(int(parts[index]) for parts in split)
    first = split[0]
    before, after = "".join(first[:index]), "".join(first[index + 1 :])
    return f"{before}{{{numbers[0]}…{numbers[-1]}}}{after} ({len(names)} alike)"
