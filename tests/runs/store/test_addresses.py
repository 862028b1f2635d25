"""Addresses of stores, and errors that name the next step and contain no secret."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.runs.store import StoreError, open_store
from pipelines.runs.store.ducklake.address import hidden, parse_address
from pipelines.runs.store.ducklake.objects import check_data
from tests.runs.store.servers import S3_KEYS, free_ports


def test_an_address_has_a_catalog_and_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = parse_address("ducklake:postgres:host=db dbname=lake?data=s3://bucket/prefix/")
    assert (address.kind, address.catalog, address.data) == ("postgres", "host=db dbname=lake", "s3://bucket/prefix")
    assert address.is_remote and parse_address(address.text) == address
    assert parse_address(f"ducklake:sqlite:{tmp_path}/c", "s3://b/x").data == "s3://b/x"
    assert parse_address(f"ducklake:sqlite:{tmp_path}/c?data=/own", "s3://b/x").data == "/own"
    monkeypatch.setenv("TRACELAKE_DATA", "s3://b/env")
    assert open_store(f"ducklake:sqlite:{tmp_path}/c").address.endswith("?data=s3://b/env")


@pytest.mark.parametrize(
    ("address", "data", "message"),
    [
        ("ducklake:mysql:host=db", None, "not the address of a DuckLake"),
        ("ducklake:postgres:", None, "not the address of a DuckLake"),
        ("ducklake:postgres:host=db password=geheim", None, "PGPASSWORD"),
        ("ducklake:postgres:postgresql://me:geheim@db/lake", None, "PGPASSWORD"),
        ("ducklake:sqlite:/no/such/folder/cat", None, "is not a folder"),
        ("ducklake:postgres:host=db", "s3://", "no bucket"),
        ("ducklake:postgres:host=db", "gs://bucket/x", "only s3://"),
        ("ducklake:postgres:host=d'b", None, "quotation mark"),
    ],
)
def test_wrong_addresses(address: str, data: str | None, message: str) -> None:
    with pytest.raises(StoreError, match=message) as caught:
        open_store(address, data).connect()
    assert "geheim" not in str(caught.value)


def test_passwords_are_hidden_in_what_is_shown() -> None:
    assert hidden("host=db password=geheim user=x") == "host=db password=*** user=x"
    assert hidden("postgresql://me:geheim@db/x") == "postgresql://me:***@db/x"


def test_a_missing_extension_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines.runs.store.ducklake import attach

    monkeypatch.setattr(attach, "_in_wheel", lambda name: None)
    monkeypatch.setenv("HOME", str(tmp_path))  # DuckDB's own INSTALL writes extensions there
    with pytest.raises(StoreError, match=r"pip install 'tracelake\[lake\]'"):
        open_store(f"ducklake:sqlite:{tmp_path}/c?data={tmp_path}/d").known(["a"])


@pytest.mark.ducklake("sqlite")
@pytest.mark.ducklake("postgres")  # httpfs
def test_keys_for_s3_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StoreError, match="no keys for S3: set AWS_ACCESS_KEY_ID"):
        open_store(f"ducklake:sqlite:{tmp_path}/c?data=s3://bucket/x").known(["a"])


@contextmanager
def refusing(code: str | None) -> Iterator[str]:
    """Yield the URL of a fake S3 server that refuses everything with this code, or never answers if `code` is None."""
    over = threading.Event()

    class Refusal(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if code is None:
                over.wait(60)
                return
            body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
            self.send_response(403)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body if self.command == "GET" else b"")

        do_HEAD = do_PUT = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusal) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            over.set()
            server.shutdown()


BAD_BUCKETS = [
    ("SignatureDoesNotMatch", "the secret is not that of the key; set AWS_SECRET_ACCESS_KEY again"),
    ("InvalidAccessKeyId", "does not know the key; set AWS_ACCESS_KEY_ID"),
    ("ExpiredToken", "the session is over; set AWS_SESSION_TOKEN"),
    ("AccessDenied", "are the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY right"),
    (None, "no answer from"),
]


def with_wrong_keys(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    for name, value in {**S3_KEYS, "AWS_SECRET_ACCESS_KEY": "geheim", "AWS_ENDPOINT_URL": url}.items():
        monkeypatch.setenv(name, value)


def refusal(act: Callable[[], object], url: str) -> str:
    """Assert that `act` raises one sentence with the bucket and its server, but without the secret, and return it."""
    with pytest.raises(StoreError, match=rf"^s3://bucket: .*{url}") as caught:
        act()
    said = str(caught.value)
    assert "geheim" not in said and "\n" not in said
    return said


@pytest.mark.slow  # 5 s
@pytest.mark.parametrize(("code", "message"), BAD_BUCKETS)
def test_a_bucket_that_refuses_or_does_not_answer_says_so_within_10_s(
    code: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refusing(code) as url:
        with_wrong_keys(monkeypatch, url)
        assert message in refusal(lambda: check_data("s3://bucket/lake", to_write=True), url)
        if code == "AccessDenied":
            check_data("s3://bucket/lake", to_write=False)  # reading does not require permission to list


def test_a_bucket_whose_server_is_not_there_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    with_wrong_keys(monkeypatch, url)
    assert "no answer from" in refusal(lambda: check_data("s3://bucket/lake", to_write=False), url)


@pytest.mark.ducklake("sqlite")
@pytest.mark.ducklake("postgres")  # httpfs
def test_no_command_begins_work_with_a_wrong_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").write_text('{"traceEvents": []}')
    address = f"ducklake:sqlite:{tmp_path}/c.sqlite?data=s3://bucket/lake"
    with refusing("SignatureDoesNotMatch") as url:
        with_wrong_keys(monkeypatch, url)
        for words in (["ingest", str(tmp_path / "a.json")], ["materialize"], ["sql", "FROM traces"]):
            done = CliRunner().invoke(app, [*words, "--lake", address])
            assert done.exit_code == 1 and "the secret is not that of the key" in done.stderr, (words, done.output)
            assert "Traceback" not in done.output and "rejected" not in done.output
    assert not (tmp_path / "c.sqlite").exists()  # no catalog is created


@pytest.mark.ducklake("sqlite")
def test_a_catalog_needs_to_know_where_its_data_is(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        open_store(f"ducklake:sqlite:{tmp_path}/none.sqlite").connect()  # reading creates no catalog
    assert not (tmp_path / "none.sqlite").exists()


@pytest.mark.slow
@pytest.mark.ducklake("sqlite")
@pytest.mark.ducklake("postgres")
def test_servers_that_are_not_there_or_refuse(
    postgres_server: str, on_s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.runs.store.world import make_unit

    unit = make_unit(tmp_path / "unit", (0,), ["kernels"])
    sqlite = f"ducklake:sqlite:{tmp_path}/c.sqlite?data="
    with pytest.raises(StoreError, match="no such database; create it with createdb"):
        open_store(f"ducklake:postgres:{postgres_server} dbname=none?data={on_s3}").known(["a"])
    with pytest.raises(StoreError, match="is the server running"):
        open_store(f"ducklake:postgres:host=127.0.0.1 port=1 dbname=x?data={on_s3}").known(["a"])
    with pytest.raises(StoreError, match="there is no such bucket"):
        open_store(f"{sqlite}s3://nobucket/x").commit(unit)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "geheim")
    with pytest.raises(StoreError, match="access denied") as caught:
        open_store(f"ducklake:sqlite:{tmp_path}/d.sqlite?data={on_s3}").commit(unit)
    assert "geheim" not in str(caught.value)
