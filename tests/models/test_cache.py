"""Values cached between processes."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.models import cache, dry_run
from pipelines.models.cache import digest_of, remembered
from pipelines.models.catalog import Catalog, load_catalog


def test_the_same_digest_is_computed_once_and_another_anew(own_cache: Path) -> None:
    calls = []

    def compute() -> list[int]:
        calls.append(1)
        return [len(calls)]

    assert [remembered("a", digest, compute) for digest in ("x", "x", "y", "x")] == [[1], [1], [2], [3]]
    assert len(list(own_cache.rglob("*.json"))) == 1


def test_the_value_of_the_wheel_is_used_for_the_same_digest_only(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "SHIPPED", tmp_path / "shipped")
    (tmp_path / "shipped").mkdir()
    (tmp_path / "shipped" / "a.json").write_text('{"digest": "x", "value": 5}')
    assert remembered("a", "x", lambda: 7, tmp_path) == 5
    assert list(own_cache.rglob("*.json")) == []
    assert [remembered("a", "y", lambda: 7, tmp_path), remembered("a", "x", lambda: 8, tmp_path)] == [7, 5]


def test_folders_do_not_replace_each_other(own_cache: Path, tmp_path: Path) -> None:
    assert [remembered("a", "x", lambda: 1, tmp_path / "f"), remembered("a", "x", lambda: 2, tmp_path / "ff")] == [1, 2]
    assert remembered("a", "x", lambda: 3, tmp_path / "f") == 1
    assert len(list(own_cache.rglob("a-*.json"))) == 2


def test_a_broken_file_is_computed_over(own_cache: Path) -> None:
    for text in ("", "[]", '{"digest": "x"}', '{"digest": "x", "val'):
        (own_cache / "tracelake").mkdir(exist_ok=True)
        (own_cache / "tracelake" / "a.json").write_text(text)
        assert remembered("a", "x", lambda: 7) == 7


def test_a_home_that_cannot_be_written_only_costs_time(own_cache: Path) -> None:
    (own_cache / "tracelake").write_text("a file where the folder would be")
    assert remembered("a", "x", lambda: 7) == 7


def test_a_full_disk_leaves_no_half_files(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert remembered("a", "x", lambda: 7) == 7
    assert list((own_cache / "tracelake").iterdir()) == []


def test_texts_are_told_apart() -> None:
    assert digest_of(["ab", "c"]) != digest_of(["a", "bc"])


def test_two_installations_keep_the_types_of_their_tables_beside_each_other(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for installed in ("one", "other"):
        monkeypatch.setattr(dry_run, "_INSTALLED", installed)
        dry_run._types_of_scope.__wrapped__(Catalog({}, {}), "trace")
    assert len(list(own_cache.rglob("types-of-trace-*.json"))) == 2


def test_types_are_found_again_where_only_what_ingestion_gives_changed() -> None:
    catalog = load_catalog()
    staged = {name: model for name, model in catalog.models.items() if model.staged}
    name, model = next(iter(staged.items()))
    (column, kind), *others = model.staged.items()
    other = replace(model, staged={column: f"{kind}[]", **dict(others)})
    assert dry_run._digest(catalog, [name]) != dry_run._digest(Catalog({name: other}, catalog.inputs), [name])
    table = next(table for table in catalog.inputs.values() if table.columns)
    changed = {**catalog.inputs, table.name: replace(table, columns=table.columns[1:])}
    assert dry_run._digest(catalog, [name]) != dry_run._digest(Catalog(catalog.models, changed), [name])
