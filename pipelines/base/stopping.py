"""Ctrl-C (SIGINT) and SIGTERM: a command ends within two seconds, and what it was doing is nobody's fault.

DuckDB swallows the KeyboardInterrupt that a signal raises while a query runs: it raises RuntimeError("Query interrupted"),
which code that records failures of files and traces takes for one. Such code asks `raise_if_stopped` first.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

AT_MOST_S = 1.0  # from a signal until what is left is not waited for
_TIDY_S = 0.5
_TOLD = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_SWALLOWED = "Query interrupted"  # the text of DuckDB's RuntimeError
_asked = 0  # the signal
_unwinds = _is_told = False


def is_stop(error: BaseException) -> bool:
    """Whether an error only says that somebody stopped this process, or a query of it."""
    of_duckdb = type(error).__name__ == "InterruptException"  # not imported here: commands that need none start sooner
    return bool(_asked) or of_duckdb or (type(error) is RuntimeError and str(error) == _SWALLOWED)


def raise_if_stopped(error: BaseException) -> None:
    """Raise KeyboardInterrupt where `is_stop`: for code that makes a failure of what it caught."""
    if is_stop(error):
        raise KeyboardInterrupt from None


def exit_code() -> int:
    """Returns the status with which a stopped process ends: 130 after Ctrl-C, 143 after SIGTERM."""
    return 128 + (_asked or signal.SIGINT)


def was_asked() -> bool:
    """Whether a signal asked this process to stop."""
    return bool(_asked)


def sentence() -> str:
    """Returns what to say of a stopped command."""
    return f"{_TOLD[signal.Signals(_asked or signal.SIGINT)]}: the same command run again finishes"


def listen() -> None:
    """From now on signals end this program: at once, or by KeyboardInterrupt inside `unwinding`. For the main thread of a
    program that is ours alone; a signal that is ignored (as SIGINT in a shell's background) stays ignored.
    """
    atexit.register(_finish)  # the first, so that it is called last
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    for number in _TOLD:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _stop)
    # Python calls a handler between two steps of the main thread, which may be busy in a library; the number of the signal
    # is written at once.
    signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reads,), daemon=True).start()


@contextmanager
def unwinding() -> Iterator[None]:
    """In the block a signal raises KeyboardInterrupt, so that temporary folders are removed; the process ends in any case."""
    global _unwinds
    before, _unwinds = _unwinds, True
    try:
        yield
    finally:
        _unwinds = before


def end() -> int:
    """Say on stderr that the command was stopped; returns its exit status."""
    _tell()
    # Dataclasses are made by exec(). If KeyboardInterrupt came out of the last one, Python, run with -m, kills itself by SIGINT
    # in the end, whatever the status; an exec() that ends well clears that.
    exec("")
    return exit_code()


def _stop(number: int, _: object) -> None:
    global _asked
    is_first, _asked = not _asked, _asked or number
    if not is_first or not _unwinds:  # nothing is there to be undone, or nobody waits for it
        _leave()
    raise KeyboardInterrupt


def _finish() -> None:
    """From here on signals change nothing: all is done, and while Python ends, one would kill it without a word."""
    with suppress(ValueError):  # in _watch, which ends the process itself
        for number in _TOLD:
            signal.signal(number, signal.SIG_IGN)


def _watch(reads: int) -> None:
    """End the process where it does not end by itself after a signal."""
    global _asked
    while True:
        number = os.read(reads, 1)[0]
        if number in _TOLD and signal.getsignal(number) is _stop:  # else somebody else handles it
            time.sleep(AT_MOST_S)
            _asked = _asked or number
            tidying = threading.Thread(target=atexit._run_exitfuncs, daemon=True)  # removes temporary folders
            tidying.start()
            tidying.join(_TIDY_S)
            _leave()


def _leave() -> NoReturn:
    _tell()
    os._exit(exit_code())


def _tell() -> None:
    """One line, whoever comes first; as bytes, as a print may have been interrupted."""
    global _is_told
    if not _is_told:
        _is_told = True
        with suppress(OSError):
            os.write(2, f"{sentence()}\n".encode())
