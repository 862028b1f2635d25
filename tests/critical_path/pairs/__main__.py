"""Predictions, first causes and the profiler's cost, compared with programs that ran twice on a GPU.

    python -m tests.critical_path.pairs [FOLDER ...] [--only NAME ...] [--write]

Reads the folders of the project and of the reference material, and each FOLDER as written by `python -m
bench.pairs.record` (`PAIRS=FOLDER make truth`). `--write` puts the tables into docs/what-if.md and docs/why.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.critical_path.pairs.predictions import Judged, judge
from tests.critical_path.pairs.recorded import FOLDERS, Pair, read
from tests.critical_path.pairs.tables import causes_table, fixes_score, predictions_table, profiler_table
from tests.critical_path.truth import write
from tests.pages import DOCS


def main(words: list[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.critical_path.pairs", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="*", metavar="FOLDER")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="These programs alone.")
    parser.add_argument("--write", action="store_true", help="Put the tables into the pages.")
    asked = parser.parse_args(words)
    predicted, fixes, causes, lengths = [], [], [], []
    for folder in [*(known for known in FOLDERS if known.is_dir()), *asked.folders]:
        recording = read(folder)
        judged = [_judged(pair) for pair in recording.pairs if not asked.only or pair.name in asked.only]
        predicted.append(predictions_table(recording, judged))
        fixes.append(fixes_score(recording, judged))
        causes.append(causes_table(recording, judged))
        lengths.append(profiler_table(recording, judged))
    for tables in (predicted, fixes, causes, lengths):
        print("\n\n".join(tables), end="\n\n")
    if asked.write:
        write(DOCS / "what-if.md", pairs="\n\n".join(predicted))
        tables = {"pairs": "\n\n".join(causes), "profiler": "\n\n".join(lengths), "fixes": "\n".join(fixes)}
        write(DOCS / "why.md", **tables)


def _judged(pair: Pair) -> Judged:
    """Return the judgement of a pair, and print to stderr why predictions are missing."""
    judged = judge(pair)
    reasons = [prediction.reason for prediction in judged.predictions if prediction.reason]
    print(f"{pair.name}: {judged.cause}", *(reason[:200] for reason in reasons), sep="; ", file=sys.stderr, flush=True)
    return judged


if __name__ == "__main__":
    main()
