"""Reports of traces and captures, made by `tracelake report` in a process of its own, and kept until the lake changes."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import anyio

from pipelines.base.foreign_text import visible
from pipelines.faces.asking import Asking, NotAnswered
from pipelines.lake.lake import Lake
from pipelines.lake.publish.analyst_file import published_state
from pipelines.models.sqltext import quoted

_KEPT = 50
_SECONDS = 600


@dataclass(frozen=True)
class _Made:
    name: str  # in its address: random, so that no other page can guess it
    state: str | None  # of the lake, afterwards: making it may compute tables


class Reports:
    """The pages that were made, in a temporary folder that goes away with the server. One is made at a time."""

    def __init__(self, lake: Path | str) -> None:
        self.lake = lake
        self._folder = tempfile.TemporaryDirectory(prefix="tracelake-reports-")
        self._made: dict[str, _Made] = {}
        self._one = anyio.Lock()

    @property
    def are_possible(self) -> bool:
        """Whether this lake has reports: one in a folder."""
        return isinstance(self.lake, Path)

    async def make(self, ident: str) -> str:
        """Returns the name of the page of a trace or capture, made now if the lake changed since. Raises NotAnswered."""
        if not isinstance(self.lake, Path):
            raise NotAnswered("reports need a lake in a folder", "`tracelake report` takes the trace's files.")
        lake = self.lake
        async with self._one:
            found = self._made.get(ident)
            if found and found.state and found.state == await anyio.to_thread.run_sync(_state, lake):
                return found.name
            name = secrets.token_urlsafe(16)
            await _run(lake, ident, self._path(name))
            self._made.pop(ident, None)
            self._made[ident] = _Made(name, await anyio.to_thread.run_sync(_state, lake))
            self._forget_old()
            return name

    def page(self, name: str) -> Path | None:
        """Returns the file of a page that was made; None for every other name, so that no path can be asked for."""
        known = any(made.name == name for made in self._made.values())
        return self._path(name) if known else None

    def close(self) -> None:
        """Remove all pages."""
        self._folder.cleanup()

    def _path(self, name: str) -> Path:
        return Path(self._folder.name) / f"{name}.html"

    def _forget_old(self) -> None:
        for ident in list(self._made)[:-_KEPT]:
            self._path(self._made.pop(ident).name).unlink(missing_ok=True)
        kept = {made.name for made in self._made.values()}
        for path in Path(self._folder.name).glob("*.html"):
            if path.stem not in kept:  # an earlier page of the same trace
                path.unlink(missing_ok=True)


def known_id(asking: Asking) -> bool:
    """Whether the query of `existence` found something."""
    with asking.answer() as (answer, _):
        return bool(answer.rows(1))


def existence(ident: str) -> str:
    """Returns the query that has a row if there is a trace or capture with this id."""
    return (
        f"SELECT 1 FROM traces WHERE trace_id = {quoted(ident)} OR capture_id = {quoted(ident)} "
        f"UNION ALL SELECT 1 FROM captures WHERE capture_id = {quoted(ident)} AND NOT is_gone"
    )


def _state(lake: Path) -> str | None:
    return published_state(Lake(lake), Lake(lake).catalog())


async def _run(lake: Path, ident: str, out: Path) -> None:
    """Run the command in an empty folder, where no file has the name of the id."""
    command = [
        sys.executable,
        "-m",
        "tracelake",
        "report",
        "--lake",
        str(lake.absolute()),
        "--out",
        str(out),
        "--",
        ident,
    ]
    with tempfile.TemporaryDirectory(prefix="tracelake-report-") as folder:
        env = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "PYTHONPATH": _import_path()}
        try:
            with anyio.fail_after(_SECONDS):
                done = await anyio.run_process(
                    command, stdin=subprocess.DEVNULL, check=False, cwd=folder, env=env, start_new_session=True
                )
        except TimeoutError:
            raise NotAnswered(f"the report was not done after {_SECONDS} s") from None
    if done.returncode or not out.exists():
        told = done.stderr.decode("utf-8", "replace").strip() or f"it ended with status {done.returncode}"
        raise NotAnswered(f"the report could not be made: {visible(told.removeprefix('error: '))[:2000]}")


def _import_path() -> str:
    """As here: the folder of a checkout may be found only because it was the working directory."""
    return os.pathsep.join(path or os.getcwd() for path in sys.path)
