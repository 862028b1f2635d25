"""Streaming reader for pickles of plain containers.

`fold` replaces each completed dictionary, so its rows can be written before the rest of the file is read. `pickle.load`
would keep every object until the end, and run code that the file names. This reader accepts containers, texts and
numbers, rejects every other opcode, and keeps only the objects to which the file may refer again. `pickletools` defines
the opcodes. Python's pickler (protocols 2 to 5) or PyTorch's own (protocol 2) writes the files.
"""

from __future__ import annotations

import pickletools
import re
import resource
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

_PROTO, _FRAME, _STOP, _MARK, _MEMOIZE = 0x80, 0x95, ord("."), ord("("), 0x94
_GET, _LONG_GET, _PUT, _LONG_PUT = ord("h"), ord("j"), ord("q"), ord("r")
_DICT, _LIST, _TUPLE = ord("}"), ord("]"), ord("t")
_SETITEMS, _SETITEM, _APPENDS, _APPEND = ord("u"), ord("s"), ord("e"), ord("a")
_NUMBERS = {ord(op): struct.Struct(layout) for op, layout in (("K", "<B"), ("M", "<H"), ("J", "<i"), ("G", ">d"))}
_LONGS = {0x8A: 1, 0x8B: 4}  # opcode → bytes of the length before the number
_OF_TUPLES = {int, float, str, bool, type(None)}
_CONSTANTS = {ord("N"): None, 0x88: True, 0x89: False}
_TUPLES = {ord(")"): 0, 0x85: 1, 0x86: 2, 0x87: 3}
_TEXTS = {0x8C: 1, ord("X"): 4, 0x8D: 8}  # opcode → bytes of the length before the text
_NAMES = {ord(op.code): op.name for op in pickletools.opcodes}
# A list of only references to earlier objects, such as a stack. It is read in one step and cached by its bytes. Python
# writes the items of a list in parts of 1000, so the list may continue after 1000 items.
_REFERENCES = re.compile(rb"\]\x94\(((?:h.|j....){1,999}+)e", re.DOTALL)

_AHEAD = 1 << 17  # bytes available before an opcode is read; longer texts are requested
_REFILL = 4 << 20
_LONGEST_TEXT = 16 << 20
_LONGEST_NUMBER = 16  # bytes; a column stores 8
_LARGEST_MEMORY = 2 << 30  # bytes by which the process may grow; checked after every _REFILL bytes of pickle
_DEEPEST = 100


class BrokenPickle(ValueError):
    """A pickle that is corrupt, or that is not a memory snapshot. The message gives the byte offset."""


class GoneType:
    """Type of the placeholder for an object whose rows are written, and to which the file must not refer again."""

    def __repr__(self) -> str:
        return "an entry that was read before"


GONE = GoneType()


class Reusable:
    """Base class of fold results that the file may refer to again. Other folded objects are replaced by `GONE`."""

    __slots__ = ()


class Item(dict[Any, Any]):
    """A dictionary that is being filled.

    `place`: its index among the objects that the file can refer to, None if it is not memoized.
    """

    __slots__ = ("place",)
    place: int | None

    def __repr__(self) -> str:  # without the items, which may refer to each other endlessly
        return "a dictionary"


class Listing(list[Any]):
    """A list that is being filled. `place`: see Item. `number`: for use by the `append` callback."""

    __slots__ = ("number", "place")
    place: int | None
    number: int | None

    def __repr__(self) -> str:
        return "a list"


class PickleStream:
    """One pass over a pickle.

    `fold(item)` gets each dictionary once it is filled, and returns its replacement. `append(listing, items)` adds
    items to a list, or stores them elsewhere. `intern_list(listing)` returns the replacement of a list of references.
    It is called once per distinct list, unless it returns the list itself.
    """

    def __init__(
        self,
        chunks: Iterable[bytes],
        fold: Callable[[Item], Any],
        append: Callable[[Listing, list[Any]], None],
        intern_list: Callable[[Listing], Any],
    ) -> None:
        self._chunks = iter(chunks)
        self._fold, self._append, self._intern_list = fold, append, intern_list
        self._data, self._dropped, self._ended = b"", 0, False
        self._memo: list[Any] = []
        self._texts: dict[str, str] = {}
        self._lists: dict[bytes, Any] = {}
        self._tuples: dict[Any, Any] = {}
        self._memory_at_start = _memory_bytes()

    def load(self) -> Any:
        """Return the top object, without the parts that were folded.

        Raise BrokenPickle, or OSError if the file cannot be read.
        """
        try:
            self._more(0)
            return self._run()
        except (IndexError, struct.error):
            raise BrokenPickle(f"it is truncated at byte {self._dropped + len(self._data):,}") from None
        except BrokenPickle:
            raise
        except (ValueError, TypeError, OverflowError, AttributeError, KeyError) as error:
            where = f"before byte {self._dropped + len(self._data):,}"
            raise BrokenPickle(f"{where}: {error}") from None

    def _more(self, pos: int, needed: int = _AHEAD) -> int:
        """Make `needed` bytes available from the offset `pos`, or as many as the file has. Return the new offset."""
        pieces, n_available = [self._data[pos:]], len(self._data) - pos
        while not self._ended and n_available < max(needed, _REFILL):
            piece = next(self._chunks, None)
            if piece is None:
                self._ended = True
            else:
                pieces.append(piece)
                n_available += len(piece)
        self._dropped += pos
        self._data = b"".join(pieces)
        if _memory_bytes() - self._memory_at_start > _LARGEST_MEMORY:
            self._fail(0, f"more than {_LARGEST_MEMORY >> 20} MiB of memory; record a shorter history (max_entries)")
        return 0

    def _fail(self, pos: int, reason: str) -> None:
        raise BrokenPickle(f"byte {self._dropped + pos:,}: {reason}")

    def _run(self) -> Any:
        memo, marks, stack = self._memo, [], []
        data, pos = self._data, 0
        limit = len(data) - _AHEAD if not self._ended else len(data)
        while True:
            if pos >= limit and not self._ended:
                pos = self._more(pos)
                data = self._data
                limit = len(data) - _AHEAD if not self._ended else len(data)
            op = data[pos]
            pos += 1
            if op == _GET:
                stack.append(memo[data[pos]])
                pos += 1
            elif op in _NUMBERS:
                stack += _NUMBERS[op].unpack_from(data, pos)
                pos += _NUMBERS[op].size
            elif op in _LONGS:
                size = int.from_bytes(data[pos : pos + _LONGS[op]], "little")
                if size > _LONGEST_NUMBER:
                    self._fail(pos, f"a number of {size:,} bytes")
                pos += _LONGS[op] + size
                stack.append(int.from_bytes(data[pos - size : pos], "little", signed=True))
            elif op == _LONG_GET:
                stack.append(memo[struct.unpack_from("<I", data, pos)[0]])
                pos += 4
            elif op == _MEMOIZE:
                top = stack[-1]
                if type(top) is Item or type(top) is Listing:
                    top.place = len(memo)
                memo.append(top)
            elif op == _DICT:
                item = Item()
                item.place = None
                stack.append(item)
            elif op == _MARK:
                if len(marks) > _DEEPEST:
                    self._fail(pos, f"nested more than {_DEEPEST} deep")
                marks.append(stack)
                stack = []
            elif op == _SETITEMS:
                items, stack = stack, marks.pop()
                stack[-1] = self._filled(stack[-1], zip(items[::2], items[1::2], strict=True), pos)
            elif op == _LIST:
                if references := _REFERENCES.match(data, pos - 1):
                    listed = self._lists.get(references[1])
                    if listed is None:
                        listed = self._listed(references[1])
                        if type(listed) is Listing:
                            listed.place = len(memo)
                    memo.append(listed)
                    stack.append(listed)
                    pos = references.end()
                else:
                    listing = Listing()
                    listing.place = listing.number = None
                    stack.append(listing)
            elif op == _APPENDS:
                items, stack = stack, marks.pop()
                self._grow(stack[-1], items)
            elif op in _TEXTS:
                pos = self._text(pos, _TEXTS[op], stack)
                data = self._data
                limit = len(data) - _AHEAD if not self._ended else len(data)
            elif op in _CONSTANTS:
                stack.append(_CONSTANTS[op])
            elif op in _TUPLES:
                n = _TUPLES[op]
                if len(stack) < n:
                    self._fail(pos, "a tuple without its items")
                first = len(stack) - n
                stack[first:] = [self._shared(tuple(stack[first:]), pos)]
            elif op == _FRAME:
                pos += 8
            elif op in (_PUT, _LONG_PUT):
                width = 1 if op == _PUT else 4
                self._put(int.from_bytes(data[pos : pos + width], "little"), stack[-1], pos)
                pos += width
            elif op == _APPEND:
                item = stack.pop()
                self._grow(stack[-1], [item])
            elif op == _SETITEM:
                value, key = stack.pop(), stack.pop()
                stack[-1] = self._filled(stack[-1], [(key, value)], pos)
            elif op == _TUPLE:
                items, stack = stack, marks.pop()
                stack.append(self._shared(tuple(items), pos))
            elif op == _PROTO:
                if not 2 <= data[pos] <= 5:
                    self._fail(pos, f"pickle protocol {data[pos]}: only 2 to 5 are read")
                pos += 1
            elif op == _STOP:
                if marks or len(stack) != 1:
                    self._fail(pos, "it ends within an object")
                return stack[0]
            else:
                name = _NAMES.get(op)
                problem = f"the opcode {name}: it may run code, or is not a data opcode" if name else "no pickle opcode"
                self._fail(pos - 1, f"{problem}; no snapshot has it, so the file is not read")

    def _filled(self, item: Any, pairs: Iterable[tuple[Any, Any]], pos: int) -> Any:
        """Add `pairs` to a dictionary and return its replacement."""
        if type(item) is not Item:
            self._fail(pos, f"keys for {item!r:.60}, which is not a dictionary")
        item.update(pairs)
        replacement = self._fold(item)
        if replacement is not item and item.place is not None:
            self._memo[item.place] = replacement if isinstance(replacement, Reusable) else GONE
        return replacement

    def replace(self, listing: Listing, kept: Any) -> None:
        """Replace a list by `kept` wherever the file refers to it."""
        if listing.place is not None:
            self._memo[listing.place] = kept

    def _grow(self, listing: Any, items: list[Any]) -> None:
        if type(listing) is not Listing:
            raise BrokenPickle(f"items for {listing!r:.60}, which is not a list")
        self._append(listing, items)

    def _listed(self, references: bytes) -> Any:
        """Return the replacement of a list of references, cached by its bytes.

        Equal bytes have the same meaning in the whole file.
        """
        pos, indices = 0, []
        while pos < len(references):
            is_long = references[pos] == _LONG_GET
            indices.append(int.from_bytes(references[pos + 1 : pos + (5 if is_long else 2)], "little"))
            pos += 5 if is_long else 2
        listing = Listing(self._memo[index] for index in indices)
        listing.place = listing.number = None
        replacement = self._intern_list(listing)
        if replacement is not listing:
            self._lists[references] = replacement
        return replacement

    def _text(self, pos: int, width: int, stack: list[Any]) -> int:
        size = int.from_bytes(self._data[pos : pos + width], "little")
        if size > _LONGEST_TEXT:
            self._fail(pos, f"a text of {size:,} bytes")
        pos += width
        if pos + size > len(self._data):
            pos = self._more(pos, size + _AHEAD)
            if size > len(self._data):
                raise IndexError
        text = self._data[pos : pos + size].decode("utf-8", "surrogatepass")
        stack.append(self._texts.setdefault(text, text))
        return pos + size

    def _shared(self, items: tuple[Any, ...], pos: int) -> tuple[Any, ...]:
        """Return the first tuple of the file that equals `items`.

        Each entry of a snapshot has the id of a pool as a tuple. Most ids are equal, so they share one tuple. Raise
        BrokenPickle for a tuple of more than numbers and texts, because hashing 50 nested tuples can take years.
        """
        if not _OF_TUPLES.issuperset(map(type, items)):
            self._fail(pos, "a tuple of more than numbers and texts")
        return self._tuples.setdefault(items, items)

    def _put(self, index: int, value: Any, pos: int) -> None:
        if type(value) is Item or type(value) is Listing:
            value.place = index
        if index == len(self._memo):
            self._memo.append(value)
        elif index < len(self._memo):
            self._memo[index] = value
        else:
            self._fail(pos, f"object {index:,} is numbered before {len(self._memo):,}")


def _memory_bytes() -> int:
    """Return the resident memory of this process in bytes, or its peak without /proc, as on macOS."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
