"""A comparison as GitHub's Markdown, for a comment on a pull request: verdict, both sides, causes, work, where to look."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.base import units
from pipelines.base.foreign_text import in_markdown, visible
from pipelines.fleet.trends.comparison import CAUSE, Comparison, Difference, gpu_time_known, totals
from pipelines.fleet.trends.comparison_verdict import in_words, lengths, percent, sentence

_CAUSES = 8  # rows


def markdown(
    comparison: Comparison,
    causes: Comparison,
    names: tuple[str, str],
    notes: Sequence[str],
    limit: int,
    judged: str = "",
    commands: Sequence[str] = (),
) -> str:
    """Return the comparison as the Markdown of a comment on a pull request.

    `causes`: the same windows by cause. `notes`: caveats. `judged`: the result of --fail-on. `commands`: commands that
    show more.
    """
    blocks = [f"### {in_markdown(sentence(comparison.whole))}"]
    blocks += [f"**{in_markdown(judged)}**"] if judged else []
    blocks += ["\n".join(f"> {in_markdown(note)}" for note in notes)] if notes else []
    blocks.append(_sides(comparison, names))
    blocks.append(_rows("Where the time goes", causes, _changed(causes)[:_CAUSES]))
    if comparison.by != CAUSE:  # the causes are already listed above
        has_gpu_time = comparison.whole.rows and comparison.whole.has_gpu_time
        title = "GPU time" if has_gpu_time else "Own time on the host"
        rows = comparison.whole.rows if has_gpu_time else comparison.whole.host
        blocks.append(_rows(title, comparison, rows[: limit or None]))
    listed = "\n".join(map(visible, commands))
    blocks.append(f"**Where to look**\n\n```\n{listed}\n```")
    return "\n\n".join(blocks)


def _sides(comparison: Comparison, names: tuple[str, str]) -> str:
    n, gpu = len(comparison.pairs), totals(comparison.whole.categories)
    control, test = lengths(comparison.whole.pairs)
    length = (units.time(control), units.time(test), percent(control, test))
    are_known = gpu_time_known(comparison.whole.pairs)
    times = [units.time(ns / n) if is_known else "not recorded" for ns, is_known in zip(gpu, are_known, strict=True)]
    gpu_time = (*times, percent(*gpu) if all(are_known) else "")
    names_in_markdown = [in_markdown(name) for name in names]
    rows = [("", *names_in_markdown, "change"), ("length", *length), ("GPU time", *gpu_time)]
    head, *lines = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|---|---:|---:|---:|", *lines])


def _changed(causes: Comparison) -> list[Difference]:
    rows = causes.whole.rows or causes.whole.host
    return sorted(rows, key=lambda row: -abs(row.diff_ns))


def _rows(title: str, comparison: Comparison, rows: Sequence[Difference]) -> str:
    n = len(comparison.pairs)
    lines = [
        f"| {in_markdown(in_words(row, comparison.by))} | {units.time(row.control_ns / n)} | {units.time(row.test_ns / n)} "
        f"| {units.difference(row.diff_ns / n)} |"
        for row in rows
    ]
    window = "step" if comparison.pairs[0].pair.control.step is not None else "trace"
    head = [f"**{title}**, by {comparison.by}, a {window}", "", f"| {comparison.by} | control | test | diff |"]
    return "\n".join([*head, "|---|---:|---:|---:|", *lines])
