"""`tracelake flame`: a recording of stacks as a flame graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.faces.cli.console import fail, out
from pipelines.faces.cli.options import DEFAULT_LAKE, LakeOption, new_file, out_option, path_option


def flame(
    recording: Annotated[
        str,
        typer.Argument(
            help="A recording's id or its unique beginning, or run_id: SELECT recording_id FROM recordings WHERE kind = 'stacks'."
        ),
    ],
    out_file: Annotated[Path, out_option("The SVG to write.")] = Path("flame.svg"),
    thread: Annotated[str | None, typer.Option(help="Draw only the threads of this name.")] = None,
    cpu: Annotated[
        bool, typer.Option("--cpu", help="Weigh by CPU time instead of samples, which leaves out waiting.")
    ] = False,
    folded_file: Annotated[
        Path | None,
        path_option("Also write the stacks as text for other programs.", "FILE", "--folded", parser=new_file),
    ] = None,
    lake: LakeOption = DEFAULT_LAKE,
) -> None:
    """Draw where a Python program spent its time: the stacks sampled by `python -m pipelines.record.stacks`.

    Example: `tracelake flame 20261121T0530 --out flame.svg`
    """
    from pipelines.faces.cli.refresh_tables import open_analyst
    from pipelines.faces.report.pictures.flame_graph import Seen, flame, folded, frames_of
    from pipelines.models.sqltext import quoted

    con = open_analyst(lake, ["recordings", "stack_samples"])
    quoted_name = quoted(recording)
    matches = con.execute(
        "SELECT recording_id, state, n_samples, interval_ns, source FROM recordings WHERE kind = 'stacks' "
        f"AND (starts_with(recording_id, {quoted_name}) OR run_id = {quoted_name})"
    ).fetchall()
    if len(matches) != 1:
        rows = con.execute("SELECT recording_id FROM recordings WHERE kind = 'stacks' ORDER BY 1").fetchall()
        recording_ids = ", ".join(row[0] for row in rows[:10]) or "none"
        raise fail(
            f"{recording!r} matches {len(matches)} recordings of stacks in the lake {lake}",
            f"Recordings: {recording_ids}",
        )
    ((recording_id, state, n_samples, interval_ns, timer),) = matches
    weight = "cpu_ns // 1000" if cpu else "n_samples"
    thread_clause = "" if thread is None else f" AND thread = {quoted(thread)}"
    query = f"SELECT thread, frames, coalesce({weight}, 0) FROM stack_samples WHERE recording_id = {quoted(recording_id)}{thread_clause}"
    stacks = [Seen(name, frames_of(frames), int(n)) for name, frames, n in con.execute(query).fetchall()]
    description = f"{n_samples or 0:,} samples {(interval_ns or 0) / 1e6:g} ms apart by {timer}" + (
        "" if state == "complete" else f", {state}"
    )
    try:
        svg = flame(f"{recording_id}: {description}", stacks, "us of CPU time" if cpu else "samples")
    except ValueError as error:
        thread_text = f" in threads named {thread!r}" if thread is not None else ""
        raise fail(f"{recording_id}{thread_text}: {error}") from None
    out_file.write_text(svg, encoding="utf-8")
    if folded_file is not None:
        folded_file.write_text(folded(stacks), encoding="utf-8")
    out.line("open in a browser: [bold]{}[/]", out_file)
