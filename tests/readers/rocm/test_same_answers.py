"""A run gives the same answers as a Kineto trace, as an export of Nsight Systems and as a rocpd database."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.synthetic import CaptureSpec, write_capture
from tests.harness import connect_all
from tests.readers.nsys.test_same_answers import OF_RANDOM, SPECS, compare, in_order
from tests.readers.nsys.writer import document_of, export_of
from tests.readers.rocm.writer import as_on_amd, database_of
from tests.synthetic.random_capture import random_capture


def pair_of(kineto: Path) -> list[Path]:
    """Write the run as Kineto shows it on AMD GPUs, and as a rocpd database."""
    document = as_on_amd(document_of(kineto))
    (amd := kineto.with_suffix(".amd.json")).write_text(json.dumps(document, default=float))
    return [amd, database_of(document_of(amd)).write(kineto.with_suffix(".db"))]


@pytest.mark.slow
def test_synthetic_captures(tmp_path: Path) -> None:
    specs = {name: spec for name, spec in SPECS.items() if name != "graphs"}  # a database records no graph nodes
    paths = [rank.path for name, spec in specs.items() for rank in write_capture(spec, tmp_path / name).ranks]
    compare([file for path in paths for file in pair_of(path)])


@pytest.mark.slow
def test_three_formats_agree_on_kernels_and_path(tmp_path: Path) -> None:
    """The run has no records of waits in any format, because rocprofiler-sdk does not write them.

    Names of copies differ between the formats.
    """
    (rank,) = write_capture(CaptureSpec(ranks=1, steps=2, layers=2, gz=False), tmp_path).ranks
    document = document_of(rank.path)
    document["traceEvents"] = [e for e in document["traceEvents"] if e.get("cat") not in ("cuda_sync", "gpu_memset")]
    amd = as_on_amd(document)
    (kineto := tmp_path / "kineto.json").write_text(json.dumps(amd, default=float))
    exported = [
        e | ({"name": e["name"].replace("Host", "Pinned")} if e.get("cat") == "gpu_memcpy" else {})
        for e in amd["traceEvents"]
    ]
    nsys = export_of({**amd, "traceEvents": exported}).write(tmp_path / "nsys.sqlite")
    con, ids = connect_all([kineto, nsys, database_of(document_of(kineto)).write(tmp_path / "rocpd.db")])
    run_models(con, load_catalog(), ["kernels", "launches", "critical_path", "critical_path_summary"])
    queries = {
        "kernels": "SELECT regexp_replace(name, ' [(].*->.*', ''), class, stream, device, start_ns, duration_ns, correlation FROM kernels",
        "summary": "SELECT window_id, bound_by, duration_ns FROM critical_path_summary",
        "path": "SELECT window_id, seq, bound_by, edge_type, cat, duration_ns, is_inferred FROM critical_path",
    }
    for what, query in queries.items():
        kineto_rows, *others = [
            sorted(con.execute(f"{query} WHERE trace_id = ?", [trace_id]).fetchall()) for trace_id in ids
        ]
        assert kineto_rows and all(rows == kineto_rows for rows in others), what


@pytest.mark.slow  # 4 s
@pytest.mark.parametrize("name", ["mi250_minitoy"])
def test_real_traces_of_amd(shared: Path, tmp_path: Path, name: str) -> None:
    """A trace of a real run on AMD GPUs is written as a database. Kineto numbers its devices by agent."""
    document = as_on_amd(document_of(shared / "traces" / "single" / f"{name}.json.gz"))
    for event in document["traceEvents"]:
        if "device" in event.get("args", {}):
            event["args"]["device"] -= 2
            event["pid"] = event["args"]["device"]
    (kineto := tmp_path / "a.json").write_text(json.dumps(document, default=float))
    database = database_of(document_of(kineto)).write(tmp_path / "a.db")
    compare([kineto, database], ("kernels", "launches", "temporal_breakdown", "critical_path_edges"), False)


@pytest.mark.slow
def test_random_captures(tmp_path: Path) -> None:
    paths = []
    for seed in range(15):
        document = random_capture(seed) | {"deviceProperties": [{"id": 0, "name": "MI300X"}]}
        # Events of length 0 are marks in a database, and they do not count on a path.
        document["traceEvents"] = [e for e in document["traceEvents"] if e.get("dur") != 0]
        (path := tmp_path / f"{seed}.json").write_text(json.dumps(in_order(document)))
        paths += pair_of(path)
    compare(paths, OF_RANDOM)
