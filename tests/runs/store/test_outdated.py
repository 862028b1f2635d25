"""Outdated tables of a DuckLake: it answers from the committed rows, and names tables that today's models would change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.engines.in_process import InProcess
from pipelines.engines.run import materialize_on
from pipelines.faces.cli.app import app
from pipelines.lake import Lake
from pipelines.runs.store import Store, open_store
from pipelines.runs.store.ducklake import versions
from pipelines.runs.store.ducklake.outdated_tables import outdated
from tests.runs.store.world import make_unit, rewrite

pytestmark = pytest.mark.ducklake("sqlite")
OLD = "* REPLACE (duration_ns + 1000 AS duration_ns)"
DOES = "`tracelake materialize {}` with the same --lake does that"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"ducklake:sqlite:{tmp_path}/catalog.sqlite?data={tmp_path}/data")


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Lake]:
    """Return two traces with an old table `kernels`, one with a new one, and one without it."""
    folder = tmp_path_factory.mktemp("units")
    seeds_by_name = {"old": (0, 1), "new": (2,), "bare": (3,)}
    lakes = {
        name: make_unit(folder / name, seeds, [] if name == "bare" else ["kernels"])
        for name, seeds in seeds_by_name.items()
    }
    rewrite(lakes["old"], "kernels", OLD, version="old")
    return lakes


def messages(store: Store, *tables: str) -> list[str]:
    with store.connect() as con:
        return outdated(con, tables)


def test_what_is_old_or_missing_is_counted(store: Store, units: dict[str, Lake]) -> None:
    store.commit(units["new"])
    assert messages(store, "kernels") == []
    store.commit(units["old"])
    older = "computed by another version of its model for 2 of 3 traces"
    assert messages(store, "kernels") == [f"kernels was {older}: {DOES.format('kernels')}"]
    store.commit(units["bare"])
    (said,) = messages(store, "kernels", "traces")
    assert said.startswith(
        "kernels was not computed for 1 of 4 traces and computed by another version of its model for 2 of 4"
    )


@pytest.mark.slow
def test_what_was_computed_again_is_not_counted(store: Store, units: dict[str, Lake]) -> None:
    for unit in units.values():
        store.commit(unit)
    assert messages(store, "kernels")
    materialize_on(InProcess(), store.address, ["kernels"])
    assert messages(store, "kernels") == []


def test_what_was_removed_is_not_counted(store: Store, units: dict[str, Lake]) -> None:
    store.commit(units["old"])
    store.expire(1, now=datetime.now(UTC) + timedelta(days=9))
    store.commit(units["new"])
    assert messages(store, "kernels") == []


def test_a_trace_in_no_capture_is_counted(store: Store, units: dict[str, Lake]) -> None:
    store.commit(units["new"])
    assert messages(store, "kernels", "capture_ranks") == [
        f"1 traces are in no capture yet: {DOES.format('capture_ranks')}"
    ]


@pytest.mark.slow
def test_captures_are_counted_too(store: Store, units: dict[str, Lake], monkeypatch: pytest.MonkeyPatch) -> None:
    store.commit(units["new"])
    assert messages(store, "kernels", "capture_ranks") != []
    materialize_on(InProcess(), store.address, ["capture_ranks"])
    assert messages(store, "kernels", "capture_ranks", "captures") == []
    monkeypatch.setattr(versions.Catalog, "version", lambda self, name: "later")
    said = messages(store, "capture_ranks", "captures")
    assert [message.split(":")[0] for message in said] == [
        f"{table} was computed by another version of its model for 1 of 1 captures"
        for table in ("capture_ranks", "captures")
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("sql", "SELECT count(*) AS n FROM kernels", "--format", "csv"),
        pytest.param(("ask", "top-kernels"), marks=pytest.mark.slow),
    ],
)
def test_a_query_says_so(store: Store, units: dict[str, Lake], words: tuple[str, ...]) -> None:
    def asked() -> str:
        done = CliRunner().invoke(app, [*words, "--lake", store.address])
        assert done.exit_code == 0, done.output
        return " ".join(done.stderr.split())

    store.commit(units["new"])
    assert "out of date" not in asked()
    store.commit(units["old"])
    assert "out of date: kernels was computed by another version of its model for 2 of 3 traces" in asked()
    store.commit(units["bare"])
    assert "kernels was not computed for 1 of 4 traces" in asked()
