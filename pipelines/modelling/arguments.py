"""The arguments of an operator as Kineto records them (`Input Dims`, `Input type`, `Concrete Inputs`) → plain values.

There is always one entry per schema argument. A missing optional tensor has dims `[]` and an empty type; a
zero-dimensional tensor also has dims `[]`, but has a type. Concrete inputs are text: "False" is truthy until it is
parsed.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_NO_TENSOR = {"", "Scalar", "ScalarList", "TensorList", "GenericList", "OptionalTensorList"}
# c10's type names; short name, bytes per element.
DTYPES = {
    "double": ("fp64", 8), "float": ("fp32", 4), "c10::Half": ("fp16", 2), "c10::BFloat16": ("bf16", 2),
    "c10::Float8_e4m3fn": ("fp8", 1), "c10::Float8_e5m2": ("fp8", 1), "c10::Float8_e4m3fnuz": ("fp8", 1),
    "c10::Float8_e5m2fnuz": ("fp8", 1), "long int": ("int64", 8), "long": ("int64", 8), "int": ("int32", 4),
    "short int": ("int16", 2), "short": ("int16", 2), "signed char": ("int8", 1), "unsigned char": ("uint8", 1),
    "bool": ("bool", 1), "char": ("int8", 1),
}  # fmt: skip


class BadArguments(ValueError):
    """The arguments do not match the operator that a formula knows."""


@dataclass(frozen=True)
class Tensor:
    """A tensor argument. `size` is bytes per element, None for an unknown type."""

    dims: tuple[int, ...]
    type: str

    @property
    def n(self) -> int:
        """The number of elements."""
        return math.prod(self.dims)

    @property
    def dtype(self) -> str | None:
        """`bf16`, `fp32`, …; None for an unknown type."""
        return DTYPES.get(self.type, (None, None))[0]

    @property
    def size(self) -> int | None:
        """Bytes per element; None for an unknown type."""
        return DTYPES.get(self.type, (None, None))[1]

    @property
    def bytes(self) -> int | None:
        """Total bytes; None for an unknown type."""
        return None if self.size is None else self.n * self.size


@dataclass(frozen=True)
class Arguments:
    """One call's arguments, by their position in the schema."""

    dims: Sequence[Any]
    types: Sequence[str]
    concrete: Sequence[str]

    def optional(self, place: int) -> Tensor | None:
        """Returns the tensor at a position, or None if there is none."""
        if place >= len(self.types) or place >= len(self.dims) or self.types[place] in _NO_TENSOR:
            return None
        dims = self.dims[place]
        if not all(isinstance(n, int) for n in dims):
            raise BadArguments(f"argument {place} has nested dims: {dims}")
        return Tensor(tuple(dims), self.types[place])

    def tensor(self, place: int, dimensions: int | None = None) -> Tensor:
        """Returns the tensor at a position. Raises BadArguments if there is none, or its number of dimensions is wrong."""
        found = self.optional(place)
        if found is None or (dimensions is not None and len(found.dims) != dimensions):
            raise BadArguments(
                f"argument {place} is not a tensor" + (f" of {dimensions} dimensions" if dimensions else "")
            )
        return found

    def tensors(self) -> list[Tensor]:
        """Returns all tensors, in order."""
        places = range(min(len(self.dims), len(self.types)))
        return [tensor for tensor in map(self.optional, places) if tensor is not None]

    def value(self, place: int, default: Any = None) -> Any:
        """Returns the literal at a position (numbers, booleans, lists); `default` if it was not recorded."""
        text = self.concrete[place].strip() if place < len(self.concrete) else ""
        if not text:
            return default
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):  # raised by the parser for deeply nested text
            raise BadArguments(f"argument {place} is {text!r}, not a literal") from None
