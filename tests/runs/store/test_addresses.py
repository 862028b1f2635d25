"""Addresses, and errors that say what to do and hold no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.runs.store import StoreError, open_store
from pipelines.runs.store.ducklake.address import hidden, parse_address


def test_an_address_has_a_catalog_and_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = parse_address("ducklake:postgres:host=db dbname=lake?data=s3://bucket/prefix/")
    assert (found.kind, found.catalog, found.data) == ("postgres", "host=db dbname=lake", "s3://bucket/prefix")
    assert found.is_remote and parse_address(found.text) == found
    assert parse_address(f"ducklake:sqlite:{tmp_path}/c", "s3://b/x").data == "s3://b/x"
    assert parse_address(f"ducklake:sqlite:{tmp_path}/c?data=/own", "s3://b/x").data == "/own"
    monkeypatch.setenv("TRACELAKE_DATA", "s3://b/env")
    assert open_store(f"ducklake:sqlite:{tmp_path}/c").address.endswith("?data=s3://b/env")


@pytest.mark.parametrize(
    ("address", "data", "told"),
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
def test_wrong_addresses(address: str, data: str | None, told: str) -> None:
    with pytest.raises(StoreError, match=told) as caught:
        open_store(address, data)
    assert "geheim" not in str(caught.value)


def test_passwords_are_hidden_in_what_is_shown() -> None:
    assert hidden("host=db password=geheim user=x") == "host=db password=*** user=x"
    assert hidden("postgresql://me:geheim@db/x") == "postgresql://me:***@db/x"


def test_a_missing_extension_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines.runs.store.ducklake import extensions

    monkeypatch.setattr(extensions, "_in_wheel", lambda name: None)
    monkeypatch.setenv("HOME", str(tmp_path))  # where DuckDB's own INSTALL puts them
    with pytest.raises(StoreError, match=r"pip install 'tracelake\[lake\]'"):
        open_store(f"ducklake:sqlite:{tmp_path}/c?data={tmp_path}/d").known(["a"])


@pytest.mark.ducklake("sqlite")
@pytest.mark.ducklake("postgres")  # httpfs
def test_keys_for_s3_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StoreError, match="no keys for S3: set AWS_ACCESS_KEY_ID"):
        open_store(f"ducklake:sqlite:{tmp_path}/c?data=s3://bucket/x").known(["a"])


@pytest.mark.ducklake("sqlite")
def test_a_catalog_needs_to_know_where_its_data_is(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        open_store(f"ducklake:sqlite:{tmp_path}/none.sqlite").connect()  # reading makes no catalog
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
    with pytest.raises(StoreError, match="no such database; make it with createdb"):
        open_store(f"ducklake:postgres:{postgres_server} dbname=none?data={on_s3}").known(["a"])
    with pytest.raises(StoreError, match="is the server running"):
        open_store(f"ducklake:postgres:host=127.0.0.1 port=1 dbname=x?data={on_s3}").known(["a"])
    with pytest.raises(StoreError, match="there is no such bucket"):
        open_store(f"{sqlite}s3://nobucket/x").commit(unit)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "geheim")
    with pytest.raises(StoreError, match="access denied") as caught:
        open_store(f"ducklake:sqlite:{tmp_path}/d.sqlite?data={on_s3}").commit(unit)
    assert "geheim" not in str(caught.value)
