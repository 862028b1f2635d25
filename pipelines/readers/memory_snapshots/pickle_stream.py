"""Reads a pickle of plain containers piece by piece: whatever `fold` makes of a finished dictionary takes its place.

`pickle.load` holds every object until the end, and runs what the file names. This reader knows containers, texts and
numbers, refuses every other opcode, and keeps only what the file may refer to again. The opcodes are those of
`pickletools`; the files are written by Python's pickler (protocol 2 to 5) or by PyTorch's own (protocol 2).
"""

from __future__ import annotations

import pickletools
import re
import struct
from collections.abc import Callable, Iterable
from typing import Any

_PROTO, _FRAME, _STOP, _MARK, _MEMOIZE = 0x80, 0x95, ord("."), ord("("), 0x94
_GET, _LONG_GET, _PUT, _LONG_PUT = ord("h"), ord("j"), ord("q"), ord("r")
_DICT, _LIST, _TUPLE0, _TUPLE = ord("}"), ord("]"), ord(")"), ord("t")
_SETITEMS, _SETITEM, _APPENDS, _APPEND = ord("u"), ord("s"), ord("e"), ord("a")
_INT1, _INT2, _INT4, _LONG1, _LONG4, _FLOAT = ord("K"), ord("M"), ord("J"), 0x8A, 0x8B, ord("G")
_CONSTANTS = {ord("N"): None, 0x88: True, 0x89: False}
_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3}
_TEXTS = {0x8C: 1, ord("X"): 4, 0x8D: 8}  # opcode → bytes of the length before the text
_NAMES = {ord(op.code): op.name for op in pickletools.opcodes}
# A list of nothing but references to earlier objects, as stacks are: read at once, and known again by its bytes.
_REFERENCES = re.compile(rb"\]\x94\(((?:h.|j....)++)e", re.DOTALL)

_AHEAD = 1 << 17  # bytes that are there before an opcode is read; longer texts are asked for
_REFILL = 4 << 20
_LONGEST_TEXT = 16 << 20
_LONGEST_NUMBER = 16  # bytes; a column holds 8
_LARGEST_KEPT = 128 << 20  # bytes of pickle without anything that folds
_LARGEST_TEXTS = 512 << 20  # characters of different texts
_DEEPEST = 100


class BrokenPickle(ValueError):
    """The pickle cannot be read, or holds what no snapshot does; the message names the byte."""


class GoneType:
    """What stands in for an object whose rows are written already: the file must not need it again."""

    def __repr__(self) -> str:
        return "an entry that was read before"


GONE = GoneType()


class Reusable:
    """What a dictionary became and the file may refer to again; of everything else `GONE` remains."""

    __slots__ = ()


class Item(dict[Any, Any]):
    """A dictionary that is being filled; `place`: its number among the objects that the file can refer to."""

    __slots__ = ("place",)
    place: int | None


class Listing(list[Any]):
    """A list that is being filled; `place` as for Item, `number` is for whoever is told that it grows."""

    __slots__ = ("number", "place")
    place: int | None
    number: int | None


class PickleStream:
    """One pass over a pickle. `fold(item)` gets each dictionary once it is filled, and returns what takes its place;
    `append(listing, items)` puts items into a list, or elsewhere; `intern_list(listing)` returns what stands for a list of
    references, which is asked for once.
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
        self._text_size = 0
        self._lists: dict[bytes, Any] = {}
        self._tuples: dict[Any, Any] = {}
        self._folded_at = 0

    def load(self) -> Any:
        """Returns what remains of the whole. Raises BrokenPickle; and OSError if the file cannot be read."""
        try:
            self._more(0)
            return self._run()
        except (IndexError, struct.error):
            raise BrokenPickle(f"it ends early, at byte {self._dropped + len(self._data):,}") from None
        except BrokenPickle:
            raise
        except (ValueError, TypeError, OverflowError, AttributeError, KeyError) as error:
            where = f"before byte {self._dropped + len(self._data):,}"
            raise BrokenPickle(f"{where}: {error}") from None

    def _more(self, at: int, needed: int = _AHEAD) -> int:
        """Make `needed` bytes available from `at` on, as far as the file goes; returns where `at` is then."""
        pieces, there = [self._data[at:]], len(self._data) - at
        while not self._ended and there < max(needed, _REFILL):
            piece = next(self._chunks, None)
            if piece is None:
                self._ended = True
            else:
                pieces.append(piece)
                there += len(piece)
        self._dropped += at
        self._data = b"".join(pieces)
        if self._dropped - self._folded_at > _LARGEST_KEPT:
            self._fail(0, f"{_LARGEST_KEPT >> 20} MiB without an entry: it is no memory snapshot")
        return 0

    def _fail(self, at: int, why: str) -> None:
        raise BrokenPickle(f"byte {self._dropped + at:,}: {why}")

    def _run(self) -> Any:
        memo, marks, stack = self._memo, [], []
        data, at = self._data, 0
        limit = len(data) - _AHEAD if not self._ended else len(data)
        while True:
            if at >= limit and not self._ended:
                at = self._more(at)
                data = self._data
                limit = len(data) - _AHEAD if not self._ended else len(data)
            op = data[at]
            at += 1
            if op == _GET:
                stack.append(memo[data[at]])
                at += 1
            elif op == _LONG1:
                size = data[at]
                if size > _LONGEST_NUMBER:
                    self._fail(at, f"a number of {size} bytes")
                at += 1 + size
                stack.append(int.from_bytes(data[at - size : at], "little", signed=True))
            elif op == _INT1:
                stack.append(data[at])
                at += 1
            elif op == _INT2:
                stack.append(data[at] | data[at + 1] << 8)
                at += 2
            elif op == _INT4:
                stack.append(struct.unpack_from("<i", data, at)[0])
                at += 4
            elif op == _LONG_GET:
                stack.append(memo[struct.unpack_from("<I", data, at)[0]])
                at += 4
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
                    self._fail(at, f"nested more than {_DEEPEST} deep")
                marks.append(stack)
                stack = []
            elif op == _SETITEMS:
                items, stack = stack, marks.pop()
                stack[-1] = self._filled(stack[-1], zip(items[::2], items[1::2], strict=True), at)
            elif op == _LIST:
                if found := _REFERENCES.match(data, at - 1):
                    known = self._lists.get(found[1])
                    if known is None:
                        known = self._listed(found[1])
                        if type(known) is Listing:
                            known.place = len(memo)
                    memo.append(known)
                    stack.append(known)
                    at = found.end()
                else:
                    listing = Listing()
                    listing.place = listing.number = None
                    stack.append(listing)
            elif op == _APPENDS:
                items, stack = stack, marks.pop()
                self._grow(stack[-1], items)
            elif op in _TEXTS:
                at = self._text(at, _TEXTS[op], stack)
                data = self._data
                limit = len(data) - _AHEAD if not self._ended else len(data)
            elif op in _CONSTANTS:
                stack.append(_CONSTANTS[op])
            elif op in _TUPLES:
                n = _TUPLES[op]
                if len(stack) < n:
                    self._fail(at, "a tuple without its items")
                items = tuple(stack[-n:])
                stack[-n:] = [self._shared(items)]
            elif op == _FRAME:
                at += 8
            elif op in (_PUT, _LONG_PUT):
                width = 1 if op == _PUT else 4
                self._put(int.from_bytes(data[at : at + width], "little"), stack[-1], at)
                at += width
            elif op == _APPEND:
                item = stack.pop()
                self._grow(stack[-1], [item])
            elif op == _SETITEM:
                value, key = stack.pop(), stack.pop()
                stack[-1] = self._filled(stack[-1], [(key, value)], at)
            elif op == _FLOAT:
                stack.append(struct.unpack_from(">d", data, at)[0])
                at += 8
            elif op == _LONG4:
                size = int.from_bytes(data[at : at + 4], "little")
                if size > _LONGEST_NUMBER:
                    self._fail(at, f"a number of {size:,} bytes")
                at += 4 + size
                stack.append(int.from_bytes(data[at - size : at], "little", signed=True))
            elif op == _TUPLE0:
                stack.append(())
            elif op == _TUPLE:
                items, stack = stack, marks.pop()
                stack.append(self._shared(tuple(items)))
            elif op == _PROTO:
                if not 2 <= data[at] <= 5:
                    self._fail(at, f"pickle protocol {data[at]}: only 2 to 5 are read")
                at += 1
            elif op == _STOP:
                if marks or len(stack) != 1:
                    self._fail(at, "it ends within an object")
                return stack[0]
            else:
                name = _NAMES.get(op)
                what = f"the opcode {name}: it may run code, or is none of data" if name else "no pickle opcode"
                self._fail(at - 1, f"{what}; no snapshot has it, so the file is not read")

    def _filled(self, item: Any, pairs: Iterable[tuple[Any, Any]], at: int) -> Any:
        """Add to a dictionary; returns what takes its place."""
        if type(item) is not Item:
            self._fail(at, f"keys for {item!r:.60}, which is no dictionary")
        item.update(pairs)
        kept = self._fold(item)
        if kept is not item:
            self._folded_at = self._dropped + at
            if item.place is not None:
                self._memo[item.place] = kept if isinstance(kept, Reusable) else GONE
        return kept

    def replace(self, listing: Listing, kept: Any) -> None:
        """Let the file refer to `kept` where it refers to a list."""
        if listing.place is not None:
            self._memo[listing.place] = kept

    def _grow(self, listing: Any, items: list[Any]) -> None:
        if type(listing) is not Listing:
            raise BrokenPickle(f"items for {listing!r:.60}, which is no list")
        self._append(listing, items)

    def _listed(self, references: bytes) -> Any:
        """Returns what stands for a list of references, and keeps it by its bytes: they mean the same in all the file."""
        at, places = 0, []
        while at < len(references):
            wide = references[at] == _LONG_GET
            places.append(int.from_bytes(references[at + 1 : at + (5 if wide else 2)], "little"))
            at += 5 if wide else 2
        listing = Listing(self._memo[place] for place in places)
        listing.place = listing.number = None
        kept = self._intern_list(listing)
        if kept is not listing:
            self._lists[references] = kept
            self._folded_at = self._dropped
        return kept

    def _text(self, at: int, width: int, stack: list[Any]) -> int:
        size = int.from_bytes(self._data[at : at + width], "little")
        if size > _LONGEST_TEXT:
            self._fail(at, f"a text of {size:,} bytes")
        at += width
        if at + size > len(self._data):
            at = self._more(at, size + _AHEAD)
            if size > len(self._data):
                raise IndexError
        text = self._data[at : at + size].decode("utf-8", "surrogatepass")
        if text not in self._texts:
            self._text_size += size
            if self._text_size > _LARGEST_TEXTS:
                self._fail(at, f"more than {_LARGEST_TEXTS >> 20} MiB of different texts")
        stack.append(self._texts.setdefault(text, text))
        return at + size

    def _shared(self, items: tuple[Any, ...]) -> tuple[Any, ...]:
        """Equal tuples are one object: each entry of a snapshot has its own id of a pool, and most are alike."""
        try:
            return self._tuples.setdefault(items, items)
        except TypeError:  # of something that has no hash
            return items

    def _put(self, place: int, value: Any, at: int) -> None:
        if type(value) is Item or type(value) is Listing:
            value.place = place
        if place == len(self._memo):
            self._memo.append(value)
        elif place < len(self._memo):
            self._memo[place] = value
        else:
            self._fail(at, f"object {place:,} is numbered before {len(self._memo):,}")
