"""Human-readable numbers: one spelling of each unit."""

from __future__ import annotations

from itertools import pairwise

from pipelines.base import units


def test_times_have_one_unit_and_its_digits() -> None:
    """A time that is rounded up takes the next unit (no `1,000.0 us`, no `0.00 ms`).

    A longer time never shows as shorter.
    """
    assert [units.time(ns) for ns in (0, 340, 999_949, 999_951, 12_340_000, 999_960_000, 3_120_000_000_000)] == [
        *("0.0 us", "0.3 us", "999.9 us", "1.00 ms", "12.34 ms", "1.00 s", "3,120.00 s"),
    ]
    size = {"us": 1e3, "ms": 1e6, "s": 1e9}
    times = [units.time(1.07**n).replace(",", "").split() for n in range(450)]
    assert all(float(a) * size[u] <= float(b) * size[v] for (a, u), (b, v) in pairwise(times))
    assert all(float(number) < 1000 for number, unit in times if unit != "s")
    assert units.time(-4_560_000) == units.time_us(-4560) == "-4.56 ms"


def test_what_is_known_roughly_has_two_digits() -> None:
    said = {37_004_098: "37 ms", 2_123_133: "2.1 ms", 996_000: "1.0 ms", 131_900: "130 us", 9_960: "10 us", 0: "0.0 us"}
    assert {ns: units.rounded_time(ns) for ns in said} == said


def test_differences_have_a_sign_of_their_own() -> None:
    assert [units.difference(ns) for ns in (0, 1_200_000, -340)] == ["0", "+1.20 ms", "\N{MINUS SIGN}0.3 us"]


def test_sizes_and_counts_are_apart() -> None:
    assert [units.size(n) for n in (512, 1536, 5 << 30)] == ["512 B", "1.50 KiB", "5.00 GiB"]
    assert [units.count(n) for n in (12_345, 2_500_000)] == ["12,345", "2.50 M"]


def test_what_rounds_up_gets_the_next_unit() -> None:
    assert (units.size((1 << 20) - 1), units.size(1 << 20)) == ("1.00 MiB", "1.00 MiB")
    assert (units.count(999_999_999), units.count(999_000_000)) == ("1.00 G", "999.00 M")
    assert units.rounded_time(340) == "0.3 us"


def test_things_are_counted_in_the_singular_and_the_plural() -> None:
    assert [units.counted(n, "file") for n in (0, 1, 2, 1234)] == ["0 files", "1 file", "2 files", "1,234 files"]
