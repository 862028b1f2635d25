"""Decompressed bytes of a trace file. Gzip is recognized by its magic bytes, not by the file's name."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from isal import isal_zlib

from pipelines.readers.kineto.limits import Limits

GZIP_MAGIC = b"\x1f\x8b"
READ_BYTES = 1 << 17
INFLATED_BYTES = 1 << 20  # one call of the decompressor returns at most this much, whatever the ratio


class TooLarge(Exception):
    """A limit that is exceeded at byte `offset` of the decompressed content.

    `reason` names the limit and its option.
    """

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset, self.reason = offset, reason


class Source:
    """One pass over a file. `unpacked_bytes` and `damage` are final once `chunks` has ended."""

    def __init__(
        self, path: Path, on_bytes: Callable[[int], object] | None = None, limits: Limits | None = None
    ) -> None:
        self.limits = limits
        self.path = path
        self.is_gzip = False
        self.unpacked_bytes = 0
        self.damage: str | None = None  # why decompression stopped early
        self._packed_bytes = 0
        self._on_bytes = on_bytes

    def chunks(self) -> Iterator[bytes]:
        """Yield decompressed content in chunks of at most INFLATED_BYTES.

        Raise TooLarge if a limit is exceeded, and OSError if the file cannot be read.
        """
        with self.path.open("rb") as file:
            packed = self._packed(file)
            first = next(packed, b"")
            self.is_gzip = first.startswith(GZIP_MAGIC)
            for chunk in self._inflate(first, packed) if self.is_gzip else _chain(first, packed):
                if chunk:
                    self.unpacked_bytes += len(chunk)
                    if self.limits and (reason := self.limits.unpacked(self._packed_bytes, self.unpacked_bytes)):
                        raise TooLarge(self.unpacked_bytes, reason)
                    yield chunk

    def _packed(self, file) -> Iterator[bytes]:
        while data := file.read(READ_BYTES):
            self._packed_bytes += len(data)
            if self._on_bytes:
                self._on_bytes(len(data))
            yield data

    def _inflate(self, data: bytes, packed: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the content of all members of a gzip file. Stop at damage and set `damage`."""
        member = isal_zlib.decompressobj(wbits=31)
        try:
            while True:
                yield member.decompress(data, INFLATED_BYTES)
                data = member.unconsumed_tail
                if member.eof:
                    data = member.unused_data.lstrip(b"\0") or next(packed, b"").lstrip(b"\0")
                    if not data:
                        return
                    if len(data) < 2:
                        data += next(packed, b"")
                    if not data.startswith(GZIP_MAGIC):
                        self.damage = f"no gzip member follows at compressed byte {self._packed_bytes - len(data)}"
                        return
                    member = isal_zlib.decompressobj(wbits=31)
                elif not data and not (data := next(packed, b"")):
                    yield from self._rest(member)
                    return
        except isal_zlib.error as error:  # pyright: ignore[reportGeneralTypeIssues] its stub says Exception
            self.damage = f"gzip data damaged before compressed byte {self._packed_bytes} ({error})"

    def _rest(self, member) -> Iterator[bytes]:
        """Yield the output that the decompressor still buffers at the end of the file.

        Set `damage` if the member is incomplete.
        """
        while not member.eof and (remainder := member.decompress(b"", INFLATED_BYTES)):
            yield remainder
        if not member.eof:
            self.damage = f"gzip data is truncated at compressed byte {self._packed_bytes}"


def head_of(path: Path) -> bytes:
    """Return the first decompressed bytes of a file, b"" if it is not a regular file or cannot be read."""
    try:
        return next(iter(Source(path).chunks()), b"") if path.is_file() else b""
    except OSError:
        return b""


def content_hash(path: Path, limits: Limits) -> tuple[str, int]:
    """Return the SHA-256 of a file's decompressed content as hex digits, and its size in bytes.

    Raise TooLarge, or OSError if the file cannot be read.
    """
    source, digest = Source(path, limits=limits), hashlib.sha256()
    for chunk in source.chunks():
        digest.update(chunk)
    return digest.hexdigest(), source.unpacked_bytes


class Kept:
    """Second pass over content that the first pass kept. Each chunk is freed once it is used.

    `on_bytes` gets the file's size, `packed_bytes`, in equal parts, one per chunk.
    """

    def __init__(
        self, chunks: deque[bytes], packed_bytes: int, damage: str | None, on_bytes: Callable[[int], object] | None
    ) -> None:
        self.unpacked_bytes = 0
        self.damage = damage
        self._chunks, self._packed_bytes, self._on_bytes = chunks, packed_bytes, on_bytes

    def chunks(self) -> Iterator[bytes]:
        """Yield the decompressed content, in the chunks that the first pass kept."""
        n_chunks, reported_bytes = len(self._chunks), 0
        while self._chunks:
            chunk = self._chunks.popleft()
            self.unpacked_bytes += len(chunk)
            if self._on_bytes:
                released_bytes = self._packed_bytes * (n_chunks - len(self._chunks)) // n_chunks
                self._on_bytes(released_bytes - reported_bytes)
                reported_bytes = released_bytes
            yield chunk


def _chain(first: bytes, following: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from following
