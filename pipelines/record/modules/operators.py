"""Counting of operators inside spans.

Arguments have Kineto's format, so the formulas for traces (`pipelines/modelling`) apply to a sampled span's work, too.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pipelines.record.modules.hooks import Noted

Call = tuple[str, str | None, str | None, str | None]
"""A call's name, and the shapes, types and literals of its arguments.

The last three are JSON lists with one entry per schema position. They are None if an argument cannot be described.
"""

_TYPES = {
    torch.float64: "double", torch.float32: "float", torch.float16: "c10::Half", torch.bfloat16: "c10::BFloat16",
    torch.int64: "long int", torch.int32: "int", torch.int16: "short int", torch.int8: "signed char",
    torch.uint8: "unsigned char", torch.bool: "bool",
}  # fmt: skip
# Operator → (the operator whose kernel it runs, which a trace records instead; whether that operator reads the input).
_INSIDE = {
    "aten::clone": ("aten::copy_", True),
    "aten::_to_copy": ("aten::copy_", True),
    "aten::zeros_like": ("aten::fill_", False),
    "aten::ones_like": ("aten::fill_", False),
    "aten::full_like": ("aten::fill_", False),
    "aten::zeros": ("aten::fill_", False),
    "aten::ones": ("aten::fill_", False),
}
# Operators that move no data on the device.
_FREE = {
    *("aten::_unsafe_view", "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty"),
    *("aten::new_empty_strided", "aten::lift_fresh", "aten::_local_scalar_dense", "aten::set_", "aten::resize_"),
}


class OperatorCalls(TorchDispatchMode):
    """Dispatch mode that counts the operator calls while it is active, by `owner()`, name and arguments.

    Views and operators that move no data are not counted. The mode slows the calls down, so times must be measured
    without it. It also counts calls in autograd's threads. The caller must run a compiled model uncompiled while the
    mode is active.
    """

    supports_higher_order_operators = True  # otherwise operators such as flex_attention raise an error

    def __init__(self, owner: Callable[[], int], noted: Noted) -> None:
        super().__init__()
        self._owner, self._noted = owner, noted
        self.counts: Counter[tuple[int, Call]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # Let PyTorch first unwrap tensors made of others (DTensor, quantized), because this rank computes on the parts.
        if any(kind.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl for kind in types):
            return NotImplemented
        if not isinstance(func, torch._ops.OpOverload):  # a higher-order operator, whose arguments no schema describes
            self._count(lambda: (func.name(), None, None, None))
            return func(*args, **kwargs)
        with self:  # under inference_mode, operators have not been decomposed yet
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
    """Return a call as Kineto describes it: name, `Input Dims`, `Input type` and `Concrete Inputs`.

    Omitted arguments get their defaults. The last three are None if an argument cannot be described.
    """
    name = func._schema.name
    try:
        if name in _INSIDE:
            name, reads = _INSIDE[name]
            values = [out, args[0]] if reads else [out]
        else:
            values = [
                args[index] if index < len(args) else kwargs.get(argument.name, argument.default_value)
                for index, argument in enumerate(func._schema.arguments)
            ]
        parts = [_part(value) for value in values]
        dims, types, concrete = (json.dumps([part[column] for part in parts]) for column in range(3))
    except (RuntimeError, TypeError, ValueError, IndexError):  # symbolic sizes
        return name, None, None, None
    return name, dims, types, concrete


def _part(value: Any) -> tuple[list[Any], str, str]:
    if isinstance(value, torch.Tensor):
        return [int(n) for n in value.shape], _TYPES.get(value.dtype) or _c10(value.dtype), ""
    if isinstance(value, list | tuple) and value and all(isinstance(element, torch.Tensor) for element in value):
        return [[int(n) for n in tensor.shape] for tensor in value], "TensorList", ""
    if value is None:
        return [], "", ""
    if isinstance(value, list | tuple):
        return [], "ScalarList", str([_literal(element) for element in value])
    return [], "Scalar", str(_literal(value))


def _literal(value: Any) -> Any:
    return value if isinstance(value, bool | int | float) or value is None else str(value)


def _c10(dtype: torch.dtype) -> str:
    """Return Kineto's name of a type, such as `c10::Float8_e4m3fn` for `torch.float8_e4m3fn`."""
    return f"c10::{str(dtype).removeprefix('torch.').capitalize()}"
