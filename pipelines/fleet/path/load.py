"""One trace in a DuckDB connection → the graph of its rank.

The graph is the `default` profile's, so that CUDA and HIP graphs, every device and the last step are in it, with two
switches as the walk needs them. Time inside a blocking call is nobody's work: what it waited for is found, guessed or a
gap. Events without duration cannot take time on a path. With these, path and shares of the reference capture are those
of HTA's graph (profile `hta` with `zero_weight_launch`), segment for segment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import numpy as np

from pipelines.critical_path.windows import WindowRequest, request_windows
from pipelines.fleet.path.rank_graph import RankEvents, RankGraph, rank_graph
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.sqltext import quoted

PROFILE = "default"
SWITCHES = {"blocking_is_free": "always", "keep_zero_duration": "false"}
_MODELS = ("_edges", "_path_events")


def load_rank(
    con: duckdb.DuckDBPyConnection,
    trace_id: str,
    rank: int,
    profile: str = PROFILE,
    switches: Mapping[str, str] = SWITCHES,
) -> RankGraph:
    """The whole trace as a graph, from the tables `events`, `traces` and `findings` in `con`."""
    overrides = {(profile, switch): value for switch, value in switches.items()}
    request_windows(con, [WindowRequest(trace_id, profile=profile)], overrides)
    run_models(con, load_catalog(), _MODELS)
    synced = con.execute(f"SELECT count(*) FROM events WHERE trace_id = {quoted(trace_id)} AND cat = 'cuda_sync'")
    may_guess = synced.fetchall()[0][0] == 0
    events = con.execute("SELECT * FROM _path_events ORDER BY event_id").fetchnumpy()
    edges = con.execute(
        "SELECT src_node_id, dst_node_id, path_weight_ns, edge_code, coalesce(attributed_event_id, -1) AS owner "
        "FROM _edges ORDER BY edge_id"
    ).fetchnumpy()
    for table in _MODELS:
        con.execute(f"DROP TABLE {table}")
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
    """Where the wanted events stand among the graph's; -1 where they do not."""
    wanted = np.asarray(wanted)
    if not len(event_id):
        return np.full(len(wanted), -1, np.int32)
    place = np.minimum(np.searchsorted(event_id, wanted), len(event_id) - 1)
    return np.where(event_id[place] == wanted, place, -1).astype(np.int32)
