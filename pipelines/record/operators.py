"""The operators that run inside of spans, with their arguments as Kineto writes them, so that the formulas for traces
(`pipelines/modelling`) say what work a sampled span asked for.
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
"""Name; shapes, types and literals of the arguments, one per place of the schema, as JSON. None: cannot be described."""

_TYPES = {
    torch.float64: "double", torch.float32: "float", torch.float16: "c10::Half", torch.bfloat16: "c10::BFloat16",
    torch.int64: "long int", torch.int32: "int", torch.int16: "short int", torch.int8: "signed char",
    torch.uint8: "unsigned char", torch.bool: "bool",
}  # fmt: skip
# What these run is another operator's kernel, which is what a trace has: (that operator, whether it reads the input).
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
    """Counts the calls that run while it is on, by `owner()` and name and arguments. Slows them: time without it.

    Sees what autograd runs, too, on its own threads. A compiled model runs uncompiled meanwhile.
    """

    supports_higher_order_operators = True  # else flex_attention and its like raise an error

    def __init__(self, owner: Callable[[], int], noted: Noted) -> None:
        super().__init__()
        self._owner, self._noted = owner, noted
        self.counts: Counter[tuple[int, Call]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # A tensor that is made of others (DTensor, quantized ones) is taken apart first: its parts are what this rank
        # computes on.
        if any(kind.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl for kind in types):
            return NotImplemented
        if not isinstance(func, torch._ops.OpOverload):  # an operator of higher order: no schema says what it takes
            self._count(lambda: (func.name(), None, None, None))
            return func(*args, **kwargs)
        with self:  # below inference_mode operators are not taken apart yet
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
        except Exception as error:  # no loop breaks because an operator cannot be counted
            self._noted("step", "step", f"an operator is not counted: {type(error).__name__}: {error}")


def described(func: Any, args: Any, kwargs: Any, out: Any) -> Call:
    """A call as Kineto writes it: `Input Dims`, `Input type` and `Concrete Inputs`; left-out arguments are defaults."""
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
    except (RuntimeError, TypeError, ValueError, IndexError):  # sizes that are not numbers
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
