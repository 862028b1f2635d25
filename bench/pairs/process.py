"""Functions that run in a process, which may hang or crash."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any


def in_a_process(
    limit_s: float, result: Path, target: Callable[..., dict[str, Any]], *arguments: Any
) -> dict[str, Any]:
    """Run a function in a process and return its result, or {"error": the reason} if there is none.

    The process and all that it started end after `limit_s` seconds.
    """
    log = result.with_suffix(".log")
    process = multiprocessing.Process(target=_call, args=(target, result, log, arguments))
    process.start()
    process.join(limit_s)
    if process.is_alive():
        outcome = {"error": f"ended after its limit of {limit_s:.0f} s"}
    elif result.exists():
        outcome = json.loads(result.read_text())
    else:
        outcome = {"error": f"the process ended with exit status {process.exitcode}"}
    if "error" in outcome:
        outcome["output"] = log.read_text(errors="replace")[-1500:] if log.exists() else ""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid or 0, signal.SIGKILL)  # ranks and workers that are left
    process.join()
    return outcome


def _call(target: Callable[..., dict[str, Any]], result: Path, log: Path, arguments: tuple[Any, ...]) -> None:
    os.setsid()
    with log.open("wb") as file:  # libraries print what explains an error, and much else
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        outcome = target(*arguments)
    except BaseException:
        outcome = {"error": traceback.format_exc()[-1500:]}
    partial = result.with_suffix(".partial")
    partial.write_text(json.dumps(outcome))
    partial.rename(result)
    os._exit(0)  # nothing that is left needs to be waited for
