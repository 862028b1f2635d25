"""Result of one kind of attack, a row of the table that `make attack` prints."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Tally:
    """Counts of one attack, which passes if `lost`, `silent` and `tracebacks` are all 0."""

    what: str  # name of the attack in the table, such as "mutated files" or "kills at system calls"
    tried: int = 0  # number of tries
    survived: int = 0  # tries that ended correctly: ingested, rejected or repaired, with a message
    lost: int = 0  # tries that lost committed data
    silent: int = 0  # tries that changed or lost data without a message
    tracebacks: int = 0  # tries that ended in a traceback
    notes: list[str] = field(default_factory=list)  # one sentence per failure, with the information to replay it

    @property
    def passed(self) -> bool:
        """Return whether the attack found no failure."""
        return not (self.lost or self.silent or self.tracebacks)
