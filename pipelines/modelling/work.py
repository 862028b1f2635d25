"""The work of an operator call, in operations and bytes, or the reason why it is unknown."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.modelling.arguments import Tensor


@dataclass(frozen=True)
class Work:
    """The work of one call.

    `bytes` is None if unknown, for example for elements of an unknown size. `flops_vector` is None if only the kernel's
    code shows it. `flops_uncausal`: `flops_matrix` without a causal mask. `dtype`: the type that decides the peak.
    """

    kind: str
    flops_matrix: int
    flops_vector: int | None
    bytes: int | None
    dtype: str | None
    flops_uncausal: int


@dataclass(frozen=True)
class NotModelled:
    """The reason why a call has no work: `op_not_modelled`, `no_shapes` or `bad_args`."""

    reason: str


def summed(*parts: int | None) -> int | None:
    """Return the sum, or None if a part is unknown."""
    return None if None in parts else sum(part for part in parts if part is not None)


def times(n: int, size: int | None) -> int | None:
    """Return the bytes of `n` elements, or None if their size is unknown."""
    return None if size is None else n * size


def work(
    kind: str, of: Tensor, total: int | None, *, matrix: int = 0, vector: int | None = 0, uncausal: int | None = None
) -> Work:
    """Return the work of a call. `of`: the tensor whose type decides the peak. `total`: the bytes of the call."""
    return Work(kind, matrix, vector, total, of.dtype, matrix if uncausal is None else uncausal)
