"""Check that the breakdown, the path's labels, the causes and the words cover every kernel class.

`class_kinds.csv` defines the vocabulary. Models name the six classes of `NAMED`. Any other class counts as COMPUTATION,
because `_event_names`, which names causes, treats kernels of a class that it does not name as computation.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pipelines.models.errors import CatalogError

NAMED = ("COMPUTATION", "COMMUNICATION", "MEMORY", "RUNTIME", "SYNCHRONIZATION", "OTHER")
_COMPUTES = "COMPUTATION"
_ON_THE_PATH = ("COMPUTATION", "COMMUNICATION", "MEMORY")  # each has its own label
_READS = ("class_kinds", "kernel_classes", "bound_by")
Row = tuple[str, dict[str, str]]  # location, columns


class RuleTable(NamedTuple):
    """A table of rules: its file, its columns, and the rows added by the user."""

    path: Path
    columns: Sequence[str]
    added: Sequence[tuple[str | None, ...]]


def refuse_unknown_classes(tables: Mapping[str, RuleTable]) -> None:
    """Raise CatalogError with file, line and remedy unless all readers of classes know all classes.

    A folder without these rules, such as a test's, has no classes.
    """
    if not all(name in tables for name in _READS):
        return
    kinds, rules, bounds = (list(_rows(tables[name])) for name in _READS)
    file = tables["class_kinds"].path
    counts_as = {row["class"]: row["counts_as"] for _, row in kinds}
    if missing := [name for name in NAMED if name not in counts_as]:
        raise CatalogError(f"{file}: class {missing[0]} is missing, which models name; write its row again")
    for location, row in kinds:
        _check_kind(location, row)
    for location, row in rules:
        if row["class"] not in counts_as:
            raise CatalogError(
                f"{location}: rule {row['rule_id']!r} gives class {row['class']!r}, which is unknown; write one of "
                f"{', '.join(counts_as)}, or add `{row['class']},{_COMPUTES},WORDS,MEANING` to {file}"
            )
    for location, row in bounds:
        if row["class"] not in counts_as and row["class"] != "*":
            raise CatalogError(
                f"{location}: class {row['class']!r} is unknown; write * or one of {', '.join(counts_as)}, the classes of {file}"
            )
    _check_labels(tables["bound_by"].path, kinds, bounds)


def _rows(table: RuleTable) -> Iterator[Row]:
    """Yield the rows of a rule table as `create_rules` does: the user's rows, then those that they do not replace."""
    for number, values in enumerate(table.added, 1):
        yield f"{table.path}, added row {number}", {n: v or "" for n, v in zip(table.columns, values, strict=True)}
    replaced = {values[0] for values in table.added}
    lines = table.path.read_text(encoding="utf-8").splitlines()
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line and not line.startswith("#")]
    for number, line in numbered[1:]:  # the first line names the columns
        values = next(csv.reader([line]))
        if values[0] not in replaced:
            yield f"{table.path}:{number}", dict(zip(table.columns, values, strict=False))


def _check_kind(location: str, row: dict[str, str]) -> None:
    kind, counts_as = row["class"], row["counts_as"]
    required = kind if kind in NAMED else _COMPUTES
    if counts_as != required:
        raise CatalogError(f"{location}: class {kind} counts as {counts_as!r}, which no model knows; write {required}")
    if not row["words"]:
        raise CatalogError(f"{location}: class {kind} has no words; write what pages should show instead of {kind}")


def _check_labels(bound_by: Path, kinds: list[Row], bounds: list[Row]) -> None:
    """Raise CatalogError unless each class has the same label on the path as the class it counts as."""
    labels = {
        row["class"]: (location, row["bound_by"])
        for location, row in reversed(bounds)
        if (row["profile"], row["edge_type"], row["side"]) == ("default", "OPERATOR_KERNEL", "gpu")
    }
    for location, row in kinds:
        kind, counts_as = row["class"], row["counts_as"]
        if counts_as not in _ON_THE_PATH:
            continue
        _, label = labels.get(counts_as, (location, "LABEL"))
        required = f"default,OPERATOR_KERNEL,gpu,{kind},{label},1"
        if kind not in labels:
            raise CatalogError(
                f"{location}: class {kind} has no label on the critical path; add `{required}` to {bound_by}"
            )
        if labels[kind][1] != label:
            raise CatalogError(f"{labels[kind][0]}: class {kind} counts as {counts_as}; write `{required}`")
