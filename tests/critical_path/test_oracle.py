"""The `hta` profile compared with the plain-Python oracle on random captures: every edge and the path's length."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.effort import examples
from tests.harness import answers
from tests.synthetic.random_capture import random_capture


@pytest.fixture(scope="module")
def oracle(shared: Path) -> Any:
    """Load the reference implementation of the reference material."""
    spec = importlib.util.spec_from_file_location("hta_oracle", shared / "oracle" / "hta_oracle.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow  # 5 s
def test_random_captures_have_the_oracles_edges(oracle: Any, tmp_path: Path) -> None:
    seeds = examples(20)
    paths, expected = [], []
    for seed in range(seeds):
        path = tmp_path / f"{seed}.json"
        path.write_text(json.dumps(random_capture(seed)))
        try:
            ranks, _ = oracle.load([str(path)])
            expected.append(oracle.graph(next(iter(ranks.values())), "", None))
            paths.append(path)
        except AssertionError:
            continue  # the oracle raises if HTA does
    for path, theirs, (con, answer) in zip(paths, expected, answers(paths, "hta"), strict=True):
        ours = Counter(
            con.execute("SELECT src_node_id, dst_node_id, weight_ns, edge_type FROM critical_path_edges").fetchall()
        )
        edges = theirs["edges"].items()
        assert ours == Counter((2 * u[0] + u[1], 2 * v[0] + v[1], 1000 * w, t) for (u, v), (w, t) in edges), path
        if answer.success:
            assert answer.length_us == theirs["length"], path
    assert len(paths) >= 0.85 * seeds
