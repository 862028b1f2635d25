"""Formats of the values of columns: names, shapes and bars as HTML, numbers as in `pipelines.base.units`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any

from markupsafe import Markup

from pipelines.base.foreign_text import visible
from pipelines.base.kernel_names import short_names
from pipelines.base.units import count, difference, percent, ratio, share, size, time
from pipelines.faces.words import in_words

_LONG = 80


def name(value: Any) -> Markup:
    """Return a name as HTML. A kernel's name or a long name is shortened, with the full name as its tooltip."""
    full = str(value)
    if (short := shorter(full)) == full:
        return Markup('<code class="name">{}</code>').format(visible(full))
    return short_name((full, short))


def shorter(text: str, most: int = _LONG) -> str:
    """Return a text of at most `most` characters.

    Kernel names become their short names. Other texts lose their middle.
    """
    if len(text) <= most and "::" not in text and "(" not in text:
        return text  # keeps `Linear_<3>`, whose number identifies the module
    return short_names([text], most)[0]


def short_name(value: tuple[str, str]) -> Markup:
    """Return a shortened name as HTML from (full name, short name), with the full name as its tooltip."""
    return Markup('<code class="name" title="{}">{}</code>').format(visible(value[0]), visible(value[1]))


def shorten(rows: Sequence[dict[str, Any]], most: int) -> None:
    """Set `shown` of each row to its full and its short name (None: no name). Short names have at most `most` characters."""
    for row, short in zip(rows, short_names((row["name"] or "" for row in rows), most), strict=True):
        row["shown"] = None if row["name"] is None else (row["name"], short)


def file_name(value: Any) -> Markup:
    """Return the name of a file as HTML, with the full path as its tooltip."""
    return short_name((str(value), PurePath(str(value)).name))


def meter(value: float) -> Markup:
    """Return a percentage with a bar as HTML."""
    width = f"{min(max(value, 0), 100):.1f}"
    return Markup('<span class="meter"><i style="width:{}%"></i></span> {}').format(width, percent(value))


def words(value: Any) -> str:
    """Return any value as human-readable plain text."""
    return str(value)


def linked(value: Any) -> Any:
    """Return the value, a link or a text, unchanged."""
    return value


def shapes(value: Any) -> Markup:
    """Format argument shapes (JSON) as `8944x1024, 1024x2816`, without scalars. The tooltip has the full JSON text."""
    try:
        text = ", ".join(shape for argument in json.loads(value) if (shape := _shape(argument)))
    except (ValueError, TypeError):
        return name(value)
    cut = text if len(text) <= _LONG else text[: _LONG - 1] + "…"
    return Markup('<code class="shapes" title="{}">{}</code>').format(visible(value), visible(cut))


def _shape(argument: list[Any]) -> str:
    if argument and isinstance(argument[0], list):  # a list of tensors
        return f"[{', '.join(_shape(tensor) for tensor in argument)}]"
    return "x".join(map(str, argument))


def yes_or_no(value: bool) -> str:
    """Return a flag as a word."""
    return "yes" if value else "no"


def change(value: float) -> str:
    """Return a change in percent as text with its sign."""
    return f"{value:+.1f} %"


def change_of_share(value: float) -> str:
    """Return a relative change (1 is all of it) as a percentage with its sign."""
    return change(100 * value)


def gpu_time(seconds: float) -> str:
    """Return a GPU time in hours, or in smaller units if it is less than an hour."""
    return f"{seconds / 3600:,.2f} h" if seconds >= 3600 else time(seconds * 1e9)


def rank_name(rank: int) -> str:
    """Return the name of a rank, such as `rank 3`."""
    return f"rank {rank}"


def price(value: float) -> str:
    """Return an amount of money as text."""
    return f"{value:,.2f}"


def device_kind(device_type: int) -> str:
    """Return the kind of a device from PyTorch's number of the device type."""
    return {0: "CPU", 1: "CUDA", 6: "HIP"}.get(device_type, f"type {device_type}")


FORMATS: dict[str, Callable[[Any], str]] = {show.__name__: show for show in (count, meter, words)}
"""Formats that templates/tables.toml names, if the name of a column does not determine its format."""
_OF_NAMES: dict[Callable[[Any], str], str] = {
    count: "n rank device step layer group_size seq worst_rank flops_matrix tokens_per_s",
    share: "coverage mfu mfu_tf32 mfu_busy mfu_wall hfu_busy bubble_upper",
    ratio: "efficiency tflops",
    percent: "percent_of_window",
    time: "window fwd bwd recompute replay",
    words: "kind state grid block matched_by check_name severity detail family dtype peak_kind currency role confidence "
    "group_ranks dump_missing culprits waiting metric status newest where gpu input_dims",
    in_words: "class source bound_by cat owner_cat cause phase reason not_modelled dragging_stage",
    yes_or_no: "is_root is_straggler spans_nodes",
    change: "change step_change_percent",
    rank_name: "slowest_rank straggler_rank",
    **{shapes: "dims", short_name: "shown", linked: "link", file_name: "path", difference: "diff_ns"},
    **{change_of_share: "effect", gpu_time: "gpu_seconds", price: "price"},
    device_kind: "device_type",
}
_BY_NAME = {column: show for show, columns in _OF_NAMES.items() for column in columns.split()}
_BY_UNIT = {
    "ns": time,
    "bytes": size,
    "percent": percent,
    "utilization": share,
    "ratio": ratio,
    "s": ratio,
    "n": count,
    "at": words,
}


def format_of(column: str) -> Callable[[Any], str]:
    """Return the format of a column by its name or the unit at the end of its name, or else the format of names."""
    if column in _BY_NAME:
        return _BY_NAME[column]
    if column.startswith(("n_", "bytes")):
        return count if column.startswith("n_") else size
    return _BY_UNIT.get(column.rpartition("_")[2], name)
