"""Which input takes which file. Inputs are asked in turn, and imported only if a file has one of their suffixes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from importlib import import_module
from pathlib import Path

from pipelines.models.header import SCOPES
from pipelines.models.sources import DeclaredInput, read_code
from pipelines.readers.inputs.kinds import EventInput, SetInput
from pipelines.readers.inputs.rejects import reason_of

Sets = list[tuple[SetInput, Mapping[Path, Collection[Path]]]]


def sort_out(files: Iterable[Path]) -> tuple[Sets, list[Path], dict[Path, str]]:
    """Returns the sets by scope, the files that belong to no set (at most one trace each), and those at which an input fails."""
    found: Sets = []
    left, failed = list(files), {}
    for declared in sorted(_declared("SetInput"), key=_place):
        if mine := [path for path in left if _fits(declared, path)]:
            kind: SetInput = import_module(declared.module).INPUT
            sets, wrong = _asked(kind, mine)
            found += [(kind, sets)] if sets else []
            failed |= wrong
            taken = {*wrong, *(path for paths in sets.values() for path in paths)}
            left = [path for path in left if path not in taken]
    return found, _read_for_themselves(left), failed


def _read_for_themselves(files: list[Path]) -> list[Path]:
    """The files without those that are parts of the trace of another one."""
    given, parts = set(files), set()
    for declared in _declared("EventInput"):
        for path in files if declared.suffixes else ():
            if _fits(declared, path):
                with_which = import_module(declared.module).INPUT.read_with
                if with_which and _other(with_which, path) in given:
                    parts.add(path)
    return [path for path in files if path not in parts]


def _other(read_with: Callable[[Path], Path | None], path: Path) -> Path | None:
    try:
        return read_with(path)
    except Exception:  # reading the file tells why
        return None


def _asked(kind: SetInput, files: list[Path]) -> tuple[Mapping[Path, Collection[Path]], dict[Path, str]]:
    """Returns the sets, and the reasons for files at which `recognise` fails: those must not stop the others."""
    try:
        return kind.recognise(files), {}
    except Exception:
        failed = {path: why for path in files if (why := _failure(kind, path))}
        return kind.recognise([path for path in files if path not in failed]), failed


def _failure(kind: SetInput, path: Path) -> str | None:
    try:
        kind.recognise([path])
    except Exception as error:
        return reason_of(error)
    return None


def events_input(path: Path) -> EventInput:
    """Returns the input that reads a file as one trace: the first that recognizes it, else the one that takes any file."""
    rest: list[EventInput] = []
    for declared in _declared("EventInput"):
        if _fits(declared, path):
            kind: EventInput = import_module(declared.module).INPUT
            if kind.recognise is None:
                rest.append(kind)
            elif kind.recognise(path):
                return kind
    return rest[0]


def _declared(kind: str) -> list[DeclaredInput]:
    return [one for one in read_code().inputs if one.kind == kind]


def _fits(declared: DeclaredInput, path: Path) -> bool:
    return not declared.suffixes or path.name.endswith(tuple(declared.suffixes))


def _place(declared: DeclaredInput) -> tuple[int, str]:
    return SCOPES.index(declared.scope) if declared.scope in SCOPES else len(SCOPES), declared.module
