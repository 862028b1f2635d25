"""The server's answers, and the requests that it refuses."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import anyio
import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")
pytest.importorskip("uvicorn", reason="the extra serve is not installed")

from pipelines.base.foreign_text import visible
from pipelines.faces.serve import app, reports, running
from pipelines.lake import Lake
from pipelines.lake.read.sandbox import Limits
from pipelines.models.catalog import load_catalog
from pipelines.models.questions import load_questions
from pipelines.readers.ingest import ingest
from pipelines.runs.store import open_store
from tests.effort import first_of
from tests.faces.serve.world import FOREVER, HOSTILE, Server, hostile_lake, serving, until, write_hostile
from tests.lake.world import write_trace


def test_rows_are_those_of_the_lake(server: Server, lake: Lake) -> None:
    asked = server.ask(
        "/query", {"sql": "SELECT rank, name, duration_ns FROM kernels JOIN traces USING (trace_id) ORDER BY 1 LIMIT 2"}
    )
    assert asked.json["rows"] == [[0, visible(HOSTILE), 20_000]] * 2
    assert [column["name"] for column in asked.json["columns"]] == ["rank", "name", "duration_ns"]
    assert [column["is_number"] for column in asked.json["columns"]] == [True, False, True]
    assert (asked.json["cut"], asked.json["caveats"]) == ("", [])


def test_rows_are_limited_and_the_answer_says_so(server: Server) -> None:
    exactly, more = (server.ask("/query", {"sql": f"FROM range({n})"}).json for n in (3, 4))
    assert exactly["rows"] == more["rows"] == [[0], [1], [2]]
    assert (exactly["cut"], more["cut"]) == ("", "the first 3 rows; there are more")


def test_values_are_exact(server: Server) -> None:
    values = {
        "9007199254740991": 9007199254740991,
        "9007199254740993": "9007199254740993",  # JavaScript would round it to …992
        "-9007199254740992": "-9007199254740992",
        "170141183460469231731687303715884105727::HUGEINT": "170141183460469231731687303715884105727",
        "NULL": None,
        "'NULL'": "NULL",
        "true": True,
        "0.1::DECIMAL(20, 10)": "0.1000000000",
        "'nan'::DOUBLE": "nan",
        "'-inf'::DOUBLE": "-inf",
        "[1, NULL]": "[1, null]",
        "{'a': 'é', 'b': DATE '2026-01-02'}": '{"a": "é", "b": "2026-01-02"}',
        "TIMESTAMP '2026-01-02 03:04:05.000006'": "2026-01-02 03:04:05.000006",
        "'\\x1b[31m' || chr(27)": "\\x1b[31m\\x1b",
    }
    columns = [f"{value} AS v{at}" for at, value in enumerate((*values, "'a\\xff'::BLOB"))]
    answer = server.ask("/query", {"sql": f"SELECT {', '.join(columns)}"})
    assert answer.status == 200, answer.body
    *cells, blob = answer.json["rows"][0]
    assert dict(zip(values, cells, strict=True)) == values and isinstance(blob, str)
    assert type(cells[6]) is bool


def test_long_cells_are_cut_and_counted(server: Server) -> None:
    answer = server.ask("/query", {"sql": "SELECT repeat('x', 10000), repeat('y', 10001)"}).json
    assert answer["rows"] == [["x" * 10_000, "y" * 10_000 + "… (10,001 characters)"]]
    assert answer["caveats"] == ["1 cell cut to 10,000 characters; a download has all of them"]


def test_wide_answers_end_by_bytes(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_MOST_BYTES", 1_000_000)
    with serving(lake.root, rows=10_000) as server:
        answer = server.ask("/query", {"sql": "SELECT repeat('x', 10000) FROM range(1000)"}).json
    assert len(answer["rows"]) == 100
    assert answer["cut"] == "the first 100 rows; there are more, and these are 1 MB of text"


REFUSED = (
    ("COPY kernels TO '/tmp/x.csv'", "COPY"),
    ("ATTACH '/tmp/x.duckdb'", "ATTACH"),
    ("SELECT * FROM read_text('/etc/passwd')", "read_text"),
    ("FROM '/etc/passwd'", "does not exist"),
    ("SET memory_limit = '100GB'", "SET"),
    ("SELECT 1; SELECT 2", "2 statements"),
    ("", "no query"),
    ("SELEC 1", "syntax error"),
    ("SELECT nope FROM kernels", "nope"),
    ("FROM nope", "nope"),
    ("CREATE TABLE x (a INT)", "CREATE"),
    ("PRAGMA database_list", "PRAGMA"),
)


@pytest.mark.parametrize(("sql", "message"), REFUSED)
@pytest.mark.parametrize("path", ["/query", "/download"])
def test_only_reading_is_answered(server: Server, path: str, sql: str, message: str) -> None:
    answer = server.ask(path, {"sql": sql, "format": "csv"})
    assert answer.status == 400 and message in answer.json["error"]
    assert "--allow-files" not in answer.json["hint"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[1]",
        b'{"sql": 1}',
        b'{"sql": null}',
        b"[" * 100_000,
        b'{"sql": "' + b"x" * 1_000_001 + b'"}',
    ],
)
def test_requests_that_are_none_get_a_sentence(server: Server, body: bytes) -> None:
    answer = server.ask("/query", body)
    assert answer.status == 400 and answer.json["error"].startswith("the request ")


# ---- allowed clients


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "localhost@evil.example:1"]
)
def test_other_names_are_rejected(server: Server, host: str) -> None:
    """Requests for other host names are rejected.

    The attack is DNS rebinding, in which a foreign name resolves to this server.
    """
    for path in ("/", "/contents", "/files/console.js"):
        assert server.ask(path, headers={"Host": host}).status == 421
    assert server.ask("/query", {"sql": "SELECT 1"}, headers={"Host": host}).status == 421


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:1", "https://127.0.0.1.evil.example", "http://["]
)
def test_pages_of_others_may_not_ask(server: Server, origin: str) -> None:
    for path in ("/query", "/download", "/report", "/question"):
        assert server.ask(path, {"sql": "SELECT 1"}, headers={"Origin": origin}).status == 403
    assert server.ask("/contents", headers={"Origin": origin}).status == 403


def test_own_pages_and_programs_may_ask(server: Server) -> None:
    own = {"Origin": f"http://127.0.0.1:{server.port}"}
    assert server.ask("/query", {"sql": "SELECT 1"}, headers=own).status == 200
    assert server.ask("/query", {"sql": "SELECT 1"}).status == 200  # curl
    named = {"Host": f"localhost:{server.port}", "Origin": f"http://localhost:{server.port}"}
    assert server.ask("/query", {"sql": "SELECT 1"}, headers=named).status == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain; a=application/json"]
)
def test_what_a_form_can_send_is_rejected(server: Server, kind: str) -> None:
    answer = server.ask("/query", {"sql": "SELECT 1"}, headers={"Content-Type": kind})
    assert answer.status == 415


def test_nothing_is_asked_by_a_link(server: Server) -> None:
    for path in ("/query?sql=SELECT+1", "/download?sql=SELECT+1&format=csv", "/question?name=gaps"):
        assert server.ask(path).status == 405
    assert server.ask("/query", method="OPTIONS").status == 405  # no preflight request succeeds


def test_every_answer_forbids_what_is_not_needed(server: Server) -> None:
    for answer in (
        server.ask("/"),
        server.ask("/contents"),
        server.ask("/files/tabulator.min.js"),
        server.ask("/nothing"),
        server.ask("/query", {"sql": "SELECT 1"}),
        server.ask("/query", {"sql": "nonsense"}),
        server.ask("/download", {"sql": "SELECT 1", "format": "csv"}),
        server.ask("/", headers={"Host": "evil.example"}),
    ):
        assert answer.headers["content-security-policy"].startswith("default-src 'self'; ")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers


PATHS = (
    "../app.py",
    "..%2fapp.py",
    "%2e%2e/app.py",
    "....//app.py",
    "/etc/passwd",
    "%2fetc%2fpasswd",
    "app.py",
    "source.json%00.js",
    "",
)


@pytest.mark.parametrize("path", PATHS)
def test_only_the_page_s_files_are_served(server: Server, path: str) -> None:
    for folder in ("/files/", "/reports/"):
        answer = server.ask(folder + path)
        assert answer.status in (404, 405) and b"import" not in answer.body and b"root:" not in answer.body


# ---- contents and questions


def test_all_tables_and_questions_are_listed(server: Server) -> None:
    contents = server.ask("/contents").json
    tables = {table["name"]: table for layer in contents["layers"] for table in layer["tables"]}
    catalog = load_catalog()
    assert tables.keys() == set(catalog.public) and contents["layers"][-1]["layer"] == "rules"
    names = [c["name"] for c in tables["kernels"]["columns"]]
    assert names == [c.name for c in catalog.models["kernels"].columns]
    assert all(c["type"] and c["doc"] for table in tables.values() for c in table["columns"])
    assert [(question["name"], question["words"]) for question in contents["questions"]] == [
        (name, question.words) for name, question in load_questions().items()
    ]


def test_questions_are_asked_of_a_part(server: Server) -> None:
    sql = server.ask("/question", {"name": "top-kernels", "job": "it's <b>", "rank": 1, "top": 5}).json["sql"]
    assert sql == load_questions()["top-kernels"].asked(5, job="it's <b>", rank=1)
    ((_, name, *_),) = server.rows(server.ask("/question", {"name": "top-kernels", "job": "<b>train</b>"}).json["sql"])
    assert name == visible(HOSTILE)
    for wrong in (
        {"name": "nope"},
        {"name": "gaps", "rank": "1"},
        {"name": "gaps", "top": True},
        {"name": "gaps", "job": 1},
    ):
        assert server.ask("/question", wrong).status == 400


# ---- long queries


def test_a_client_that_leaves_ends_its_query(server: Server) -> None:
    for path in ("/query", "/download"):
        con = server.begun(path, {"sql": FOREVER, "format": "csv"})
        until(lambda: server.n_running == 1)
        con.close()
        until(lambda: server.n_running == 0)
    assert server.rows("SELECT 1") == [[1]]


def test_a_client_that_leaves_in_the_middle_of_a_download_ends_it(server: Server) -> None:
    con = server.begun("/download", {"sql": "SELECT range, repeat('x', 100) FROM range(100000000)", "format": "csv"})
    assert con.recv(100_000).startswith(b"HTTP/1.1 200")
    assert server.n_running == 1
    con.close()
    until(lambda: server.n_running == 0)


def test_a_query_ends_at_its_time_limit(lake: Lake) -> None:
    with serving(lake.root, Limits(0.3, 0, "500MB", "1GB")) as server:
        for path in ("/query", "/download"):
            answer = server.ask(path, {"sql": FOREVER, "format": "csv"})
            assert answer.status == 400 and answer.json["error"].startswith("the query was stopped after 0.3 s")
        assert server.n_running == 0


def test_a_query_ends_at_its_memory_limit(lake: Lake) -> None:
    with serving(lake.root, Limits(60, 0, "50MB", "1MB")) as server:
        answer = server.ask("/query", {"sql": "SELECT range, count(*) FROM range(50000000) GROUP BY 1 ORDER BY 2"})
        assert answer.status == 400 and "raise --memory" in answer.json["error"]
        assert server.rows("SELECT 1") == [[1]]


@pytest.mark.parametrize("n", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_queries_wait_for_their_turn_and_too_many_are_told(
    server: Server, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_WAITING", n)
    held = [server.begun("/query", {"sql": FOREVER}) for _ in range(2)]
    until(lambda: server.n_running == 2)
    waiting = [server.begun("/query", {"sql": f"SELECT {i}"}) for i in range(n)]
    until(lambda: server.console.places._limiter.statistics().tasks_waiting == n)
    refused = server.ask("/query", {"sql": "SELECT 1"})
    assert refused.status == 503 and refused.json["error"] == f"2 queries are running and {n} waiting"
    assert server.ask("/contents").status == 200  # the page still opens
    for con in held:
        con.close()
    for i, con in enumerate(waiting):
        reply = b""
        while b"\r\n\r\n" not in reply or not reply.endswith(b"}"):
            reply += con.recv(100_000)
        assert json.loads(reply.partition(b"\r\n\r\n")[2])["rows"] == [[i]]
        con.close()
    until(lambda: server.n_running == 0)


def test_who_leaves_while_waiting_leaves_the_queue(server: Server) -> None:
    held = [server.begun("/query", {"sql": FOREVER}) for _ in range(2)]
    until(lambda: server.n_running == 2)
    paths = ("/query", "/download", "/report")
    waiting = [server.begun(path, {"sql": "SELECT 1", "format": "csv", "id": "x"}) for path in paths]
    until(lambda: server.console.places._limiter.statistics().tasks_waiting == 3)
    for con in waiting:
        con.close()
    until(lambda: server.console.places._limiter.statistics().tasks_waiting == 0)
    assert server.n_running == 2
    for con in held:
        con.close()
    until(lambda: server.n_running == 0)


# ---- lakes


@pytest.mark.slow
def test_what_is_committed_while_it_serves_is_shown(tmp_path: Path) -> None:
    lake = hostile_lake(tmp_path, ranks=1)
    with serving(lake.root) as server:
        assert server.rows("SELECT count(*) FROM traces") == [[1]]
        ingest([write_hostile(tmp_path / "more" / "rank7.json", 7)], lake, job="more")
        assert server.rows("SELECT count(*) FROM traces") == [[2]]
        answer = server.ask("/query", {"sql": "SELECT count(*) FROM kernels"}).json
        assert answer["rows"] == [[4]]
        assert answer["caveats"] == [
            "kernels is not computed, or of an older model, for 1 of 2 batches of traces; "
            f"to compute it: tracelake materialize kernels --lake {lake.root}"
        ]
        for kind in ("csv", "parquet"):  # a file would not contain the caveat
            refused = server.ask("/download", {"sql": "SELECT * FROM kernels", "format": kind})
            assert (refused.status, refused.json) == (
                400,
                {
                    "error": "kernels is not computed, or of an older model, for 1 of 2 batches of traces",
                    "hint": f"To compute it: tracelake materialize kernels --lake {lake.root}",
                },
            )
            assert server.ask("/download", {"sql": "SELECT * FROM traces", "format": kind}).status == 200


def test_a_lake_without_traces_says_so(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    with serving(tmp_path / "lake") as server:
        assert server.ask("/contents").status == 200
        answer = server.ask("/query", {"sql": "SELECT * FROM traces"})
        assert answer.status == 400 and answer.json["error"].startswith("no traces in the lake")
        assert "tracelake ingest" in answer.json["hint"]
        first = server.ask("/why", {})  # the first request of the page
        assert (first.status, first.json) == (400, answer.json)
        assert server.ask("/why").status == 405  # a link does not send this request
    assert not list(tmp_path.glob("lake/*.csv"))


@pytest.mark.slow  # 2 s
def test_the_first_trace_of_a_lake_is_shown(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    with serving(tmp_path / "lake") as server:
        assert server.ask("/query", {"sql": "SELECT * FROM traces"}).status == 400
        ingest([write_hostile(tmp_path / "in" / "rank0.json", 0)], Lake(tmp_path / "lake"))
        assert server.rows("SELECT count(*) FROM traces") == [[1]]
        assert "tracelake materialize" in " ".join(server.ask("/why", {}).json["caveats"])
    assert not list(tmp_path.glob("lake/*.csv"))


@pytest.mark.slow  # tests/runs/test_check.py tests the damage
def test_damaged_files_are_told_or_left_out(tmp_path: Path) -> None:
    lake = hostile_lake(tmp_path, ranks=1)
    next((lake.root / "kernels").rglob("*.parquet")).unlink()
    with serving(lake.root) as server:
        answer = server.ask("/query", {"sql": "SELECT count(*) FROM kernels"})
        assert answer.status == 400 and "kernels" in answer.json["error"] and "--without-broken" in answer.json["error"]
        assert server.rows("SELECT count(*) FROM traces") == [[1]]
    with serving(lake.root, without_broken=True) as server:
        remaining = server.ask("/query", {"sql": "SELECT count(*) FROM kernels"}).json
        file = server.ask("/download", {"sql": "SELECT trace_id FROM traces", "format": "csv"})
    assert remaining["rows"] == [[0]] and remaining["caveats"][0].startswith("left out: ")
    assert json.loads(file.headers["tracelake-caveats"]) == remaining["caveats"][:1]


@pytest.mark.parametrize("without_broken", [False, True])
def test_reports_leave_out_broken_files_if_the_server_does(
    without_broken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports omit broken files if the server omits them, although a separate process makes the reports."""
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\nprintf %s "$TRACELAKE_WITHOUT_BROKEN" > "$7"\n')  # the argument of --out
    program.chmod(0o755)
    monkeypatch.setattr(reports.sys, "executable", str(program))
    (tmp_path / "lake").mkdir()
    made = reports.Reports(tmp_path / "lake", without_broken)
    page = made.page(anyio.run(made.make, "abcd"))
    assert page is not None and page.read_text() == ("1" if without_broken else "")
    made.close()


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of a DuckLake with the contents of a lake of one trace."""
    folder = tmp_path_factory.mktemp("bucket")
    unit = hostile_lake(folder, ranks=1)
    address = f"ducklake:sqlite:{folder}/catalog.sqlite?data={folder}/data"
    open_store(address).commit(unit)
    return address


@pytest.mark.slow
@pytest.mark.ducklake("sqlite")
def test_a_ducklake_is_served_without_reports(bucket: str) -> None:
    with serving(bucket) as server:
        assert server.rows("SELECT name, count(*) FROM kernels GROUP BY 1") == [[visible(HOSTILE), 4]]
        refused = server.ask("/query", {"sql": "FROM read_text('/etc/passwd')"})
        assert refused.status == 400
        got = server.ask("/download", {"sql": "SELECT duration_ns FROM kernels", "format": "csv"})
        assert got.body == b'"duration_ns"\n' + b"20000\n" * 4
        assert server.ask("/contents").json["has_reports"] is False
        ((trace,),) = server.rows("SELECT trace_id FROM traces")
        report = server.ask("/report", {"id": trace})
        assert report.status == 400 and report.json["error"] == "reports need a lake in a folder"


@pytest.mark.parametrize("ident", first_of(["../../etc/passwd", "--lake", "' OR 1=1 --", ""], 2))
def test_reports_need_an_id_that_is_there(server: Server, ident: str) -> None:
    answer = server.ask("/report", {"id": ident})
    assert answer.status == 400 and answer.json["error"].startswith("no trace or capture has the id"), answer.body


def test_a_report_is_made_again_if_files_came_while_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, later = Lake(tmp_path / "lake"), [write_trace(tmp_path / "a.json", 1)]
    lake.root.mkdir()

    async def report(root: Path, ident: str, out: Path, without_broken: bool) -> None:
        out.write_text("a report")
        if later:
            ingest([later.pop()], lake)

    monkeypatch.setattr(reports, "_run", report)
    monkeypatch.setattr(reports, "_state", lambda root: "after the report")
    made = reports.Reports(lake.root)

    async def make_thrice() -> list[str]:
        return [await made.make("abcd") for _ in range(3)]

    names = anyio.run(make_thrice)
    assert names[0] != names[1] == names[2] and made.page(names[0]) is None
    made.close()


@pytest.mark.parametrize("after", ["it is kept", "it is gone", "a link has its name", "another user has its name"])
def test_reports_get_a_new_folder_unless_the_old_folder_is_still_their_own(
    after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def report(root: Path, ident: str, out: Path, without_broken: bool) -> None:
        out.write_text("a report")

    monkeypatch.setattr(reports, "_run", report)
    monkeypatch.setattr(reports, "_state", lambda root: "unchanged")
    for name in ("lake", "theirs"):
        (tmp_path / name).mkdir()
    made, own = reports.Reports(tmp_path / "lake"), os.geteuid()

    async def make_twice() -> tuple[Path | None, Path | None]:
        first = made.page(name := await made.make("abcd"))
        assert first is not None
        if after != "it is kept":
            shutil.rmtree(first.parent)
            assert made.page(name) is None
        if after == "a link has its name":
            first.parent.symlink_to(tmp_path / "theirs")
        if after == "another user has its name":
            first.parent.mkdir()
            monkeypatch.setattr(reports.os, "geteuid", lambda: own + 1)
        return first, made.page(await made.make("abcd"))

    first, second = anyio.run(make_twice)
    assert first is not None and second is not None and second.is_file()
    assert (second == first) == (second.parent == first.parent) == (after == "it is kept")
    assert second.parent.stat().st_mode & 0o777 == 0o700 and not [*(tmp_path / "theirs").iterdir()]
    made.close()
    assert not second.parent.exists()
    if first.parent.is_symlink():
        first.parent.unlink()


@pytest.mark.slow
def test_a_report_is_made_once_until_the_lake_changes(tmp_path: Path) -> None:
    lake = hostile_lake(tmp_path, ranks=1)
    with serving(lake.root) as server:
        ((trace,),) = server.rows("SELECT trace_id FROM traces")
        first = server.ask("/report", {"id": trace}).json["page"]
        assert server.ask("/report", {"id": trace}).json["page"] == first
        page = server.ask(first)
        assert page.status == 200 and page.headers["content-security-policy"].startswith("default-src 'none'; ")
        assert b"<script" not in page.body and b"&lt;script&gt;" in page.body
        ingest([write_hostile(tmp_path / "more" / "rank7.json", 7)], lake, job="more")
        second = server.ask("/report", {"id": trace}).json["page"]
        assert second != first and server.ask(second).status == 200 and server.ask(first).status == 404
        folder = server.console.reports._folder.name
        assert len(list(Path(folder).iterdir())) == 1
    assert not Path(folder).exists()


def test_errors_that_only_look_like_an_interrupt_are_errors(server: Server) -> None:
    for path in ("/query", "/download"):
        answer = server.ask(path, {"sql": "SELECT error('INTERRUPT Error: Out of Memory Error: ')", "format": "csv"})
        assert answer.status == 400 and "INTERRUPT Error" in answer.json["error"]


def test_what_no_text_and_no_cell_can_hold_is_a_sentence(server: Server) -> None:
    """Values that neither text nor a cell can represent are refused with a sentence.

    One request has half of a character, and one answer has an interval that Python cannot represent.
    """
    for path, fields, name in (
        ("/query", {"sql": "SELECT '\ud800'"}, "sql"),
        ("/question", {"name": "gpu-parts", "job": "\ud800"}, "job"),
        ("/report", {"id": "\ud800"}, "id"),
        ("/download", {"sql": "SELECT '\ud800'", "format": "csv"}, "sql"),
    ):
        answer = server.ask(path, fields)
        assert answer.status == 400 and f"{name!r} is half of a character" in answer.json["error"], answer.body
    answer = server.ask("/query", {"sql": "SELECT INTERVAL 1000000000 MONTH"})
    assert answer.status == 400 and "too large" in answer.json["error"] and "VARCHAR" in answer.json["hint"]
    whole = server.ask("/query", {"sql": "SELECT '\U0001f600', INTERVAL 10000 MONTH::VARCHAR"})
    assert whole.status == 200 and whole.json["rows"][0][0] == "\U0001f600"
