"""What a program called the parts of its CUDA graphs: PyTorch's annotation files → names by graph node.

`torch.cuda._graph_annotations.mark_kernels` notes names while a graph is captured. Programs write them as
`kernel_annotations_rank0_*.pkl`, the name under which `torch.cuda._annotate_cuda_graph_trace` looks for them: a pickle of
{id of the node in the profiler: [annotations]} in torch 2.13 (each a dict of plain values, or a text), a dict instead of the
list in later ones. The same as JSON has the ids as texts. Loading an untrusted pickle could run arbitrary code, so only
containers, numbers and texts are accepted.
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
    """The file holds no annotations; the message names the file and what to do."""


def annotations_beside(trace: Path, rank: int | None) -> Path | None:
    """Returns the annotation file of a trace's rank, in its folder or the one above as PyTorch looks; the first by name.

    A rank that is not known is that of the digits at the start of the trace's name, else there is no file.
    """
    if rank is None:
        digits = re.match(r"\d{1,9}", trace.name)
        if not digits:
            return None
        rank = int(digits[0])
    for folder in (trace.absolute().parent, trace.absolute().parent.parent):
        named = sorted(folder.glob(f"kernel_annotations_rank{rank}_*"))
        if found := [path for path in named if path.suffix in _SUFFIXES and path.is_file()]:
            return found[0]
    return None


def read_annotations(path: Path) -> dict[int, str]:
    """Returns names by node: the argument `graph node id` of the work that the node runs. Nodes without a name are left out.

    Raises AnnotationsError, and OSError if the file cannot be read.
    """
    shown = path_text(path)
    if path.stat().st_size > MOST_BYTES:
        raise AnnotationsError(
            f"{shown}: more than {MOST_BYTES >> 20} MiB; annotations of a program's graphs need a few"
        )
    given = _loaded(shown, path.read_bytes())
    if not isinstance(given, dict):
        raise AnnotationsError(
            f"{shown}: holds a {type(given).__name__}, not annotations by graph node: give another file"
        )
    try:
        return dict(_names(given))
    except (TypeError, ValueError, RecursionError) as error:
        raise AnnotationsError(
            f"{shown}: not annotations as PyTorch writes them: {error}; write the file again"
        ) from None


def _loaded(shown: str, data: bytes) -> Any:
    is_text = data.lstrip()[:1] == b"{"
    try:
        if is_text:
            return json.loads(data)
        return load_plain(data)
    except Bomb as error:
        raise AnnotationsError(f"{shown}: broken pickle: {error}; write or copy it again") from None
    except NotPlain as error:
        raise AnnotationsError(
            f"{shown}: {error}, so it is not loaded: write it with pickle.dump(dict(annotations)), and with plain values only"
        ) from None
    except Exception as error:  # a corrupt pickle may raise nearly any exception
        kind = "JSON" if is_text else "pickle"
        raise AnnotationsError(
            f"{shown}: broken {kind} ({type(error).__name__}: {error}); write or copy it again"
        ) from None


def _names(given: dict[Any, Any]) -> Iterator[tuple[int, str]]:
    for key, told in given.items():
        node = _node(key)
        name = _name(told if isinstance(told, list | tuple) else [told])
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


def _name(told: list[Any] | tuple[Any, ...]) -> str | None:
    """The name of a node as it stands in the trace once PyTorch wrote its annotations there: the last of each key counts."""
    merged: dict[str, str] = {}
    for one in told:
        if isinstance(one, dict):
            merged |= {str(key): _text(value) for key, value in one.items()}
        else:
            merged["annotation"] = _text(one)
    return next((merged[key] for key in _NAMES if key in merged), None)


def _text(value: Any) -> str:
    if not isinstance(value, str | int | float | None):
        raise TypeError(f"a value is a {type(value).__name__}, neither text nor number")
    return str(value).encode("utf-8", "replace").decode()
