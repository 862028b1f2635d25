"""Origin of a trace: job, rank, host and devices, from its metadata, else from the file's name and folder."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any

from pipelines.base.errors import TracelakeError
from pipelines.base.paths import path_text, without_parents
from pipelines.readers.drawings import is_slice
from pipelines.readers.kineto.merged import BY_LABEL
from pipelines.readers.kineto.numbers import base_time, whole

# Names that fleets give their files: rank0, rank-3, rank_12, worker7, node2.rank5, 3.json.gz. A number after an
# underscore only is just as often a process id (libkineto_activities_1074.json), so it does not count. A worker before
# a rank is the host (job-worker-3_rank27.json, from the name of a pod). local_rank3, node_rank1 and tp_rank0 are ranks
# in a node, of a node, and in a dimension of the mesh, which several processes of a job share.
RANK_PATTERN = (
    r"(?:(?<!local)(?<!local[-_.])(?<!node[-_.])(?<!(?<![a-z\d])[cdepst]p[-_.])rank|worker(?!.*rank[-_.]?\d))[-_.]?(\d+)"
    r"|^(\d+)\.(?:pt\.trace\.)?json"
)
JOB_PATTERN = "TRACELAKE_JOB_PATTERN"
INBOX = "TRACELAKE_INBOX"
# Sources of a rank: traces.rank_source. Readers that infer the rank record its source in distributedInfo.
BY_TRACE, BY_NAME, BY_DEVICE, BY_NCCL, BY_ENVIRONMENT = "trace", "file_name", "device", "nccl", "environment"
_INFERRED = (BY_DEVICE, BY_NCCL, BY_ENVIRONMENT, BY_LABEL)
_JOB_KEYS = ("job", "job_name", "mast_job_name", "tw_job")
_HOST_KEYS = ("host_name", "hostname", "host")


class WrongPattern(TracelakeError, ValueError):
    """The environment's pattern for ranks or jobs cannot be used. The message gives the reason."""


def describe_origin(path: Path, metadata: dict[str, Any], job: str | None, part: str | None = None) -> dict[str, Any]:
    """Return group_id, job, rank, rank_source, world_size, host, device_name, device_count. Unknown values are None.

    `part`: one trace of a file with several traces. Then a rank in the file's name does not count, because it is
    unknown which of the traces has it. Raise WrongPattern.

    - `group_id` is the same for the traces of one job in one folder. They form one capture, or several if ranks are
      repeated (pipelines/fleet/captures/grouping.py).
    - The rank in a file name is the first group of TRACELAKE_RANK_PATTERN (default RANK_PATTERN) that matches.
    - The job is `job`, else the match of TRACELAKE_JOB_PATTERN in the path, else the metadata's, else the folder below
      the inbox (job_from_inbox).
    - A slice of a trace has no job, and a separate group.
    - Ranks that are numbers of GPUs (BY_DEVICE) distinguish the processes of one file, and may occur again in the next
      node's file. Such a file is a separate group.
    - A file with the merged traces of several ranks (BY_LABEL) is a separate group, because the ranks' own files are
      next to it.
    - The rank in the file's name overrides NCCL's rank of the only process of a file (BY_NCCL), because the
      communicator may contain only some of the ranks.
    """
    distributed_info = metadata.get("distributedInfo")
    distributed_info = distributed_info if isinstance(distributed_info, dict) else {}
    devices = metadata.get("deviceProperties")
    devices = [d for d in devices if isinstance(d, dict)] if isinstance(devices, list) else []
    metadata_job = next((str(metadata[key]) for key in _JOB_KEYS if metadata.get(key)), None)
    job = job or job_from_pattern(path) or metadata_job or job_from_inbox(path)
    path = without_parents(path)
    group_folder = path.absolute().parent
    if is_slice(metadata):
        job, group_folder = None, path.absolute()
    recorded_rank, named_rank = whole(distributed_info.get("rank")), rank_from_name(path.name) if part is None else None
    source = distributed_info.get("rank_source")
    source = source if source in _INFERRED else BY_TRACE
    if recorded_rank is None or (source == BY_NCCL and named_rank is not None):
        distributed_info, source = {} if source == BY_NCCL else distributed_info, BY_NAME
    rank = named_rank if source == BY_NAME else recorded_rank
    if source in (BY_DEVICE, BY_LABEL):
        group_folder = path.absolute()
    group = hashlib.sha256(f"{job or ''}\0{group_folder}".encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return {
        "group_id": group,
        "job": job,
        "rank": rank,
        "rank_source": None if rank is None else source,
        "world_size": whole(distributed_info.get("world_size")),
        "host": next((str(metadata[key]) for key in _HOST_KEYS if metadata.get(key)), None),
        "device_name": str(devices[0]["name"]) if devices and devices[0].get("name") else None,
        "device_count": len(devices) or None,
    }


def job_from_pattern(path: Path) -> str | None:
    """Return the first group that TRACELAKE_JOB_PATTERN matches in the absolute path, else None.

    Raise WrongPattern if the pattern cannot be used.
    """
    pattern = os.environ.get(JOB_PATTERN)
    return (
        _first_group(_pattern(JOB_PATTERN, pattern, "runs/([^/]+)/"), path_text(path.absolute())) if pattern else None
    )


def job_from_inbox(path: Path) -> str | None:
    """Return the folder directly below TRACELAKE_INBOX that contains the file.

    None for files outside the inbox, or directly in it.
    """
    inbox = os.environ.get(INBOX)
    if not inbox:
        return None
    absolute_path, absolute_inbox = (without_parents(each_path).absolute() for each_path in (path, Path(inbox)))
    if not absolute_path.is_relative_to(absolute_inbox):
        return None
    folders = absolute_path.relative_to(absolute_inbox).parts[:-1]
    return path_text(folders[0]) if folders else None


def _pattern(variable: str, text: str, example: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(text, re.IGNORECASE)
    except re.error as error:
        raise WrongPattern(f"{variable}={text} is not a regular expression: {error}") from None
    if not pattern.groups:
        noun = "job" if variable == JOB_PATTERN else "rank"
        raise WrongPattern(f"{variable}={text} has no group; put parentheses around the {noun}, as in {example}")
    return pattern


def _first_group(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return next((group for group in match.groups() if group), None) if match else None


def unusable_numbers(path: Path, metadata: dict[str, Any]) -> list[str]:
    """Return the fields of metadata or file name with a rank, world size or base time that is not a usable number."""
    distributed_info = metadata.get("distributedInfo")
    distributed_info = distributed_info if isinstance(distributed_info, dict) else {}
    values = {f"distributedInfo.{key}": distributed_info.get(key) for key in ("rank", "world_size")}
    unusable = [key for key, value in values.items() if value is not None and whole(value) is None]
    if metadata.get("baseTimeNanoseconds") is not None and base_time(metadata) is None:
        unusable.append("baseTimeNanoseconds")
    text = _rank_text(path.name)
    if text is not None and whole(text) is None:
        unusable.append("the rank in the file's name")
    return unusable


def rank_from_name(name: str) -> int | None:
    """Return the rank in a file's name, by RANK_PATTERN or TRACELAKE_RANK_PATTERN, or None if the name has no rank.

    Raise WrongPattern if TRACELAKE_RANK_PATTERN cannot be used.
    """
    return whole(_rank_text(name))


def _rank_text(name: str) -> str | None:
    pattern = os.environ.get("TRACELAKE_RANK_PATTERN", RANK_PATTERN)
    return _first_group(_pattern("TRACELAKE_RANK_PATTERN", pattern, r"rank(\d+)"), name)
