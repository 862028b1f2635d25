"""An op-level trace of a job, in a Parquet file with the ops and a YAML file with the sizes of its parallelism."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines.base.errors import TracelakeError


class JobRejected(TracelakeError):
    """A file that is not an op-level trace of a job. The message contains the file, the position and the remedy."""


@dataclass(frozen=True)
class JobMeta:
    """The world size of a job and its parallelism (data, dense/sparse data, pipeline, tensor, virtual pipeline)."""

    name: str
    dp: int
    dsp: int
    pp: int
    tp: int
    vpp: int
    world_size: int

    @property
    def data_parallel(self) -> bool:
        """Return whether parameters are gathered and gradients reduced between ranks."""
        return self.dp * self.dsp > 1


@dataclass(frozen=True)
class Op:
    """An op that occurs in every step and dp rank. `start` and `end` are from dp rank 0 in the first step, s."""

    optype: str
    stage: int
    seq_id: int
    mc: int
    mb_id: int
    gmc: int
    start: float
    end: float

    def __str__(self) -> str:
        return f"{self.optype} {self.seq_id} of stage {self.stage}"


@dataclass(frozen=True, eq=False)
class JobTrace:
    """The starts and durations of a job's ops as arrays [op, step, dp rank], in seconds, float32 as recorded.

    `steps` [step]: step numbers, ascending. `ranks` [stage, dp rank]: global ranks.
    """

    path: Path
    meta: JobMeta
    ops: tuple[Op, ...]
    steps: np.ndarray
    ranks: np.ndarray
    start: np.ndarray
    duration: np.ndarray

    @property
    def end(self) -> np.ndarray:
        """Return the ends of the ops, float32 as recorded."""
        return self.start + self.duration

    @property
    def n_ops(self) -> int:
        """Return the number of rows of the file."""
        return int(self.start.size)
