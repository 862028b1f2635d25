"""Measures the peaks of this machine with matrix products and a copy: `python -m pipelines.record.peaks`.

Prints lines for `sql/rules/devices/device_peaks.csv` (`peak_kind` measured), in addition to the lines from data sheets.
Needs torch and the standard library. The key of a CPU's lines contains cpu, so they are never used for a GPU.
"""

from __future__ import annotations

import argparse
import platform
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

_GPU, _CPU = (8192, 1 << 30), (1024, 1 << 27)
"""Rows of the square matrices, and bytes of the copy. They are large enough to reach the peak, and small enough for
about a second each.
"""


@dataclass(frozen=True)
class Measured:
    """The best of several repeats. `value`: TFLOP/s of `dtype`, or for a copy (`dtype` None) GB/s read and written."""

    dtype: str | None
    value: float


def measure(device: str, size: int, copy_bytes: int, seconds: float) -> Iterator[Measured]:
    """Time products of two square matrices of `size` rows in each type that the device supports, then a copy.

    `seconds`: duration of each measurement. Types that the device or torch cannot multiply are skipped.
    """
    import torch

    for name, dtype, tf32 in _types(torch, device):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        try:
            left, right = (torch.randn(size, size, device=device, dtype=torch.float32).to(dtype) for _ in range(2))
            best = _best(lambda a=left, b=right: torch.mm(a, b), torch, device, seconds)
        except RuntimeError:  # the device cannot multiply this type
            continue
        yield Measured(name, 2 * size**3 / best / 1e12)
    source = torch.ones(copy_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    yield Measured(None, 2 * copy_bytes / _best(lambda: target.copy_(source), torch, device, seconds) / 1e9)


def _types(torch: Any, device: str) -> list[tuple[str, Any, bool]]:
    cuda = device.startswith("cuda")
    tf32 = [("tf32", torch.float32, True)] if cuda and torch.version.hip is None else []
    return [("fp32", torch.float32, False), *tf32, ("bf16", torch.bfloat16, False), ("fp16", torch.float16, False)]


def _best(run: Callable[[], Any], torch: Any, device: str, seconds: float) -> float:
    """Return the shortest duration of several calls of `run`, s."""
    wait = partial(torch.cuda.synchronize, device) if device.startswith("cuda") else (lambda: None)
    run()
    wait()
    best, until = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        run()
        wait()
        best = min(best, time.perf_counter() - began)
    return best


def device_name(device: str) -> str:
    """Return the GPU's name, `cpu:` plus the processor's name, or for any other device the string `device` itself."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(device)
    if not device.startswith("cpu"):
        return device
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"cpu:{name}"


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: print one CSV line per measurement."""
    parser = argparse.ArgumentParser("python -m pipelines.record.peaks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", help="cuda, cuda:N or cpu; default: cuda if available")
    parser.add_argument("--device-key", help="its key in sql/rules/devices/devices.csv; default: its name")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each measurement takes (default 1)")
    parser.add_argument("--size", type=int, help="rows of the matrices (default 8192 on a GPU, 1024 on a CPU)")
    options = parser.parse_args(arguments)
    import torch

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    size, copy_bytes = _GPU if device.startswith("cuda") else _CPU
    name = device_name(device)
    key = (options.device_key or name).replace(",", ";")
    note = f"measured with torch {torch.__version__}: {options.size or size} rows or {copy_bytes} bytes; best of {options.seconds:g} s"
    for measured in measure(device, options.size or size, copy_bytes, options.seconds):
        values = f"{measured.value:.4g}," if measured.dtype else f",{measured.value:.4g}"
        print(f"{key},{measured.dtype or 'memory'},measured,{values},{note}", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # if the reader stops early (`| head -1`), exit as other tools do
    main()
