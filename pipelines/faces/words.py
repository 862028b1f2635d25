"""Words for the values of our own tables, for pages and screens.

Other values stay unchanged. JSON contains the original values.
"""

from __future__ import annotations

from typing import Any

from pipelines.base.datafiles import rule_rows

WORDS = {
    # what bounds a critical path
    "gpu_compute_bound": "GPU computing",
    "gpu_communication_bound": "communication",
    "gpu_memory_bound": "copies",
    "gpu_other_bound": "other GPU work",
    "cpu_bound": "host",
    "gpu_kernel_launch_overhead": "launch overhead",
    "gpu_kernel_kernel_overhead": "gaps between kernels",
    "gpu_earlier_work": "earlier GPU work",
    "host_gap": "host outside operators",
    "dependency": "order only",
    # causes of GPU time
    "compute": "computing",
    "straggler_wait": "waiting for late ranks",
    "exposed_communication": "exposed transfer",
    "unsplit_communication": "exposed communication, waiting or transfer",
    "exposed_memory": "exposed copies",
    "launch_overhead": "launch overhead",
    "idle_host": "waiting for the host (idle)",
    "recompute": "computing again",
    "not_in_trace": "not in the trace",
    "unattributed": "cause unknown",
    # how the operator of an allocation was determined
    "memory_event": "memory event",
    # kinds of segments of the path through all ranks
    "gpu_kernel": "GPU work",
    "cpu_op": "operator",
    "cuda_runtime": "runtime call",
    "cuda_driver": "driver call",
    "gpu_memcpy": "copy",
    "gpu_memset": "memset",
    "user_annotation": "annotation",
    "python_function": "Python",
    "thread_hand_off": "hand-over between threads",
    "launch_delay": "launch delay",
    "kernel_delay": "gap between kernels",
    "sync_return": "return of a wait",
    "cross_stream_wait": "wait for another stream",
    "head": "before the first event",
    "gap": "host outside operators",
    # delays and waits, by the type of their edges
    "kernel_launch_delay": "launch overhead",
    "kernel_kernel_delay": "gaps between kernels",
    "earlier_work": "earlier work from before the window",
    "thread_hand_offs": "hand-overs between threads",
    # what limits a step or an operator, why an operator has no model
    "comp": "computing",
    "load": "loading",
    "save": "saving",
    "op_not_modelled": "no formula",
    "no_shapes": "shapes not recorded",
    "bad_args": "unknown arguments",
    "no_launch": "launch not in the trace",
    "launch_without_op": "launched outside operators",
    "graph": "CUDA or HIP graph",
    # how the operators of a graph's kernels were determined
    "eager": "the same work outside graphs",
    "repetition": "layer only",
    "replay": "in graph replays",
    "fwd": "forward",
    "bwd": "backward",
    "window": "during the span",
    **{row["class"]: row["words"] for row in rule_rows("class_kinds")},
}


def in_words(value: Any) -> str:
    """Return a value of our tables in words, or any other value as text."""
    return WORDS.get(str(value), str(value))
