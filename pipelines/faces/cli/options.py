"""Options and arguments that several commands share, and the parsing of their paths."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.base.foreign_text import visible
from pipelines.base.paths import DUCKLAKE, UnusablePath, local_path


def local(path: str | Path, instead: str = "pass a path on this machine") -> Path:
    """Return the user's path. Raise typer.BadParameter if it is not on this machine.

    `instead`: the advice for the address of a DuckLake.
    """
    if str(path).startswith(DUCKLAKE):
        raise typer.BadParameter(f"this needs a folder, and {visible(path)} is the address of a DuckLake: {instead}")
    try:
        return local_path(path)
    except UnusablePath as error:
        raise typer.BadParameter(visible(error)) from None


def new_file(path: str | Path) -> Path:
    """Return the path of a file to write. Raise typer.BadParameter if its folder does not exist.

    The function does not create the folder, because the path may be misspelled.
    """
    file = local(path)
    folder = file.parent
    if os.path.isdir(folder):  # False where Path.is_dir() raises, for a folder that may not be entered
        return file
    if os.path.lexists(folder):
        raise typer.BadParameter(visible(f"{folder} is not a folder. Give another path"))
    raise typer.BadParameter(
        visible(f"the folder {folder} does not exist. Create it: mkdir -p {shlex.quote(str(folder))}")
    )


def path_option(help: str, metavar: str = "FILE", *names: str, parser: Any = local) -> Any:
    """Return the option of a path on this machine. `names`: the option's names, by default the parameter's."""
    return typer.Option(*names, metavar=metavar, parser=parser, help=help)


def out_option(help: str) -> Any:
    """Return the option --out of a file to write."""
    return path_option(help, "FILE", "--out", parser=new_file)


def folder_option(instead: str) -> Any:
    """Return the option --lake of a command that needs a folder. `instead`: the advice for the address of a DuckLake."""
    return typer.Option(
        "--lake",
        envvar="TRACELAKE_LAKE",
        help="Folder of the lake.",
        show_default="./lake",
        parser=partial(local, instead=instead),
        metavar="FOLDER",
    )


def local_or_store(path: str | Path) -> Path | str:
    """Return the user's path, or the address of a DuckLake unchanged (see pipelines/runs/store)."""
    return str(path) if str(path).startswith(DUCKLAKE) else local(path)


# A Path, or a str for a DuckLake; typer has no unions.
LakeOption = Annotated[
    Any,
    typer.Option(
        "--lake",
        envvar="TRACELAKE_LAKE",
        help="Folder of the lake, or a DuckLake: `ducklake:postgres:…?data=s3://…`.",
        show_default="./lake",
        parser=local_or_store,
        metavar="LAKE",
    ),
]


TraceArgument = Annotated[
    str,
    typer.Argument(
        help="A trace file, or of a trace in the lake its file name, id or a unique prefix of it.", metavar="TRACE"
    ),
]
CaptureArgument = Annotated[
    list[str], typer.Argument(help="The folder or files of one capture, or the id of a capture in the lake.")
]
ProcessOption = Annotated[
    str | None,
    typer.Option(
        "--process",
        metavar="PID",
        help="Of a file with several processes (Nsight Systems, rocprofv3, merged ranks): this one.",
    ),
]
JobOption = Annotated[str | None, typer.Option(help="Only this job.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
DEFAULT_LAKE = Path("lake")


def lake_option(names: Iterable[str], lake: Path | str) -> list[str]:
    """Return the --lake option that printed commands about these names need, or [] if they need none.

    They need none if all names are files, or if the lake is the default. The user runs the commands in the same shell,
    so TRACELAKE_LAKE determines the default.
    """
    is_needed = str(lake) != (os.environ.get("TRACELAKE_LAKE") or str(DEFAULT_LAKE)) and not all(
        Path(name).exists() for name in names
    )
    return ["--lake", str(lake)] if is_needed else []
