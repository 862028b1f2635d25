"""Modules of a model that can be timed, and the part of the autograd graph that a module's forward created.

The recorder needs the nodes where gradients enter and leave that part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors in nested tuples, lists, mappings and the fields of model outputs, in order."""
    tensors: list[torch.Tensor] = []
    todo, visited = [value], set()
    while todo:
        item = todo.pop()
        if isinstance(item, torch.Tensor):
            tensors.append(item)
        elif isinstance(item, Mapping | list | tuple) and id(item) not in visited:  # a container may contain itself
            visited.add(id(item))
            todo += [*(item.values() if isinstance(item, Mapping) else item)][::-1]
    return tensors


def modules_of(model: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, str]]:
    """Yield the modules that may have hooks, each once, with its name from `named_modules`.

    The model's name is its class. Modules inside compiled code get no hooks, because hooks would be compiled with the
    code and slow it down, or break it (`fullgraph`). Modules are compared by identity, because a class may redefine
    equality.
    """
    visited: set[int] = set()
    todo = [(model, "")]
    while todo:
        module, name = todo.pop()
        if id(module) in visited or getattr(module, "_compiled_call_impl", None) is not None:
            continue
        visited.add(id(module))
        yield module, name or class_of(module)
        # Python does not call the modules of a ScriptModule, and the modules of a torch.compile wrapper are compiled.
        if not isinstance(module, torch.jit.ScriptModule) and "_orig_mod" not in module._modules:
            children = [(child, child_name) for child_name, child in module._modules.items() if child is not None]
            todo += [(child, f"{name}.{child_name}" if name else child_name) for child, child_name in children][::-1]


def class_of(module: torch.nn.Module) -> str:
    """Return the name of a module's class, or of the wrapped class for a torch.compile wrapper."""
    return type(getattr(module, "_orig_mod", module)).__name__


@dataclass(frozen=True)
class Part:
    """The part of the autograd graph that a module's forward created.

    `entries`: nodes of the outputs. `nodes`: the nodes that belong to no part of a module inside. `exits`: the members
    of `nodes` that pass a gradient to an input or a leaf. `beyond`: nodes of the module's inputs that get a gradient.
    `has_exits`: whether a gradient leaves the module, or a module inside.
    """

    entries: list[Any]
    nodes: list[Any]
    exits: list[Any]
    beyond: list[Any]
    has_exits: bool


def part_of(outputs: list[torch.Tensor], before: set[Any], inner: Mapping[Any, Part]) -> Part:
    """Return a module's part of the graph. It is empty if no gradient flows.

    `before`: the nodes of the inputs before the forward. `inner`: the parts of the modules inside, by their entries. If
    a tensor reaches the module other than through its inputs, the tensor's history belongs to the module's part, too.
    """
    entries = list(dict.fromkeys(t.grad_fn for t in outputs if t.grad_fn is not None and t.grad_fn not in before))
    visited, todo, nodes, exits, beyond, has_inner = set(entries), list(entries), [], [], {}, False
    while todo:
        node = todo.pop()
        part = inner.get(node)
        following = part.beyond if part else [after for after, _ in node.next_functions if after is not None]
        # A leaf's own node is excluded, because the node of a tied parameter runs only after all its users.
        further = [after for after in following if after not in before and after.next_functions]
        beyond |= dict.fromkeys(after for after in following if after in before)
        if part:
            has_inner = True
        else:
            nodes.append(node)
            if len(further) < len(following) or not following:
                exits.append(node)
        fresh = [after for after in dict.fromkeys(further) if after not in visited]
        visited.update(fresh)
        todo += fresh
    return Part(entries, nodes, exits, [*beyond], has_inner or bool(exits))
