"""Records the operators that run inside spans, with their arguments as Kineto writes them, so that the formulas for
traces (`pipelines/modelling`) give the work of a sampled span.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pipelines.record.hooks import Noted

Call = tuple[str, str | None, str | None, str | None]
"""Name; shapes, types and literals of the arguments, one per schema position, as JSON. None: cannot be described."""

_TYPES = {
    torch.float64: "double", torch.float32: "float", torch.float16: "c10::Half", torch.bfloat16: "c10::BFloat16",
    torch.int64: "long int", torch.int32: "int", torch.int16: "short int", torch.int8: "signed char",
    torch.uint8: "unsigned char", torch.bool: "bool",
}  # fmt: skip
# These run the kernel of another operator, which is the one a trace shows: (that operator, whether it reads the input).
_INSIDE = {
    "aten::clone": ("aten::copy_", True),
    "aten::_to_copy": ("aten::copy_", True),
    "aten::zeros_like": ("aten::fill_", False),
    "aten::ones_like": ("aten::fill_", False),
    "aten::full_like": ("aten::fill_", False),
    "aten::zeros": ("aten::fill_", False),
    "aten::ones": ("aten::fill_", False),
}
# They move no data on the device.
_FREE = {
    *("aten::_unsafe_view", "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty"),
    *("aten::new_empty_strided", "aten::lift_fresh", "aten::_local_scalar_dense", "aten::set_", "aten::resize_"),
}


class OperatorCalls(TorchDispatchMode):
    """Counts the calls that run while it is active, by `owner()`, name and arguments. It slows them down: measure time
    without it.

    Also sees what autograd runs on its own threads. A compiled model runs uncompiled meanwhile.
    """

    supports_higher_order_operators = True  # else flex_attention and the like raise an error

    def __init__(self, owner: Callable[[], int], noted: Noted) -> None:
        super().__init__()
        self._owner, self._noted = owner, noted
        self.counts: Counter[tuple[int, Call]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # A tensor made of others (DTensor, quantized) is unwrapped first: its parts are what this rank computes on.
        if any(kind.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl for kind in types):
            return NotImplemented
        if not isinstance(func, torch._ops.OpOverload):  # a higher-order operator: no schema describes its arguments
            self._count(lambda: (func.name(), None, None, None))
            return func(*args, **kwargs)
        with self:  # below inference_mode operators are not decomposed yet
            inner = func.decompose(*args, **kwargs)
        if inner is not NotImplemented:
            return inner
        out = func(*args, **kwargs)
        name = func._schema.name
        if not (func.is_view or name in _FREE or func.namespace in ("profiler", "prim")):
            self._count(lambda: described(func, args, kwargs, out))
        return out

    def _count(self, call: Callable[[], Call]) -> None:
        try:
            self.counts[self._owner(), call()] += 1
        except Exception as error:  # a training loop must not break because an operator cannot be counted
            self._noted("step", "step", f"an operator is not counted: {type(error).__name__}: {error}")


def described(func: Any, args: Any, kwargs: Any, out: Any) -> Call:
    """Describes a call as Kineto does: `Input Dims`, `Input type` and `Concrete Inputs`; omitted arguments have their
    defaults.
    """
    name = func._schema.name
    try:
        if name in _INSIDE:
            name, reads = _INSIDE[name]
            values = [out, args[0]] if reads else [out]
        else:
            values = [
                args[place] if place < len(args) else kwargs.get(argument.name, argument.default_value)
                for place, argument in enumerate(func._schema.arguments)
            ]
        parts = [_part(value) for value in values]
        dims, types, concrete = (json.dumps([part[at] for part in parts]) for at in range(3))
    except (RuntimeError, TypeError, ValueError, IndexError):  # symbolic sizes
        return name, None, None, None
    return name, dims, types, concrete


def _part(value: Any) -> tuple[list[Any], str, str]:
    if isinstance(value, torch.Tensor):
        return [int(n) for n in value.shape], _TYPES.get(value.dtype) or _c10(value.dtype), ""
    if isinstance(value, list | tuple) and value and all(isinstance(one, torch.Tensor) for one in value):
        return [[int(n) for n in one.shape] for one in value], "TensorList", ""
    if value is None:
        return [], "", ""
    if isinstance(value, list | tuple):
        return [], "ScalarList", str([_literal(one) for one in value])
    return [], "Scalar", str(_literal(value))


def _literal(value: Any) -> Any:
    return value if isinstance(value, bool | int | float) or value is None else str(value)


def _c10(dtype: torch.dtype) -> str:
    """`torch.float8_e4m3fn` → `c10::Float8_e4m3fn`."""
    return f"c10::{str(dtype).removeprefix('torch.').capitalize()}"
