"""Lines of a file, unpacked, one at a time and none of them larger than memory allows."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.readers.inputs.kinds import Rejected
from pipelines.readers.kineto.source import Source, TooLarge

_LONGEST_LINE = 4 << 20


def lines(source: Source, what: str) -> Iterator[tuple[bytes, bool]]:
    """Yields lines without their ends, and whether each had one. `what` the file is: for the message of Rejected."""
    rest = b""
    try:
        for chunk in source.chunks():
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield line, True
            if len(rest) > _LONGEST_LINE:
                raise Rejected(f"{what} with a line of more than {_LONGEST_LINE >> 20} MiB")
    except TooLarge as error:
        raise Rejected(f"{what} that is too large: {error.reason}") from None
    if rest.strip():
        yield rest, False
