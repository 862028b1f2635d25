"""The tolerant reader: a stretch of the event array that DuckDB rejects → clean entries and counted findings."""

import json
import re
from dataclasses import dataclass, field

from pipelines.readers.kineto.envelope import TWO_IN_ONE, NotATrace, second_document
from pipelines.readers.kineto.json_repair import COMMENT, NO_SPACE, TIME_MARK, Hopeless, mend_object
from pipelines.readers.kineto.reading_result import FindingCounter
from pipelines.readers.kineto.resume import Entries, ends_trace, is_closing, next_closing

# ts and dur whose digits a double may lose, as DuckDB would read them; numbers in strings keep theirs.
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
_WINDOW = 1 << 12  # for the last entry, this much text is checked for bare words alone
_KEY_FOLLOWS = re.compile(r'\]\s*,\s*"')


def mark_times(text: bytes) -> bytes:
    """Quote and mark fractional times so that every digit reaches the table as text."""
    return _TIME.sub(rb'\1"' + TIME_MARK.encode() + rb'\2"', text)


def escape_marks(text: bytes) -> bytes:
    """Adds one more mark to a text that already begins with it, so that it stays a text and not a number."""
    return _LIKE_A_MARK.sub(rb'\1"' + 2 * TIME_MARK.encode(), text)


@dataclass
class Stretch:
    """The result for one stretch: clean entries, where reading stopped (byte offset in the stretch), the text there."""

    entries: list[str] = field(default_factory=list)
    stopped: int = 0
    rest: bytes = b""
    ended: bool = False  # stopped just after the array's closing bracket

    def array(self) -> bytes:
        """Returns the entries as they are written for DuckDB, with commas between them."""
        return mark_times(",\n".join(self.entries).encode("utf-8", "replace"))


def _refuse(name: str) -> None:
    raise ValueError(f"bare {name}")


def _once(members: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(members)
    if len(found) < len(members):
        raise ValueError("a key twice")
    return found


_LENIENT = json.JSONDecoder(strict=False)
_STRICT = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=_once)


def read_stretch(data: bytes, last: bool, offset: int, counter: FindingCounter, mend_all: bool = False) -> Stretch:
    """Read entries from `data` (offset `offset` in the unpacked content), one at a time.

    An incomplete entry ends the stretch if more text follows (`last` false): put it in front of the next stretch. In
    the last stretch it counts as `truncated`. `mend_all` repairs every entry, also those that parse.
    """
    text = data.decode("utf-8", "replace")
    reader = _Reader(text, data, last, offset, counter, mend_all)
    counter.add("repaired_utf8", reader.bad_bytes(), f"byte {offset}")
    reader.run()
    return reader.out


def _may_follow(text: str, at: int, after_quotes: bool) -> bool:
    """Between a repaired entry and the next one there may be surplus brackets and, after a comma, an entry of another
    kind.

    If quotes were escaped the entry may have ended too early: then what looks like JSON is the rest of it.
    """
    found = _SURPLUS.match(text, at)
    rest = found.end() if found else at
    if rest == len(text) or (text[rest] == "," and not (after_quotes and _JSON_FOLLOWS.match(text, rest))):
        return True
    found = _BLANK.match(text, at)
    bracket = found.end() if found else at
    return text[bracket : bracket + 1] == "]" and is_closing(text, bracket) and ends_trace(text, bracket)


def _same(text: str, clean: str, stop: int) -> int:
    """Returns the position in a text that became position `stop` when its bare words were replaced with null."""
    moved = 0
    for found in _NO_NUMBER.finditer(text):
        if found.start() + moved >= stop:
            break
        if found[1] is not None:
            moved += len("null") - len(found[1])
    return stop - moved


class _Reader:
    def __init__(
        self, text: str, data: bytes, last: bool, offset: int, counter: FindingCounter, mend_all: bool
    ) -> None:
        self.text, self.data, self.last, self.offset = text, data, last, offset
        self.counter, self.mend_all = counter, mend_all
        self.out = Stretch()
        self._entries = Entries(text)
        self._placed = (0, 0)  # a character and its byte offset
        self._resumed = 0  # where an entry begins whose preceding comma was left out with the text before it

    def bad_bytes(self) -> int:
        return self.text.count("\ufffd") - self.data.count(b"\xef\xbf\xbd") if "\ufffd" in self.text else 0

    def place(self, at: int) -> int:
        """Returns the byte offset of a character in the stretch (approximate if bytes before it were not UTF-8).

        Counts from the last position requested, so that asking for every entry reads the text once.
        """
        character, byte = self._placed
        between = len(self.text[min(at, character) : max(at, character)].encode("utf-8", "replace"))
        self._placed = at, byte + (between if at >= character else -between)
        return min(self._placed[1], len(self.data))

    def found(self, check: str, at: int, n: int = 1) -> None:
        if n:
            self.counter.add(check, n, f"byte {self.offset + self.place(at)}")

    def run(self) -> None:
        at, size = 0, len(self.text)
        while True:
            gap, at = self.gap(at)
            self.found("repaired_control_character", at, int(bool(NO_SPACE.search(gap.replace(",", "")))))
            if at >= size:
                if self.last:
                    self.found("truncated", at)
                return self.stop(at)
            if self.text[at] == "]" and second_document(self.text, at):
                raise NotATrace(self.offset + self.place(at), TWO_IN_ONE)
            if self.text[at] == "]" and self.closes(at):
                self.found("repaired_comma", at, gap.count(","))
                self.out.ended = True
                return self.stop(at + 1)
            if self.text[at] in "]}":
                self.found("repaired_bracket", at)
                at += 1
                continue
            if at != self._resumed:
                self.found("repaired_comma", at, abs(gap.count(",") - (1 if self.out.entries else 0)))
            after = self.entry(at)
            if after is None:
                return self.stop(at)
            at = after

    def gap(self, at: int) -> tuple[str, int]:
        """Returns what is between two entries, without the comments in it, and where the next entry begins."""
        between = ""
        while found := _GAP.match(self.text, at):
            between, at = between + found.group(), found.end()
            comment = _COMMENT.match(self.text, at) if self.text[at : at + 1] == "/" else None
            if comment is None or (comment.end() == len(self.text) and not self.last):  # the next piece goes on with it
                break
            self.found("repaired_comment", at)
            at = comment.end()
        return between, at

    def stop(self, at: int) -> None:
        """The rest is taken from the text: if bytes before it were not UTF-8, its position is not exact."""
        self.out.stopped, self.out.rest = self.place(at), self.text[at:].encode("utf-8", "replace")

    def closes(self, at: int) -> bool:
        if not self.last:  # a piece that goes on with entries ends in one: only after the array's end does a key follow
            return bool(_KEY_FOLLOWS.match(self.text, at))
        return is_closing(self.text, at) or self._entries.after(at) is None

    def entry(self, at: int) -> int | None:
        """Read the entry at `at`; returns the position after it, or None if the stretch ends before it does."""
        try:
            value, end = _STRICT.raw_decode(self.text, at)
        except (ValueError, RecursionError):
            return self.mended(at, self._entries.after(at + 1))
        entry = self.text[at:end]
        if not isinstance(value, dict):
            self.found("not_an_object", at, int(value is not None))
            entry = "null"
        elif self.mend_all or _SURROGATE.search(entry):
            return self.mended(at, end)
        self.keep(entry)
        return end

    def mended(self, at: int, end: int | None) -> int | None:
        """Repair the entry at `at`, which ends before `end`, where the next one begins (None: none follows)."""
        if (past := self.without_words(at, end)) is not None:
            return past
        # If none follows the text is not cut out: the rest may be long, with many entries in it.
        text, begin = (self.text, at) if end is None else (self.text[at:end], 0)
        try:
            if not text.startswith("{", begin):
                raise Hopeless(at, "no object")
            counter = FindingCounter()
            clean, past = mend_object(text, begin, counter)
            if not _may_follow(text, past, bool(counter.counts["repaired_quote"])):
                raise Hopeless(at, "text after the entry")
        except Hopeless:
            return self.unreadable(at, end)
        for check, n in counter.counts.items():
            self.found(check, at, n)
        self.out.entries.append(clean)
        return at - begin + past

    def without_words(self, at: int, end: int | None) -> int | None:
        """Take an entry in which bare NaNs and infinities are the only fault; returns None for others. Ten times as
        fast.
        """
        n, text = 0, self.text[at : self.near_end(at) if end is None else end]

        def null(found: re.Match[str]) -> str:
            nonlocal n
            n += found[1] is not None
            return found[0] if found[1] is None else "null"

        clean = _NO_NUMBER.sub(null, text)
        if not n or self.mend_all:
            return None
        try:
            value, stop = _STRICT.raw_decode(clean)
        except (ValueError, RecursionError):
            return None
        past = _same(text, clean, stop)
        n = sum(found[1] is not None for found in _NO_NUMBER.finditer(text, 0, past))
        follows = _may_follow(self.text, at + past, False) if end is None else _may_follow(text, past, False)
        if not isinstance(value, dict) or _SURROGATE.search(clean, 0, stop) or not follows:
            return None
        self.found("repaired_nan", at, n)
        self.keep(clean[:stop])
        return at + past

    def near_end(self, at: int) -> int:
        """Returns where the last entry of a stretch ends, if Python can tell; else a position near it."""
        try:
            return _LENIENT.raw_decode(self.text, at)[1]
        except (ValueError, RecursionError):
            return at + _WINDOW

    def keep(self, entry: str) -> None:
        self.out.entries.append(escape_marks(entry.encode()).decode() if '"~' in entry else entry)

    def unreadable(self, at: int, following: int | None) -> int | None:
        """Leave an entry out and continue at the next one; returns None if there is no next one."""
        if following is None and self.last:
            following = next_closing(self.text, at + 1)
            if following is None:
                self.found("truncated", at)
        if following is not None:
            self.found("unreadable_event", at)
            left = self.text[at:following].rstrip()
            if left.endswith("*/") and (comment := left.rfind("/*")) >= 0:  # of the next one
                self.found("repaired_comment", at + comment)
            self.out.entries.append("null")
            self._resumed = following
        return following
