"""Division of files into units: each file is in one unit, no unit is too large, and the largest are first."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.engines.work_units import UNIT_FILES, Group, cut, groups_of, weigh
from tests.effort import examples
from tests.lake.world import write_trace

MIB = 1 << 20
GROUPS = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 700 * MIB)), max_size=80)


def made(sizes: list[tuple[int, int]]) -> list[Group]:
    return [Group(tuple(f"{i}.{j}" for j in range(n)), size) for i, (n, size) in enumerate(sizes)]


@settings(max_examples=examples(100))
@given(GROUPS, st.integers(1, 200), st.integers(1, 50), st.integers(1, 600 * MIB))
def test_every_item_is_in_one_unit_and_no_unit_is_too_large(
    sizes: list[tuple[int, int]], slots: int, max_items: int, max_bytes: int
) -> None:
    groups = made(sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.engines.work_units.UNIT_BYTES", max_bytes)
        units = cut(groups, slots, max_items)
    assert sorted(item for unit in units for item in unit.items) == sorted(i for group in groups for i in group.items)
    for unit in units:
        assert len(unit.groups) == 1 or (len(unit.items) <= max_items and unit.size <= max_bytes)
    assert [unit.size for unit in units] == sorted((unit.size for unit in units), reverse=True)
    assert len({unit.name for unit in units}) == len(units)


@settings(max_examples=examples(100))
@given(GROUPS, st.integers(1, 200))
def test_halves_are_the_unit_again_down_to_single_groups(sizes: list[tuple[int, int]], slots: int) -> None:
    for unit in cut(made(sizes), slots, UNIT_FILES):
        left, single = [unit], []
        while left:
            part = left.pop()
            left += part.halves
            single += [] if part.halves else [part]
        assert sorted(group.items for part in single for group in part.groups) == sorted(g.items for g in unit.groups)
        assert all(len(part.groups) == 1 for part in single)


def test_a_large_trace_beside_a_thousand_small_ones_starts_first() -> None:
    groups = [*made([(1, MIB)] * 500), Group(("large",), 5000 * MIB), *made([(1, MIB)] * 500)]
    units = cut(groups, 4, UNIT_FILES)
    assert units[0].items == ("large",)
    # the large trace does not split the sequence of small traces
    assert {len(unit.items) for unit in units[1:]} == {40}


def test_more_slots_make_smaller_units_but_not_tiny_ones() -> None:
    groups = made([(1, 10 * MIB)] * 100)
    assert [len(cut(groups, slots, UNIT_FILES)) for slots in (1, 4, 1000)] == [4, 13, 34]
    assert len(cut(made([(1, 1000)] * 30), 100, UNIT_FILES)) == 1


def test_packed_files_weigh_what_they_unpack_to_roughly(tmp_path: Path) -> None:
    plain = write_trace(tmp_path / "a.json", 1, n=2000)
    packed = tmp_path / "b.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert weigh(plain) / 2 < weigh(packed) < weigh(plain) * 2
    assert weigh(tmp_path / "absent.json") == 0


def test_files_that_belong_together_are_one_group(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / "dumps").mkdir(exist_ok=True)
        (tmp_path / "dumps" / f"nccl_trace_rank_{rank}.json").write_text(
            '{"version": "2.4", "pg_config": {}, "entries": []}'
        )
    traces = [write_trace(tmp_path / f"rank{rank}.json", rank) for rank in range(2)]
    files = [*traces, *sorted((tmp_path / "dumps").iterdir()), tmp_path / "absent.json"]
    groups = [group.items for group in groups_of(files)]
    assert sorted(len(items) for items in groups) == [1, 1, 1, 3]
    assert sorted(path for items in groups for path in items) == sorted(files)
