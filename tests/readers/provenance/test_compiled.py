"""The provenance and the trace of a program compiled by the installed PyTorch, joined without changes."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.faces.cli.refresh_tables import open_analyst
from pipelines.lake import Lake
from pipelines.lake.read.query_tables import tables_read
from pipelines.readers.ingest import ingest

_PROGRAM = """
import torch
from torch.profiler import ProfilerActivity, profile
import torch._inductor.config as config

config.cpp.enable_kernel_profile = True
layers = [torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)]

@torch.compile
def network(x):
    hidden = torch.relu(layers[0](x)) * 2 + 1
    return torch.softmax(layers[1](hidden), -1)

x = torch.randn(4, 8)
network(x).sum().backward()
with profile(activities=[ProfilerActivity.CPU]) as profiled:
    network(x).sum().backward()
profiled.export_chrome_trace("trace.json")
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on CPU")
@pytest.mark.skipif(sys.platform == "win32", reason="torch.compile has other kernels there")
def test_every_kernel_of_a_compiled_program_is_found(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "program.py").write_text(_PROGRAM)
    settings = {"TORCH_TRACE": str(job / "torch_trace"), "INDUCTOR_PROVENANCE": "1", "TORCH_COMPILE_DEBUG": "1"}
    env = os.environ | settings | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "program.py"], cwd=job, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (mappings,) = job.rglob("inductor_provenance_tracking_node_mappings.json")
    lake = Lake(tmp_path / "lake")
    rows = ingest([job / "trace.json", job / "torch_trace", mappings], lake).rows
    assert [row.status for row in rows] == ["ok"] * 3
    query = "SELECT name, operators, source_lines, n_entries, matched_by, confidence FROM kernel_provenance"
    with open_analyst(lake.root, tables_read(query)) as con:
        kernels = con.execute(query).fetchall()
    # Every kernel of the trace is in the result; kernels of the backward pass have only their lines.
    events = json.loads((job / "trace.json").read_text())["traceEvents"]
    ran = {event["name"].partition("_cpp_")[2] for event in events if "_cpp_fused" in event["name"]}
    assert {name for name, *_ in kernels} == {f"cpp_{name}" for name in ran} and len(ran) > 3
    assert {tuple(rest) for *_, rest in ((*row[:3], row[3:]) for row in kernels)} == {(1, "pid", 1.0)}
    forward = {
        key.rpartition(":")[0]: nodes for key, nodes in json.loads(mappings.read_text())["cppCodeToPost"].items()
    }
    operators_by_name = {name: operators.split(", ") for name, operators, *_ in kernels if operators}
    assert operators_by_name == {
        name: sorted({node.rstrip("0123456789_") for node in forward[name]}) for name in forward if name[:4] == "cpp_"
    }
    lines = {name: place.partition(".py:")[2].split()[0] for name, _, place, *_ in kernels}
    for word, at in (("relu", "hidden ="), ("amax", "return")):
        number = next(i for i, line in enumerate(_PROGRAM.splitlines(), 1) if at in line)
        assert [lines[name] for name, operators in operators_by_name.items() if word in operators] == [str(number)]
