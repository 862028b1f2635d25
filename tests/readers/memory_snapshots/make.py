"""A small caching allocator with a history and a snapshot like PyTorch's, and the memory in use at each time.

It follows `c10/cuda/CUDACachingAllocator.cpp` in what matters to a reader: sizes are rounded up to 512 bytes, small and
large blocks come from segments of 2 MiB and 20 MiB, free blocks are split and merged, a release may have to wait for
another stream, the history is a ring, and a block shares the stack (one object) with the event that allocated it. The
dictionaries have the keys of `torch/csrc/cuda/Module.cpp`.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MIB = 1 << 20
START_US = 1_750_000_000_000_000
Stack = list[dict[str, Any]]
_FRAMES: dict[tuple[str, int, str], dict[str, Any]] = {}


def stack(*frames: tuple[str, int, str]) -> Stack:
    """Return a new list of frames, innermost first; equal frames are one object, as in PyTorch."""
    return [_FRAMES.setdefault(frame, {"name": frame[2], "filename": frame[0], "line": frame[1]}) for frame in frames]


@dataclass
class Block:
    size: int
    requested: int = 0
    state: str = "inactive"
    frames: Stack = field(default_factory=list)


@dataclass
class Segment:
    address: int
    size: int
    stream: int
    blocks: list[Block]
    frames: Stack


@dataclass
class Allocator:
    """The allocator of one device.

    `levels` are (allocated, reserved) after each event that the history still contains.
    """

    device: int = 0
    max_entries: int = 1 << 60
    now_us: int = START_US
    segments: list[Segment] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    levels: list[tuple[int, int]] = field(default_factory=list)
    allocated: int = 0
    reserved: int = 0
    annotations: list[dict[str, Any]] = field(default_factory=list)
    _next: int = 0x7F0000000000

    def alloc(self, size: int, frames: Stack, stream: int = 0) -> int:
        """Allocate memory, and return its address."""
        rounded = max(512, -(-size // 512) * 512)
        segment, place = self._free_block(rounded, stream) or self._new_segment(rounded, stream, frames)
        block = segment.blocks[place]
        if block.size > rounded:
            segment.blocks.insert(place + 1, Block(block.size - rounded))
        segment.blocks[place] = Block(rounded, size, "active_allocated", frames)
        address = segment.address + sum(other.size for other in segment.blocks[:place])
        self.allocated += size
        self._event("alloc", address, size, stream, frames)
        return address

    def free(self, address: int, frames: Stack | None = None, is_pending: bool = False) -> None:
        """Release memory.

        With `is_pending`, another stream still uses the memory, and `complete` must follow.
        """
        segment, place = self._at(address)
        block = segment.blocks[place]
        self._event("free_requested", address, block.requested, segment.stream, frames or [])
        block.state = "active_pending_free"
        if not is_pending:
            self.complete(address)

    def complete(self, address: int) -> None:
        segment, place = self._at(address)
        block = segment.blocks[place]
        self.allocated -= block.requested
        self._event("free_completed", address, block.requested, segment.stream, [])
        segment.blocks[place] = Block(block.size)
        merged: list[Block] = []
        for current in segment.blocks:
            if merged and merged[-1].state == current.state == "inactive":
                merged[-1].size += current.size
            else:
                merged.append(current)
        segment.blocks = merged

    def empty_cache(self) -> None:
        empty = [segment for segment in self.segments if all(block.state == "inactive" for block in segment.blocks)]
        for segment in empty:
            self.segments.remove(segment)
            self.reserved -= segment.size
            self._event("segment_free", segment.address, segment.size, segment.stream, [])

    def out_of_memory(self, size: int, device_free: int) -> None:
        self._add({"action": "oom", "device_free": device_free, "size": size, "stream": 0})

    def annotate(self, name: str, stage: str) -> None:
        self.now_us += 1
        self.annotations.append({"name": name, "stage": stage, "device": self.device, "time_us": self.now_us})

    def segment_dicts(self) -> list[dict[str, Any]]:
        segments = []
        for segment in self.segments:
            at, blocks = segment.address, []
            for block in segment.blocks:
                blocks.append(
                    {
                        **{"address": at, "size": block.size, "requested_size": block.requested, "state": block.state},
                        "frames": block.frames,
                    }
                )
                at += block.size
            active = [block for block in segment.blocks if block.state != "inactive"]
            segments.append(
                {
                    **{"device": self.device, "address": segment.address, "total_size": segment.size},
                    "allocated_size": sum(block.size for block in active if block.state == "active_allocated"),
                    "active_size": sum(block.size for block in active),
                    "requested_size": sum(block.requested for block in active),
                    **{"stream": segment.stream, "segment_type": "small" if segment.size == 2 * MIB else "large"},
                    **{"segment_pool_id": (0, 0), "is_expandable": False, "frames": segment.frames, "blocks": blocks},
                }
            )
        return segments

    def _free_block(self, size: int, stream: int) -> tuple[Segment, int] | None:
        fitting = [
            (block.size, number, place)
            for number, segment in enumerate(self.segments)
            if segment.stream == stream and (segment.size == 2 * MIB) == (size <= MIB)
            for place, block in enumerate(segment.blocks)
            if block.state == "inactive" and block.size >= size
        ]
        if not fitting:
            return None
        _, number, place = min(fitting)
        return self.segments[number], place

    def _new_segment(self, size: int, stream: int, frames: Stack) -> tuple[Segment, int]:
        total = 2 * MIB if size <= MIB else max(20 * MIB, -(-size // (2 * MIB)) * 2 * MIB)
        segment = Segment(self._next, total, stream, [Block(total)], frames)
        self._next += total + 2 * MIB
        self.segments.append(segment)
        self.reserved += total
        self._event("segment_alloc", segment.address, total, stream, frames)
        return segment, 0

    def _at(self, address: int) -> tuple[Segment, int]:
        for segment in self.segments:
            at = segment.address
            for place, block in enumerate(segment.blocks):
                if at == address:
                    return segment, place
                at += block.size
        raise LookupError(address)

    def _event(self, action: str, address: int, size: int, stream: int, frames: Stack) -> None:
        self._add({"action": action, "addr": address, "size": size, "stream": stream}, frames)

    def _add(self, event: dict[str, Any], frames: Stack | None = None) -> None:
        self.now_us += 3
        common = {"time_us": self.now_us, "compile_context": "N/A", "user_metadata": "", "pool_id": (0, 0)}
        self.history.append({**event, **common, **({"frames": frames} if frames is not None else {})})
        self.levels.append((self.allocated, self.reserved))
        if len(self.history) > self.max_entries:
            self.history.pop(0)
            self.levels.pop(0)


def snapshot(*allocators: Allocator, devices: int = 0) -> dict[str, Any]:
    """Return a snapshot of these devices, and of empty ones up to `devices`."""
    n_devices = max(devices, *(allocator.device + 1 for allocator in allocators))
    traces: list[list[dict[str, Any]]] = [[] for _ in range(n_devices)]
    for allocator in allocators:
        traces[allocator.device] = allocator.history
    return {
        "segments": [segment for allocator in allocators for segment in allocator.segment_dicts()],
        "device_traces": traces,
        "allocator_settings": {
            **{"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0},
            **{"expandable_segments": False, "roundup_power2_divisions": {"1": 0, "2": 0}},
        },
        "external_annotations": [note for allocator in allocators for note in allocator.annotations],
    }


def write(path: Path, made: dict[str, Any], protocol: int = 4) -> Path:
    """Write the snapshot as `_dump_snapshot` does, with `pickle.dump`.

    The default protocol is 4 before Python 3.14, and 5 since then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        pickle.dump(made, file, protocol=protocol)
    return path


USER, INNER = ("/home/u/train.py", 10, "forward"), ("/v/site-packages/torch/nn/modules/linear.py", 7, "forward")
LEAK = ("/home/u/train.py", 44, "log_loss")


def training(n_steps: int = 4, leaked: int = 3 * MIB, device: int = 0) -> Allocator:
    """Return a loop whose steps allocate and release memory, and leak `leaked` bytes each."""
    allocator = Allocator(device=device)
    allocator.alloc(30 * MIB + 100, stack(("/home/u/train.py", 3, "main")))
    for step in range(n_steps):
        allocator.annotate(f"ProfilerStep#{step}", "START")
        held = [allocator.alloc(5 * MIB + 7, stack(INNER, USER)) for _ in range(3)]
        allocator.alloc(leaked, stack(INNER, LEAK))
        for address in held:
            allocator.free(address, stack(USER))
        allocator.annotate(f"ProfilerStep#{step}", "END")
    return allocator
