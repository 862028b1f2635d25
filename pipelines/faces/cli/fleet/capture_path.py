"""`tracelake capture-path`: the critical path through the ranks of a capture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from pipelines.base import units
from pipelines.base.kernel_names import short_name, short_names
from pipelines.faces.cli.console import fail, new_table, out, print_json, styled
from pipelines.faces.cli.fleet.opened_capture import opened_capture
from pipelines.faces.cli.options import DEFAULT_LAKE, CaptureArgument, JsonOption, LakeOption, ProcessOption
from pipelines.faces.words import in_words

if TYPE_CHECKING:
    from pipelines.fleet.path.answer import CapturePath

_SHOWN = 12
_RANKS = 16
_NAME = 60


def capture_path(
    capture: CaptureArgument,
    target: Annotated[
        str, typer.Option(help="Where the path ends: last_gpu_end, last_collective_end or last_event_end.")
    ] = "last_gpu_end",
    process: ProcessOption = None,
    lake: LakeOption = DEFAULT_LAKE,
    json: JsonOption = False,
) -> None:
    """What held the whole job up: the path through all ranks, which moves to the last rank at every collective.

    Example: `tracelake capture-path /fleet/job42/ --target last_collective_end`
    """
    from pipelines.fleet.path.answer import TABLES, find_capture
    from pipelines.fleet.path.answer import capture_path as answer_of
    from pipelines.fleet.path.walk import TARGETS

    if target not in TARGETS:
        raise fail(f"no target {target!r}", f"There are: {', '.join(TARGETS)}")
    with opened_capture(capture, lake, TABLES, process=process) as (con, id_prefix):
        capture_id = find_capture(con, id_prefix)
        answer = answer_of(con, capture_id, target)
    if json:
        print_json(answer.as_json())
    else:
        _print(answer)


def _print(answer: CapturePath) -> None:
    from pipelines.fleet.collectives.evidence import evidence_in_words

    out.print(_shares(answer))
    out.print(_owners(answer))
    out.print(_stretches(answer))
    gap, guessed = answer.kind_us.get("gap", 0.0), answer.guessed_us
    out.print(
        f"host outside operators: {units.time_us(gap)}, {answer.gap_percent:.1f} % of the path; "
        f"{units.time_us(answer.unowned_us)} of it in no annotation and no Python function"
    )
    if answer.n_guessed:
        out.print(
            f"inferred: {answer.n_guessed:,} wait{'' if answer.n_guessed == 1 else 's'}, {units.time_us(guessed)}, {100 * guessed / answer.span_us:.1f} % "
            "(without cuda_sync rows a trace does not record which work waited for which)"
        )
    if answer.matched_by:
        out.print(evidence_in_words([answer.matched_by]), soft_wrap=True)
    if answer.left_out:
        ranks = ", ".join(map(str, answer.left_out))
        out.print(styled("[yellow]not joined with the others, so not on the path: rank {}[/]", ranks))


def _shares(answer: CapturePath) -> Table:
    """Return a table of the time by rank and kind. Inferred time of a kind has a separate, marked row."""
    end = answer.target.replace("_", " ").replace("gpu", "GPU")
    heading = f"critical path through {answer.n_ranks} ranks to the {end}: {units.time_us(answer.span_us)}"
    headings = (">rank", "kind", ">segments", ">time", ">percent")
    table = new_table(*headings, title=heading, min_width=len(heading))
    for rank, share in list(answer.share_us.items())[:_RANKS]:
        segments = [segment for segment in answer.segments if segment.rank == rank]
        percent = f"{answer.share_percent[rank]:.2f}"
        table.add_row(
            *(styled("[bold]{}[/]", t) for t in (rank, "all")),
            f"{len(segments):,}",
            units.time_us(share),
            styled("[bold]{}[/]", percent),
        )
        parts = sorted({(s.kind, s.guessed) for s in segments}, key=lambda part: -_time(segments, *part))
        for kind, guessed in parts:
            time = _time(segments, kind, guessed)
            n = sum((s.kind, s.guessed) == (kind, guessed) for s in segments)
            label = styled("{}" + (" [yellow](inferred)[/]" if guessed else ""), in_words(kind))
            table.add_row("", label, f"{n:,}", units.time_us(time), f"{100 * time / answer.span_us:.2f}")
        table.add_section()
    remaining = list(answer.share_us.items())[_RANKS:]
    if remaining:
        time, n = sum(share for _, share in remaining), len(remaining)
        percent = f"{100 * time / answer.span_us:.2f}"
        table.add_row("…", f"{n:,} more ranks", "", units.time_us(time), percent)
    return table


def _owners(answer: CapturePath) -> Table:
    """Return a table of the time by owner, summed over the ranks."""
    table = new_table("~owner", ">time", ">percent", title="by owner")
    top_owners = list(answer.owner_us.items())[:_SHOWN]
    names = short_names((owner or "(no name)" for owner, _ in top_owners), _NAME)
    for name, (_, time) in zip(names, top_owners, strict=True):
        table.add_row(name, units.time_us(time), f"{100 * time / answer.span_us:.2f}")
    if len(answer.owner_us) > _SHOWN:
        remaining_us = sum(list(answer.owner_us.values())[_SHOWN:])
        more = f"{len(answer.owner_us) - _SHOWN} more owners"
        table.add_row(more, units.time_us(remaining_us), f"{100 * remaining_us / answer.span_us:.2f}")
    return table


def _time(segments: list[Any], kind: str, guessed: bool) -> float:
    return sum(segment.dur_us for segment in segments if (segment.kind, segment.guessed) == (kind, guessed))


def _stretches(answer: CapturePath) -> Table:
    """Return a table of the intervals that the path spends on one rank, with the longest segment of each."""
    table = new_table(">from", ">rank", ">time", "~mostly", title="from rank to rank")
    for stretch in answer.stretches[:_SHOWN]:
        end = stretch.start_us + stretch.dur_us
        segments = [s for s in answer.segments if s.rank == stretch.rank and stretch.start_us <= s.start_us < end]
        longest = max(segments, key=lambda s: s.dur_us)
        time = units.time_us(longest.dur_us)
        longest_text = f"{in_words(longest.kind)} {time} {short_name(longest.owner or '', _NAME)}"
        table.add_row(units.time_us(stretch.start_us), str(stretch.rank), units.time_us(stretch.dur_us), longest_text)
    if len(answer.stretches) > _SHOWN:
        table.add_row("…", "", "", f"{len(answer.stretches) - _SHOWN} more stretches")
    return table
