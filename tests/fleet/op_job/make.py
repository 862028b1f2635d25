"""A simulated pipeline-parallel job: 1F1B, derived from the schedule itself, without the rules of the model under test.

Times are multiples of 1/1024 s, so float32 represents every start and sum exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

Key = tuple[str, int, int, int, int]  # op type, stage, dp rank, step, number
UNIT = 1 / 1024
F, B = "forward-compute", "backward-compute"
AG, RS = "params-all-gather", "grads-reduce-scatter"
LN, EMB, CLIP = "layernorm-grads-all-reduce", "embedding-grads-all-reduce", "optimizer-clip-main-grad"
FIXED = {"forward": 2, "backward": 3, AG: 4, RS: 6, LN: 1, EMB: 5, CLIP: 2, "gc": 0, "optimizer": 7}


@dataclass(frozen=True)
class Shape:
    """Stages, dp ranks, steps and micro-batches of a job."""

    pp: int
    dp: int
    steps: tuple[int, ...]
    batches: int

    def ops(self) -> list[Key]:
        """Return every op that has a row."""
        keys: list[Key] = []
        for stage in range(self.pp):
            once = [AG, RS, LN, CLIP, "gc", "optimizer"] + ([EMB] if stage in (0, self.pp - 1) else [])
            many = [F, B]
            many += ["forward-send", "backward-recv"] if stage < self.pp - 1 else []
            many += ["forward-recv", "backward-send"] if stage else []
            named = [(kind, 0) for kind in once] + [(kind, i) for kind in many for i in range(self.batches)]
            keys += [(kind, stage, dp, step, i) for kind, i in named for dp in range(self.dp) for step in self.steps]
        return keys


def order(shape: Shape, stage: int) -> list[tuple[str, int]]:
    """Return the 1F1B order: forward computes until the pipeline is full, then backward and forward in turn."""
    warm = min(shape.pp - 1 - stage, shape.batches)
    ops = [(F, i) for i in range(warm)]
    for i in range(shape.batches):
        ops += [(F, warm + i)] if warm + i < shape.batches else []
        ops.append((B, i))
    return ops


def simulate(shape: Shape, own: Callable[[Key], float]) -> dict[Key, tuple[float, float]]:
    """Return start and end of every op. `own`: the duration of an op once all its inputs are ready."""
    at = {stage: {job: i for i, job in enumerate(order(shape, stage))} for stage in range(shape.pp)}

    @lru_cache(None)
    def start(key: Key) -> float:
        kind, stage, dp, step, i = key
        if kind in (F, B):
            place = at[stage][kind, i]
            recv = f"{kind.split('-')[0]}-recv"
            needs = order(shape, stage)[place - 1 : place] if place else []
            needs += [(recv, i)] if (recv, stage, dp, step, i) in ops else []
            needs += [(AG, 0)] if (kind, i) == (F, 0) else []
            return latest([(k, stage, dp, step, n) for k, n in needs])
        if kind.endswith("send") or kind.endswith("recv"):
            compute = f"{kind.split('-')[0]}-compute"
            behind = i if kind.endswith("send") else i - 1  # a receive is posted when the previous compute is done
            needs = ([(compute, behind)] if behind >= 0 else []) + ([(kind, i - 1)] if i else [])
            return latest([(k, stage, dp, step, n) for k, n in needs])
        if kind == AG:
            return 0.0
        chain = ["gc", LN, *([EMB] if stage in (0, shape.pp - 1) else []), RS, CLIP, "optimizer"]
        if kind == "gc":
            return latest([last(stage, dp, step)])
        return latest([(chain[chain.index(kind) - 1], stage, dp, step, 0)])

    def last(stage: int, dp: int, step: int) -> Key:
        kind, i = order(shape, stage)[-1]
        return kind, stage, dp, step, i

    def latest(keys: list[Key]) -> float:
        return max((end(key) for key in keys), default=0.0)

    @lru_cache(None)
    def end(key: Key) -> float:
        return max(start(other) for other in together(key)) + own(key)

    def together(key: Key) -> list[Key]:
        kind, stage, dp, step, i = key
        if kind in (AG, RS):
            return [(kind, stage, d, step, i) for d in range(shape.dp)]
        if kind == CLIP:
            return [(kind, s, d, step, i) for s in range(shape.pp) for d in range(shape.dp)]
        if kind == EMB:
            return [(kind, s, dp, step, i) for s in {0, shape.pp - 1}]
        if kind.endswith(("send", "recv")):
            other = stage + (1 if kind in ("forward-send", "backward-recv") else -1)
            mirror = kind.replace("send", "x").replace("recv", "send").replace("x", "recv")
            return [key, (mirror, other, dp, step, i)]
        return [key]

    ops = set(shape.ops())
    return {key: (start(key), end(key)) for key in ops}


def step_times(shape: Shape, times: dict[Key, tuple[float, float]]) -> list[float]:
    """Return the seconds from the start of each step to the end of its last optimizer."""
    return [
        max(e for (kind, *_, step, _), (_, e) in times.items() if kind == "optimizer" and step == s)
        for s in shape.steps
    ]


def write_job(folder: Path, shape: Shape, own: Callable[[Key], float], name: str = "synthetic") -> Path:
    """Write a simulated job as `<name>.parquet` and `<name>.yaml`, and return the first path."""
    rows = []
    for (kind, stage, dp, step, i), (start, end) in sorted(simulate(shape, own).items()):
        compute = kind in (F, B)
        chunk = 0 if compute or kind in (AG, RS) else -1
        row = (dp, stage, stage * shape.dp + dp, step, kind, start, end - start, i, chunk, i if compute else -1)
        rows.append((*row, stage if compute else -1))
    types = (pa.int8(), pa.int8(), pa.int16(), pa.int64(), pa.string(), pa.float32(), pa.float32())
    types += (pa.int32(), pa.int8(), pa.int8(), pa.int16())
    names = ["dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc", "mb_id", "gmc"]
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True)]
    path = folder / f"{name}.parquet"
    pq.write_table(pa.table(dict(zip(names, columns, strict=True))), path)
    sizes = {"dp_size": shape.dp, "pp_size": shape.pp, "dsp_size": 1, "tp_size": 1, "vpp_size": 1}
    sizes["world_size"] = shape.dp * shape.pp
    path.with_suffix(".yaml").write_text("".join(f"{key}: {value}\n" for key, value in sizes.items()))
    return path
