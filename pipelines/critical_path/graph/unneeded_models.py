"""The models of which a path needs no row, by its switches and by what the trace lacks: they are not computed."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb

from pipelines.base.datafiles import rule_rows
from pipelines.critical_path.graph.windows import WindowRequest
from pipelines.models.sqltext import quoted, row

# Read in profiles with this switch only.
_SWITCHED = {
    "launch_delay_needs_queue": ("_queue",),
    "drop_last_step": ("_last_steps", "_dropped_work"),
}
_BY_DATA = ("_data_operators", "_data_order", "_data_flows", "_data_edges", "_fallen_edges")
# A wait is either recorded by the trace or inferred.
_RECORDED = ("_launches", "_event_waits", "_sync_edges", "_wait_edges")
_EVENTS = ("_launches", "_event_waits")
_OF_EVENTS = ("Stream Wait Event", "Event Sync")
_POLLS = ("_polls", "_poll_runs", "_poll_loops", "_poll_waits", "_poll_claims")
_ROLES = ("polls", "blocking", "only_waits")
_FULL_QUEUE = 100
"""GPU work without which `_queue_waits` has no row."""
_INFERRED = ("_inferred_waits", "_inferred_edges", "_inferred_wait_edges")
_LIKELY = "_likely_waits"  # also of calls that wait and are never recorded


def unneeded(
    con: duckdb.DuckDBPyConnection, request: WindowRequest, overrides: Mapping[tuple[str, str], str]
) -> frozenset[str]:
    """Returns models that can stay without rows (`run_models`) and the path of this request is the same."""
    of_profile = {rule["switch"]: rule["value"] for rule in rule_rows("switches") if rule["profile"] == request.profile}
    value = of_profile | {
        switch: chosen for (profile, switch), chosen in overrides.items() if profile == request.profile
    }
    found = [name for switch, names in _SWITCHED.items() if value[switch] == "false" for name in names]
    if value["dependencies"] == "serial":
        found += _BY_DATA
    records, events, polls, blocks, n_work = _seen(con, request)
    if not records:
        found += _RECORDED
    elif not events:
        found += _EVENTS
    # The profile may drop the records with the last step, or because they have no stream.
    sees_all = value["drop_last_step"] == "false" and value["side_by_stream_argument"] == "false"
    if value["infer_waits"] == "never" or (records and sees_all):
        found += _INFERRED
        if value["infer_waits"] == "never" or not blocks:
            found.append(_LIKELY)
    if not polls:
        found += _POLLS
    if n_work < _FULL_QUEUE:
        found.append("_queue_waits")
    return frozenset(found)


def _seen(con: duckdb.DuckDBPyConnection, request: WindowRequest) -> tuple[bool, bool, bool, bool, int]:
    """Whether the trace has an event that `_loaded_events` takes for a recorded wait, one for an event, one that asks
    whether GPU work has ended, and one that waits for it and of which no wait is recorded; and how many are on streams.
    """
    known = (
        "duration_ns IS NOT NULL AND start_ns IS NOT NULL AND pid IS NOT NULL AND tid IS NOT NULL AND name IS NOT NULL"
    )
    rules = [rule for rule in rule_rows("call_roles") if rule["profile"] == request.profile]
    of_role = {role: {rule["name"] for rule in rules if rule["role"] == role} for role in _ROLES}
    polls = row(["", *sorted(of_role["polls"])])
    unrecorded = row(["", *sorted(of_role["blocking"] - of_role["only_waits"] - of_role["polls"])])
    ((records, events, asks, blocks, on_streams),) = con.execute(
        f"SELECT bool_or(cat = 'cuda_sync'), bool_or(cat = 'cuda_sync' AND name IN {row(_OF_EVENTS)}), "
        f"bool_or(name IN {polls}), bool_or(name IN {unrecorded}), count(stream) FROM events "
        f"WHERE trace_id = {quoted(request.trace_id)} AND {known}"
    ).fetchall()
    return bool(records), bool(events), bool(asks), bool(blocks), on_streams
