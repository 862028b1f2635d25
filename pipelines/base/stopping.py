"""Handle Ctrl-C (SIGINT) and SIGTERM: end the command within two seconds.

Interrupted work is not recorded as failed. DuckDB swallows the KeyboardInterrupt that a signal raises while a query
runs, and raises RuntimeError("Query interrupted"). Code that records failures of files and traces would record that
error as a failure, so it calls `raise_if_stopped` first.
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

AT_MOST_S = 1.0  # from a signal until the process stops waiting for unfinished work
_TIDY_S = 0.5
_SIGNAL_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_SWALLOWED = "Query interrupted"  # the text of DuckDB's RuntimeError
_asked = 0  # number of the first signal, 0 before it
_unwinds = _is_printed = False


def is_stop(error: BaseException) -> bool:
    """Return whether an error only means that this process, or one of its queries, was stopped."""
    # DuckDB is not imported here, so that commands without it start faster.
    of_duckdb = type(error).__name__ == "InterruptException"
    return bool(_asked) or of_duckdb or (type(error) is RuntimeError and str(error) == _SWALLOWED)


def raise_if_stopped(error: BaseException) -> None:
    """Raise KeyboardInterrupt if `is_stop(error)`. Code that records caught errors as failures calls this first."""
    if is_stop(error):
        raise KeyboardInterrupt from None


def exit_code() -> int:
    """Return the exit status of a stopped process: 130 after Ctrl-C, 143 after SIGTERM."""
    return 128 + (_asked or signal.SIGINT)


def sentence() -> str:
    """Return the message of a stopped command."""
    return f"{_SIGNAL_WORDS[signal.Signals(_asked or signal.SIGINT)]}: the same command run again finishes"


def listen() -> None:
    """Let signals end this program immediately, or by KeyboardInterrupt inside `unwinding`.

    For the main thread of a process that runs only tracelake. An ignored signal (as SIGINT in a shell's background)
    stays ignored.
    """
    atexit.register(_finish)  # registered first, so that it is called last
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    for number in _SIGNAL_WORDS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    # Python calls a handler between two steps of the main thread, which may be busy in a library. The wakeup descriptor
    # gets the signal's number immediately.
    signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reads,), daemon=True).start()


@contextmanager
def unwinding() -> Iterator[None]:
    """Let a signal raise KeyboardInterrupt in this block, so that temporary folders are removed.

    The process ends in any case.
    """
    global _unwinds
    previous, _unwinds = _unwinds, True
    try:
        yield
    finally:
        _unwinds = previous


def end() -> int:
    """Print to stderr that the command was stopped, and return its exit status."""
    _print_once()
    return exit_code()


def _stop(number: int, _: object) -> None:
    global _asked
    is_first, _asked = not _asked, _asked or number
    if not is_first or not _unwinds:  # end immediately if there is nothing to undo, or at the second signal
        _leave()
    raise KeyboardInterrupt


def _finish() -> None:
    """End a stopped process. In any other, ignore signals, because one while Python exits would kill it silently.

    A stopped process may still have threads of libraries, which can crash (SIGSEGV) while Python clears their modules.
    """
    if _asked:
        _leave()
    with suppress(ValueError):  # called outside the main thread, by _watch, which ends the process itself
        for number in _SIGNAL_WORDS:
            signal.signal(number, signal.SIG_IGN)


def _watch(reads: int) -> None:
    """End the process AT_MOST_S after a signal, unless the main thread has ended it by then."""
    global _asked
    while True:
        number = os.read(reads, 1)[0]
        if number in _SIGNAL_WORDS and signal.getsignal(number) is _stop:  # otherwise another handler was installed
            time.sleep(AT_MOST_S)
            _asked = _asked or number
            tidying = threading.Thread(target=atexit._run_exitfuncs, daemon=True)  # removes temporary folders
            tidying.start()
            tidying.join(_TIDY_S)
            _leave()


def _leave() -> NoReturn:
    _print_once()
    os._exit(exit_code())


def _print_once() -> None:
    """Print the message unless another thread has. Write bytes, because the signal may have interrupted a print."""
    global _is_printed
    if not _is_printed:
        _is_printed = True
        with suppress(OSError):
            os.write(2, f"{sentence()}\n".encode())
