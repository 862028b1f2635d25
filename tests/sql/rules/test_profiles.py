"""bound_by.csv, edge_types.csv and switches.csv: each edge of a profile's graph has its label, each switch its value."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.base.datafiles import rule_rows
from pipelines.critical_path.graph.edge_types import EDGE_TYPES, EdgeType, edge_codes, read_type
from pipelines.critical_path.graph.windows import WindowRequest, request_windows
from pipelines.critical_path.whatif.window import load
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import call, connect, kernel, op, sync

WORK = {
    "gemm": "COMPUTATION",
    "ncclDevKernel_AllReduce": "COMMUNICATION",
    "Memcpy DtoH (Device -> Pageable)": "MEMORY",
    "job_exe": "OTHER",
}
CATS = {"Memcpy DtoH (Device -> Pageable)": "gpu_memcpy", "job_exe": "mtia_ccp_events"}


def every_kind_of_edge() -> list[dict[str, Any]]:
    """Return operators, a stream with work of every class and gaps, and waits of the CPU and of another stream."""
    events = [op("aten::a", 0, 8), call("cudaLaunchKernel", 1, 2, 30), kernel("gemm", 6, 2, 30, stream=11)]
    for i, name in enumerate(WORK):
        events.append(call("cudaLaunchKernel", 10 + 4 * i, 3, i + 1))
        events.append(kernel(name, 40 + 30 * i, 20, i + 1, cat=CATS.get(name, "kernel")))
    events += [
        call("cudaEventRecord", 30, 1, 20),
        call("cudaStreamWaitEvent", 32, 1, 21),
        sync("Stream Wait Event", 32, 1, 21, 9, wait_on_stream=7, wait_on_cuda_event_record_corr_id=20),
        call("cudaLaunchKernel", 34, 2, 22),
        kernel("gemm", 155, 5, 22, stream=9),
        call("cudaDeviceSynchronize", 40, 125, 23),
        sync("Context Sync", 40, 122, 23),
        op("aten::b", 170, 5),
    ]
    return events


HTA = {
    ("KERNEL_KERNEL_DELAY", None): "gpu_kernel_kernel_overhead",
    ("KERNEL_LAUNCH_DELAY", None): "gpu_kernel_launch_overhead",
    ("DEPENDENCY", None): "",
    ("SYNC_DEPENDENCY", None): "",
    ("OPERATOR_KERNEL", "CPU"): "cpu_bound",
    ("OPERATOR_KERNEL", "COMMUNICATION"): "gpu_communication_bound",
    ("OPERATOR_KERNEL", "COMPUTATION"): "gpu_compute_bound",
    ("OPERATOR_KERNEL", "MEMORY"): "gpu_compute_bound",
    ("OPERATOR_KERNEL", "OTHER"): "gpu_compute_bound",
}
DEFAULT = {
    **HTA,
    ("SYNC_DEPENDENCY", None): "gpu_kernel_kernel_overhead",  # between streams; otherwise the call's time
    ("HOST_GAP", None): "host_gap",
    ("OPERATOR_KERNEL", "MEMORY"): "gpu_memory_bound",
    ("OPERATOR_KERNEL", "OTHER"): "gpu_other_bound",
}


@pytest.mark.slow  # 4 s
@pytest.mark.parametrize(("profile", "expected"), [("hta", HTA), ("default", DEFAULT)])
def test_what_each_edge_is_bound_by(profile: str, expected: dict[tuple[str, str | None], str]) -> None:
    """The labels cover every type of edge and work of every class. Each edge has a label."""
    con, trace_id = connect(every_kind_of_edge())
    window = load(con, load_catalog(), WindowRequest(trace_id, profile=profile))
    run_models(con, load_catalog(), ["_edges"])
    ((edges,),) = con.execute("SELECT count(*) FROM _edges").fetchall()
    assert len(window.edge_id) == edges
    labels = set()
    for kind, owner, bound in zip(window.kind, window.owner, window.bound, strict=True):
        own = window.kinds[kind] == "OPERATOR_KERNEL"
        of_class = window.events.families[window.events.family[owner]][0] if own and owner >= 0 else None
        labels.add(((window.kinds[kind], of_class), window.bounds[bound]))
    # In default, no edge of this trace only states an order.
    only = {("DEPENDENCY", None)} if profile == "default" else set()
    into_call = {(("SYNC_DEPENDENCY", None), "cpu_bound")} if profile == "default" else set()
    assert labels == {(kind, label) for kind, label in expected.items() if kind not in only} | into_call


def test_what_each_type_says_agrees() -> None:
    """The columns equal the fields of EdgeType. Numbers, names and short names are unique."""
    assert list(EdgeType.__annotations__) == list(rule_rows("edge_types")[0])
    for column in ("edge_code", "edge_type", "hta_type"):
        assert len({getattr(kind, column) for kind in EDGE_TYPES.values()}) == len(EDGE_TYPES)
    targets = [kind.target for kind in EDGE_TYPES.values() if kind.target]
    assert len(set(targets)) == len(targets)
    for kind in EDGE_TYPES.values():
        assert kind.time_of in ("event", "source", "nobody") and kind.meaning
    with pytest.raises(ValueError, match=r"edge_types\.csv: is_gap of OPERATOR_KERNEL is 'yes': write true or false"):
        read_type({**rule_rows("edge_types")[0], "is_gap": "yes"})
    with pytest.raises(ValueError, match="unknown edge type 'X'; choose one of OPERATOR_KERNEL"):
        edge_codes(["DEPENDENCY", "X"])


def test_python_and_models_read_the_same_types() -> None:
    con, _ = connect([op("aten::a", 0, 8)])
    run_models(con, load_catalog(), ["edge_types"])
    rows = con.execute("SELECT * FROM edge_types ORDER BY edge_code").fetchall()
    ours = [tuple(getattr(kind, name) for name in EdgeType.__annotations__) for kind in EDGE_TYPES.values()]
    assert [tuple("" if value is None else value for value in row) for row in rows] == ours


@pytest.mark.slow  # 4 s
def test_work_is_of_one_class_in_breakdown_and_path() -> None:
    """Work has the same class in the breakdown and on the path.

    This includes MTIA's stages. Work of class OTHER in `kernels` does not count as computing on the path.
    """
    con, _ = connect(every_kind_of_edge())
    run_models(con, load_catalog(), ["kernels", "critical_path"])
    query = (
        "SELECT DISTINCT k.class, p.bound_by FROM critical_path AS p JOIN kernels AS k ON k.event_id = p.attributed_event_id "
        "WHERE p.edge_type = 'OPERATOR_KERNEL' AND p.path_weight_ns > 0"
    )
    labels = set(con.execute(query).fetchall())
    assert labels == {(of_class, DEFAULT["OPERATOR_KERNEL", of_class]) for of_class in WORK.values()}


SWITCHES = {
    # name: (column of _profiles, HTA's value, ours); docs/differences-from-hta.md gives the reasons
    "drop_last_step": ("drop_last_step", True, False),
    "keep_zero_duration": ("keep_zero_duration", False, True),
    "stream_by_device": ("stream_by_device", False, True),
    "side_by_stream_argument": ("side_by_stream_argument", True, False),
    "one_kernel_per_launch": ("one_kernel_per_launch", True, False),
    "launch_delay_needs_queue": ("launch_delay_needs_queue", True, False),
    "zero_weight_launch": ("zero_weight_launch", False, True),
    "kernel_gap_limit_ns": ("kernel_gap_limit_ns", 1_500_000, 2**63 - 1),
    "one_wait_per_kernel": ("one_wait_per_kernel", True, False),
    "keep_overlapped_call_time": ("keep_overlapped_call_time", False, True),
    "exit_pops_top": ("exit_pops_top", True, False),
    "blocking_is_free": ("blocking_is_always_free", "always", "when_waiting"),
    "covers_window": ("covers_window", False, True),
    "negative_weight_is_zero_from_ns": ("zero_from_ns", -1000, -1),
    "instances_on_cpu": ("instances_on_cpu", False, True),
    "summary_weight": ("summary_of_measured", "measured", "used"),
    "overlap_counts_once": ("overlap_counts_once", False, True),
    "dependencies": ("data_dependencies", "serial", "serial"),
    "whole_trace_history": ("whole_trace_history", False, True),
    "infer_waits": ("infer_waits", "never", "without_sync_events"),
    "forward_thread": ("steps_name_forward_thread", "by_name", "by_name_or_step"),
}
SETS = {
    "blocking_is_free": "always",
    "summary_weight": "measured",
    "dependencies": "data",
    "infer_waits": "without_sync_events",
    "forward_thread": "by_name_or_step",
}
"""The value that sets the flag, for switches whose values are not booleans."""


def _value(switch: str, value: Any) -> Any:
    return value == SETS[switch] if switch in SETS else value


def test_every_switch_has_a_value_in_both_profiles_and_can_be_set() -> None:
    con, trace_id = connect([op("a", 0, 1)])
    for place, profile in enumerate(("hta", "default")):
        _check_profile(con, trace_id, profile, {name: (row[0], row[1 + place]) for name, row in SWITCHES.items()})


def _check_profile(con: Any, trace_id: str, profile: str, switches: dict[str, tuple[str, Any]]) -> None:
    request = [WindowRequest(trace_id, profile=profile)]
    request_windows(con, request)
    run_models(con, load_catalog(), ["_profiles", "switches"])
    row = con.execute(f"SELECT {', '.join(column for column, _ in switches.values())} FROM _profiles").fetchall()[0]
    assert list(row) == [_value(name, value) for name, (_, value) in switches.items()]
    listed = con.execute(f"SELECT switch FROM switches WHERE profile = '{profile}'").fetchall()
    assert sorted(name for (name,) in listed) == sorted(switches)
    others = {}
    for name, (_, value) in switches.items():
        others[name] = str(not value).lower() if isinstance(value, bool) else "123" if isinstance(value, int) else ""
        if name in SETS:
            others[name] = "something else" if value == SETS[name] else SETS[name]
    request_windows(con, request, {(profile, name): value for name, value in others.items()})
    run_models(con, load_catalog(), ["_profiles"])
    changed = con.execute(f"SELECT {', '.join(column for column, _ in switches.values())} FROM _profiles").fetchall()[0]
    # `dependencies` is changed here. With data dependencies, no window has a covering path.
    turned = [name != "covers_window" or profile == "default" for name in switches]
    assert [now != was for now, was in zip(changed, row, strict=True)] == turned
