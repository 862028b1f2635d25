"""A short attack with partial requests on a server, and the failures that it has to detect."""

from __future__ import annotations

import random
from typing import Any

import pytest

from bench.attack import pages
from bench.attack.tally import Tally
from tests.faces.serve.world import Answer, Server

_ROWS = Answer(200, {}, b'{"rows": [[2]]}')
_REFUSED = Answer(400, {}, b'{"error": "not computed", "hint": "tracelake materialize kernels"}')


class Played(Server):
    """A server with prepared answers."""

    def __init__(self, download: Answer, query: Answer) -> None:
        super().__init__(0, None)
        self.answers = {"/download": download, "/query": query}

    def ask(self, path: str, *_: Any, **__: Any) -> Answer:
        return self.answers[path]


@pytest.mark.slow  # 8 s; tests/faces/serve/test_half_requests.py
def test_requests_by_halves() -> None:
    pytest.importorskip("uvicorn", reason="the extra serve is not installed")
    tally = pages.attack(6, 14)
    assert (tally.tried, tally.survived, tally.tracebacks) == (6, 6, 0), tally.notes


@pytest.mark.parametrize(
    ("download", "query", "survived"),
    [
        (_REFUSED, _ROWS, 1),
        (Answer(200, {}, b"name\n"), _ROWS, 0),  # a file without rows
        (Answer(400, {}, b'{"error": "no"}'), _ROWS, 0),  # does not name the command that computes the table
        (_REFUSED, Answer(200, {}, b'{"rows": [[1]]}'), 0),
        (_REFUSED, Answer(500, {}, b"{}"), 0),
    ],
)
def test_a_short_file_and_a_server_that_answers_otherwise_are_seen(
    download: Answer, query: Answer, survived: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "half", pages.download)
    tally = Tally("t")
    pages.try_once(Played(download, query), random.Random(1), tally)
    assert (tally.tried, tally.survived, tally.silent) == (1, survived, 1 - survived), tally.notes
