"""Conversion of the dictionaries of a snapshot to rows, which are written as soon as a dictionary is complete.

Source: `torch/csrc/cuda/Module.cpp` (THCPModule_memorySnapshot), `torch/csrc/cuda/memory_snapshot.cpp`, and the types
in `torch/cuda/memory.py` (`_snapshot`), PyTorch 2.0 to 2.13.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pipelines.models.sqltext import as_text
from pipelines.readers.flight_recorder.frames import user_frame
from pipelines.readers.inputs.row_files import RowFiles
from pipelines.readers.memory_snapshots.pickle_stream import GONE, BrokenPickle, Item, Listing, PickleStream, Reusable

ACTIONS = (
    *("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap"),
    *("snapshot", "oom", "user_defined"),
)
_LARGEST = 2**63 - 1  # a BIGINT
_LATEST_US = _LARGEST // 1000
_MOST_FRAMES, _MOST_STACKS, _MOST_STACKED = 1_000_000, 2_000_000, 50_000_000


@dataclass(frozen=True, slots=True)
class Frame(Reusable):
    """A frame of a stack, as it is stored."""

    file: str
    line: int | None
    function: str
    fx_node: str | None


@dataclass(frozen=True, slots=True)
class Stack(Reusable):
    """A stack whose rows are already written."""

    stack_id: int


class Event(tuple[Any, ...]):
    """An entry of a device's history: the columns of `snapshot_events` from `action` on."""

    __slots__ = ()


class Block(NamedTuple):
    """A block of a segment that is not yet complete."""

    address: int | None
    size_bytes: int
    requested_bytes: int | None
    state: str
    stack_id: int | None


class Written:
    """A segment or annotation whose rows are already written."""


_WRITTEN = Written()


class Entries:
    """Rows of one snapshot. The caller sets `stream` before it reads."""

    def __init__(self, files: RowFiles) -> None:
        self.files = files
        self.stream: PickleStream
        self.n_unknown_actions = 0
        self.first_event_ns: int | None = None
        self.last_event_ns: int | None = None
        self._frames: dict[Frame, Frame] = {}
        self._stacks: dict[tuple[int, ...], Stack] = {}
        self._n_stacked = 0
        self._lengths: list[int] = []  # of the non-empty histories, in the order of the file

    # Callbacks of the stream.

    def fold(self, item: Item) -> Any:
        """Return the replacement of a dictionary, or the dictionary itself if it makes no row."""
        if "action" in item:
            return self._event(item)
        if "filename" in item and "name" in item:
            return self._frame(item)
        if "blocks" in item:
            return self._segment(item)
        if "state" in item and "size" in item:
            return self._block(item)
        if "stage" in item and "time_us" in item:
            return self._annotation(item)
        return item

    def append(self, listing: Listing, items: list[Any]) -> None:
        """Write the items to the history if they are allocator events, else append them to the list.

        Raise BrokenPickle if a list has both allocator events and other items.
        """
        if not items:
            return
        if type(items[0]) is not Event:
            if listing.number is not None or any(item is GONE or type(item) is Event for item in items):
                raise BrokenPickle("a list of entries contains something else, or a duplicate entry")
            listing.extend(items)
            return
        if listing.number is None:
            if listing:
                raise BrokenPickle("a list of entries contains something else")
            listing.number = len(self._lengths)
            self._lengths.append(0)
        seq = self._lengths[listing.number]
        for event in items:
            if type(event) is not Event:
                raise BrokenPickle(f"a list of entries holds {event!r:.60}")
            self.files.add("snapshot_events", (listing.number, seq, *event))
            seq += 1
        self._lengths[listing.number] = seq

    def intern_list(self, listing: Listing) -> Any:
        """Return the stack for a list of frames, or any other list unchanged."""
        return self._stack(listing) if all(type(item) is Frame for item in listing) else listing

    # Check after the whole pickle is read.

    def devices(self, top: Any) -> list[int]:
        """Return the device of each history in the order of the file. A device is an index in `device_traces`.

        Raise BrokenPickle if the pickle's top object `top` is not that of a snapshot.
        """
        if type(top) is not Item or type(top.get("segments")) is not Listing:
            raise BrokenPickle("it has no list `segments`: it is not a snapshot of torch.cuda.memory")
        if any(part is not _WRITTEN for part in top["segments"]):
            raise BrokenPickle("`segments` holds something else")
        histories = top.get("device_traces") or Listing()
        if type(histories) is not Listing:
            raise BrokenPickle(f"device_traces is {histories!r:.60}, not a list")
        device_by_number: dict[int, int] = {}
        for device, history in enumerate(histories):
            if type(history) is not Listing or (history and history.number is None):
                raise BrokenPickle(f"device_traces[{device}] is not a list of entries")
            if history.number in device_by_number:
                raise BrokenPickle(f"device_traces[{device}] is that of another device")
            if history.number is not None:
                device_by_number[history.number] = device
        if len(device_by_number) != len(self._lengths):
            raise BrokenPickle("there are entries outside of device_traces")
        return [device_by_number[number] for number in range(len(device_by_number))]

    # Rows.

    def _event(self, item: Item) -> Event:
        action = _text(item, "action")
        self.n_unknown_actions += action not in ACTIONS
        at_ns = _ns(item)
        if at_ns is not None:
            self.first_event_ns = at_ns if self.first_event_ns is None else min(at_ns, self.first_event_ns)
            self.last_event_ns = at_ns if self.last_event_ns is None else max(at_ns, self.last_event_ns)
        return Event(
            (
                action,
                _address(item, "addr"),
                _whole(item, "size"),
                _whole(item, "device_free"),
                _whole(item, "stream"),
                at_ns,
                _pool(item.get("pool_id")),
                _text(item, "compile_context"),
                _text(item, "user_metadata"),
                self._stack_of(item),
            )
        )

    def _frame(self, item: Item) -> Frame:
        frame = Frame(
            _text(item, "filename") or "",
            _whole(item, "line", signed=True),
            _text(item, "name") or "",
            _text(item, "fx_node_name"),
        )
        if len(self._frames) >= _MOST_FRAMES:
            raise BrokenPickle(f"more than {_MOST_FRAMES:,} different frames")
        return self._frames.setdefault(frame, frame)

    def _stack_of(self, item: Item) -> int | None:
        """Return the number of an item's stack, or None if no stack was recorded.

        Raise BrokenPickle if the item's frames are not a list of frames.
        """
        frames = item.get("frames")
        if isinstance(frames, Listing):
            stack = self._stack(frames) if frames else None
            if stack:
                self.stream.replace(frames, stack)
            frames = stack
        if frames is not None and not isinstance(frames, Stack):
            raise BrokenPickle(f"frames is {frames!r:.60}, not a list of frames")
        return None if frames is None else frames.stack_id

    def _stack(self, frames: Sequence[Any]) -> Stack:
        if not all(type(frame) is Frame for frame in frames):
            raise BrokenPickle("a stack holds something that is not a frame")
        key = tuple(map(id, frames))  # _frames keeps one object of all equal frames
        if existing := self._stacks.get(key):
            return existing
        self._n_stacked += len(frames)
        if len(self._stacks) >= _MOST_STACKS or self._n_stacked > _MOST_STACKED:
            raise BrokenPickle(f"more than {_MOST_STACKS:,} different stacks, or {_MOST_STACKED:,} frames in them")
        stack = self._stacks[key] = Stack(len(self._stacks))
        frame_dicts = [{"filename": frame.file, "line": frame.line, "name": frame.function} for frame in frames]
        self.files.add("snapshot_stacks", (stack.stack_id, len(frames), user_frame(frame_dicts)))
        for depth, frame in enumerate(frames):
            self.files.add(
                "snapshot_frames", (stack.stack_id, depth, frame.file, frame.line, frame.function, frame.fx_node)
            )
        return stack

    def _block(self, item: Item) -> Block:
        size, history = _whole(item, "size"), item.get("history")
        if size is None:
            raise BrokenPickle("a block has no size")
        if history and type(history[0]) is Item:  # PyTorch before 2.1
            requested, stack = _whole(history[0], "real_size"), self._stack_of(history[0])
        else:
            requested, stack = _whole(item, "requested_size"), self._stack_of(item)
        return Block(_address(item, "address"), size, requested, _text(item, "state") or "", stack)

    def _segment(self, item: Item) -> Written:
        number, device, address = (
            self.files.count("snapshot_segments"),
            _whole(item, "device"),
            _address(item, "address"),
        )
        next_address = address
        for index, block in enumerate(item["blocks"]):
            if type(block) is not Block:
                raise BrokenPickle(f"a segment's blocks hold {block!r:.60}")
            block_row = block._replace(address=next_address if block.address is None else block.address)
            self.files.add("snapshot_blocks", (number, index, device, *block_row))
            next_address = None if next_address is None else _signed(next_address + block.size_bytes)
        self.files.add(
            "snapshot_segments",
            (
                number,
                device,
                address,
                _whole(item, "total_size"),
                _whole(item, "allocated_size"),
                _whole(item, "active_size"),
                _whole(item, "requested_size"),
                _whole(item, "stream"),
                _text(item, "segment_type"),
                _pool(item.get("segment_pool_id")),
                _flag(item.get("is_expandable")),
                self._stack_of(item),
            ),
        )
        return _WRITTEN

    def _annotation(self, item: Item) -> Written:
        row = (_whole(item, "device"), _text(item, "name"), _text(item, "stage"), _ns(item))
        self.files.add("snapshot_annotations", (self.files.count("snapshot_annotations"), *row))
        return _WRITTEN


def _whole(item: Item, key: str, signed: bool = False) -> int | None:
    """Return `item[key]`, or None if it is missing. Raise BrokenPickle unless it is an integer that fits a BIGINT.

    A negative integer is accepted only if `signed`.
    """
    value = item.get(key)
    if value is None:
        return None
    if type(value) is int and (-_LARGEST if signed else 0) <= value <= _LARGEST:
        return value
    raise BrokenPickle(f"{key} is {value!r:.60}, not a whole number below 2^63")


def _address(item: Item, key: str) -> int | None:
    """Return `item[key]` as a signed number, or None if it is missing. Raise BrokenPickle unless it fits 64 bits."""
    value = item.get(key)
    if value is None:
        return None
    if type(value) is int and 0 <= value < 2**64:
        return _signed(value)
    raise BrokenPickle(f"{key} is {value!r:.60}, not a whole number below 2^64")


def _signed(address: int) -> int:
    """Return an address as Kineto writes it into traces, negative from 2^63 on (as on Intel GPUs)."""
    return (address + 2**63) % 2**64 - 2**63


def _ns(item: Item) -> int | None:
    time_us = _whole(item, "time_us")
    if time_us is not None and time_us > _LATEST_US:
        raise BrokenPickle(f"time_us is {time_us}: too late")
    return None if time_us is None else time_us * 1000


def _text(item: Item, key: str) -> str | None:
    """Return `item[key]` with lone surrogates escaped, or None if it is missing.

    Raise BrokenPickle if it is not text.
    """
    value = item.get(key)
    if value is None or (type(value) is str and value.isascii()):
        return value
    if type(value) is str:
        return as_text(value)
    raise BrokenPickle(f"{key} is {value!r:.60}, not a text")


def _pool(value: Any) -> str | None:
    """Return the id of a memory pool as text such as `0.0`, or None.

    Raise BrokenPickle unless it is a tuple of two integers.
    """
    if value is None:
        return None
    if type(value) is tuple and len(value) == 2 and all(type(part) is int for part in value):
        return f"{value[0]}.{value[1]}"
    raise BrokenPickle(f"the id of a pool is {value!r:.60}, not two numbers")


def _flag(value: Any) -> bool | None:
    if value is None or type(value) is bool:
        return value
    raise BrokenPickle(f"is_expandable is {value!r:.60}, neither true nor false")
