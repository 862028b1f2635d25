"""Packets that contain compressed packets (`TracePacket.compressed_packets`): the same events, in bounded memory."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("perfetto", reason="reading Perfetto traces needs the extra 'perfetto'")

from pipelines.readers.kineto import ReadTrace, TraceRejected, limits
from tests.effort import first_of
from tests.readers.perfetto.test_events import BEGIN, END, event, loaded, spans
from tests.readers.perfetto.writer import Written, pb

SPANS = [("X", "a", 10, 10), ("X", "b", 12, 3)]


def two_slices() -> Written:
    written = Written()
    track = written.track(7, 8, "main")
    for ts, kind, name in ((10, BEGIN, "a"), (12, BEGIN, "b"), (15, END, ""), (20, END, "")):
        event(written, ts, kind, track, name)
    return written


def compressed(content: bytes, pack: Callable[[bytes], bytes] = zlib.compress) -> bytes:
    """Return a trace of one packet that contains the packets of another trace."""
    return pb.Trace(packet=[pb.TracePacket(compressed_packets=pack(content))]).SerializeToString()


def broken(trace: ReadTrace) -> int:
    return sum(finding.n for finding in trace.findings if finding.check_name == "perfetto_broken_packet")


@pytest.mark.parametrize("how", first_of(["every other", "all in one", "the first three"], 1))
def test_they_are_read_where_they_stand(tmp_path: Path, how: str) -> None:
    """Compressed packets are read in place, between packets that are not compressed.

    All packets are in one compressed packet, or every other packet is, or only the first three.
    """
    whole = two_slices().bytes()
    packets = [pb.Trace(packet=[packet]).SerializeToString() for packet in pb.Trace.FromString(whole).packet]
    content = {
        "every other": b"".join(compressed(packet) if i % 2 else packet for i, packet in enumerate(packets)),
        "all in one": compressed(whole),
        "the first three": compressed(b"".join(packets[:3])) + b"".join(packets[3:]),
    }
    con, trace = loaded(tmp_path / "a.pftrace", content[how])
    assert spans(con) == SPANS
    checks = {finding.check_name for finding in trace.findings}
    assert trace.status == "ok" and checks == {"perfetto_boot_time", "unread_events"}


@pytest.mark.parametrize(
    "damage",
    first_of(
        [
            lambda data: data[:-9],  # truncated
            lambda data: b"\0" + data[1:],  # not zlib
            lambda data: data + b"more",
            lambda data: zlib.compress(zlib.decompress(data) + b"\x0a\x7f\0"),  # ends within a packet
            lambda data: zlib.compress(b"\x12\x00" + zlib.decompress(data)),  # not a packet
        ],
        1,
    ),
)
def test_damage_is_counted_and_ends_there(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    whole = two_slices().bytes()
    inner = compressed(whole, lambda data: damage(zlib.compress(data)))
    con, trace = loaded(tmp_path / "a.pftrace", inner + whole)
    assert ("X", "b", 12, 3) in spans(con)  # from the packets after the damaged one
    assert (broken(trace), trace.status) == (1, "partial")


@pytest.mark.slow  # tests above cover other damage
def test_what_is_compressed_twice_is_left_out(tmp_path: Path) -> None:
    whole = two_slices().bytes()
    con, trace = loaded(tmp_path / "a.pftrace", compressed(compressed(whole) + whole))
    assert spans(con) == SPANS
    assert (broken(trace), trace.status) == (1, "partial")


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """24 KiB decompress to 24 MiB, twice. At most one step beyond the limit is decompressed."""
    monkeypatch.setattr(limits, "RATIO_FROM", 16 << 20)
    packet = pb.Trace(packet=[pb.TracePacket(for_testing=pb.TestEvent(str="0" * (1 << 20)))]).SerializeToString()
    inflated = 0
    real: Callable[..., Any] = zlib.decompressobj

    class Counting:
        def __init__(self, *args: int) -> None:
            self._inner = real(*args)

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

        def decompress(self, *args: object) -> bytes:
            nonlocal inflated
            chunk = self._inner.decompress(*args)
            inflated += len(chunk)
            return chunk

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    with pytest.raises(TraceRejected, match="--max-ratio"):
        loaded(tmp_path / "a.pftrace", compressed(packet * 24) * 2)
    assert 16 << 20 < inflated < 20 << 20


@pytest.mark.slow  # test_events.py tests long packets
def test_a_long_packet_in_a_small_one_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACELAKE_MAX_EVENT_MIB", "1")
    packet = pb.Trace(packet=[pb.TracePacket(for_testing=pb.TestEvent(str="0" * (2 << 20)))]).SerializeToString()
    con, trace = loaded(tmp_path / "a.pftrace", compressed(packet) + two_slices().bytes())
    assert spans(con) == SPANS
    assert (broken(trace), trace.status) == (1, "partial")
