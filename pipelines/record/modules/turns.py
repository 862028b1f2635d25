"""Turns of modules: the modules that a sampled step measures if it has no time to measure all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from statistics import fmean

import torch

Named = Sequence[tuple[torch.nn.Module, str]]
"""(Module, name) pairs."""


class Turns:
    """The last turn of each module, and the time that its hooks took in that turn, ns.

    Turns follow the order of the model, so a module and the modules inside it have their turns in the same or in
    successive steps. Every module gets its turn, however few fit into a step. Modules that are added later come next.
    """

    def __init__(self) -> None:
        self._n_turns = 0
        self._turn_of: dict[int, int] = {}  # by id of the module
        self._hook_ns: dict[str, int] = {}  # by name

    def next(self, modules: Named, allowed_ns: float) -> Named:
        """Return the modules to measure in the next sampled step: as many as fit into `allowed_ns`, at least one.

        A module whose cost is unknown counts as the average of the others. If no cost is known, returns one module. If
        `allowed_ns` is infinite, returns all modules.
        """
        names = {name for _, name in modules}
        self._hook_ns = {name: ns for name, ns in self._hook_ns.items() if name in names}
        if allowed_ns == math.inf:
            return modules
        waiting = sorted(modules, key=lambda entry: self._turn_of.get(id(entry[0]), 0))
        usual_ns = fmean(self._hook_ns.values()) if self._hook_ns else math.inf
        totals = accumulate(self._hook_ns.get(name, usual_ns) for _, name in waiting)
        chosen = waiting[: max(1, sum(total <= allowed_ns for total in totals))]
        self._turn_of = {id(module): self._turn_of.get(id(module), 0) for module, _ in modules}
        self._turn_of |= {id(module): self._n_turns + n for n, (module, _) in enumerate(chosen, 1)}
        self._n_turns += len(chosen)
        return chosen

    def measured(self, hook_ns: Mapping[str, int]) -> None:
        """Note the time that the hooks of each module took in a sampled step, ns, by module name."""
        self._hook_ns |= hook_ns
