"""Which processes of an export did GPU work: each is a trace of its own, as each rank's profiler file is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pipelines.readers.nsys.schema import process_key, sources_in
from pipelines.readers.sqlite_exports.opened import Exported, column
from pipelines.readers.sqlite_exports.sources import Source

_PID_BITS = 24


def gpu_processes(export: Exported) -> list[int]:
    """Returns the processes with GPU work, by `process_key`, those with the lowest numbers first.

    Where no table of GPU work says whose it is, the only process with CUDA calls; none if there is no such process.
    Raises TraceRejected if nobody can tell which of several processes did the work.
    """
    sources = sources_in(export.tables)
    works = [source for source in sources if source.work and export.has(source.name)]
    told = [source for source in works if source.process in export.columns(source.name)]
    found = Counter[int]()
    for source in told:
        found.update(_counted(export, source))
    if found or not works:
        return sorted(found)
    callers = [source for source in sources if source.staged == "_nsys_calls" and export.columns(source.name)]
    callers = [source for source in callers if source.process in export.columns(source.name)]
    calling = sorted({key for source in callers for key in _counted(export, source)})
    if len(calling) > 1:
        raise export.rejected(
            f"{works[0].name} does not say whose work it is (no globalPid), and {len(calling)} processes called CUDA: "
            "export the report with a newer nsys"
        )
    return calling


def beside(export: Exported, keys: Sequence[int]) -> tuple[int, int]:
    """Returns how many rows are in no trace of these processes: those of other processes, and those of no process."""
    others = nobodys = 0
    for source in sources_in(export.tables) if keys else ():
        if source.process in export.columns(source.name):
            others += sum(n for key, n in _counted(export, source).items() if key not in keys)
            query = f"SELECT count(*) FROM {column(source.name)} WHERE typeof({column(source.process)}) <> 'integer'"
            nobodys += export.rows(source.name, query)[0][0]
    return others, nobodys


def device_ranks(export: Exported, keys: Sequence[int]) -> dict[int, int]:
    """Returns rank by process where each of several processes of one machine worked on one GPU that no other worked on.

    The rank is that GPU's number, as launchers give local ranks (torchrun: `cuda.set_device(LOCAL_RANK)`); {} where any
    process worked on several, two on one, or a row of work does not say.
    """
    works = [source for source in sources_in(export.tables) if source.work and export.has(source.name)]
    if len(keys) < 2 or not of_one_machine(keys):
        return {}
    found = set[tuple[object, object]]()
    for source in works:
        if not {source.process, source.columns["device"]} <= export.columns(source.name):
            return {}
        device, process = column(source.columns["device"]), column(str(source.process))
        query = f"SELECT DISTINCT {source.process_sql}, {device} FROM {column(source.name)} WHERE typeof({process}) = 'integer'"
        found.update(export.rows(source.name, query))
    ranks = {key: device for key, device in found if isinstance(key, int) and isinstance(device, int) and device >= 0}
    return ranks if len(keys) == len(found) == len(ranks) == len(set(ranks.values())) else {}


def of_one_machine(keys: Sequence[int]) -> bool:
    """Whether the processes ran on one machine, whose clock is one."""
    return len({key >> _PID_BITS for key in keys}) <= 1


def pid_of(key: int) -> int:
    """Returns the process id in a `process_key`."""
    return key & ((1 << _PID_BITS) - 1)


def _counted(export: Exported, source: Source) -> dict[int, int]:
    assert source.process is not None
    name = column(source.process)
    query = (
        f"SELECT {source.process_sql}, count(*) FROM {column(source.name)} WHERE typeof({name}) = 'integer' GROUP BY 1"
    )
    return {int(key): n for key, n in export.rows(source.name, query)}


def which(export: Exported, keys: Sequence[int]) -> str:
    """Returns the processes as people know them: process id and name."""
    names = {}
    if {"globalPid", "name"} <= export.columns("PROCESSES"):
        rows = export.rows("PROCESSES", "SELECT globalPid, name FROM PROCESSES WHERE typeof(globalPid) = 'integer'")
        names = {process_key(serialized): str(name) for serialized, name in rows if name}
    return ", ".join(f"{pid_of(key)} ({names[key]})" if key in names else str(pid_of(key)) for key in keys)
