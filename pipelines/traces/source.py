"""The bytes of a trace file: inflated where they are packed, hashed on the way, one chunk at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from isal import isal_zlib

PACKED_CHUNK = 1 << 18
CHUNK = 1 << 20
_GZIP = b"\x1f\x8b"


class Source:
    """Reads a file once. After `chunks` is exhausted: `n_bytes` unpacked, `trace_id`, and `cut_at`, the unpacked offset
    at which a gzip stream ended early or broke (None where it is whole), with `cut_reason`."""

    def __init__(self, path: Path, on_bytes: Callable[[int], Any] | None = None) -> None:
        self.path, self.on_bytes = path, on_bytes
        with path.open("rb") as file:
            self.packed = file.read(2) == _GZIP
        self.n_bytes = 0
        self.cut_at: int | None = None
        self.cut_reason = ""
        self._hash = hashlib.sha256()

    @property
    def trace_id(self) -> str:
        """First 16 hex digits of the SHA-256 of the unpacked bytes read so far."""
        return self._hash.hexdigest()[:16]

    def chunks(self) -> Iterator[bytes]:
        """Unpacked bytes, at most a megabyte at a time."""
        for chunk in self._inflated() if self.packed else self._read(CHUNK):
            self._hash.update(chunk)
            self.n_bytes += len(chunk)
            yield chunk

    def _read(self, size: int) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            while chunk := file.read(size):
                if self.on_bytes:
                    self.on_bytes(len(chunk))
                yield chunk

    def _inflated(self) -> Iterator[bytes]:
        """A gzip file is one member or several, with zeros allowed behind the last."""
        inflate: Any = None  # None between members
        members = 0
        for packed in self._read(PACKED_CHUNK):
            while packed:
                if inflate is None:
                    packed = packed.lstrip(b"\0") if members else packed
                    if not packed:
                        break
                    inflate = isal_zlib.decompressobj(wbits=31)
                try:
                    chunk = inflate.decompress(packed, CHUNK)
                except isal_zlib.error as error:
                    self.cut_at, self.cut_reason = self.n_bytes, f"the gzip stream is broken ({error})"
                    return
                if chunk:
                    yield chunk
                packed = inflate.unconsumed_tail
                if inflate.eof:
                    packed, inflate, members = inflate.unused_data, None, members + 1
        if inflate is not None:
            self.cut_at, self.cut_reason = self.n_bytes, "the gzip stream ends early"
