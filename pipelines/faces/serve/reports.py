"""Reports of traces and captures, built by `tracelake report` in its own process, and reused until the lake changes."""

from __future__ import annotations

import os
import secrets
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio

from pipelines.base.foreign_text import visible
from pipelines.base.processes import import_path
from pipelines.faces.untrusted_queries import LakeQuery, QueryFailed
from pipelines.lake.lake import WITHOUT_BROKEN, Lake
from pipelines.lake.names import CAPTURE_MARK
from pipelines.lake.publish.analyst_file import published_state
from pipelines.lake.read.snapshot import look
from pipelines.models.sqltext import quoted

_KEPT = 50
_SECONDS = 600


@dataclass(frozen=True)
class _Made:
    name: str  # part of the address; random, so that no other page can guess it
    # State of the lake after the report was built, because building it may compute tables. None if files were ingested
    # or removed during the build, because the report may not cover the change.
    state: str | None


class Reports:
    """The finished reports, in a temporary folder that is deleted when the server ends.

    One report is built at a time.
    """

    def __init__(self, lake: Path | str, without_broken: bool = False) -> None:
        """Prepare an empty collection. `without_broken`: build the reports without missing or damaged files."""
        self.lake, self.without_broken = lake, without_broken
        self._folder = _new_folder()
        self._made: dict[str, _Made] = {}
        self._making = anyio.Lock()

    @property
    def are_possible(self) -> bool:
        """Return whether the lake supports reports, which requires a lake in a folder."""
        return isinstance(self.lake, Path)

    async def make(self, ident: str) -> str:
        """Return the name of the report of a trace or capture. Build it if it is missing or the lake has changed since.

        Raise QueryFailed if the report cannot be built.
        """
        if not isinstance(self.lake, Path):
            raise QueryFailed("reports need a lake in a folder", "`tracelake report` takes the trace's files.")
        lake = self.lake
        async with self._making:
            if not _is_own(self._folder.name):
                # A cleaner of temporary files, such as systemd-tmpfiles, deleted it, so another user may have taken its
                # name.
                self.close()
                self._folder = _new_folder()
            made = self._made.get(ident)
            if (
                made
                and made.state
                and self.page(made.name)
                and made.state == await anyio.to_thread.run_sync(_state, lake)
            ):
                return made.name
            name = secrets.token_urlsafe(16)
            ingested = await anyio.to_thread.run_sync(_ingested, lake)
            await _run(lake, ident, self._path(name), self.without_broken)
            state = await anyio.to_thread.run_sync(_state, lake)
            is_current = await anyio.to_thread.run_sync(_ingested, lake) == ingested
            self._made.pop(ident, None)
            self._made[ident] = _Made(name, state if is_current else None)
            self._forget_old()
            return name

    def page(self, name: str) -> Path | None:
        """Return the file of a finished report, or None for any other name or if the file no longer exists.

        A request thus cannot name a path. A cleaner of temporary files may have deleted the file.
        """
        is_made = any(made.name == name for made in self._made.values())
        return path if is_made and (path := self._path(name)).is_file() else None

    def close(self) -> None:
        """Remove the files of all reports."""
        with suppress(OSError):  # another user may have created a folder of this name
            self._folder.cleanup()

    def _path(self, name: str) -> Path:
        return Path(self._folder.name) / f"{name}.html"

    def _forget_old(self) -> None:
        for ident in list(self._made)[:-_KEPT]:
            self._path(self._made.pop(ident).name).unlink(missing_ok=True)
        names = {made.name for made in self._made.values()}
        for path in Path(self._folder.name).glob("*.html"):
            if path.stem not in names:  # an earlier report of the same trace
                path.unlink(missing_ok=True)


def known_id(asking: LakeQuery) -> bool:
    """Return whether the id exists that the query `asking` (from `existence`) looks up."""
    with asking.answer() as (answer, _):
        return bool(answer.rows(1))


def existence(ident: str) -> str:
    """Return a query that returns a row if a trace or capture with this id exists."""
    return (
        f"SELECT 1 FROM traces WHERE trace_id = {quoted(ident)} OR capture_id = {quoted(ident)} "
        f"UNION ALL SELECT 1 FROM captures WHERE capture_id = {quoted(ident)} AND NOT is_gone"
    )


def _new_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tracelake-reports-")


def _is_own(folder: str) -> bool:
    """Return whether the path is a folder of this process's user, not a link to one."""
    with suppress(FileNotFoundError):
        status = os.lstat(folder)
        return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return False


def _state(lake: Path) -> str | None:
    return published_state(Lake(lake), Lake(lake).catalog())


def _ingested(lake: Path) -> frozenset[str]:
    """Return the batches of ingested files, which computing tables does not change."""
    now = look(lake)
    return frozenset(now.stamps.keys() - now.marks[CAPTURE_MARK].keys())


async def _run(lake: Path, ident: str, out: Path, without_broken: bool) -> None:
    """Run `tracelake report` in an empty folder, so that no file there has the name of the id."""
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
        env = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "PYTHONPATH": import_path()}
        if without_broken:
            env[WITHOUT_BROKEN] = "1"
        try:
            with anyio.fail_after(_SECONDS):
                done = await anyio.run_process(
                    command, stdin=subprocess.DEVNULL, check=False, cwd=folder, env=env, start_new_session=True
                )
        except TimeoutError:
            raise QueryFailed(f"the report was not done after {_SECONDS} s") from None
    if done.returncode or not out.exists():
        message = done.stderr.decode("utf-8", "replace").strip() or f"it ended with status {done.returncode}"
        raise QueryFailed(f"the report could not be made: {visible(message.removeprefix('error: '))[:2000]}")
