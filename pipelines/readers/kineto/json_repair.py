"""Repairs broken JSON text whose meaning is unambiguous, counting every change.

Used only where a strict reader has refused the text, so it may be slow. What it repairs, and why it occurs: Kineto
writes names, paths and C++ doubles into JSON without escaping (unescaped quotes, Windows paths, control characters,
nan, inf), tools cut or join files (commas), strings are cut inside a UTF-16 pair (lone surrogates), people write comments
and leave commas behind. Of a key that stands twice in one object the last one holds, as in JavaScript, where the viewers run.
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
# What may follow a quote that really ends a string; any other quote is part of the string.
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
TIME_MARK = "~"  # put before a time that was quoted to keep its digits; sql/ingest/traces/events.sql removes it


class Hopeless(Exception):
    """The text at `at` has no unambiguous repair."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(reason)
        self.at = at


def mend_object(text: str, at: int, counter: FindingCounter, place: str = "") -> tuple[str, int]:
    """Returns the object that starts at `text[at]` as clean JSON, and the position after it. Raises Hopeless if it has
    no end.

    Changes are counted only on success. Of a key that occurs twice in an object the last one wins. The numbers under ts
    and dur in the outermost one become marked strings: DuckDB would read bare ones through a double.
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
        """Step over white space and comments."""
        begin, n = at, 0
        while found := _SPACE.match(self.text, at):
            at = found.end()
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
        """Step over the comma between two members; count it if it is missing or comes before the end."""
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
        last = {json.loads(key): (key, clean) for key, clean in members}
        self.counter.add("repaired_duplicate_key", len(members) - len(last))
        return list(last.values())

    def bare(self, at: int) -> tuple[str, int]:
        found = _BARE.match(self.text, at)
        if not found:
            if self.text[at : at + 1] not in (",", "}", "]"):
                raise Hopeless(at, "no value")
            self.counter.add("repaired_value")
            return "null", at
        word = found.group()
        if word in _WORDS:
            self.counter.add("repaired_value", int(word not in ("true", "false", "null")))
            return _WORDS[word], found.end()
        if _NUMBER.match(word):
            return word, found.end()
        if _NAN.match(word):
            self.counter.add("repaired_nan")
            return "null", found.end()
        self.counter.add("repaired_value")
        return self.clean(word), found.end()

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
        """Returns the content of a string as a JSON string; one finding per string and kind."""
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


def _mended(found: re.Match[str], fixed: str) -> str:
    """A match whose first group is empty needs no change."""
    if found.group(1) is None:
        return found.group()
    return fixed or f"\\u{ord(found.group(1)):04x}"


def exact_time(number: str) -> str:
    """Returns a JSON number as a marked string in plain decimal notation, with all digits; other values unchanged."""
    if number.startswith(f'"{TIME_MARK}'):
        return f'"{TIME_MARK}{number[1:]}'  # not the mark, but a text that begins like one
    if not _NUMBER.match(number):
        return number
    try:
        value = Decimal(number)
    except InvalidOperation:
        return number
    return number if abs(value.adjusted()) > 40 else f'"{TIME_MARK}{value:f}"'
