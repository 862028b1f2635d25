"""Finds the modules of a model that can be timed, and the part of the autograd graph that a module's forward created:
where gradients enter it and where they leave it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Yields the tensors in nested tuples, lists, mappings and the fields of model outputs, in order."""
    found: list[torch.Tensor] = []
    todo, inside = [value], set()
    while todo:
        one = todo.pop()
        if isinstance(one, torch.Tensor):
            found.append(one)
        elif isinstance(one, Mapping | list | tuple) and id(one) not in inside:  # it may contain itself
            inside.add(id(one))
            todo += [*(one.values() if isinstance(one, Mapping) else one)][::-1]
    return found


def modules_of(model: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, str]]:
    """Returns the modules that may have hooks, each once, with its name from `named_modules`; the model's name is its
    class.

    Hooks inside compiled code would be compiled with it: they would slow it down, or break it (`fullgraph`). Modules
    are compared by identity, because a class may redefine equality.
    """
    seen: set[int] = set()
    todo = [(model, "")]
    while todo:
        module, name = todo.pop()
        if id(module) in seen or getattr(module, "_compiled_call_impl", None) is not None:
            continue
        seen.add(id(module))
        inside = getattr(module, "_orig_mod", None)
        yield module, name or class_of(module)
        if inside is None and not isinstance(module, torch.jit.ScriptModule):  # its modules are not called from Python
            children = [(child, at) for at, child in module._modules.items() if child is not None]
            todo += [(child, f"{name}.{at}" if name else at) for child, at in children][::-1]


def class_of(module: torch.nn.Module) -> str:
    """Returns the name of its class; for a torch.compile wrapper, that of the wrapped class."""
    return type(getattr(module, "_orig_mod", module)).__name__


def boundary(outputs: list[torch.Tensor], before: set[Any]) -> tuple[list[Any], list[Any], set[Any]]:
    """Returns (nodes of the outputs, nodes that pass a gradient to an input or a leaf, all); empty if no gradient
    flows.

    `before`: the nodes of the inputs as they came in. A tensor with a history that reaches the module other than
    through its inputs belongs to the module's part, too.
    """
    entries = list(dict.fromkeys(t.grad_fn for t in outputs if t.grad_fn is not None and t.grad_fn not in before))
    seen, todo, exits = set(entries), list(entries), []
    while todo:
        node = todo.pop()
        following = [after for after, _ in node.next_functions if after is not None]
        # A leaf's own node is left out: for a tied parameter it runs only after all its users have finished.
        inner = [after for after in following if after not in before and after.next_functions]
        if len(inner) < len(following) or not following:
            exits.append(node)
        fresh = [after for after in dict.fromkeys(inner) if after not in seen]
        seen.update(fresh)
        todo += fresh
    return entries, exits, seen
