"""The errors that users see: the message and the hint reach the user."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.base.errors import TracelakeError, WrongValue
from pipelines.fleet.path.answer import NoCapture
from pipelines.lake.read.damage import BrokenFiles
from pipelines.readers.kineto import TraceRejected


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda: WrongValue("no such switch"), ""),
        (lambda: WrongValue("no such switch", "Give another."), "Give another."),
        (lambda: NoCapture("no capture"), NoCapture.hint),
        (lambda: NoCapture("no capture", "Look there."), "Look there."),
        (lambda: TraceRejected(Path("a.json"), 7, "is not JSON"), ""),
        (lambda: BrokenFiles([]), ""),
    ],
)
def test_the_way_out_is_below_the_sentence(make: Callable[[], TracelakeError], hint: str) -> None:
    """The hint of a class or a raiser follows the message, also in Python's own traceback, which a notebook shows."""
    error = make()
    assert error.hint == hint
    assert "".join(traceback.format_exception_only(error)).endswith(f"{error}\n{hint}\n" if hint else f"{error}\n")


def test_errors_of_worker_processes_keep_their_hint() -> None:
    again = pickle.loads(pickle.dumps(NoCapture("no capture", "Look there.")))
    assert (str(again), again.hint) == ("no capture", "Look there.")
    rejected = TraceRejected(Path(os.fsdecode(b"caf\xe9.json")), 7, "is not JSON")
    assert str(pickle.loads(pickle.dumps(rejected))) == str(rejected) == "caf\\xe9.json, byte 7: is not JSON"
