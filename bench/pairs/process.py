"""Functions that run in another process, because they may hang or crash."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

Outcome = dict[str, Any]


class Helper:
    """A process that runs functions, one at a time. After an error, the next call starts a new process."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._running: tuple[multiprocessing.Process, Connection] | None = None

    def __enter__(self) -> Helper:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    def call(self, limit_s: float, target: Callable[..., Outcome], *arguments: Any) -> Outcome:
        """Run a function and return its result, or {"error": the reason, "output": the end of its output}.

        The process and its child processes are ended after `limit_s` seconds.
        """
        if self._running and not self._running[0].is_alive():
            self.end()
        process, connection = self._running = self._running or self._start()
        connection.send((target, arguments))
        outcome = _answer(process, connection, limit_s)
        if "error" in outcome:
            self.end()
            outcome["output"] = self.log.read_text(errors="replace")[-1500:] if self.log.exists() else ""
        return outcome

    def end(self) -> None:
        """End the process and its remaining child processes."""
        if self._running:
            process, connection = self._running
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid or 0, signal.SIGKILL)
            process.kill()  # a process that is still starting does not have a process group yet
            process.join()
            connection.close()
            self._running = None

    def _start(self) -> tuple[multiprocessing.Process, Connection]:
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.Process(target=_serve, args=(theirs, ours, self.log))
        process.start()
        theirs.close()
        return process, ours


def in_a_process(limit_s: float, log: Path, target: Callable[..., Outcome], *arguments: Any) -> Outcome:
    """Run one function in a separate process, as `Helper.call` does."""
    with Helper(log) as helper:
        return helper.call(limit_s, target, *arguments)


def _answer(process: multiprocessing.Process, connection: Connection, limit_s: float) -> Outcome:
    deadline = time.monotonic() + limit_s
    # After a crash, the pipe may stay open in child processes of the process, so check whether it is alive.
    while not connection.poll(0.02):
        if not process.is_alive() and not connection.poll():
            return {"error": f"the process ended with exit status {process.exitcode}"}
        if time.monotonic() > deadline:
            return {"error": f"ended after its limit of {limit_s:.0f} s"}
    try:
        return connection.recv()
    except (EOFError, ConnectionResetError):
        process.join()
        return {"error": f"the process ended with exit status {process.exitcode}"}


def _serve(connection: Connection, of_who_asks: Connection, log: Path) -> None:
    of_who_asks.close()  # with this end open in the fork, recv would not notice that the parent has ended
    os.setsid()
    with contextlib.suppress(EOFError, BrokenPipeError):  # the parent has ended
        while True:
            target, arguments = connection.recv()
            with log.open("wb") as file:  # libraries print explanations of errors, among other text
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            try:
                outcome = target(*arguments)
            except BaseException:
                outcome = {"error": traceback.format_exc()[-1500:]}
            connection.send(outcome)
    os._exit(0)  # skip cleanup, because no remaining work needs to finish
