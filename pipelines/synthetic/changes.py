"""Changed durations for another run of a capture, with the same program and the same random numbers.

The second run is the truth for what-if, with the same targets and rules (`tracelake what-if --help`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class Changes:
    """Factors of durations by target, 0 or more. A target is a glob (`*`, `?`) over names, or one of:

    - cpu: the self time of operators and calls.
    - host_gap: host time outside operators.
    - host: both.
    - class:COMPUTATION, class:COMMUNICATION, class:MEMORY: GPU work of that class.

    The name of an operator or a call changes its self time, the name of a GPU activity its duration. The name of an
    annotation or a Python frame changes the host time inside it and outside operators. Launch latencies, gaps of
    streams and the time that waiting calls take to return do not change.
    """

    factors: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], float]]:
        return [(_pattern(target), factor) for target, factor in self.factors.items()]

    def _named(self, names: Sequence[str]) -> float:
        product = 1.0
        for pattern, factor in self._patterns:
            if any(pattern.fullmatch(name) for name in names):
                product *= factor
        return product

    def of_host(self, ns: int, names: Sequence[str], in_operator: bool, grid: int) -> int:
        """Return the changed host time, ns, on the clock's grid. `names`: the open events, innermost last."""
        if not self.factors:
            return ns
        factor = self._named(names[-1:] if in_operator else names) * self.factors.get("host", 1)
        return _changed(ns, factor * self.factors.get("cpu" if in_operator else "host_gap", 1), grid)

    def of_call(self, ns: int, name: str, grid: int) -> int:
        """Return the changed duration of a call, ns."""
        factor = self.factors.get("host", 1) * self.factors.get("cpu", 1)
        return _changed(ns, factor * self._named([name]), grid) if self.factors else ns

    def of_work(self, ns: int, name: str, kind: str, grid: int) -> int:
        """Return the changed duration of a GPU activity of class `kind`, ns."""
        factor = self.factors.get(f"class:{kind}", 1) * self._named([name]) if self.factors else 1
        return _changed(ns, factor, grid)


def _pattern(glob: str) -> re.Pattern[str]:
    return re.compile(re.escape(glob).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)


def _changed(ns: int, factor: float, grid: int) -> int:
    return ns if factor == 1 else round(ns * factor) // grid * grid
