"""MCP tools that run commands of tracelake with `--json`, each in its own process.

Stopping the request ends the process. The process runs in an empty folder, because commands prefer a file or folder
with the name of an id to the id.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipelines.base.database import MEMORY
from pipelines.base.foreign_text import visible
from pipelines.base.processes import import_path
from pipelines.faces.untrusted_queries import QueryFailed, memory_bytes
from pipelines.lake.lake import WITHOUT_BROKEN
from pipelines.lake.read.sandbox import Limits
from pipelines.runs.store.open_store import absolute_address

_ID = re.compile(r"[0-9a-f]{4,64}")
WHERE_IDS = "`SELECT trace_id, capture_id, job, rank, file FROM traces` lists the ids."
MOST_CHARACTERS = 200_000
"""Maximum length of an answer in characters. Lists of a longer answer are cut."""
SLOWER = 3
"""Exit status of `compare` if something is slower, which is a valid answer."""


_RETIMING = ("--remove", "--scale", "--ahead", "--untraced", "--annotation", "--instance")
_RETIMING_FLAGS = ("--perfect-overlap", "--without-profiler")
"""Options of what-if that a model may use, _RETIMING with a value and _RETIMING_FLAGS without.

Others read or write files on this machine.
"""


def retiming_options(text: str, lake: Path | str) -> list[str]:
    """Return the options of a printed what-if command, without `--lake`.

    Raise QueryFailed if an option is not in _RETIMING or _RETIMING_FLAGS, has no value, or names another lake.
    """
    try:
        words = iter(shlex.split(text))
    except ValueError as error:
        raise QueryFailed(f"options {text!r}: {error}", "Quote names as in `command`.") from None
    options = []
    for word in words:
        name, equals, value = word.partition("=")
        if name in _RETIMING_FLAGS:
            options.append(word)
            continue
        if name not in (*_RETIMING, "--lake"):
            known = ", ".join((*_RETIMING, *_RETIMING_FLAGS))
            raise QueryFailed(f"options of what_if cannot have {name!r}", f"They can have {known}.")
        if not equals and (value := next(words, "")) == "":
            raise QueryFailed(f"{name} has no value", "Copy the value from `command`.")
        if name != "--lake":
            options.append(f"{name}={value}")
        elif value != absolute_address(lake):
            raise QueryFailed(f"{value!r} is another lake than the server's", "Leave out --lake.")
    return options


def identifier(text: str) -> str:
    """Return `text` if it can be the id of a trace or a capture, or a prefix of an id. Raise QueryFailed otherwise."""
    if not _ID.fullmatch(text):
        raise QueryFailed(f"{text!r} is not the id of a trace or a capture", WHERE_IDS)
    return text


def command(
    lake: Path | str,
    words: Sequence[str],
    rows: int,
    limits: Limits,
    keys: Sequence[str] = (),
    without_broken: bool = False,
) -> tuple[Callable[[], str], Callable[[], None]]:
    """Return a started request: a function that runs the command and returns its JSON, and a function that stops it.

    `keys`: the keys to return of each object (default: all). Lists in the JSON have at most `rows` entries, and
    `truncated` names the lists that are cut. `limits`: time, and memory per database. `without_broken`: answer without
    missing or damaged files. The function raises QueryFailed with the command's own message.
    """
    env = {**os.environ, "PYTHONPATH": import_path(), **({WITHOUT_BROKEN: "1"} if without_broken else {})}
    if limits.memory:
        env[MEMORY] = str(memory_bytes(limits.memory) >> 20)
    address = absolute_address(lake)
    processes: list[subprocess.Popen[str]] = []
    stopped = threading.Event()

    def answer() -> str:
        with tempfile.TemporaryDirectory(prefix="tracelake-mcp-") as folder:
            return answer_in(folder)

    def answer_in(folder: str) -> str:
        process = subprocess.Popen(
            [sys.executable, "-m", "tracelake", *words, "--json", "--lake", address],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
            cwd=folder,
        )
        processes.append(process)
        if stopped.is_set():
            process.terminate()
        try:
            output, messages = process.communicate(timeout=limits.seconds or None)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise QueryFailed(f"{words[0]} was stopped after {limits.seconds:g} s: raise --timeout") from None
        if process.returncode not in (0, SLOWER):
            message, _, hint = messages.strip().removeprefix("error: ").partition("\n")
            raise QueryFailed(visible(message) or f"{words[0]} ended with {process.returncode}", visible(hint))
        document = json.loads(output)
        objects = document if isinstance(document, list) else [document]
        chosen = [{key: value for key, value in entry.items() if not keys or key in keys} for entry in objects]
        return bounded(chosen if isinstance(document, list) else chosen[0], rows)

    def stop() -> None:
        stopped.set()
        for process in processes:
            process.terminate()

    return answer, stop


def bounded(answer: Any, rows: int) -> str:
    """Return an answer as JSON whose lists have at most `rows` entries, or fewer if it were longer than MOST_CHARACTERS.

    `truncated` in the answer names the lists that had more entries, with their length.
    """
    text = _bounded(answer, rows)
    while len(text) > MOST_CHARACTERS and rows > 1:
        rows //= 2
        text = _bounded(answer, rows)
    return text


def _bounded(answer: Any, rows: int) -> str:
    cut: dict[str, int] = {}

    def part(value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return {key: part(inner, f"{path}.{key}" if path else key) for key, inner in value.items()}
        if isinstance(value, list):
            if len(value) > rows:
                cut[path or "answer"] = len(value)
            return [part(inner, f"{path}[]") for inner in value[:rows]]
        return value

    shortened = part(answer, "")
    whole = shortened if isinstance(shortened, dict) else {"answers": shortened}
    return json.dumps({**whole, "truncated": cut or False}, ensure_ascii=False)
