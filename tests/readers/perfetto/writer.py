"""Writer that converts a Kineto trace to the file that PyTorch's CUPTI monitor writes for the same run.

It follows PyTorch's source, not a real file. torch/profiler/_cupti/monitor_trace.py (`_window_to_pftrace`) defines the
contents, and torch/csrc/profiler/cupti/monitor_pftrace.cpp the encoding. Import this module after
`pytest.importorskip("perfetto")`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

STAGES = {"kernel": 1, "gpu_memcpy": 2, "gpu_memset": 3, "gpu_user_annotation": 4}
_STAGE_NAMES = ("Kernel", "Memcpy", "Memset", "Annotation")
_BARE = {"device": "device id", "stream": "stream id", "context": "context id"}
_CALLS = ("cuda_runtime", "cuda_driver")
_QUEUES = 100


class Written:
    """A trace that grows by packets."""

    def __init__(self) -> None:
        self.trace = pb.Trace()
        self.texts: dict[str, int] = {}
        self.tracks: dict[tuple[Any, ...], int] = {}
        self.descriptors: list[pb.TracePacket] = []
        self.queues: dict[int, int] = {}

    def packet(self, ts: int | None = None) -> Any:
        packet = self.trace.packet.add()
        packet.trusted_packet_sequence_id = 1
        if ts is not None:
            packet.timestamp = ts
        return packet

    def text(self, name: str) -> int:
        return self.texts.setdefault(name, len(self.texts) + 1)

    def track(self, pid: Any, tid: Any, name: str) -> int:
        parent = self._track(("p", pid))
        if ("p", pid) not in self.tracks:
            self.tracks["p", pid] = parent
            said = self._descriptor(parent)
            said.process.pid, said.process.process_name = int(pid), "python"
        key = ("t", pid, tid)
        if key not in self.tracks:
            said = self._descriptor(self._track(key))
            said.parent_uuid = parent
            said.thread.pid, said.thread.tid, said.thread.thread_name = int(pid), int(tid), name
            self.tracks[key] = said.uuid
        return self.tracks[key]

    def _track(self, key: tuple[Any, ...]) -> int:
        return self.tracks.get(key, len(self.tracks) + 1)

    def _descriptor(self, uuid: int) -> Any:
        packet = pb.TracePacket()
        packet.track_descriptor.uuid = uuid
        self.descriptors.append(packet)
        return packet.track_descriptor

    def group(self, events: Iterable[Mapping[str, Any]], base: int) -> None:
        """Add slices of one kind: all begins, then all ends."""
        events = list(events)
        for event in events:
            packet = self.packet(ns(event["ts"]) + base)
            packet.sequence_flags = pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
            slice_ = packet.track_event
            slice_.type = pb.TrackEvent.TYPE_SLICE_BEGIN
            slice_.track_uuid = self.track(event["pid"], event["tid"], f"thread {event['tid']}")
            slice_.name_iid = self.text(event["name"])
            for key, value in event.get("args", {}).items():
                annotate(slice_.debug_annotations.add(name=key), value)
        for event in events:
            slice_ = self.packet(ns(event["ts"]) + ns(event["dur"]) + base).track_event
            slice_.type = pb.TrackEvent.TYPE_SLICE_END
            slice_.track_uuid = self.track(event["pid"], event["tid"], "")

    def stage(self, event: Mapping[str, Any], base: int) -> None:
        """Add a GPU activity as a render stage."""
        args = dict(event.get("args", {}))
        packet = self.packet(ns(event["ts"]) + base)
        packet.sequence_flags = pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        stage = packet.gpu_render_stage_event
        stage.duration, stage.gpu_id = ns(event["dur"]), args.get("device", 0)
        stage.stage_iid = STAGES[event["cat"]]
        stream = int(args.get("stream", event["tid"]))
        stage.hw_queue_iid = self.queues.setdefault(stream, _QUEUES + len(self.queues))
        if event["cat"] in ("kernel", "gpu_user_annotation"):
            stage.name_iid = self.text(event["name"])
        if grid := args.pop("grid", None):
            launch, block = stage.launch, args.pop("block")
            for size, values in ((launch.grid_size, grid), (launch.workgroup_size, block)):
                size.x, size.y, size.z = values
        for key, value in args.items():
            text = value if isinstance(value, str) else json.dumps(value, default=float)
            stage.extra_data.add(name=_BARE.get(key, key), value=text)

    def bytes(self) -> bytes:
        """Return the file before compression: descriptors, interned names, events."""
        whole = pb.Trace()
        whole.packet.extend(self.descriptors)
        first = whole.packet.add(trusted_packet_sequence_id=1)
        first.sequence_flags = pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        for name, iid in self.texts.items():
            first.interned_data.event_names.add(iid=iid, name=name)
        for iid, name in enumerate(_STAGE_NAMES, 1):
            first.interned_data.gpu_specifications.add(iid=iid, name=name)
        for stream, iid in self.queues.items():
            first.interned_data.gpu_specifications.add(iid=iid, name=f"stream {stream:03d}")
        return whole.SerializeToString() + self.trace.SerializeToString()


def ns(us: Any) -> int:
    return round(Decimal(us) * 1000)


def annotate(said: Any, value: Any) -> None:
    if isinstance(value, dict):
        for key, each in value.items():
            annotate(said.dict_entries.add(name=key), each)
    elif isinstance(value, list | tuple):
        for each in value:
            annotate(said.array_values.add(), each)
    elif isinstance(value, bool):
        said.bool_value = value
    elif isinstance(value, int):
        said.int_value = value
    elif isinstance(value, float | Decimal):
        said.double_value = float(value)
    else:
        said.string_value = "null" if value is None else value


def as_said(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the run reduced to the data of a Perfetto file.

    Copies have the name of their kind, calls have a number, and waits have their kind.
    """
    events = []
    for event in document["traceEvents"]:
        cat, args = event.get("cat"), dict(event.get("args", {}))
        if event["ph"] in ("s", "f"):
            continue
        if cat in ("gpu_memcpy", "gpu_memset"):
            event = {**event, "name": _STAGE_NAMES[STAGES[cat] - 1]}
        elif cat in _CALLS:
            event = {**event, "args": {**args, "cbid": args.get("cbid", 1)}}
        elif cat == "cuda_sync":
            event = {**event, "args": {**args, "cuda_sync_kind": event["name"]}}
        events.append(event)
    return {**document, "traceEvents": events}


def written_of(document: Mapping[str, Any]) -> Written:
    """Return the trace of the run that `as_said` returns."""
    written, base = Written(), int(document.get("baseTimeNanoseconds") or 0)
    events = [e for e in document["traceEvents"] if e["ph"] == "X" and e.get("cat") != "Trace"]
    groups: dict[Any, list[Mapping[str, Any]]] = {}
    for event in events:
        cat = event.get("cat")
        groups.setdefault(cat if cat in (*_CALLS, "cuda_sync", "overhead") else "cpu", []).append(event)
    gpu = [e for e in groups["cpu"] if e.get("cat") in STAGES]
    written.group((e for e in groups.pop("cpu") if e.get("cat") not in STAGES), base)
    for group in groups.values():
        written.group(group, base)
    for event in gpu:
        written.stage(event, base)
    return written


def write(document: Mapping[str, Any], path: Path) -> Path:
    """Write the trace compressed, as PyTorch does, without .gz in the name."""
    path.write_bytes(gzip.compress(written_of(document).bytes(), 1))
    return path
