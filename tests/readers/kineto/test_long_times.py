"""Pieces with times that a double cannot hold, or with strings that begin like the reader's mark of such times.

A fast search selects the same pieces as the pattern. If doubles hold all times of a piece, the times are read as
doubles, and the events are the same as when the text of the times is read.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import parquet

from pipelines.readers.kineto import ReadRequest, ReadTrace, reader, segments
from pipelines.readers.kineto.events_file import load_events
from tests.effort import first_of

# Numbers of digits around the pattern's lengths, with and without a significant fraction.
WHOLE = st.builds(
    lambda first, n: first + "2" * n, st.sampled_from(["1", "8", "88", "89", "9", "-9"]), st.integers(7, 15)
)
FRACTION = st.sampled_from(["", ".5", ".123", ".1234", ".12345"])
TIMES = st.tuples(WHOLE, FRACTION).map("".join)
ENTRIES = st.lists(st.tuples(st.sampled_from(["ts", "dur", "other"]), TIMES, st.sampled_from(["", '"'])), max_size=4)


@given(ENTRIES, st.sampled_from([3, 64, 1 << 16]))
@example([("ts", "12345678901234.5", "")], 64)  # the text ends less than four characters after the decimal point
@example([("ts", "1234567890.1234", "")], 64)  # the shortest matching time
@example([("ts", "8822222222222.5", "")], 64)  # 13 digits, too large for a double with nanoseconds
@example([("ts", "9222222222222.5", "")], 64)
def test_long_times_are_those_of_the_pattern(entries: list[tuple[str, str, str]], block: int) -> None:
    data = ",".join(f'{{"{key}":{quote}{time}{quote}}}' for key, time, quote in entries).encode()
    usual, segments._BLOCK = segments._BLOCK, block
    try:
        loses_digits = segments._loses_digits(memoryview(data))
    finally:
        segments._BLOCK = usual
    assert loses_digits == (segments._LOSSY.search(data) is not None)


@given(st.text('"~a', max_size=12), st.integers(0, 12))
def test_a_mark_counts_only_before_the_end(text: str, end: int) -> None:
    data = bytearray(text.encode())
    assert segments._has_mark(data, end) == (re.search(rb'"~', data[:end]) is not None)


@given(
    st.lists(st.sampled_from([b'"ts"', b'"dur"', b'"x"', b":", b" ", b"\n", b"true", b"false", b'"', b'ts"', b"t"]))
    | st.tuples(st.sampled_from([b'"ts"', b'{"dur"']), st.just(b": "), st.sampled_from([b"true", b"fals", b'"true"']))
)
@example([b'{"a":', b"1" * 700, b',"ts" ', b": false}"])
def test_a_time_that_is_true_or_false_is_found(parts: Sequence[bytes]) -> None:
    data = b"".join(parts)
    expected = re.search(rb'"(?:ts|dur)"\s*:\s*(?:true|false?)', data) is not None
    assert segments._has_truth_as_time(memoryview(data)) == expected


@pytest.mark.parametrize("text", [b'"ts":%strue', b'"dur"%s: false'])
def test_what_stands_far_behind_its_key_may_be_a_time(text: bytes) -> None:
    flags = [segments._has_truth_as_time(memoryview(text % (b" " * n))) for n in (0, 60, 10**6)]
    assert flags == [True] * 3


def held() -> list[tuple[str, str]]:
    """Return times that doubles hold: whole microseconds, and below 2^43 up to three decimal places."""
    drawn = random.Random(7)

    def time() -> str:
        whole = drawn.choice([-1, 1, 1]) * drawn.randrange(drawn.choice([1, 10, 10**6, 10**10, 2**43]))
        return f"{whole}{drawn.choice(['', '.0', f'.{drawn.randrange(1000):03}', f'.{drawn.randrange(100):02}'])}"

    return [(time(), time()) for _ in range(2_000)]


NOT_HELD = (
    "8796093022208.5 123.4567 123456789.0000001 1.0005 9007199254740.993 -1.5e-7 1.6697836874641812e15 1e999 true false"
    ' {} NaN -Infinity "NaN" "x"'
)


@pytest.mark.parametrize(
    "other", first_of(["1", NOT_HELD.split()[0], "null", '"1.5"', "1" * 30, *NOT_HELD.split()[1:]], 3)
)
def test_times_read_as_doubles_are_those_of_their_text(tmp_path: Path, other: str) -> None:
    times = [*(held() if other == "1" else ()), ("1", other), ("2", "3.5"), (other, "4")]
    entries = ", ".join(f'{{"ph": "X", "name": "n", "ts": {ts}, "dur": {dur}}}' for ts, dur in times)
    path = tmp_path / "trace.json"
    path.write_text(f'{{"traceEvents": [{entries}]}}')
    with patch.object(reader, "known_keys", wraps=reader.known_keys) as as_text:
        content = read(path)
    assert bool(as_text.call_count) == (other in NOT_HELD.split())
    with patch.object(segments, "_has_truth_as_time", return_value=True):
        assert content == read(path)


def read(path: Path) -> tuple[list[dict], tuple]:
    """Return the rows of the trace's events, and its findings."""
    trace = load_events(ReadRequest(path, path.parent))
    assert isinstance(trace, ReadTrace)
    return parquet.read_table(path.parent / f"{trace.trace_id}.parquet").to_pylist(), trace.findings
