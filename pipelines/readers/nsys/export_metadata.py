"""Metadata of an export about the machine and the capture, in the form of Kineto's metadata."""

from __future__ import annotations

from typing import Any

from pipelines.readers.nsys.processes import pid_of
from pipelines.readers.sqlite_exports.open_export import Exported, column

# Keys of Kineto's deviceProperties, with the columns of the export's TARGET_INFO_GPU.
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
_FEW = 4096  # rows; more devices or properties than any machine has


def metadata(export: Exported, process: int | None) -> dict[str, Any]:
    """Return deviceProperties, host_name and nsys (versions and process id), each without missing values."""
    value_by_name = {name: value for name, value in _pairs(export, "META_DATA_EXPORT") if isinstance(value, str)}
    tool_metadata: dict[str, Any] = {
        "product_version": value_by_name.get("EXPORT_PRODUCT_VERSION"),
        "schema_version": value_by_name.get("EXPORT_SCHEMA_VERSION") or _joined_version(value_by_name),
        "process_id": None if process is None else pid_of(process),
    }
    env = dict(_pairs(export, "TARGET_INFO_SYSTEM_ENV"))
    host = next((env[name] for name in ("Hostname", "HostName", "hostname") if isinstance(env.get(name), str)), None)
    metadata_by_key = {
        "deviceProperties": _devices(export, process),
        "host_name": host,
        "nsys": {key: value for key, value in tool_metadata.items() if value is not None},
    }
    return {key: value for key, value in metadata_by_key.items() if value}


def session_start_ns(export: Exported) -> int | None:
    """Return the start of the session in ns since 1970, to which all times are relative, or None if it is missing."""
    table = "TARGET_INFO_SESSION_START_TIME"
    if "utcEpochNs" not in export.columns(table):
        return None
    rows = export.rows(table, f"SELECT utcEpochNs FROM {table} WHERE typeof(utcEpochNs) = 'integer' LIMIT 1")
    return next((start_ns for (start_ns,) in rows if 0 < start_ns < 1 << 62), None)


def _joined_version(value_by_name: dict[str, str]) -> str | None:
    parts = [value_by_name.get(f"EXPORT_SCHEMA_VERSION_{part}") for part in ("MAJOR", "MINOR", "MICRO")]
    return ".".join(part for part in parts if part) or None


def _devices(export: Exported, process: int | None) -> list[dict[str, Any]]:
    """Return the properties of each CUDA device of the process. `id`: its CUDA number, else the GPU's number."""
    columns_present = export.columns("TARGET_INFO_GPU")
    if "id" not in columns_present:
        return []
    columns = {ours: theirs for ours, theirs in _DEVICE.items() if theirs in columns_present}
    selected = ", ".join(map(column, ("id", *columns.values())))
    rows = export.rows("TARGET_INFO_GPU", f"SELECT {selected} FROM TARGET_INFO_GPU LIMIT {_FEW}")
    gpu_by_id = {
        row[0]: {key: value for key, value in zip(columns, row[1:], strict=True) if isinstance(value, int | str)}
        for row in rows
    }
    gpu_by_cuda_device = device_numbers(export, process)
    if gpu_by_cuda_device is None:
        gpu_by_cuda_device = {gpu: gpu for gpu in gpu_by_id if isinstance(gpu, int)}
    return [{"id": cuda, **gpu_by_id[gpu]} for cuda, gpu in sorted(gpu_by_cuda_device.items()) if gpu in gpu_by_id]


def device_numbers(export: Exported, process: int | None) -> dict[int, int] | None:
    """Return the GPU's number by CUDA device of the process, or None if the export does not contain the numbers."""
    table = "TARGET_INFO_CUDA_DEVICE"
    if process is None or not {"gpuId", "cudaId", "pid"} <= export.columns(table):
        return None
    rows = export.rows(table, f"SELECT cudaId, gpuId FROM {table} WHERE pid = ? LIMIT {_FEW}", (pid_of(process),))
    return {cuda: gpu for cuda, gpu in rows if isinstance(cuda, int) and isinstance(gpu, int)} or None


def _pairs(export: Exported, table: str) -> list[tuple[Any, Any]]:
    if not {"name", "value"} <= export.columns(table):
        return []
    return export.rows(table, f"SELECT name, value FROM {table} WHERE typeof(name) = 'text' LIMIT {_FEW}")
