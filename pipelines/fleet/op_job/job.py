"""An op-level trace of a job: one Parquet file of ops, one YAML file with the sizes of its parallelism."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines.base.errors import TracelakeError


class JobRejected(TracelakeError):
    """A file that is not an op-level trace of a job. The message names file, position and what to do."""


@dataclass(frozen=True)
class JobMeta:
    """The sizes of a job's parallelism: data, dense/sparse data, pipeline, tensor and virtual pipeline; and all ranks."""

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
        """Return ends in the precision of the recording."""
        return self.start + self.duration

    @property
    def n_ops(self) -> int:
        """Return the number of rows of the file."""
        return int(self.start.size)
