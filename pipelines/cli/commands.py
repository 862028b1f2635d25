"""How every command ends: errors are sentences, and whoever reads the answer may stop early."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from pipelines.cli.shared import fail
from pipelines.foreign_text import visible

# Errors whose message says what to do. Modules that were not imported raised none of theirs.
_SENTENCES = (
    ("pipelines.models.errors", "CatalogError"),
    ("pipelines.extras", "MissingExtra"),
    ("pipelines.fleet.roles", "RolesError"),
    ("pipelines.paths", "UnusablePath"),
    ("pipelines.origin", "WrongPattern"),
    ("pipelines.lake.broken", "BrokenFiles"),
    ("pipelines.lake.contents", "NotPublished"),
    ("duckdb", "IOException"),
    ("duckdb", "InvalidInputException"),  # error() in the analysts' file: what it cannot tell
)

# What was called otherwise in the version before, and still works under that name without being listed.
OLD_COMMANDS = {"straggler-what-if": "op-job"}
OLD_OPTIONS = {
    "overlay": {"--out-dir": "--out"},
    "stragglers": {"--svg": "--out"},
    "op-job": {"--svg": "--out"},
}

_USAGE_ERROR: Any = typer.BadParameter.__base__  # click's, of which newer versions of typer have a copy of their own


class Commands(TyperGroup):
    """The group of all commands."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _words_told_as_text():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _words_told_as_text():
            return super().invoke(ctx)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Parse and run a command, and leave."""
        if sys.stdout is None:
            raise SystemExit("error: stdout is closed, so there is nowhere to print the answer")
        with _ended_by_readers():
            try:
                with _wrong_input_told():
                    return super().main(*args, **kwargs)
            except typer.Exit as end:  # the help could not be written
                raise SystemExit(end.exit_code) from None


class Command(TyperCommand):
    """One command. Errors in its input are printed and end it with status 1."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse its words, of which options may have their old names."""
        name = OLD_COMMANDS.get(self.name or "", self.name or "")
        return super().parse_args(ctx, _with_new_options(args, OLD_OPTIONS.get(name, {})))

    def invoke(self, ctx: Any) -> Any:
        """Run it."""
        _on_broken_pipe(signal.SIG_IGN)  # an exception instead, so that temporary folders go
        try:
            with _wrong_input_told():
                try:
                    return super().invoke(ctx)
                finally:
                    _flush()
        except BrokenPipeError:
            _die_of_broken_pipe()
        finally:
            _on_broken_pipe(signal.SIG_DFL)


def _with_new_options(words: list[str], names: dict[str, str]) -> list[str]:
    ends = words.index("--") if "--" in words else len(words)  # behind it are files, whatever they are called
    parts = [word.partition("=") for word in words[:ends]]
    return [names.get(option, option) + sign + value for option, sign, value in parts] + words[ends:]


@contextmanager
def _words_told_as_text() -> Iterator[None]:
    """Typer quotes words that it does not understand, which may be names of files that a glob found."""
    try:
        yield
    except _USAGE_ERROR as error:
        error.message = visible(error.message)  # pyright: ignore[reportAttributeAccessIssue]
        raise


@contextmanager
def _ended_by_readers() -> Iterator[None]:
    """If the reader is gone, end the process quietly, with the status that other Unix tools use."""
    before = _on_broken_pipe(signal.SIG_DFL)
    try:
        yield
    finally:
        with suppress(OSError):  # told where it was written
            _flush()
        _on_broken_pipe(before)


@contextmanager
def _wrong_input_told() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        told = error.strerror or str(error)
        raise fail(f"{error.filename}: {told}" if error.filename else told) from None
    except Exception as error:
        kinds = tuple(getattr(sys.modules[module], name) for module, name in _SENTENCES if module in sys.modules)
        if not isinstance(error, kinds):
            raise
        raise fail(str(error)) from None


def _flush() -> None:
    """Write what is buffered: at interpreter exit it would be too late to report a failure."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OSError(f"the answer cannot be written: {error.strerror}") from None


def _on_broken_pipe(handler: Any) -> Any:
    """Set what SIGPIPE does; the one before. None if it cannot be set: threads, other systems."""
    if handler is None or not hasattr(signal, "SIGPIPE") or threading.current_thread() is not threading.main_thread():
        return None
    return signal.signal(signal.SIGPIPE, handler)


def _die_of_broken_pipe() -> NoReturn:
    _on_broken_pipe(signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    os._exit(128 + signal.SIGPIPE)
