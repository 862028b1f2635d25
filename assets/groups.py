"""Groups of assets, ordered from left to right in the UI. Each group is small enough to fit a screen when it is expanded.

inputs → events → gpu, host, sync → graph → path, causes → fleet leads from a file to its answers. The other groups contain rules,
other inputs, and tables that are not on that way.
"""

import re
from urllib.parse import quote

from pipelines.models.catalog import Model

WAY = (("inputs",), ("events",), ("gpu", "host", "sync"), ("graph",), ("path", "causes"), ("fleet",))
"""The way from a file to its answers. No group of a stage reads a group of a later stage."""
LINEAGE = "/asset-groups~" + quote(" or ".join(f'group:"{group}"' for stage in WAY for group in stage), safe="")
"""The path in Dagster's UI that shows only the groups of that way, collapsed, on one screen."""
# Group names of layers. Any other layer is a group under its own name.
_LAYERS = {
    "ingest": "inputs",
    "canonical": "events",
    "cpu": "host",
    "critical_path": "path",
    "summary": "gpu",
    "modelling": "utilization",
}
# Prefix (regex) of a table's name → group, per layer. The first match wins; other tables are in the layer's group.
_PARTS = {
    "critical_path": {
        "causes|fixes|window_gpu_time|profiler_cost": "causes",
        "critical_path_(windows|nodes|edges)$": "graph",
    },
    "summary": {"critical_path_|quality": "path"},
    "ingest": {
        "(traces|events|findings|execution_trace_matches)$": "events",
        "schedule_": "schedule_runs",
        "flight_recorder_": "flight_recorder",
        "inspector_": "nccl_inspector",
        "counter_|kernel_counters": "counters",
        "compile": "compiled_kernels",
        "snapshot_(allocations|timeline|peak|fragmentation|trace_)": "memory_snapshot_answers",
        "memory_snapshots|snapshot_": "memory_snapshots",
        "op_job": "op_jobs",
        "recordings|.*_samples$|span_sample_": "recordings",
    },
    "modelling": {
        "memory_|snapshot_": "memory",
        "span_sample|.*_rates$": "recordings",
        "gpu_metrics|(kernel|span)_gpu_metrics": "gpu_metrics",
        "span_counters|counter_values": "counters",
        "kernel_measurements|kernels_measured|op_bytes_measured": "counters",
        "op_|family_|graph_|compile_|kernel_provenance": "operators",
        "serving_|expert_": "serving",
        "span|unattributed_": "spans",
        "critical_path_": "path",
        "idle_": "causes",
        "host_gpu_overlap|python_frame_gpu_time|backward_links": "host",
    },
    "fleet": {
        "flight_recorder_": "flight_recorder",
        "expert_": "serving",
        "capture_causes": "causes",
        "capture_critical_path|capture_paths|capture_fixes|kernel_criticality": "capture_path",
        "capture": "captures",
        "collective|clock_": "collectives",
    },
    "rules": {
        "cause_|fix_": "causes",
        "match_evidence": "collectives",
        "counter_": "counters",
        "serving_": "serving",
        "device|network|job_prices|element_sizes|profiler_": "machines",
        "nsys_|nvtx_|rocm_|perfetto_|xplane_|memory_kinds": "other_profilers",
        "kernel_|class_kinds|tensor_core_": "kernel_classes",
        "call_|capture_calls|op_|step_|group_|collective_|stack_frames": "names",
    },
}


def group_of(model: Model) -> str:
    """Return the group of a table's asset."""
    for prefix, group in _PARTS.get(model.layer, {}).items():
        if re.match(prefix, model.name):
            return group
    return _LAYERS.get(model.layer, model.layer)
