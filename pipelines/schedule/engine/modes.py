"""Thread-local modes of torch that a training loop sets around its steps, such as no_grad and autocast.

Tasks run in threads of the engine, in the modes of the caller of fill_pipeline. A warning names the modes that cannot
be carried over, so that the user notices that training runs in other modes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import torch
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

_AUTOCAST = ("cpu", "cuda", "mps", "xpu")


@dataclass(frozen=True)
class Modes:
    """Modes of one thread. `autocast`: (device type, dtype) of each enabled autocast."""

    grad: bool = True
    inference: bool = False
    autocast: tuple[tuple[str, torch.dtype], ...] = ()
    autocast_cache: bool = True
    default_device: torch.device | None = None
    foreign: tuple[str, ...] = ()
    """Modes that apply only in the caller's thread and cannot be carried over."""

    @classmethod
    def current(cls) -> Modes:
        """Return the modes of the calling thread."""
        autocast = [(kind, torch.get_autocast_dtype(kind)) for kind in _AUTOCAST if torch.is_autocast_enabled(kind)]
        devices, foreign = [], [type(mode).__name__ for mode in _get_current_dispatch_mode_stack()]
        for mode in torch.overrides._get_current_function_mode_stack():
            if isinstance(mode, DeviceContext):
                devices.append(mode.device)
            else:
                foreign.append(type(mode).__name__)
        if torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:  # pyright: ignore[reportAttributeAccessIssue]
            foreign.append("saved_tensors_hooks")
        return cls(
            grad=torch.is_grad_enabled(),
            inference=torch.is_inference_mode_enabled(),
            autocast=tuple(autocast),
            autocast_cache=torch.is_autocast_cache_enabled(),
            default_device=devices[-1] if devices else None,
            foreign=tuple(foreign),
        )

    def apply_as(self, other: Modes) -> bool:
        """Return whether a task runs the same in these modes and in `other`, apart from `foreign`."""
        return self == replace(other, foreign=self.foreign)

    @contextmanager
    def around(self, present: Modes) -> Iterator[None]:
        """Switch the calling thread from its `present` modes to these modes. Modes in `foreign` stay unchanged."""
        with ExitStack() as stack:
            if self.inference != present.inference:
                stack.enter_context(torch.inference_mode(self.inference))
            stack.enter_context(torch.set_grad_enabled(self.grad))
            for kind, dtype in present.autocast:
                stack.enter_context(torch.autocast(kind, dtype, enabled=False))
            for kind, dtype in self.autocast:
                stack.enter_context(torch.autocast(kind, dtype, cache_enabled=self.autocast_cache))
            if self.default_device != present.default_device:
                stack.enter_context(torch.device(self.default_device or "cpu"))
            yield

    def __str__(self) -> str:
        parts = [f"autocast({kind!r}, {dtype})" for kind, dtype in self.autocast]
        parts += ["inference_mode"] if self.inference else [] if self.grad else ["no_grad"]
        parts += [f"device {self.default_device}"] if self.default_device is not None else []
        return ", ".join(parts + list(self.foreign)) or "none"


def profiler_misses_threads() -> bool:
    """Return whether a torch profiler is active that records only the calling thread."""
    return bool(torch.autograd._profiler_enabled())  # pyright: ignore[reportPrivateImportUsage]
