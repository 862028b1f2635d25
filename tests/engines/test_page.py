"""The section of docs/engines.md on running units under any other tool.

Each way in the section computes the same tables as one process.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.synthetic import CaptureSpec, write_capture
from tests.engines.same import differences, stored_tables
from tests.pages import DOCS

PAGE = DOCS / "engines.md"


def blocks(kind: str, lake: Path) -> list[str]:
    """Return the section's code blocks of a language.

    Their lake and folder of traces are replaced with those of this test, and a process gets one file.
    """
    _, section = PAGE.read_text(encoding="utf-8").split("## Under anything else")
    texts = re.findall(rf"^```{kind}\n(.*?)^```$", section.split("\n## ")[0], re.M | re.DOTALL)
    instead = {"/fleet/job42": "job", "/data/lake": str(lake), "-n 40": "-n 1"}
    return [re.sub("|".join(instead), lambda name: instead[name[0]], text) for text in texts]


@pytest.mark.slow  # processes of tracelake, each with all models; test_work.py tests units in this process
def test_units_under_anything_else_make_the_tables_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "bin" / "tracelake"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tracelake "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent))
    write_capture(CaptureSpec(seed=1, ranks=2, steps=1, layers=1, ops_per_layer=1), tmp_path / "job")
    files = [str(path) for path in sorted((tmp_path / "job").glob("rank*"))]
    reference, by_xargs, by_slurm = (Lake(tmp_path / name) for name in ("reference", "by-xargs", "by-slurm"))
    ingest(files, reference)
    materialize_all(reference)

    xargs, _ = blocks("bash", by_xargs.root)
    subprocess.run(["bash", "-e", "-c", xargs], check=True)
    _, slurm = blocks("bash", by_slurm.root)
    tasks = [
        subprocess.Popen(["bash", "-e", "-c", slurm], env={**os.environ, "SLURM_ARRAY_TASK_ID": str(number)})
        for number in (1, 2, 3)  # there are two files: a task without a file is fine
    ]
    assert [task.wait() for task in tasks] == [0] * 3
    materialize_all(by_slurm)
    for lake in (by_xargs, by_slurm):
        with lake.connect(stored_tables()) as con, reference.connect(stored_tables()) as reference_con:
            assert con.execute("SELECT count(*) FROM traces").fetchall() == [(2,)]
            wrong, n_tables, n_rows = differences(con, reference_con)
        assert wrong == [] and n_tables > 60 and n_rows > 500

    (function,) = blocks("py", by_slurm.root)
    names: dict[str, Any] = {}
    exec(function, names)
    assert names["ingest"](files) == 0  # the store has them already
    assert names["ingest"]([str(tmp_path / "absent.json")]) == 1
