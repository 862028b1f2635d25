"""Positions at which reading of broken text continues: the next readable entry, and the end of the event array."""

import json
import re

from pipelines.readers.kineto.envelope import suffix
from pipelines.readers.kineto.json_repair import BLANK
from pipelines.readers.kineto.reading_result import FindingCounter

# Where an entry may begin. Objects inside an entry look the same, but few of them have a phase.
_OBJECT = re.compile(r'(?<=[}\],\s/])\{\s*"')  # the slash may end a comment
_STRING = r'"(?:[^"\\]|\\.)*+"'
_PHASE_FIRST = re.compile(rf'\{{\s*(?:(?!"ph"){_STRING}\s*:\s*(?:{_STRING}|[^\s"{{}}\[\],]++)\s*,\s*)*+"ph"\s*:')
_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*+"?|[{}\[\]]', re.DOTALL
)  # a string, even if the text ends within it, or a bracket
_OPENING = {"}": "{", "]": "["}
_CLOSING = re.compile(rf'\]{BLANK}(?:\}}?{BLANK}\Z|,{BLANK}"|,{BLANK}\}})')
_MOST_TRIED = 1000  # objects examined to find one entry, because text without a phase is not a list of events
_MOST_READ = 64 << 20  # characters that are re-read to find the array's end
_DECODER = json.JSONDecoder()


class Entries:
    """Repeated search for the next entry in one text. Positions rarely go back, so each is examined about once."""

    def __init__(self, text: str) -> None:
        self.text = text
        # Start of the last search, its result (-1 for none), and the position that it reached.
        self._from, self._result, self._tried = 0, -1, 0

    def after(self, at: int) -> int | None:
        """Return the position of the next object with a phase from `at` on, or None after _MOST_TRIED other objects."""
        if self._from <= at <= self._result:
            return self._result
        begin = max(at, self._tried) if at >= self._from else at
        self._from, self._result = at, -1
        for n_tried, match in enumerate(_OBJECT.finditer(self.text, begin)):
            self._tried = match.start()
            if _PHASE_FIRST.match(self.text, match.start()) or _has_phase(self.text, match.start()):
                self._result = match.start()
                return self._result
            if n_tried == _MOST_TRIED:
                break
        else:
            self._tried = len(self.text)
        return None


def past_entry(text: str, at: int, first: int) -> int | None:
    """Return a position from which on objects with a phase are outside the entry at `at`.

    Return None if the text ends within the entry. The position is `first`, the first object with a phase, unless the
    brackets show that the entry continues after it.
    """
    unclosed: list[str] = []
    previous_end = at
    for match in _TOKEN.finditer(text, at):
        token, begin, end = match[0], match.start(), match.end()
        if begin < first < end:  # `first` seems to be in a string, so a quote is missing or extra
            return first
        if token == "{" and begin > at:
            is_value = unclosed[-1:] == ["["] or text[previous_end:begin].rstrip().endswith(":")
            if not unclosed or not is_value:  # an object instead of a key, so the entry has no end
                return max(begin, first)
        if token in _OPENING.values():
            unclosed.append(token)
        elif token in _OPENING:
            if not unclosed or unclosed.pop() != _OPENING[token]:
                return first
            if not unclosed:
                return max(end, first)
        previous_end = end
    return None


def _has_phase(text: str, begin: int) -> bool:
    try:
        return "ph" in _DECODER.raw_decode(text, begin)[0]
    except (ValueError, RecursionError):
        return False


def is_closing(text: str, at: int) -> bool:
    """Return whether the bracket at `at` may end the event array of a file that ends with this text."""
    return bool(_CLOSING.match(text, at))


def next_closing(text: str, at: int) -> int | None:
    """Return the position of the first bracket from `at` on after which the rest of a trace follows.

    Without such a bracket, return the first bracket that may end the array, or None.
    """
    first, n_read = None, 0
    for match in _CLOSING.finditer(text, at):
        pos = match.start()
        first = pos if first is None else first
        n_read += len(text) - pos
        if n_read > _MOST_READ + len(text):
            break
        if ends_trace(text, pos):
            return pos
    return first


def ends_trace(text: str, at: int) -> bool:
    """Return whether the rest of a trace follows the bracket at `at`."""
    following = text[at + 1 :].encode("utf-8", "replace")
    return any(suffix(following, is_object, FindingCounter()) is not None for is_object in (True, False))
