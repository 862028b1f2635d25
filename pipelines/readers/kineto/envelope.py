"""Start and end of a trace's event array, and the metadata before and after the array.

A trace is `[event, ...]` or `{key: value, ..., "traceEvents": [event, ...], key: value, ...}`. The start is located by
tokenizing (strings and brackets), because a text search would also match `"traceEvents": [` in a string.
"""

import json
import math
import re

from pipelines.readers.kineto.json_repair import BLANK, COMMENT, Hopeless, repair_object
from pipelines.readers.kineto.limits import Limits, allow
from pipelines.readers.kineto.reading_result import FindingCounter

BOM = b"\xef\xbb\xbf"
_SPACE = re.compile(rb"[\s,]*")
_COMMENT = re.compile(COMMENT.encode())
_UNFINISHED = re.compile(rb"/(?:\Z|\*|/[^\n]*\Z)")
_TOKEN = re.compile(rb'["\[\]{}]')
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_INSIDE = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_COLON = re.compile(rb"\s*:\s*")
_LAST = re.compile(rf"\}}{BLANK}\Z".encode())
_SCALAR = re.compile(rb"[^\s,\]}]+(?=[\s,\]}])")
# A `]` that may close the array: it follows an entry, and the end of the text or another top-level key follows it.
_END = re.compile(rf'\}}(\s*,?\s*)\](?={BLANK}(?:\}}?{BLANK}\Z|,{BLANK}"|,{BLANK}\}}))'.encode())
_LONGEST_KEY = 1 << 20
_MOST_TRIED = 64 << 20  # bytes that are re-read to find the array's end
_SHOWN = 5  # keys in a message
_LONGEST_NUMBER = 300  # digits, because Python raises ValueError for integers of thousands of digits
_RAW = json.JSONDecoder(strict=False)
_BLANK = re.compile(BLANK.encode())
_EMPTY = re.compile(rb"\A\s*\]")


TWO_IN_ONE = "the trace ends here and another JSON document begins: these are two files in one; give them separately"


class NotATrace(Exception):
    """A text that is not a trace. `offset` is the offending byte."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset, self.reason = offset, reason


class Head:
    """The text before the event array. Feed it chunks until `start` is set."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.text = bytearray()
        self.start: int | None = None  # offset of the first byte after the array's `[`
        self.is_object = False
        self.keys: list[str] = []
        self.has_bom = False
        self.members_end = 0  # end of the last complete member before traceEvents
        self.n_comments = 0  # replaced with spaces, so that the tokenizer sees only strings and brackets
        self._at = 0
        self._opened = False
        # (position, depth, whether in a string) inside an incomplete value
        self._value: tuple[int, int, bool] | None = None

    def feed(self, chunk: bytes) -> bool:
        """Append a chunk, and return whether the array's start is known.

        Raise NotATrace if the text cannot be a trace.
        """
        self.text += chunk
        if len(self.text) > self.limits.metadata_bytes:
            message = f"no traceEvents in the first {self.limits.max_metadata_mib} MiB (keys: {self._seen()})"
            raise NotATrace(0, f"{message}; {allow('max_metadata_mib')}")
        return (self._opened or self._open()) and self._members()

    def _seen(self) -> str:
        more_text = f" and {len(self.keys) - _SHOWN} more" if len(self.keys) > _SHOWN else ""
        return (", ".join(self.keys[:_SHOWN]) or "none") + more_text

    def _open(self) -> bool:
        self.has_bom = self.text.startswith(BOM)
        pos = self._blank(3 if self.has_bom else 0)
        if pos is None:
            return False
        first = self.text[pos : pos + 1]
        if first == b"[":
            self.start = pos + 1
        elif first == b"{":
            self.is_object = True
        else:
            raise NotATrace(pos, "starts with neither { nor [")
        self._at = self.members_end = pos + 1
        self._opened = True
        return True

    def _members(self) -> bool:
        while self.start is None:
            if not self._member():
                return False
        return True

    def _member(self) -> bool:
        """Step over one complete `key: value`, or set `start`. Return False if more text is needed."""
        text, pos = self.text, self._blank(self._at)
        if pos is None:
            return False
        self._at = pos
        if text[pos : pos + 1] == b"}":
            raise NotATrace(pos, f"an object without traceEvents (keys: {self._seen()})")
        key = _STRING.match(text, pos)
        if key is None:
            if text[pos : pos + 1] != b'"':
                raise NotATrace(pos, "a key is missing")
            if len(text) - pos > _LONGEST_KEY:
                raise NotATrace(pos, f"a key of more than {_LONGEST_KEY >> 10} KiB")
            return False
        colon = _COLON.match(text, key.end())
        if colon is None or colon.end() >= len(text):
            if text[key.end() : key.end() + 64].strip()[:1] not in (b"", b":"):
                raise NotATrace(key.end(), "no colon after a key")
            return False
        name = key.group()[1:-1].decode("utf-8", "replace")
        if name == "traceEvents":
            if text[colon.end() : colon.end() + 1] != b"[":
                raise NotATrace(colon.end(), "traceEvents is not an array")
            self.start = colon.end() + 1
            return True
        end = self._skip(colon.end())
        if end is None:
            return False
        self.keys.append(name)
        self._at = self.members_end = end
        return True

    def _blank(self, pos: int) -> int | None:
        """Return the position after whitespace, commas and comments, or None if this depends on text still to come."""
        while (pos := _match_end(_SPACE, self.text, pos)) < len(self.text):
            comment = _COMMENT.match(self.text, pos) if self.text[pos : pos + 1] == b"/" else None
            if comment is None or comment.end() == len(self.text):
                return None if _UNFINISHED.match(self.text, pos) else pos
            self.text[pos : comment.end()] = b" " * (comment.end() - pos)
            self.n_comments += 1
        return None

    def _skip(self, begin: int) -> int | None:
        """Return the end of the value at `begin`, or None if it is incomplete.

        `_value` keeps the state for the next call.
        """
        text = self.text
        if text[begin : begin + 1] not in (b"{", b"[", b'"'):
            match = _SCALAR.match(text, begin)
            return match.end() if match else None
        pos, depth, inside = self._value or (begin, 0, False)
        while inside or (token := _TOKEN.search(text, pos)):
            if inside or token.group() == b'"':
                # Resume where the last chunk ended. Re-reading a long string from its start with each chunk would take
                # quadratic time.
                match = _INSIDE.match(text, pos if inside else token.end())
                pos = match.end() if match else pos
                if text[pos : pos + 1] != b'"':
                    self._value = (pos, depth, True)
                    return None
                pos, inside = pos + 1, False
            else:
                pos = token.end()
                depth += 1 if token.group() in b"[{" else -1
            if depth <= 0:
                self._value = None
                return pos
        self._value = (len(text), depth, False)
        return None

    def metadata(self, counter: FindingCounter) -> dict:
        """Return the members before the array, {} for a top-level array."""
        counter.add("repaired_comment", self.n_comments, "the metadata")
        if not self.is_object:
            return {}
        begin = self.text.index(b"{") + 1
        return members(bytes(self.text[begin : self.members_end]), counter)


def _match_end(pattern: re.Pattern[bytes], text: bytearray, begin: int) -> int:
    match = pattern.match(text, begin)
    return match.end() if match else begin


def members(text: bytes, counter: FindingCounter) -> dict:
    """Parse `"key": value, ...` into a dict.

    Repair broken text and count the repairs. Return {} for unreadable text.
    """
    source = "{" + text.decode("utf-8", "replace").strip().strip(",") + "}"
    if "\ufffd" in source:
        counter.add("repaired_utf8", source.count("\ufffd"), "the metadata")
    try:
        return _load(source, counter)
    except (ValueError, RecursionError):
        try:
            mended, end = repair_object(source, 0, counter, "the metadata")
            if source[end:].strip():
                raise Hopeless(end, "text after the last member")
            return _load(mended, counter)
        except (Hopeless, ValueError, RecursionError):
            counter.add("unreadable_metadata", 1, "the metadata")
            return {}


def _load(source: str, counter: FindingCounter) -> dict:
    unusable_numbers: list[str] = []

    def number(text: str) -> int | float | None:
        """Parse a number, or return None if it is not finite or longer than _LONGEST_NUMBER."""
        if len(text) <= _LONGEST_NUMBER:
            value = int(text) if text.lstrip("-").isdigit() else float(text)
            if math.isfinite(value):
                return value
        unusable_numbers.append(text)
        return None

    duplicate_keys: list[str] = []

    def first_holds(pairs: list[tuple[str, object]]) -> dict:
        value_by_key: dict[str, object] = {}
        for key, value in pairs:
            if key in value_by_key:
                duplicate_keys.append(key)
            else:
                value_by_key[key] = value
        return value_by_key

    loaded = json.loads(
        source, parse_constant=_no_constant, parse_float=number, parse_int=number, object_pairs_hook=first_holds
    )
    if re.search(r"\\u[dD][89a-fA-F]", source):
        # Raises UnicodeEncodeError, a ValueError, for a lone surrogate.
        json.dumps(loaded, ensure_ascii=False).encode("utf-8")
    second_arrays = [loaded.pop("traceEvents")] if "traceEvents" in loaded else []
    counter.add("second_event_array", len(second_arrays) + duplicate_keys.count("traceEvents"), "the metadata")
    counter.add(
        "duplicate_metadata_key",
        len(duplicate_keys) - duplicate_keys.count("traceEvents"),
        ", ".join(duplicate_keys[:5]),
    )
    counter.add("unusable_number", len(unusable_numbers), "the metadata")
    return loaded


def _no_constant(name: str) -> None:
    raise ValueError(f"bare {name}")


def find_end(tail: bytes, is_object: bool, is_first: bool, counter: FindingCounter) -> tuple[int, dict] | None:
    """Return (offset of the end of the last entry, metadata after the array), or None if no `]` fits.

    The array ends at the first `]` after an entry for which the text after it parses as the rest of the top-level
    object. Only whitespace and comments may follow a top-level array. A trailing comma before the `]` is counted.
    """
    candidates = [(0, m.end(), b"") for m in [_EMPTY.match(tail)] if m and is_first]
    doubtful, tried = None, 0
    for end, after, gap in [*candidates, *((m.start() + 1, m.end(), m.group(1)) for m in _END.finditer(tail))]:
        tried += len(tail) - after
        if tried > _MOST_TRIED + len(tail):
            break
        trial = FindingCounter()
        metadata = suffix(tail[after:], is_object, trial)
        if metadata is None:
            continue
        trial.add("repaired_comma", int(b"," in gap), "the end of traceEvents")
        trial.add("repaired_control_character", int(bool(gap.strip(b", \t\r\n"))), "the end of traceEvents")
        if not trial.counts["repaired_quote"]:
            return _accepted(end, metadata, trial, counter)
        # An extra quote makes the text between two strings look like a key. A later position may fit without repair.
        doubtful = doubtful or (end, metadata, trial)
    return _accepted(*doubtful, counter) if doubtful else None


def second_document(text: str, at: int, is_object: bool | None = None) -> bool:
    """Return whether the trace ends after the bracket at `at` and another JSON value begins (concatenated files).

    `is_object`: whether the trace is an object, None if unknown.
    """
    after = text[at + 1 : at + 200].lstrip()
    if is_object is not True and after[:1] in ("[", "{"):
        return True
    if is_object is False or after[:1] not in (",", "}"):
        return False
    try:
        _, end = _RAW.raw_decode('{"":0' + text[at + 1 :])
    except (ValueError, RecursionError):
        return False
    following = text[at + 1 + end - len('{"":0') :].lstrip()
    return following[:1] in ("[", "{")


def _accepted(end: int, metadata: dict, trial: FindingCounter, counter: FindingCounter) -> tuple[int, dict]:
    for check, n in trial.counts.items():
        counter.add(check, n, trial.places.get(check, ""))
    return end, metadata


def suffix(rest: bytes, is_object: bool, counter: FindingCounter) -> dict | None:
    """Return the metadata after the array's `]`, or None if `rest` does not parse as the end of the trace."""
    stripped = rest.strip()
    counter.add("repaired_control_character", int(stripped != rest.strip(b" \t\r\n")), "the end of the trace")
    rest = stripped
    if not is_object:
        after = _BLANK.match(rest)
        if after is None or after.end() < len(rest):
            return None
        counter.add("repaired_comment", int(bool(rest)), "the end of the trace")
        return {}
    last_brace = _LAST.search(rest)
    if last_brace is None:
        return None
    counter.add("repaired_comment", int(last_brace.end() - last_brace.start() > 1), "the end of the trace")
    counter.add("repaired_comma", int(rest[: last_brace.start()].rstrip().endswith(b",")), "the end of the trace")
    metadata = members(rest[: last_brace.start()], counter)
    return None if counter.counts["unreadable_metadata"] else metadata
