"""The reader of a job's Parquet file, which returns arrays [op, step, dp rank].

The reader rejects a file that does not have this form. The error names the position in the file.
"""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np

from pipelines.fleet.op_job.job import JobMeta, JobRejected, JobTrace, Op
from pipelines.fleet.op_job.sizes import meta_file, read_meta

COLUMNS = (
    "dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc", "mb_id", "gmc",
)  # fmt: skip


def is_job_file(path: Path) -> bool:
    """Return whether a path is a Parquet file with the columns of an op-level trace. Read only its footer."""
    import pyarrow.parquet as pq
    from pyarrow.lib import ArrowException

    if path.suffix != ".parquet":
        return False
    try:
        return {"optype", "dp_rank", "stage"} <= set(pq.read_schema(path).names)
    except (OSError, ArrowException, ValueError):  # ValueError: a path that is not UTF-8
        return False


def read_job(path: Path, meta: Path | None = None) -> JobTrace:
    """Read an op-level trace and its YAML file, by default `meta_file(path)`.

    Raise JobRejected if the file is not a Parquet file, a column is missing, or a value is invalid. Raise it also if
    not every (step, dp rank) has the same ops. The message names the row. Raise OSError if a file cannot be opened.
    """
    sizes = read_meta(meta or meta_file(path))
    columns = _columns(path)
    _check_rows(path, columns, sizes)
    return _in_cells(path, sizes, columns)


def _columns(path: Path) -> dict[str, np.ndarray]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(path).names
        if missing := [name for name in COLUMNS if name not in names]:
            raise JobRejected(f"{path}: no column {missing[0]!r}; an op-level trace has {', '.join(COLUMNS)}")
        table = pq.read_table(path, columns=list(COLUMNS))
    except pa.ArrowInvalid as error:
        raise JobRejected(f"{path}: not a Parquet file: {str(error).splitlines()[0]}") from None
    columns: dict[str, np.ndarray] = {}
    for name in COLUMNS:
        column = table.column(name)
        if column.null_count:
            row = column.is_null().to_pylist().index(True)
            raise JobRejected(f"{path}: column {name!r}, row {row}: no value; every op has all columns")
        # Integers are probably ns, and would be read as seconds.
        if name in ("start_ts", "duration") and pa.types.is_integer(column.type):
            raise JobRejected(f"{path}: column {name!r} is {column.type}; it must be seconds as floats")
        target = pa.string() if name == "optype" else pa.float32() if name in ("start_ts", "duration") else pa.int64()
        try:
            columns[name] = column.cast(target, safe=target != pa.float32()).to_numpy()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise JobRejected(f"{path}: column {name!r} is {column.type}; it must be {target}") from None
    if not table.num_rows:
        raise JobRejected(f"{path}: no rows; record at least one step")
    if table.column("start_ts").type != pa.float32():
        columns["start_ts"] = _since_step_start(table.column("start_ts").cast(pa.float64()).to_numpy(), columns["step"])
    return columns


def _since_step_start(start_s: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Return starts relative to the first start of their step, because float32 is too coarse for seconds since 1970."""
    if not np.isfinite(start_s).all():
        return start_s  # _check_rows rejects the row
    steps, step_at = np.unique(step, return_inverse=True)
    first_s = np.full(len(steps), np.inf)
    np.minimum.at(first_s, step_at, start_s)
    return (start_s - first_s[step_at]).astype(np.float32)


def _check_rows(path: Path, columns: dict[str, np.ndarray], meta: JobMeta) -> None:
    """Raise JobRejected for the first row with an invalid value."""
    size_by_column = {"dp_rank": meta.dp, "stage": meta.pp}
    is_bad_by_column = {name: (columns[name] < 0) | (columns[name] >= size) for name, size in size_by_column.items()}
    is_bad_by_column["rank"] = columns["rank"] < 0
    is_bad_by_column["start_ts"] = ~np.isfinite(columns["start_ts"])
    is_bad_by_column["duration"] = ~(np.isfinite(columns["duration"]) & (columns["duration"] >= 0))
    expected = {name: f"0 to {size - 1}, according to the YAML file" for name, size in size_by_column.items()}
    expected |= {"rank": "0 or more, counted over the whole job", "start_ts": "a finite number of seconds"}
    expected |= {"duration": "a finite number of seconds, not negative"}
    for name, is_bad in is_bad_by_column.items():
        if is_bad.any():
            row = int(np.argmax(is_bad))
            raise JobRejected(f"{path}: column {name!r}, row {row}: {columns[name][row]}; it must be {expected[name]}")


def _in_cells(path: Path, meta: JobMeta, columns: dict[str, np.ndarray]) -> JobTrace:
    """Return the rows as arrays [op, step, dp rank].

    Raise JobRejected if an op is missing or duplicate in a (step, dp rank).
    """
    steps, step_at = np.unique(columns["step"], return_inverse=True)
    kinds, kind_at = np.unique(columns["optype"].astype(str), return_inverse=True)
    keys = np.stack([columns["stage"], kind_at, columns["seq_id"]], axis=1)
    ops, op_at = np.unique(keys, axis=0, return_inverse=True)
    cells = np.stack([op_at.reshape(-1), step_at.reshape(-1), columns["dp_rank"]], axis=1)
    row_at = np.lexsort(cells.T[::-1])
    shape = (len(ops), len(steps), meta.dp)
    if (wrong := _wrong_cell(cells[row_at], shape)) is not None:
        position, (op, step, dp) = wrong
        name = f"{kinds[ops[op][1]]} {ops[op][2]} of stage {ops[op][0]}"
        location = f"step {steps[step]}, dp_rank {dp}"
        if position is not None:
            raise JobRejected(
                f"{path}: column 'seq_id', row {row_at[position]}: {name} twice in {location}; number ops in execution order"
            )
        raise JobRejected(
            f"{path}: no row of {name} in {location}, which other steps or dp ranks have; every (step, dp_rank) "
            "must have the same ops: remove steps that were not recorded completely, and number the ops of each step anew"
        )
    row_of = row_at.reshape(shape)
    start, duration = columns["start_ts"][row_of], columns["duration"][row_of]
    end = start + duration
    template = tuple(
        Op(str(kinds[kind]), int(stage), int(seq), *_ids(columns, row_of[i, 0, 0]), float(start[i, 0, 0]), float(end[i, 0, 0]))
        for i, (stage, kind, seq) in enumerate(ops)
    )  # fmt: skip
    return JobTrace(path, meta, template, steps, _ranks(path, columns, meta), start, duration)


def _wrong_cell(cells: np.ndarray, shape: tuple[int, int, int]) -> tuple[int | None, tuple[int, ...]] | None:
    """Return the first duplicate or missing cell of sorted `cells`, or None if they fill an array of `shape` exactly.

    A duplicate cell is returned with the index of its second occurrence, a missing cell with None. No array of this
    shape is created, because a wrong file may imply far more cells than it has rows.
    """
    numbers = np.arange(len(cells) + 1)
    _, n_steps, n_dp = shape
    expected = np.stack([numbers // (n_steps * n_dp), numbers // n_dp % n_steps, numbers % n_dp], axis=1)
    is_wrong = (cells != expected[:-1]).any(axis=1)
    if not is_wrong.any():
        return None if len(cells) == prod(shape) else (None, tuple(expected[-1].tolist()))
    first = int(np.argmax(is_wrong))
    if first and (cells[first] == cells[first - 1]).all():
        return first, tuple(cells[first].tolist())
    return None, tuple(expected[first].tolist())


def _ids(columns: dict[str, np.ndarray], row: int) -> tuple[int, int, int]:
    return int(columns["mc"][row]), int(columns["mb_id"][row]), int(columns["gmc"][row])


def _ranks(path: Path, columns: dict[str, np.ndarray], meta: JobMeta) -> np.ndarray:
    """Return the global rank of every [stage, dp rank].

    Raise JobRejected if a stage has no ops, if a (stage, dp rank) has two ranks, or if two of them share a rank.
    """
    stages = np.unique(columns["stage"])
    if len(stages) < meta.pp:
        stage = int(np.argmax(np.append(stages, meta.pp) != np.arange(len(stages) + 1)))
        raise JobRejected(f"{path}: no op of stage {stage}; the YAML file says {meta.pp} stages (pp_size)")
    ranks = np.empty((meta.pp, meta.dp), dtype=np.int64)
    ranks[columns["stage"], columns["dp_rank"]] = columns["rank"]
    is_other_rank = ranks[columns["stage"], columns["dp_rank"]] != columns["rank"]
    if is_other_rank.any():
        row = int(np.argmax(is_other_rank))
        raise JobRejected(f"{path}: column 'rank', row {row}: a stage and dp_rank with two ranks; keep one of each")
    values, n_places = np.unique(ranks, return_counts=True)
    if (n_places > 1).any():
        rank = int(values[n_places > 1][0])
        rows = np.flatnonzero(columns["rank"] == rank)
        places = np.stack([columns["stage"], columns["dp_rank"]], axis=1)[rows]
        row = int(rows[np.argmax((places != places[0]).any(axis=1))])
        raise JobRejected(
            f"{path}: column 'rank', row {row}: {rank}, as in row {rows[0]}, which has another stage or dp_rank; each needs a "
            "rank of its own, counted over the whole job"
        )
    return ranks
