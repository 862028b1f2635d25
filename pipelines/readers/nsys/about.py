"""What an export says about the machine and the capture, as Kineto's metadata has it."""

from __future__ import annotations

from typing import Any

from pipelines.readers.nsys.processes import pid_of
from pipelines.readers.sqlite_exports.opened import Exported, column

# Keys of Kineto's deviceProperties, and where the export has them: TARGET_INFO_GPU.
_DEVICE = {
    "name": "name",
    "totalGlobalMem": "totalMemory",
    "numSms": "smCount",
    "computeMajor": "computeMajor",
    "computeMinor": "computeMinor",
    "maxThreadsPerBlock": "maxThreadsPerBlock",
    "regsPerBlock": "maxRegistersPerBlock",
    "warpSize": "threadsPerWarp",
    "sharedMemPerBlock": "maxShmemPerBlock",
    "sharedMemPerMultiprocessor": "maxShmemPerSm",
}
_FEW = 4096  # devices, properties: more are not of this world


def metadata(export: Exported, process: int | None) -> dict[str, Any]:
    """Returns deviceProperties, host_name, and what is the tool's own (nsys); without what the export does not say."""
    said = {name: value for name, value in _pairs(export, "META_DATA_EXPORT") if isinstance(value, str)}
    own: dict[str, Any] = {
        "product_version": said.get("EXPORT_PRODUCT_VERSION"),
        "schema_version": said.get("EXPORT_SCHEMA_VERSION") or _joined_version(said),
        "process_id": None if process is None else pid_of(process),
    }
    env = dict(_pairs(export, "TARGET_INFO_SYSTEM_ENV"))
    host = next((env[name] for name in ("Hostname", "HostName", "hostname") if isinstance(env.get(name), str)), None)
    found = {
        "deviceProperties": _devices(export, process),
        "host_name": host,
        "nsys": {key: value for key, value in own.items() if value is not None},
    }
    return {key: value for key, value in found.items() if value}


def session_start_ns(export: Exported) -> int | None:
    """Returns when the session began, ns since 1970: all times of the export count from there. None if it does not say."""
    table = "TARGET_INFO_SESSION_START_TIME"
    if "utcEpochNs" not in export.columns(table):
        return None
    rows = export.rows(table, f"SELECT utcEpochNs FROM {table} WHERE typeof(utcEpochNs) = 'integer' LIMIT 1")
    return next((at for (at,) in rows if 0 < at < 1 << 62), None)


def schema_version(export: Exported) -> str | None:
    """Returns the version of the export's schema (3.16.1); None where it does not say."""
    return metadata(export, None).get("nsys", {}).get("schema_version")


def _joined_version(said: dict[str, str]) -> str | None:
    parts = [said.get(f"EXPORT_SCHEMA_VERSION_{part}") for part in ("MAJOR", "MINOR", "MICRO")]
    return ".".join(part for part in parts if part) or None


def _devices(export: Exported, process: int | None) -> list[dict[str, Any]]:
    """One per CUDA device of the process, numbered as the process numbers them: CUDA_VISIBLE_DEVICES changes that."""
    there = export.columns("TARGET_INFO_GPU")
    if "id" not in there:
        return []
    columns = {ours: theirs for ours, theirs in _DEVICE.items() if theirs in there}
    selected = ", ".join(map(column, ("id", *columns.values())))
    rows = export.rows("TARGET_INFO_GPU", f"SELECT {selected} FROM TARGET_INFO_GPU LIMIT {_FEW}")
    gpus = {row[0]: {k: v for k, v in zip(columns, row[1:], strict=True) if isinstance(v, int | str)} for row in rows}
    numbers = device_numbers(export, process)
    if numbers is None:
        numbers = {gpu: gpu for gpu in gpus if isinstance(gpu, int)}
    return [{"id": cuda, **gpus[gpu]} for cuda, gpu in sorted(numbers.items()) if gpu in gpus]


def device_numbers(export: Exported, process: int | None) -> dict[int, int] | None:
    """Returns GPU by CUDA device of the process; None where the export does not say."""
    table = "TARGET_INFO_CUDA_DEVICE"
    if process is None or not {"gpuId", "cudaId", "pid"} <= export.columns(table):
        return None
    rows = export.rows(table, f"SELECT cudaId, gpuId FROM {table} WHERE pid = ? LIMIT {_FEW}", (pid_of(process),))
    return {cuda: gpu for cuda, gpu in rows if isinstance(cuda, int) and isinstance(gpu, int)} or None


def _pairs(export: Exported, table: str) -> list[tuple[Any, Any]]:
    if not {"name", "value"} <= export.columns(table):
        return []
    return export.rows(table, f"SELECT name, value FROM {table} WHERE typeof(name) = 'text' LIMIT {_FEW}")
