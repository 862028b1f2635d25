"""Where a trace comes from: job, rank, host and devices, from its metadata, else from the file's name and folder."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any

from pipelines.base.errors import TracelakeError
from pipelines.base.paths import path_text
from pipelines.readers.drawings import is_slice
from pipelines.readers.kineto.merged import BY_LABEL
from pipelines.readers.kineto.numbers import base_time, whole

# Names that fleets give their files: rank0, rank-3, rank_12, worker7, node2.rank5, 3.json.gz. A number after an
# underscore only is just as often a process id (libkineto_activities_1074.json), so it does not count.
RANK_PATTERN = r"(?:rank|worker)[-_.]?(\d+)|^(\d+)\.(?:pt\.trace\.)?json"
JOB_PATTERN = "TRACELAKE_JOB_PATTERN"
INBOX = "TRACELAKE_INBOX"
# What told a rank: traces.rank_source. Readers that infer it say what from in distributedInfo.
BY_TRACE, BY_NAME, BY_DEVICE, BY_NCCL, BY_ENVIRONMENT = "trace", "file_name", "device", "nccl", "environment"
_INFERRED = (BY_DEVICE, BY_NCCL, BY_ENVIRONMENT, BY_LABEL)
_JOB_KEYS = ("job", "job_name", "mast_job_name", "tw_job")
_HOST_KEYS = ("host_name", "hostname", "host")


class WrongPattern(TracelakeError, ValueError):
    """The environment's pattern for ranks or jobs cannot be used; the message says why."""


def describe_origin(path: Path, metadata: dict[str, Any], job: str | None, part: str | None = None) -> dict[str, Any]:
    """Returns group_id, job, rank, rank_source, world_size, host, device_name, device_count; None for what nothing says.

    `group_id` is the same for the traces of one job found in one folder: they make one capture, or several if ranks are
    repeated (pipelines/fleet/captures/grouping.py). Ranks in file names are found by TRACELAKE_RANK_PATTERN (default
    RANK_PATTERN): its first group that matches is the rank. The job is `job`, else what TRACELAKE_JOB_PATTERN finds in
    the path, else what the metadata says, else the folder below the inbox (job_from_inbox). A slice of a trace is of no job,
    and a group of its own. `part`: which trace of a file that holds several; the file's name may tell one rank, not which of
    them that is. Ranks that are numbers of GPUs (BY_DEVICE) tell the processes of one file apart, and may be there again in
    the next node's file: such a file is a group of its own. So is a file into which the traces of ranks were merged (BY_LABEL): those
    lie beside it. What NCCL says of the only process of a file (BY_NCCL) yields to
    the file's name: the communicator may be of some of the ranks. Raises WrongPattern.
    """
    spread = metadata.get("distributedInfo")
    spread = spread if isinstance(spread, dict) else {}
    devices = metadata.get("deviceProperties")
    devices = [d for d in devices if isinstance(d, dict)] if isinstance(devices, list) else []
    told = next((str(metadata[key]) for key in _JOB_KEYS if metadata.get(key)), None)
    job = job or job_from_pattern(path) or told or job_from_inbox(path)
    place = path.absolute().parent
    if is_slice(metadata):
        job, place = None, path.absolute()
    told_rank, named_rank = whole(spread.get("rank")), rank_from_name(path.name) if part is None else None
    source = spread.get("rank_source")
    source = source if source in _INFERRED else BY_TRACE
    if told_rank is None or (source == BY_NCCL and named_rank is not None):
        spread, source = {} if source == BY_NCCL else spread, BY_NAME
    rank = named_rank if source == BY_NAME else told_rank
    if source in (BY_DEVICE, BY_LABEL):
        place = path.absolute()
    group = hashlib.sha256(f"{job or ''}\0{place}".encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return {
        "group_id": group,
        "job": job,
        "rank": rank,
        "rank_source": None if rank is None else source,
        "world_size": whole(spread.get("world_size")),
        "host": next((str(metadata[key]) for key in _HOST_KEYS if metadata.get(key)), None),
        "device_name": str(devices[0]["name"]) if devices and devices[0].get("name") else None,
        "device_count": len(devices) or None,
    }


def job_from_path(path: Path) -> str | None:
    """Returns the job that a path alone tells: by the environment's pattern, else by its folder below the inbox.

    Raises WrongPattern."""
    return job_from_pattern(path) or job_from_inbox(path)


def job_from_pattern(path: Path) -> str | None:
    """Returns the first group that TRACELAKE_JOB_PATTERN matches in the absolute path, else None. Raises WrongPattern."""
    given = os.environ.get(JOB_PATTERN)
    return _first_group(_pattern(JOB_PATTERN, given, "runs/([^/]+)/"), path_text(path.absolute())) if given else None


def job_from_inbox(path: Path) -> str | None:
    """Returns the folder directly below TRACELAKE_INBOX that holds the file; None for files outside it or at its top."""
    inbox = os.environ.get(INBOX)
    below = path.absolute()
    if not inbox or not below.is_relative_to(Path(inbox).absolute()):
        return None
    folders = below.relative_to(Path(inbox).absolute()).parts[:-1]
    return path_text(folders[0]) if folders else None


def _pattern(variable: str, given: str, example: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(given, re.IGNORECASE)
    except re.error as error:
        raise WrongPattern(f"{variable}={given} is not a regular expression: {error}") from None
    if not pattern.groups:
        what = "job" if variable == JOB_PATTERN else "rank"
        raise WrongPattern(f"{variable}={given} has no group; put parentheses around the {what}, as in {example}")
    return pattern


def _first_group(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return next((group for group in match.groups() if group), None) if match else None


def unusable_numbers(path: Path, metadata: dict[str, Any]) -> list[str]:
    """Returns what the metadata or file name gives as rank, world size or base time but is not a number the lake can
    hold.
    """
    spread = metadata.get("distributedInfo")
    spread = spread if isinstance(spread, dict) else {}
    given = {f"distributedInfo.{key}": spread.get(key) for key in ("rank", "world_size")}
    wrong = [key for key, value in given.items() if value is not None and whole(value) is None]
    if metadata.get("baseTimeNanoseconds") is not None and base_time(metadata) is None:
        wrong.append("baseTimeNanoseconds")
    text = _rank_text(path.name)
    if text is not None and whole(text) is None:
        wrong.append("the rank in the file's name")
    return wrong


def rank_from_name(name: str) -> int | None:
    """Returns the rank in a file's name, by RANK_PATTERN or TRACELAKE_RANK_PATTERN; None if there is none.

    Raises WrongPattern.
    """
    return whole(_rank_text(name))


def _rank_text(name: str) -> str | None:
    given = os.environ.get("TRACELAKE_RANK_PATTERN", RANK_PATTERN)
    return _first_group(_pattern("TRACELAKE_RANK_PATTERN", given, r"rank(\d+)"), name)
