"""`python -m pipelines.faces.training.deliver FILE… TARGET LAKE JOB`: deliver traces that training processes wrote.

For each file, the process inserts the key in its `key_file` (`"name": value,`) at the start of the JSON object,
compresses it, and moves the result into the target in one step. Then it ingests the result if a lake is named, and
removes the file. It may be killed at any time and restarted. If several processes try to deliver a file, only the first
delivers it.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import shutil
import subprocess
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from pipelines.faces.training.trace_handler import HIDDEN, key_file

_LEVEL = 1  # gzip level: half the time of level 6, for a sixth more bytes
_NICE = 19
_HEAD = 64  # bytes at the start of the file that contain the object's opening brace


def _lower_priority() -> None:
    """Lower the priority of this process below that of training.

    Linux may share the CPU by session (autogroup), so the session's priority is lowered as well.
    """
    os.nice(_NICE)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_NICE))


def main(arguments: list[str] | None = None) -> int:
    """Deliver the files.

    Return 0, or the status of the last failure. If a file fails, the others are still delivered.
    """
    *names, target, lake, job = sys.argv[1:] if arguments is None else arguments
    _lower_priority()
    status = 0
    for name in names:
        try:
            status = _deliver(Path(name), target, lake, job) or status
        except Exception:
            traceback.print_exc()
            status = 1
    return status


def _deliver(file: Path, target: str, lake: str, job: str) -> int:
    """Deliver the file and remove it. Return 0, or the status of a failed ingestion."""
    try:
        source = file.open("r+b")  # opened for writing only because NFS requires it for an exclusive lock
    except FileNotFoundError:  # another process delivered it
        return 0
    with source:
        try:
            fcntl.flock(source, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        status = _delivered(file, source, target, lake, job) if file.exists() else 0
        if status == 0:
            file.unlink(missing_ok=True)
            key_file(file).unlink(missing_ok=True)
    return status


def _delivered(file: Path, source: BinaryIO, target: str, lake: str, job: str) -> int:
    key = key_file(file).read_text() if key_file(file).exists() else ""
    packed_name = f"{file.stem}.pt.trace.json.gz"
    hidden = file.parent if "://" in target else Path(target) / HIDDEN
    hidden.mkdir(parents=True, exist_ok=True)
    part = hidden / f"{packed_name}.part"
    with part.open("wb") as output, gzip.GzipFile("", "wb", _LEVEL, output, mtime=0) as packed:
        space, brace, rest = source.read(_HEAD).partition(b"{")
        packed.write(space + brace + key.encode() + rest)
        shutil.copyfileobj(source, packed, 1 << 20)
    place = _moved(part, target, packed_name)
    if not lake:
        return 0
    command = [sys.executable, "-m", "tracelake", "ingest", place, "--lake", lake, "--json"]
    process = subprocess.run([*command, *(["--job", job] if job else [])], check=False, stdout=subprocess.PIPE)
    for row in json.loads(process.stdout or "[]"):
        if row["status"] == "rejected":
            print(f"{row['path']}: {row['reason']}", flush=True)
    return process.returncode


def _moved(part: Path, target: str, name: str) -> str:
    """Move a file atomically into a folder or a bucket. Return its new path or address."""
    if "://" not in target:
        place = Path(target) / name
        os.replace(part, place)
        return str(place)
    from pyarrow import fs

    address = f"{target.rstrip('/')}/{name}"
    bucket, path = fs.FileSystem.from_uri(address)
    # The object becomes visible when the stream is closed.
    with part.open("rb") as packed, bucket.open_output_stream(path) as output:
        shutil.copyfileobj(packed, output, 1 << 20)
    part.unlink()
    return address


if __name__ == "__main__":
    sys.exit(main())
