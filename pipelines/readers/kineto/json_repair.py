"""Repair of broken JSON text whose meaning is unambiguous. Every change is counted.

It may be slow, because it gets only text that a strict reader has rejected. Kineto causes faults because it writes
names, paths and C++ doubles into JSON without escaping (unescaped quotes, Windows paths, control characters, nan, inf).
Tools cut or join files (missing or extra commas). Writers truncate strings inside a UTF-16 pair (lone surrogates).
Users write comments and leave trailing commas. The last of several equal keys in an object wins, as in JavaScript, in
which the viewers are written.
"""

import json
import re
from decimal import Decimal, InvalidOperation

from pipelines.readers.kineto.reading_result import FindingCounter

MAX_DEPTH = 200
COMMENT = r"//[^\n]*(?:\n|\Z)|/\*(?:[^*]|\*(?!/))*+\*/"
BLANK = rf"(?:\s|{COMMENT})*+"
_SPACE = re.compile(r"[\s\x00-\x1f]*")
_COMMENT = re.compile(COMMENT)
_TIMES = ("ts", "dur")
NO_SPACE = re.compile(r"[^ \t\r\n]")
_BARE = re.compile(r'[^\s,\]}:"{\[]+')
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?\Z")
_NAN = re.compile(r"[-+]?(?:nan(?:\([^)]*\))?|inf(?:inity)?|\d\.#\w+)\Z", re.IGNORECASE)
_WORDS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
_QUOTE = re.compile(r'\\.|"', re.DOTALL)
_KEY = BLANK + r'"(?:[^"\\]|\\.){0,200}"' + BLANK + ":"
# Text that may follow a quote that ends a string. Any other quote is part of the string.
_AFTER = {
    "key": re.compile(rf"{BLANK}:"),
    "object": re.compile(rf"{BLANK}(?:,{_KEY}|,?{BLANK}\}}{BLANK}(?:[,\]}}{{]|\Z)|{_KEY}|,\s*\Z)"),
    "array": re.compile(rf"{BLANK}(?:,{BLANK}[\"\d\[{{tfnTFN\]-]|\])"),
}
_SURROGATES = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|(\\)')
_PLAIN = re.compile(r'[^\\"\x00-\x1f]*+\Z')
_CONTROL = re.compile(r"([\x00-\x1f])")
_INNER_QUOTE = re.compile(r'\\.|(")', re.DOTALL)
TIME_MARK = "~"  # prefix of a time that was quoted to keep its digits; sql/ingest/traces/events.sql removes it


class Hopeless(Exception):
    """A text that has no unambiguous repair, from position `at` on."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(reason)
        self.at = at


def repair_object(text: str, at: int, counter: FindingCounter, place: str = "") -> tuple[str, int]:
    """Return the object that starts at `text[at]` as clean JSON, and the position after it.

    Raise Hopeless if the object cannot be repaired. Changes are counted only on success. The last of several equal keys
    in an object wins. The numbers ts and dur of the outermost object become marked strings, because DuckDB would
    convert bare numbers through a double.
    """
    mender = _Mender(text)
    clean, end = mender.object(at, 0)
    for check, n in mender.counter.counts.items():
        counter.add(check, n, place)
    return clean, end


class _Mender:
    def __init__(self, text: str) -> None:
        self.text = text
        self.counter = FindingCounter()

    def skip(self, at: int) -> int:
        """Return the position after whitespace and comments."""
        begin, n = at, 0
        while match := _SPACE.match(self.text, at):
            at = match.end()
            comment = _COMMENT.match(self.text, at) if self.text[at : at + 1] == "/" else None
            if comment is None:
                break
            n, at = n + 1, comment.end()
        self.counter.add("repaired_comment", n)
        if not n:
            self.counter.add("repaired_control_character", int(bool(NO_SPACE.search(self.text, begin, at))))
        return at

    def value(self, at: int, inside: str, depth: int) -> tuple[str, int]:
        first = self.text[at : at + 1]
        if depth > MAX_DEPTH:
            raise Hopeless(at, "nested too deep")
        if first == "{":
            return self.object(at, depth)
        if first == "[":
            return self.array(at, depth)
        if first == '"':
            return self.string(at, inside)
        return self.bare(at)

    def object(self, at: int, depth: int) -> tuple[str, int]:
        members: list[tuple[str, str]] = []
        at = self.skip(at + 1)
        while (first := self.text[at : at + 1]) != "}":
            if first == ",":
                at = self.surplus_comma(at)
                continue
            if first != '"':
                raise Hopeless(at, "a key is missing")
            key, at = self.string(at, "key")
            at = self.skip(at)
            if self.text[at : at + 1] != ":":
                raise Hopeless(at, "no colon after a key")
            at = self.skip(at + 1)
            clean, at = self.value(at, "object", depth + 1)
            members.append((key, clean))
            at = self.comma(at, "}", '"')
        members = self.without_doubles(members)
        if depth == 0:
            members = [(key, exact_time(clean) if json.loads(key) in _TIMES else clean) for key, clean in members]
        return "{" + ",".join(f"{key}:{clean}" for key, clean in members) + "}", at + 1

    def array(self, at: int, depth: int) -> tuple[str, int]:
        items: list[str] = []
        at = self.skip(at + 1)
        while (first := self.text[at : at + 1]) != "]":
            if first == ",":
                at = self.surplus_comma(at)
                continue
            if first in ("", "}", ":"):
                raise Hopeless(at, "array without end")
            clean, at = self.value(at, "array", depth + 1)
            items.append(clean)
            at = self.comma(at, "]", '"{[-0123456789')
        return "[" + ",".join(items) + "]", at + 1

    def surplus_comma(self, at: int) -> int:
        self.counter.add("repaired_comma")
        return self.skip(at + 1)

    def comma(self, at: int, close: str, starts: str) -> int:
        """Return the position after the comma between two members. Count a missing or a trailing comma."""
        at = self.skip(at)
        char = self.text[at : at + 1]
        if char == ",":
            at = self.skip(at + 1)
            if self.text[at : at + 1] == close:
                self.counter.add("repaired_comma")
        elif char != close:
            if not char or char not in starts:
                raise Hopeless(at, f"neither a comma nor {close}")
            self.counter.add("repaired_comma")
        return at

    def without_doubles(self, members: list[tuple[str, str]]) -> list[tuple[str, str]]:
        last_by_key = {json.loads(key): (key, clean) for key, clean in members}
        self.counter.add("repaired_duplicate_key", len(members) - len(last_by_key))
        return list(last_by_key.values())

    def bare(self, at: int) -> tuple[str, int]:
        match = _BARE.match(self.text, at)
        if not match:
            if self.text[at : at + 1] not in (",", "}", "]"):
                raise Hopeless(at, "no value")
            self.counter.add("repaired_value")
            return "null", at
        word = match.group()
        if word in _WORDS:
            self.counter.add("repaired_value", int(word not in ("true", "false", "null")))
            return _WORDS[word], match.end()
        if _NUMBER.match(word):
            return word, match.end()
        if _NAN.match(word):
            self.counter.add("repaired_nan")
            return "null", match.end()
        self.counter.add("repaired_value")
        return self.clean(word), match.end()

    def string(self, at: int, inside: str) -> tuple[str, int]:
        pos, inner = at + 1, 0
        while quote := _QUOTE.search(self.text, pos):
            pos = quote.end()
            if quote.group() != '"':
                continue
            if _AFTER[inside].match(self.text, pos):
                self.counter.add("repaired_quote", inner)
                return self.clean(self.text[at + 1 : pos - 1]), pos
            inner += 1
        raise Hopeless(at, "string without end")

    def clean(self, content: str) -> str:
        """Return the content of a string as a JSON string. Count at most one finding per string and kind."""
        if _PLAIN.match(content):
            return f'"{content}"'
        for check, pattern, fixed in (
            ("repaired_escape", _ESCAPE, r"\\"),
            ("repaired_surrogate", _SURROGATES, r"\ufffd"),
            ("repaired_control_character", _CONTROL, ""),
            ("repaired_quote", _INNER_QUOTE, '\\"'),
        ):
            mended = pattern.sub(lambda m, fixed=fixed: _mended(m, fixed), content)
            if check != "repaired_quote":
                self.counter.add(check, int(mended != content))
            content = mended
        return '"' + content + '"'


def _mended(match: re.Match[str], replacement: str) -> str:
    """Return the replacement of a match, or the match itself if its first group is unset.

    A replacement '' escapes the character as \\uXXXX.
    """
    if match.group(1) is None:
        return match.group()
    return replacement or f"\\u{ord(match.group(1)):04x}"


def exact_time(number: str) -> str:
    """Return a JSON number as a marked string in plain decimal notation, with all digits.

    Return other values, and numbers of more than 40 digits before or after the point, unchanged. A string that begins
    with the mark gets a second mark.
    """
    if number.startswith(f'"{TIME_MARK}'):
        return f'"{TIME_MARK}{number[1:]}'  # a text that happens to begin with the mark
    if not _NUMBER.match(number):
        return number
    try:
        value = Decimal(number)
    except InvalidOperation:
        return number
    return number if abs(value.adjusted()) > 40 else f'"{TIME_MARK}{value:f}"'
