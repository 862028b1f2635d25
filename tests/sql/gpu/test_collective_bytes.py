"""The bytes of a collective."""

from __future__ import annotations

import pytest

from tests.harness import call, kernel, rows_of


@pytest.mark.parametrize(("n", "expected"), [(1000, 4000), (2**61 - 1, 2**63 - 4), (2**61, None), (-1, None)])
def test_a_number_of_elements_that_cannot_be_is_unknown_and_no_error(n: int, expected: int | None) -> None:
    work = kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 10, 100, 1)
    work["args"] |= {"Collective name": "allreduce", "In msg nelems": n, "dtype": "Float"}
    events = [call("cudaLaunchKernel", 0, 5, 1), work]
    assert rows_of(events, "collective_kernels", "bytes") == [(expected,)]
