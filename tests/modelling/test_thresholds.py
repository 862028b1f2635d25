"""Both sides of each threshold of modelling: at the value, and one unit beyond."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from pipelines.modelling.custom_formulas import _mostly_whole
from pipelines.models.catalog import load_catalog


def rows(model: str, **tables: str) -> list[tuple]:
    """Return the rows of a model over tables created from SELECTs."""
    with duckdb.connect() as con:
        for name, select in tables.items():
            con.execute(f"CREATE TABLE {name} AS {select}")
        return con.execute(load_catalog().models[model].sql).fetchall()


def is_suspect(gigabytes_per_s: float) -> bool:
    """Return whether a collective with this rate over links of 100 GB/s is suspect."""
    select = f"SELECT 't' AS trace_id, 'a' AS kind, {round(gigabytes_per_s * 1000)} AS bytes, 2 AS group_size, FALSE AS spans_nodes, "
    (row,) = rows(
        "collective_bandwidth_by_size",
        collective_bandwidth=f"{select} 100 AS limit_gigabytes_per_s, 1000 AS duration_ns, 9 AS ideal_ns, 1e0 AS factor",
    )
    return row[-1]


SEQUENCE = "SELECT 't' AS trace_id, 1 AS replay_id, 1 AS sequence_id"


def nodes(names: str) -> str:
    """Return SQL for a replay's kernels, one per letter of `names`."""
    letters = ", ".join(f"({place}, '{letter}', {ord(letter)})" for place, letter in enumerate(names))
    return (
        "SELECT 't' AS trace_id, 1 AS replay_id, ordinal, name, signature_id, 'kernel' AS cat, NULL AS grid, NULL AS block, "
        f"NULL AS bytes FROM (VALUES {letters}) AS v(ordinal, name, signature_id)"
    )


def is_matched(names: str) -> bool:
    """Return whether a graph's sequence matches if the same work ran outside graphs."""
    sequence = f"{SEQUENCE}, {len(names)} AS n_nodes, {len(set(names))} AS n_names"
    eager = f"SELECT * EXCLUDE (replay_id, signature_id), 0 AS device FROM ({nodes(names)})"
    pairs = "SELECT 't' AS trace_id, 't' AS capture_trace_id"
    tables = {"_graph_sequences": sequence, "_graph_nodes": nodes(names), "_eager_kernels": eager}
    return bool(rows("_eager_matches", _graph_capture_pairs=pairs, **tables))


def has_layers(names: str) -> bool:
    sequence = f"{SEQUENCE}, {len(names)} AS n_nodes"
    return bool(rows("_graph_periods", _graph_sequences=sequence, _graph_nodes=nodes(names)))


def has_mean(samples: int) -> bool:
    metric = "SELECT 't' AS trace_id, 0 AS device, 'm' AS metric, 10 * n AS at_ns, 7 AS value"
    kernels = "SELECT 't' AS trace_id, 0 AS device, 1 AS event_id, 5 AS start_ns, 1000 AS end_ns"
    (row,) = rows("kernel_gpu_metrics", gpu_metrics=f"{metric} FROM range(1, {samples + 1}) AS r(n)", kernels=kernels)
    return row[-1] is not None


def has_mean_of_span(samples: int) -> bool:
    span = "SELECT 't' AS trace_id, 1 AS span_id, 'fwd' AS phase"
    (row,) = rows(
        "span_gpu_metrics",
        span_gpu_work=f"{span}, 1 AS event_id",
        span_kernels=f"{span}, 1 AS n, 10 AS sum_ns",
        kernel_gpu_metrics=f"SELECT 't' AS trace_id, 1 AS event_id, 'm' AS metric, {samples} AS n_samples, 7 AS total",
        kernels="SELECT 't' AS trace_id, 1 AS event_id, 10 AS duration_ns",
    )
    return row[-1] is not None


def is_known(rest: int) -> bool:
    """Return whether the bytes are known for two tensors of equal size and a small one of `rest` bytes.

    The three tensors have 1 MB in total.
    """
    half = (1_000_000 - rest) // 2
    sizes = [(100, half), (100, 1_000_000 - rest - half), (1, rest)]
    tensors: list[Any] = [SimpleNamespace(n=n, bytes=size) for n, size in sizes]
    return _mostly_whole(tensors, 100, 1_000_000)


# name[/use]: the decision, a value for which it is true, and a value for which it is false
BOUNDARIES = {
    "ideal_suspect": (is_suspect, 105.001, 105),
    "eager_match_nodes": (is_matched, "abab", "aba"),
    "eager_match_names": (is_matched, "abab", "aaaa"),
    "graph_period_repeats": (has_layers, "abcabcabc", "abcabcab"),
    "graph_period_repeats/nodes": (has_layers, "ababab", "ababa"),
    "graph_period_least": (has_layers, "abababab", "aaaaaaaa"),
    "graph_period_cover": (has_layers, "ababab" + "uvwxyz", "ababab" + "tuvwxyz"),
    "formula_unknown": (is_known, 50_000, 50_001),
    "metric_samples": (has_mean, 3, 2),
    "metric_samples/span": (has_mean_of_span, 3, 2),
}


@pytest.mark.parametrize("name", BOUNDARIES)
def test_both_sides(name: str) -> None:
    decide, holds, does_not = BOUNDARIES[name]
    assert (decide(holds), decide(does_not)) == (True, False)
