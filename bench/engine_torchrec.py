"""The same shape in torchrec: its StagedTrainPipeline for what comes before the model, the caller for the rest."""

from __future__ import annotations

import importlib
import time
import warnings
from collections.abc import Callable
from typing import Any

BEFORE = {"H2D": "memcpy", "InputDistStart": "data_dist", "InputDistWait": "data_dist"}
"""FusedSparseDist's tasks of the stages 0 and 1, which the pipeline runs; by stream."""
AFTER = 6
"""The tasks of the last stage, which in torchrec are the caller's own code."""


class _Batch:
    def record_stream(self, stream: Any) -> None:
        """Nothing to keep alive."""


def missing() -> str | None:
    """Why torchrec cannot be measured here; None where it can."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("torchrec")
    except ImportError:
        return "torchrec is not installed here: its train pipeline was not measured"
    except Exception as error:  # it is there, but does not fit this torch
        return f"torchrec does not import here ({type(error).__name__}): its train pipeline was not measured"
    return None


def staged(device: str) -> Callable[[int], float]:
    """Seconds for a number of iterations. Off CUDA torchrec has no streams: its stages run in the caller."""
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
