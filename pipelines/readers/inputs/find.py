"""Assignment of files to inputs. Inputs are tried in order, and imported only if a file has one of their suffixes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from importlib import import_module
from pathlib import Path

from pipelines.lake.names import tables_of
from pipelines.models.header import SCOPES
from pipelines.models.sources import DeclaredInput, read_code
from pipelines.readers.inputs.kinds import EventInput, SetInput, TraceFile
from pipelines.readers.inputs.rejects import reason_of
from pipelines.readers.kineto import TraceRejected
from pipelines.readers.kineto.limits import Limits

Sets = list[tuple[SetInput, Mapping[Path, Collection[Path]]]]
_SHOWN = 20  # names in a message


def classify_files(files: Iterable[Path]) -> tuple[Sets, list[Path], dict[Path, str]]:
    """Return the sets by input in the order of scopes, the files in no set, and the failures (reason by file)."""
    sets_by_kind: Sets = []
    remaining, failed = list(files), {}
    for declared in sorted(_declared("SetInput"), key=_place):
        if candidates := [path for path in remaining if _fits(declared, path)]:
            kind: SetInput = import_module(declared.module).INPUT
            sets, failures = _asked(kind, candidates)
            sets_by_kind += [(kind, sets)] if sets else []
            failed |= failures
            handled = {*failures, *(path for paths in sets.values() for path in paths)}
            remaining = [path for path in remaining if path not in handled]
    return sets_by_kind, _read_for_themselves(remaining), failed


def set_input(mark: str) -> SetInput:
    """Return the input that fills a marker table."""
    (declared,) = (declared for declared in _declared("SetInput") if tables_of(declared.scope)[0] == mark)
    return import_module(declared.module).INPUT


def _read_for_themselves(files: list[Path]) -> list[Path]:
    """Return the files.

    Replace a file that is read together with another (`EventInput.read_with`) by the other file.
    """
    replaced: dict[Path, Path] = {}
    for declared in _declared("EventInput"):
        for path in files if declared.suffixes else ():
            if _fits(declared, path):
                read_with = import_module(declared.module).INPUT.read_with
                if read_with and (other := _other(read_with, path)):
                    replaced[path] = other
    return [*dict.fromkeys(replaced.get(path, path) for path in files)]


def _other(read_with: Callable[[Path], Path | None], path: Path) -> Path | None:
    try:
        return read_with(path)
    except Exception:  # reading the file reports the reason
        return None


def _asked(kind: SetInput, files: list[Path]) -> tuple[Mapping[Path, Collection[Path]], dict[Path, str]]:
    """Return the sets, and the reason for each file on which `recognise` fails. Such a file does not affect others."""
    try:
        return kind.recognise(files), {}
    except Exception:
        failed = {path: reason for path in files if (reason := _failure(kind, path))}
        return kind.recognise([path for path in files if path not in failed]), failed


def _failure(kind: SetInput, path: Path) -> str | None:
    try:
        kind.recognise([path])
    except Exception as error:
        return reason_of(error)
    return None


def events_input(path: Path) -> EventInput:
    """Return the first input that recognizes a file as a trace, else the input without `recognise`."""
    fallbacks: list[EventInput] = []
    for declared in _declared("EventInput"):
        if _fits(declared, path):
            kind: EventInput = import_module(declared.module).INPUT
            if kind.recognise is None:
                fallbacks.append(kind)
            elif kind.recognise(path):
                return kind
    return fallbacks[0]


def trace_file(path: Path, process: str | None, limits: Limits) -> TraceFile:
    """Return the file with the input that reads it, limited to its trace `process` (None: all of its traces).

    Raise TraceRejected if the file has no such trace.
    """
    kind = events_input(path)
    if process is not None and process not in (names := kind.parts(path, limits)):
        alternatives = f"it has {', '.join(names[:_SHOWN])}" if names else "it contains one trace: omit --process"
        raise TraceRejected(path, None, f"the file has no process {process} to choose: {alternatives}")
    return TraceFile(path, kind, process)


def _declared(kind: str) -> list[DeclaredInput]:
    return [declared for declared in read_code().inputs if declared.kind == kind]


def _fits(declared: DeclaredInput, path: Path) -> bool:
    return not declared.suffixes or path.name.endswith(tuple(declared.suffixes))


def _place(declared: DeclaredInput) -> tuple[int, str]:
    return SCOPES.index(declared.scope) if declared.scope in SCOPES else len(SCOPES), declared.module
