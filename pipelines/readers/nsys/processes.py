"""Processes of an export that did GPU work. Each is a separate trace, like the profiler file of a rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pipelines.readers.nsys.schema import process_key, sources_in
from pipelines.readers.sqlite_exports.open_export import Exported, column
from pipelines.readers.sqlite_exports.sources import Source

_PID_BITS = 24


def gpu_processes(export: Exported) -> list[int]:
    """Return the keys (`process_key`) of the processes with GPU work, in ascending order.

    If no table of GPU work identifies a process, return the only process with CUDA calls, or [] without one. In this
    case, raise TraceRejected if several processes called CUDA, because the owner of the GPU work is unknown.
    """
    sources = sources_in(export.tables)
    gpu_sources = [source for source in sources if source.work and export.has(source.name)]
    sources_with_process = [source for source in gpu_sources if source.process in export.columns(source.name)]
    n_rows_by_process = Counter[int]()
    for source in sources_with_process:
        n_rows_by_process.update(_counted(export, source))
    if n_rows_by_process or not gpu_sources:
        return sorted(n_rows_by_process)
    callers = [source for source in sources if source.staged == "_nsys_calls" and export.columns(source.name)]
    callers = [source for source in callers if source.process in export.columns(source.name)]
    calling_processes = sorted({key for source in callers for key in _counted(export, source)})
    if len(calling_processes) > 1:
        raise export.rejected(
            f"{gpu_sources[0].name} does not say whose work it is (no globalPid), and {len(calling_processes)} processes called CUDA: "
            "export the report with a newer nsys"
        )
    return calling_processes


def beside(export: Exported, keys: Sequence[int]) -> tuple[int, int]:
    """Count the rows that belong to none of the processes `keys`: (rows of other processes, rows without a process)."""
    n_of_others = n_without_process = 0
    for source in sources_in(export.tables) if keys else ():
        if source.process in export.columns(source.name):
            n_of_others += sum(n for key, n in _counted(export, source).items() if key not in keys)
            query = f"SELECT count(*) FROM {column(source.name)} WHERE typeof({column(source.process)}) <> 'integer'"
            n_without_process += export.rows(source.name, query)[0][0]
    return n_of_others, n_without_process


def device_ranks(export: Exported, keys: Sequence[int]) -> dict[int, int]:
    """Return the rank by process if several processes on one machine each used exactly one GPU, all different.

    The rank is the GPU's number, because launchers assign GPUs by local rank (torchrun: `cuda.set_device(LOCAL_RANK)`).
    Return {} if a process used several GPUs, two processes used the same GPU, or a row of GPU work has no device.
    """
    gpu_sources = [source for source in sources_in(export.tables) if source.work and export.has(source.name)]
    if len(keys) < 2 or not of_one_machine(keys):
        return {}
    process_device_pairs = set[tuple[object, object]]()
    for source in gpu_sources:
        if not {source.process, source.columns["device"]} <= export.columns(source.name):
            return {}
        device, process = column(source.columns["device"]), column(str(source.process))
        query = f"SELECT DISTINCT {source.process_sql}, {device} FROM {column(source.name)} WHERE typeof({process}) = 'integer'"
        process_device_pairs.update(export.rows(source.name, query))
    device_by_process = {
        key: device
        for key, device in process_device_pairs
        if isinstance(key, int) and isinstance(device, int) and device >= 0
    }
    return (
        device_by_process
        if len(keys) == len(process_device_pairs) == len(device_by_process) == len(set(device_by_process.values()))
        else {}
    )


def of_one_machine(keys: Sequence[int]) -> bool:
    """Return whether all processes ran on one machine, and so have the same clock."""
    return len({key >> _PID_BITS for key in keys}) <= 1


def pid_of(key: int) -> int:
    """Return the process id in a `process_key`."""
    return key & ((1 << _PID_BITS) - 1)


def _counted(export: Exported, source: Source) -> dict[int, int]:
    assert source.process is not None
    name = column(source.process)
    query = (
        f"SELECT {source.process_sql}, count(*) FROM {column(source.name)} WHERE typeof({name}) = 'integer' GROUP BY 1"
    )
    return {int(key): n for key, n in export.rows(source.name, query)}


def which(export: Exported, keys: Sequence[int]) -> str:
    """Return the processes as text for a message: process ids, with names if the export contains them."""
    name_by_process = {}
    if {"globalPid", "name"} <= export.columns("PROCESSES"):
        rows = export.rows("PROCESSES", "SELECT globalPid, name FROM PROCESSES WHERE typeof(globalPid) = 'integer'")
        name_by_process = {process_key(serialized): str(name) for serialized, name in rows if name}
    return ", ".join(
        f"{pid_of(key)} ({name_by_process[key]})" if key in name_by_process else str(pid_of(key)) for key in keys
    )
