"""Answers as files: all rows, their caveats, and no incomplete file that looks whole."""

from __future__ import annotations

import http.client
import io
import json

import duckdb
import pyarrow.csv
import pyarrow.parquet
import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")
pytest.importorskip("uvicorn", reason="the extra serve is not installed")

from pipelines.base.foreign_text import visible
from pipelines.faces import untrusted_queries
from tests.effort import first_of
from tests.faces.serve.world import HOSTILE, Server, until


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("n", first_of([50_001, 0, 1], 2))
def test_downloads_have_all_rows(server: Server, kind: str, n: int) -> None:
    sql = f"SELECT range AS i, 'a,\"' || range AS text, CASE WHEN range % 2 = 0 THEN range END AS even FROM range({n})"
    answer = server.ask("/download", {"sql": sql, "format": kind})
    assert answer.status == 200 and answer.headers["content-disposition"] == f'attachment; filename="answer.{kind}"'
    file = io.BytesIO(answer.body)
    if kind == "parquet":
        table = pyarrow.parquet.read_table(file)
        assert table.equals(duckdb.sql(sql).to_arrow_table())
        assert (
            pyarrow.parquet.ParquetFile(io.BytesIO(answer.body)).metadata.row_group(0).num_rows <= 20_480 if n else True
        )
    elif n:
        table = pyarrow.csv.read_csv(file)
        assert table.to_pylist() == duckdb.sql(sql).to_arrow_table().to_pylist()
    else:
        assert answer.body == b'"i","text","even"\n'


@pytest.mark.parametrize("kind", first_of(["csv", "parquet"], 1))
def test_a_download_carries_its_caveats_in_a_header(kind: str, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A download has a header with its caveats, a JSON list in ASCII of at most 4,000 characters.

    Caveats that do not fit are counted.
    """
    request = {"sql": "SELECT duration_ns FROM kernels", "format": kind}
    assert "tracelake-caveats" not in server.ask("/download", request).headers
    lacking = ["kernels lacks trace 3f (caf\u00e9.json)", "kernels\r\nSet-Cookie: a=b", "\u6f22" * 600, "x" * 200]
    for n, shown in ((4, [*map(visible, lacking)]), (5, [*map(visible, lacking), "1 more caveat: run the query"])):
        monkeypatch.setattr(untrusted_queries, "caveats", lambda *_, n=n: [*lacking, "y" * 4000][:n])
        answer = server.ask("/download", request)
        header = answer.headers["tracelake-caveats"]
        assert answer.status == 200 and header.isascii() and len(header) <= 4000
        assert json.loads(header) == shown and "set-cookie" not in answer.headers
    monkeypatch.setattr(untrusted_queries, "caveats", lambda *_: ["y" * 3996])
    assert len(server.ask("/download", request).headers["tracelake-caveats"]) == 4000
    monkeypatch.setattr(untrusted_queries, "caveats", lambda *_: ["y" * 3997, "z"])
    assert server.ask("/download", request).headers["tracelake-caveats"] == '["2 more caveats: run the query"]'


def test_names_are_downloaded_as_they_are_unless_for_spreadsheets(server: Server) -> None:
    sql = "SELECT '=1+1' AS a, name FROM kernels LIMIT 1"
    plain, safe = (
        server.ask("/download", {"sql": sql, "format": "csv", "for_spreadsheet": for_spreadsheet}).body
        for for_spreadsheet in (False, True)
    )
    assert pyarrow.csv.read_csv(io.BytesIO(plain)).to_pylist() == [{"a": "=1+1", "name": HOSTILE}]
    assert pyarrow.csv.read_csv(io.BytesIO(safe)).to_pylist() == [{"a": "'=1+1", "name": HOSTILE}]


def test_lists_go_into_parquet_and_not_into_csv(server: Server) -> None:
    sql = "SELECT [1, 2] AS l"
    refused = server.ask("/download", {"sql": sql, "format": "csv"})
    assert refused.status == 400 and refused.json["error"].startswith("CSV cannot hold the column l, ")
    got = server.ask("/download", {"sql": sql, "format": "parquet"})
    assert pyarrow.parquet.read_table(io.BytesIO(got.body)).to_pylist() == [{"l": [1, 2]}]
    assert server.ask("/download", {"sql": sql, "format": "xlsx"}).status == 400
    until(lambda: server.n_running == 0)


def test_a_query_that_fails_in_the_middle_leaves_no_file_that_looks_whole(server: Server) -> None:
    sql = "SELECT CASE WHEN range = 900000 THEN error('too late') ELSE range END AS i FROM range(1000000)"
    with pytest.raises(http.client.IncompleteRead):
        server.ask("/download", {"sql": sql, "format": "csv"})
    until(lambda: server.n_running == 0)
