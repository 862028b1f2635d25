"""Writer of a large snapshot, which is never completely in memory.

It writes the opcodes of `pickle.dump` (protocol 4), one event at a time.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

from tests.readers.memory_snapshots.make import START_US


class _Writer:
    """A writer of opcodes of plain values; `number` maps each text to its index in the pickle's memo."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.n, self.texts = file, 0, dict[str, int]()

    def text(self, value: str) -> bytes:
        if value in self.texts:
            return self.get(self.texts[value])
        self.texts[value] = self.n
        data = value.encode()
        return b"\x8c" + bytes([len(data)]) + data + self.kept()

    def get(self, number: int) -> bytes:
        return b"h" + bytes([number]) if number < 256 else b"j" + struct.pack("<I", number)

    def kept(self) -> bytes:
        self.n += 1
        return b"\x94"

    def whole(self, value: int) -> bytes:
        return b"\x8a\x08" + value.to_bytes(8, "little", signed=True)


def write_large(path: Path, n_events: int, n_stacks: int = 2000, depth: int = 40) -> Path:
    """Write a history of allocations that are all freed, with stacks drawn from 5000 frames and no segments."""
    with path.open("wb", buffering=1 << 20) as file:
        out = _Writer(file)
        file.write(b"\x80\x04}" + out.kept() + b"(" + out.text("segments") + b"]" + out.kept())
        file.write(out.text("device_traces") + b"]" + out.kept() + b"]" + out.kept())
        frames: list[int] = []
        for number in range(n_events):
            if number % 1000 == 0:
                file.write((b"e" if number else b"") + b"(")
            event = number // 2
            head = b"}" + out.kept() + b"(" + out.text("action")
            head += out.text("free_completed" if number % 2 else "alloc")
            head += out.text("addr") + out.whole(0x7F0000000000 + event % 1000 * 512)
            head += out.text("size") + out.whole(512) + out.text("stream") + b"K\x00"
            head += out.text("time_us") + out.whole(START_US + number) + out.text("frames") + b"]" + out.kept() + b"("
            for place in range(depth):
                which = (event % n_stacks * 7 + place * 131) % 5000
                while len(frames) <= which:
                    frames.append(-1)
                if frames[which] < 0:
                    frames[which] = out.n
                    head += (
                        b"}"
                        + out.kept()
                        + b"("
                        + out.text("name")
                        + out.text(f"function_{which}")
                        + out.text("filename")
                    )
                    head += (
                        out.text(f"/home/u/model/part_{which % 100}.py")
                        + out.text("line")
                        + b"M"
                        + struct.pack("<H", which)
                        + b"u"
                    )
                else:
                    head += out.get(frames[which])
            file.write(head + b"eu")
        file.write(b"ea" if n_events else b"a")
        file.write(b"u.")
    return path
