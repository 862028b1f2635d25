"""The bytes of a collective."""

from __future__ import annotations

from tests.harness import call, kernel, rows_of


def test_a_number_of_elements_that_cannot_be_is_unknown_and_no_error() -> None:
    events, expected = [], {1000: 4000, 2**61 - 1: 2**63 - 4, 2**61: None, -1: None}
    for number, n in enumerate(expected):
        work = kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 200 * number + 10, 100, number + 1)
        work["args"] |= {"Collective name": "allreduce", "In msg nelems": n, "dtype": "Float"}
        events += [call("cudaLaunchKernel", 200 * number, 5, number + 1), work]
    assert rows_of(events, "collective_kernels", "bytes", "event_id") == [(n_bytes,) for n_bytes in expected.values()]


def test_the_output_of_a_gather_counts_and_the_input_of_others() -> None:
    """The bytes of a gather are those that its root receives from all ranks.

    nccl-tests counts the same bytes (GatherGetBw).
    """
    events, expected = [], {"allgather": 40, "gather": 40, "scatter": 10, "reduce_scatter": 10, "all_reduce": 10}
    for number, name in enumerate(expected):
        work = kernel("ncclDevKernel_SendRecv", 200 * number + 10, 100, number + 1)
        work["args"] |= {"Collective name": name, "In msg nelems": 10, "Out msg nelems": 40, "dtype": "Byte"}
        events += [call("cudaLaunchKernel", 200 * number, 5, number + 1), work]
    assert rows_of(events, "collective_kernels", "bytes", "event_id") == [(n_bytes,) for n_bytes in expected.values()]
