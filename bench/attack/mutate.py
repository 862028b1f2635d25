"""Mutations of a trace file from a seed: structure, values, text, bytes, compression, deep nesting, duplicate profiles."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

Path_ = tuple[str | int, ...]

# Inserted into the text verbatim, because json.dumps would not write them like this.
_LITERALS = (
    *("1e999", "-1e999", "1E400", "1e-400", "-0", "-0.0", "0.1e1", "1e18", "1e19", "9" * 30, "1.0000000000000000000001"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "18446744073709551.615"),
    *("-9223372036854775", "9223372036854775.807", "9e15", "-9e15", "12345678901234567890.123456", "0.30000000000000004"),
)  # fmt: skip
_ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 1.5, -5, 1e308, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 10**18),
    *("", " ", "0", "12.5", "1e3", " 7 ", "NaN", "Infinity", "nan", "~5", "0x10", "1e999", "\x00", "a\x00b", "\u202e"),
    *("é", "\U0001f600", "\ud800", "]}", '"}]', '{"ph":"X"}', '"', "\\", "'", "[", "[[1,2],[", "]", "(", "x" * 5000),
    *("<script>", "tensor(float", "[/x]", "\x1b[2J", "True", "None", "1700000000000000.123456"),
    *([], {}, [[]], [None], [1, 2], [[1, [2]]], [[-1, -5]], [[2**62, 2**62]], [["a"]], ["float"] * 3, {"a": 1}, {"": ""}),
    *({"a": {"b": {"c": [1, {"d": 2}]}}}, [{"ph": "X", "name": "inner", "ts": 1, "dur": 1}]),
)  # fmt: skip
_DEEP = 200_000
_KEYS = ("Name", "NAME", "foo", "TS", "Dur", "", "\x00", "traceevents", "ph ", "args.x", "Ä", "x" * 300)
_TOKENS = (
    *rb"""{ } [ ] , : " \ \u \ud800 null NaN -Infinity Infinity nan inf 1e999 /*c*/ //c ' },{ {"ph":""".split(),
    *(b'"traceEvents":[', b"True", b"None", b"01", b".5", b"5.", b"+1", b"0x1F", b" ", b"\x00", b"\n", b"\t", b"\x1b"),
    *(b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf"),
)
_TWICE = (
    b'"name"',
    b'"ts"',
    b'"dur"',
    b'"args"',
    b'"ph"',
    b'"traceEvents"',
    b'"pid"',
    b'"correlation"',
    b'"rank"',
    b'"cat"',
)
_OTHER = (b"1", b'"dup"', b"null", b"[]", b"{}", b'[{"ph":"X","name":"first","ts":1,"dur":1,"pid":1,"tid":1}]')


def made(seed: int, number: int) -> tuple[str, bytes]:
    """Return the kind and content of mutated file `number` of a seed, independent of other files."""
    rng = random.Random(f"{seed}:{number}")
    kind = rng.choice(tuple(_KINDS))
    return kind, _KINDS[kind](rng)


def good(rng: random.Random) -> dict[str, Any]:
    """Return a small trace with input for every model: launches, a collective, steps, a wait, flows, B and E events."""
    start, n = rng.choice([0, 1000, 1000.25, 1_700_000_000_000_000.123]), rng.choice([2, 3, 6])
    events: list[dict[str, Any]] = [_x("user_annotation", "ProfilerStep#1", start, 10 * n + 20, 1, 2)]
    for i in range(n):
        at = start + 10 * i
        dims = {
            "External id": i,
            "Input Dims": [[4, 8], [8, 2], []],
            "Input type": ["float", "float", ""],
            "note": "yé",
        }
        events.append(_x("cpu_op", "aten::mm", at, 8, 1, 2, **dims))
        events.append(_x("cuda_runtime", "cudaLaunchKernel", at + 1, 2.5, 1, 2, correlation=i, **{"External id": i}))
        work = {"device": 0, "stream": 7, "correlation": i, "External id": i, "grid": [1, 2, 3]}
        events.append(_x("kernel", 'gemm<float, "a">', at + 3, 6, 0, 7, **work))
    collective = {
        "Collective name": "allreduce",
        "dtype": "Float",
        "In msg nelems": 64,
        "Process Group Name": "0",
        "stream": 20,
    }
    events.append(
        _x("kernel", "ncclDevKernel_AllReduce_Sum_f32", start + 5, 9, 0, 20, device=0, correlation=0, **collective)
    )
    events.append(_x("cuda_sync", "Stream Wait Event", start + 6, 1, 0, 7, device=0, stream=7, wait_on_stream=20))
    events += [{"ph": "B", "cat": "user_annotation", "name": "part", "pid": 1, "tid": 2, "ts": start}]
    events += [{"ph": "E", "pid": 1, "tid": 2, "ts": start + 50}]
    for ph, pid, tid, more in (("s", 1, 2, {}), ("f", 0, 7, {"bp": "e"})):
        events.append(
            {"ph": ph, "id": 1, "pid": pid, "tid": tid, "ts": start + 1, "cat": "ac2g", "name": "ac2g", **more}
        )
    events.append({"ph": "M", "name": "process_name", "ts": 0, "pid": 1, "tid": 0, "args": {"name": "python"}})
    events.append({"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": start + 60})
    about = {"rank": 0, "world_size": 2, "backend": "nccl", "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]}
    return {
        "schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}], "distributedInfo": about,
        "baseTimeNanoseconds": rng.choice([0, 1_700_000_000_000_000_000]), "traceEvents": events, "traceName": "a.json",
    }  # fmt: skip


def _x(cat: str, name: str, ts: float, dur: float, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def _walk(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        yield from _walk(inner, (*path, key))


def _at(value: Any, path: Path_) -> Any:
    for key in path:
        value = value[key]
    return value


def _odd(rng: random.Random) -> Any:
    return f"\x01{rng.choice(_LITERALS)}\x01" if rng.random() < 0.3 else rng.choice(_ODD)


def _values(rng: random.Random) -> bytes:
    """Return a file in which one to three values, mostly of events, are replaced with odd values."""
    document = good(rng)
    for _ in range(rng.choice([1, 1, 2, 3])):
        path = rng.choice([path for path in _walk(document) if path])
        _at(document, path[:-1])[path[-1]] = _odd(rng)
    return _text(rng, document)


def _structure(rng: random.Random) -> bytes:
    """Return a file with removed, renamed and duplicate keys, inserted and copied entries, or another event array."""
    document: Any = good(rng)
    for _ in range(rng.choice([1, 1, 2, 4])):
        document = rng.choice((_renamed, _renamed, _inserted, _copied, _array))(rng, document)
        if not isinstance(document, dict | list):
            break
    return _twice(rng, _text(rng, document)) if rng.random() < 0.3 else _text(rng, document)


def _renamed(rng: random.Random, document: Any) -> Any:
    paths = [path for path in _walk(document) if path and isinstance(path[-1], str)]
    if paths:
        path = rng.choice(paths)
        inside = _at(document, path[:-1])
        value = inside.pop(path[-1])
        if rng.random() < 0.6:
            inside[rng.choice((*_KEYS, str(path[-1]).upper()))] = value
    return document


def _inserted(rng: random.Random, document: Any) -> Any:
    paths = [path for path in _walk(document) if path and isinstance(path[-1], int)]
    if paths:
        path = rng.choice(paths)
        _at(document, path[:-1]).insert(path[-1], _odd(rng))
    return document


def _copied(rng: random.Random, document: Any) -> Any:
    paths = list(_walk(document))
    source, target = json.dumps(_at(document, rng.choice(paths))), rng.choice(paths)
    if not target:
        return json.loads(source)
    _at(document, target[:-1])[target[-1]] = json.loads(source)
    return document


def _array(rng: random.Random, document: Any) -> Any:
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        return document
    if rng.random() < 0.3:
        return document["traceEvents"]
    some: list[Any] = [[], {}, None, "", [[]], [None], [None, None], [{}], [1, 2, 3], document["traceEvents"][:1]]
    return {**document, "traceEvents": rng.choice(some)}


def _text(rng: random.Random, document: Any) -> bytes:
    how = rng.choice([(",", ":"), (", ", ": "), (",\n", "  :\t")])
    text = json.dumps(document, ensure_ascii=rng.random() < 0.5, separators=how, indent=rng.choice([None, None, 2]))
    parts = (
        text.replace('"\\u0001', "\x01").replace('\\u0001"', "\x01").split("\x01")
    )  # the literals without their quotes
    return "".join(parts).encode("utf-8", "surrogatepass")


def _twice(rng: random.Random, text: bytes) -> bytes:
    """Return the text with a duplicate key, whose first occurrence has another value."""
    key = rng.choice(_TWICE)
    at = max(text.find(key, rng.randrange(len(text))), text.find(key))
    return text[:at] + key + b":" + rng.choice(_OTHER) + b"," + text[at:] if at >= 0 else text


def _bytes(rng: random.Random) -> bytes:
    """Return a file with flipped bits or removed, inserted, repeated or replaced bytes, truncated or with a suffix."""
    text = bytearray(_text(rng, good(rng)))
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8, 30])):
        if not text:
            break
        begin = rng.randrange(len(text))
        end, choice = min(len(text), begin + rng.choice([1, 1, 2, 5, 20, 200])), rng.random()
        if choice < 0.3:
            text[begin] ^= 1 << rng.randrange(8)
        elif choice < 0.5:
            del text[begin:end]
        elif choice < 0.75:
            text[begin:begin] = rng.choice(_TOKENS)
        elif choice < 0.82:
            text[begin:begin] = text[begin:end]
        elif choice < 0.9:
            text[begin:end] = rng.choice(_TOKENS)
        elif choice < 0.95:
            del text[begin:]
        else:
            text += rng.choice([b"garbage", b"}", b"]", b"\x00" * 10, b'{"traceEvents":[]}', b"\n[]", b",", b"  \n"])
    return bytes(text)


def _packed(rng: random.Random) -> bytes:
    """Return a gzip file of another mutation, in members, compressed twice, truncated, damaged or with a suffix."""
    inside = rng.choice((_bytes, _structure, lambda r: _text(r, good(r))))(rng)
    whole, choice = gzip.compress(inside, rng.choice([1, 9]), mtime=0), rng.random()
    if choice < 0.25:
        return whole
    if choice < 0.4:
        cut = rng.randrange(len(inside) + 1)
        return gzip.compress(inside[:cut], mtime=0) + gzip.compress(inside[cut:], mtime=0)
    if choice < 0.5:
        return whole + rng.choice(
            [b"\0" * 1000, b"garbage", b"\x1f\x8b", b"\x1f", whole, b"\x1f\x8b\x08\0" + b"x" * 20]
        )
    if choice < 0.6:
        return gzip.compress(whole, mtime=0)
    damaged = bytearray(whole)
    if choice < 0.8:
        del damaged[rng.randrange(len(damaged)) :]
    else:
        for _ in range(rng.choice([1, 2, 5])):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def _nested(rng: random.Random) -> bytes:
    """Return a file in which a value is nested too deeply for a recursive parser."""
    document = good(rng)
    path = rng.choice([path for path in _walk(document) if path])
    _at(document, path[:-1])[path[-1]] = f"\x01{'[' * _DEEP}{rng.choice((']' * _DEEP, ''))}\x01"
    return _text(rng, document)


def _doubled(rng: random.Random) -> bytes:
    """Return a file with duplicate events: all events or only kernels, at the same time or later."""
    document = good(rng)
    events, later, only_gpu = document["traceEvents"], rng.choice([0, 0, 2, 1000]), rng.random() < 0.5
    again = [event for event in events if not only_gpu or event.get("cat") == "kernel"]
    events += [event | {"ts": event["ts"] + later} for event in again]
    if rng.random() < 0.3:
        rng.shuffle(events)
    return _text(rng, document)


_KINDS: dict[str, Callable[[random.Random], bytes]] = {
    "values": _values,
    "structure": _structure,
    "bytes": _bytes,
    "packed": _packed,
    "nested": _nested,
    "doubled": _doubled,
}
