"""Groups of assets, small enough that one fits a screen when it is expanded: a layer of sql/, or a part of a large one."""

import re

from pipelines.models.catalog import Model

# Tables of a layer whose names begin like this, in the order in which they are tried; the others are in the layer's own.
_PARTS = {
    "critical_path": {"causes|window_gpu_time": "causes"},
    "ingest": {
        "schedule_": "schedule_runs",
        "flight_recorder_": "flight_recorder",
        "inspector_": "nccl_inspector",
        "compile": "compiled_kernels",
        "snapshot_(allocations|timeline|peak|fragmentation|trace_)": "memory_snapshot_answers",
        "memory_snapshots|snapshot_": "memory_snapshots",
        "op_job": "op_jobs",
        "recordings|.*_samples$|span_sample_": "recordings",
    },
    "modelling": {
        "memory_|snapshot_": "memory",
        "span_sample|.*_rates$": "recordings",
        "op_|family_|graph_|compile_|kernel_provenance": "operators",
        "serving_|expert_": "serving",
        "span|unattributed_": "spans",
    },
    "fleet": {
        "flight_recorder_": "flight_recorder",
        "expert_": "serving",
        "capture_causes": "causes",
        "capture_critical_path|capture_paths|kernel_criticality": "capture_path",
        "capture": "captures",
        "collective|clock_": "collectives",
    },
    "rules": {
        "cause_": "causes",
        "serving_": "serving",
        "device|network|job_prices|element_sizes": "machines",
        "nsys_|nvtx_|rocm_|perfetto_": "other_profilers",
        "call_|capture_calls|op_|step_|group_|collective_": "names",
    },
}


def group_of(model: Model) -> str:
    """Returns the group of a table's asset."""
    for beginning, group in _PARTS.get(model.layer, {}).items():
        if re.match(beginning, model.name):
            return group
    return model.layer
