"""FusedSparseDist's shape in torchrec. StagedTrainPipeline runs the tasks before the model, and the caller the rest."""

from __future__ import annotations

import importlib
import time
import warnings
from collections.abc import Callable
from typing import Any

BEFORE = {"H2D": "memcpy", "InputDistStart": "data_dist", "InputDistWait": "data_dist"}
"""The stream of each task of FusedSparseDist's stages 0 and 1, which the pipeline runs."""
AFTER = 6
"""Number of tasks of the last stage, which in torchrec are the caller's code."""


class _Batch:
    def record_stream(self, stream: Any) -> None:
        """Do nothing, because the batch has no memory to keep alive."""


def missing() -> str | None:
    """Return why torchrec cannot be measured on this machine, or None if it can."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("torchrec")
    except ImportError:
        return "torchrec is not installed here: its train pipeline was not measured"
    except Exception as error:  # torchrec is installed, but incompatible with this torch
        return f"torchrec does not import here ({type(error).__name__}): its train pipeline was not measured"
    return None


def staged(device: str) -> Callable[[int], float]:
    """Return a function that returns the seconds of a number of iterations.

    Without CUDA, torchrec has no streams, so its stages run in the caller's thread.
    """
    import torch

    pipelines = importlib.import_module("torchrec.distributed.train_pipeline.train_pipelines")
    module = torch.get_device_module(device)
    streams = {name: torch.cuda.Stream() if device == "cuda" else torch.Stream(device=device) for name in _names()}
    compute = module.current_stream() if device == "cuda" else torch.Stream(device=device)
    stages = [pipelines.PipelineStage(name=n, runnable=_same, stream=streams[s]) for n, s in BEFORE.items()]

    def run(iterations: int) -> float:
        pipeline = pipelines.StagedTrainPipeline(stages, compute_stream=compute)
        data = iter([_Batch() for _ in range(iterations)])
        start = time.perf_counter()
        while (batch := pipeline.progress(data)) is not None:
            for _ in range(AFTER):
                _same(batch)
        module.synchronize()
        return time.perf_counter() - start

    return run


def _names() -> set[str]:
    return set(BEFORE.values())


def _same(batch: _Batch) -> _Batch:
    return batch
