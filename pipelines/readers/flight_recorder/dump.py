"""Reader for a rank's dump of PyTorch's Flight Recorder, as JSON (`dump_json`) or pickle (the default).

Format: `FlightRecorder.hpp`, versions 2.x. Only the file's name contains the rank. Loading an untrusted pickle could
run arbitrary code, so only builtin containers, numbers and texts are accepted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.base.errors import TracelakeError
from pipelines.base.paths import path_text
from pipelines.readers.flight_recorder.fields import ints, needed, number, record, several, text, whole
from pipelines.readers.flight_recorder.frames import user_frame
from pipelines.readers.flight_recorder.opcodes import Bomb
from pipelines.readers.flight_recorder.plain_pickle import NotPlain, load_plain

_RANK = re.compile(r"(\d+)(?:\.(?:json|pkl|pickle))?$")
_VERSION = re.compile(r"^2\.(\d{1,9})")
_FIRST_KEY = re.compile(rb'\s*\{\s*"(\w+)"')
_TOP_KEYS = {
    b"version",
    b"comm_lib_version",
    b"nccl_version",
    b"nccl_comm_state",
    b"pg_config",
    b"pg_status",
    b"entries",
}
_OWN_KEYS = b'"pg_config"', b'"collective_seq_id"'  # keys that only dumps have
_HEAD, _PICKLE_HEAD, _FIRST, _PIECE = 4096, 1 << 20, 64, 1 << 20
_SHOWN = 60  # characters of a wrong value in a message
# Limits per dump. A ring has thousands of calls, but a few bytes of pickle can expand to many more.
_MOST_CALLS, _MOST_SIZES = 1_000_000, 10_000_000
MAX_DUMP_BYTES = 1 << 30


class DumpError(TracelakeError):
    """The file is not a readable dump. The message names the file and the next step."""


@dataclass(frozen=True)
class Group:
    """A process group as a rank records it. Names may repeat after a split, so `ranks` distinguishes the groups.

    `is_inferred`: whether no dump lists the group's ranks. Then `ranks` are the ranks with calls in the group.
    """

    name: str
    desc: str
    ranks: tuple[int, ...]
    is_inferred: bool = False


@dataclass(frozen=True)
class Status:
    """Counters of a process group on a rank, which outlive the ring. None if no such call was made or counted."""

    enqueued: int | None
    completed: int | None


@dataclass(frozen=True)
class Entry:
    """A collective or point-to-point call in the ring. Times are ns since the epoch, None if not seen (yet).

    `seq` counts the group's collectives. `op` is the name without its backend ("all_reduce"). `start_ns` and
    `completed_ns` are the times at which a watchdog noticed the state, up to one period late. They are not kernel
    times. `retired`: whether the backend is done with the call. A retired call that did not complete timed out or
    failed. `pg_id` is the group's number on this rank only. `frame`: the line of the user's code that made the call.
    """

    record_id: int
    pg_id: int | None
    pg_name: str
    pg_desc: str
    seq: int
    p2p_seq: int | None
    op: str
    backend: str | None
    is_p2p: bool
    state: str
    created_ns: int | None
    start_ns: int | None
    completed_ns: int | None
    duration_ms: float | None
    timeout_ms: int | None
    retired: bool | None
    input_sizes: tuple[tuple[int, ...], ...]
    output_sizes: tuple[tuple[int, ...], ...]
    input_dtypes: tuple[str, ...]
    output_dtypes: tuple[str, ...]
    frame: str | None


@dataclass(frozen=True)
class Dump:
    """A rank's dump. `minor`: minor version of the format. `groups` are by name, `statuses` by `pg_id`.

    `written_ns`: the file's modification time, ns since the epoch, an upper bound of the dump's time. `pg_status` and
    `communication_state`: JSON texts with the dump's data about its groups and about the communication library, or None
    if the dump has no such data.
    """

    path: Path
    rank: int
    version: str
    minor: int
    communication_library_version: str | None
    groups: Mapping[str, Group]
    entries: tuple[Entry, ...]
    statuses: Mapping[int, Status]
    written_ns: int
    pg_status: str | None
    communication_state: str | None

    @property
    def is_cut(self) -> bool:
        """Whether calls are missing, because the ring has overwritten them, or only unfinished calls were dumped."""
        ids = [entry.record_id for entry in self.entries]
        if not ids:
            return any(status.enqueued for status in self.statuses.values())
        return min(ids) > 0 or len(ids) <= max(ids) - min(ids)


def is_dump(path: Path) -> bool:
    """Return whether a file looks like a dump, whatever its name.

    JSON is recognized by its first key, a pickle by the keys near its start. False for anything that is not a regular
    file, or cannot be read.
    """
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            head = file.read(_HEAD)
            if head[:1] == b"\x80":
                if b"segments" in head[:_FIRST]:  # a CUDA memory snapshot, whose stacks may contain any word
                    return False
                head += file.read(_PICKLE_HEAD)
                return b"version" in head and (b"pg_config" in head or b"entries" in head)
            first = _FIRST_KEY.match(head)
            if not first or first[1] not in _TOP_KEYS:
                return False  # traces begin with other keys, so only possible dumps are read completely
            overlap = max(map(len, _OWN_KEYS)) - 1  # a key may begin in one piece and end in the next
            while not any(key in head for key in _OWN_KEYS):
                if not (piece := file.read(_PIECE)):
                    return False
                head = head[-overlap:] + piece
            return True
    except OSError:
        return False


def read_dump(path: str | Path) -> Dump:
    """Read one rank's dump. Raise DumpError if the file is not a readable dump, and OSError if it cannot be read."""
    path = Path(path)
    shown_path = path_text(path)
    rank_match = _RANK.search(path.name)
    if not rank_match or len(rank_match[1]) > 18:
        raise DumpError(f"{shown_path}: the name does not end in a rank (nccl_trace_rank_3); rename it")
    if path.stat().st_size > MAX_DUMP_BYTES:
        raise DumpError(
            f"{shown_path}: more than {MAX_DUMP_BYTES >> 20} MiB; ring buffers of a few thousand calls need only a few"
        )
    top = _load(path, path.read_bytes())
    version = text(str(top.get("version")))
    version_match = _VERSION.match(version)
    if not version_match or not ({"entries", "pg_config"} & top.keys()):
        raise DumpError(
            f"{shown_path}: not a Flight Recorder dump of version 2.x (version {text(str(top.get('version')))[:40]!r})"
        )
    try:
        configs = record("pg_config", top.get("pg_config") or {}).items()
        groups = {text(str(name)): _group(text(str(name)), config) for name, config in configs}
        entries = _entries(several("entries", top.get("entries")))
        details = record("pg_status", top.get("pg_status") or {}).items()
        statuses = {
            whole("the group of pg_status", pg_id): _status(record("pg_status", status)) for pg_id, status in details
        }
        library = top.get("comm_lib_version") or top.get("nccl_version")
        library = None if library is None else text(str(library))
        raw_texts = tuple(_said(top, key) for key in ("pg_status", "nccl_comm_state"))
    except RecursionError:  # a field may contain any value, even itself
        details = "lists or objects are nested too deeply"
        raise DumpError(f"{shown_path}: it does not match version {version}: {details}; dump it again") from None
    except Exception as error:
        reason = (
            text(str(error))[:300]
            if isinstance(error, ValueError)
            else f"{type(error).__name__}: {text(str(error))[:300]}"
        )
        raise DumpError(f"{shown_path}: it does not match version {version}: {reason}; dump it again") from None
    written_ns = path.stat().st_mtime_ns
    return Dump(
        path,
        int(rank_match[1]),
        version,
        int(version_match[1]),
        library,
        groups,
        entries,
        statuses,
        written_ns,
        *raw_texts,
    )


def _load(path: Path, data: bytes) -> dict[str, Any]:
    is_text = data.lstrip()[:1] == b"{"
    try:
        top = json.loads(data) if is_text else load_plain(data)
    except Bomb as error:
        raise DumpError(f"{path_text(path)}: broken pickle: {error}; dump or copy it again") from None
    except NotPlain as error:
        raise DumpError(f"{path_text(path)}: {error}: no dump does, so it is not loaded") from None
    except Exception as error:  # a corrupt pickle may raise nearly any exception
        kind = "JSON" if is_text else "pickle"
        raise DumpError(
            f"{path_text(path)}: broken {kind} ({text(str(error))}): the rank died while writing it, or the copy is incomplete; copy it again"
        ) from None
    if not isinstance(top, dict):
        raise DumpError(f"{path_text(path)}: contains a {type(top).__name__}, not a Flight Recorder dump")
    return top


def _group(name: str, raw: Any) -> Group:
    where = f"pg_config of group {name[:_SHOWN]!r}"
    config = record(where, raw)
    ranks = config.get("ranks") or "[]"
    try:
        ranks = json.loads(ranks) if isinstance(ranks, str) else ranks
    except ValueError:
        raise ValueError(f"{where}: ranks is {text(ranks)[:_SHOWN]!r}, not a list of numbers") from None
    if isinstance(ranks, list | tuple) and len(ranks) > _MOST_CALLS:
        raise ValueError(f"{where}: {len(ranks):,} ranks")
    return Group(name, text(str(config.get("desc") or "")), tuple(sorted(ints(f"{where}: ranks", ranks))))


def _status(status: Mapping[str, Any]) -> Status:
    """Return the counters. JSON has texts where the pickle has numbers. Both use -1 for "no call"."""
    numbers = (whole("pg_status", status.get(f"last_{event}_collective", -1)) for event in ("enqueued", "completed"))
    return Status(*(None if number < 0 else number for number in numbers))


def _said(top: Mapping[str, Any], key: str) -> str | None:
    """Return `top[key]` as JSON text, or None if it is missing or empty.

    Raise ValueError if it cannot be written as JSON.
    """
    try:
        return text(json.dumps(top[key], default=str, allow_nan=False)) if top.get(key) else None
    except (ValueError, TypeError):
        raise ValueError(
            f"{key} cannot be kept as JSON: a number is not finite, a key is not text, or it contains itself"
        ) from None


def _entries(raw_entries: Sequence[Any]) -> tuple[Entry, ...]:
    """Return the calls. Raise ValueError with the index of a call that is wrong."""
    too_many = f"over {_MOST_CALLS:,} calls, or {_MOST_SIZES:,} sizes"
    if len(raw_entries) > _MOST_CALLS:
        raise ValueError(too_many)
    entries, n_sizes = [], 0
    try:
        for raw in raw_entries:
            n_sizes += _n_sizes(record("it", raw))
            if n_sizes > _MOST_SIZES:
                break
            entries.append(_entry(raw))
    except ValueError as error:
        raise ValueError(f"entry {len(entries)} (from 0): {error}") from None
    if n_sizes > _MOST_SIZES:
        raise ValueError(too_many)
    return tuple(entries)


def _entry(raw: Mapping[str, Any]) -> Entry:
    backend, _, op = text(str(needed(raw, "profiling_name"))).rpartition(":")
    group = several("process_group", needed(raw, "process_group"))
    if len(group) != 2:
        raise ValueError(f"process_group has {len(group)} values, not a name and a description")
    name, desc = group
    pg_id = raw.get("pg_id")
    retired = raw.get("retired")
    if retired not in (None, True, False):
        raise ValueError(f"retired is {retired!r}, neither true nor false")

    def optional(key: str) -> int | None:
        value = raw.get(key)
        return None if value is None else whole(key, value)

    return Entry(
        record_id=whole("record_id", needed(raw, "record_id")),
        pg_id=None if pg_id is None else whole("pg_id", pg_id),
        pg_name=text(str(name)),
        pg_desc=text(str(desc)),
        seq=whole("collective_seq_id", needed(raw, "collective_seq_id")),
        p2p_seq=optional("p2p_seq_id"),
        op=op,
        backend=backend or None,
        is_p2p=bool(raw.get("is_p2p")),
        state=text(str(needed(raw, "state"))),
        created_ns=optional("time_created_ns") or None,
        # JSON writes 0 where the pickle has None.
        start_ns=optional("time_discovered_started_ns") or None,
        completed_ns=optional("time_discovered_completed_ns") or None,
        duration_ms=number("duration_ms", raw.get("duration_ms")),
        timeout_ms=optional("timeout_ms"),
        retired=None if retired is None else bool(retired),  # 1 counts as true
        input_sizes=_sizes("input_sizes", raw),
        output_sizes=_sizes("output_sizes", raw),
        input_dtypes=_dtypes("input_dtypes", raw),
        output_dtypes=_dtypes("output_dtypes", raw),
        frame=_frame(raw),
    )


def _sizes(key: str, raw: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
    return tuple(ints(key, sizes) for sizes in several(key, raw.get(key)))


def _frame(raw: Mapping[str, Any]) -> str | None:
    frame = user_frame([record("a frame", frame) for frame in several("frames", raw.get("frames"))])
    return None if frame is None else text(frame)


def _dtypes(key: str, raw: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(text(str(dtype)) for dtype in several(key, raw.get(key)))


def _n_sizes(raw: Mapping[str, Any]) -> int:
    """Return the total number of a call's frames, data types and sizes, to check it against the limit."""
    n = len(several("frames", raw.get("frames")))
    for key in ("input_sizes", "output_sizes", "input_dtypes", "output_dtypes"):
        lists = several(key, raw.get(key))
        n += len(lists)
        if len(lists) <= _MOST_SIZES and key.endswith("sizes"):
            n += sum(len(several(key, sizes)) for sizes in lists)
    return n
