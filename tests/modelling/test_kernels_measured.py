"""Counters of another run, matched to kernels by name, grid, block and order. NULL means not measured.

Each answer names the kind of match.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.base import database
from pipelines.faces.report.pictures.roofline import roofline
from pipelines.lake import Lake
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.readers.counters.lake import INPUT
from pipelines.readers.ingest import ingest
from tests.effort import first_of
from tests.harness import connect_all, x
from tests.readers.inputs.read_tables import loaded

VIEWS = ("counter_values", "kernel_measurements", "kernels_measured", "span_counters", "op_bytes_measured")
HEADER = '"Dispatch_Id","Process_Id","Grid_Size","Kernel_Name","Workgroup_Size","Counter_Name","Counter_Value"'
GEMM = "void ns::gemm<float, 4>(int, float*)"
COLUMNS = "name, grid, n_kernels, n_measured, matched_by, by_short_name, bytes_read, bytes_written, occupancy_percent"


def kernel(
    place: int, name: str = GEMM, grid: list[int] | None = None, block: list[int] | None = None
) -> dict[str, Any]:
    """Return the n-th kernel, of 1 us from n * 10 us on."""
    shape = {} if grid is None else {"grid": grid, "block": block or [64, 1, 1]}
    return x("kernel", name, 10 * place, 1, 7, 0, device=0, stream=7, correlation=place, **shape)


def counted(path: Path, *rows: tuple[int, str, int, int, str, float], process: int = 5) -> Path:
    """Write a file of (dispatch, kernel, threads of the grid, threads of a block, counter, value). Return its path."""
    lines = [
        f'"{d}","{process}","{grid}","{name}","{block}","{c}","{value}"' for d, name, grid, block, c, value in rows
    ]
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    return path


def ncu(path: Path, name: str, *metrics: tuple[str, str, str]) -> Path:
    """Write the page `raw` of Nsight Compute, and return the path of the file.

    It has one dispatch of 4 blocks of 64 threads.
    """
    shared = ["ID", "Process ID", "Kernel Name", "Block Size", "Grid Size"]
    table = [
        [*shared, *(metric[0] for metric in metrics)],
        [""] * len(shared) + [metric[1] for metric in metrics],
        ["0", "9", name, "(64, 1, 1)", "(4, 1, 1)", *(metric[2] for metric in metrics)],
    ]
    path.write_text("\n".join(",".join(f'"{field}"' for field in line) for line in table) + "\n")
    return path


def met(events: list[dict[str, Any]], *files: Path, tables: tuple[str, ...] = ("threads", "kernels")) -> Any:
    """Return a connection with a trace of `events`, the counter files, and the views over both."""
    con, _ = connect_all([{"traceEvents": events, "name": "a"}])
    con.execute("UPDATE traces SET job = NULL")
    run_models(
        con,
        load_catalog(),
        [*tables, "trace_devices", "devices", "counter_measures", "counter_labels", "counter_units"],
    )
    of_files = loaded(INPUT, files)
    for table in load_catalog().ingested(INPUT.scope):
        rows = of_files.execute(f"FROM {table}").to_arrow_table()  # noqa: F841
        con.execute(f"CREATE TABLE {table} AS FROM rows")
    con.execute("UPDATE counter_files SET job = NULL")
    for view in VIEWS if "op_work" in tables else VIEWS[:3]:
        con.execute(f"CREATE VIEW {view} AS {load_catalog().models[view].sql}")
    return con


def kinds(con: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    return con.execute(f"SELECT {COLUMNS} FROM kernels_measured ORDER BY name, grid").fetchall()


def test_the_nth_meets_the_nth_where_a_file_has_as_many(tmp_path: Path) -> None:
    """If a file has as many dispatches as the trace has kernels of a kind, the nth are matched.

    Two shapes of one name are two kinds. A kind that no file has is not measured, nor is a counter that no file has.
    """
    events = [
        kernel(1, grid=[4, 1, 1]),
        kernel(2, grid=[2, 2, 1]),
        kernel(3, grid=[8, 1, 1]),
        kernel(4, "other", [4, 1, 1]),
    ]
    both = [
        (7, GEMM, 256, 64, "FETCH_SIZE", 3),
        (2, GEMM, 256, 64, "FETCH_SIZE", 1),
        (2, GEMM, 256, 64, "OccupancyPercent", 40),
    ]
    con = met(events, counted(tmp_path / "a.csv", *both))
    rows = con.execute("SELECT event_id, matched_by, bytes_read, occupancy_percent FROM kernel_measurements ORDER BY 1")
    assert rows.fetchall() == [
        *((0, "order", 1024.0, 40.0), (1, "order", 3072.0, None), (2, None, None, None), (3, None, None, None)),
    ]
    assert kinds(con) == [
        ("other", "4,1,1", 1, 0, None, None, None, None, None),
        (GEMM, "2,2,1", 1, 1, "order", False, 3072.0, None, None),
        (GEMM, "4,1,1", 1, 1, "order", False, 1024.0, None, 40.0),
        (GEMM, "8,1,1", 1, 0, None, None, None, None, None),
    ]
    huge = [kernel(1, grid=[4, 1, 1]), kernel(2, grid=[9_999_999_999] * 3, block=[99_999] * 3)]
    assert [row[3] for row in kinds(met(huge, tmp_path / "a.csv"))] == [1, 0]
    assert con.execute("SELECT max(gigabytes_per_s), max(read_gigabytes_per_s) FROM kernels_measured").fetchall() == [
        (None, 3.072)
    ]


def test_the_nth_dispatch_is_the_nth_launch_and_not_the_nth_to_run(tmp_path: Path) -> None:
    """Dispatches are matched with kernels in order of launch, not in order of start.

    Streams and devices run concurrently, while files number dispatches in order of launch. A kernel without launch uses
    its start.
    """
    launches = [x("cuda_runtime", "cudaLaunchKernel", at, 1, correlation=n) for at, n in ((1, 5), (3, 1))]
    slow_stream, quick_stream, without_launch = (kernel(n, grid=[4, 1, 1]) for n in (5, 1, 4))
    other_device = kernel(2, grid=[4, 1, 1])
    other_device["args"]["device"] = 1
    launches.append(x("cuda_runtime", "cudaLaunchKernel", 5, 1, correlation=2))
    rows = [(n, GEMM, 256, 64, "FETCH_SIZE", n) for n in (1, 2, 3, 4)]
    events = [other_device, without_launch, quick_stream, slow_stream, *launches]
    con = met(events, counted(tmp_path / "a.csv", *rows))
    query = "SELECT event_id, matched_by, bytes_read / 1024 FROM kernel_measurements ORDER BY 1"
    assert con.execute(query).fetchall() == [(0, "order", 3), (1, "order", 4), (2, "order", 2), (3, "order", 1)]


def test_other_counts_take_the_mean_and_files_are_averaged(tmp_path: Path) -> None:
    """If a file has another number of dispatches, kernels get their mean, and files are averaged.

    One file is of another process, one has another shape, and one has units chosen by Nsight Compute.
    """
    files = [
        counted(tmp_path / "a.csv", *((n, GEMM, 256, 64, "WRITE_SIZE", n) for n in (1, 2, 6))),
        counted(tmp_path / "b.csv", (1, GEMM, 512, 64, "WRITE_SIZE", 1000)),
        ncu(tmp_path / "c.csv", GEMM, ("dram__bytes_read.sum", "Kbyte", "2"), ("dram__bytes_write.sum", "sector", "4"),
            ("TCC_HIT_sum", "", "1"), ("lts__t_sector_hit_rate.pct", "%", "25")),
    ]  # fmt: skip
    con = met([kernel(1, grid=[4, 1, 1]), kernel(2, grid=[4, 1, 1])], *files)
    assert kinds(con) == [(GEMM, "4,1,1", 2, 2, "shape", False, 4000.0, 6144.0, None)]
    assert con.execute("SELECT n_files, l2_hit_percent, gigabytes_per_s FROM kernels_measured").fetchall() == [
        (2, 25.0, (4000 + 6144) / 2000)
    ]


def test_hits_and_misses_are_a_share(tmp_path: Path) -> None:
    rows = [
        (1, GEMM, 256, 64, "TCC_HIT_sum", 30),
        (1, GEMM, 256, 64, "TCC_MISS_sum", 10),
        (1, GEMM, 256, 64, "MfmaUtil", 12),
    ]
    rows += [(1, GEMM, 256, 64, "FETCH_SIZE", 1), (1, GEMM, 256, 64, "WRITE_SIZE", 1)]
    con = met([kernel(1, grid=[4, 1, 1])], counted(tmp_path / "a.csv", *rows))
    query = "SELECT l2_hit_percent, tensor_percent, bandwidth_percent, l1_hit_percent FROM kernels_measured"
    for device in (0, 8):  # ROCm also counts the host's processors, so the work has another device number than listed
        con.execute(f"DELETE FROM trace_devices; INSERT INTO trace_devices BY NAME SELECT trace_id, {device} AS device, "
                    "'V100-SXM2-16GB' AS device_key FROM traces")  # fmt: skip
        assert con.execute(query).fetchall() == [(75.0, 12.0, pytest.approx(100 * 2.048 / 900), None)]


ONE_SHAPE = ((1, GEMM, 256, 64, "FETCH_SIZE", 2), (2, GEMM, 256, 64, "FETCH_SIZE", 4))
TWO_SHAPES = (ONE_SHAPE[0], (2, GEMM, 128, 64, "FETCH_SIZE", 4))
SHORT = ((1, "gemm", 256, 64, "FETCH_SIZE", 2),)


@pytest.mark.parametrize(
    ("grid", "counts", "expected"),
    [
        pytest.param([4, 1, 1], SHORT, ("order", True, 2048.0), id="short name"),
        pytest.param(None, ONE_SHAPE, ("name", False, 3072.0), id="no grid, one shape", marks=pytest.mark.slow),
        pytest.param(None, TWO_SHAPES, (None, None, None), id="no grid, two shapes"),
    ],
)
def test_short_names_and_traces_without_grids(
    tmp_path: Path, grid: list[int] | None, counts: tuple[Any, ...], expected: tuple[Any, ...]
) -> None:
    """A short name matches the shortened long name.

    Without grids, a name matches only if the file has a single shape of it.
    """
    file = counted(tmp_path / "a.csv", *counts)
    assert [row[4:7] for row in kinds(met([kernel(1, grid=grid)], file))] == [expected]


def test_short_names_of_kernels_in_anonymous_namespaces(tmp_path: Path) -> None:
    """Short names match kernels in anonymous namespaces.

    Most of PyTorch's kernels are in one, and so are the types in their template arguments.
    """
    names = {
        "void at::native::(anonymous namespace)::Copy<at::native::(anonymous namespace)::Type<4u>, 2>(float*)": "Copy",
        "(anonymous namespace)::with_index<int>(int)": "with_index",
        "a::(anonymous namespace)::(anonymous namespace)::deep(int)": "deep",
        "void at::native::vectorized<4>(at::native::(anonymous namespace)::Type<4u>)": "vectorized",
    }
    events = [kernel(n, name, [4, 1, 1]) for n, name in enumerate(names, 1)]
    rows = [(n, short, 256, 64, "FETCH_SIZE", n) for n, short in enumerate(names.values(), 1)]
    con = met(events, counted(tmp_path / "a.csv", *rows))
    query = "SELECT name, by_short_name, bytes_read / 1024 FROM kernel_measurements ORDER BY event_id"
    assert con.execute(query).fetchall() == [(name, True, n) for n, name in enumerate(names, 1)]


@pytest.mark.parametrize(
    ("unit", "expected"), first_of([("us", None), ("Kbyte", 2000), ("Kbyte/s", None), ("furlong", None)], 2)
)
def test_a_value_in_a_unit_of_something_else_is_not_used(tmp_path: Path, unit: str, expected: int | None) -> None:
    """A value in the unit of another quantity is not used.

    counter_units has all units without prefixes, including those of times.
    """
    read, occupancy = "dram__bytes_read.sum", "sm__warps_active.avg.pct_of_peak_sustained_active"
    file = ncu(tmp_path / "a.csv", GEMM, (read, unit, "2"), (occupancy, "%", "50"))
    ((*_, bytes_read, _, percent),) = kinds(met([kernel(1, grid=[4, 1, 1])], file))
    assert (bytes_read, percent) == (expected, 50)


def test_jobs_that_both_tell_must_be_one(tmp_path: Path) -> None:
    con = met([kernel(1, grid=[4, 1, 1])], counted(tmp_path / "a.csv", (1, GEMM, 256, 64, "FETCH_SIZE", 2)))
    con.execute("UPDATE counter_files SET job = 'mine'")
    assert kinds(con)[0][3] == 1
    for job, n in (("other", 0), ("mine", 1)):
        con.execute(f"UPDATE traces SET job = '{job}'")
        assert kinds(con)[0][3] == n


def test_spans_and_operators_get_sums(tmp_path: Path) -> None:
    """Spans and operators have measured bytes only if all their kernels were measured.

    The bytes are shown next to those of the operator's model.
    """
    shapes = {"Input Dims": [[8, 8], [8, 8]], "Input type": ["float", "float"], "Concrete Inputs": ["", ""]}
    launch = [
        x("cuda_runtime", "cudaLaunchKernel", at, 1, correlation=n) for n, at in ((1, 6), (2, 8), (3, 14), (4, 15))
    ]
    events = [x("user_annotation", "part", 1, 20), x("cpu_op", "aten::mm", 5, 5, **shapes), *launch]
    events += [
        x("cpu_op", "aten::relu", 13, 3),
        kernel(1, grid=[4, 1, 1]),
        kernel(2, grid=[4, 1, 1]),
        kernel(3, "relu", [1, 1, 1]),
        kernel(4, grid=[4, 1, 1]),
    ]
    rows = [
        (n, GEMM, 256, 64, c, value)
        for n in (1, 2, 3)
        for c, value in (("FETCH_SIZE", n), ("WRITE_SIZE", 1), ("MfmaUtil", 50))
    ]
    rows += [(4, "relu", 64, 64, "FETCH_SIZE", 1)]
    con = met(events, counted(tmp_path / "a.csv", *rows), tables=("kernels", "op_work", "op_kernels", "span_gpu_work"))
    asked = "SELECT n_kernels, n_measured, bytes_read, bytes_written, tensor_percent, duration_ns FROM span_counters"
    assert con.execute(f"{asked} WHERE phase = 'window'").fetchall() == [(4, 4, 7168.0, 3072.0, 50.0, 4000)]
    asked = "SELECT op, n_kernels, n_measured, bytes_modelled, bytes_measured, bytes_read FROM op_bytes_measured ORDER BY op"
    assert con.execute(asked).fetchall() == [
        ("aten::mm", 2, 2, 768, 5120, 3072.0), ("aten::relu", 2, 1, None, None, 4096.0),
    ]  # fmt: skip


def test_the_roofline_has_measured_beside_modelled_bytes() -> None:
    row = {
        "op": "aten::mm", "dtype": "fp32", "n_ops": 1, "gpu_ns": 1000, "flops_matrix": 10**6, "bytes": 10**4, "tflops": 1.0,
        "ideal_ns": 500.0, "memory_ns": 100.0, "roofline_utilization": 0.5,
    }  # fmt: skip
    plain = roofline("r", [row]) or ""
    drawn = roofline("r", [{**row, "bytes_measured": 2 * 10**7, "bytes_modelled": 10**7}]) or ""
    assert "measured 19.07 MiB, the model counts 9.54 MiB" in drawn and drawn.count("<rect") == plain.count("<rect") + 1
    assert "hollow" in drawn and "hollow" not in plain


@pytest.mark.slow  # tests above have small traces
def test_real_counters_meet_the_real_trace_of_their_program(shared: Path, tmp_path: Path) -> None:
    """The trace has 144 kernels of 21 kinds. Two kinds, a copy and a quantization of other sizes, were not counted."""
    folder = shared / "traces" / "rocprofv3"
    if not folder.is_dir():
        pytest.skip("needs ../shared")
    lake = Lake(tmp_path / "lake")
    ingest([folder], lake)
    from pipelines.faces.cli.refresh_tables import open_analyst

    con = open_analyst(lake.root, ["kernels", "trace_devices"])
    counts = con.execute(
        "SELECT matched_by, count(*), sum(n_kernels), count(bytes_read), count(occupancy_percent), count(l2_hit_percent), "
        "count(bytes_written) FROM kernels_measured GROUP BY matched_by ORDER BY 1"
    ).fetchall()
    assert counts == [("shape", 19, 133, 19, 19, 19, 0), (None, 2, 11, 0, 0, 0, 0)]
    ((kib, n),) = con.execute(
        "SELECT avg(value), count(*) FROM kernel_counters WHERE counter = 'FETCH_SIZE' AND kernel_name LIKE '%type)12,%'"
    ).fetchall()
    (row,) = con.execute("SELECT n_kernels, bytes_read FROM kernels_measured WHERE name LIKE '%type)12,%'").fetchall()
    assert row == (6, pytest.approx(6 * kib * 1024)) and n == 2
    con.close()


def test_files_without_a_trace_answer_alone(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    counted_file = counted(tmp_path / "x_counter_collection.csv", (1, GEMM, 256, 64, "FETCH_SIZE", 2))
    assert [row.status for row in ingest([counted_file], lake).rows] == ["ok"]
    with database.connect() as con:
        lake.create_views(con, ["kernel_counters"])
        assert con.execute("SELECT count(*) FROM kernel_counters").fetchall() == [(1,)]
