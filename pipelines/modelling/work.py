"""What an operator call asks for: operations and bytes, or why they are not known."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.modelling.arguments import Tensor


@dataclass(frozen=True)
class Work:
    """Work of one call. `bytes` is None if it is unknown, as for elements of an unknown size, and `flops_vector` if only the
    code of the kernel tells; `flops_uncausal`: as if there were no causal mask.
    """

    kind: str
    flops_matrix: int
    flops_vector: int | None
    bytes: int | None
    dtype: str | None
    flops_uncausal: int


@dataclass(frozen=True)
class NotModelled:
    """Why a call has no work: `op_not_modelled`, `no_shapes` or `bad_args`."""

    reason: str


def summed(*parts: int | None) -> int | None:
    """Returns the sum; None if a part is unknown."""
    return None if None in parts else sum(part for part in parts if part is not None)


def times(n: int, size: int | None) -> int | None:
    """Returns the bytes of `n` elements; None if their size is unknown."""
    return None if size is None else n * size


def work(
    kind: str, of: Tensor, total: int | None, *, matrix: int = 0, vector: int | None = 0, uncausal: int | None = None
) -> Work:
    """Returns the work of a call whose peak the type of the tensor `of` decides; `total`: its bytes."""
    return Work(kind, matrix, vector, total, of.dtype, matrix if uncausal is None else uncausal)
