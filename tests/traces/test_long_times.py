"""Which pieces have times that a double cannot hold, or strings that look like marked times: by pattern, only faster."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from pipelines.traces import segments

# Digits around the lengths at which the pattern matches, with and without a fraction that counts.
WHOLE = st.builds(
    lambda first, n: first + "2" * n, st.sampled_from(["1", "8", "88", "89", "9", "-9"]), st.integers(7, 15)
)
FRACTION = st.sampled_from(["", ".5", ".123", ".1234", ".12345"])
TIMES = st.tuples(WHOLE, FRACTION).map("".join)
ENTRIES = st.lists(st.tuples(st.sampled_from(["ts", "dur", "other"]), TIMES, st.sampled_from(["", '"'])), max_size=4)


@given(ENTRIES, st.sampled_from([3, 64, 1 << 16]))
@example([("ts", "12345678901234.5", "")], 64)  # the text ends less than four characters after the point
@example([("ts", "1234567890.1234", "")], 64)  # the shortest time that matches
@example([("ts", "8822222222222.5", "")], 64)  # 13 digits, too large for a double to hold a nanosecond
@example([("ts", "9222222222222.5", "")], 64)
def test_long_times_are_those_of_the_pattern(entries: list[tuple[str, str, str]], block: int) -> None:
    data = ",".join(f'{{"{key}":{quote}{time}{quote}}}' for key, time, quote in entries).encode()
    usual, segments._BLOCK = segments._BLOCK, block
    try:
        found = segments._loses_digits(memoryview(data))
    finally:
        segments._BLOCK = usual
    assert found == (segments._LOSSY.search(data) is not None)


@given(st.text('"~a', max_size=12), st.integers(0, 12))
def test_a_mark_counts_only_before_the_end(text: str, end: int) -> None:
    data = bytearray(text.encode())
    assert segments._has_mark(data, end) == (re.search(rb'"~', data[:end]) is not None)
