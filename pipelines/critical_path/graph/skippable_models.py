"""Models that need not be computed for a path, because of its switches or because the trace has no input for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import duckdb

from pipelines.base.datafiles import rule_rows, threshold
from pipelines.critical_path.graph.windows import WindowRequest
from pipelines.models.sqltext import quoted, row

# Models that only profiles with this switch read.
_SWITCHED = {
    "launch_delay_needs_queue": ("_queue",),
    "one_wait_per_kernel": ("_refused_windows",),
}
# Models that a covering path does not read, and models that only a covering path reads.
_NOT_COVERED = ("_stack_events", "_stack_edges", "_work_edges")
_COVERED = (
    "_thread_roles",
    "_queue_waits",
    "_call_claims",
    "_gpu_claims",
)
_EVENTS = ("_event_records", "_waits_for_events", "_event_waits")
_OF_EVENTS = ("Stream Wait Event", "Event Sync")
_ROLES = ("polls", "blocking", "only_waits", "wait", "record")
CALL_SUFFIXES = tuple(row["suffix"] for row in rule_rows("call_suffixes"))
"""Suffixes that a call's name may have, as in `_loaded_events`."""
_FULL_QUEUE, _SLOW_CALLS = threshold("full_queue_work"), threshold("full_queue_slow_launches")
_SLOW_NS = threshold("slow_launch_ns")
"""`_queue_waits` has no rows unless the trace has `_FULL_QUEUE` events on the GPU and `_SLOW_CALLS` launches longer
than `_SLOW_NS`, ns.
"""


def unneeded(
    con: duckdb.DuckDBPyConnection, request: WindowRequest, overrides: Mapping[tuple[str, str], str]
) -> frozenset[str]:
    """Return the models that can stay empty (`run_models`) without changing the path of this request."""
    of_profile = {rule["switch"]: rule["value"] for rule in rule_rows("switches") if rule["profile"] == request.profile}
    value = of_profile | {
        switch: chosen for (profile, switch), chosen in overrides.items() if profile == request.profile
    }
    model_names = [name for switch, names in _SWITCHED.items() if value[switch] == "false" for name in names]
    trace = _seen(con, request)
    covers = value["covers_window"] == "true" and value["dependencies"] == "serial"
    model_names += _NOT_COVERED if covers else _COVERED
    infers = value["infer_waits"] != "never"
    if not trace.events and not (infers and trace.unstated):
        model_names += _EVENTS
    # The profile may drop records because they belong to the last step or have no stream.
    sees_all = value["drop_last_step"] == "false" and value["side_by_stream_argument"] == "false"
    if not infers or (trace.records and sees_all and not trace.unstated and not trace.blocks):
        model_names.append("_inferred_waits")
    if not (infers and trace.polls):
        model_names.append("_poll_loops")
    if value["one_kernel_per_launch"] == "true" or (sees_all and not trace.graphs):
        model_names.append("_graph_dependencies")
    if not infers or trace.n_work < _FULL_QUEUE or (sees_all and trace.n_slow < _SLOW_CALLS):
        model_names.append("_queue_waits")
    return frozenset(model_names)


class _Seen(NamedTuple):
    """Flags and counts of the inputs of some models in a trace. A model without inputs need not be computed."""

    records: bool  # an event that `_loaded_events` treats as a recorded wait
    events: bool  # a recorded wait for an event
    polls: bool  # a call that polls whether GPU work has ended
    blocks: bool  # a call that waits for GPU work or for its own copy, without a recorded wait
    unstated: bool  # a wait for an event without a stream or without its record in the trace, or a cuda_event row
    graphs: bool  # two GPU activities of one call
    n_work: int  # GPU work, and other events on streams
    n_slow: int  # slow calls that may have launched GPU work


def _seen(con: duckdb.DuckDBPyConnection, request: WindowRequest) -> _Seen:
    of_trace = (
        f"FROM events WHERE trace_id = {quoted(request.trace_id)} AND duration_ns IS NOT NULL AND start_ns IS NOT NULL"
    )
    rules = [rule for rule in rule_rows("call_roles") if rule["profile"] == request.profile]
    of_role = {
        role: {rule["name"] + suffix for rule in rules if rule["role"] == role for suffix in CALL_SUFFIXES}
        for role in _ROLES
    }
    polls = row(["", *sorted(of_role["polls"])])
    unrecorded = row(["", *sorted(of_role["blocking"] - of_role["only_waits"] - of_role["polls"])])
    only_waits = of_role["only_waits"] - of_role["polls"]
    waits = row(["", *sorted(only_waits)])
    stream_waits = row(["", *sorted(of_role["wait"])])
    records_event = f"name IN {row(['', *sorted(of_role['record'])])}"
    is_work = f"cat IN {row([rule['cat'] for rule in rule_rows('category_sides') if rule['side'] == 'gpu'])}"
    is_sync = "cat = 'cuda_sync'"
    of_event = f"{is_sync} AND name IN {row(_OF_EVENTS)}"
    of_stream = f"{is_sync} AND name = 'Stream Wait Event'"
    is_linked = "coalesce(correlation > 0, FALSE)"
    ((records, events, asks, blocks, unstated, graphs, n_work, n_slow),) = con.execute(
        f"SELECT bool_or({is_sync} AND name IS NOT NULL), bool_or({of_event}), bool_or(name IN {polls}), "
        f"bool_or(name IN {unrecorded} OR cat = 'gpu_memcpy'), "
        f"bool_or({of_event} AND NOT coalesce(wait_on_stream >= 0 AND wait_on_cuda_event_record_corr_id > 0, false) "
        "OR cat = 'cuda_event'), "
        f"count(correlation) FILTER ({is_work} AND correlation > 0) > "
        f"count(DISTINCT correlation) FILTER ({is_work} AND correlation > 0), "
        f"count(*) FILTER ({is_work} OR stream IS NOT NULL), "
        f"count(correlation) FILTER (duration_ns > {_SLOW_NS} AND NOT {is_work} AND cat <> 'cuda_sync' AND name NOT IN {waits}) {of_trace}"
    ).fetchall()
    ((missing_record,),) = con.execute(
        f"SELECT count(*) > 0 {of_trace} AND {of_event} AND wait_on_cuda_event_record_corr_id > 0 AND "
        f"wait_on_cuda_event_record_corr_id NOT IN (SELECT correlation {of_trace} AND {is_linked} AND {records_event})"
    ).fetchall()
    ((rowless_wait, rowless_call),) = con.execute(
        "SELECT bool_or(makes_wait AND NOT has_wait_row), bool_or(waits AND NOT has_row) FROM ("
        f"SELECT bool_or(name IN {stream_waits}) AS makes_wait, bool_or({of_stream} AND {is_linked}) AS has_wait_row, "
        f"bool_or(name IN {waits}) AS waits, bool_or({is_sync} AND NOT ({of_stream}) AND {is_linked}) AS has_row "
        f"{of_trace} AND (name IN {stream_waits} OR name IN {waits} OR {is_sync}) GROUP BY correlation)"
    ).fetchall()
    return _Seen(
        records=bool(records),
        events=bool(events),
        polls=bool(asks),
        blocks=bool(blocks or rowless_call),
        unstated=bool(unstated or missing_record or rowless_wait),
        graphs=bool(graphs),
        n_work=n_work,
        n_slow=n_slow,
    )
