"""Parts of the autograd graph by module, compared with a walk of the whole graph of each module."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from pipelines.record.modules.graph import Part, part_of, tensors_in  # noqa: E402
from pipelines.record.modules.hooks import Hooks  # noqa: E402
from pipelines.record.spans import record_spans  # noqa: E402


def whole_part(outputs: list[Any], before: set[Any]) -> tuple[set[Any], set[Any]]:
    """Return all nodes between outputs and inputs, and those that pass a gradient to an input or a leaf."""
    todo = [tensor.grad_fn for tensor in outputs if tensor.grad_fn is not None and tensor.grad_fn not in before]
    nodes, exits = set(todo), set()
    while todo:
        node = todo.pop()
        following = [after for after, _ in node.next_functions if after is not None]
        inside = [after for after in following if after not in before and after.next_functions]
        if len(inside) < len(following) or not following:
            exits.add(node)
        todo += [after for after in inside if after not in nodes]
        nodes.update(inside)
    return nodes, exits


class Mixed(torch.nn.Module):
    """Random modules inside each other, with inputs that skip some, side outputs, and outputs in place of inputs."""

    def __init__(self, dice: random.Random, depth: int) -> None:
        super().__init__()
        self.kinds = [dice.choice(("linear", "inside", "skip", "side", "detach", "same")) for _ in range(3)]
        if depth == 0:
            self.kinds = [kind if kind != "inside" else "linear" for kind in self.kinds]
        inner = [Mixed(dice, depth - 1) if kind == "inside" else torch.nn.Linear(2, 2) for kind in self.kinds]
        self.inner = torch.nn.ModuleList(inner)

    def forward(self, x: Any, side: Any = None) -> tuple[Any, Any]:
        start = x
        for kind, module in zip(self.kinds, self.inner, strict=True):
            if kind == "inside":
                x, side = module(x, side)
            elif kind == "detach":
                x = x + module(x).detach()
            elif kind == "side":
                side = module(x)
            elif kind != "same":
                x = module(x) + (start if kind == "skip" else 0)
        return x, side


@pytest.mark.parametrize("seed", range(30))
def test_the_parts_of_a_module_and_of_those_inside_it_are_its_whole_part(seed: int) -> None:
    model = Mixed(random.Random(seed), 3)
    parts: dict[Any, Part] = {}
    parents: list[tuple[Any, set[Any], dict[Any, Part]]] = []

    def before(module: Any, args: Any) -> None:
        parents.append((module, {t.grad_fn for t in tensors_in(args) if t.grad_fn is not None}, {}))

    def after(module: Any, args: Any, output: Any) -> None:
        _, inputs, inner = parents.pop()
        part = part_of(tensors_in(output), inputs, inner)
        nodes, exits = whole_part(tensors_in(output), inputs)
        # Parts inside that an output reaches, with all that they contain.
        reached = [inside for entry, inside in inner.items() if entry in nodes]
        all_nodes = set(part.nodes).union(*(known[id(of)][0] for of in reached))
        all_exits = set(part.exits).union(*(known[id(of)][1] for of in reached))
        assert part.has_exits == bool(exits)
        assert nodes <= all_nodes and exits <= all_exits
        assert len(part.nodes) == len(set(part.nodes)) and not set(part.nodes) & set(inner)
        known[id(part)] = all_nodes, all_exits
        parts[module] = part
        if part.has_exits and parents:
            parents[-1][2].update(dict.fromkeys(part.entries, part))

    known: dict[int, tuple[set[Any], set[Any]]] = {}
    for module in model.modules():
        if not isinstance(module, torch.nn.ModuleList):
            module.register_forward_pre_hook(before)
            module.register_forward_hook(after)
    model(torch.randn(1, 2, requires_grad=True) * 1)
    assert model in parts and not parents


def hooks_on_nodes(monkeypatch: pytest.MonkeyPatch, folder: Path, model: Any) -> int:
    """Return how many hooks a sampled step installs on nodes of the graph."""
    installed = []
    for name in ("before_node", "after_node"):
        usual = getattr(Hooks, name)
        monkeypatch.setattr(Hooks, name, lambda self, *args, usual=usual: (installed.append(1), usual(self, *args)))
    with record_spans(model, folder, 1.0) as spans, spans.step():
        model(torch.randn(3, 2)).sum().backward()
    monkeypatch.undo()
    return len(installed)


def test_modules_around_others_add_no_hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules around other modules add no hooks.

    Otherwise a sampled step would take as many times longer as the modules are nested.
    """
    flat = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(4)))
    nested = flat
    for _ in range(6):
        nested = torch.nn.Sequential(nested)
    n_flat = hooks_on_nodes(monkeypatch, tmp_path / "flat", flat)
    assert n_flat == hooks_on_nodes(monkeypatch, tmp_path / "nested", nested) > 0
