"""Conversion of packets to rows of `_perfetto_rows`, with names, defaults and clocks from earlier packets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pipelines.base.foreign_text import visible
from pipelines.readers.perfetto.arguments import arguments, as_json, extra_data, text
from pipelines.readers.perfetto.clocks import Clocks
from pipelines.readers.perfetto.packets import Damaged

Row = tuple[Any, ...]
"""ph, run, place, track, start_ns, duration_ns, category, stage, name, device, stream, args, flows, ended_flows."""
_CLEARED = 1  # SEQ_INCREMENTAL_STATE_CLEARED
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4  # TrackEvent.Type
_PHASES = {_BEGIN: "B", _END: "E", _INSTANT: "i"}
_INTERNED = {
    "event_names": "name", "event_categories": "category", "debug_annotation_names": "argument",
    "gpu_specifications": "gpu",
}  # fmt: skip


@dataclass
class _Sequence:
    """State of a writer from its packets so far. `run`: number of its current run.

    A run is consecutive begin events and the end events after them. `begins`, `ends`: the events in the run so far.
    """

    texts: dict[tuple[str, int], str] = field(default_factory=dict)
    clock: int | None = None
    track: int = 0
    run: int = -1
    begins: int = 0
    ends: int = 0


@dataclass
class Track:
    """A track, as its descriptor specifies it."""

    parent: int | None
    pid: int | None
    tid: int | None
    process: str | None
    thread: str | None


class Rows:
    """Rows of all packets, in order.

    After all rows are read from `of`, `tracks` has the tracks by id. `counts` has the number of faults by kind, and
    `others` the number of packets and events of kinds that are not read.
    """

    def __init__(self, packet_type: Any, decode_error: type[Exception]) -> None:
        self.tracks: dict[int, Track] = {}
        self.counts: Counter[str] = Counter()
        self.others: Counter[str] = Counter()
        self._type, self._error = packet_type, decode_error
        self._clocks = Clocks()
        self._sequences: dict[int, _Sequence] = {}
        self._runs = 0

    def of(self, packets: Iterable[bytes], inside: Callable[[bytes], Iterable[bytes]]) -> Iterator[Row]:
        """Yield the rows. `inside` decompresses packets inside a packet. Unreadable packets are skipped and counted."""
        for data in packets:
            packet = self._parsed(data)
            if packet is not None and packet.compressed_packets:
                yield from self._inner(inside(packet.compressed_packets))
            elif packet is not None and (row := self._row_or_none(packet)) is not None:
                yield row

    def _inner(self, packets: Iterable[bytes]) -> Iterator[Row]:
        """Yield the rows of compressed packets.

        Skip and count compressed packets inside them, to bound the recursion.
        """
        try:
            for data in packets:
                packet = self._parsed(data)
                if packet is not None and packet.compressed_packets:
                    self.counts["broken"] += 1
                elif packet is not None and (row := self._row_or_none(packet)) is not None:
                    yield row
        except Damaged:
            self.counts["broken"] += 1

    def _parsed(self, data: bytes) -> Any | None:
        try:
            return self._type.FromString(data)
        except (self._error, UnicodeDecodeError):
            self.counts["broken"] += 1
            return None

    def _row_or_none(self, packet: Any) -> Row | None:
        try:
            return self._row(packet)
        except (self._error, UnicodeDecodeError):
            self.counts["broken"] += 1
            return None

    def _row(self, packet: Any) -> Row | None:
        number = packet.trusted_packet_sequence_id
        if packet.sequence_flags & _CLEARED or packet.incremental_state_cleared:
            self._sequences.pop(number, None)
        sequence = self._sequences.setdefault(number, _Sequence())
        self._learn(packet, sequence, number)
        kind = packet.WhichOneof("data")
        # Compute the time of every packet, because an incremental clock counts from one packet to the next.
        at_ns = None if kind == "clock_snapshot" else self._time(packet, sequence, number)
        if kind == "track_event":
            row = self._track_event(packet, sequence, at_ns)
        elif kind == "gpu_render_stage_event":
            row = self._stage(packet, sequence, at_ns)
        else:
            row = None
            if kind not in (None, "track_descriptor", "clock_snapshot"):
                self.others[kind] += 1
        if row is not None and at_ns is None:
            self.counts["unknown_clock" if packet.HasField("timestamp") else "no_time"] += 1
        return row

    def _learn(self, packet: Any, sequence: _Sequence, number: int) -> None:
        if packet.HasField("interned_data"):
            for field_name, kind in _INTERNED.items():
                for entry in getattr(packet.interned_data, field_name):
                    sequence.texts[kind, entry.iid] = text(entry.name)
            for entry in packet.interned_data.debug_annotation_string_values:
                sequence.texts["text", entry.iid] = entry.str.decode("utf-8", "replace")
        if packet.HasField("trace_packet_defaults"):
            defaults = packet.trace_packet_defaults
            sequence.clock = defaults.timestamp_clock_id or None
            sequence.track = defaults.track_event_defaults.track_uuid
        if packet.HasField("clock_snapshot"):
            self._clocks.add(number, packet.clock_snapshot)
        if packet.HasField("track_descriptor"):
            self._describe(packet.track_descriptor)

    def _describe(self, descriptor: Any) -> None:
        process, thread = descriptor.process, descriptor.thread
        is_thread = descriptor.HasField("thread")
        self.tracks[descriptor.uuid] = Track(
            descriptor.parent_uuid if descriptor.HasField("parent_uuid") else None,
            thread.pid if is_thread else process.pid if descriptor.HasField("process") else None,
            thread.tid if is_thread else None,
            text(process.process_name) or None,
            text(thread.thread_name or descriptor.name or descriptor.static_name) or None,
        )

    def _time(self, packet: Any, sequence: _Sequence, number: int) -> int | None:
        clock = packet.timestamp_clock_id if packet.HasField("timestamp_clock_id") else sequence.clock
        time_ns = self._clocks.ns(number, clock, packet.timestamp) if packet.HasField("timestamp") else None
        return None if time_ns is None else _bounded(time_ns)

    def _text(self, sequence: _Sequence, kind: str, iid: int) -> str | None:
        value = sequence.texts.get((kind, iid))
        self.counts["missing_text"] += value is None
        return value

    def _track_event(self, packet: Any, sequence: _Sequence, at_ns: int | None) -> Row | None:
        event = packet.track_event
        ph = _PHASES.get(event.type) or (event.legacy_event.HasField("phase") and chr(event.legacy_event.phase & 0x7F))
        if event.type == _COUNTER or not ph or ph not in "BEXi":
            self.others["counters" if event.type == _COUNTER else "track events of other types"] += 1
            return None
        track = event.track_uuid if event.HasField("track_uuid") else sequence.track
        args = arguments(event.debug_annotations, lambda kind, iid: self._text(sequence, kind, iid))
        name = text(event.name) or (self._text(sequence, "name", event.name_iid) if event.name_iid else None)
        category = next(map(text, event.categories), None)
        if category is None and event.category_iids:
            category = self._text(sequence, "category", event.category_iids[0])
        duration_ns = _bounded(event.legacy_event.duration_us * 1000) if ph == "X" else None
        flows = [*event.flow_ids, *event.flow_ids_old]
        ended_flows = [*event.terminating_flow_ids, *event.terminating_flow_ids_old]
        return (
            ph, *self._place(ph, sequence), _signed(track), at_ns, duration_ns, category, None,
            name, None, None, as_json(args), [_signed(flow_id) for flow_id in flows], [_signed(flow_id) for flow_id in ended_flows],
        )  # fmt: skip

    def _place(self, ph: str, sequence: _Sequence) -> tuple[int | None, int | None]:
        """Return the run of a begin or end event, and its 1-based index among the begins or ends of the run."""
        if ph not in "BE":
            return None, None
        if sequence.run < 0 or (ph == "B" and sequence.ends):
            self._runs += 1
            sequence.run, sequence.begins, sequence.ends = self._runs, 0, 0
        if ph == "B":
            sequence.begins += 1
            return sequence.run, sequence.begins
        sequence.ends += 1
        return sequence.run, sequence.ends

    def _stage(self, packet: Any, sequence: _Sequence, at_ns: int | None) -> Row:
        event = packet.gpu_render_stage_event
        stage = self._text(sequence, "gpu", event.stage_iid) if event.stage_iid else None
        queue = self._text(sequence, "gpu", event.hw_queue_iid) if event.hw_queue_iid else None
        name = text(event.name) or (self._text(sequence, "name", event.name_iid) if event.name_iid else None)
        args = extra_data(event.extra_data)
        device = event.gpu_id if event.HasField("gpu_id") else args.get("device")
        last_word = (queue or "").split()[-1:]
        stream = args.get(
            "stream", int(last_word[0]) if last_word and last_word[0].isdecimal() and len(last_word[0]) < 19 else None
        )
        args |= {key: value for key, value in (("device", device), ("stream", stream)) if value is not None}
        if event.HasField("launch"):
            size_by_name = {"grid": event.launch.grid_size, "block": event.launch.workgroup_size}
            args |= {key: [size.x, size.y, size.z] for key, size in size_by_name.items()}
        duration_ns = _bounded(event.duration) if event.HasField("duration") else None
        return (
            "X", None, None, None, at_ns, duration_ns, None, stage or "(unknown)", name or stage,
            *(number if isinstance(number, int) else None for number in (device, stream)), as_json(args), [], [],
        )  # fmt: skip


def _signed(number: int) -> int:
    """Return an unsigned 64-bit number as the BIGINT with the same bits."""
    return number - (1 << 64) if number >= 1 << 63 else number


def _bounded(time: int) -> int:
    """Return a time clamped to a BIGINT. A clamped time is still out of the allowed range of times."""
    return min(max(time, -(1 << 63)), (1 << 63) - 1)


def shown(others: Counter[str]) -> str:
    """Return the eight most frequent kinds with their counts, as text for a message."""
    return ", ".join(f"{n} {visible(kind)}" for kind, n in others.most_common(8))
