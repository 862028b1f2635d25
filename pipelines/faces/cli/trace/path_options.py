"""Options that select a critical path, and their translation to a window and switches of a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.base.errors import WrongValue
from pipelines.base.units import nanoseconds
from pipelines.faces.cli.console import fail, progress
from pipelines.faces.cli.options import path_option

Profile = Annotated[str, typer.Option(help="default (what we believe is right) or hta (HTA 0.6.1, edge for edge).")]
Annotation = Annotated[str, typer.Option(help="Only the time under this annotation, e.g. ProfilerStep#5.")]
Instance = Annotated[
    str | None,
    typer.Option(help="Which instances of the annotation: N or N:M, counted from 0; by default the first (0)."),
]
Untraced = Annotated[
    str,
    typer.Option(
        metavar="TIME", help="Time of a step (of the trace if it has no steps) without the profiler, e.g. 12.3ms."
    ),
]
Dependencies = Annotated[
    str,
    typer.Option(
        help="`serial`: operators of a thread wait for each other. `data`: for the tensors that they read (needs an execution trace)."
    ),
]
ExecutionTrace = Annotated[
    Path | None, path_option("The execution trace (PyTorch, Chakra), if it is not next to TRACE.")
]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Set a switch of the profile, NAME=VALUE.")]


def switches_of(profile: str, settings: list[str] | None) -> list[tuple[str, str]]:
    """Return the names and values of `--set`. Exit if the profile is unknown."""
    from pipelines.critical_path.graph.windows import PROFILES

    if profile not in PROFILES:
        raise fail(f"no profile {profile!r}", f"There are: {', '.join(PROFILES)}")
    return [(name, value) for name, _, value in (setting.partition("=") for setting in settings or [])]


class RequestedPath:
    """Options that select a critical path: its window, profile, switches and dependencies.

    Exit with an error if an option is invalid, before any file is read.
    """

    def __init__(
        self,
        profile: str,
        annotation: str,
        instance: str | None,
        dependencies: str,
        execution_trace: Path | None,
        settings: list[str] | None,
    ) -> None:
        from pipelines.critical_path.graph.operator_order import MODES, SWITCH
        from pipelines.critical_path.graph.switches import switch_overrides
        from pipelines.critical_path.graph.windows import parse_instance

        switches = switches_of(profile, settings)
        if dependencies not in MODES:
            raise fail(f"unknown --dependencies {dependencies!r}", f"There are: {', '.join(MODES)}")
        self.by_data = dependencies == "data"
        if execution_trace and not self.by_data:
            raise fail("--execution-trace needs --dependencies data")
        self.first, self.last = parse_instance(instance, annotation)
        self.overrides = switch_overrides(profile, switches)
        if self.by_data:
            self.overrides[profile, SWITCH] = dependencies
        self.profile, self.annotation, self.execution_trace = profile, annotation, execution_trace
        self.named_window = f", {annotation} {self.first}:{self.last}" if annotation else ""
        """Suffix of the trace's name in headings, as in the title of a saved path."""
        self.is_usual = not (annotation or instance or self.overrides or profile != "default")

    def request_for(self, con: Any, trace_id: str) -> tuple[Any, dict[tuple[str, str], str]]:
        """Return the window request and switch overrides for a trace in `con`.

        With `--dependencies data`, join its execution trace first.
        """
        from pipelines.critical_path.graph.windows import WindowRequest

        if self.by_data:
            _join_execution(con, trace_id, self.execution_trace)
        window = "asked" if self.annotation else "full"
        return WindowRequest(trace_id, window, self.profile, self.annotation, self.first, self.last), self.overrides


def _join_execution(con: Any, trace_id: str, execution_trace: Path | None) -> None:
    """Read the execution trace, by default the file next to the trace, and join it to the operators."""
    from pipelines.base.paths import text_path
    from pipelines.models.sqltext import quoted
    from pipelines.readers.execution import load_execution
    from pipelines.readers.execution.neighbor_files import execution_trace_beside

    path, rank = con.execute(f"SELECT path, rank FROM traces WHERE trace_id = {quoted(trace_id)}").fetchone()
    file = execution_trace or execution_trace_beside(text_path(path), rank)
    with progress(None, f"reading {file.name}") as advance:
        load_execution(con, file, trace_id, on_bytes=advance)


def untraced_ns(text: str) -> int | None:
    """Return the time of `--untraced` in ns, or None if it is empty. Raise WrongValue if it is not a time with a unit."""
    time_ns = nanoseconds(text)
    if text and time_ns is None:
        raise WrongValue(f"--untraced {text}: give a time with its unit: 12.3ms, 900us, 1.2s")
    return time_ns
