"""Mutated files of other tools through their readers.

The files are JAX's xplane, rocprofv3's JSON, CSV and counters, `ncu --csv`, and exports of Nsight Systems. Each must be
ingested whole, or with a finding about missing parts, or be rejected with a sentence, without much time or memory.
`python -m bench.attack --only tools --n 2000`. Every file is generated from the seed and its number.
"""

from __future__ import annotations

import csv
import io
import json
import random
import re
import resource
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import duckdb

from bench.attack.tally import Tally
from pipelines.readers.counters.lake import INPUT as COUNTERS
from pipelines.readers.inputs import Rejected
from pipelines.readers.inputs.single_trace import load_trace
from pipelines.readers.kineto import TraceRejected
from tests.conftest import SHARED
from tests.readers.inputs.read_tables import loaded

SECONDS, MEMORY_MIB = 20.0, 400
TRACES = SHARED / "traces"
_SENTENCE = re.compile(r"\w+ \w+")
_HUGE = (
    "9" * 19,
    "9223372036854775808",
    "18446744073709551616",
    "1e999",
    "-1",
    "nan",
    "",
    "0x10",
    "1.5",
    "é",
    "\x00",
    '"',
)
_BYTES = (b"\x00", b"\xff", b"\n", b'"', b",", b"\xc3", b"[" * 2000, b"9" * 400, b"\r", b"\xff" * 11)


@cache
def _counters() -> bytes:
    return (TRACES / "rocprofv3" / "decode_fetch_counter_collection.csv").read_bytes()


@cache
def _xplane() -> bytes:
    return (TRACES / "xplane" / "jax_conv_mi300_08.xplane.pb").read_bytes()


@cache
def _small_xplane() -> bytes:
    """Return the real file's planes with only the first events of each line, a fortieth of its size.

    With small files, thousands of mutations can be tried.
    """
    return b"".join(
        _field(1, _trimmed(plane)) if number == 1 else _plain(number, plane) for number, plane in _fields(_xplane())
    )


def _trimmed(plane: bytes) -> bytes:
    kept = []
    for number, value in _fields(plane):
        if number != 3:
            kept.append(_plain(number, value))
            continue
        events, line = 0, []
        for inner, content in _fields(value):
            events += inner == 4
            line += [_plain(inner, content)] if inner != 4 or events <= 5 else []
        kept.append(_field(3, b"".join(line)))
    return b"".join(kept)


def _fields(data: bytes) -> list[tuple[int, Any]]:
    """Return (number, value) of each field of a valid message. The number of a 64-bit field is negative."""
    at, fields = 0, []
    while at < len(data):
        tag, at = _read(data, at)
        value, at = _read(data, at) if tag & 7 in (0, 2) else (data[at : at + 8], at + 8)
        if tag & 7 == 2:
            value, at = data[at : at + value], at + value
        fields.append((tag >> 3 if tag & 7 != 1 else -(tag >> 3), value))
    return fields


def _read(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _plain(number: int, value: Any) -> bytes:
    if number < 0:
        return _number(-number << 3 | 1) + value
    return _number(number << 3) + _number(value) if isinstance(value, int) else _field(number, value)


def _field(number: int, value: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(value)) + value


@cache
def _rocprof_csv() -> bytes:
    return b"\n".join((TRACES / "rocprofv3" / "decode_kernel_trace.csv").read_bytes().split(b"\n")[:60]) + b"\n"


@cache
def _nsys() -> bytes:
    return (TRACES / "nsys" / "healthy_1pct.sqlite").read_bytes()


@cache
def _rocprof_json() -> bytes:
    from tests.readers.rocm.test_json import document

    return json.dumps(document()).encode()


@cache
def _ncu() -> bytes:
    from tests.readers.counters.test_ncu import raw

    return "\n".join(raw()).encode() + b"\n"


@cache
def _ncu_details() -> bytes:
    from tests.readers.counters.test_ncu import details

    return "\n".join(details()).encode() + b"\n"


def _bytes_of(data: bytes, rng: random.Random) -> bytes:
    """Remove, duplicate, copy, insert or flip bytes at one to four positions, or truncate the file."""
    for _ in range(rng.choice([1, 1, 2, 4])):
        at, n = rng.randrange(len(data) + 1), rng.choice([1, 1, 2, 8, 64, 600])
        what = rng.randrange(6)
        if what == 0:
            data = data[:at] + data[at + n :]
        elif what == 1:
            data = data[:at] + data[at : at + n] * 2 + data[at + n :]
        elif what == 2 and at < len(data):
            data = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        elif what == 3:
            data = data[:at] + rng.choice(_BYTES) + data[at:]
        elif what == 4:
            data = data[:at] + data[(to := rng.randrange(len(data) + 1)) : to + n] + data[at:]
        elif rng.random() < 0.3:
            data = data[:at]
    return data


def _in_place(data: bytes, rng: random.Random) -> bytes:
    """Flip or overwrite bytes at one to eight positions without moving other bytes, or truncate the file."""
    if rng.random() < 0.1:
        return data[: rng.randrange(len(data))]
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at, n = rng.randrange(len(data)), rng.choice([1, 1, 2, 8, 64])
        if rng.random() < 0.5:
            out[at] ^= 1 << rng.randrange(8)
        else:
            out[at : at + n] = rng.choice([b"\x00", b"\xff", b"a", rng.randbytes(1)]) * len(out[at : at + n])
    return bytes(out)


def _lines_of(data: bytes, rng: random.Random) -> bytes:
    """Replace one to three fields of a CSV with odd values, or remove or duplicate lines."""
    lines = data.split(b"\n")
    for _ in range(rng.choice([1, 1, 2, 3])):
        at, what = rng.randrange(len(lines)), rng.randrange(5)
        if what == 0:
            del lines[at]
        elif what == 1:
            lines.insert(at, rng.choice(lines))
        else:
            fields = next(csv.reader([lines[at].decode("utf-8", "replace")]), [""]) or [""]
            fields[rng.randrange(len(fields))] = rng.choice(_HUGE)
            lines[at] = ",".join('"' + field.replace('"', '""') + '"' for field in fields).encode()
        lines = lines or [b""]
    return b"\n".join(lines)


def _values_of(data: bytes, rng: random.Random) -> bytes:
    """Replace one to three values of a JSON document with odd values, or remove them."""
    document = json.loads(data)
    for _ in range(rng.choice([1, 1, 2, 3])):
        holder: Any = document
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                break
            key = rng.choice(keys)
            if isinstance(holder[key], dict | list) and holder[key] and rng.random() < 0.9:
                holder = holder[key]
                continue
            if rng.random() < 0.2:
                del holder[key]
            else:
                holder[key] = rng.choice(
                    [None, True, -1, 2**63, 2**70, 1.5, "", "x" * 3000, [], {}, [[]], {"a": 1}, *_HUGE]
                )
            break
    return json.dumps(document).encode()


def _messages_of(data: bytes, rng: random.Random) -> bytes:
    """Remove, duplicate, renumber or change fields of one to three messages, at any depth. The result is protobuf."""
    for _ in range(rng.choice([1, 1, 2, 3])):
        data = _changed(data, rng, depth=0)
    return data


def _changed(data: bytes, rng: random.Random, depth: int) -> bytes:
    try:
        fields = _fields(data)
    except IndexError:  # the bytes are a text, not a message
        return rng.choice(_BYTES)
    if not fields:
        return data
    at = rng.randrange(len(fields))
    number, value = fields[at]
    if isinstance(value, bytes) and number > 0 and depth < 4 and rng.random() < 0.8:
        fields[at] = (number, _changed(value, rng, depth + 1))
    else:
        what = rng.randrange(4)
        odd = rng.choice([0, 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1])
        fields[at : at + 1] = [
            [], [(number, value)] * 2, [(rng.choice([1, 2, 3, 4, 5, 7, 99]), value)], [(abs(number), odd)],
        ][what]  # fmt: skip
    return b"".join(_plain(number, value) if number > 0 or len(value) == 8 else b"" for number, value in fields)


KINDS: dict[str, tuple[str, Callable[[], bytes], tuple[Callable[[bytes, random.Random], bytes], ...]]] = {
    "rocprofv3 counters": ("x_counter_collection.csv", _counters, (_bytes_of, _lines_of, _lines_of)),
    "ncu raw": ("a.csv", _ncu, (_bytes_of, _lines_of, _lines_of)),
    "ncu details": ("a.csv", _ncu_details, (_bytes_of, _lines_of, _lines_of)),
    "rocprofv3 JSON": ("a_results.json", _rocprof_json, (_bytes_of, _values_of, _values_of)),
    "xplane": ("a.xplane.pb", _small_xplane, (_bytes_of, _messages_of, _messages_of)),
    "rocprofv3 CSV": ("7_kernel_trace.csv", _rocprof_csv, (_bytes_of, _lines_of, _lines_of)),
    "nsys": ("a.sqlite", _nsys, (_in_place,)),
}


OF_SHARED = ("rocprofv3 counters", "xplane", "rocprofv3 CSV", "nsys")
TABLES_OF_NSYS = ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME")


def made(seed: int, number: int) -> tuple[str, str, bytes]:
    """Return the kind, name and content of mutated file `number` of a seed."""
    rng = random.Random(f"{seed}:{number}")
    kinds = [kind for kind in KINDS if SHARED.is_dir() or kind not in OF_SHARED]
    kind = kinds[number % len(kinds)]
    name, whole, ways = KINDS[kind]
    return kind, name, rng.choice(ways)(whole(), rng)


def attack(n: int, seed: int) -> Tally:
    """Try `n` mutated files."""
    tally, outcomes = Tally("files of other tools"), Counter[str]()
    for number in range(n):
        kind, name, data = made(seed, number)
        outcome, why = tried(kind, name, data)
        tally.tried += 1
        outcomes[f"{kind}: {outcome}"] += 1
        tally.survived += outcome in ("whole", "told", "rejected", "not taken")
        tally.tracebacks += outcome == "traceback"
        tally.silent += outcome == "silent"
        if outcome in ("traceback", "silent"):
            tally.notes.append(f"seed {seed}, file {number} ({kind}), {outcome}: {why}")
    tally.notes += [f"{what}: {n}" for what, n in sorted(outcomes.items())] if not tally.passed or n > 500 else []
    return tally


def tried(kind: str, name: str, data: bytes) -> tuple[str, str]:
    """Return the outcome of a file (whole, told, rejected, not taken, silent or traceback), and why it is a failure.

    whole: all content is in the rows. told: a finding reports missing parts. not taken: no reader recognizes the file.
    silent: content is missing without a finding. Exceeding the limit of time or memory counts as traceback.
    """
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory(prefix="tracelake-attack-") as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        try:
            outcome = (
                _of_counters(path, data)
                if kind.startswith(("ncu", "rocprofv3 counters"))
                else _of_trace(path, data, kind)
            )
        except (TraceRejected, Rejected) as error:
            reason = error.reason if isinstance(error, TraceRejected) else str(error)
            outcome = ("rejected", "") if _SENTENCE.search(reason or "") else ("traceback", f"no sentence: {reason!r}")
        except Exception as error:
            outcome = ("traceback", f"{type(error).__name__}: {str(error)[:200]}")
    if time.process_time() - began > SECONDS:
        return "traceback", f"took {time.process_time() - began:.0f} CPU s"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    return ("traceback", f"took {grown} MiB") if grown > MEMORY_MIB else outcome


def _of_counters(path: Path, data: bytes) -> tuple[str, str]:
    """Return the outcome of a counter file. Each line must be in the table, or be counted by a finding."""
    if not COUNTERS.recognise([path]):
        return "not taken", ""
    con = loaded(COUNTERS, [path])
    n_findings = con.execute("SELECT coalesce(sum(n), 0) FROM counter_findings").fetchall()[0][0]
    ((n,),) = con.execute("SELECT count(DISTINCT line) FROM kernel_counters").fetchall()
    con.close()
    lines = sum(1 for line in data.split(b"\n") if line.strip())
    n_head = 2 if b"Metric Name" not in data and b"Counter_Name" not in data else 1  # names, and units of page raw
    if lines - n_head > n + n_findings:
        return "silent", f"{lines} lines, {n} of them in the table, {n_findings} in findings"
    return ("told" if n_findings else "whole"), ""


def _of_trace(path: Path, data: bytes, kind: str) -> tuple[str, str]:
    """Return the outcome of a trace file. All events of valid content must be present, or there must be a finding."""
    con = duckdb.connect()
    trace = load_trace(con, path)
    findings = {(finding.check_name, finding.detail) for finding in trace.findings} - _usual(kind)
    n = con.execute("SELECT count(*) FROM events").fetchall()[0][0]
    con.close()
    lacks = _events(kind, data) - n
    if lacks > 0 and not findings:
        return "silent", f"{lacks} events are not there, and no finding says so"
    return ("told" if findings else "whole"), ""


@cache
def _usual(kind: str) -> frozenset[tuple[str, str]]:
    """Return the findings of the unmutated file, as (check, detail)."""
    return frozenset(_whole(kind)[0])


@cache
def _whole(kind: str) -> tuple[frozenset[tuple[str, str]], int]:
    name, data, _ = KINDS[kind]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data())
        con = duckdb.connect()
        trace = load_trace(con, path)
        ((n,),) = con.execute("SELECT count(*) FROM events").fetchall()
    return frozenset((finding.check_name, finding.detail) for finding in trace.findings), n - _counted(kind, data())


def _events(kind: str, data: bytes) -> int:
    """Return the minimum number of events that a reader creates from the content, 0 if the content is invalid.

    The minimum is the number of events counted here, minus the events that the reader omits from the unmutated file.
    """
    try:
        return _counted(kind, data) + min(_whole(kind)[1], 0)
    except (IndexError, ValueError, TypeError, KeyError, AttributeError):
        return 0


def _counted(kind: str, data: bytes) -> int:
    if kind == "rocprofv3 JSON":
        (process,) = json.loads(data)["rocprofiler-sdk-tool"]
        return sum(len(rows) for rows in process["buffer_records"].values() if isinstance(rows, list))
    if kind == "rocprofv3 CSV":
        return _rows_of_csv(data.decode("latin-1"))
    if kind == "nsys":
        return _rows_of_nsys(data)
    n = 0
    for number, plane in _fields(data):
        fields = _fields(plane) if number == 1 else []
        n += sum(1 for inner, line in fields if inner == 3 for field, _ in _fields(line) if field == 4)
    return n


def _rows_of_csv(text: str) -> int:
    """Return the number of rows with as many cells as the header, plus the number of lines of all other rows."""
    lines = csv.reader(io.StringIO(text, newline=""))
    n, n_columns, before = 0, len(next(lines)), lines.line_num
    for row in lines:
        n += 1 if len(row) == n_columns else (lines.line_num - before) * bool(row)
        before = lines.line_num
    return n


def _rows_of_nsys(data: bytes) -> int:
    """Return the number of calls and GPU activities that SQLite finds in the file, 0 if it cannot read the file."""
    with closing(sqlite3.connect(":memory:")) as con:
        try:
            con.deserialize(data)
            there = {name for (name,) in con.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            tables = [f"CUPTI_ACTIVITY_KIND_{name}" for name in TABLES_OF_NSYS]
            counted = (con.execute(f"SELECT count(*) FROM {name} NOT INDEXED") for name in tables if name in there)
            return sum(result.fetchone()[0] for result in counted)
        except sqlite3.Error:
            return 0
