"""Finds where to continue in broken text: the next entry after an unreadable one, and the end of the event array."""

import json
import re

from pipelines.readers.kineto.envelope import suffix
from pipelines.readers.kineto.json_repair import BLANK
from pipelines.readers.kineto.reading_result import FindingCounter

# Where an entry may begin. Objects inside an entry look the same, but only an entry has a phase.
_OBJECT = re.compile(r'(?<=[}\],\s/])\{\s*"')  # the slash may end a comment
_STRING = r'"(?:[^"\\]|\\.)*+"'
_PHASE_FIRST = re.compile(rf'\{{\s*(?:(?!"ph"){_STRING}\s*:\s*(?:{_STRING}|[^\s"{{}}\[\],]++)\s*,\s*)*+"ph"\s*:')
_CLOSING = re.compile(rf'\]{BLANK}(?:\}}?{BLANK}\Z|,{BLANK}"|,{BLANK}\}})')
_MOST_TRIED = 1000  # objects examined for one entry: text without any phase is not a list of events
_MOST_READ = 64 << 20  # characters that are read again to find the array's end
_DECODER = json.JSONDecoder()


class Entries:
    """Finds the next entry repeatedly, in one text, from positions that only advance: each position is examined once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._from, self._found, self._tried = 0, -1, 0  # the last search, what it found (-1: nothing), how far it got

    def after(self, at: int) -> int | None:
        """Returns where the next object with a phase begins, from `at` on; None if none follows soon."""
        if self._from <= at <= self._found:
            return self._found
        begin = max(at, self._tried)
        self._from, self._found = at, -1
        for tried, found in enumerate(_OBJECT.finditer(self.text, begin)):
            self._tried = found.start()
            if _PHASE_FIRST.match(self.text, found.start()) or _has_phase(self.text, found.start()):
                self._found = found.start()
                return self._found
            if tried == _MOST_TRIED:
                break
        else:
            self._tried = len(self.text)
        return None


def _has_phase(text: str, at: int) -> bool:
    try:
        return "ph" in _DECODER.raw_decode(text, at)[0]
    except (ValueError, RecursionError):
        return False


def is_closing(text: str, at: int) -> bool:
    """Returns whether the bracket at `at` may end the event array of a file that ends with this text."""
    return bool(_CLOSING.match(text, at))


def next_closing(text: str, at: int) -> int | None:
    """Returns the first bracket from `at` on that is followed by the rest of a trace, else the first that may end the
    array.
    """
    first, tried = None, 0
    for found in _CLOSING.finditer(text, at):
        place = found.start()
        first = place if first is None else first
        tried += len(text) - place
        if tried > _MOST_READ + len(text):
            break
        if ends_trace(text, place):
            return place
    return first


def ends_trace(text: str, at: int) -> bool:
    """Returns whether the bracket at `at` is followed by the rest of a trace."""
    rest = text[at + 1 :].encode("utf-8", "replace")
    return any(suffix(rest, is_object, FindingCounter()) is not None for is_object in (True, False))
