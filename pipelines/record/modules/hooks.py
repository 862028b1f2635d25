"""Hooks that measure and never stop training. Their exceptions are caught and recorded, by module."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import torch

Noted = Callable[[str, str, str], None]
"""Callback for a module that is not measured: (the module's name, its class, the reason)."""


class Hook:
    """A hook of a module.

    A copy of the module (deepcopy, pickle) gets a hook that does nothing and does not need this package. Code that is
    compiled or traced while the hook is installed does not contain the hook.
    """

    def __init__(self, call: Callable[..., None]) -> None:
        self._call = call

    def __call__(self, *args: Any) -> None:
        if not torch.compiler.is_compiling():
            self._call(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")  # a function that accepts any arguments and returns None


class Hooks:
    """Hooks of a sampled step, on modules and on the graph. `remove` removes all of them.

    `hook_ns`: the host's time to install and run the hooks, ns, by name of each module that accepted hooks.
    """

    def __init__(self, noted: Noted) -> None:
        self._noted = noted
        self._handles: list[Any] = []
        self.hook_ns: defaultdict[str, int] = defaultdict(int)

    def on_module(
        self, module: torch.nn.Module, name: str, kind: str, before: Callable[..., None], after: Callable[..., None]
    ) -> None:
        """Install `before(module, args, kwargs)` and `after(module, args, output)` around the module's forward."""
        began = time.perf_counter_ns()
        handles: list[Any] = []
        try:
            hook = Hook(self._timed(before, name, kind))
            handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))
            hook = Hook(self._timed(after, name, kind))
            handles.append(module.register_forward_hook(hook, always_call=True))
        except Exception as error:  # a module class may refuse hooks with any exception; ScriptModules do
            for handle in handles:
                handle.remove()
            self._noted(name, kind, why(error))
        else:
            self._handles += handles
            self.hook_ns[name] += time.perf_counter_ns() - began

    def before_call(self, module: torch.nn.Module, call: Callable[..., None], name: str, kind: str) -> None:
        """Call `call(module, args, kwargs)` before the module's forward, without measuring the module."""
        hook = Hook(self.guarded(call, name, kind))
        with suppress(Exception):  # `on_module` reports classes that refuse hooks
            self._handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))

    def before_node(self, node: Any, call: Callable[[], None], name: str, kind: str) -> None:
        """Call `call` before a node of the graph runs."""
        self._handles.append(node.register_prehook(self._timed(lambda *_: call(), name, kind)))

    def after_node(self, node: Any, call: Callable[[], None], name: str, kind: str) -> None:
        """Call `call` after a node of the graph has run."""
        self._handles.append(node.register_hook(self._timed(lambda *_: call(), name, kind)))

    def guarded(self, call: Callable[..., Any], name: str, kind: str) -> Callable[..., Any]:
        """Return `call` wrapped so that it never raises. An exception is reported to `noted`, and the result is None."""

        def guard(*args: Any) -> Any:
            try:
                return call(*args)
            except Exception as error:
                self._noted(name, kind, why(error))

        return guard

    def _timed(self, call: Callable[..., None], name: str, kind: str) -> Callable[..., None]:
        """Return `call` guarded, so that each call also adds its duration to the module's `hook_ns`."""
        guard = self.guarded(call, name, kind)

        def timed(*args: Any) -> None:
            began = time.perf_counter_ns()
            guard(*args)
            self.hook_ns[name] += time.perf_counter_ns() - began

        return timed

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def why(error: Exception) -> str:
    """Format an error in one line."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
