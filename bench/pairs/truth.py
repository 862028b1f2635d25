"""truth.json and the archives of traces."""

from __future__ import annotations

import json
import os
import sys
import tarfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from bench.pairs.pair import VARIANTS
from bench.pairs.program import Program, load_programs

ARCHIVES = ("pairs.tar", "more.tar")


class Truth:
    """The file truth.json and the archives of traces (pairs.tar, more.tar), which are up to date after each program."""

    def __init__(
        self, out: Path, machine: dict[str, Any], packed: bool, limit_bytes: int, *, resume: bool = False
    ) -> None:
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
        if resume:
            self.content["programs"] = measured_before(out, self.content)
        kept = {name for recorded in self.content["programs"].values() for name in files_of(recorded)}
        for archive in ARCHIVES:
            keep_in_archive(out / archive, kept)

    def pack(self, traces: list[Path]) -> str:
        """Append traces to pairs.tar, or to more.tar if pairs.tar would become too large. Return the archive's name."""
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
        traces = [self.out / name for name in files_of(recorded)]
        size = sum(trace.stat().st_size for trace in traces)
        self.content["programs"][program.name]["trace_bytes"] = size
        if traces:
            self.content["programs"][program.name]["archive"] = self.pack(traces)
        if self.packed:
            for trace in self.out.glob(f"{program.name}.*.json*"):
                trace.unlink()
        write(self.out, self.content)


def write(out: Path, content: dict[str, Any]) -> None:
    """Write truth.json atomically."""
    partial = out / "truth.json.partial"
    partial.write_text(json.dumps(content, indent=1) + "\n")
    partial.rename(out / "truth.json")


def files_of(recorded: dict[str, Any]) -> list[str]:
    """Return the names of a program's traces."""
    return [name for variant in VARIANTS for name in recorded.get(variant, {}).get("files", ())]


def measured_before(out: Path, here: dict[str, Any]) -> dict[str, Any]:
    """Return the programs that an earlier run measured in this folder.

    Raises SystemExit if that run was on another machine or with another torch or size, because such numbers cannot be
    compared.
    """
    path = out / "truth.json"
    if not path.exists():
        return {}
    before = json.loads(path.read_text())
    for key in ("device", "torch", "size"):
        if before[key] != here[key]:
            raise SystemExit(
                f"error: {path} is of {key} {before[key]}, this is {here[key]}. Record into another folder."
            )
    return {name: recorded for name, recorded in before["programs"].items() if files_of(recorded)}


def keep_in_archive(path: Path, names: set[str]) -> None:
    """Rewrite an archive with only the files `names`, or remove the archive if it has none of them.

    The archive may be truncated.
    """
    partial, copied = path.with_suffix(".partial"), 0
    if names and path.exists():
        # A truncated member belongs to no program in truth.json, because a program is added after its traces are packed.
        with (
            tarfile.open(partial, "w") as target,
            suppress(tarfile.ReadError),
            tarfile.open(path, errorlevel=0, ignore_zeros=True) as source,
        ):
            for member in source:
                if member.name in names:
                    target.addfile(member, source.extractfile(member))
                    copied += 1
    path.unlink(missing_ok=True)
    if copied:
        partial.rename(path)
    else:
        partial.unlink(missing_ok=True)


def describe(out: Path) -> None:
    """Replace the programs' descriptions in the truth.json of a folder with the current ones. Keep the measurements."""
    content, programs = json.loads((out / "truth.json").read_text()), load_programs()
    for name, recorded in content["programs"].items():
        if name in programs:
            recorded |= programs[name].expectation()
    write(out, content)
