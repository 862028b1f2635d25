"""Damage to a lake's files: flipped bits, truncated, overwritten, missing and foreign files.

Answers must be correct, or refused with a sentence, or `tracelake check` must find the damage. If the layout version or
the catalog is damaged, `tracelake check --repair` must restore the former answers.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from bench.attack.children import End, run
from bench.attack.tally import Tally
from bench.attack.verbs import SHOWN, Scene, Stage, command, ingest, materialize, stage
from pipelines.lake import Lake
from pipelines.lake.commit.catalog_file import CATALOG
from pipelines.lake.names import ANALYST
from pipelines.lake.version import MARKER

NOTES = (MARKER, CATALOG)
LEFT_OUT = "batch_id|ingested_at|seen_at"


def attack(n: int, seed: int) -> Tally:
    """Damage n files, one at a time."""
    tally, choice = Tally("damaged files of a lake"), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        made = stage(Scene("look", (ingest, materialize), ask_all, 0), Path(folder))
        answers = Path(folder, "answers")
        made.reset()
        wanted = _answers(made, answers)
        n_noticed = 0
        for _ in range(n):
            made.reset()
            what = damage(made.lake, choice)
            tally.tried += 1
            end = _looked(made, answers)
            if end.has_traceback or end.code < 0:  # a signal: it crashed, or it hung and was killed
                tally.tracebacks += 1
                tally.notes.append(f"{what}: exit {end.code} {end.said.strip()[-200:]}")
            elif what.endswith(NOTES) and (why := _unmended(made, answers, wanted)):
                tally.lost += 1
                tally.notes.append(f"{what}: {why}")
            elif (answered := _read(answers)) and any(wanted[t] != got for t, got in answered.items()):
                if check_finds(made):
                    n_noticed += 1
                    tally.survived += 1
                else:
                    tally.silent += 1
                    wrong = ", ".join(t for t, got in answered.items() if wanted[t] != got)
                    tally.notes.append(f"{what}: {wrong} answered otherwise, and tracelake check says nothing")
            else:
                tally.survived += 1
        if n_noticed:
            tally.notes.append(f"{n_noticed} were answered otherwise and found by tracelake check")
    return tally


def damage(lake: Path, choice: random.Random) -> str:
    """Damage a random file of the lake. Return a description of the damage."""
    notes = [path for name in NOTES if (path := lake / name).exists()]
    files = sorted([*lake.glob("*/day=*/*.parquet"), lake / ANALYST, *notes])
    path = choice.choice(files)
    content = bytearray(path.read_bytes())
    at = choice.randrange(len(content))
    kind = choice.choice(("bit", "bit", "bit", "cut", "zeros", "missing", "foreign"))
    if kind == "bit":
        content[at] ^= 1 << choice.randrange(8)
    elif kind == "cut":
        del content[at:]
    elif kind == "zeros":
        content[at : at + 4096] = bytes(len(content[at : at + 4096]))
    if kind == "missing":
        path.unlink()
    elif kind == "foreign":
        path.with_name("notes.parquet").write_bytes(b"no parquet at all")
    else:
        path.write_bytes(content)
    return f"{kind} at {at} of {path.relative_to(lake)}"


def ask_all(lake: Path, source: Path, answers: Path | None = None) -> None:
    """Query all rows of every table through the command line. Write each answer as a line to the file `answers`."""
    import contextlib
    import io

    columns = f"COLUMNS(lambda c: NOT regexp_matches(c, '^({LEFT_OUT})$'))"
    for table in SHOWN:
        query = f"SELECT count(*) AS n, sum(hash(t))::VARCHAR AS h FROM (SELECT {columns} FROM {table}) AS t"
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
            command("sql", query, "--lake", str(lake), "--format", "json")
        if answers and out.getvalue():
            with answers.open("a") as file:
                file.write(f"{table}\t{out.getvalue().strip()}\n")


def check_finds(made: Stage) -> bool:
    """Return whether `tracelake check` reports damage."""
    end = run(_check, made.lake)
    return end.code == 1 and not end.has_traceback


def _check(lake: Path, *words: str) -> None:
    command("check", *words, "--lake", str(lake))


def _unmended(made: Stage, answers: Path, wanted: dict[str, str]) -> str:
    """Run `check --repair` if the answers differ from `wanted`.

    Return why they still differ, or "" if they are equal.
    """
    if _read(answers) == wanted:
        return ""
    repair = run(_check, made.lake, "--repair")
    end = _looked(made, answers)
    if _read(answers) == wanted:
        return ""
    return f"check --repair ended with {repair.code}, and not every answer is as before: {end.said.strip()[-200:]}"


def _looked(made: Stage, answers: Path) -> End:
    answers.unlink(missing_ok=True)
    return run(ask_all, made.lake, made.source, answers)


def _answers(made: Stage, answers: Path) -> dict[str, str]:
    end = _looked(made, answers)
    answered = _read(answers)
    if set(answered) != set(SHOWN) or not Lake(made.lake).exists:
        raise RuntimeError(f"not every table answers: {end.said}")
    return answered


def _read(answers: Path) -> dict[str, str]:
    lines = answers.read_text().splitlines() if answers.exists() else []
    return dict(line.split("\t", 1) for line in lines)
