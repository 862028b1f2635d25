"""Ingestion of Flight Recorder dumps. All dumps of a folder are one set, identified by its content."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from pathlib import Path

from pipelines.base.paths import path_text
from pipelines.lake.commit.staged_rows import unforeseen
from pipelines.lake.names import DUMP_MARK
from pipelines.readers.flight_recorder.dump import Dump, DumpError, is_dump, read_dump
from pipelines.readers.flight_recorder.rows import dump_rows, entry_rows, verdict_rows
from pipelines.readers.flight_recorder.verdicts import judge
from pipelines.readers.inputs import Read, Reading, SetInput


def dump_files(files: Iterable[Path]) -> dict[Path, list[Path]]:
    """Return the dumps by folder. A single dump adds the others of its folder, because they are one set."""
    folders = dict.fromkeys(path.parent for path in files if is_dump(path))
    return {
        folder: [path for path in sorted(folder.iterdir()) if path.name[:1] != "." and is_dump(path)]
        for folder in folders
    }


def stage_dumps(reading: Reading, folder: Path, files: Collection[Path]) -> Read | None:
    """Stage one set. Return None if no dump can be read.

    A dump that cannot be read is rejected on its own, and the set's verdicts report it as missing.
    """
    dumps: list[Dump] = []
    for path in files:
        try:
            dumps.append(read_dump(path))
        except (DumpError, OSError) as error:
            reading.rejected[path] = str(error)
        except Exception as error:
            reading.rejected[path] = unforeseen(error)
    if not dumps:
        return None
    set_id = content_id(dumps)
    if set_id in reading.known:
        return Read(set_id, status="known")
    verdict = judge(dumps)
    set_columns = {**reading.file_columns(min(files)), "folder": path_text(folder.absolute())}
    reading.add_rows(DUMP_MARK, [{**set_columns, **row} for row in dump_rows(dumps, verdict)])  # each with its own path
    reading.add_rows("flight_recorder_entries", entry_rows(dumps))
    reading.add_rows("flight_recorder_verdicts", verdict_rows(verdict))
    return Read(set_id, sum(len(dump.entries) for dump in dumps))


def content_id(dumps: Iterable[Dump]) -> str:
    """Return 16 hex digits of a hash of the ranks and the contents of a set's files."""
    digest = hashlib.sha256()
    for dump in sorted(dumps, key=lambda dump: (dump.rank, dump.path)):
        digest.update(f"{dump.rank}\0".encode() + hashlib.sha256(dump.path.read_bytes()).digest())
    return digest.hexdigest()[:16]


INPUT = SetInput(
    scope="dump",
    suffixes=(),  # PyTorch's dumps have no suffix, and any name is possible
    recognise=dump_files,
    read=stage_dumps,
    refusals=(DumpError,),
)
