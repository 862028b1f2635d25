"""Ingestion of torch.compile's provenance. The log of a process is one set, and so are the files of a debug folder.

A log that has grown replaces its earlier rows. So does a debug folder of another size, because its files may arrive one
after another, or be written again.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.base.paths import path_text
from pipelines.models.sqltext import as_text
from pipelines.readers.inputs import Read, Reading, Rejected, SetInput
from pipelines.readers.inputs.faults import Faults
from pipelines.readers.inputs.row_files import RowFiles
from pipelines.readers.kineto.numbers import whole
from pipelines.readers.kineto.source import Source, TooLarge, head_of
from pipelines.readers.origin import rank_from_name
from pipelines.readers.provenance.graphs import Frame, Graph, Kernel, WrongForm, operator_of
from pipelines.readers.provenance.torch_log import ARTIFACTS, HEAD, TorchLog

TABLE, KERNELS, NODES, FRAMES, FINDINGS = (
    *("compile_provenance", "compiled_kernels", "compiled_kernel_nodes", "compiled_kernel_frames"),
    "compile_findings",
)
_LOG, _FOLDER = "log", "debug_folder"
MOST_JSON = 32 << 20  # bytes of one file of a debug folder; 75,000 kernels with 8 nodes each have 31 MB
MOST_NAMES = 5_000_000  # nodes and frames of a set; bounded because a file may repeat long lists
_HEAD = 4096
_PID = re.compile(r"-pid_(\d{1,18})")
_WHOLE, _TEXT = pa.int64(), pa.string()
COLUMNS = {
    KERNELS: {
        **{"kernel_id": _WHOLE, "graph": _WHOLE, "compile_id": _TEXT, "graph_key": _TEXT, "name": _TEXT},
        **{"handle": _WHOLE, "n_post_grad_nodes": _WHOLE, "operators": _TEXT, "post_grad_nodes": _TEXT},
        **{"pre_grad_nodes": _TEXT, "source_lines": _TEXT},
    },
    NODES: {**{"kernel_id": _WHOLE, "name": _TEXT, "post_grad_node": _TEXT, "operator": _TEXT, "pre_grad_node": _TEXT}},
    FRAMES: {
        **{"kernel_id": _WHOLE, "name": _TEXT, "stack": _WHOLE, "depth": _WHOLE, "file": _TEXT, "line": _WHOLE},
        **{"function": _TEXT, "code": _TEXT},
    },
}


def provenance(files: Iterable[Path]) -> dict[Path, list[Path]]:
    """Return the sets: each log by its path, and the files of a debug folder by folder (a single file by its path).

    A file of a debug folder adds the folder's other files, because they describe the same graph.
    """
    files_by_path: dict[Path, list[Path]] = {}
    for path in files:
        if _part(path):
            folder = path.parent
            files_by_path[folder] = files_by_path.get(folder) or [p for p in sorted(folder.iterdir()) if _part(p)]
        elif path.name.endswith((".log", ".log.gz")) and is_log(path):
            files_by_path[path] = [path]
    return {paths[0] if len(paths) == 1 else folder: paths for folder, paths in files_by_path.items()}


def is_log(path: Path) -> bool:
    """Return whether a file begins like a log of TORCH_TRACE, False if it cannot be read."""
    head = head_of(path)[:_HEAD]
    return bool(HEAD.match(head))


def _part(path: Path) -> str | None:
    """Return the artifact in a file of a debug folder (an attribute of Graph), or None for other files."""
    name = path.name.removesuffix(".gz")
    return ARTIFACTS.get(name.removesuffix(".json")) if name.endswith(".json") else None


def read_provenance(reading: Reading, path: Path, files: Collection[Path]) -> Read:
    """Stage the tables of a log or of a debug folder. Raise Rejected if the files are too large or not provenance."""
    if any(_part(file) for file in files):
        return _read_folder(reading, path, sorted(files))
    source = Source(path, limits=reading.limits)
    log = TorchLog(_pieces(source))
    with tempfile.TemporaryDirectory() as folder:
        with RowFiles(Path(folder), COLUMNS) as rows:
            written = _Written(rows)
            for graph in log:
                written.add(graph, log.faults)
        key = hashlib.sha256(log.first_line or b"").hexdigest()[:16]
        if not _is_news(reading.known.get(key), _LOG, source.unpacked_bytes):
            return Read(key, status="known")
        rank = rank_from_name(path.name) if log.rank is None else log.rank
        if source.damage:
            log.faults.add("cut_file", "warning", source.damage)
        return _put(reading, path, key, rows, written, log.faults, source.unpacked_bytes, log.pid, rank)


def _read_folder(reading: Reading, path: Path, files: list[Path]) -> Read:
    graph, n_bytes = Graph(), 0
    # Ranks of a job may have equal files, and files may still be missing, so the folder is the key.
    digest = hashlib.sha256(path_text(files[0].absolute().parent).encode())
    key = digest.hexdigest()[:16]
    for file in files:
        source = Source(file, limits=reading.limits)
        content = b""
        for piece in _pieces(source):
            if source.unpacked_bytes > MOST_JSON:
                raise Rejected(f"{file.name} has more than {MOST_JSON >> 20} MiB, which no graph's provenance needs")
            content += piece
        digest.update(content)
        n_bytes += len(content)
        setattr(graph, _part(file) or "", _json(file, content, source.damage))
    if not _is_news(reading.known.get(key), _FOLDER, n_bytes):
        return Read(key, status="known")
    if (former_key := digest.hexdigest()[:16]) in reading.known:  # 0.2.0 also hashed the contents of the files
        return Read(former_key, status="known")
    pid = next((whole(match[1]) for part in reversed(path.absolute().parts) if (match := _PID.search(part))), None)
    faults = Faults()
    with tempfile.TemporaryDirectory() as folder:
        with RowFiles(Path(folder), COLUMNS) as rows:
            written = _Written(rows)
            written.add(graph, faults)
        if faults.by_name:
            (fault,) = faults.by_name.values()
            raise Rejected(
                f"not provenance as Inductor writes it: {fault.detail}; compile again with INDUCTOR_PROVENANCE=1"
            )
        return _put(reading, files[0], key, rows, written, faults, n_bytes, pid, None)


def _json(file: Path, content: bytes, damage: str | None) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        cause = damage or error
        raise Rejected(f"{file.name} is broken JSON: {as_text(str(cause))}; write or copy it again") from None
    if not isinstance(value, dict):
        raise Rejected(f"{file.name} contains a {type(value).__name__}, not Inductor's names by kernel; write it again")
    return value


def _pieces(source: Source) -> Iterator[bytes]:
    try:
        yield from source.chunks()
    except TooLarge as error:
        raise Rejected(f"provenance of torch.compile that is too large: {error.reason}") from None


def _put(
    reading: Reading,
    path: Path,
    key: str,
    rows: RowFiles,
    written: _Written,
    faults: Faults,
    n_bytes: int,
    pid: int | None,
    rank: int | None,
) -> Read:
    for table in COLUMNS:
        reading.add_files(table, rows.paths(table))
    reading.add_rows(FINDINGS, [{name: row[name] for name in ("fault", "n", "detail")} for row in faults.rows()])
    row = {
        **reading.file_columns(path),
        "source": _FOLDER if _part(path) else _LOG,
        "rank": rank,
        "pid": pid,
        "n_graphs": written.n_graphs,
        "n_kernels": rows.count(KERNELS),
        "unpacked_bytes": n_bytes,
    }
    reading.add_rows(TABLE, [row])
    reason = None
    if n_bad := faults.n_warnings:
        reason = f"{n_bad:,} parts could not be read: compile_findings"
    elif not rows.count(KERNELS):
        reason = "it contains no provenance: compile with INDUCTOR_PROVENANCE=1"
    return Read(key, rows.count(KERNELS), "partial" if reason else "ok", reason, _state(row))


class _Written:
    """Writer of graphs as rows. `n_graphs`: number of graphs with kernels."""

    def __init__(self, rows: RowFiles) -> None:
        self.n_graphs = 0
        self._rows, self._left = rows, MOST_NAMES

    def add(self, graph: Graph, faults: Faults) -> None:
        """Add the rows of a graph, or a fault if it is malformed.

        Raise Rejected if the set has over MOST_NAMES names.
        """
        try:
            kernels = list(graph.kernels())
        except WrongForm as error:
            graph_name = f"graph {self.n_graphs} ({graph.compile_id or 'no compile id'})"
            faults.add("wrong_form", "warning", f"{graph_name}: {error}")
            return
        key = graph.key
        for kernel in kernels:
            n_frames = sum(map(len, kernel.stacks or ()))
            self._left -= 1 + n_frames + sum(1 + len(pre_nodes) for pre_nodes in kernel.post_nodes.values())
            if self._left < 0:
                raise Rejected(f"it names more than {MOST_NAMES:,} nodes and source lines, which no program compiles")
            self._add(graph, key, kernel)
        self.n_graphs += bool(kernels)

    def _add(self, graph: Graph, key: str, kernel: Kernel) -> None:
        kernel_id, nodes = self._rows.count(KERNELS), kernel.post_nodes
        pre_grad_names = [as_text(name) for names in nodes.values() for name in names]
        innermost = [stack[-1] for stack in kernel.stacks or () if stack]
        kernel_row = (
            *(kernel_id, self.n_graphs, graph.compile_id, key, kernel.name, kernel.handle),
            len(nodes) if kernel.is_mapped else None,
            *(
                _listed(texts)
                for texts in ({operator_of(node) for node in nodes}, nodes, pre_grad_names, map(_place, innermost))
            ),
        )
        self._rows.add(KERNELS, kernel_row)
        for node, names in nodes.items():
            for name in names or [None]:
                pre_grad_name = None if name is None else as_text(name)
                self._rows.add(NODES, (kernel_id, kernel.name, node, operator_of(node), pre_grad_name))
        for number, stack in enumerate(kernel.stacks or ()):
            for depth, frame in enumerate(reversed(stack)):
                frame_row = (frame.file, frame.line, frame.function, frame.code)
                self._rows.add(FRAMES, (kernel_id, kernel.name, number, depth, *frame_row))


def _place(frame: Frame) -> str:
    return f"{frame.file}:{frame.line} {frame.function}"


def _listed(texts: Iterable[str]) -> str | None:
    """Return the distinct texts, sorted and joined with commas, or None without texts."""
    return ", ".join(sorted(set(texts))) or None


def _state(row: Mapping[str, Any]) -> tuple[str, int]:
    """Return the kind of a set and its decompressed size in bytes."""
    return row["source"], row["unpacked_bytes"]


def _is_news(stored: tuple[str, int] | None, source: str, n_bytes: int) -> bool:
    """Return whether a set has other data than the lake.

    A shorter log is an older copy. A debug folder always has all of its files, so another size means that it was
    rewritten.
    """
    if stored is None:
        return True
    _, n_stored_bytes = stored
    return n_bytes != n_stored_bytes if source == _FOLDER else n_bytes > n_stored_bytes


INPUT = SetInput(
    scope="compile_provenance",
    suffixes=(".json", ".json.gz", ".log", ".log.gz"),
    recognise=provenance,
    read=read_provenance,
    state=_state,
    is_news=lambda stored, read: _is_news(stored, *read),
)
