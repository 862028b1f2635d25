"""Files that are not op-level traces of a job.

They are refused with file, column and row, or with the op and the step.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pipelines.fleet.op_job import JobRejected, read_job, what_if
from tests.fleet.op_job.make import UNIT, Shape, write_job

SHAPE = Shape(pp=2, dp=2, steps=(3, 5), batches=2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_job(tmp_path, SHAPE, lambda key: 8 * UNIT)


def changed(path: Path, change: Callable[[pa.Table], pa.Table]) -> str:
    """Return the error message after a change of the table."""
    pq.write_table(change(pq.read_table(path)), path)
    with pytest.raises(JobRejected) as caught:
        what_if(read_job(path))
    assert str(path) in str(caught.value)
    return str(caught.value)


def with_value(column: str, row: int, value: float | int | str | None) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(column)
        values = table.column(column).to_pylist()
        values[row] = value
        return table.set_column(at, column, pa.array(values, table.schema.field(column).type))

    return change


def where(table: pa.Table, **values: object) -> pa.Array:
    mask = None
    for column, value in values.items():
        same = pc.equal(table.column(column), value)
        mask = same if mask is None else pc.and_(mask, same)
    return mask


def without(**values: object) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.filter(pc.invert(where(table, **values)))


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("start_ts", None, "column 'start_ts', row 7: no value"),
        ("start_ts", float("nan"), "column 'start_ts', row 7: nan"),
        ("duration", float("inf"), "column 'duration', row 7: inf"),
        ("duration", -0.5, "column 'duration', row 7: -0.5"),
        ("stage", 2, "column 'stage', row 7: 2; it must be 0 to 1"),
        ("dp_rank", -1, "column 'dp_rank', row 7: -1"),
        ("rank", -1, "column 'rank', row 7: -1; it must be 0 or more"),
        ("rank", 99, "a stage and dp_rank with two ranks"),
    ],
)
def test_a_value_that_cannot_be(path: Path, column: str, value: float | None, says: str) -> None:
    assert says in changed(path, with_value(column, 7, value))


def test_columns(path: Path) -> None:
    assert "no column 'gmc'" in changed(path, lambda table: table.drop_columns(["gmc"]))


def test_a_column_of_text(path: Path) -> None:
    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index("start_ts")
        return table.set_column(at, "start_ts", pa.array(["soon"] * table.num_rows))

    assert "column 'start_ts' is string; it must be float" in changed(path, change)


@pytest.mark.parametrize("column", ["start_ts", "duration"])
@pytest.mark.parametrize("base_ns", [0, 1_790_000_000_000_000_000])
def test_whole_nanoseconds_are_not_taken_for_seconds(path: Path, column: str, base_ns: int) -> None:
    def change(table: pa.Table) -> pa.Table:
        ns = [base_ns + round(value * 1e9) for value in table.column(column).to_pylist()]
        return table.set_column(table.schema.get_field_index(column), column, pa.array(ns, pa.int64()))

    assert f"column '{column}' is int64; it must be seconds as floats" in changed(path, change)


def test_ops_differ_between_steps(path: Path) -> None:
    says = changed(path, without(step=5, dp_rank=1, optype="gc", stage=1))
    assert "no row of gc 0 of stage 1 in step 5, dp_rank 1" in says


def test_an_op_twice(path: Path) -> None:
    says = changed(path, lambda table: pa.concat_tables([table, table.slice(5, 1)]))
    assert f"row {pq.read_table(path).num_rows - 1}: " in says and "twice in step" in says


def test_a_dp_rank_is_missing(path: Path) -> None:
    assert "step 3, dp_rank 1" in changed(path, without(dp_rank=1))


def test_one_op_twice_and_another_missing(path: Path) -> None:
    says = changed(path, lambda table: pa.concat_tables([table.slice(1), table.slice(5, 1)]))
    assert "no row of backward-compute 0 of stage 0 in step 3, dp_rank 0" in says


@pytest.mark.parametrize(
    ("sizes", "says"),
    [({"dp_size": 10**9}, "no row of backward-compute 0 of stage 0 in step 3, dp_rank 2"),
     ({"pp_size": 10**9}, "no op of stage 2; the YAML file says 1000000000 stages (pp_size)")],
)  # fmt: skip
def test_a_size_with_zeros_too_many_needs_no_memory(path: Path, sizes: dict[str, int], says: str) -> None:
    sizes = {"dp_size": 2, "pp_size": 2, "dsp_size": 1, "tp_size": 1, "vpp_size": 1, **sizes}
    sizes["world_size"] = sizes["dp_size"] * sizes["pp_size"]
    path.with_suffix(".yaml").write_text("".join(f"{key}: {value}\n" for key, value in sizes.items()))
    assert says in changed(path, lambda table: table)


def test_a_rank_of_several_places(path: Path) -> None:
    """A rank number that several stages or dp ranks share is refused.

    Local ranks are such numbers. All stages and dp ranks with the number of a slow rank would be blamed.
    """

    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index("rank")
        return table.set_column(at, "rank", pa.array([0] * table.num_rows))

    assert "column 'rank', row 4: 0, as in row 0, which has another stage or dp_rank" in changed(path, change)


@pytest.mark.parametrize("column", ["duration", "start_ts"])
def test_ops_that_take_no_time(path: Path, column: str) -> None:
    """A job whose ops all have duration 0 is refused.

    Their starts may still differ if the recorder wrote seconds as whole numbers.
    """

    def change(table: pa.Table) -> pa.Table:
        for name in {"duration", column}:
            table = table.set_column(table.schema.get_field_index(name), name, pa.array([0.0] * table.num_rows))
        return table

    assert "column 'duration': no op takes time" in changed(path, change)


@pytest.mark.parametrize(
    ("gone", "says"),
    [
        ({"optype": "optimizer-clip-main-grad", "stage": 1}, "optimizer-clip-main-grad 0 has rows of the stages [0]"),
        ({"optype": "embedding-grads-all-reduce", "stage": 0}, "has rows of the stages [1], not of [0, 1]"),
        ({"optype": "forward-recv"}, "2 forward-send ops of stage 0 for 0 forward-recv ops of stage 1"),
        ({"optype": "forward-send", "seq_id": 1}, "stage 0: 1 forward-send ops for 2 forward-compute ops"),
        ({"optype": "optimizer", "stage": 1}, "stage 1 has no optimizer op"),
    ],
)
def test_groups_of_a_wrong_size(path: Path, gone: dict[str, object], says: str) -> None:
    assert says in changed(path, without(**gone))


def test_an_unknown_op_type(path: Path) -> None:
    def change(table: pa.Table) -> pa.Table:
        names = ["nap" if kind == "gc" else kind for kind in table.column("optype").to_pylist()]
        return table.set_column(table.schema.get_field_index("optype"), "optype", pa.array(names))

    assert "'nap' is unknown; known types are forward-compute" in changed(path, change)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("dp_size: [", "not YAML"),
        ("just words", "holds str"),
        ("dp_size: 2\n", "dsp_size is None"),
        ("dp_size: two\n", "dp_size is 'two'"),
        ("dp_size: 2\ndsp_size: 1\npp_size: 2\ntp_size: 1\nvpp_size: 1\nworld_size: 8\n", "dp·dsp·pp·tp is 4"),
    ],
)
def test_sizes(path: Path, text: str, says: str) -> None:
    meta = path.with_suffix(".yaml")
    meta.write_text(text)
    with pytest.raises(JobRejected, match=says) as caught:
        read_job(path)
    assert str(meta) in str(caught.value)


def test_no_sizes(path: Path) -> None:
    path.with_suffix(".yaml").unlink()
    with pytest.raises(JobRejected, match=r"no synthetic\.yaml or .* next to it"):
        read_job(path)


def test_no_parquet(path: Path) -> None:
    path.write_bytes(b"PAR1 cut short")
    with pytest.raises(JobRejected, match="not a Parquet file"):
        read_job(path)
