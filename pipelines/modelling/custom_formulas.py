"""Operations and bytes of kernels that servers and compilers bring along: experts, one-sequence paged attention, RMS norms,
rotations, quantization, and what TorchInductor fuses.

Positions of arguments are those of the operators' schemas: vLLM's csrc/torch_bindings.cpp and fused_moe.py, SGLang's
fused_moe.py and sgl-kernel, PyTorch's native_functions.yaml. What depends on data raises BadArguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise

from pipelines.base.datafiles import threshold
from pipelines.modelling.arguments import Arguments, BadArguments, Tensor
from pipelines.modelling.work import Work, summed, times, work

_INTEGERS = ("int", "long int", "long", "short", "short int", "signed char", "char", "unsigned char")
_MOST_UNKNOWN = threshold("formula_unknown")


# --- Experts


def _fused_experts(kind: str, given: Arguments) -> Work:
    """Two products for each token and each of its experts; a gate doubles the rows of the first: [T, K] by w1 [E, 2N, K],
    then [T, N] by w2 [E, K, N]. Which experts' weights are read depends on data, but for a single token.
    """
    x, w1, w2, weights = given.tensor(0, 2), given.tensor(1, 3), given.tensor(2, 3), given.tensor(3, 2)
    tokens, width = x.dims
    chosen = given.tensor(4, 2)
    experts, rows, inner = w1.dims
    if chosen.dims[0] != tokens or inner != width or w2.dims[:2] != (experts, width):
        raise BadArguments("weights are packed, or not those of these tokens")
    if rows not in (w2.dims[2], 2 * w2.dims[2]):
        raise BadArguments(f"{rows} rows in the first product, {w2.dims[2]} in the second")
    if _on_some_ranks(given):
        raise BadArguments("experts are on several ranks: which tokens stay depends on data")
    pairs = tokens * chosen.dims[1]
    matrix = 2 * pairs * (rows * width + width * w2.dims[2])
    read = times(chosen.dims[1] * (rows * width + width * w2.dims[2]), w1.size) if tokens == 1 else None
    total = summed(times(2 * x.n, x.size), weights.bytes, chosen.bytes, read)
    # Weights of fp8 are multiplied with activations made fp8; those of integers are made as large as the activations.
    return work(kind, w1 if w1.dtype == "fp8" else x, total, matrix=matrix, vector=None)


def _on_some_ranks(given: Arguments) -> bool:
    """vLLM gives the map of experts to ranks as a tensor of integers; SGLang sets filter_expert, the last argument."""
    later = [tensor for place in range(5, len(given.types)) if (tensor := given.optional(place))]
    return any(tensor.type in _INTEGERS for tensor in later) or list(given.concrete[-1:]) == ["True"]


def _grouped_gemm(kind: str, given: Arguments) -> Work:
    """aten::_grouped_mm(a, b, offs): rows of a [T, K] by b [E, K, N]; [E, M, K] by [E, K, N]; columns of a [M, T] by rows
    of b [T, N] to [E, M, N]; [E, M, K] by columns of b [K, T]. All T are somebody's; whose depends on data.
    """
    a, b = given.tensor(0), given.tensor(1)
    if len(a.dims) not in (2, 3) or len(b.dims) not in (2, 3) or a.dims[-1] != b.dims[-2]:
        raise BadArguments(f"{a.dims} and {b.dims} cannot be multiplied")
    ranks = (len(a.dims), len(b.dims))
    if ranks == (3, 3) and a.dims[0] != b.dims[0]:
        raise BadArguments(f"{a.dims[0]} and {b.dims[0]} experts")
    out = a.dims[-2] * b.dims[-1]
    groups = {(2, 2): given.tensor(2, 1).n if ranks == (2, 2) else 1, (3, 3): a.dims[0]}.get(ranks, 1)
    matrix = 2 * out * a.dims[-1] * (groups if ranks == (3, 3) else 1)
    # A group without rows leaves its matrix unread.
    total = summed(a.bytes, b.bytes, times(groups * out, a.size)) if ranks in ((2, 2), (3, 3)) else None
    return work(kind, a, total, matrix=matrix)


# --- Attention


def _paged_attention(kind: str, given: Arguments, *, query_at: int) -> Work:
    """One query of each sequence against its pages. How long sequences are is data; of a single one, it is the longest."""
    q, keys = given.tensor(query_at, 3), given.tensor(query_at + 1)
    if q.dims[0] != 1:
        raise BadArguments("several sequences: their lengths are data")
    length, heads = given.value(query_at + 8), given.value(query_at + 3)
    if not isinstance(length, int) or not isinstance(heads, int):
        raise BadArguments("the length was not recorded")
    pairs = q.dims[1] * length
    total = summed(times(2 * q.n, q.size), times(2 * length * heads * q.dims[2], keys.size))
    return work(kind, q, total, matrix=4 * pairs * q.dims[2])


# --- Norms, rotations, activations, quantization, the cache


def _rms_norm(kind: str, given: Arguments, *, moved: int, flops: int) -> Work:
    """Square, sum, scale, weight: 4 operations for each element; 5 with a sum before. Argument 1 is as large as the output."""
    first, x, weight = given.tensor(0), given.tensor(1), given.tensor(2, 1)
    if first.n != x.n or weight.n != x.dims[-1]:
        raise BadArguments(f"{first.dims}, {x.dims} and a weight {weight.dims}")
    return work(kind, x, summed(times(moved * x.n, x.size), weight.bytes), vector=flops * x.n)


def _rotary(kind: str, given: Arguments) -> Work:
    """Queries and keys turned in place: two products and a sum for each element in the turned part of a head."""
    positions, q, k, head, table = (
        given.tensor(0),
        given.tensor(1),
        given.optional(2),
        given.value(3),
        given.tensor(4, 2),
    )
    if not isinstance(head, int) or not 0 < table.dims[1] <= head:
        raise BadArguments("the size of a head was not recorded")
    turned = [tensor.n * table.dims[1] // head for tensor in (q, k) if tensor is not None]
    # Which rows of the table are read depends on the positions; they are few.
    return work(kind, q, summed(times(2 * sum(turned), q.size), positions.bytes), vector=3 * sum(turned))


def _gated(kind: str, given: Arguments) -> Work:
    """out [T, d] from [T, 2 d]: the function and the product, one operation each."""
    out, x = given.tensor(0), given.tensor(1)
    if x.n != 2 * out.n:
        raise BadArguments(f"{x.dims} is not twice {out.dims}")
    return work(kind, x, summed(out.bytes, x.bytes), vector=2 * out.n)


def _quantize(kind: str, given: Arguments, *, flops: int) -> Work:
    out, x = given.tensor(0), given.tensor(1)
    if out.n != x.n:
        raise BadArguments(f"{x.dims} does not become {out.dims}")
    return work(kind, x, summed(out.bytes, x.bytes), vector=flops * x.n)


def _into_cache(kind: str, given: Arguments) -> Work:
    """Keys and values of each token into the place of the cache that slot_mapping names."""
    key, value, cache, slots = given.tensor(0, 3), given.tensor(1, 3), given.tensor(2), given.tensor(4, 1)
    tokens = min(slots.n, key.dims[0])  # key and value may be padded
    moved = tokens * (math.prod(key.dims[1:]) + math.prod(value.dims[1:]))
    return work(kind, key, summed(times(moved, key.size), times(moved, cache.size), slots.bytes))


# --- TorchInductor


def _triton(kind: str, given: Arguments, *, may_take_part: bool = False) -> Work:
    """Each tensor once; one that is written in place is read, too, and its shape does not show that. How many operations
    an element takes is in the code only.
    """
    tensors = given.tensors()
    if not tensors:
        raise BadArguments("no tensor")
    largest = max(tensors, key=lambda tensor: tensor.n)
    total = summed(*(tensor.bytes for tensor in tensors))
    if may_take_part and not _mostly_whole(tensors, largest.n, total):
        raise BadArguments("which part of a tensor is used is in the code only")
    return work(kind, largest, total, vector=None)


def _mostly_whole(tensors: list[Tensor], n: int, total: int | None) -> bool:
    """One of several equally large tensors is the output, and all others together do not matter."""
    rest = summed(*(tensor.bytes for tensor in tensors if tensor.n < n))
    several = sum(tensor.n == n for tensor in tensors) > 1
    return several and rest is not None and total is not None and rest <= _MOST_UNKNOWN * total


def _triton_gemm(kind: str, given: Arguments) -> Work:
    """A template's operands: the neighbours whose product has the shape of the last tensor. Each tensor counts once."""
    tensors = given.tensors()
    out = tensors[-1].dims if tensors else ()
    found = {
        (a.dims, b.dims): a
        for a, b in pairwise(tensors[:-1])
        if len(a.dims) == len(b.dims) == len(out) and len(out) in (2, 3)
        and a.dims[-1] == b.dims[-2] and (*a.dims[:-1], b.dims[-1]) == out and a.dims[:-2] == b.dims[:-2]
    }  # fmt: skip
    if len(found) != 1:
        raise BadArguments("which tensors are multiplied cannot be told by their shapes")
    ((_, a),) = found.items()
    total = summed(*(tensor.bytes for tensor in tensors))
    return work(kind, a, total, matrix=2 * math.prod(out) * a.dims[-1], vector=None)


CUSTOM_FORMULAS: dict[str, Callable[[str, Arguments], Work]] = {
    "fused_experts": _fused_experts,
    "grouped_gemm": _grouped_gemm,
    "paged_attention_1": partial(_paged_attention, query_at=1),
    "paged_attention_4": partial(_paged_attention, query_at=4),
    "rms_norm": partial(_rms_norm, moved=2, flops=4),
    "add_rms_norm": partial(_rms_norm, moved=4, flops=5),
    "rotary": _rotary,
    "gated": _gated,
    "quantize": partial(_quantize, flops=1),
    "quantize_dynamic": partial(_quantize, flops=2),
    "into_cache": _into_cache,
    "triton": _triton,
    "triton_part": partial(_triton, may_take_part=True),
    "triton_gemm": _triton_gemm,
}
