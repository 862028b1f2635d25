"""The verdict of a comparison: its sentence, its caveats, and whether the test is slower than allowed."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import pytest

from pipelines.fleet.trends.compared_windows import choose
from pipelines.fleet.trends.comparison import (
    _CAUSES,
    _OF_CAUSES,
    Comparison,
    Difference,
    OnePair,
    Pair,
    Part,
    Short,
    Window,
    _as_long_as_its_path,
    compare_pairs,
    gpu_time_known,
)
from pipelines.fleet.trends.comparison_verdict import changed_most, doubts, judge, named, sentence
from tests.fleet.compare_world import small


def test_the_verdict_by_hand() -> None:
    before, after, host = small().traces
    assert sentence(small().compare(before, after).whole) == (
        "The step takes 100.0 us instead of 124.0 us (\N{MINUS SIGN}19.4 %): mm +13.5 us, add \N{MINUS SIGN}4.0 us, "
        "work launched before +2.0 us; GPU idle \N{MINUS SIGN}35.5 us"
    )
    assert sentence(small().compare(before, before).whole).endswith(
        "(+0.0 %, mean of 2 steps): GPU work unchanged; GPU idle unchanged"
    )
    assert sentence(small().compare(before, after, steps="all").whole) == (
        "The trace takes 72.0 us instead of 150.0 us (\N{MINUS SIGN}52.0 %): mm +13.5 us, "
        "add \N{MINUS SIGN}4.0 us, work launched before +2.0 us; GPU idle \N{MINUS SIGN}89.5 us"
    )
    assert "no GPU work in test" in sentence(small().compare(before, host).whole)
    assert (
        sentence(small().compare(host, host, steps=7).whole)
        == "The step takes 100.0 us, unchanged (+0.0 %): no GPU work; host unchanged"
    )


def test_work_of_before_the_window_and_files_that_are_cut_off() -> None:
    before, after, _ = small().traces
    pairs = choose([before], [after], "first").pairs
    assert doubts(pairs, [before], [after]) == [
        "test: 2.0 us of the GPU work in its window was launched before it, or its launch is not in the trace"
    ]
    cut = replace(before, is_cut=True, file="cut.json")
    late = choose([before], [before], 8).pairs
    assert doubts(late, [cut], [before]) == [
        "control: cut.json is cut off, its last step may be partial",
    ]


def test_changes_of_several_steps_are_means() -> None:
    world = small("means")
    a, b = world.traces
    assert "(+0.0 %, mean of 3 steps): mm +3.3 us;" in sentence(world.compare(a, b).whole)


def test_a_verdict_without_gpu_work() -> None:
    world = small("host")
    a, b = world.traces
    assert sentence(world.compare(a, b).whole) == (
        "The step takes 150.0 us instead of 100.0 us (+50.0 %): no GPU work; host: aten::sort +50.0 us"
    )
    assert judge(world.compare(a, b), 50).is_fine and judge(world.compare(b, a), 0).is_fine
    slower = judge(world.compare(a, b), 49)
    assert slower.is_judged and not slower.is_fine
    assert slower.sentence.startswith("the length of step ") and slower.sentence.endswith(
        "grew most: on the host aten::sort +50.0 us"
    )


def test_ranks_without_gpu_work() -> None:
    # This also applies next to ranks with GPU work.
    world = small("hosts")
    ranked = [replace(trace, rank=n % 2) for n, trace in enumerate(world.traces)]
    comparison = world.compare(ranked[:2], ranked[2:])
    assert [sentence(part).partition(": ")[2] for part in comparison.places] == [
        *("no GPU work; host unchanged", "no GPU work; host: aten::sort +10.0 us"),
    ]


def test_a_cause_is_said_with_the_name_that_has_most_of_it() -> None:
    def row(cat: str | None, name: str, test_ns: int) -> Difference:
        return Difference("gpu", cat, name, None, None, 1, 1, 0, 1000, test_ns, test_ns - 1000, "increased")

    def said(*owners: Difference) -> str:
        part = Part([Pair("", None, *[Window("t", None, 0, 0, 10_000, None, 0)] * 2)])
        part.causes.append(row(None, "host_between_operators", 401_000))
        part.owners.extend(owners)
        return sentence(part).partition("; ")[2]

    of = "host_between_operators"
    assert (
        said(row(of, "tokenize", 391_000), row("data_loading", "load", 900_000))
        == "host +400.0 us (host between operators +400.0 us: tokenize)"
    )
    for several in ((row(of, "a", 201_000), row(of, "b", 201_000)), (row(of, "outside operators, thread 7", 401_000),)):
        assert said(*several) == "host +400.0 us (host between operators +400.0 us)"


def test_without_gpu_work_communication_is_the_hosts() -> None:
    def row(cat: str | None, name: str, test_ns: int) -> Difference:
        return Difference(None, cat, name, None, None, 1, 1, 0, 9000, test_ns, test_ns - 9000, "decreased")

    def said(*work: Difference) -> str:
        part = Part([Pair("", None, *[Window("t", None, 0, 0, 10_000, None, 0)] * 2)])
        part.causes.extend([row(None, "communication", 1000), row(None, "host_operators", 10_000)])
        part.owners.append(row("communication", "gloo:all_reduce", 1000))
        part.categories.extend(work)
        return sentence(part).rpartition("; ")[2]

    minus = "\N{MINUS SIGN}"
    assert said() == (
        f"host {minus}7.0 us (communication exposed {minus}8.0 us: gloo:all_reduce, operators on the host +1.0 us)"
    )
    assert said(row(None, "communication", 1000)) == "host +1.0 us (operators on the host +1.0 us)"


def test_what_is_little_beside_the_window_is_unchanged_only_if_it_is() -> None:
    """A time that is small compared with the window is called unchanged only if it changed little.

    GPU work of 150 us in a window of 100 ms falls to a third, which is not unchanged.
    """

    def said(gpu_ns: int, host_ns: int) -> str:
        part = Part([Pair("", None, *[Window("t", None, 0, 0, 100_000_000, None, 0)] * 2)])
        for rows, cat, name, ns in (
            (part.work, "gemm", "aten::mm", gpu_ns),
            (part.categories, None, "gemm", gpu_ns),
            (part.causes, None, "host_operators", host_ns),
        ):
            rows.append(Difference(None, cat, name, None, None, 1, 1, 0, 150_000, ns, ns - 150_000, "increased"))
        return sentence(part).partition(": ")[2]

    assert said(50_000, 450_000) == "GPU work \N{MINUS SIGN}100.0 us; host +300.0 us"
    assert said(151_000, 149_000) == "GPU work unchanged; host unchanged"


def test_what_a_window_waits_for_that_is_neither_host_nor_its_own_work_is_said() -> None:
    part = Part([Pair("", None, *[Window("t", None, 0, 0, 10_000, None, 0)] * 2)])
    of = {"gpu_computing": 0, "host_operators": 0, "gpu_waiting": 90, "earlier_work": 5000}
    part.causes.extend(
        Difference(None, None, name, None, None, 1, 1, 0, 9000, 9000 + ns, ns, "increased") for name, ns in of.items()
    )
    assert sentence(part).endswith("; host unchanged; earlier work from before the window +5.0 us")


def test_where_one_step_is_slower_the_median_is_said_beside_the_mean() -> None:
    def pair(step: int, test_ns: int) -> Pair:
        return Pair("", None, Window("t", step, 0, 0, 100_000, None, 0), Window("u", step, 0, 0, test_ns, None, 0))

    said = sentence(Part([pair(1, 100_000), pair(2, 400_000), pair(3, 100_000)]))
    assert said.startswith(
        "The step takes 200.0 us instead of 100.0 us (+100.0 %, mean of 3 steps; in the median 0, step 2 +300.0 us)"
    )
    assert "in the median" not in sentence(Part([pair(1, 120_000), pair(2, 120_000), pair(3, 120_000)]))


def test_a_side_without_the_host_is_compared_by_kernels() -> None:
    def row(cat: str | None, name: str, control_ns: int, test_ns: int, device: str = "gpu") -> Difference:
        return Difference(
            device, cat, name, None, None, 1, 1, 0, control_ns, test_ns, test_ns - control_ns, "increased"
        )

    part = Part([Pair("", None, *[Window("t", None, 0, 0, 1_000_000, 0, 0)] * 2)])
    part.rows.append(row("kernel", "my_kernel", 500_000, 600_000))
    part.categories.append(row("other", "other", 500_000, 600_000))
    part.work.extend([row("other", "(launch not in the trace)", 500_000, 0), row("conv", "aten::conv", 0, 600_000)])
    part.host.append(row("cpu_op", "aten::conv", 0, 70_000, "cpu"))
    assert sentence(part).endswith(": my_kernel +100.0 us; no events of the host in control")


def test_a_whole_trace_is_as_long_as_its_path() -> None:
    whole = Window("t", None, 0, 70, 70, 20, 0)
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE {_CAUSES} ({_OF_CAUSES})")
        assert _as_long_as_its_path(con, whole) == whole
        con.execute(
            f"INSERT INTO {_CAUSES} VALUES ('t', NULL, 'end', 'a', 1, 90), ('t', NULL, 'end', 'b', 1, 10), ('t', 3, 'end', 'b', 1, 5)"
        )
        longer = _as_long_as_its_path(con, whole)
        assert (longer.duration_ns, longer.idle_ns) == (100, 50)
        assert _as_long_as_its_path(con, replace(whole, idle_ns=None)).idle_ns is None


def test_every_step_is_judged() -> None:
    world = small("judged")
    base, one_slow, all_slow, host = world.traces
    fine = judge(world.compare(base, one_slow), 6)
    assert (fine.is_judged, fine.is_fine) == (True, True)
    assert "GPU time of step 3 went from 50.0 us to 53.0 us, +6.0 %, the worst of 4; the mean +1.5 %" in fine.sentence
    broken = judge(world.compare(base, one_slow), 5.9)
    assert not broken.is_fine
    assert broken.sentence.endswith("the mean +1.5 %, more than 5.9 %; grew most: aten::mm +3.0 us")
    assert judge(world.compare(base, one_slow, steps=2), 0).is_fine
    assert not judge(world.compare(base, all_slow), 3.9).is_fine and judge(world.compare(base, all_slow), 4).is_fine
    # GPU work is the same. The step is longer because of the host.
    longer = judge(world.compare(base, host), 30)
    assert "the length of step 2 went from 100.0 us to 140.0 us, +40.0 %" in longer.sentence
    assert longer.sentence.endswith("grew most: on the host enumerate(DataLoader) +40.0 us")
    caused = [
        replace(step_pair, causes=Short(100, 140, None, 0, "data_loading", 40_000))
        for step_pair in world.compare(base, host).pairs
    ]
    said = judge(replace(world.compare(base, host), pairs=caused), 30).sentence
    assert said.endswith("grew most: data loading +40.0 us; on the host enumerate(DataLoader) +40.0 us")
    # If GPU work grows in a step that became shorter, nothing became slower. A step that is 1 % shorter counts as
    # unchanged.
    for shorter, is_fine in ((98_999, True), (99_000, False)):
        comparison = world.compare(base, all_slow)
        test = [
            replace(step_pair, pair=replace(step_pair.pair, test=replace(step_pair.pair.test, duration_ns=shorter)))
            for step_pair in comparison.pairs
        ]
        assert judge(replace(comparison, pairs=test), 3.9).is_fine == is_fine
    # A step that may be warm-up on one side is only judged in the mean.
    comparison = world.compare(base, one_slow)
    *others, slow = comparison.pairs
    unsure = replace(slow, pair=replace(slow.pair, test=replace(slow.pair.test, warm_up_times=2.5)))
    assert "the worst of 3; the mean +1.5 %" in judge(replace(comparison, pairs=[*others, unsure]), 5.9).sentence
    assert judge(replace(comparison, pairs=[*others, unsure]), 1.5).is_fine
    assert not judge(replace(comparison, pairs=[*others, unsure]), 1.49).is_fine
    assert not judge(replace(comparison, pairs=[unsure]), 5.9).is_fine  # there is no other step
    # The length of a whole trace depends on how long it was recorded.
    whole = judge(world.compare(base, host, steps="all"), 0)
    assert whole.is_fine
    assert whole.sentence.endswith("; at most 0 % allowed; the length is not judged, because these are whole traces")
    assert "not judged" not in judge(world.compare(base, base), 0).sentence
    of_step = choose([base], [base], ("all", 2)).pairs
    assert judge(compare_pairs(world.con, of_step, "operator"), 0).sentence.endswith(
        "because the control is a whole trace"
    )
    before, _, on_host = small().traces
    for test, steps in ((on_host, "all"), (before, 7)):
        nothing = judge(small().compare(on_host, test, steps=steps), 5)
        assert not nothing.is_judged and "has none" in nothing.sentence


def stepped(
    numbers: tuple[int | None, int | None] = (0, 0),
    lengths: tuple[int, int] = (100_000, 100_000),
    gpu: tuple[int, int] = (50_000, 50_000),
    host: str = "",
    warm_up_times: float | None = None,
) -> OnePair:
    """Return a step of both sides. The time of the host's event `host` grew as much as the step did."""
    control, test = (Window("t", step, 0, 0, ns, 0, 0) for step, ns in zip(numbers, lengths, strict=True))
    pair = Pair("", None, control, replace(test, warm_up_times=warm_up_times))
    work = Short(*gpu, None, 0, "kernel", gpu[1] - gpu[0])
    return OnePair(pair, work, Short(*lengths, None, 0, host, lengths[1] - lengths[0]), Short())


def compared(*pairs: OnePair) -> Comparison:
    return Comparison("operator", Part([step_pair.pair for step_pair in pairs]), [], [*pairs])


def test_gpu_time_that_grows_by_little_of_its_step_is_judged_in_the_mean() -> None:
    """Growth of GPU time by at most 1 % of its step is judged only in the mean over steps.

    A step that gets a microsecond of GPU work, and had none, has not grown infinitely.
    """
    usual = [stepped((step, step)) for step in range(1, 6)]
    for test_ns, is_fine in ((1_000, True), (1_001, False)):  # 1 % of the step
        idle = stepped(gpu=(0, test_ns))
        assert judge(compared(idle, *usual), 1000).is_fine == is_fine, test_ns
    # It counts in the mean, and if there is only one step.
    little = [stepped((step, step), gpu=(1_000, 1_900)) for step in range(5)]
    for pairs in (little, little[:1]):
        assert not judge(compared(*pairs), 89).is_fine and judge(compared(*pairs), 90).is_fine


def test_what_grew_most_is_blamed_if_only_the_mean_is_too_long() -> None:
    """If only the mean is too long, the sentence names the event that grew most.

    A step that may be warm-up only counts in the mean, and makes the mean longer.
    """
    slow = stepped((0, 0), (100_000, 300_000), host="load", warm_up_times=3)
    same = [stepped((step, step), host="forward") for step in range(1, 6)]
    assert judge(compared(slow, *same), 5).sentence.endswith(
        "the worst of 5; the mean +33.3 %, more than 5 %; grew most: on the host load +200.0 us in step 0"
    )
    longer = stepped((6, 6), (100_000, 150_000), host="save")
    assert judge(compared(slow, *same, longer), 5).sentence.endswith(
        "the length of step 6 went from 100.0 us to 150.0 us, +50.0 %, the worst of 6; the mean +35.7 %, more than 5 %"
        "; grew most: on the host save +50.0 us"
    )


def test_windows_of_a_pair_are_named() -> None:
    names = {
        (None, None): "",
        (7, 7): "step 7",
        (7, 3): "step 7 of control, 3 of test",
        (7, None): "step 7 of control, the whole trace of test",
        (None, 3): "the whole trace of control, step 3 of test",
    }
    assert {numbers: named(stepped(numbers).pair) for numbers in names} == names
    assert (
        named(replace(stepped((7, None)).pair, where="rank 1")) == "step 7 of control, the whole trace of test, rank 1"
    )
    assert named(replace(stepped((None, None)).pair, where="rank 1")) == "rank 1"


def test_a_trace_without_gpu_work_has_not_become_faster() -> None:
    """A trace without GPU work is not judged, because it did not record any.

    A step without GPU work in a trace with GPU work did become faster.
    """
    before, _, on_host = small().traces
    for steps in ("all", 7):
        unmeasured = judge(small().compare(before, on_host, steps=steps), 5)
        assert (unmeasured.is_judged, unmeasured.is_fine) == (False, False)
        assert unmeasured.sentence == "--fail-on compares GPU time, and the test has none in its whole trace"
    (window,) = [pair.control for pair in choose([before], [before], 7).pairs]
    idle = Window("t", 7, 0, 0, window.duration_ns, window.duration_ns, 0)
    becomes_idle = OnePair(Pair("rank 0", 0, window, idle), Short(50_000), Short(), Short())
    comparison = small().compare(before, before)
    assert judge(replace(comparison, pairs=[becomes_idle]), 5).is_fine
    unmeasured_rank = replace(becomes_idle, pair=Pair("rank 1", 1, window, replace(idle, idle_ns=None)))
    assert judge(replace(comparison, pairs=[becomes_idle, unmeasured_rank]), 5).sentence.endswith(
        "whole trace (rank 1)"
    )


@pytest.mark.parametrize(
    ("idle", "expected"),
    [
        ([(1, 1)], (True, True)),
        ([(0, None)], (True, False)),  # 0 is measured
        ([(None, 0)], (False, True)),
        ([(None, None)], (False, False)),
        ([(1, 1), (None, None)], (True, True)),  # a rank of the CPU alone
        ([(1, 1), (1, None)], (True, False)),
        ([(1, None), (None, 1)], (False, False)),
    ],
)
def test_gpu_time_is_known_where_it_was_recorded(
    idle: list[tuple[int | None, int | None]], expected: tuple[bool, bool]
) -> None:
    assert (
        gpu_time_known([Pair("", n, *(Window("t", 7, 0, 9, 9, ns, 0) for ns in both)) for n, both in enumerate(idle)])
        == expected
    )


def test_what_changed_most_of_gpu_time_is_no_cause() -> None:
    part = Part([Pair("", None, *[Window("t", None, 0, 0, 10_000, None, 0)] * 2)] * 2)
    assert changed_most(part) == ""
    of_host = Difference(None, None, "host_operators", None, None, 1, 1, 0, 0, 6000, 6000, "increased")
    of_gpu = Difference("gpu", None, "compute", None, None, 1, 1, 0, 0, 200, 200, "increased")
    part.rows.append(of_host)
    assert changed_most(part) == ""
    part.categories.append(of_gpu)
    assert changed_most(part) == "+0.1 us compute"
    part.rows[:] = [replace(of_gpu, name="gemm", diff_ns=400)]
    assert changed_most(part) == "+0.2 us gemm"
