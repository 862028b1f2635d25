"""A read-only lake, mounted at another path than it was created at.

Computed tables answer queries, and missing tables are reported. Commands that would write are refused with a sentence.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.faces.notebook import TraceAnalysis
from pipelines.faces.untrusted_queries import LakeQuery
from pipelines.lake.commit.ingested_files import settled
from pipelines.lake.lake import Lake
from tests.lake.world import capture

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a published lake with a computed table."""
    folder = tmp_path_factory.mktemp("read_only")
    capture(folder / "in", ranks=1)
    for words in (["ingest", str(folder / "in")], ["sql", "SELECT 1 FROM temporal_breakdown"]):
        CliRunner().invoke(app, [*words, "--lake", str(folder / "lake")])
    return folder / "lake"


@pytest.fixture(scope="module")
def closed(lake: Path) -> Iterator[Path]:
    """Yield the lake mounted read-only at another path.

    If mounting is refused, yield a copy of the lake that the process may not write.
    """
    place = lake.parent / "mounted"
    place.mkdir()
    mount = ["mount", "--bind", "-o", "ro", lake, place]
    if shutil.which("mount") and subprocess.run(mount, capture_output=True, check=False).returncode == 0:
        yield place
        subprocess.run(["umount", "--lazy", place], check=True)  # a database may stay open for a moment
        return
    shutil.copytree(lake, place, dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        refuse_writes(patch, place)
        yield place


def refuse_writes(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Refuse writes as a read-only mount does. Tests may run as root, and modes do not stop root."""
    calls = {name: getattr(os, name) for name in ("mkdir", "replace", "unlink")}
    really, access = Path.open, os.access

    def refused(path: object) -> None:
        if str(path).startswith(str(folder)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    for name, call in calls.items():

        def guarded(path, *rest, _call=call, **more):
            refused(path)
            return _call(path, *rest, **more)

        patch.setattr(os, name, guarded)

    def opened(self: Path, mode: str = "r", *rest, **more):
        if set(mode) & set("wax+"):
            refused(self)
        return really(self, mode, *rest, **more)

    def may(path, mode, *rest, **more):
        return access(path, mode, *rest, **more) and not (mode & os.W_OK and str(path).startswith(str(folder)))

    patch.setattr(Path, "open", opened)
    patch.setattr(os, "access", may)


NOT_COMPUTED = "cannot be written: the answer is from the tables computed there"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["sql", "SELECT count(*) FROM traces"], 0, ""),
        (["sql", "SELECT count(*) FROM temporal_breakdown"], 0, ""),
        (["sql", "SELECT count(*) FROM kernels"], 0, NOT_COMPUTED),
        pytest.param(["ask", "top-kernels"], 0, NOT_COMPUTED, marks=pytest.mark.slow),
        pytest.param(["breakdown"], 0, "", marks=pytest.mark.slow),
        pytest.param(["why", "TRACE"], 0, "", marks=pytest.mark.slow),
        pytest.param(["compare", "TRACE", "TRACE"], None, NOT_COMPUTED, marks=pytest.mark.slow),
        pytest.param(["report", "TRACE", "--out", "OUT"], 0, NOT_COMPUTED, marks=pytest.mark.slow),
        pytest.param(["fleet"], 0, NOT_COMPUTED, marks=pytest.mark.slow),
        pytest.param(["regressions"], None, NOT_COMPUTED, marks=pytest.mark.slow),
        (["status", "--max-rejected", "1"], 0, ""),
        (["check"], 0, ""),
        (["retention", "--keep-days", "5", "--dry-run"], 0, ""),
        (["compact", "--dry-run"], 0, ""),
        (["retention", "--keep-days", "5"], 1, "it is mounted read-only"),
        (["compact"], 1, "it is mounted read-only"),
        (["materialize", "kernels"], 1, "it is mounted read-only"),
        (["ingest", "IN"], 1, "it is mounted read-only"),
    ],
)
def test_what_is_computed_answers_and_what_is_not_is_said(
    closed: Path, tmp_path: Path, words: list[str], code: int | None, message: str
) -> None:
    ((trace,),) = (outcome.trace_ids for outcome in settled(Lake(closed)).values() if outcome.status == "ok")
    values = {"IN": str(closed.parent / "in"), "TRACE": trace, "OUT": str(tmp_path / "report.html")}
    done = CliRunner().invoke(app, [*(values.get(word, word) for word in words), "--lake", str(closed)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == code or (code is None and done.exit_code in (0, 1)), done.output
    assert message in done.stderr and "Read-only file system" not in done.output and "moved" not in done.output
    if words[0] == "report":
        assert message in (tmp_path / "report.html").read_text()
    if not message:
        assert "not computed" not in done.stderr


@pytest.mark.slow  # commands print it, see above
def test_notebooks_and_consoles_say_it_too(closed: Path) -> None:
    with TraceAnalysis(lake=closed) as analysis:
        answer = analysis.sql("SELECT count(*) AS n FROM kernels")
        assert answer.to_dicts() == [{"n": 0}] and NOT_COMPUTED in answer.caveats[0]
    with LakeQuery(closed, "SELECT count(*) FROM kernels").answer() as (_, known):
        assert known == [
            "kernels is not computed, or of an older model, for 1 of 1 batches of traces; to compute it, where the lake can be "
            "written: tracelake materialize kernels"
        ]


@pytest.mark.slow
def test_the_ui_says_where_it_cannot_keep_its_records(tmp_path: Path) -> None:
    pytest.importorskip("dagster", reason="the extra dagster is not installed")
    (tmp_path / "file").touch()
    env = {**os.environ, "DAGSTER_HOME": str(tmp_path / "file" / ".dagster")}
    command = [sys.executable, "-m", "dagster_project.serve", "0"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: Dagster cannot keep its records in the lake: ")
