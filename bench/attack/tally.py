"""What one kind of attack saw: one row of the table that `make attack` prints."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Tally:
    """Counts of one attack; an attack is passed when `lost`, `silent` and `tracebacks` are all 0."""

    what: str  # what was attacked, as the table names it: "mutated files", "kills at system calls"
    tried: int = 0  # how many times it was tried
    survived: int = 0  # how many of them ended as they should: went in, was rejected or healed, and said so
    lost: int = 0  # how many lost data that was already committed
    silent: int = 0  # how many changed or lost something without a word
    tracebacks: int = 0  # how many ended in a traceback
    notes: list[str] = field(default_factory=list)  # one sentence for each failure, with what replays it

    @property
    def passed(self) -> bool:
        """Whether nothing was lost, silent or a traceback."""
        return not (self.lost or self.silent or self.tracebacks)
