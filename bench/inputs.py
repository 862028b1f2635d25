"""What the benchmark needs, made once under `.bench/`: HTA in an environment of its own, and long captures."""

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
"""The capture that the floors are for: 47 MB of JSON, 216,092 events."""
_HTA = ("traceinsight==0.6.1", "pandas<3")

# In processes of their own: the benchmark's must stay small (see processes.measure).
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
"""Shape → tokens a step that make about 56 MB of JSON."""


class SetupFailed(Exception):
    """Something the benchmark needs could not be made; the message says what and how to go on."""


def hta_python() -> Path:
    """The interpreter of HTA's environment, installed on first use. Raises SetupFailed."""
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
    """`source` again and again in time, as .json or .json.gz by `suffix`, made on first use. Raises SetupFailed."""
    name = source.name.removesuffix(".gz").removesuffix(".json")
    return _made(BENCH / f"{name}_{times}x{suffix}", lambda unfinished: [_ENLARGE, source, unfinished, str(times)])


def hundred_scenarios(folder: Path) -> Path:
    """A file of a hundred scenarios, none like another: operators and computing kernels at 10 to 100 % of their time."""
    file = folder / "scenarios.toml"
    tenths = [n / 10 for n in range(1, 11)]
    pairs = [(cpu, computation) for cpu in tenths for computation in tenths]
    file.write_text("".join(f"[[scenario]]\nscale = {{ cpu = {a}, computation = {b} }}\n" for a, b in pairs))
    return file


def synthetic() -> Path:
    """A synthetic capture about as large as CAPTURE, made on first use. Raises SetupFailed."""
    folder = BENCH / "synthetic"
    path = folder / "rank0.json.gz"
    return path if path.exists() else _made(folder, lambda unfinished: [_SYNTHETIC, unfinished]) / path.name


def inference(shape: str) -> Path:
    """A synthetic capture of inference, eager or as graphs, made on first use. Raises SetupFailed."""
    folder, tokens = BENCH / shape, str(INFERENCE[shape])
    path = folder / "rank0.json.gz"
    return (
        path if path.exists() else _made(folder, lambda unfinished: [_INFERENCE, unfinished, shape, tokens]) / path.name
    )


def small(traces: int) -> Path:
    """A folder of captures of 8 ranks, each trace of 355 events, made on first use. Raises SetupFailed."""
    return _made(BENCH / f"small_{traces}", lambda unfinished: [_SMALL, unfinished, str(traces)])


def _made(target: Path, script: Callable[[Path], list[Path | str]]) -> Path:
    if target.exists():
        return target
    BENCH.mkdir(exist_ok=True)
    unfinished = target.with_name(f"unfinished-{target.name}")  # the suffix decides whether it is packed
    shutil.rmtree(unfinished, ignore_errors=True)
    arguments = script(unfinished)
    done = subprocess.run(
        [sys.executable, "-c", *(str(part) for part in arguments)], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        raise SetupFailed(f"cannot make {target}: {done.stderr.strip()[-600:]}")
    os.replace(unfinished, target)
    return target
