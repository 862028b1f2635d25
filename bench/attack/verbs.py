"""The attacked commands ("verbs"), as a user runs them, on a small lake, and the lake's rows before and after."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

from bench.attack.children import Verb, run
from pipelines.lake import Lake
from pipelines.lake.names import ANALYST
from tests.lake.world import assert_whole, capture, shown

TABLES = ("kernels", "temporal_breakdown")
SHOWN = ["traces", "events", "findings", "rejects", *TABLES]
Rows = dict[str, list[tuple]]


def command(*words: str) -> None:
    """Run `tracelake WORDS`. `ingest` exits with 1 if it rejects a file."""
    from pipelines.faces.cli.app import app

    sys.argv = ["tracelake", *words]
    app(list(words))


def ingest(lake: Path, source: Path) -> None:
    """Ingest a folder."""
    command("ingest", str(source), "--lake", str(lake))


def materialize(lake: Path, source: Path) -> None:
    """Compute the tables."""
    command("materialize", *TABLES, "--lake", str(lake))


def ask(lake: Path, source: Path) -> None:
    """Run a query, which first computes and publishes its tables."""
    command("sql", "SELECT count(*) FROM kernels", "--lake", str(lake))


def retire(lake: Path, source: Path) -> None:
    """Hide all batches and then remove them, with a clock that is some days ahead."""
    from unittest.mock import patch

    from pipelines.runs.store import folder

    real = folder.retire
    for days in (2, 4):
        later = datetime.now(UTC) + timedelta(days=days)
        with patch.object(folder, "retire", lambda *args, now=later: real(*args[:-1], now)):
            try:
                command("retention", "--keep-days", "1", "--lake", str(lake))
            except SystemExit as end:
                if end.code:
                    raise


@dataclass(frozen=True)
class Scene:
    """A verb to attack, the verbs that prepare the lake for it, and the exit status of its normal run."""

    name: str
    before: tuple[Verb, ...]
    verb: Verb
    code: int = 0


SCENES = (
    Scene("ingest", (), ingest, 1),
    Scene("materialize", (ingest,), materialize),
    Scene("sql", (ingest,), ask),
    Scene("ingest again", (ingest, materialize), ingest, 1),
    Scene("retention", (ingest, materialize), retire),
)


@dataclass(frozen=True)
class Stage:
    """A prepared scene: the lake before the verb, and its rows before (`first`) and after (`wanted`) a normal run."""

    scene: Scene
    folder: Path
    wanted: Rows
    first: Rows

    @property
    def source(self) -> Path:
        """Return the folder of the ingested files."""
        return self.folder / "in"

    @property
    def lake(self) -> Path:
        """Return the attacked lake, which always has the same path."""
        return self.folder / "lake"

    def reset(self) -> None:
        """Restore the lake as it was before the verb."""
        shutil.rmtree(self.lake, ignore_errors=True)
        if (self.folder / "ready").exists():
            shutil.copytree(self.folder / "ready", self.lake)


def stage(scene: Scene, folder: Path, ranks: int = 3) -> Stage:
    """Prepare a scene in a folder: run the preceding verbs, save the lake, and record its rows before and after."""
    made = Stage(scene, folder, {}, {})
    capture(made.source, ranks)
    for verb in scene.before:
        _well(verb, made)
    first = rows(made.lake)
    if made.lake.exists():
        shutil.copytree(made.lake, folder / "ready")
    _well(scene.verb, made)
    return Stage(scene, folder, rows(made.lake), first)


def _well(verb: Verb, made: Stage) -> None:
    end = run(verb, made.lake, made.source)
    if end.has_traceback or end.code not in (0, 1):
        raise RuntimeError(f"{verb.__name__} fails unattacked: {end.said}")


def rows(lake: Path) -> Rows:
    """Return all visible rows of a lake, without the columns that identify the run."""
    return shown(Lake(lake), SHOWN) if Lake(lake).exists or (lake / "rejects").exists() else {}


def wholeness(lake: Path) -> str | None:
    """Return why the lake is only partly visible through the views or the analyst file, or None if it is whole."""
    if not Lake(lake).exists:
        return None
    ways: list[tuple[str, Callable[[], Any]]] = [("views", lambda: Lake(lake).connect(["traces", "events"]))]
    if (lake / ANALYST).exists():
        ways.append((ANALYST, lambda: duckdb.connect(str(lake / ANALYST), read_only=True)))
    for name, opened in ways:
        try:
            with opened() as con:
                assert_whole(con)
        except (AssertionError, duckdb.Error) as error:
            return f"{name}: {type(error).__name__} {str(error)[:200]}"
    return None


def missing(wanted: Rows, present: Rows) -> list[str]:
    """Return the tables from which rows are missing."""
    return [table for table, those in wanted.items() if set(map(repr, those)) - set(map(repr, present.get(table, [])))]
