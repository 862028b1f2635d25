"""An op-level trace of a job: one Parquet file of ops, one YAML file that says how the job was parallelized."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines.base.errors import TracelakeError


class JobRejected(TracelakeError):
    """The file is not an op-level trace of a job; the message names the file, the place and what to do."""


@dataclass(frozen=True)
class JobMeta:
    """How a job was parallelized: data, dense/sparse data, pipeline, tensor and virtual pipeline; all ranks."""

    name: str
    dp: int
    dsp: int
    pp: int
    tp: int
    vpp: int
    world_size: int

    @property
    def data_parallel(self) -> bool:
        """Returns whether parameters are gathered and gradients reduced between ranks."""
        return self.dp * self.dsp > 1


@dataclass(frozen=True)
class Op:
    """An op of a step, the same in every step and dp rank. Start and end: on dp rank 0 in the first step, s."""

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
    """A job's ops over (op, step, dp rank), in seconds, as float32 (as recorded).

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
        """Returns ends in the precision of the recording."""
        return self.start + self.duration

    @property
    def n_ops(self) -> int:
        """Returns the number of rows of the file."""
        return int(self.start.size)
