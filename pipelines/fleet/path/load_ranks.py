"""Traces in a DuckDB connection → graphs of their ranks.

The graph is the `default` profile's, so that it includes CUDA and HIP graphs, every device and the last step, with the
switches that the walk needs. Time inside a blocking call is not work of any event: what it waited for is known, guessed
or a gap. Events without a duration take no time on a path. Waits and hand-offs between threads are guessed while
walking (guesses.py), so the graph has no inferred ones. With these, path and shares of the reference capture equal
those of HTA's graph (profile `hta` with `zero_weight_launch`), segment for segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import duckdb
import numpy as np

from pipelines.critical_path.graph.windows import WindowRequest, request_windows
from pipelines.fleet.path.rank_graph import RankEvents, RankGraph, rank_graph
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models

PROFILE = "default"
SWITCHES = {
    "blocking_is_free": "always",
    "keep_zero_duration": "false",
    "infer_waits": "never",
    "forward_thread": "by_name",
    "covers_window": "false",
}
_MODELS = ("_edges", "_path_events")


def load_ranks(
    con: duckdb.DuckDBPyConnection,
    ranks: Mapping[int, str],
    profile: str = PROFILE,
    switches: Mapping[str, str] = SWITCHES,
) -> Iterator[RankGraph]:
    """Returns the whole traces (rank → trace_id) as graphs, from the tables `events`, `traces` and `findings` in `con`.

    Their tables are computed together and must fit into memory.
    """
    overrides = {(profile, switch): value for switch, value in switches.items()}
    request_windows(con, [WindowRequest(trace_id, profile=profile) for trace_id in ranks.values()], overrides)
    run_models(con, load_catalog(), [*_MODELS, "critical_path_windows"])
    synced = con.execute("SELECT DISTINCT trace_id FROM events WHERE cat = 'cuda_sync'").fetchall()
    windows = dict(con.execute("SELECT trace_id, window_no FROM critical_path_windows").fetchall())
    for rank, trace_id in ranks.items():
        window = windows.get(trace_id, -1)  # a trace without events has no window
        yield _read(con, rank, trace_id, window, may_guess=(trace_id,) not in synced)
    for table in _MODELS:
        con.execute(f"DROP TABLE {table}")


def _read(con: duckdb.DuckDBPyConnection, rank: int, trace_id: str, window: int, may_guess: bool) -> RankGraph:
    events = con.execute(f"SELECT * FROM _path_events WHERE window_no = {window} ORDER BY event_id").fetchnumpy()
    edges = con.execute(
        "SELECT src_node_id, dst_node_id, path_weight_ns, edge_code, coalesce(attributed_event_id, -1) AS owner "
        f"FROM _edges WHERE window_no = {window} ORDER BY edge_id"
    ).fetchnumpy()
    event_id = np.asarray(events["event_id"])
    return rank_graph(rank, trace_id, _events(events, event_id), _edges(edges, event_id), may_guess)


def _events(rows: dict[str, Any], event_id: np.ndarray) -> RankEvents:
    return RankEvents(
        event_id=event_id,
        start_ns=np.asarray(rows["start_ns"]),
        end_ns=np.asarray(rows["end_ns"]),
        is_gpu=np.asarray(rows["is_gpu"], bool),
        lane=np.asarray(rows["lane"], np.int32),
        process=np.asarray(rows["process"], np.int32),
        launch=_places(rows["launch_event_id"], event_id),
        blocking=np.asarray(rows["is_blocking"], bool),
        copy=np.asarray(rows["is_copy"], bool),
    )


def _edges(rows: dict[str, Any], event_id: np.ndarray) -> dict[str, np.ndarray]:
    def nodes(name: str) -> np.ndarray:
        ids = np.asarray(rows[name])
        return 2 * _places(ids // 2, event_id) + ids % 2

    return {
        "src": nodes("src_node_id"),
        "dst": nodes("dst_node_id"),
        "weight": np.asarray(rows["path_weight_ns"]),
        "code": np.asarray(rows["edge_code"]),
        "owner": _places(rows["owner"], event_id),
    }


def _places(wanted: Any, event_id: np.ndarray) -> np.ndarray:
    """Returns the positions of the wanted events among the graph's; -1 where they are missing."""
    wanted = np.asarray(wanted)
    if not len(event_id):
        return np.full(len(wanted), -1, np.int32)
    place = np.minimum(np.searchsorted(event_id, wanted), len(event_id) - 1)
    return np.where(event_id[place] == wanted, place, -1).astype(np.int32)
