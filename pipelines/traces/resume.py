"""Where to go on in broken text: the next entry after one that cannot be read, and the end of the event array."""

import json
import re

from pipelines.traces.envelope import suffix
from pipelines.traces.record import FindingCounter

# Where an entry may begin. Objects inside of an entry begin so, too: only an entry has a phase.
_OBJECT = re.compile(r'(?<=[}\],\s])\{\s*"')
_STRING = r'"(?:[^"\\]|\\.)*+"'
_PHASE_FIRST = re.compile(rf'\{{\s*(?:(?!"ph"){_STRING}\s*:\s*(?:{_STRING}|[^\s"{{}}\[\],]++)\s*,\s*)*+"ph"\s*:')
_CLOSING = re.compile(r'\]\s*(?:\}?\s*\Z|,\s*"|,\s*\})')
_MOST_TRIED = 1000  # objects looked at for one entry: text without any phase is no list of events
_DECODER = json.JSONDecoder()


def next_entry(text: str, at: int) -> int | None:
    """Where the next object with a phase begins, from `at` on; None where none follows."""
    for tried, found in enumerate(_OBJECT.finditer(text, at)):
        if _PHASE_FIRST.match(text, found.start()) or _has_phase(text, found.start()):
            return found.start()
        if tried == _MOST_TRIED:
            break
    return None


def _has_phase(text: str, at: int) -> bool:
    try:
        return "ph" in _DECODER.raw_decode(text, at)[0]
    except (ValueError, RecursionError):
        return False


def is_closing(text: str, at: int) -> bool:
    """The bracket at `at` may end the event array of a file that ends with this text."""
    return bool(_CLOSING.match(text, at))


def next_closing(text: str, at: int) -> int | None:
    """The first bracket from `at` on behind which the rest of a trace stands, else the first that may end the array."""
    places = [found.start() for found in _CLOSING.finditer(text, at)]
    return next((place for place in places if ends_trace(text, place)), places[0] if places else None)


def ends_trace(text: str, at: int) -> bool:
    """Behind the bracket at `at` stands the rest of a trace."""
    rest = text[at + 1 :].encode("utf-8", "replace")
    return any(suffix(rest, is_object, FindingCounter()) is not None for is_object in (True, False))
