"""Sizes at which growing files were ingested. Only a file that has grown since then replaces its earlier rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def not_longer(known: dict[str, int], read: dict[str, int]) -> set[str]:
    """Return the keys of the sets of which the lake has at least what was read: another process read a longer log."""
    return {key for key, n_bytes in known.items() if n_bytes >= read.get(key, 0)}


def unpacked_bytes(row: Mapping[str, Any]) -> int:
    """Return the decompressed size of the set of a row of its commit marker, bytes."""
    return row["unpacked_bytes"]
