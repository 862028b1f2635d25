"""The arguments of an operator call, parsed from Kineto's `Input Dims`, `Input type` and `Concrete Inputs`.

Each list has one entry per schema argument. A missing optional tensor has dims `[]` and an empty type. A
zero-dimensional tensor also has dims `[]`, but has a type. Concrete inputs are text, so "False" is truthy until it is
parsed.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_NO_TENSOR = {"", "Scalar", "ScalarList", "TensorList", "GenericList", "OptionalTensorList"}
# By c10's type name: short name, bytes per element.
DTYPES = {
    "double": ("fp64", 8), "float": ("fp32", 4), "c10::Half": ("fp16", 2), "c10::BFloat16": ("bf16", 2),
    "c10::Float8_e4m3fn": ("fp8", 1), "c10::Float8_e5m2": ("fp8", 1), "c10::Float8_e4m3fnuz": ("fp8", 1),
    "c10::Float8_e5m2fnuz": ("fp8", 1), "c10::Float4_e2m1fn_x2": ("fp4", 1),
    "long int": ("int64", 8), "long": ("int64", 8), "int": ("int32", 4),
    "short int": ("int16", 2), "short": ("int16", 2), "signed char": ("int8", 1), "unsigned char": ("uint8", 1),
    "bool": ("bool", 1), "char": ("int8", 1),
}  # fmt: skip


class BadArguments(ValueError):
    """Arguments that do not match the operator that a formula describes."""


@dataclass(frozen=True)
class Tensor:
    """A tensor argument. `type` is c10's name of its element type."""

    dims: tuple[int, ...]
    type: str

    @property
    def n(self) -> int:
        """Return the number of elements."""
        return math.prod(self.dims)

    @property
    def dtype(self) -> str | None:
        """Return the short name, such as `bf16` or `fp32`, or None for an unknown type."""
        return DTYPES.get(self.type, (None, None))[0]

    @property
    def size(self) -> int | None:
        """Return the bytes per element, or None for an unknown type."""
        return DTYPES.get(self.type, (None, None))[1]

    @property
    def packed(self) -> int:
        """Return the number of values in an element.

        It is 2 for FP4, whose values are neighbors in a product's inner dimension.
        """
        return 2 if self.dtype == "fp4" else 1

    @property
    def bytes(self) -> int | None:
        """Return the total bytes, or None for an unknown type."""
        return None if self.size is None else self.n * self.size


@dataclass(frozen=True)
class Arguments:
    """The arguments of a call by position in the schema. `concrete` is None if the writer records no literals."""

    dims: Sequence[Any]
    types: Sequence[str]
    concrete: Sequence[str] | None

    def optional(self, place: int) -> Tensor | None:
        """Return the tensor at a position, or None if the argument is not a tensor.

        Raise BadArguments if its dims are nested or negative.
        """
        if place >= len(self.types) or place >= len(self.dims) or self.types[place] in _NO_TENSOR:
            return None
        dims = self.dims[place]
        if not all(isinstance(n, int) for n in dims):
            raise BadArguments(f"argument {place} has nested dims: {dims}")
        if any(n < 0 for n in dims):
            raise BadArguments(f"argument {place} has negative dims: {dims}")
        return Tensor(tuple(dims), self.types[place])

    def tensor(self, place: int, dimensions: int | None = None) -> Tensor:
        """Return the tensor at a position.

        Raise BadArguments if the argument is not a tensor, or if its number of dimensions is not `dimensions`.
        """
        tensor = self.optional(place)
        if tensor is None or (dimensions is not None and len(tensor.dims) != dimensions):
            raise BadArguments(
                f"argument {place} is not a tensor" + (f" of {dimensions} dimensions" if dimensions else "")
            )
        return tensor

    def tensors(self) -> list[Tensor]:
        """Return all tensors, in order."""
        positions = range(min(len(self.dims), len(self.types)))
        return [tensor for tensor in map(self.optional, positions) if tensor is not None]

    def value(self, place: int, default: Any = None) -> Any:
        """Return the literal at a position (number, boolean or list), or `default` if it is None or missing.

        Raise BadArguments if the text is not a literal, or if no literals were recorded.
        """
        text = self.text(place)
        if not text:
            return default
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):  # the last two are raised for deeply nested text
            raise BadArguments(f"argument {place} is {text!r}, not a literal") from None

    def text(self, place: int) -> str:
        """Return the text of the literal at a position, or "" if it is None or missing.

        Raise BadArguments if no literals were recorded, because the call's literals may differ from the schema's
        defaults.
        """
        if self.concrete is None:
            raise BadArguments(f"argument {place} is unknown: the writer records no literals")
        return self.concrete[place].strip() if place < len(self.concrete) else ""
