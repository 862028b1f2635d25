"""Choice of the steps to sample: a fixed share of the steps, or as many as a budget of time allows."""

from __future__ import annotations

import math
import random
from collections import deque
from statistics import fmean, median

HIGHEST_RATE = 0.05
"""Highest share of steps that a budget samples, and the share before a sampled step's cost is known."""
LOWEST_RATE = 0.01
"""Lowest share of steps that a budget samples. A tighter budget measures fewer modules in a sampled step instead."""
N_PLAIN = 5
"""Number of unsampled steps that a budget requires for comparison before it samples the first step."""
_RECENT_PLAIN, _RECENT_SAMPLED = 31, 8


class Sampling:
    """Choice of steps by a seeded random draw per step. A step is sampled if its draw is below `rate`.

    `rate`: a fixed share of steps, or None for a budget. `budget`: the share of the loop's time that sampling may take.
    With a budget, rate = budget * time of a plain step / extra time of a sampled step, from LOWEST_RATE to
    HIGHEST_RATE. If all modules of a step take too long for LOWEST_RATE, sampled steps measure only as many modules as
    the budget allows at that rate (`allowed_ns`). While sampling has taken more time than the budget allows so far, no
    step is sampled. So the share of sampled steps falls below `rate` after a step that took longer, such as a census.
    It also falls below `rate` if a single module takes longer than `allowed_ns`.

    Ranks with the same seed and rate sample the same steps. With a budget, the rates of ranks differ, so a rank with a
    lower rate skips some of the steps that other ranks sample. Times are the host's, ns.
    """

    def __init__(self, rate: float | None, budget: float, seed: int) -> None:
        if rate is not None and not 0 <= rate <= 1:
            raise ValueError(f"rate {rate}: give the fraction of steps to sample, 0 to 1")
        if not 0 < budget <= 1:
            raise ValueError(f"budget {budget}: give the fraction of time that sampling may take, more than 0, up to 1")
        self._budget = budget if rate is None else None
        self.rate = HIGHEST_RATE if rate is None else rate
        self._dice = random.Random(seed)
        self._plain: deque[int] = deque(maxlen=_RECENT_PLAIN)
        self._extra: deque[int] = deque(maxlen=_RECENT_SAMPLED)
        self._outside: deque[int] = deque(maxlen=_RECENT_SAMPLED)  # extra time outside hooks, without censuses
        self._elapsed_ns = self._cost_ns = 0

    @property
    def cost_ns(self) -> int | None:
        """Return the time that sampling has taken, ns, or None if no sampled step could be compared with others yet."""
        return self._cost_ns if self._extra else None

    @property
    def allowed_ns(self) -> float:
        """Return the time that the next sampled step may spend in hooks on modules, ns, infinite at a fixed rate.

        It is the extra time that a sampled step may take at the lowest rate, minus the extra time of recent sampled
        steps outside the hooks. The latter is spent on the step itself and on PyTorch's calls of the hooks.
        """
        if self._budget is None or not self._plain:
            return math.inf
        return self._budget * median(self._plain) / LOWEST_RATE - (median(self._outside) if self._outside else 0)

    def choose(self) -> bool:
        """Return whether to sample the next step. Call it once per step."""
        is_drawn = self._dice.random() < self.rate
        if self._budget is None:
            return is_drawn
        is_affordable = self._cost_ns <= self._budget * self._elapsed_ns
        return is_drawn and is_affordable and len(self._plain) >= N_PLAIN

    def plain_step(self, ns: int) -> None:
        """Note the time of a step that was not sampled."""
        self._elapsed_ns += ns
        self._plain.append(ns)

    def sampled_step(self, ns: int, hook_ns: int | None = None) -> None:
        """Note the time of a sampled step. `hook_ns`: the part in hooks on modules; None for a census."""
        self._elapsed_ns += ns
        if not self._plain:
            return
        plain_ns = median(self._plain)
        self._extra.append(max(0, round(ns - plain_ns)))
        if hook_ns is not None:
            self._outside.append(self._extra[-1] - hook_ns)
        self.spent(self._extra[-1])
        if self._budget is not None:
            allowed_rate = self._budget * plain_ns / max(1.0, fmean(self._extra))
            self.rate = min(HIGHEST_RATE, max(LOWEST_RATE, allowed_rate))

    def spent(self, ns: int) -> None:
        """Note time that sampling took outside the sampled steps."""
        self._cost_ns += ns
