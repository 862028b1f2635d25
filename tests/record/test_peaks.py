"""Measured peaks: as fast as the same product timed by hand, and never listed as a GPU."""

from __future__ import annotations

import time

import pytest

from pipelines.record.peaks import device_name, main, measure

torch = pytest.importorskip("torch")


@pytest.mark.slow  # 2 s; the test below checks that peaks are measured
def test_products_and_copies_are_timed() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several threads on a busy machine reach a hundredth of the speed
    peaks = {m.dtype: m.value for m in measure("cpu", 256, 1 << 24, seconds=0.3)}
    assert {"fp32", "bf16", None} <= peaks.keys()
    assert "tf32" not in peaks
    a, b = torch.randn(256, 256), torch.randn(256, 256)
    times = []
    for _ in range(50):
        began = time.perf_counter()
        torch.mm(a, b)
        times.append(time.perf_counter() - began)
    torch.set_num_threads(threads)
    # The machine may be busy during one of the two measurements, so only the order of magnitude is compared.
    assert 0.1 < peaks["fp32"] / (2 * 256**3 / min(times) / 1e12) < 10
    assert 0.05 < peaks[None] < 5_000


def test_lines_for_the_rule_table(capsys: pytest.CaptureFixture) -> None:
    main(["--device", "cpu", "--seconds", "0.02", "--size", "64"])
    rows = [line.split(",") for line in capsys.readouterr().out.splitlines()]
    for key, dtype, kind, tflops, gigabytes_per_s, source in rows:
        assert key.startswith("cpu:") and key == device_name("cpu").replace(",", ";")
        assert dtype in ("fp32", "bf16", "fp16", "memory")
        assert kind == "measured" and "best of" in source
        peak, empty = (gigabytes_per_s, tflops) if dtype == "memory" else (tflops, gigabytes_per_s)
        assert float(peak) > 0 and empty == ""
    assert {"fp32", "memory"} <= {row[1] for row in rows}
