"""Folds rows of equal layers into one: `DecoderLayer_0` … `DecoderLayer_23` with about the same time."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Any

Row = dict[str, Any]
_NUMBER = re.compile(r"\d+")
_LEAST = 3
_APART = 0.25  # a layer that takes this much more or less than the median is a row of its own


def folded(rows: Sequence[Row], sums: Sequence[str], alike: Sequence[str] = ()) -> list[Row]:
    """Returns the rows, of which those are one whose names differ in one number only and whose time is about the same.

    `sums`: the columns that are added up; the last one is the time that must be alike, by which the result is ordered,
    most first. `alike`: columns that must be equal. Ratios are the mean of the layers', weighted by their time. Fewer than
    three rows are not folded, nor are layers that take a quarter more or less than the median: they stand out.
    """
    time = sums[-1]
    groups: defaultdict[tuple, list[Row]] = defaultdict(list)
    for row in rows:
        shape = _NUMBER.sub("#", row["name"])
        groups[(shape, *(row[key] for key in alike), row[time] is None)].append(row)
    found: list[Row] = []
    for group in groups.values():
        if len(group) < _LEAST or group[0][time] is None:
            found += group
            continue
        middle = median(row[time] for row in group)
        usual = [row for row in group if abs(row[time] - middle) <= _APART * middle]
        if len(usual) < _LEAST or not _one_number_differs(usual):
            found += group
            continue
        found.append(_one(usual, sums))
        found += [row for row in group if not any(row is other for other in usual)]
    return sorted(found, key=lambda row: (-(row[time] or 0), row["name"]))


def _one_number_differs(group: Sequence[Row]) -> bool:
    numbers = [_NUMBER.findall(row["name"]) for row in group]
    return sum(len(set(column)) > 1 for column in zip(*numbers, strict=True)) == 1


def _one(layers: Sequence[Row], sums: Sequence[str]) -> Row:
    weights = [row[sums[-1]] for row in layers]
    merged = {key: _merged(key in sums, [row[key] for row in layers], weights) for key in layers[0]}
    return {**merged, "name": _range([row["name"] for row in layers])}


def _merged(is_summed: bool, values: Sequence[Any], weights: Sequence[float]) -> Any:
    """One value for several layers: their sum, the weighted mean of ratios, else what they all have, or None."""
    known = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
    if is_summed:
        return sum(value for value, _ in known) if known else None
    if any(isinstance(value, bool) for value, _ in known):
        return any(value for value, _ in known)
    if any(isinstance(value, float) for value, _ in known):
        whole = sum(weight for _, weight in known)
        return sum(value * weight for value, weight in known) / whole if whole else None
    return values[0] if all(value == values[0] for value in values) else None


def _range(names: Sequence[str]) -> str:
    """`Layer_{0…23} (24 equal)`: the number in which the names differ, from the lowest to the highest."""
    split = [re.split(r"(\d+)", name) for name in names]
    place = next(i for i, parts in enumerate(zip(*split, strict=True)) if len(set(parts)) > 1)
    numbers = sorted(int(parts[place]) for parts in split)
    first = split[0]
    before, after = "".join(first[:place]), "".join(first[place + 1 :])
    return f"{before}{{{numbers[0]}…{numbers[-1]}}}{after} ({len(names)} alike)"
