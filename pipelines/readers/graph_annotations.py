"""Names that a program gave to parts of its CUDA graphs, by graph node, from PyTorch's annotation files.

`torch.cuda._graph_annotations.mark_kernels` records names while a graph is captured. Programs write them as
`kernel_annotations_rank0_*.pkl`, the name under which `torch.cuda._annotate_cuda_graph_trace` looks for them. In torch
2.13, the file is a pickle of {id of the node in the profiler: [annotations]}, where an annotation is a dict of plain
values, or a text. Later versions write a dict instead of the list. In the JSON form, the ids are texts. Loading an
untrusted pickle could run arbitrary code, so only containers, numbers and texts are accepted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.base.errors import TracelakeError
from pipelines.base.paths import path_text
from pipelines.readers.flight_recorder.opcodes import Bomb
from pipelines.readers.flight_recorder.plain_pickle import NotPlain, load_plain

MOST_BYTES = 256 << 20
_SUFFIXES = (".pkl", ".json")
_NAMES = ("name", "str", "annotation")  # the arguments from which graph_kernels takes a name, in this order


class AnnotationsError(TracelakeError):
    """The file does not contain annotations. The message names the file and the next step."""


def annotations_beside(trace: Path, rank: int | None) -> Path | None:
    """Return the annotation file of a trace's rank, the first by name, or None.

    Search the trace's folder and then the folder above, as PyTorch does. If `rank` is None, the digits at the start of
    the trace's name are the rank.
    """
    if rank is None:
        digits = re.match(r"\d{1,9}", trace.name)
        if not digits:
            return None
        rank = int(digits[0])
    for folder in (trace.absolute().parent, trace.absolute().parent.parent):
        candidates = sorted(folder.glob(f"kernel_annotations_rank{rank}_*"))
        if matches := [path for path in candidates if path.suffix in _SUFFIXES and path.is_file()]:
            return matches[0]
    return None


def read_annotations(path: Path) -> dict[int, str]:
    """Return names by node id, which is the argument `graph node id` of the node's GPU work.

    Nodes without a name are omitted. Raise AnnotationsError, and OSError if the file cannot be read.
    """
    shown_path = path_text(path)
    if path.stat().st_size > MOST_BYTES:
        raise AnnotationsError(
            f"{shown_path}: more than {MOST_BYTES >> 20} MiB; annotations of a program's graphs need a few"
        )
    annotations = _loaded(shown_path, path.read_bytes())
    if not isinstance(annotations, dict):
        raise AnnotationsError(
            f"{shown_path}: holds a {type(annotations).__name__}, not annotations by graph node: give another file"
        )
    try:
        return dict(_names(annotations))
    except (TypeError, ValueError, RecursionError) as error:
        raise AnnotationsError(
            f"{shown_path}: not annotations as PyTorch writes them: {error}; write the file again"
        ) from None


def _loaded(shown_path: str, data: bytes) -> Any:
    is_text = data.lstrip()[:1] == b"{"
    try:
        if is_text:
            return json.loads(data)
        return load_plain(data)
    except Bomb as error:
        raise AnnotationsError(f"{shown_path}: broken pickle: {error}; write or copy it again") from None
    except NotPlain as error:
        raise AnnotationsError(
            f"{shown_path}: {error}, so it is not loaded: write it with pickle.dump(dict(annotations)), and with plain values only"
        ) from None
    except Exception as error:  # a corrupt pickle may raise nearly any exception
        kind = "JSON" if is_text else "pickle"
        raise AnnotationsError(
            f"{shown_path}: broken {kind} ({type(error).__name__}: {error}); write or copy it again"
        ) from None


def _names(annotations: dict[Any, Any]) -> Iterator[tuple[int, str]]:
    for key, value in annotations.items():
        node = _node(key)
        name = _name(value if isinstance(value, list | tuple) else [value])
        if name is not None:
            yield node, name


def _node(key: Any) -> int:
    try:
        node = None if isinstance(key, bool) or not isinstance(key, int | str) else int(key)
    except ValueError:
        node = None
    if node is None or not -(2**63) <= node < 2**63:
        raise ValueError(f"{str(key)[:40]!r} is not the id of a node")
    return node


def _name(annotations: list[Any] | tuple[Any, ...]) -> str | None:
    """Return the name that PyTorch would give a node in the trace, or None if it has no name.

    The last value of each key counts.
    """
    merged: dict[str, str] = {}
    for annotation in annotations:
        if isinstance(annotation, dict):
            merged |= {str(key): _text(value) for key, value in annotation.items()}
        else:
            merged["annotation"] = _text(annotation)
    return next((merged[key] for key in _NAMES if key in merged), None)


def _text(value: Any) -> str:
    if not isinstance(value, str | int | float | None):
        raise TypeError(f"a value is a {type(value).__name__}, neither text nor number")
    return str(value).encode("utf-8", "replace").decode()
