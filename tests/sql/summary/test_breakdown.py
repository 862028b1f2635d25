"""`tracelake breakdown`: the document's object in addition to the flat row, and HTA's numbers with profile hta."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.lake.lake import Lake
from pipelines.readers.ingest import ingest
from tests.effort import first_of
from tests.harness import kernel, op

TIMES = ("compute", "non_compute", "idle")


def breakdown(*words: object) -> Any:
    done = CliRunner().invoke(app, ["breakdown", *map(str, words), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_documents_object_stands_beside_the_flat_row(tmp_path: Path) -> None:
    """The object in the document's format has the same values as the flat row (TB-13, TB-14).

    The document's sample has 25,402,605 us of computing, 1,251,970 us of other work and 29,603,154 us of idle time.
    """
    compute, other, idle = 25_402_605, 1_251_970, 29_603_154
    file = tmp_path / "a.json"
    events = [
        kernel("gemm", 0, 402_605, 1),
        kernel("ncclDevKernel_AllReduce", 402_605, other, 2, stream=20),
        kernel("gemm", 402_605 + other + idle, compute - 402_605, 3),
    ]
    file.write_text(json.dumps({"traceEvents": events}))
    [row] = breakdown(file)
    document = row.pop("temporal_breakdown")
    assert list(document) == [*(f"{name}_time_us" for name in TIMES), *(f"{name}_percent" for name in TIMES)]
    assert [document[f"{name}_time_us"] for name in TIMES] == [compute, other, idle]
    assert [round(document[f"{name}_percent"], 2) for name in TIMES] == [45.15, 2.23, 52.62]
    assert [row[f"{name}_ns"] for name in TIMES] == [1000 * compute, 1000 * other, 1000 * idle]
    assert [row[f"{name}_percent"] for name in TIMES] == [document[f"{name}_percent"] for name in TIMES]
    assert row["span_ns"] == 1000 * (compute + other + idle) and row["profile"] == "default"


def test_without_gpu_work_there_are_six_zeros(tmp_path: Path) -> None:
    """TB-7 holds in both profiles, although HTA itself raises an error."""
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"traceEvents": [op("a", 0, 5)]}))
    for profile in ("default", "hta"):
        [row] = breakdown(file, "--profile", profile)
        assert row["device"] is None and set(row["temporal_breakdown"].values()) == {0} and row["profile"] == profile
        assert row["idle_percent"] is row["span_ns"] is None  # a value that was not measured is not 0
    said = CliRunner().invoke(app, ["breakdown", str(file)]).stdout
    assert "no GPU work" in said and "not measured" in said and "0.0" not in said


# Traces in whole microseconds, and one without HTA's rounding.
GOLDEN = (
    ("critical_path/simple_add", "simple_add", ()),
    ("single/mi250_minitoy", "mi250_minitoy__nsoff", ()),
    ("ranks/sampled_128/rank0", "sampled_128", ()),
    ("ranks/sampled_128/rank0", "sampled_128__incllast", ("--set", "drop_last_step=false")),
)


@pytest.mark.parametrize(("name", "case", "words"), first_of(GOLDEN, 1))
def test_profile_hta_gives_htas_numbers(shared: Path, name: str, case: str, words: tuple[str, ...]) -> None:
    file = shared / "golden" / "hta" / f"{case}__analyses.json.gz"
    theirs = json.loads(gzip.decompress(file.read_bytes()))["temporal_breakdown"]
    hta = dict(zip(theirs["columns"], theirs["rows"][0], strict=True))
    [row] = breakdown(shared / "traces" / f"{name}.json.gz", "--profile", "hta", *words)
    near = 0.02 if "nsoff" in case else 0
    for part in TIMES:
        assert row["temporal_breakdown"][f"{part}_time_us"] == pytest.approx(hta[f"{part}_time(us)"], abs=near)
        assert round(row["temporal_breakdown"][f"{part}_percent"], 2) == hta[f"{part}_time_pctg"]
    assert row["span_ns"] / 1000 == pytest.approx(hta["kernel_time(us)"], abs=near)


@pytest.mark.slow  # tests above have single traces
def test_classes_of_hta_over_a_whole_lake(tmp_path: Path) -> None:
    """With profile hta, a lake has HTA's classes (T17).

    HTA does not count a kernel with `Sync` in its name as computing, but counts DeepEP. All devices of a file are one
    row.
    """
    for number in (1, 2):
        events = [
            kernel("void at::native::SyncBatchNormKernel<float>()", 0, 10 * number, 1),
            kernel("deep_ep::intranode::dispatch", 100, 5, 2, stream=8),
            kernel("gemm", 200, 1, 3, device=1),
        ]
        (tmp_path / f"{number}.json").write_text(json.dumps({"traceEvents": events}))
    lake = Lake(tmp_path / "lake")
    ingest([tmp_path / "1.json", tmp_path / "2.json"], lake)
    ours, theirs = breakdown("--lake", lake.root), breakdown("--lake", lake.root, "--profile", "hta")
    of_device = [(row["path"][-6:], row["device"], row["compute_ns"], row["communication_ns"]) for row in ours]
    assert of_device == [
        ("1.json", 0, 10_000, 5000),
        ("1.json", 1, 1000, 0),
        ("2.json", 0, 20_000, 5000),
        ("2.json", 1, 1000, 0),
    ]
    of_file = [(row["path"][-6:], row["device"], row["compute_ns"], row["span_ns"]) for row in theirs]
    assert of_file == [("1.json", 0, 6000, 201_000), ("2.json", 0, 6000, 201_000)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--profile", "nope"), "default, hta"),
        (("--set", "drop_last_step=true"), "affects a breakdown only"),
        (("--profile", "hta", "--set", "exit_pops_top=false"), "affects a breakdown only"),
        (("--profile", "hta", "--set", "drop_last_step"), "NAME=VALUE"),
    ],
)
def test_what_it_refuses(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"traceEvents": [op("a", 0, 5)]}))
    done = CliRunner().invoke(app, ["breakdown", str(tmp_path / "a.json"), *words])
    assert done.exit_code == 1 and said in done.stderr
