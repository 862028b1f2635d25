"""Floating-point operations and bytes of an operator call, from the shapes of its arguments.

Matrix and vector operations are counted separately, because only matrix operations count for MFU. Bytes are the minimum
traffic (each operand once), so a kernel whose operands are cached may seem faster than memory. The counts agree with
PyTorch's counter (`torch.utils.flop_counter`), with three exceptions. Here, adding a bias is vector work, but PyTorch
does not count it. Here, a causal mask halves attention. Here, the weight gradient of a grouped convolution counts once,
but PyTorch counts it `groups` times.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from pipelines.base.datafiles import rule_rows
from pipelines.modelling.arguments import Arguments, BadArguments, Tensor
from pipelines.modelling.custom_formulas import CUSTOM_FORMULAS
from pipelines.modelling.work import NotModelled, Work
from pipelines.modelling.work import summed as _sum
from pipelines.modelling.work import times as _times
from pipelines.modelling.work import work as _work

# Exceptions that formulas raise for arguments that do not fit. BadArguments is a ValueError.
_BAD = (IndexError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError, MemoryError)


def work_of(
    op: str,
    dims: Sequence[Any] | None,
    types: Sequence[str] | None,
    concrete: Sequence[str] | None,
    formulas: Formulas | None = None,
) -> Work | NotModelled:
    """Return the work of one call, from `Input Dims`, `Input type` and `Concrete Inputs` as recorded in the trace.

    `formulas`: the formula of each operator, by default the shipped rules of op_kinds and op_patterns.
    """
    kind = (formulas or _shipped()).of_op(op)
    if kind is None:
        return NotModelled("op_not_modelled")
    if dims is None or types is None:
        return NotModelled("no_shapes")
    family, formula = kind
    try:
        return _FORMULAS[formula](family, Arguments(dims, types, concrete or None))
    except _BAD:
        return NotModelled("bad_args")


@dataclass(frozen=True)
class Formulas:
    """The rules that choose an operator's (family, formula), by its name, or else by the first matching pattern."""

    by_name: Mapping[str, tuple[str, str]]
    by_pattern: Sequence[tuple[re.Pattern[str], tuple[str, str]]]

    @classmethod
    def of(cls, kinds: Iterable[tuple[str, str, str]], patterns: Iterable[tuple[str, str, str]]) -> Formulas:
        """Build the rules from rows of op_kinds and op_patterns, which are (name or pattern, family, formula)."""
        return cls(
            {op: (family, formula) for op, family, formula in kinds},
            [(re.compile(pattern), (family, formula)) for pattern, family, formula in patterns],
        )

    def of_op(self, op: str) -> tuple[str, str] | None:
        """Return the family and the name of an operator's formula, or None if no rule matches."""
        return self.by_name.get(op) or next((kind for pattern, kind in self.by_pattern if pattern.search(op)), None)


@lru_cache
def _shipped() -> Formulas:
    tables = (("op_kinds", "op"), ("op_patterns", "name_pattern"))
    return Formulas.of(
        *([(rule[key], rule["family"], rule["formula"]) for rule in rule_rows(table)] for table, key in tables)
    )


# --- Matrix products


def _gemm(kind: str, args: Arguments, *, first: int = 0, out_size: int | None = None) -> Work:
    """Return the work of mm and bmm, or of addmm and baddbmm, which have a bias at position 0 (`first` = 1).

    The output has the first operand's element size, unless `out_size` (bytes) is passed.
    """
    a, b = args.tensor(first), args.tensor(first + 1)
    same_rank = len(a.dims) == len(b.dims) and len(a.dims) in (2, 3)
    if not same_rank or a.dims[-1] != b.dims[-2] or a.dims[:-2] != b.dims[:-2]:
        raise BadArguments(f"{a.dims} and {b.dims} cannot be multiplied")
    n_out = math.prod(a.dims[:-1]) * b.dims[-1]
    bias = args.tensor(0) if first else None
    total = _sum(a.bytes, b.bytes, _times(n_out, out_size or a.size), bias.bytes if bias else 0)
    return _work(kind, a, total, matrix=2 * n_out * a.dims[-1] * a.packed, vector=n_out if bias else 0)


# --- Convolutions


def _conv(kind: str, args: Arguments) -> Work:
    x, w, bias = args.tensor(0), args.tensor(1), args.optional(2)
    transposed = bool(args.value(6, False))
    out = (x.dims[0], w.dims[1] * args.value(8, 1) if transposed else w.dims[0], *_conv_sizes(args, x, w, transposed))
    n_out = math.prod(out)
    total = _sum(x.bytes, w.bytes, _times(n_out, x.size), bias.bytes if bias else 0)
    matrix = 2 * math.prod(w.dims[1:]) * (x.n if transposed else n_out)
    return _work(kind, x, total, matrix=matrix, vector=n_out if bias else 0)


def _conv_sizes(args: Arguments, x: Tensor, w: Tensor, transposed: bool) -> list[int]:
    """Return the output's sizes in the dimensions after batch and channels."""
    rank = len(w.dims) - 2
    stride, padding, dilation = (
        _per_dimension(args.value(position), rank, default) for position, default in ((3, 1), (4, 0), (5, 1))
    )
    output_padding = _per_dimension(args.value(7), rank, 0)
    sizes = []
    for size, k, s, p, d, o in zip(x.dims[2:], w.dims[2:], stride, padding, dilation, output_padding, strict=True):
        reach = d * (k - 1)
        sizes.append((size - 1) * s - 2 * p + reach + o + 1 if transposed else (size + 2 * p - reach - 1) // s + 1)
    return sizes


def _per_dimension(value: Any, rank: int, default: int) -> list[int]:
    if value is None:
        return [default] * rank
    values = list(value) if isinstance(value, list | tuple) else [value]
    return values * rank if len(values) == 1 else values


def _conv_backward(kind: str, args: Arguments) -> Work:
    """Return the work of the gradients (of input, weight and bias) that the mask selects."""
    grad, x, w = args.tensor(0), args.tensor(1), args.tensor(2)
    mask = args.value(10, [True, True, False])
    per_gradient = 2 * math.prod(w.dims[1:]) * (x.n if bool(args.value(7, False)) else grad.n)
    bytes_per_gradient = _sum(grad.bytes, x.bytes, w.bytes)
    channels = grad.dims[1]
    total = _sum(*((bytes_per_gradient,) * (bool(mask[0]) + bool(mask[1]))), _times(channels, x.size) if mask[2] else 0)
    return _work(kind, x, total, matrix=per_gradient * (bool(mask[0]) + bool(mask[1])), vector=grad.n if mask[2] else 0)


# --- Attention


def _attention(kind: str, args: Arguments, *, causal_at: int) -> Work:
    q, k, v = (args.tensor(position, 4) for position in range(3))
    batch, heads, rows, width = q.dims
    columns, value_width = k.dims[2], v.dims[3]
    full = 2 * batch * heads * rows * columns * (width + value_width)
    total = _sum(q.bytes, k.bytes, v.bytes, _times(batch * heads * rows * value_width, q.size))
    return _work(kind, q, total, matrix=_masked(full, args.value(causal_at, False), rows, columns), uncausal=full)


def _flash_attention(kind: str, args: Arguments) -> Work:
    """Return the work of flash attention. Its FP8 overload (10 arguments) has three scales before the dropout."""
    return _attention(kind, args, causal_at=7 if len(args.types) == 10 else 4)


def _attention_backward(kind: str, args: Arguments, *, causal_at: int) -> Work:
    """Return the work of the backward pass, which has five products.

    It recomputes the scores, and computes the gradients of the scores (two products), keys and values.
    """
    grad, q, k, v, out = args.tensor(0, 4), args.tensor(1, 4), args.tensor(2, 4), args.tensor(3, 4), _output(args)
    batch, heads, rows, width = q.dims
    columns, value_width = k.dims[2], v.dims[3]
    full = 2 * batch * heads * rows * columns * (3 * width + 2 * value_width)
    total = _sum(*(tensor.bytes for tensor in (grad, out, q, q, k, k, v, v)))
    return _work(kind, q, total, matrix=_masked(full, args.value(causal_at, False), rows, columns), uncausal=full)


def _output(args: Arguments) -> Tensor:
    """Return the forward pass's output, which follows q, k and v, and the bias if the schema has one."""
    fourth = args.optional(4)
    return fourth if fourth is not None and fourth.dims == args.tensor(0).dims else args.tensor(5, 4)


def _masked(full: int, causal: Any, rows: int, columns: int) -> int:
    """Return `full`, reduced by a top-left causal mask if `causal`.

    If rows equal columns, half remains (the diagonal counts half), otherwise the exact share.
    """
    if not causal:
        return full
    if rows == columns:
        return full // 2
    square = min(rows, columns)
    n_unmasked = square * (square + 1) // 2 + (rows - square) * columns
    return full * n_unmasked // (rows * columns)


# --- Norms, softmax, embedding


def _batch_norm(kind: str, args: Arguments) -> Work:
    """Return the work of a batch norm, with the traffic of its statistics (fp32).

    Training reads and writes the running statistics, and saves two more statistics. Evaluation reads the running
    statistics.
    """
    x = args.tensor(0)
    training, channels = bool(args.value(5, False)), x.dims[1]
    statistics = channels * 4 * (6 if training else 2)
    total = _sum(_times(2 * x.n, x.size), *_parameters(args, 1, 2), statistics)
    return _work(kind, x, total, vector=(5 if training else 2) * x.n)


def _layer_norm(kind: str, args: Arguments) -> Work:
    x = args.tensor(0)
    rows = x.n // max(1, math.prod(args.value(1) or x.dims[-1:]))
    return _work(kind, x, _sum(_times(2 * x.n, x.size), *_parameters(args, 2, 3), 8 * rows), vector=5 * x.n)


def _group_norm(kind: str, args: Arguments) -> Work:
    x = args.tensor(0)
    groups = x.dims[0] * int(args.value(6, 1))
    return _work(kind, x, _sum(_times(2 * x.n, x.size), *_parameters(args, 1, 2), 8 * groups), vector=5 * x.n)


def _parameters(args: Arguments, *positions: int) -> list[int | None]:
    return [tensor.bytes for tensor in map(args.optional, positions) if tensor is not None]


def _each_element(kind: str, args: Arguments, *, moved: int, flops: int) -> Work:
    """Return work that is proportional to the size of the first tensor.

    `moved`: number of reads and writes of each element. `flops`: operations per element.
    """
    x = args.tensor(0)
    return _work(kind, x, _times(moved * x.n, x.size), vector=flops * x.n)


def _embedding(kind: str, args: Arguments) -> Work:
    table, index = args.tensor(0, 2), args.tensor(1)
    return _work(kind, table, _sum(_times(2 * index.n * table.dims[1], table.size), index.bytes))


# --- Elementwise work, copies, reductions


def _elementwise(kind: str, args: Arguments, *, reads: int, out_size: int | None = None) -> Work:
    """Return the work of an elementwise operator. The output has the operands' broadcast shape.

    A zero-dimensional tensor does not determine the output's type.
    """
    tensors = args.tensors()[:reads]
    if not tensors:
        raise BadArguments("no tensor")
    widest = max(
        (tensor for tensor in tensors if tensor.dims),
        key=lambda tensor: tensor.size or 0,
        default=max(tensors, key=lambda tensor: tensor.size or 0),
    )
    n_out = math.prod(_broadcast([tensor.dims for tensor in tensors]))
    total = _sum(*(tensor.bytes for tensor in tensors), _times(n_out, out_size or widest.size))
    return _work(kind, widest, total, vector=n_out)


def _broadcast(shapes: list[tuple[int, ...]]) -> list[int]:
    out: list[int] = []
    for distance in range(1, max(map(len, shapes)) + 1):
        sizes = {shape[-distance] for shape in shapes if distance <= len(shape)} - {1}
        if len(sizes) > 1:
            raise BadArguments(f"incompatible shapes: {shapes}")
        out.append(sizes.pop() if sizes else 1)
    return out


def _copy(kind: str, args: Arguments) -> Work:
    to, source = args.tensor(0), args.tensor(1)
    return _work(kind, to, _sum(to.bytes, _times(min(source.n, to.n), source.size)))


def _fill(kind: str, args: Arguments) -> Work:
    to = args.tensor(0)
    return _work(kind, to, to.bytes)


def _reduce(kind: str, args: Arguments, *, dims_at: int) -> Work:
    """Return the work of a reduction over the dimensions at a position, or over all dimensions without this argument.

    The dimensions are a list or a number, and an argument `keepdim` follows. If no argument follows, the argument is
    not the dimensions, but for example the type of a sum or the order of a norm.
    """
    x = args.tensor(0)
    # Traces of torch before 2.1 have an empty type for lists, and no literals.
    is_literal = dims_at + 1 < len(args.types) and args.types[dims_at] in ("Scalar", "ScalarList", "")
    dims = args.value(dims_at) if is_literal else None
    if dims is None or dims == [] or isinstance(dims, bool):
        n_out = 1
    else:
        reduced_dims = {dim % len(x.dims) for dim in (dims if isinstance(dims, list | tuple) else [dims])}
        n_out = math.prod(n for index, n in enumerate(x.dims) if index not in reduced_dims)
    return _work(kind, x, _times(x.n + n_out, x.size), vector=x.n)


# A number after a name is the position of the argument for "causal" or for the reduced dimensions, or a number of
# tensors (op_kinds.csv).
_FORMULAS: dict[str, Callable[[str, Arguments], Work]] = {
    "gemm": _gemm,
    "gemm_bias": partial(_gemm, first=1),
    "scaled_gemm": partial(_gemm, out_size=2),
    "conv": _conv,
    "conv_backward": _conv_backward,
    "flash_attention": _flash_attention,
    "attention_4": partial(_attention, causal_at=4),
    "attention_6": partial(_attention, causal_at=6),
    "attention_backward_7": partial(_attention_backward, causal_at=7),
    "attention_backward_11": partial(_attention_backward, causal_at=11),
    "attention_backward_14": partial(_attention_backward, causal_at=14),
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "norm_backward": partial(_each_element, moved=3, flops=9),
    "softmax": partial(_each_element, moved=2, flops=3),
    "embedding": _embedding,
    **{f"elementwise_{n}": partial(_elementwise, reads=n) for n in (1, 2, 3)},
    **{f"comparison_{n}": partial(_elementwise, reads=n, out_size=1) for n in (1, 2)},
    "copy": _copy,
    "fill": _fill,
    "reduce_1": partial(_reduce, dims_at=1),
    "reduce_2": partial(_reduce, dims_at=2),
    "cumulative": partial(_each_element, moved=2, flops=1),
    **CUSTOM_FORMULAS,
}
