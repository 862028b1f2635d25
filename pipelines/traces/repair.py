"""The tolerant reader: broken text → one clean event after another, with a count of what was repaired.

Used only where the quick way fails. Each event is read by itself; where that fails, plain mistakes are mended one after
another until it can be read; where nothing helps, its place is kept as null and reading goes on at the next event.
"""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

EVENT_LIMIT = 64 << 20
LOOK_AHEAD = 1 << 20

_NEXT_EVENT = re.compile(r'(?:\}|"|\d|\])\s*,?\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts|args|dur)"\s*:)')
_ARRAY_END = re.compile(r"\}\s*,?\s*\]")
_NUMBERS = re.compile(r"(?<=[:,\[])\s*[-+]?(?:nan|inf(?:inity)?)(?:\(ind\))?\s*(?=[,}\]])", re.IGNORECASE)
_ESCAPES = re.compile(r'\\(?:\\|["/bfnrt]|u[0-9a-fA-F]{4}|(?=.|$))', re.DOTALL)
_EXTRA_COMMA = re.compile(r",(\s*[}\]])")
_MISSING_COMMA = re.compile(r'("|\d|\}|\]|true|false|null)(\s*\n\s*)(?=")')
_QUOTE = re.compile(r'(?<!\\)"')


class _Number(float):
    """A number that remembers how it was written, so times do not pass through a double."""

    text: str

    def __new__(cls, text: str) -> _Number:
        number = super().__new__(cls, text)
        number.text = text
        return number


@dataclass
class Repairs:
    """What the tolerant reader did: counts by kind, the first place of each, and where the file was cut off."""

    counts: Counter[str] = field(default_factory=Counter)
    places: dict[str, int] = field(default_factory=dict)
    cut_at: int | None = None
    rest: str = ""

    def add(self, kind: str, place: int, n: int = 1) -> None:
        """Count `n` repairs of a kind that were needed at or after byte `place`."""
        if n:
            self.counts[kind] += n
            self.places.setdefault(kind, place)


class _Text:
    """A window over the text: decoded as it is needed, dropped as it is read."""

    def __init__(self, chunks: Iterator[bytes], repairs: Repairs, offset: int) -> None:
        self.chunks, self.repairs = chunks, repairs
        self.text, self.position, self.offset = "", 0, offset
        self.whole = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def place(self, position: int | None = None) -> int:
        """The byte offset of a position in the window."""
        return self.offset + len(self.text[: self.position if position is None else position].encode("utf-8", "surrogatepass"))

    def more(self) -> bool:
        """Read on; False at the end of the file."""
        if self.whole:
            return False
        chunk = next(self.chunks, None)
        self.whole = chunk is None
        if self.position > LOOK_AHEAD:
            self.offset = self.place()
            self.text, self.position = self.text[self.position :], 0
        self.text += self._decoder.decode(chunk or b"", final=self.whole)
        return True

    def fill(self) -> None:
        """Have a good part of the text ahead."""
        while len(self.text) - self.position < LOOK_AHEAD and self.more():
            pass

    def skip(self, characters: str) -> str:
        """Pass over characters; returns the next one, empty at the end of the file."""
        self.fill()
        while self.position < len(self.text) and self.text[self.position] in characters:
            self.position += 1
            if self.position == len(self.text):
                self.fill()
        return self.text[self.position : self.position + 1]


def clean_events(chunks: Iterator[bytes], repairs: Repairs, offset: int) -> Iterator[bytes]:
    """The events of an array, each as clean JSON (or `null` where it cannot be read), from the bytes behind its `[`.

    `offset` is where those bytes begin in the file. Afterwards `repairs.rest` is the text behind the array, or
    `repairs.cut_at` says where the file ends inside it.
    """
    window = _Text(chunks, repairs, offset)
    while True:
        commas_from = window.place() if window.position == 0 else None
        following = window.skip(" \t\r\n,")
        del commas_from
        if not following:
            repairs.cut_at = window.place()
            return
        if following == "]":
            window.position += 1
            while window.more():
                pass
            repairs.rest = window.text[window.position :]
            return
        event = _read_event(window, repairs)
        if event is None:
            return
        yield event


def _read_event(window: _Text, repairs: Repairs) -> bytes | None:
    """The next event; None where the file ends within it."""
    while True:
        try:
            value, end = _decoder(repairs, window.place).raw_decode(window.text, window.position)
        except json.JSONDecodeError as error:
            near_end = len(window.text) - error.pos < LOOK_AHEAD or "Unterminated" in error.msg
            if near_end and not window.whole and len(window.text) - window.position < EVENT_LIMIT:
                window.more()
                continue
            return _mend_event(window, repairs)
        place = window.place()
        window.position = end
        return _written(value, repairs, place)


def _decoder(repairs: Repairs, place: Callable[[], int], strict: bool = True) -> json.JSONDecoder:
    def not_a_number(_: str) -> None:
        repairs.add("repaired_number", place())

    return json.JSONDecoder(strict=strict, parse_float=_Number, parse_constant=not_a_number)


def _mend_event(window: _Text, repairs: Repairs) -> bytes | None:
    """Mend the text up to the next event (or the array's end) until it can be read."""
    start, place = window.position, window.place()
    boundary = _NEXT_EVENT.search(window.text, start + 1)
    while boundary is None and not window.whole and len(window.text) - start < EVENT_LIMIT:
        window.more()
        start = window.position
        boundary = _NEXT_EVENT.search(window.text, start + 1)
    start = window.position
    if boundary is not None:
        stop = boundary.start() + 1
    else:
        ends = list(_ARRAY_END.finditer(window.text, start + 1))
        stop = ends[0].start() + 1 if ends else len(window.text)
    for kinds, text in _attempts(window.text[start:stop]):
        try:
            value = _decoder(Repairs(), lambda: 0, strict=False).decode(text)
        except ValueError:
            continue
        for kind, n in kinds.items():
            repairs.add(kind, place, n)
        window.position = stop
        return _written(value, repairs, place)
    if boundary is None and stop == len(window.text):
        repairs.cut_at = place
        return None
    repairs.add("unreadable_event", place)
    window.position = stop
    return b"null"


def _attempts(text: str) -> Iterator[tuple[Counter[str], str]]:
    """The text after ever more repairs, each with what was done so far."""
    done: Counter[str] = Counter()
    n_controls = sum(1 for c in text if c < " " and c not in "\n\r\t")
    done["repaired_control_character"] = n_controls
    text = "".join(c if c >= " " or c in "\n\r\t" else f"\\u{ord(c):04x}" for c in text) if n_controls else text
    yield done, text
    for kind, repair in (
        ("repaired_number", lambda t: _NUMBERS.subn("null", t)),
        ("repaired_escape", _literal_escapes),
        ("repaired_comma", lambda t: _EXTRA_COMMA.subn(r"\1", t)),
        ("repaired_comma", lambda t: _MISSING_COMMA.subn(r"\1,\2", t)),
        ("repaired_quote", _escape_quotes),
    ):
        text, n = repair(text)
        if n:
            done = done + Counter({kind: n})
            yield done, text


def _literal_escapes(text: str) -> tuple[str, int]:
    """Backslashes that begin no escape of JSON become backslashes, as in unescaped Windows paths."""
    n = 0

    def mend(match: re.Match[str]) -> str:
        nonlocal n
        if match.group() == "\\":
            n += 1
            return "\\\\"
        return match.group()

    return _ESCAPES.sub(mend, text), n


def _escape_quotes(text: str) -> tuple[str, int]:
    """Escape quotes that neither open nor close a string: before a closing one stands text and behind it , : } or ]."""
    pieces, n, inside, last = [], 0, False, 0
    for match in _QUOTE.finditer(text):
        before, behind = text[: match.start()].rstrip()[-1:], text[match.end() :].lstrip()
        if not inside:
            inside = True
            continue
        closes = behind[:1] in ("", ":", "}", "]") or (behind[:1] == "," and _begins_value(behind[1:]))
        if closes and not (behind[:1] == ":" and before == ""):
            inside = False
            continue
        pieces.append(text[last : match.start()] + '\\"')
        last, n = match.end(), n + 1
    return "".join(pieces) + text[last:], n


def _begins_value(text: str) -> bool:
    return bool(re.match(r'\s*(?:"[^"]*"\s*:|"[^"]*"\s*[,\]]|[-\d\[{]|true|false|null)', text))


def _written(value: Any, repairs: Repairs, place: int) -> bytes:
    """An event as clean JSON; times keep the digits they were written with."""
    if not isinstance(value, dict):
        repairs.add("not_an_event", place)
        return b"null"
    for key in ("ts", "dur"):
        if isinstance(value.get(key), _Number):
            value[key] = value[key].text
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    n_bad = sum(1 for c in text if "\ud800" <= c <= "\udfff")
    if n_bad:
        repairs.add("repaired_utf8", place, n_bad)
        text = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    return text.encode()
