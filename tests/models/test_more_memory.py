"""Models that run out of memory: each runs again with twice the limit, up to the maximum for models."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from pipelines.base import database
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import call, connect, kernel, op

TOO_LITTLE = "Out of Memory Error: failed to allocate data of size 64.0 MiB (173.1 MiB/190.7 MiB used)"
EVENTS = [op("a", 0, 100), call("cudaLaunchKernel", 10, 5, 1), kernel("gemm", 20, 50, 1)]


class Short:
    """A connection on which DuckDB creates `kernels` only if its memory limit is at least `needed` MiB."""

    def __init__(self, con: duckdb.DuckDBPyConnection, needed: int, said: str = TOO_LITTLE) -> None:
        self._con, self._needed, self._said = con, needed, said
        self.tried: list[str] = []
        con.execute("SET python_scan_all_frames = true")  # lets DuckDB see local arrays in frames above `execute`

    def execute(self, query: str, *values: Any) -> Any:
        if "TABLE kernels AS " in query:
            self.tried.append(self.limit)
            if in_mib(self.limit) < self._needed:
                raise duckdb.OutOfMemoryException(self._said)
        return self._con.execute(query, *values)

    @property
    def limit(self) -> str:
        return self._con.execute("SELECT current_setting('memory_limit')").fetchall()[0][0]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._con, name)


def in_mib(limit: str) -> float:
    number, unit = limit.split()
    return float(number) * {"MiB": 1, "GiB": 1024}[unit]


def run(con: Short) -> None:
    run_models(con, load_catalog(), ["kernels"])  # pyright: ignore[reportArgumentType]


def test_it_gets_twice_as_much_until_that_is_enough() -> None:
    con, _ = connect(EVENTS)
    con.execute("SET memory_limit = '100MiB'")
    short = Short(con, 390)
    run(short)
    assert [round(in_mib(limit)) for limit in short.tried] == [100, 201, 403]
    assert con.execute("SELECT name FROM kernels").fetchall() == [("gemm",)]
    assert round(in_mib(short.limit)) == 403  # also for later models


@pytest.mark.parametrize("mib", [None, 300, 3000])
def test_but_no_more_than_models_may_use(mib: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    con, _ = connect(EVENTS)
    con.execute("SET memory_limit = '150MiB'")
    if mib:
        monkeypatch.setenv(database.MEMORY, str(mib))
    short, most = Short(con, 10**6), mib or int(database.MODELS_GB * 1e9) >> 20
    with pytest.raises(duckdb.OutOfMemoryException, match="failed to allocate"):
        run(short)
    assert in_mib(short.limit) == pytest.approx(most, rel=0.05)
    assert len(short.tried) == {300: 2, None: 5, 3000: 6}[mib]


def test_a_full_disk_is_none_of_its_business() -> None:
    con, _ = connect(EVENTS)
    con.execute("SET memory_limit = '150MiB'")
    short = Short(con, 10**6, f"Out of Memory Error: {database.DISK_FULL} of size 256.0 KiB")
    with pytest.raises(duckdb.OutOfMemoryException, match="offload"):
        run(short)
    assert len(short.tried) == 1


def test_duckdb_itself_is_helped() -> None:
    con, _ = connect([op("a", i, 1) for i in range(40_000)])
    con.execute("SET memory_limit = '6MiB'")
    run_models(con, load_catalog(), ["call_stacks"])
    assert con.execute("SELECT count(*) FROM call_stacks").fetchall() == [(40_000,)]
    assert in_mib(con.execute("SELECT current_setting('memory_limit')").fetchall()[0][0]) > 12  # DuckDB 1.5 ends at 30
