"""Random captures: small, reproducible from a seed, varied, and accepted by the reference implementation."""

from __future__ import annotations

import importlib.util
import itertools
import json
from collections import Counter, defaultdict
from pathlib import Path
from types import ModuleType

import pytest

from tests.synthetic.random_capture import random_capture

ORACLE = Path(__file__).parents[2].parent / "shared" / "oracle" / "hta_oracle.py"
TYPES = {"OPERATOR_KERNEL", "DEPENDENCY", "KERNEL_LAUNCH_DELAY", "KERNEL_KERNEL_DELAY", "SYNC_DEPENDENCY"}


def load_oracle() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hta_oracle", ORACLE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_same_seed_same_document() -> None:
    assert random_capture(7) == random_capture(7) != random_capture(8)


@pytest.mark.parametrize("seed", range(0, 200, 20))
def test_shape(seed: int) -> None:
    events = random_capture(seed)["traceEvents"]
    assert 0 < len(events) <= 200
    assert all(isinstance(e["ts"], int) and e["ts"] >= 1_000_000 for e in events)
    spans = [e for e in events if e["ph"] == "X"]
    assert all(isinstance(e["dur"], int) and e["dur"] >= 1 for e in spans)
    queues = defaultdict(list)
    for e in spans:
        if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset"):
            queues[e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    for queue in queues.values():
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(queue))


@pytest.mark.slow  # 3 s; the test above checks the shape of captures
@pytest.mark.skipif(not ORACLE.exists(), reason="the shared oracle is not beside this checkout")
def test_the_oracle_takes_nearly_all(tmp_path: Path) -> None:
    oracle, path = load_oracle(), tmp_path / "trace.json"
    types: Counter[str] = Counter()
    taken = 0
    for seed in range(200):
        path.write_text(json.dumps(random_capture(seed)))
        try:
            ranks, _ = oracle.load([str(path)])
            graph = oracle.graph(ranks[0], "", None)
        except (AssertionError, KeyError, TypeError, ValueError):
            continue  # mostly a cycle, for which HTA finds no path either
        taken += 1
        types.update({kind for _, kind in graph["edges"].values()})
    assert taken >= 190
    assert set(types) == TYPES and min(types.values()) > 80
