"""Short, human-readable kernel names, and globs for commands.

Examples: `gemm bf16 128x64 tn`, `elementwise add f32`, `cunn_SoftMaxForward bf16`. A name that is not a kernel's (an
operator, a Python function, an annotation) stays unchanged.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import lru_cache

from pipelines.base.foreign_text import visible
from pipelines.base.short_names import shortened

WIDTH = 40
"""Maximum number of characters of a short name, and of a name that a command prints in full."""

_TYPES = (
    ("mxfp8", r"MxE[45]m[23]"),
    ("mxfp4", r"MxE2m1"),
    ("fp8", r"(?i:e4m3|e5m2|float8|fp8)"),
    ("fp4", r"(?i:e2m1|fp4)"),
    ("bf16", r"(?i:bfloat16|bf16|hip_bfloat16)"),
    ("f16", r"(?i:half|float16|fp16|f16|(?<![a-z])h(?:884|1688|16816|mma)|hgemm|hcudnn)"),
    ("tf32", r"(?i:tf32|tensorop_s1688|s1688)"),
    ("f64", r"(?i:double|dgemm|float64|fp64|f64|(?<![a-z])d884)"),
    ("c64", r"(?i:g?cgemm|complex<float>)"),
    ("f32", r"(?i:(?<![a-z])float(?![0-9])|sgemm|scudnn|fp32|f32|float32)"),
    ("i8", r"(?i:imma|(?<![a-z])i8|int8)"),
)
_OF_ARGUMENT = {
    **dict.fromkeys(
        ("BFloat16", "__nv_bfloat16", "nv_bfloat16", "__hip_bfloat16", "hip_bfloat16", "bfloat16_t"), "bf16"
    ),
    **dict.fromkeys(("Half", "__half", "half", "half_t", "_Float16"), "f16"),
    **dict.fromkeys(("Float8_e4m3fn", "Float8_e5m2", "float_e4m3_t", "__nv_fp8_e4m3", "__nv_fp8_e5m2"), "fp8"),
    **{"float": "f32", "double": "f64"},
}
_WHOLE_NUMBERS = {"long": "i64", "int": "i32", "short": "i16", "bool": "bool", "char": "i8"}
_WRAPPERS = {
    **dict.fromkeys(("Kernel", "Kernel2", "device_kernel", "globalKernel"), ""),
    **{"reduce_kernel": "reduce", "multi_tensor_apply_kernel": "multi_tensor", "trampoline_kernel": "rocprim"},
}
"""Kernels that run the operation in their template argument, with the short names of the kernels themselves."""
_GENERIC = re.compile(
    r"(at|native|c10|std|cuda|detail|internal|binary_internal|array|Array|gpu_kernel_impl\w*|[AB]?Unary\w*|BUnaryFunctor|BinaryFunctor|"
    r"TensorList\w*|FusedOptimizer\w*Metadata|ReduceOp|func_wrapper_t|wrapper|void|const|unsigned|signed|lambda\d*|operator|instance|"
    r"TensorIterator\w*|Scalar|Tensor|cutlass(_cudnn\w*)?|fbgemm_gpu|cute|tuple|C|gemm|conv|kernel|threadblock|thread|epilogue|collective|arch|device|rocprim|"
    r"ROCPRIM_\w+|default_config|target_arch|cub|thrust|cuda_cub|reduction|TrivialOffsetCalculator|OffsetCalculator|OpaqueType|enable_if|"
    r"integral_constant|true|false|decltype|nullptr|flash|ck|ck_tile|tensor_operation|memory|OpType|T\d+|type)"
)
_TELLING = re.compile(
    r"(?i)functor|ops?$|_kernel|kernelimpl|cuda$|^launch_|gemm|flash|fmha|attn|conv|reduce|scan|sort|partition|transform|select"
)
_PADDING = re.compile(
    r"CUDAFunctor(OnSelf)?_|_?cuda_kernel|_kernel_(cuda|impl)|(CUDA)?KernelImpl|_kernel$|^launch_|_?[Ff]unctor$|Ops?$|_config(_selector)?$|^wrapped_"
)
_TILE = re.compile(r"(?:tilesize|_MT|_bt|_t|_)(\d+x\d+)")
_PRODUCT = re.compile(r"(?i)gemm|cudnn_|^nvjet|^bmm_|[dw]grad|fprop")
_LAYOUT = re.compile(r"(?:_|^)([nt]{2}|[NT]{2,3})(?:_|$)")
_TENSILE = re.compile(r"Cijk_A(ilk|lik)_B(jlk|ljk)_(\w+?)_MT(\d+x\d+)")
_NAMELESS = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\{anonymous\}::")
_INSTRUCTION = re.compile(r"(%[\w.-]+) = ")
"""Name of an XLA instruction, before its type, opcode and operands: `%fusion.1 = f32[8] fusion(%all-gather.3)`."""
_SUFFIX = re.compile(r"( \[clone [^\]]*\]|\.kd| const)+$")
_FRAME = re.compile(r".*[/\\]([^/\\]+\.py\(\d+\): .*)", re.DOTALL)
_KNOWN_ARGUMENTS = re.compile(r"\*|\b(int|long|float|double|bool|void)\b|(?i:params|args|kernel)")


def short_name(name: str, width: int = WIDTH) -> str:
    """Return a kernel's short name in at most `width` characters. Long names of other kinds lose their middle."""
    return short_names([name], width)[0]


def short_names(names: Iterable[str], width: int = WIDTH) -> list[str]:
    """Return the short name of each name, in at most `width` characters (at least 8).

    Different names stay different, because names with the same short name get their distinguishing words added.
    """
    names = list(names)
    short_by_name = {name: _said(name) if len(name) <= width else _without_folders(_said(name)) for name in names}
    alike: dict[str, list[str]] = defaultdict(list)
    for name, short in short_by_name.items():
        alike[short].append(name)
    for short, group in alike.items():
        if len(group) > 1:
            short_by_name |= {
                name: f"{short} {piece}".rstrip() for name, piece in zip(group, _pieces(group), strict=True)
            }
    return [short for _, short in _fitting([(name, short_by_name[name]) for name in names], width)]


def _fitting(pairs: list[tuple[str, str]], width: int) -> list[tuple[str, str]]:
    """Return (name, short name) pairs with short names within `width`. Number short names that are still equal."""
    name_by_short: dict[str, str] = {}
    short_by_name = {}
    for name, short in dict(pairs).items():
        number, unique = 1, short
        while unique in name_by_short:
            number += 1
            unique = f"{short} ~{number}"
        name_by_short[unique] = name
        short_by_name[name] = unique
    fitted = dict(zip(short_by_name, shortened(short_by_name.values(), width), strict=True))
    return [(name, fitted[name]) for name, _ in pairs]


_WILDCARDS = {"*": ".*", "?": ".", "[*]": r"\*", "[?]": r"\?"}


def glob_pattern(glob: str) -> re.Pattern[str]:
    """Return the pattern for a command's PATTERN: `*` matches any text, `?` any character.

    `[*]` and `[?]` match only these two characters. All other characters, including other brackets, match themselves.
    """
    parts = re.split(r"(\[[*?]\]|[*?])", glob)
    return re.compile("".join(_WILDCARDS.get(part, re.escape(part)) for part in parts), re.DOTALL)


def glob_of(name: str) -> str:
    """Return a PATTERN that matches a name and can be copied from a terminal.

    `?` stands in for a character that `visible` escapes, and for a `[` before it if a `]` follows it. Otherwise the
    PATTERN matches no other name.
    """
    parts = [f"[{char}]" if char in "*?" else "?" if visible(char) != char else char for char in name]
    for i, around in enumerate(zip(parts, parts[1:], parts[2:], strict=False)):
        if around == ("[", "?", "]"):  # would be a literal question mark
            parts[i] = "?"
    return "".join(parts)


def _pieces(group: list[str]) -> list[str]:
    """Return, for each name with the same short name, at most three distinguishing words, the rarest first."""
    words = [list(dict.fromkeys(_words(name))) for name in group]
    n_names_by_word = Counter(word for name_words in words for word in name_words)
    distinctive = [
        sorted(
            (word for word in name_words if n_names_by_word[word] < len(group) and len(word) <= WIDTH // 2),
            key=n_names_by_word.__getitem__,
        )
        for name_words in words
    ]
    for n_words in (1, 2, 3):
        pieces = [" ".join(name_words[:n_words]) for name_words in distinctive]
        if len(set(pieces)) == len(pieces):
            break
    return pieces


def _words(name: str) -> list[str]:
    if _is_mangled(name):
        return _identifiers(name) + re.findall(r"L[a-z](\d+)E", name)
    return [word for word in re.findall(r"[A-Za-z0-9]+", _NAMELESS.sub("", name)) if word != "native"]


def _without_folders(name: str) -> str:
    """Return a Python function's name without the folders of its file, or any other name unchanged."""
    frame = _FRAME.match(name)
    return frame[1] if frame else name


@lru_cache(maxsize=4096)
def _said(name: str) -> str:
    if instruction := _INSTRUCTION.match(name):
        return instruction[1]
    if tensile := _TENSILE.match(name):
        a, b, types, tile = tensile.groups()
        return f"gemm {_tensile_type(types)} {tile} {'n' if a == 'ilk' else 't'}{'t' if b == 'jlk' else 'n'}"
    if name.startswith("nccl"):
        name = re.sub(r"\(.*", "", name, flags=re.DOTALL)
        return re.sub(r"^nccl((?:Sym)?)(?:Dev)?Kernel_", r"nccl\1 ", name).replace("_", " ")
    if _is_mangled(name):
        return _of_function(*_demangled(name))
    if not is_function(name):
        return _of_product(name) or name
    return _of_function(*_parts(name))


def is_function(name: str) -> bool:
    """Return whether a name is that of a C++ function, with template arguments or parameters."""
    if name.startswith(("void ", "std::enable_if<")):
        return True
    bare = _SUFFIX.sub("", name)
    head = re.match(r"[A-Za-z_][\w]*(?:::(?:[A-Za-z_]\w*|\(anonymous namespace\)|<unnamed>))*", bare)
    if not head or not bare.endswith((")", ">")) or bare[head.end() : head.end() + 1] not in ("<", "("):
        return False
    if bare[head.end()] == "<" or "::" in head[0]:
        return True
    arguments = bare[head.end() :]
    return not re.search(r"['\"=]", arguments) and bool(_KNOWN_ARGUMENTS.search(bare))


def _is_mangled(name: str) -> bool:
    return re.match(r"_ZN?[KL]?\d", name) is not None


def _parts(name: str) -> tuple[str, str]:
    """Return the identifier of a C++ function and its template arguments, as text."""
    text = _SUFFIX.sub("", _NAMELESS.sub("", name))
    if not is_function(name):
        return text.partition("#")[0].strip() or text, ""
    depth, top, inside, arguments = 0, "", "", ""
    for char in text:
        if char in "<({[":
            if depth == 0 and char == "(" and top.strip():
                break
            if depth == 0:
                inside = ""
            depth += 1
        elif char in ">)}]":
            depth = max(depth - 1, 0)
            if depth == 0:
                arguments = inside
            continue
        elif depth == 0:
            if char.isspace() or char == ":":
                arguments = ""
            top += char
            continue
        if depth:
            inside += char
    words = top.split()
    *around, base = (words[-1] if words else "").split("::")
    base = around[-1] if base == "kernel" and around else base
    return (base or text), arguments


def _demangled(name: str) -> tuple[str, str]:
    """Return the identifier of a mangled C++ function, and the types and identifiers in the remaining name as words."""
    prefix = re.match(r"_ZN?[KL]?", name)
    pos, parts = prefix.end() if prefix else 0, []
    while length := re.match(r"\d+", name[pos:]):
        pos += length.end()
        parts.append(name[pos : pos + int(length[0])])
        pos += int(length[0])
    suffix = name[pos:]
    readable = re.sub(r"DF16b|DB?16b|u6__bf16", " bfloat16_t ", suffix).replace("DF16_", " half ")
    if re.match(r"I[^N]*?f", readable) and "bfloat16" not in readable[:24]:
        readable = f"float {readable}"
    return (parts[-1] if parts else name), " ".join(
        (*re.findall(r"\w*float16\w*|float|half", readable[:24]), *_identifiers(suffix))
    )


def _identifiers(mangled: str) -> list[str]:
    words, pos = [], 0
    while match := re.compile(r"\d+").search(mangled, pos):
        length = int(match[0]) if len(match[0]) < 4 else 0
        word = mangled[match.end() : match.end() + length]
        if length > 2 and re.fullmatch(r"[A-Za-z_]\w*", word) and not re.search(r"L[a-z]\d|EL[a-z]", word):
            words.append(word)
            pos = match.end() + length
        else:
            pos = match.end()
    return words


def _of_function(base: str, arguments: str) -> str:
    wrapper = "elementwise" if "elementwise" in base.lower() else _WRAPPERS.get(base)
    if wrapper is None:
        return _of_product(base, arguments) or _with_type(base, arguments)
    op, after = _operation(arguments)
    if not op:
        return _with_type(base, arguments)
    if not wrapper:
        return _of_product(op, arguments) or _with_type(op, arguments)
    operands = re.search(r"(Binary|BUnary|AUnary)Functor<(.*)", arguments, re.DOTALL)
    kind = _type_of(operands[2] if operands else after, whole_numbers=True) or _type_of(arguments)
    cleaned = _PADDING.sub("", op).strip("_") or op
    return " ".join(part for part in (wrapper, cleaned, kind) if part)


def _operation(arguments: str) -> tuple[str, str]:
    """Return the word of a wrapper's template arguments that names its operation, and the text after it."""
    words = [
        match
        for match in re.finditer(r"[A-Za-z_]\w*", arguments)
        if len(match[0]) > 2 and not _GENERIC.fullmatch(match[0]) and not _is_type(match[0])
    ]
    telling = [match for match in words if _TELLING.search(match[0])]
    chosen = next(iter(telling or words), None)
    return (chosen[0], arguments[chosen.end() :]) if chosen else ("", arguments)


def _is_type(word: str) -> bool:
    return word in _OF_ARGUMENT or word in _WHOLE_NUMBERS


def _type_of(arguments: str, *, whole_numbers: bool = False) -> str:
    """Return the short name of the first numeric type in template arguments, or '' without a numeric type."""
    types = _OF_ARGUMENT | _WHOLE_NUMBERS if whole_numbers else _OF_ARGUMENT
    return next((types[word] for word in re.findall(r"[A-Za-z_]\w*", arguments) if word in types), "")


def _with_type(base: str, arguments: str) -> str:
    kind = _type_of(arguments)
    return f"{base} {kind}" if kind and kind not in base else base


def _of_product(name: str, arguments: str = "") -> str:
    """Return the short name of a matrix product or a convolution whose name has its tile, or '' for other kernels."""
    tile = _TILE.search(name)
    if not tile or not _PRODUCT.search(name) or name.startswith("triton"):
        return ""
    kind = "bmm" if name.startswith("bmm_") else "gemm"
    if re.search(r"(?i)cudnn_|[dw]grad|fprop|igemm_(fwd|bwd|wrw)", name) and "cublas" not in name:
        pass_ = re.search(r"(?i)[dw]grad|fprop|(?<=igemm_)(fwd|bwd|wrw)", name)
        kind = f"conv {pass_[0]}" if pass_ else "conv"
    if "winograd" in name:
        kind = f"{kind} winograd"
    layout = _LAYOUT.search(name.rpartition("_v1")[0] or name)
    split = "split-k" if re.search(r"(?i)split_?k", name) else ""
    parts = (kind, _type_in(name) or _type_of(arguments), tile[1], layout[1].lower()[:2] if layout else "", split)
    return " ".join(part for part in parts if part)


def _type_in(name: str) -> str:
    """Return the type of the operands in a library's kernel name, or '' if the name has no type."""
    if nvjet := re.match(r"nvjet_(?:sm\d+_)?([a-z]+)_", name):
        return {"t": "bf16", "h": "f16", "q": "fp8", "s": "f32"}.get(nvjet[1][0], nvjet[1])
    return next((kind for kind, pattern in _TYPES if re.search(pattern, name)), "")


def _tensile_type(types: str) -> str:
    letters = types.replace("_", "")
    for prefix, kind in (("F8", "fp8"), ("B", "bf16"), ("H", "f16"), ("I8", "i8"), ("S", "f32"), ("D", "f64")):
        if letters.startswith(prefix):
            return kind
    return ""
