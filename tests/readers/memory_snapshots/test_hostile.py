"""Pickles of a few bytes that describe far more data: they are rejected with a message, in bounded time and memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.readers.inputs import Rejected
from pipelines.readers.memory_snapshots import pickle_stream
from pipelines.readers.memory_snapshots.pickle_stream import BrokenPickle
from pipelines.readers.memory_snapshots.single_snapshot import opened_snapshot
from tests.effort import first_of
from tests.readers.memory_snapshots.test_read import read


def text(value: str) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value.encode()


def with_settings(value: bytes) -> bytes:
    """Return a snapshot without entries whose allocator settings are the value that these opcodes push."""
    return (
        b"\x80\x04}("
        + text("segments")
        + b"]"
        + text("device_traces")
        + b"]"
        + text("allocator_settings")
        + value
        + b"u."
    )


def doubled(opening: bytes, closing: bytes) -> bytes:
    """Return 50 objects after object 0, each of which contains the previous one twice.

    They are 2^50 objects if each is counted.
    """
    return b"".join(opening + b"h" + bytes([i]) + b"h" + bytes([i]) + closing for i in range(50))


LISTS = b"](]\x94" + doubled(b"]\x94(", b"e") + b"e"
SETTINGS = {
    "lists that hold each other twice": (LISTS, "more than 65,536 characters"),
    "tuples that hold each other twice": (
        b")\x94" + doubled(b"", b"\x86\x94"),
        r"byte \d+: a tuple of more than numbers and texts",
    ),
    "lists 50,000 deep": (b"]" * 50_000 + b"a" * 49_999, "recursion"),
    "a list that holds itself": (b"]\x94h\x00a", "Circular reference"),
    "a key that JSON does not have": (b"}K\x01K\x02\x86K\x03s", "keys must be"),
    "tuples a million deep": (b")" + b"\x85" * 1_000_000, r"byte \d+: a tuple of more than numbers and texts"),
    "a tuple with a list": (b"]\x85", "a tuple of more than"),
}


@pytest.mark.parametrize("name", first_of(SETTINGS, 3))
def test_settings_of_any_size_are_rejected(tmp_path: Path, name: str) -> None:
    value, message = SETTINGS[name]
    path = tmp_path / "rank0_snapshot.pickle"
    path.write_bytes(with_settings(value))
    with pytest.raises(Rejected, match=f"cannot be read: .*{message}.*; dump or copy it again"), opened_snapshot(path):
        pass
    result = CliRunner().invoke(app, ["memory", str(path)])
    assert result.exit_code == 1 and "rank0_snapshot.pickle" in result.output


def test_a_message_does_not_show_what_is_in_a_container(tmp_path: Path) -> None:
    event = b"](}" + text("action") + b"h" + bytes([50]) + b"s" + b"e"
    data = b"\x80\x04}(" + text("segments") + b"]" + text("more") + LISTS + text("device_traces") + event + b"u."
    with pytest.raises(BrokenPickle, match="action is a list, not a text"):
        read(data, tmp_path)


def containers(n: int) -> Iterator[bytes]:
    yield b"\x80\x04("
    yield from (b"}" * (1 << 16) for _ in range(n))


def test_more_memory_than_the_limit_is_refused_with_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pickle that needs more memory than the limit is rejected with the position.

    A byte of a pickle can create an object of a hundred bytes. An endless file stops at the limit.
    """
    monkeypatch.setattr(pickle_stream, "_LARGEST_MEMORY", 32 << 20)
    monkeypatch.setattr(pickle_stream, "_REFILL", 1 << 17)
    stream = pickle_stream.PickleStream(containers(1 << 14), lambda item: item, list.extend, lambda listing: listing)
    with pytest.raises(BrokenPickle, match=r"byte [\d,]+: more than 32 MiB of memory; record a shorter history"):
        stream.load()
    assert stream._dropped < 1 << 22


@pytest.mark.parametrize("op", [b"R", b"b", b"o", b"\x81", b"\x93", b"Q", b"P1\n", b"\x82\x01", b"2", b"0"])
def test_opcodes_that_call_or_look_up_are_refused(tmp_path: Path, op: bytes) -> None:
    with pytest.raises(BrokenPickle, match=r"byte 4: the opcode \w+: it may run code, or is not a data opcode"):
        read(b"\x80\x04})" + op + b".", tmp_path)


def test_a_huge_index_takes_no_memory(tmp_path: Path) -> None:
    with pytest.raises(BrokenPickle, match="numbered before 0"):
        read(b"\x80\x02}r" + struct.pack("<I", (1 << 32) - 1) + b".", tmp_path)
