"""How much the tests do. `SLOW=1`, which CI sets, runs what takes long and every example of the random tests."""

from __future__ import annotations

import os

SLOW = os.environ.get("SLOW", "0") not in ("", "0")


def examples(full: int) -> int:
    """How many examples a hypothesis test tries: `full` of them with SLOW=1, else a fifth, but no fewer than 5."""
    return full if SLOW else max(full // 5, min(full, 5))
