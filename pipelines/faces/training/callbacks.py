"""Callbacks that profile a few steps of a Trainer of Hugging Face transformers or of Lightning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any


def hugging_face_callback(
    on_trace_ready: Callable[[Any], Any], *, wait: int = 10, warmup: int = 1, active: int = 3, repeat: int = 1
) -> Any:
    """Return a TrainerCallback for `Trainer(callbacks=[…])` that profiles and passes each trace to `on_trace_ready`.

    An error of the profiler never stops training. It becomes a RuntimeWarning, and the profiler stops.
    `on_trace_ready`: as in torch.profiler, for example `trace_handler(…)`. `wait` steps are skipped, `warmup` steps
    warm the profiler up, and `active` steps are recorded, `repeat` times (0: until the end). Raise ModuleNotFoundError
    without transformers.
    """
    from transformers import TrainerCallback  # pyright: ignore[reportMissingImports]

    class ProfilerCallback(TrainerCallback):
        def __init__(self) -> None:
            self._loop = _ProfiledLoop(on_trace_ready, wait, warmup, active, repeat)

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._loop.begin()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._loop.step()

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._loop.end()

    return ProfilerCallback()


def lightning_callback(
    on_trace_ready: Callable[[Any], Any], *, wait: int = 10, warmup: int = 1, active: int = 3, repeat: int = 1
) -> Any:
    """Return a Callback for `Trainer(callbacks=[…])` of Lightning that does the same as `hugging_face_callback`.

    Raise ModuleNotFoundError without lightning or pytorch_lightning.
    """
    try:
        from lightning.pytorch.callbacks import Callback  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        from pytorch_lightning.callbacks import Callback  # pyright: ignore[reportMissingImports]

    class ProfilerCallback(Callback):  # pyright: ignore[reportGeneralTypeIssues]  # of either package
        def __init__(self) -> None:
            self._loop = _ProfiledLoop(on_trace_ready, wait, warmup, active, repeat)

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self._loop.begin()

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            self._loop.step()

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self._loop.end()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            self._loop.end()

    return ProfilerCallback()


class _ProfiledLoop:
    """A profiler with a schedule, from the start of the loop to its end."""

    def __init__(self, on_trace_ready: Callable[[Any], Any], wait: int, warmup: int, active: int, repeat: int) -> None:
        self._on_trace_ready = on_trace_ready
        self._schedule = {"wait": wait, "warmup": warmup, "active": active, "repeat": repeat}
        self._profiler: Any = None

    def begin(self) -> None:
        self.end()  # ends the profiler of an interrupted training
        self._safely(self._start)

    def step(self) -> None:
        if self._profiler is not None:
            self._safely(self._profiler.step)

    def end(self) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            self._safely(profiler.stop)

    def _safely(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except Exception as error:
            profiler, self._profiler = self._profiler, None
            with suppress(Exception):
                profiler.stop()
            warnings.warn(f"the profiler has stopped: {error}", RuntimeWarning, stacklevel=4)

    def _start(self) -> None:
        import torch
        from torch.profiler import profile, schedule

        if torch.autograd._profiler_enabled():  # pyright: ignore[reportPrivateImportUsage]
            raise RuntimeError("another profiler is running")  # a second profiler would end it
        # By default, profile records the CPU and the accelerators that torch supports on this machine.
        self._profiler = profile(
            schedule=schedule(**self._schedule), on_trace_ready=self._on_trace_ready, record_shapes=True
        )
        self._profiler.start()
