"""Lines of a decompressed file, one at a time, with a bound on their length."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.readers.inputs.kinds import Rejected
from pipelines.readers.kineto.source import Source, TooLarge

_LONGEST_LINE = 4 << 20


def lines(source: Source, what: str) -> Iterator[tuple[bytes, bool]]:
    """Yield each line without its line end, and whether it had a line end. Skip a last line of only whitespace.

    Raise Rejected if a line or the file is too large. `what`: description of the file for the message.
    """
    remainder = b""
    try:
        for chunk in source.chunks():
            *complete_lines, remainder = (remainder + chunk).split(b"\n")
            for line in complete_lines:
                yield line, True
            if len(remainder) > _LONGEST_LINE:
                raise Rejected(f"{what} with a line of more than {_LONGEST_LINE >> 20} MiB")
    except TooLarge as error:
        raise Rejected(f"{what} that is too large: {error.reason}") from None
    if remainder.strip():
        yield remainder, False
