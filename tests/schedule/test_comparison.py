"""Comparisons of engines: periods measured in turn, and the verdicts."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipelines.schedule.measurement.comparison import periods_in_turn, verdict
from pipelines.schedule.measurement.measure import Settings
from pipelines.schedule.plan.plan_file import load_plan
from pipelines.schedule.run import main
from pipelines.schedule.search.predict import Prediction

MS = 1_000_000
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


def ideal(ideal_ms: float, bottleneck: str = "default", busy_ms: float = 9) -> Prediction:
    busy = {"default": busy_ms * MS}
    return Prediction("SWPipeline", 0.0, ideal_ms * MS, bottleneck, busy, {}, 0)


def text(serial_ms: list[float], period_ms: list[float], limit: Prediction, host_ms: float | None = None) -> str:
    host = None if host_ms is None else {"io": 1, "default": round(host_ms * MS)}
    return verdict([round(s * MS) for s in serial_ms], [round(p * MS) for p in period_ms], limit, host).text


@pytest.mark.parametrize(
    "serial, period, limit, expected",
    [
        ([12.8] * 3, [10.0] * 3, ideal(10), "1.28 times as fast as serial, which is the limit (stream default)"),
        ([12.8] * 3, [10.0] * 3, ideal(9.53), "1.28 times as fast as serial, which is the limit (stream default)"),
        ([12.8] * 3, [10.0] * 3, ideal(9.5), "1.28 times as fast as serial; the limit is 1.35 (stream default)"),
        (
            [28.4] * 3,
            [27.9] * 3,
            ideal(27.9, "cycle EmbLookup -> Forward -> Backward"),
            "1.02 times as fast as serial, which is the limit (cycle EmbLookup -> Forward -> Backward)",
        ),
        (
            [10, 10, 10],
            [9.9, 10.1, 9.8],
            ideal(5),
            "no difference measured (0.99 to 1.02 times as fast as serial); the limit is 2.00 (stream default)",
        ),
        (
            [10, 10, 10],
            [10, 9.9, 9.8],
            ideal(5),
            "no difference measured (1.00 to 1.02 times as fast as serial); the limit is 2.00 (stream default)",
        ),
        ([6, 6], [10, 10], ideal(5), "slower than serial (0.60 times as fast); the limit is 1.20 (stream default)"),
    ],
)
def test_a_verdict_names_the_speedup_and_what_limits_it(
    serial: Any, period: Any, limit: Prediction, expected: str
) -> None:
    assert text(serial, period, limit) == expected


def test_a_slow_host_is_named_where_it_takes_longer_than_the_device() -> None:
    expected = (
        "slower than serial (0.60 times as fast): the host needs 13 ms per iteration to submit, and the device works "
        "0.3 ms of 13.2 ms; use larger batches or no pipeline"
    )
    assert text([7.92] * 3, [13.2] * 3, ideal(0.2, busy_ms=0.3), host_ms=13) == expected
    assert "the host needs" in text([7.92] * 3, [13.2] * 3, ideal(12, busy_ms=14), host_ms=12.1)
    assert text([7.92] * 3, [13.2] * 3, ideal(12, busy_ms=14), host_ms=12).endswith(
        "the limit is 0.66 (stream default)"
    )


def test_the_spread_is_of_the_rounds_not_of_the_engines() -> None:
    """A machine that gets slower from round to round slows down both."""
    result = verdict([10 * MS, 20 * MS, 40 * MS], [5 * MS, 10 * MS, 20 * MS], ideal(1), None)
    assert (result.low, result.speedup, result.high) == (2.0, 2.0, 2.0)


SIMULATED = Settings(load_plan("mlp"), "sw", "simulated", iterations=40)


def test_a_simulated_comparison_has_the_periods_of_the_plan() -> None:
    periods = periods_in_turn(SIMULATED, ["serial", "sw"], 3)
    assert periods["serial"] == [periods["serial"][0]] * 3 and periods["sw"] == [periods["sw"][0]] * 3
    assert periods["serial"][0] > periods["sw"][0] > 0
    delayed = periods_in_turn(replace(SIMULATED, jitter_us=500, jitter_task="Forward"), ["serial", "sw"], 3)
    assert len(set(delayed["serial"])) == 3, "each round draws other delays"


@needs_torch
def test_engines_take_turns_and_each_round_begins_with_another(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines.schedule import DataFlowPipeline, SWPipeline

    order: list[str] = []

    def noting(name: str, method: Any) -> Any:
        def run(self: Any, batches: Any) -> float:
            order.append(name)
            return method(self, batches)

        return run

    monkeypatch.setattr(SWPipeline, "run_serial", noting("serial", SWPipeline.run_serial))
    monkeypatch.setattr(SWPipeline, "run", noting("sw", SWPipeline.run))
    monkeypatch.setattr(DataFlowPipeline, "run", noting("dataflow", DataFlowPipeline.run))
    run = replace(SIMULATED, device="cpu", size="tiny", iterations=2, warmup=1)
    periods_in_turn(run, ["serial", "sw", "dataflow"], 2)
    assert order == [
        *("serial", "sw", "dataflow"),  # to warm up
        *("serial", "serial", "sw", "sw", "dataflow", "dataflow"),
        *("sw", "sw", "dataflow", "dataflow", "serial", "serial"),
    ]


def test_the_command_writes_a_run_per_engine_with_rounds_and_verdicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--plan", "mlp", "--device", "simulated", "--compare", "--rounds", "2", "--iterations", "20"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out.splitlines()
    folders = {path.name.split("-")[2]: path for path in tmp_path.iterdir()}
    assert set(folders) == {"serial", "sw", "dataflow"}
    rounds = {name: pq.read_table(path / "schedule_rounds.parquet").to_pylist() for name, path in folders.items()}
    assert {name: [row["round"] for row in rows] for name, rows in rounds.items()} == {name: [0, 1] for name in folders}
    assert len({row["comparison_id"] for rows in rounds.values() for row in rows}) == 1
    verdicts = {name: pq.read_table(path / "schedule_verdicts.parquet").to_pylist() for name, path in folders.items()}
    assert verdicts["serial"] == []
    (row,) = verdicts["sw"]
    assert row["serial_run_id"] == folders["serial"].name and row["run_id"] == folders["sw"].name
    assert row["speedup"] == pytest.approx(rounds["serial"][0]["period_ns"] / rounds["sw"][0]["period_ns"])
    assert printed[0].startswith("mlp, serial on simulated: ")
    assert printed[2].startswith("mlp, sw on simulated: ") and printed[2].endswith(row["verdict"])


def test_serial_is_part_of_every_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--plan", "mlp", "--device", "simulated", "--compare", "sw", "--out", str(tmp_path)])
    assert "serial is needed" in capsys.readouterr().err
