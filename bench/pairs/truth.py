"""truth.json and the archives of traces."""

from __future__ import annotations

import json
import os
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import torch

from bench.pairs.pair import VARIANTS
from bench.pairs.program import Program


class Truth:
    """truth.json and pairs.tar, complete after each program."""

    def __init__(self, out: Path, machine: dict[str, Any], packed: bool, limit_bytes: int) -> None:
        self.out, self.packed, self.limit_bytes = out, packed, limit_bytes
        self.content: dict[str, Any] = {
            "device": machine["name"],
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "python": sys.version.split()[0],
            "cpus": os.cpu_count(),
            "size": machine["size"],
            "recorded_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "backend": machine["backend"],
            "ranks": machine["ranks"],
            "sum_over_ranks_s": machine["sum_over_ranks_s"],
            "no_compile": machine["no_compile"],
            "ranks_refused": machine["ranks_refused"],
            "programs": {},
        }
        for archive in ("pairs.tar", "more.tar"):
            (out / archive).unlink(missing_ok=True)

    def pack(self, traces: list[Path]) -> str:
        """Append traces to pairs.tar, or to more.tar if pairs.tar would become too large, and return the archive's name."""
        tar = self.out / "pairs.tar"
        used = tar.stat().st_size if tar.exists() else 0
        padded = sum(trace.stat().st_size + 1024 for trace in traces) + tarfile.RECORDSIZE
        if used + padded > self.limit_bytes:
            tar = self.out / "more.tar"
        with tarfile.open(tar, "a") as packing:
            for trace in traces:
                packing.add(trace, trace.name)
        return tar.name

    def add(self, program: Program, recorded: dict[str, Any]) -> None:
        self.content["programs"][program.name] = {**recorded, **program.describe()}
        traces = [self.out / name for variant in VARIANTS for name in recorded.get(variant, {}).get("files", ())]
        size = sum(trace.stat().st_size for trace in traces)
        self.content["programs"][program.name]["trace_bytes"] = size
        if traces:
            self.content["programs"][program.name]["archive"] = self.pack(traces)
        if self.packed:
            for trace in self.out.glob(f"{program.name}.*.json*"):
                trace.unlink()
        partial = self.out / "truth.json.partial"
        partial.write_text(json.dumps(self.content, indent=1) + "\n")
        partial.rename(self.out / "truth.json")
