"""Limits on the size of a trace file. A larger file is rejected with a message that names the option to raise."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields

from pipelines.base.errors import TracelakeError

RATIO_FROM = 1 << 30  # bytes; files that decompress to less are harmless


class WrongLimit(TracelakeError, ValueError):
    """A limit in the environment that is not a positive integer. The message names the variable."""


@dataclass(frozen=True)
class Limits:
    """Each limit is an option of `tracelake ingest` (--max-ratio) and an environment variable (TRACELAKE_MAX_RATIO)."""

    max_unpacked_gib: int = 64  # traces of 5 GB are common
    max_ratio: int = 400  # decompressed to compressed size, checked above 1 GiB decompressed; traces have 10 to 60
    max_metadata_mib: int = 256  # before and after the events
    max_event_mib: int = 128  # one event with its arguments, and so every string in it

    @classmethod
    def from_environment(cls) -> Limits:
        """Return the defaults, overridden by the environment. Raise WrongLimit if a value is not a positive integer."""
        limits = {}
        for field in fields(cls):
            name = f"TRACELAKE_{field.name.upper()}"
            text = os.environ.get(name)
            if text is not None:
                if not text.isdecimal() or int(text) < 1:
                    raise WrongLimit(f"{name}={text} is not a whole number of at least 1")
                limits[field.name] = int(text)
        return cls(**limits)

    @property
    def metadata_bytes(self) -> int:
        """The limit on metadata before or after the events, in bytes."""
        return self.max_metadata_mib << 20

    def unpacked(self, packed: int, unpacked: int) -> str | None:
        """Return which limit `unpacked` bytes out of `packed` bytes exceed, or None if reading may continue."""
        if unpacked > self.max_unpacked_gib << 30:
            return f"more than {self.max_unpacked_gib} GiB decompressed; {allow('max_unpacked_gib')}"
        if unpacked > RATIO_FROM and unpacked > self.max_ratio * packed:
            return (
                f"{unpacked >> 20:,} MiB out of {packed >> 10:,} KiB, over {self.max_ratio} to 1; {allow('max_ratio')}"
            )
        return None


def allow(field: str) -> str:
    """Return the clause of a message that names the variable for a limit, which all commands read, and the option."""
    return f"TRACELAKE_{field.upper()} (of `tracelake ingest` also --{field.replace('_', '-')}) raises the limit"
