"""The tolerant reader: a stretch of the event array that DuckDB refuses → clean entries and counted findings."""

import json
import re
from dataclasses import dataclass, field

from pipelines.traces.mend import TIME_MARK, Hopeless, mend_object
from pipelines.traces.record import FindingCounter

# ts and dur whose digits a double may not hold, or that stand in a string; DuckDB would read the bare ones as doubles.
_TIME = re.compile(rb'("(?:ts|dur)"\s*:\s*)"?(-?\d+\.\d+)"?(?=\s*[,}])')
# A place to go on after an entry that cannot be read: an object that starts with a key every producer uses.
_NEXT = re.compile(r'(?<=[}\],\s])\{\s*"(?:ph|cat|name|pid|tid|ts|dur|args|id|s|bp|attr)"\s*:')
_GAP = re.compile(r"[\s,\x00-\x1f]*")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_CLOSING = re.compile(r'\]\s*(?:\}?\s*\Z|,\s*"|,\s*\})')


def mark_times(text: bytes) -> bytes:
    """Quote and mark fractional times so that every digit reaches the table as text."""
    return _TIME.sub(rb'\1"' + TIME_MARK.encode() + rb'\2"', text)


@dataclass
class Stretch:
    """What came out of one stretch: clean entries, and where reading stopped (byte offset in the stretch)."""

    entries: list[str] = field(default_factory=list)
    stopped: int = 0
    ended: bool = False  # stopped just after the array's closing bracket

    def array(self) -> bytes:
        return mark_times(b"[" + ",\n".join(self.entries).encode("utf-8", "replace") + b"]")


def _refuse(name: str) -> None:
    raise ValueError(f"bare {name}")


_STRICT = json.JSONDecoder(parse_constant=_refuse)


def read_stretch(data: bytes, last: bool, offset: int, counter: FindingCounter, mend_all: bool = False) -> Stretch:
    """Read entries from `data` (offset `offset` in the unpacked content), one at a time.

    An entry that is not complete ends the stretch where more text follows (`last` false): give it again in front of
    the next stretch. In the last stretch it is `truncated`. `mend_all` mends every entry, also those that read well.
    """
    text = data.decode("utf-8", "replace")
    reader = _Reader(text, data, last, offset, counter, mend_all)
    counter.add("repaired_utf8", reader.bad_bytes(), f"byte {offset}")
    reader.run()
    return reader.out


class _Reader:
    def __init__(
        self, text: str, data: bytes, last: bool, offset: int, counter: FindingCounter, mend_all: bool
    ) -> None:
        self.text, self.data, self.last, self.offset = text, data, last, offset
        self.counter, self.mend_all = counter, mend_all
        self.out = Stretch()

    def bad_bytes(self) -> int:
        return self.text.count("\ufffd") - self.data.count(b"\xef\xbf\xbd") if "\ufffd" in self.text else 0

    def place(self, at: int) -> int:
        """Byte offset of a character in the stretch (near it, where bytes before it were not UTF-8)."""
        return min(len(self.text[:at].encode("utf-8", "replace")), len(self.data))

    def run(self) -> None:
        at, size = 0, len(self.text)
        while True:
            begin = at
            found = _GAP.match(self.text, at)
            at = found.end() if found else at
            gap = self.text[begin:at]
            if at >= size:
                self.out.stopped = len(self.data)
                if self.last:
                    self.truncated(at)
                return
            if self.text[at] == "]" and self.closes(at):
                self.counter.add("repaired_comma", gap.count(","), f"byte {self.offset + self.place(at)}")
                self.out.stopped, self.out.ended = self.place(at + 1), True
                return
            self.count_commas(gap, at)
            after = self.entry(at)
            if after is None:
                self.out.stopped = self.place(at)
                return
            at = after

    def closes(self, at: int) -> bool:
        return not self.last or bool(_CLOSING.match(self.text, at)) or not _NEXT.search(self.text, at)

    def count_commas(self, gap: str, at: int) -> None:
        wanted = 1 if self.out.entries else 0
        self.counter.add("repaired_comma", abs(gap.count(",") - wanted), f"byte {self.offset + self.place(at)}")

    def entry(self, at: int) -> int | None:
        """Read the entry at `at`; position after it, or None where the stretch ends before it does."""
        try:
            if not self.mend_all:
                value, end = _STRICT.raw_decode(self.text, at)
                entry = self.text[at:end]
                if not isinstance(value, dict):
                    self.counter.add("not_an_object", int(value is not None), f"byte {self.offset + self.place(at)}")
                    self.out.entries.append("null")
                    return end
                if not _SURROGATE.search(entry):
                    self.out.entries.append(entry)
                    return end
        except (ValueError, RecursionError):
            pass  # not strict JSON: mended below
        return self.mended(at)

    def mended(self, at: int) -> int | None:
        try:
            if self.text[at] != "{":
                raise Hopeless(at, "no object")
            clean, end = mend_object(self.text, at, self.counter, f"byte {self.offset + self.place(at)}")
            self.out.entries.append(clean)
            return end
        except Hopeless:
            return self.unreadable(at)

    def unreadable(self, at: int) -> int | None:
        """Leave an entry out and go on at the next one; None where there is no next one."""
        following = _NEXT.search(self.text, at + 1)
        closing = _CLOSING.search(self.text, at + 1) if self.last and following is None else None
        if following is None and closing is None:
            if self.last:
                self.truncated(at)
            return None
        self.counter.add("unreadable_event", 1, f"byte {self.offset + self.place(at)}")
        self.out.entries.append("null")
        return following.start() if following else closing.start() if closing else None

    def truncated(self, at: int) -> None:
        self.counter.add("truncated", 1, f"byte {self.offset + self.place(at)}")
