"""Operations and bytes of the custom kernels of servers and compilers.

They cover experts, paged attention of a single sequence, RMS norms, rotations, quantization, and the fused kernels of
TorchInductor. Positions of arguments follow the operators' schemas. The schemas are in vLLM's csrc/torch_bindings.cpp
and fused_moe.py, SGLang's fused_moe.py and sgl-kernel, and PyTorch's native_functions.yaml. A formula raises
BadArguments if the work depends on data.
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


def _fused_experts(kind: str, args: Arguments) -> Work:
    """Return the work of two products for each token and each of its experts.

    The products are [T, K] by w1 [E, 2N, K], then [T, N] by w2 [E, K, N]. Without a gate, w1 has N rows. Which experts'
    weights are read depends on data, so their bytes are known only for a single token.
    """
    x, w1, w2, weights = args.tensor(0, 2), args.tensor(1, 3), args.tensor(2, 3), args.tensor(3, 2)
    tokens, width = x.dims
    chosen = args.tensor(4, 2)
    experts, rows, inner = w1.dims
    if chosen.dims[0] != tokens or inner != width or w2.dims[:2] != (experts, width):
        raise BadArguments("weights are packed, or not those of these tokens")
    if rows not in (w2.dims[2], 2 * w2.dims[2]):
        raise BadArguments(f"{rows} rows in the first product, {w2.dims[2]} in the second")
    if _on_some_ranks(args):
        raise BadArguments("experts are on several ranks: which tokens stay depends on data")
    pairs = tokens * chosen.dims[1]
    matrix = 2 * pairs * (rows * width + width * w2.dims[2])
    read = times(chosen.dims[1] * (rows * width + width * w2.dims[2]), w1.size) if tokens == 1 else None
    total = summed(times(2 * x.n, x.size), weights.bytes, chosen.bytes, read)
    # With fp8 weights, activations are converted to fp8. Integer weights are converted to the type of the activations.
    return work(kind, w1 if w1.dtype == "fp8" else x, total, matrix=matrix, vector=None)


def _on_some_ranks(args: Arguments) -> bool:
    """Return whether the experts are distributed over ranks.

    vLLM passes the map of experts to ranks as a tensor of integers. SGLang sets filter_expert, the last argument.
    """
    later = [tensor for position in range(5, len(args.types)) if (tensor := args.optional(position))]
    return any(tensor.type in _INTEGERS for tensor in later) or args.text(len(args.types) - 1) == "True"


def _grouped_gemm(kind: str, args: Arguments) -> Work:
    """Return the work of aten::_grouped_mm(a, b, offs).

    The four cases are rows of a [T, K] by b [E, K, N], a [E, M, K] by b [E, K, N], columns of a [M, T] by rows of b [T,
    N] to [E, M, N], and a [E, M, K] by columns of b [K, T]. Each T belongs to one group, which depends on data.
    """
    a, b = args.tensor(0), args.tensor(1)
    if len(a.dims) not in (2, 3) or len(b.dims) not in (2, 3) or a.dims[-1] != b.dims[-2]:
        raise BadArguments(f"{a.dims} and {b.dims} cannot be multiplied")
    ranks = (len(a.dims), len(b.dims))
    if ranks == (3, 3) and a.dims[0] != b.dims[0]:
        raise BadArguments(f"{a.dims[0]} and {b.dims[0]} experts")
    out = a.dims[-2] * b.dims[-1]
    groups = {(2, 2): args.tensor(2, 1).n if ranks == (2, 2) else 1, (3, 3): a.dims[0]}.get(ranks, 1)
    matrix = 2 * out * a.dims[-1] * (groups if ranks == (3, 3) else 1)
    # A group without rows does not read its matrix, so the bytes of the other two cases depend on data.
    total = summed(a.bytes, b.bytes, times(groups * out, a.size)) if ranks in ((2, 2), (3, 3)) else None
    return work(kind, a, total, matrix=matrix)


# --- Attention


def _paged_attention(kind: str, args: Arguments, *, query_at: int) -> Work:
    """Return the work of one query of a single sequence against its pages.

    The lengths of several sequences are data, so they are unknown. The length of a single sequence is the recorded
    maximum length.
    """
    q, keys = args.tensor(query_at, 3), args.tensor(query_at + 1)
    if q.dims[0] != 1:
        raise BadArguments("several sequences: their lengths are data")
    length, heads = args.value(query_at + 8), args.value(query_at + 3)
    if not isinstance(length, int) or not isinstance(heads, int):
        raise BadArguments("the length was not recorded")
    pairs = q.dims[1] * length
    total = summed(times(2 * q.n, q.size), times(2 * length * heads * q.dims[2], keys.size))
    return work(kind, q, total, matrix=4 * pairs * q.dims[2])


# --- Norms, rotations, activations, quantization, the cache


def _rms_norm(kind: str, args: Arguments, *, moved: int, flops: int) -> Work:
    """Return the work of an RMS norm, which is 4 operations per element, or 5 with a preceding sum.

    The operations are square, sum, scale and weight. Argument 1 is as large as the output.
    """
    first, x, weight = args.tensor(0), args.tensor(1), args.tensor(2, 1)
    if first.n != x.n or weight.n != x.dims[-1]:
        raise BadArguments(f"{first.dims}, {x.dims} and a weight {weight.dims}")
    return work(kind, x, summed(times(moved * x.n, x.size), weight.bytes), vector=flops * x.n)


def _rotary(kind: str, args: Arguments) -> Work:
    """Return the work of rotating queries and keys in place.

    It is two products and a sum for each element in the rotated part of a head.
    """
    positions, q, k, head, table = (
        args.tensor(0),
        args.tensor(1),
        args.optional(2),
        args.value(3),
        args.tensor(4, 2),
    )
    if not isinstance(head, int) or not 0 < table.dims[1] <= head:
        raise BadArguments("the size of a head was not recorded")
    rotated = [tensor.n * table.dims[1] // head for tensor in (q, k) if tensor is not None]
    # The rows of the table that are read depend on the positions. They are few, so they are not counted.
    return work(kind, q, summed(times(2 * sum(rotated), q.size), positions.bytes), vector=3 * sum(rotated))


def _gated(kind: str, args: Arguments) -> Work:
    """Return the work of computing out [T, d] from [T, 2 d], one operation for the function and one for the product."""
    out, x = args.tensor(0), args.tensor(1)
    if x.n != 2 * out.n:
        raise BadArguments(f"{x.dims} is not twice {out.dims}")
    return work(kind, x, summed(out.bytes, x.bytes), vector=2 * out.n)


def _quantize(kind: str, args: Arguments, *, flops: int) -> Work:
    out, x = args.tensor(0), args.tensor(1)
    if out.n != x.n:
        raise BadArguments(f"{x.dims} does not become {out.dims}")
    return work(kind, x, summed(out.bytes, x.bytes), vector=flops * x.n)


def _into_cache(kind: str, args: Arguments) -> Work:
    """Return the work of copying keys and values of each token to the cache slot that slot_mapping names."""
    key, value, cache, slots = args.tensor(0, 3), args.tensor(1, 3), args.tensor(2), args.tensor(4, 1)
    tokens = min(slots.n, key.dims[0])  # key and value may be padded
    moved = tokens * (math.prod(key.dims[1:]) + math.prod(value.dims[1:]))
    return work(kind, key, summed(times(moved, key.size), times(moved, cache.size), slots.bytes))


# --- TorchInductor


def _triton(kind: str, args: Arguments, *, may_take_part: bool = False) -> Work:
    """Return the work of a generated kernel, with the bytes of each tensor counted once.

    A tensor that is written in place is also read, but its shape does not show this. Only the kernel's code shows the
    number of operations per element, so it is None.
    """
    tensors = args.tensors()
    if not tensors:
        raise BadArguments("no tensor")
    largest = max(tensors, key=lambda tensor: tensor.n)
    total = summed(*(tensor.bytes for tensor in tensors))
    if may_take_part and not _mostly_whole(tensors, largest.n, total):
        raise BadArguments("which part of a tensor is used is in the code only")
    return work(kind, largest, total, vector=None)


def _mostly_whole(tensors: list[Tensor], n: int, total: int | None) -> bool:
    """Return whether several tensors have the largest size, n elements, and the smaller tensors have few of all bytes.

    One of the largest tensors is then the output, and the smaller tensors do not matter. `total`: all bytes, None if
    unknown.
    """
    smaller_bytes = summed(*(tensor.bytes for tensor in tensors if tensor.n < n))
    has_several = sum(tensor.n == n for tensor in tensors) > 1
    return has_several and smaller_bytes is not None and total is not None and smaller_bytes <= _MOST_UNKNOWN * total


def _triton_gemm(kind: str, args: Arguments) -> Work:
    """Return the work of a template's matrix product, with each tensor's bytes counted once.

    The operands are the neighboring tensors whose product has the shape of the last tensor.
    """
    tensors = args.tensors()
    out = tensors[-1].dims if tensors else ()
    first_operands = {
        (a.dims, b.dims): a
        for a, b in pairwise(tensors[:-1])
        if len(a.dims) == len(b.dims) == len(out) and len(out) in (2, 3)
        and a.dims[-1] == b.dims[-2] and (*a.dims[:-1], b.dims[-1]) == out and a.dims[:-2] == b.dims[:-2]
    }  # fmt: skip
    if len(first_operands) != 1:
        raise BadArguments("their shapes do not show which tensors are multiplied")
    ((_, a),) = first_operands.items()
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
