"""Finds where the user's code made a call: the stacks in a dump begin inside PyTorch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

# A file that every collective goes through shows where this rank's PyTorch is, whether installed or a checkout.
_ROOT = re.compile(r"^(.*[/\\]torch[/\\])distributed[/\\](?:distributed_c10d|c10d_logger|_functional_collectives)\.py$")
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]torch[/\\]")
_PYTHON = re.compile(r"\.py$|^<(?!frozen )")  # and not the C++ frames of TORCH_FR_CPP_STACK
_STANDARD = re.compile(r"[/\\]lib(?:64)?[/\\]python3[^/\\]*[/\\](?!(?:site|dist)-packages[/\\])[^/\\]*(?:[/\\]|$)")


def user_frame(frames: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns `file:line function` of the innermost frame that is neither PyTorch's nor the standard library's.

    If there is no such frame, the innermost one; None for no frames (JSON dumps have none).
    """
    files = [str(frame.get("filename")) for frame in frames]
    roots = tuple({found[1] for file in files if (found := _ROOT.match(file))})
    for frame, file in zip(frames, files, strict=True):
        is_torch = file.startswith(roots) or _INSTALLED.search(file)
        if _PYTHON.search(file) and not is_torch and not _STANDARD.search(file):
            return _text(frame)
    return _text(frames[0]) if frames else None


def _text(frame: Mapping[str, Any]) -> str:
    return f"{frame.get('filename')}:{frame.get('line')} {frame.get('name')}"
