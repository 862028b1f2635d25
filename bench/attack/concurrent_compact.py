"""`compact` without a grace period while `materialize` runs. Both must exit with 0, and no answer may change."""

from __future__ import annotations

import random
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.attack.children import run
from bench.attack.tally import Tally
from bench.attack.verbs import Scene, command, ingest, materialize, missing, rows, stage, wholeness
from tests.lake.world import write_trace

BATCHES = 3


def attack(n: int, seed: int) -> Tally:
    """Run both commands `n` times, on a lake of several small batches whose tables are not computed."""
    tally, choice = Tally("compact during materialize"), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        world = stage(
            Scene("concurrent_compact", (ingest, *(_more,) * (BATCHES - 1)), materialize), Path(folder), ranks=1
        )
        began = time.monotonic()
        world.reset()
        run(materialize, world.lake, world.source)
        duration_s = time.monotonic() - began
        for _ in range(n):
            world.reset()
            delay_s = choice.uniform(0, duration_s)
            tally.tried += 1
            with ThreadPoolExecutor(1) as pool:
                computing = pool.submit(run, materialize, world.lake, world.source)
                time.sleep(delay_s)
                ends = {"compact": run(compact, world.lake), "materialize": computing.result()}
            label = f"compact {delay_s:.2f} s after materialize"
            if bad := [name for name, end in ends.items() if end.has_traceback or end.code]:
                tally.tracebacks += any(end.has_traceback for end in ends.values())
                tally.silent += not any(end.has_traceback for end in ends.values())
                tally.notes += [f"{label}: {name}: {ends[name].code} {ends[name].said.strip()[-200:]}" for name in bad]
            elif problem := wholeness(world.lake):
                tally.silent += 1
                tally.notes.append(f"{label}: half visible: {problem}")
            elif missing_tables := missing(world.wanted, current_rows := rows(world.lake)):
                tally.lost += 1
                tally.notes.append(f"{label}: rows of {', '.join(missing_tables)} are missing")
            elif current_rows != world.wanted:
                tally.silent += 1
                tally.notes.append(f"{label}: rows are duplicated or changed")
            else:
                tally.survived += 1
    return tally


def compact(lake: Path) -> None:
    """Merge all batches, including today's, and delete their files immediately."""
    command("compact", "--older-than", "0", "--grace-hours", "0", "--lake", str(lake))


def _more(lake: Path, source: Path) -> None:
    """Ingest another trace, which becomes a separate batch."""
    number = len([*source.glob("*.json")])
    write_trace(source / f"rank{number}.json", number, distributedInfo={"rank": number})
    ingest(lake, source)
