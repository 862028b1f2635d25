"""A short run of the attack on trace files.

Every damaged file is ingested or rejected without a traceback, and the attack detects the losses that it must detect.
`python -m bench.attack.files --n 10000` is the long run.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from bench.attack import files
from bench.attack.account import entries_of, silent_loss
from bench.attack.files import attack, attacked
from bench.attack.mutate import good, made
from bench.attack.tally import Tally
from pipelines.lake import Lake
from pipelines.readers.ingest import ingest

SEED = 14


@pytest.mark.slow  # tests/readers/kineto/test_malformed.py
def test_mutated_files_go_in_or_are_rejected() -> None:
    n = 20
    tally, counts, failures = attacked(range(n), SEED, models=False)
    assert (tally.tried, tally.lost, tally.tracebacks) == (n, 0, 0), "\n".join(tally.notes)
    assert not failures, "\n".join(tally.notes)
    assert counts["went in"] > n // 2 and counts["rejected"] >= n // 10 and tally.survived == n


@pytest.mark.slow  # of make attack
def test_models_run_on_what_went_in() -> None:
    tally = attack(3, SEED)
    assert tally.tracebacks == 0, "\n".join(tally.notes)


def test_a_file_is_made_from_its_seed_and_number_alone() -> None:
    assert [made(3, n) for n in range(30)] == [made(3, n) for n in range(30)]
    assert len({content for _, content in (made(3, n) for n in range(100))}) > 90
    assert {kind for kind, _ in (made(3, n) for n in range(100))} == {
        *("values", "structure", "bytes", "packed"),
        *("nested", "doubled"),
    }
    assert made(3, 7) != made(4, 7)


@pytest.mark.slow  # tests/readers/kineto/test_malformed.py
@pytest.mark.parametrize("kind", ["nested", "doubled"])
def test_deep_values_and_profiles_written_twice_go_in_or_are_rejected(kind: str) -> None:
    number = next(n for n in range(1000) if made(SEED, n)[0] == kind)
    tally, _, _ = attacked([number], SEED, models=False)
    assert tally.survived == 1, tally.notes


def test_values_are_nested_deep_and_profiles_are_there_twice() -> None:
    files = [made(SEED, n) for n in range(40)]
    nested = [content for kind, content in files if kind == "nested"]
    doubled = [json.loads(content)["traceEvents"] for kind, content in files if kind == "doubled"]
    assert nested and all(b"[" * 200_000 in content for content in nested)
    assert doubled
    for events in doubled:
        n_kernels = sum(event.get("cat") == "kernel" for event in events)
        assert n_kernels in (6, 8, 14)  # of 2, 3 or 6 launches and a collective, twice


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a valid document and its rows in the lake."""
    folder = tmp_path_factory.mktemp("good")
    document = good(random.Random(1))
    (folder / "rank0.json").write_text(json.dumps(document))
    lake = Lake(folder / "lake")
    ingest([folder / "rank0.json"], lake)
    ((rows,), findings) = (list(files._events_and_findings(lake)[0].values()), files._events_and_findings(lake)[1])
    assert not findings or not set().union(*findings.values()) - {"unmatched_begin", "sub_nanosecond_time"}
    return document, rows


def test_nothing_is_lost_of_a_good_file(read: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    document, rows = read
    text = json.dumps(document).encode()
    assert silent_loss(text, rows, {}) == "" and entries_of(text) == len(document["traceEvents"])


LOSSES: dict[str, tuple[int, dict[str, Any]]] = {
    "a time that is otherwise": (1, {"start_ns": 5}),
    "a time that is gone": (2, {"duration_ns": None}),
    "a name that is otherwise": (2, {"name": "x"}),
    "arguments that are gone": (1, {"args": None}),
    "an argument that is otherwise": (2, {"args": '{"correlation": 7}'}),
    "a correlation that is otherwise": (2, {"correlation": 7}),
    "a category that is gone": (1, {"cat": None}),
}


@pytest.mark.parametrize("what", LOSSES)
def test_what_is_lost_is_seen(read: tuple[dict[str, Any], list[dict[str, Any]]], what: str) -> None:
    document, rows = read
    at, changed = LOSSES[what]
    worse = [{**row, **changed} if i == at else row for i, row in enumerate(rows)]
    text = json.dumps(document).encode()
    assert f"entry {at}" in silent_loss(text, worse, {})
    assert silent_loss(text, worse, {"unmatched_begin": 3})  # a finding about something else
    assert silent_loss(text, worse, {"time_not_a_number": 1}) == ""


def test_rows_that_are_missing_and_broken_text_need_a_finding(
    read: tuple[dict[str, Any], list[dict[str, Any]]],
) -> None:
    document, rows = read
    text = json.dumps(document).encode()
    assert "rows, and no finding" in silent_loss(text, rows[:-1], {})
    for broken in (text[:-1], text + b"]", text.replace(b'"ph"', b'"name":1,"ph"', 1), b"\x1f\x8b" + text):
        assert silent_loss(broken, rows, {}) and not silent_loss(broken, rows, {"trailing_text": 1})
    more = document["traceEvents"][0] | {"unknown": 1}
    assert "key 'unknown'" in silent_loss(
        json.dumps({**document, "traceEvents": [more, *document["traceEvents"][1:]]}).encode(), rows, {}
    )


def test_a_name_that_is_an_object_keeps_a_key_that_stands_twice() -> None:
    text = b'[{"ph": "X", "name": {"a": 1, "a": 2.50}, "ts": 1, "dur": 1}]'
    row = {**dict.fromkeys(("cat", "pid", "tid", "flow_id", "bp", "scope", "args", "extra")), "ph": "X"}
    row |= {"start_ns": 1000, "duration_ns": 1000}
    assert silent_loss(text, [row | {"name": '{"a":1,"a":2.5}'}], {}) == ""
    assert "name" in silent_loss(text, [row | {"name": '{"a":2.5}'}], {})


@pytest.mark.slow  # 2 s
def test_one_file_s_traceback_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a batch fails, each of its files is tried alone, and only the guilty file is counted."""
    guilty = made(SEED, 2)[1]

    def failing(paths: list[Path], lake: Lake) -> Any:
        if any(path.read_bytes() == guilty for path in paths):
            raise OverflowError("cannot convert float infinity to integer")
        return ingest(paths, lake)

    monkeypatch.setattr(files, "ingest", failing)
    tally, counts, failures = attacked(range(4), SEED, models=False)
    assert (tally.tried, tally.tracebacks, counts["traceback"]) == (4, 1, 1) and not tally.passed
    assert [(f.number, f.outcome) for f in failures if f.outcome == "traceback"] == [(2, "traceback")]
    assert "OverflowError" in failures[0].why


def test_a_tally_passes_where_nothing_is_lost() -> None:
    assert Tally("x", 3, 3).passed
    assert not any(Tally("x", 3, 2, **{bad: 1}).passed for bad in ("lost", "silent", "tracebacks"))
