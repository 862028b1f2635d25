"""Inputs of the benchmark, created once under `.bench/`: HTA in a separate environment, and long captures."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench.processes import ROOT

BENCH = ROOT / ".bench"
CAPTURE = ROOT.parent / "shared" / "traces" / "single" / "v100_54mb_rank1.json.gz"
"""The capture for which the floors are defined: 47 MB of JSON, 216,092 events."""
_HTA = ("traceinsight==0.6.1", "pandas<3")

# Scripts for separate processes, because the benchmark's process must stay small (see processes.measure).
_ENLARGE = """
import sys
from bench.enlarge import enlarge
enlarge(sys.argv[1], sys.argv[2], int(sys.argv[3]))
"""
_SYNTHETIC = """
import sys
from dataclasses import replace
from pipelines.synthetic import CaptureSpec, steps_for, write_capture
spec = CaptureSpec(ranks=1, seed=1, fractional_ts=False)
write_capture(replace(spec, steps=steps_for(spec, 47_000_000)), sys.argv[1])
"""
_INFERENCE = """
import sys
from pipelines.synthetic import CaptureSpec, write_capture
spec = CaptureSpec(ranks=1, seed=1, steps=4, layers=16, op_ns=6000, kernel_ns=4000, include_python_frames=True,
                   shape=sys.argv[2], tokens=int(sys.argv[3]))
write_capture(spec, sys.argv[1])
"""
_SMALL = """
import sys
from pathlib import Path
from pipelines.synthetic import CaptureSpec, write_capture
for number in range(int(sys.argv[2]) // 8):
    spec = CaptureSpec(ranks=8, steps=2, layers=2, ops_per_layer=2, bucket_layers=1, seed=number)
    write_capture(spec, Path(sys.argv[1]) / f"capture{number:04d}")
"""
INFERENCE = {"inference": 66, "inference_graph": 146}
"""Tokens per step of each shape that result in about 56 MB of JSON."""


class SetupFailed(Exception):
    """An input of the benchmark cannot be created. The message names the input and the error."""


def hta_python() -> Path:
    """Return the interpreter of HTA's environment, which is installed on first use. Raises SetupFailed."""
    folder = BENCH / "hta"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = folder / ".installed"
    wanted = " ".join(_HTA)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    for command in (
        [sys.executable, "-m", "venv", folder],
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *_HTA],
        [python, "-c", "import hta.trace_analysis"],
    ):
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if done.returncode:
            raise SetupFailed(f"HTA cannot be installed into {folder}: {done.stderr.strip()[-600:]}")
    stamp.write_text(wanted)
    return python


def longer(source: Path, times: int, suffix: str) -> Path:
    """Return a file with `times` copies of `source` in succession, with `suffix` .json or .json.gz.

    The file is created on first use. Raises SetupFailed.
    """
    name = source.name.removesuffix(".gz").removesuffix(".json")
    return _made(BENCH / f"{name}_{times}x{suffix}", lambda unfinished: [_ENLARGE, source, unfinished, str(times)])


def hundred_scenarios(folder: Path) -> Path:
    """Write a file of a hundred distinct scenarios: operators and computing kernels at 10 to 100 % of their time."""
    file = folder / "scenarios.toml"
    tenths = [n / 10 for n in range(1, 11)]
    pairs = [(cpu, computation) for cpu in tenths for computation in tenths]
    file.write_text("".join(f"[[scenario]]\nscale = {{ cpu = {a}, computation = {b} }}\n" for a, b in pairs))
    return file


def synthetic() -> Path:
    """Return a synthetic capture about as large as CAPTURE, created on first use. Raises SetupFailed."""
    folder = BENCH / "synthetic"
    path = folder / "rank0.json.gz"
    return path if path.exists() else _made(folder, lambda unfinished: [_SYNTHETIC, unfinished]) / path.name


def inference(shape: str) -> Path:
    """Return a synthetic capture of inference, eager or with graphs, created on first use. Raises SetupFailed."""
    folder, tokens = BENCH / shape, str(INFERENCE[shape])
    path = folder / "rank0.json.gz"
    return (
        path if path.exists() else _made(folder, lambda unfinished: [_INFERENCE, unfinished, shape, tokens]) / path.name
    )


def small(traces: int) -> Path:
    """Return a folder of captures of 8 ranks with 355 events per trace, created on first use. Raises SetupFailed."""
    return _made(BENCH / f"small_{traces}", lambda unfinished: [_SMALL, unfinished, str(traces)])


def _made(target: Path, script: Callable[[Path], list[Path | str]]) -> Path:
    if target.exists():
        return target
    BENCH.mkdir(exist_ok=True)
    unfinished = target.with_name(f"unfinished-{target.name}")  # keep the suffix, which determines compression
    shutil.rmtree(unfinished, ignore_errors=True)
    arguments = script(unfinished)
    done = subprocess.run(
        [sys.executable, "-c", *(str(part) for part in arguments)], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        raise SetupFailed(f"cannot make {target}: {done.stderr.strip()[-600:]}")
    os.replace(unfinished, target)
    return target
