"""tracelake's results for the first run of a pair: the predicted change of a step, and the first cause."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from tests.critical_path.pairs.ratios import NothingMeasured, measured_scales
from tests.critical_path.pairs.recorded import Pair


class Refused(RuntimeError):
    """A failed command; the message is the first sentence of its error."""


@dataclass(frozen=True)
class Prediction:
    """A predicted change of a step, in percent of the step.

    `percent` is None without a prediction, and `reason` states why. `way` is the command or the fix. With
    `is_untraced`, the percentage refers to a step without the profiler.
    """

    way: str
    percent: float | None
    reason: str = ""
    is_untraced: bool = False


@dataclass(frozen=True)
class Judged:
    """The predictions and the first cause of a pair.

    `cause` has the largest share of the window, and is None if the window has no causes. `without_profiler_us` is the
    computed duration of A's steps without the profiler. It is None if `why` does not state it, and for several ranks.
    """

    pair: Pair
    predictions: tuple[Prediction, ...]
    cause: str | None
    without_profiler_us: float | None = None


def judge(pair: Pair) -> Judged:
    """Run `why` and the predictions for the pair's first run. Raise Refused if `why` fails."""
    with _subject(pair) as subject:
        why = _answer("why", subject)
        why = why[0] if isinstance(why, list) else why  # without a path through all ranks: the slowest rank
        without_us = why.get("window", {}).get("without_profiler_us") if len(pair.before) == 1 else None
        return Judged(pair, (*_by_command(pair, subject), *_by_fix(pair, why)), first_cause(why), without_us)


def first_cause(why: dict[str, Any]) -> str | None:
    """Return the cause with the largest share of the window, summed over its rows, or None without causes."""
    shares: Counter[str] = Counter()
    for row in why["causes"]:
        shares[row["cause"]] += row["share_percent"]
    return max(shares, key=shares.__getitem__) if shares else None


def _by_command(pair: Pair, subject: str) -> Iterator[Prediction]:
    if not pair.whatif and not pair.ratio:
        return
    arguments = [*pair.whatif, *(part for target in pair.ratio for part in ("--scale", f"{target}=FACTOR"))]
    try:
        arguments = [*pair.whatif, *measured_scales(pair)]
        answer = _answer("what-if", subject, *arguments)
    except (Refused, NothingMeasured) as error:
        yield Prediction(shlex.join(arguments), None, str(error))
    else:
        before, after = answer["before"]["length_us"], answer["after"]["length_us"]
        yield Prediction(shlex.join(arguments), 100 * (after - before) / pair.timed_us)


def _by_fix(pair: Pair, why: dict[str, Any]) -> Iterator[Prediction]:
    """Yield the prediction by the fix that corresponds to the pair's change, if `why` returns fixes."""
    if not pair.fix or "fixes" not in why:
        return
    saved = [fix["saves_us"] for fix in why["fixes"] if fix["fix"] == pair.fix]
    window = why.get("window", {})
    is_untraced = bool(window.get("causes_without_profiler"))
    length = window["without_profiler_us"] if is_untraced else pair.timed_us
    percent = -100 * max(saved) / length if saved else None
    yield Prediction(f"fix {pair.fix}", percent, "" if saved else "not among the fixes", is_untraced)


def _answer(command: str, *words: str) -> Any:
    """Return the JSON that a command prints with --json. Raise Refused if the command fails."""
    ran = CliRunner().invoke(app, [command, *words, "--json"])
    if ran.exit_code:
        reason = next((line for line in ran.stderr.splitlines() if line.startswith("error:")), repr(ran.exception))
        raise Refused(reason.removeprefix("error: ").partition(". ")[0])
    return json.loads(ran.stdout)


@contextmanager
def _subject(pair: Pair) -> Iterator[str]:
    """Yield the path of the first run's trace, or of a folder with the traces of its ranks."""
    if len(pair.before) == 1:
        yield str(pair.before[0])
        return
    with tempfile.TemporaryDirectory() as folder:
        for trace in pair.before:
            (Path(folder) / trace.name).symlink_to(trace.resolve())
        yield folder
