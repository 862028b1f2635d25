"""Classes of the commands: errors are printed as sentences, and the reader of the output may stop early."""

from __future__ import annotations

import errno
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, NoReturn

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from pipelines.base import stopping
from pipelines.base.errors import TracelakeError
from pipelines.base.foreign_text import visible
from pipelines.faces.cli import overview
from pipelines.faces.cli.option_values import take_no_help, take_simple_values

_READ_ONLY = "it is mounted read-only; commands that only read answer from the tables already computed in such a lake"
_USAGE_ERROR: Any = typer.BadParameter.__base__  # click's UsageError; newer versions of typer bundle click


class Commands(TyperGroup):
    """The group of all commands."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _usage_errors_as_text():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _usage_errors_as_text():
            return super().invoke(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options before the command. If an option belongs after it, say so in the error."""
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except _USAGE_ERROR as error:
            option = getattr(error, "option_name", None)
            if command := next((word for word in words if word in self.commands), None):
                error.message += f": put options after the command: tracelake {command} {option} …"  # pyright: ignore
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Resolve the name of a command. The path of a file or folder in its place means `why`.

        The error for an unknown name states whether it is a saved question, or suggests similar commands.
        """
        if args and args[0] not in self.commands and os.path.exists(args[0]):
            args = ["why", *args]
        try:
            return super().resolve_command(ctx, args)
        except _USAGE_ERROR as error:
            from pipelines.base.close_names import meant
            from pipelines.models.questions import load_questions

            name = args[0]
            if name in load_questions():
                error.message = f"{name!r} is a saved question: tracelake ask {name}"  # pyright: ignore
            else:
                error.message = f"no command {name!r}: {meant(name, list(self.commands))}"  # pyright: ignore
            raise

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)
        take_no_help(option)
        return option

    def get_params(self, ctx: Any) -> Any:
        """Return the options before a command.

        The options of shell completion skip validation, because they are rarely used.
        """
        options = super().get_params(ctx)
        for option in options:
            if option.name in ("install_completion", "show_completion"):
                take_no_help(option)
        return options

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the list of all commands. Typer's own help takes three times as long."""
        if not overview.is_usual():
            super().format_help(ctx, formatter)
            return
        usage = " ".join((ctx.command_path, *self.collect_usage_pieces(ctx)))
        rows = [(name, command.help or "") for name, command in self.commands.items() if not command.hidden]
        overview.write(overview.overview(usage, self.help or "", self.get_params(ctx), rows))

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Parse the command line, run its command, and exit."""
        if sys.stdout is None:
            raise SystemExit("error: stdout is closed, so there is nowhere to print the answer")
        with _ended_by_readers():
            try:
                with _input_errors_as_sentences():
                    return super().main(*args, **kwargs)
            except typer.Exit as end:  # the help could not be written
                raise SystemExit(end.exit_code) from None


class Later(TyperCommand):
    """A command known by its name and one line of help. Its module is imported when it is called."""

    where = ""  # module:function in pipelines/faces/cli

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Import the command and return its context."""
        module, _, function = self.where.partition(":")
        single_command_app = typer.Typer(
            add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False
        )
        callback = getattr(import_module(f"pipelines.faces.cli.{module}"), function)
        single_command_app.command(self.name, cls=Command)(callback)
        command = typer.main.get_command(single_command_app)
        take_simple_values(command, callback)
        return command.make_context(info_name, args, parent=parent, **extra)


class Command(TyperCommand):
    """A command that prints errors in its input and then exits with status 1."""

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)
        take_no_help(option)
        return option

    def invoke(self, ctx: Any) -> Any:
        """Run the command and flush its output, so that a failed write is reported."""
        from pipelines.faces.cli import caveats

        caveats.begin()
        _on_broken_pipe(signal.SIG_IGN)  # an exception instead of an exit, so that temporary folders are removed
        try:
            with stopping.unwinding(), _input_errors_as_sentences():
                try:
                    return super().invoke(ctx)
                finally:
                    caveats.end()
                    _flush()
        except KeyboardInterrupt:
            raise typer.Exit(stopping.end()) from None
        except BrokenPipeError:
            _die_of_broken_pipe()
        finally:
            _on_broken_pipe(signal.SIG_DFL)


@contextmanager
def _usage_errors_as_text() -> Iterator[None]:
    """Escape the arguments that typer quotes in usage errors, because they may be file names from a glob."""
    try:
        yield
    except _USAGE_ERROR as error:
        error.message = visible(error.message)  # pyright: ignore[reportAttributeAccessIssue]
        raise


@contextmanager
def _ended_by_readers() -> Iterator[None]:
    """If the reader closes the pipe, end the process quietly, with the exit status of other Unix tools."""
    before = _on_broken_pipe(signal.SIG_DFL)
    try:
        yield
    finally:
        with suppress(OSError):  # already reported where it was written
            _flush()
        _on_broken_pipe(before)


@contextmanager
def _input_errors_as_sentences() -> Iterator[None]:
    """Print errors of the input, the system and DuckDB as sentences, and exit with status 1."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        stopping.raise_if_stopped(error)
        from pipelines.faces.cli.console import fail

        reason = _READ_ONLY if error.errno == errno.EROFS else error.strerror or str(error)
        raise fail(f"{error.filename}: {reason}" if error.filename else reason) from None
    except typer.Exit:
        raise
    except Exception as error:
        stopping.raise_if_stopped(error)
        error = _of_memory(error)
        if not isinstance(error, (TracelakeError, OSError, *_of_duckdb())):
            raise
        from pipelines.faces.cli.console import fail

        raise fail(str(error), getattr(error, "hint", "")) from None  # DuckDB gives no hint


def _of_memory(error: Exception) -> Exception:
    """Return TooLittleMemory or OSError if DuckDB ran out of memory or spill space, or any other error unchanged."""
    duckdb = sys.modules.get("duckdb")
    if duckdb is None or not isinstance(error, duckdb.OutOfMemoryException):
        return error
    from pipelines.base import database

    try:
        database.raise_if_disk_is_full(error, tempfile.gettempdir())
    except OSError as full:
        return full
    return database.TooLittleMemory(database.too_little(database.for_models()))


def _of_duckdb() -> tuple[type[Exception], ...]:
    """Return the errors of DuckDB whose messages are sentences: about files, and from error() in the analysts' file."""
    duckdb = sys.modules.get("duckdb")  # if it is not imported, it raised nothing
    return (duckdb.IOException, duckdb.InvalidInputException) if duckdb else ()


def _flush() -> None:
    """Flush stdout. Raise BrokenPipeError or OSError now, because at interpreter exit it is too late to report a failure."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OSError(f"the answer cannot be written: {error.strerror}") from None


def _on_broken_pipe(handler: Any) -> Any:
    """Set the handler of SIGPIPE and return the previous one.

    Return None if the handler is None or cannot be set: outside the main thread, or on systems without SIGPIPE.
    """
    if handler is None or not hasattr(signal, "SIGPIPE") or threading.current_thread() is not threading.main_thread():
        return None
    return signal.signal(signal.SIGPIPE, handler)


def _die_of_broken_pipe() -> NoReturn:
    _on_broken_pipe(signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    os._exit(128 + signal.SIGPIPE)
