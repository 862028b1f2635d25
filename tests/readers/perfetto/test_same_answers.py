"""A run as a Perfetto trace gives the same answers as its Kineto trace.

The exceptions are data that such a file does not contain.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("perfetto", reason="reading Perfetto traces needs the extra 'perfetto'")

from pipelines.readers.inputs.single_trace import load_trace
from pipelines.synthetic import write_capture
from tests.harness import memory
from tests.readers.nsys.test_same_answers import OF_RANDOM, SPECS, compare, in_order
from tests.readers.nsys.writer import document_of
from tests.readers.perfetto.writer import as_said, write
from tests.synthetic.random_capture import random_capture


def pair_of(kineto: Path) -> list[Path]:
    """Write the run as Kineto shows it, and as a Perfetto trace."""
    document = as_said(document_of(kineto))
    (said := kineto.with_suffix(".said.json")).write_text(json.dumps(document, default=float))
    return [said, write(document_of(said), kineto.with_suffix(".pftrace"))]


@pytest.mark.slow
def test_synthetic_captures(tmp_path: Path) -> None:
    paths = [rank.path for name, spec in SPECS.items() for rank in write_capture(spec, tmp_path / name).ranks]
    compare([file for path in paths for file in pair_of(path)])


@pytest.mark.slow
def test_random_captures(tmp_path: Path) -> None:
    paths = []
    for seed in range(10):
        (path := tmp_path / f"{seed}.json").write_text(json.dumps(in_order(random_capture(seed))))
        paths += pair_of(path)
    compare(paths, OF_RANDOM)


def test_arguments_are_those_of_kineto(tmp_path: Path) -> None:
    (rank,) = write_capture(SPECS["training"], tmp_path).ranks
    event_lists = []
    for path in pair_of(rank.path):
        con = memory()
        load_trace(con, path)
        query = "SELECT cat, name, start_ns, args FROM events WHERE ph = 'X' AND cat NOT IN ('Trace', 'gpu_user_annotation') ORDER BY ALL"
        rows = con.execute(query).fetchall()
        event_lists.append([(cat, name, ts, json.loads(args) if args else {}) for cat, name, ts, args in rows])
    assert event_lists[0] and event_lists[0] == event_lists[1]
