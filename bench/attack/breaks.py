"""One try: interrupt a command, check the visible rows, rerun it, and compare the lake with an uninterrupted run."""

from __future__ import annotations

from bench.attack.children import End, run
from bench.attack.tally import Tally
from bench.attack.verbs import Stage, missing, rows, wholeness


def try_once(stage: Stage, strace: tuple[str, ...], tally: Tally) -> End:
    """Interrupt the command of `stage` as `strace` specifies, and count the try in the tally, with a note if it failed.

    `strace`: the options of strace that kill the command or fail one of its system calls (`inject`).
    """
    stage.reset()
    tally.tried += 1
    label = f"{stage.scene.name}: {strace[-1]}"
    end = run(stage.scene.verb, stage.lake, stage.source, strace=strace)
    if end.has_traceback:
        return _went(tally, "tracebacks", f"{label}: {end.said.strip().splitlines()[-1][:200]}", end)
    if half := wholeness(stage.lake):
        return _went(tally, "silent", f"{label}: half visible: {half}", end)
    if missing({"traces": stage.first.get("traces", [])}, rows(stage.lake)) and stage.scene.name != "retention":
        return _went(tally, "lost", f"{label}: traces that were there are not", end)
    if (
        end.code == stage.scene.code and "error:" not in end.said and (seen := _differs(stage))
    ):  # the verb reported success
        return _went(tally, "silent", f"{label}: exit {end.code}, and {seen}", end)
    again = run(stage.scene.verb, stage.lake, stage.source)
    if again.has_traceback or again.code != stage.scene.code or "error:" in again.said:
        return _went(tally, "tracebacks", f"{label}: run again: {again.code} {again.said.strip()[-200:]}", end)
    if gone := missing(stage.wanted, rows(stage.lake)):
        return _went(tally, "lost", f"{label}: rows of {', '.join(gone)} are missing after it was run again", end)
    if (seen := _differs(stage)) or (seen := wholeness(stage.lake)):
        return _went(tally, "silent", f"{label}: run again: {seen}", end)
    tally.survived += 1
    return end


def _differs(stage: Stage) -> str | None:
    tables = rows(stage.lake)
    # A table without rows counts as equal to a missing table.
    differing = [t for t in stage.wanted | tables if stage.wanted.get(t, []) != tables.get(t, [])]
    return f"{', '.join(differing)} differ" if differing else None


def _went(tally: Tally, how: str, note: str, end: End) -> End:
    setattr(tally, how, getattr(tally, how) + 1)
    tally.notes.append(note)
    return end
