"""Tolerant reader, which repairs a part of the event array that DuckDB rejects, and counts findings."""

import json
import re
from dataclasses import dataclass, field

from pipelines.readers.kineto.envelope import TWO_IN_ONE, NotATrace, second_document
from pipelines.readers.kineto.json_repair import COMMENT, NO_SPACE, TIME_MARK, Hopeless, repair_object
from pipelines.readers.kineto.reading_result import FindingCounter
from pipelines.readers.kineto.resume import Entries, ends_trace, is_closing, next_closing, past_entry

# Bare ts and dur with a fraction, whose digits DuckDB may lose in a double. Numbers in strings keep their digits.
_TIME = re.compile(rb'("(?:ts|dur)"\s*:\s*)(-?\d+\.\d+)(?=\s*[,}])')
_LIKE_A_MARK = re.compile(rb'("(?:ts|dur)"\s*:\s*)"~')
_GAP = re.compile(r"[\s,\x00-\x1f]*")
_COMMENT = re.compile(COMMENT)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_JSON_FOLLOWS = re.compile(r'[,\s]+["{\[\d]')
_SURPLUS = re.compile(r"[ \t\r\n\]}]*")
_BLANK = re.compile(r"\s*")
# Strings, and bare words outside them.
_NO_NUMBER = re.compile(
    r'"(?:[^"\\]|\\.)*+"|(?<=[:,\[\s])([-+]?(?:nan|inf|infinity))(?=\s*[,}\]])', re.IGNORECASE | re.DOTALL
)
_WINDOW = 1 << 12  # characters of the last entry that are checked for bare words, if its end is unknown
_KEY_FOLLOWS = re.compile(r'\]\s*,\s*"')


def mark_times(text: bytes) -> bytes:
    """Quote and mark times with a fraction, because every digit must reach the table as text."""
    return _TIME.sub(rb'\1"' + TIME_MARK.encode() + rb'\2"', text)


def escape_marks(text: bytes) -> bytes:
    """Add a second mark to a time that is a string beginning with the mark, so that it is not taken for a number."""
    return _LIKE_A_MARK.sub(rb'\1"' + 2 * TIME_MARK.encode(), text)


@dataclass
class Stretch:
    """Result for a stretch (part) of the event array.

    `entries`: clean entries. `stopped`: byte offset in the stretch at which reading stopped. `rest`: the remaining
    text.
    """

    entries: list[str] = field(default_factory=list)
    stopped: int = 0
    rest: bytes = b""
    ended: bool = False  # reading stopped just after the array's closing bracket

    def array(self) -> bytes:
        """Return the comma-separated entries for DuckDB, with fractional times as marked strings."""
        return mark_times(",\n".join(self.entries).encode("utf-8", "replace"))


def _refuse(name: str) -> None:
    raise ValueError(f"bare {name}")


def _once(members: list[tuple[str, object]]) -> dict[str, object]:
    value_by_key = dict(members)
    if len(value_by_key) < len(members):
        raise ValueError("a key twice")
    return value_by_key


_LENIENT = json.JSONDecoder(strict=False)
_STRICT = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=_once)


def read_stretch(data: bytes, last: bool, offset: int, counter: FindingCounter, mend_all: bool = False) -> Stretch:
    """Read entries from `data` (at `offset` in the decompressed content), one at a time.

    If more text follows (`last` false), an incomplete entry ends the stretch. The caller puts it in front of the next
    stretch. In the last stretch an incomplete entry counts as `truncated`. `mend_all`: repair also entries that parse.
    """
    text = data.decode("utf-8", "replace")
    reader = _Reader(text, data, last, offset, counter, mend_all)
    counter.add("repaired_utf8", reader.bad_bytes(), f"byte {offset}")
    reader.run()
    return reader.out


def _may_follow(text: str, begin: int, after_quotes: bool) -> bool:
    """Return whether a repaired entry may end at `begin`.

    A comma, the end of the text or the end of the array must follow. Extra brackets may precede the comma.
    `after_quotes`: whether quotes in the entry were escaped. Then the entry may have been ended too early, and text
    after the comma that looks like JSON is the remainder of the entry.
    """
    match = _SURPLUS.match(text, begin)
    next_pos = match.end() if match else begin
    if next_pos == len(text) or (text[next_pos] == "," and not (after_quotes and _JSON_FOLLOWS.match(text, next_pos))):
        return True
    match = _BLANK.match(text, begin)
    bracket_pos = match.end() if match else begin
    return (
        text[bracket_pos : bracket_pos + 1] == "]" and is_closing(text, bracket_pos) and ends_trace(text, bracket_pos)
    )


def _same(text: str, clean: str, stop: int) -> int:
    """Return the position in `text` that corresponds to the position `stop` in `clean`.

    `clean` is `text` with its bare words replaced by null.
    """
    n_added = 0
    for match in _NO_NUMBER.finditer(text):
        if match.start() + n_added >= stop:
            break
        if match[1] is not None:
            n_added += len("null") - len(match[1])
    return stop - n_added


class _Reader:
    def __init__(
        self, text: str, data: bytes, last: bool, offset: int, counter: FindingCounter, mend_all: bool
    ) -> None:
        self.text, self.data, self.last, self.offset = text, data, last, offset
        self.counter, self.mend_all = counter, mend_all
        self.out = Stretch()
        self._entries = Entries(text)
        self._placed = (0, 0)  # an index into `text`, and its byte offset
        self._is_cut = False  # an entry has no end in the text
        self._resumed = 0  # start of an entry whose preceding comma was skipped with unreadable text

    def bad_bytes(self) -> int:
        return self.text.count("\ufffd") - self.data.count(b"\xef\xbf\xbd") if "\ufffd" in self.text else 0

    def place(self, at: int) -> int:
        """Return the byte offset of a character in the stretch (approximate if bytes before it were not UTF-8).

        Count from the last requested position, so that requests for all entries encode the text only once.
        """
        character, byte = self._placed
        between = len(self.text[min(at, character) : max(at, character)].encode("utf-8", "replace"))
        self._placed = at, byte + (between if at >= character else -between)
        return min(self._placed[1], len(self.data))

    def count(self, check: str, at: int, n: int = 1) -> None:
        if n:
            self.counter.add(check, n, f"byte {self.offset + self.place(at)}")

    def run(self) -> None:
        pos, size = 0, len(self.text)
        while True:
            gap, pos = self.gap(pos)
            self.count("repaired_control_character", pos, int(bool(NO_SPACE.search(gap.replace(",", "")))))
            if pos >= size:
                if self.last:
                    self.count("truncated", pos)
                return self.stop(pos)
            if self.text[pos] == "]" and second_document(self.text, pos):
                raise NotATrace(self.offset + self.place(pos), TWO_IN_ONE)
            if self.text[pos] == "]" and self.closes(pos):
                self.count("repaired_comma", pos, gap.count(","))
                self.out.ended = True
                return self.stop(pos + 1)
            if self.text[pos] in "]}":
                self.count("repaired_bracket", pos)
                pos += 1
                continue
            if pos != self._resumed:
                self.count("repaired_comma", pos, abs(gap.count(",") - (1 if self.out.entries else 0)))
            after = self.entry(pos)
            if after is None:
                return self.stop(pos)
            pos = after

    def gap(self, at: int) -> tuple[str, int]:
        """Return the text between two entries, without comments, and the position of the next entry."""
        between = ""
        while match := _GAP.match(self.text, at):
            between, at = between + match.group(), match.end()
            comment = _COMMENT.match(self.text, at) if self.text[at : at + 1] == "/" else None
            if comment is None or (comment.end() == len(self.text) and not self.last):  # the next piece may continue it
                break
            self.count("repaired_comment", at)
            at = comment.end()
        return between, at

    def stop(self, at: int) -> None:
        """Set where reading stopped, and the remaining text.

        The offset is inexact if bytes before it were not UTF-8.
        """
        self.out.stopped, self.out.rest = self.place(at), self.text[at:].encode("utf-8", "replace")

    def closes(self, at: int) -> bool:
        if not self.last:  # a key follows only the array's end, never an entry
            return bool(_KEY_FOLLOWS.match(self.text, at))
        return is_closing(self.text, at) or self._entries.after(at) is None

    def entry(self, at: int) -> int | None:
        """Read the entry at `at`. Return the position after it, or None if the stretch ends within it."""
        try:
            value, end = _STRICT.raw_decode(self.text, at)
        except (ValueError, RecursionError):
            return self.mended(at, self.next_entry(at))
        entry = self.text[at:end]
        if not isinstance(value, dict):
            self.count("not_an_object", at, int(value is not None))
            entry = "null"
        elif self.mend_all or _SURROGATE.search(entry):
            return self.mended(at, end)
        self.keep(entry)
        return end

    def next_entry(self, at: int) -> int | None:
        """Return the start of the entry after the entry at `at`, or None if no entry follows in the stretch.

        The stretch may end in an entry whose objects have phases. The next stretch then begins with this entry. If the
        entry has no end there either, it is truncated, and the first object with a phase counts as the next entry.
        """
        first = self._entries.after(at + 1)
        if first is None or self._is_cut:  # a truncated entry hides the ends of all later entries
            return first
        past = past_entry(self.text, at, first)
        if past is None:
            self._is_cut = True
            return first if self.last or not self.out.entries else None
        return self._entries.after(past)

    def mended(self, at: int, end: int | None) -> int | None:
        """Repair the entry at `at`, and return the position after it, or None if the stretch ends within it.

        `end`: start of the next entry, None if no entry follows.
        """
        if (past := self.without_words(at, end)) is not None:
            return past
        # If no entry follows, do not copy the remaining text, which may be long and contain many entries.
        text, begin = (self.text, at) if end is None else (self.text[at:end], 0)
        try:
            if not text.startswith("{", begin):
                raise Hopeless(at, "no object")
            counter = FindingCounter()
            clean, past = repair_object(text, begin, counter)
            if not _may_follow(text, past, bool(counter.counts["repaired_quote"])):
                raise Hopeless(at, "text after the entry")
        except Hopeless:
            return self.unreadable(at, end)
        for check, n in counter.counts.items():
            self.count(check, at, n)
        self.out.entries.append(clean)
        return at - begin + past

    def without_words(self, at: int, end: int | None) -> int | None:
        """Read an entry whose only faults are bare NaNs and infinities, ten times as fast as `repair_object`.

        Return the position after it, or None if the entry has another fault.
        """
        n, text = 0, self.text[at : self.near_end(at) if end is None else end]

        def null(match: re.Match[str]) -> str:
            nonlocal n
            n += match[1] is not None
            return match[0] if match[1] is None else "null"

        clean = _NO_NUMBER.sub(null, text)
        if not n or self.mend_all:
            return None
        try:
            value, stop = _STRICT.raw_decode(clean)
        except (ValueError, RecursionError):
            return None
        past = _same(text, clean, stop)
        n = sum(match[1] is not None for match in _NO_NUMBER.finditer(text, 0, past))
        follows = _may_follow(self.text, at + past, False) if end is None else _may_follow(text, past, False)
        if not isinstance(value, dict) or _SURROGATE.search(clean, 0, stop) or not follows:
            return None
        self.count("repaired_nan", at, n)
        self.keep(clean[:stop])
        return at + past

    def near_end(self, at: int) -> int:
        """Return the end of a stretch's last entry if Python can parse it, else the position _WINDOW after `at`."""
        try:
            return _LENIENT.raw_decode(self.text, at)[1]
        except (ValueError, RecursionError):
            return at + _WINDOW

    def keep(self, entry: str) -> None:
        self.out.entries.append(escape_marks(entry.encode()).decode() if '"~' in entry else entry)

    def unreadable(self, at: int, following: int | None) -> int | None:
        """Skip an entry. Return the position of the next entry, or None if no entry follows."""
        if following is None and self.last:
            following = next_closing(self.text, at + 1)
            if following is None:
                self.count("truncated", at)
        if following is not None:
            self.count("unreadable_event", at)
            skipped = self.text[at:following].rstrip()
            if skipped.endswith("*/") and (comment := skipped.rfind("/*")) >= 0:  # belongs to the next entry
                self.count("repaired_comment", at + comment)
            self.out.entries.append("null")
            self._resumed = following
        return following
