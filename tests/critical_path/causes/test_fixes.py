"""Each kind of fix, on a trace that needs it and on a trace that does not.

The tests also cover both sides of the thresholds, and traces with missing data.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pytest

from pipelines.base import datafiles
from pipelines.base.datafiles import rule_rows
from pipelines.critical_path.causes import window_causes
from pipelines.critical_path.causes.fix_candidates import Candidate
from pipelines.critical_path.causes.fixes import judged, options
from pipelines.critical_path.causes.removed import Removed
from pipelines.critical_path.graph.windows import WindowRequest, request_windows
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.models import statements
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.conftest import SHARED
from tests.critical_path.test_covers import frame
from tests.effort import first_of
from tests.harness import call, connect_all, launched, op, x
from tests.pages import DOCS

from .commands import TRACE, asked
from .fix_traces import (
    FLOAT32,
    HAS_AND_LACKS,
    annotation,
    copies,
    copying,
    optimizer,
    optimizer_step,
    products,
    synchronized_steps,
)

Trace = list[dict[str, Any]] | dict[str, Any] | Path
Saved = dict[tuple[str, str], int]
"""Savings of a trace's fixes in ns, by kind and name."""


class Retimed(NamedTuple):
    """The columns of a fix other than its kind and name."""

    saves_ns: int
    saves_percent: float
    options: str
    same_stretch_as: str | None
    caveat: str | None


Fixes = dict[tuple[str, str], Retimed]
"""The fixes of a window, by kind and name."""
MORE = pytest.mark.slow(together="more traces of fixes")
"""Mark of tests on traces that only slow tests use."""


def fixes_in(con: duckdb.DuckDBPyConnection, windows: Collection[WindowRequest]) -> list[Fixes]:
    """Return the fixes of each of these windows; no other window is requested."""
    fixes: dict[tuple[str, str], Fixes] = {(window.trace_id, window.window_id): {} for window in windows}
    with con:
        request_windows(con, list(windows))
        run_models(con, load_catalog(), ["fixes"])
        for *window, fix, name, saves_ns, percent, options, same, caveat in con.execute(
            "SELECT trace_id, window_id, fix, name, saves_ns, saves_percent, options, same_stretch_as, caveat FROM fixes"
        ).fetchall():
            fixes[*window][fix, name] = Retimed(saves_ns, percent, options, same, caveat)
    return list(fixes.values())


def kinds(saved: Saved) -> set[str]:
    return {fix for fix, _ in saved}


def test_each_kind_has_a_trace() -> None:
    """The fix for captures, even_ranks, has a trace in tests/fleet/path/test_capture_fixes.py."""
    assert {row["fix"] for row in rule_rows("fix_kinds")} == {*HAS_AND_LACKS, "even_ranks"}


def test_the_page_has_each_kind_as_it_is_retimed_and_what_limits_it() -> None:
    page = (DOCS / "why.md").read_text(encoding="utf-8")
    for row in rule_rows("fix_kinds"):
        (line,) = [line for line in page.splitlines() if line.startswith(f"| `{row['fix']}` |")]
        limits = f"at most: {row['caveat']}" if row["is_bound"] == "true" else row["caveat"]
        assert line.endswith(f"| `{row['scenario']}` | {limits} |")


def test_each_kind_is_retimed_as_its_row_says(all_fixes: dict[str, Fixes]) -> None:
    scenarios = {row["fix"]: row["scenario"] for row in rule_rows("fix_kinds")}
    for kind in HAS_AND_LACKS:
        form = re.escape(scenarios[kind]).replace("NAME", ".+").replace("FACTOR", r"[0-9.]+")
        options = [retimed.options for (fix, _), retimed in all_fixes[f"{kind} has"].items() if fix == kind]
        assert options and all(re.fullmatch(form, words.replace("'", "")) for words in options), (kind, options)


@pytest.mark.slow  # 8 s; test_recording_cost.py checks that the threshold is read
def test_of_a_graph_with_too_many_edges_no_fix_is_judged_and_a_caveat_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    con, (trace_id,) = connect_all([synchronized_steps(530)])
    with con:
        run_models(con, load_catalog(), ["critical_path_edges"])
        ((n_edges,),) = con.execute("SELECT count(*) FROM critical_path_edges").fetchall()
    for most, is_judged in ((n_edges, True), (n_edges - 1, False)):
        monkeypatch.setattr(window_causes, "MOST_EDGES", most)
        known = {**datafiles.thresholds(), "retimed_edges": str(most)}
        monkeypatch.setattr(statements, "thresholds", lambda known=known: known)
        con, (trace_id,) = connect_all([synchronized_steps(530)])
        with con:
            run_models(con, load_catalog.__wrapped__(), ["fixes", "critical_path_caveats"])
            ((n_fixes,),) = con.execute(f"SELECT count(*) FROM fixes WHERE trace_id = '{trace_id}'").fetchall()
            caveats = con.execute("SELECT detail FROM critical_path_caveats WHERE caveat = 'not_retimed'").fetchall()
        assert (n_fixes > 0, len(caveats) == 0) == (is_judged, is_judged)
        assert is_judged or caveats[0][0].startswith(f"the graph has {n_edges} edges, more than {most}: ")


FEW = 4
"""Number of kinds of fixes, the first of HAS_AND_LACKS, for which the trace without the fix is not slow."""


@pytest.mark.parametrize("fix", first_of(HAS_AND_LACKS, FEW))
def test_a_trace_that_needs_a_fix_has_it_and_another_does_not(
    fix: str, hand_made: dict[str, Saved], request: pytest.FixtureRequest
) -> None:
    assert fix in kinds(hand_made[f"{fix} has"])
    others = hand_made if f"{fix} lacks" in hand_made else request.getfixturevalue("more_made")
    assert fix not in kinds(others[f"{fix} lacks"])


ADAM, MUON = "Optimizer.step#Adam.step", "Optimizer.step#Muon.step"

# The fix, its target, and its saving in us. A second kernel cannot begin before 30 us, 18 us after its launch.
COUNTED = {
    "load_ahead": ("enumerate(DataLoader)#_SingleProcess", 400),
    "copy_ahead": ("Memcpy HtoD (Pageable -> Device)", 391),
    # The step ends at 1050. With the fix, 19 operators of 10 us follow the time 50. The last call comes 4 us later, and
    # its kernel 10 us after that. It still takes 2 us, so the end is at 256.
    "fused_optimizer": (ADAM, 794),
    "no_empty_cache": ("", 300),
    "no_gc": ("", 300),
    "asynchronous_checkpoint": ("", 300),
    "compile_once": ("", 300),
    "overlap_communication": ("", 391),
    "move_host_work": ("prepare", 441),
    "lower_precision": (FLOAT32, 800 * (1 - 0.1352)),
    "pin_memory": ("Memcpy HtoD (Pageable -> Device)", 400 * (1 - 0.1)),  # 2.56 MB at 64 GB/s: 40 us
}


@pytest.mark.parametrize("fix", COUNTED)
def test_a_fix_saves_what_one_can_count(fix: str, hand_made: dict[str, Saved]) -> None:
    name, saves_us = COUNTED[fix]
    assert hand_made[f"{fix} has"][fix, name] == pytest.approx(1000 * saves_us, abs=1)


def test_a_fused_optimizer_keeps_the_gpu_time_of_the_kernel_with_the_most_time(hand_made: dict[str, Saved]) -> None:
    """The kernel with the most time takes 4000 of the 5000 us of GPU time. A fifth of the launches remain."""
    saved = hand_made["optimizer on the GPU"]["fused_optimizer", ADAM]
    assert saved == pytest.approx(1_000_000, abs=100_000)
    assert "fused_optimizer" not in kinds(hand_made["optimizer of one kernel"])


@pytest.mark.parametrize(
    ("moves", "saves_us", "launches"), [("gathers", 700, 4 + 7), ("copies", 700, 4 + 7), ("computes", 2100, 4)]
)
def test_collectives_and_copies_in_an_optimizer_stay(
    moves: str, saves_us: int, launches: int, all_fixes: dict[str, Fixes]
) -> None:
    """A fused optimizer keeps its collectives and copies, and the other kernel with the most GPU time.

    The kernels take 7 times 200, 100 and 400 us. The third kernel is a collective, a copy, or computes. Only if it
    computes, fusing also removes the first kernel.
    """
    fix = all_fixes[f"optimizer that {moves}"]["fused_optimizer", ADAM]
    assert fix.saves_ns == pytest.approx(1000 * saves_us, abs=100_000)
    assert fix.options.startswith(f"--scale 'cause:optimizer:{ADAM}={round(launches / 21, 4)}' ")


def test_each_optimizer_is_fused_by_itself(hand_made: dict[str, Saved], all_fixes: dict[str, Fixes]) -> None:
    """Fusing saves a fifth of Adam's 5000 us of GPU time and a quarter of Muon's 2000 us.

    An optimizer annotation that launches nothing, such as zero_grad, gets no such fix.
    """
    saved = hand_made["two optimizers"]
    assert saved["fused_optimizer", ADAM] == pytest.approx(1_000_000, abs=100_000)
    assert saved["fused_optimizer", MUON] == pytest.approx(500_000, abs=100_000)
    fused = {name: row.options for (fix, name), row in all_fixes["zeroes longer"].items() if fix == "fused_optimizer"}
    assert fused == {ADAM: f"--scale 'cause:optimizer:{ADAM}=0.2' --scale 'gpu:{ADAM}=5'"}


def test_an_optimizer_whose_kernels_have_no_length_is_fused_on_the_host_alone(all_fixes: dict[str, Fixes]) -> None:
    fix = all_fixes["optimizer without times"]["fused_optimizer", ADAM]
    assert fix.options == f"--scale 'cause:optimizer:{ADAM}=0.2'" and fix.saves_ns > 0


def test_a_factor_has_no_point_without_digits() -> None:
    scenario = Scenario((("a", 4.0), ("b", 0.25), ("c", 0.0)))
    assert options(scenario) == "--scale a=4 --scale b=0.25 --remove c"


PAGEABLE = "Memcpy HtoD (Pageable -> Device)"
NOT_PINNED: dict[str, Trace] = {
    "copies without bytes": copies(PAGEABLE, None),
    "copies as fast as the bus": copies(PAGEABLE, 25_600_000),
    "copies over an unknown bus": copies(PAGEABLE, 2_560_000) | {"deviceProperties": []},
}


@MORE
@pytest.mark.parametrize("name", NOT_PINNED)
def test_without_bytes_or_a_known_bus_or_as_fast_as_it_no_copy_gets_faster_by_pinning(
    name: str, more_made: dict[str, Saved]
) -> None:
    assert "pin_memory" not in kinds(more_made[name])


@MORE
def test_copies_of_hardly_a_byte_get_faster_and_do_not_go(more_fixes: dict[str, Fixes]) -> None:
    """Tiny copies are scaled rather than removed, because removing them would also remove the waits for them."""
    options = [retimed.options for (fix, _), retimed in more_fixes["copies of a byte"].items() if fix == "pin_memory"]
    assert options == ["--scale 'kernel:Memcpy HtoD (Pageable -> Device)=0.0001'"]


def test_waits_are_named_after_the_outermost_operator(hand_made: dict[str, Saved]) -> None:
    names = {name for fix, name in hand_made["do_not_wait has"] if fix == "do_not_wait"}
    assert names == {"aten::item"}


def collected(takes: float) -> list[dict[str, Any]]:
    """Return a window of 1000 us in which the garbage collector takes `takes` us."""
    return [op("a", 0, 100), annotation("gc.collect", 100, takes), op("b", 100 + takes, 900 - takes)]


def waiting_twice(second: float) -> list[dict[str, Any]]:
    """Return two calls that wait for a kernel each, of 500 us and of `second` us; short host work follows each."""
    events: list[dict[str, Any]] = []
    for number, (at, takes, name) in enumerate(((0, 500, "aten::item"), (600, second, "aten::nonzero"))):
        events += [op("aten::mm", at, 10), *launched(at + 2, (at + 20, takes), 10 * number + 1)]
        events += [op(name, at + 10, takes + 22), call("cudaStreamSynchronize", at + 14, takes + 16, 10 * number + 2)]
        events += [annotation("log", at + takes + 40, 40)]
    return events


def pausing_for(us: float) -> list[dict[str, Any]]:
    """Return operators with short kernels and gaps of `us` between them."""
    events = []
    for i in range(4):
        at = i * (100 + us)
        events += [op("aten::mul", at, 100), *launched(at + 10, (at + 30, 2), i + 1)]
    return events


def launching(us: float) -> list[dict[str, Any]]:
    """Return a function of 400 us that launches `us` of GPU work, and 900 us of GPU work launched outside of it."""
    inside = [op("aten::to", 390, 10), *launched(392, (410, us), 1, "cast")]
    return [annotation("prepare", 0, 400), *inside, op("aten::mm", 400, 10), *launched(402, (411 + us, 900), 2)]


def inside_another(us: float, takes: float, another: float) -> list[dict[str, Any]]:
    """Return a function that takes `takes` us, of which `us` are inside of another function of `another` us."""
    end = 10 + another
    return [
        *(op("a", 0, 10), annotation("outer", 10, another), annotation("inner", 15, us), op("b", end, 10)),
        *(annotation("inner", end + 20, takes - us), op("c", end + 140, 10), *launched(end + 142, (end + 160, 10), 1)),
    ]


# threshold's name[/use]: the fix, a trace that needs it, and a trace that does not
SIDES = {
    "fix_percent": ("no_gc", collected(10), collected(9.999)),
    "fused_launches": ("fused_optimizer", optimizer(5), optimizer(4)),
    "host_work_percent": ("move_host_work", launching(100), launching(100.001)),
    "nested_percent/of the outer": ("outer", inside_another(89.999, 99, 100), inside_another(90, 99, 100)),
    "nested_percent/of the inner": ("inner", inside_another(89.999, 100, 99), inside_another(90, 100, 99)),
    "eager_gap_ns": ("graph_or_compile", pausing_for(200), pausing_for(200.001)),
}
BOTH = {"same_stretch_percent": (1120, 1121)}
"""Combined saving of two changes that save 1000 and 600 alone. Of the smaller saving, 480 (four fifths) or 479 cannot
be saved twice.
"""
BOUNDARIES = (SIDES, BOTH)
IS_A_GAP = 500_000
"""Less than the saving that three gaps of 200 us add to the graph's. GPU work becomes the bound before the last gap has
disappeared.
"""


def freeing(name: str) -> list[dict[str, Any]]:
    """Return a call that returns 100 us after the kernel before it has ended.

    Another kernel follows after 400 us of host work.
    """
    first = [op("aten::mm", 0, 10), *launched(2, (20, 500), 1)]
    return [
        *first,
        call(name, 20, 600, 2),
        annotation("log", 630, 400),
        op("aten::mm", 1040, 10),
        *launched(1042, (1060, 50), 3),
    ]


def waiting_behind() -> list[dict[str, Any]]:
    """Return two operators and a call that waits, each of which begins when the one before it ends."""
    first = [op("aten::t", 0, 4), op("aten::mm", 4, 16), *launched(6, (30, 500), 1)]
    later = [annotation("log", 560, 400), op("aten::mm", 970, 10), *launched(972, (990, 50), 3)]
    return [*first, call("cudaDeviceSynchronize", 20, 515, 2), *later]


ON_ANOTHER_STREAM = [op("aten::bmm", 20, 10), *launched(22, (40, 300), 3, stream=20)]
"""A matrix product on another stream than that of a copy or a product."""
COLLECTED = [op("aten::mm", 0, 10), *launched(2, (20, 300), 1), *ON_ANOTHER_STREAM]
COLLECTED += [annotation("gc.collect", 40, 2000), op("aten::mm", 2040, 10), *launched(2042, (2060, 50), 2)]

WAITS_IN = "train.py(55): step"


def waiting_beside(second: float) -> list[dict[str, Any]]:
    """Return two waits of calls with the same name, one inside an operator and one outside.

    The second call waits for a kernel of `second` us.
    """
    return [event for event in waiting_twice(second) if event["name"] != "aten::nonzero"]


LIBRARIES = [frame("threading.py(1): run", -30, 1100), frame("torch/cuda/__init__.py(9): synchronize", 20, 520)]
FUNCTIONS = [LIBRARIES[0], frame("train.py(7): main", -20, 1080), frame(WAITS_IN, -10, 900), LIBRARIES[1]]
FUNCTIONS += [frame("train.py(90): log", 560, 300)]

CUT = [x("user_annotation", f"ProfilerStep#{n}", 1000 * n, 1000) for n in (1, 2)]
CUT += [op("aten::mm", 1000, 10), *launched(1002, (1020, 1500), 1)]
CUT += [op("aten::item", 2010, 600), call("cudaStreamSynchronize", 2012, 590, 2)]
CUT += [annotation("gc.collect", 2620, 300), op("aten::mm", 2930, 10), *launched(2932, (2950, 20), 3)]
"""Two steps, of which the second waits for GPU work of the first."""

HOST_ONLY = [op("aten::mm", 0, 100), annotation("prepare", 100, 800), op("aten::mm", 900, 100)]
HOST_ONLY += [annotation("Optimizer.step#SGD.step", 1000, 300), op("aten::add_", 1010, 280)]
HOST_ONLY += [annotation("train", 1300, 300), op("aten::mm", 1400, 200)]
GPU_ONLY = [event for event in synchronized_steps(530) if event["cat"] in ("kernel", "gpu_memcpy")]
APART = [*collected(100)[:2], op("b", 200, 10), annotation("prepare", 210, 500), op("c", 710, 10)]
APART += launched(712, (730, 10), 1)
SB = "Cijk_Ailk_Bljk_SB_MT128x64x16_MI16x16x4x1_SN"
S_B = "Cijk_Alik_Bljk_S_B_Bias_HA_S_SAV_UserArgs_MT16x16x64_MI16x16x1_SN"
V100, MI210, MI300X = (
    {"id": 0, "name": name, "numSms": units}
    for name, units in (("Tesla V100-SXM2-16GB", 80), ("AMD Instinct MI210", 104), ("AMD Instinct MI300X", 304))
)
# A matrix product, its device, and the peak rate of its type relative to the faster type. None if a rate is unknown.
PRECISIONS: dict[str, tuple[str, dict[str, Any] | None, float | None]] = {
    "no TF32 nor bfloat16": ("volta_sgemm_128x64_nn", V100, 15.7 / 125),
    "no TF32": (SB, MI210, 45.3 / 181),
    "Tensile": (SB, MI300X, 163.4 / 653.7),
    "Tensile without an instruction": ("Cijk_Ailk_Bljk_SB_MT128x64x8_SN", MI300X, 163.4 / 653.7),
    "hipBLASLt": (S_B, MI300X, 163.4 / 653.7),
    "hipBLASLt with TF32": (S_B.replace("S_B", "S_MX_B"), MI300X, None),
    "bfloat16": (S_B.replace("S_B", "BBS_BH"), MI300X, None),
    "another device": (SB, MI210 | {"name": "AMD Radeon Graphics"}, None),
    "no device": (SB, None, None),
}
OTHERS: dict[str, Trace] = NOT_PINNED | {
    **{name: products(kernel, device) for name, (kernel, device, _) in PRECISIONS.items()},
    "copies of a byte": copies(PAGEABLE, 1),
    "optimizer on the GPU": optimizer(20, (("add", 400), ("mul", 100))),
    "optimizer of one kernel": optimizer(20, (("fused", 400),)),
    "optimizer that gathers": optimizer(21, (("add", 200), ("mul", 100), ("ncclDevKernel_AllGather_RING_LL", 400))),
    "optimizer that copies": optimizer(21, (("add", 200), ("mul", 100), ("Memcpy DtoD (Device -> Device)", 400))),
    "optimizer that computes": optimizer(21, (("add", 200), ("mul", 100), ("gather", 400))),
    "two optimizers": [
        *optimizer(20, (("add", 400), ("mul", 100))),
        *optimizer_step(1100, 20, (("newton", 150), ("mul", 50)), "Muon", free=5200),
    ],
    "zeroes longer": [
        *(op("aten::mm", 0, 10), *launched(2, (20, 30), 1), annotation("Optimizer.zero_grad#Adam.zero_grad", 50, 3000)),
        *optimizer_step(3100, 20, (("add", 2),)),
    ],
    "optimizer without times": optimizer(20, (("add", 0),)),
    "apart": APART,
    "waits twice": waiting_twice(400),
    "waits at the end": waiting_twice(1000)[:-1],
    "waits in operators and beside": waiting_beside(400),
    "waits in a function and its operators": [frame(WAITS_IN, -10, 1200), *waiting_beside(400)],
    "waits in a function, mostly in an operator": [frame(WAITS_IN, -10, 1200), *waiting_beside(20)],
    "frees": freeing("cudaFree"),
    "loads longer": [annotation("dataloader", 0, 1400), op("aten::mm", 1400, 10), *launched(1402, (1420, 800), 1)],
    "waits behind an operator": waiting_behind(),
    "waits in a function": [*FUNCTIONS, *waiting_behind()],
    "waits in functions of libraries": [*LIBRARIES, *waiting_behind()],
    "copies with overlap": [*copying(PAGEABLE), *ON_ANOTHER_STREAM],
    "collection with overlap": COLLECTED,
    "cut": CUT,
    "host only": HOST_ONLY,
    "gpu only": GPU_ONLY,
}
REAL = {
    "AMD": SHARED / "traces/single/mi250_minitoy.json.gz",
    "Nsight": SHARED / "traces/nsys/healthy_1pct.sqlite",
    "XPlane": SHARED / "traces/xplane/jax_conv_mi300_08.xplane.pb",
}
QUICK = {
    *(f"{fix} has" for fix in HAS_AND_LACKS),
    *(f"{fix} lacks" for fix in [*HAS_AND_LACKS][:FEW]),
    *("apart", "waits twice", "waits at the end", "waits behind an operator", "host only", "gpu only"),
    *PRECISIONS,
    *("cut", "Nsight"),
    *("copies with overlap", "collection with overlap", "waits in a function", "waits in functions of libraries"),
    *("optimizer on the GPU", "optimizer of one kernel", "two optimizers", "zeroes longer", "optimizer without times"),
    *(f"optimizer that {moves}" for moves in ("gathers", "copies", "computes")),
    *("waits in operators and beside", "waits in a function and its operators"),
    "waits in a function, mostly in an operator",
}
"""Names of the traces of tests that are not slow."""


def all_traces() -> dict[str, Trace]:
    """Return the traces of all tests by name: OTHERS, the traces of REAL that exist, and both traces of each pair.

    HAS_AND_LACKS and SIDES contain the pairs, which are named `NAME has` and `NAME lacks`.
    """
    pairs = HAS_AND_LACKS | {name: pair for name, (_, *pair) in SIDES.items()}
    traces = {
        f"{name} {side}": trace
        for name, pair in pairs.items()
        for side, trace in zip(("has", "lacks"), pair, strict=True)
    }
    return traces | OTHERS | {name: path for name, path in REAL.items() if path.is_file()}


def fixes_of(names: Collection[str], in_hta: str = "") -> dict[str, Fixes]:
    """Return the fixes of the traces with these names; the models run once.

    If `in_hta` names one of the traces, the key HTA has its fixes in the profile `hta`.
    """
    traces = {name: trace for name, trace in all_traces().items() if name in names}
    con, trace_ids = connect_all(traces.values())
    windows = {name: WindowRequest(trace_id) for name, trace_id in zip(traces, trace_ids, strict=True)}
    if "cut" in windows:
        windows["cut"] = replace(windows["cut"], window_id="ProfilerStep#2", annotation="ProfilerStep#2")
    if in_hta:
        windows["HTA"] = replace(windows[in_hta], window_id="hta", profile="hta")
    return dict(zip(windows, fixes_in(con, windows.values()), strict=True))


def saved_by(of: dict[str, Fixes]) -> dict[str, Saved]:
    return {name: {fix: retimed.saves_ns for fix, retimed in fixes.items()} for name, fixes in of.items()}


@pytest.fixture(scope="module")
def all_fixes() -> dict[str, Fixes]:
    """Return the fixes of the traces in QUICK."""
    return fixes_of(QUICK)


@pytest.fixture(scope="module")
def hand_made(all_fixes: dict[str, Fixes]) -> dict[str, Saved]:
    return saved_by(all_fixes)


@pytest.fixture(scope="module")
def more_fixes() -> dict[str, Fixes]:
    """Return the fixes of the traces outside QUICK."""
    return fixes_of({*all_traces()} - QUICK, in_hta="copies of a byte")


@pytest.fixture(scope="module")
def more_made(more_fixes: dict[str, Fixes]) -> dict[str, Saved]:
    return saved_by(more_fixes)


@MORE
@pytest.mark.parametrize("name", SIDES)
def test_thresholds_on_both_sides(name: str, more_made: dict[str, Saved]) -> None:
    fix, has, lacks = SIDES[name][0], more_made[f"{name} has"], more_made[f"{name} lacks"]
    if name == "eager_gap_ns":
        assert has[fix, ""] - lacks[fix, ""] > IS_A_GAP
    else:
        assert any(fix in key for key in has) and not any(fix in key for key in lacks)


def same_stretches(fixes: Fixes) -> dict[tuple[str, str], str | None]:
    return {fix: retimed.same_stretch_as for fix, retimed in fixes.items()}


def test_host_and_gpu_take_turns_until_the_host_no_longer_waits(all_fixes: dict[str, Fixes]) -> None:
    """The host logs while the GPU is idle. Without the wait or without the log, host and GPU work at the same time."""
    same = same_stretches(all_fixes["do_not_wait has"])
    waits = ("do_not_wait", "aten::item")
    assert same[waits] == "host between operators"
    assert (
        same["move_host_work", "log"] == "do not wait for the GPU in aten::item: read its result later, or not at all"
    )


def test_apart_from_each_other_both_can_be_saved(all_fixes: dict[str, Fixes]) -> None:
    assert same_stretches(all_fixes["apart"]) == {("no_gc", ""): None, ("move_host_work", "prepare"): None}


def waits_of(times: dict[int, int]) -> Removed:
    """Return a change that removes only waits; `times` is the wait time by number of the call."""
    nothing = np.zeros(0, dtype=np.int64)
    return Removed(nothing, nothing, np.array([*times], dtype=np.int64), np.array([*times.values()], dtype=np.int64))


def of_savings(
    *saved: int, both: int | dict[tuple[str, ...], int], cause: int = 0
) -> list[tuple[int | None, str | None]]:
    """Judge fixes with these savings in a window of 10,000, and return same_place and same_cause of each.

    Two fixes together save `both`, and the host's cause alone saves `cause`.
    """
    tried = [Candidate(f"fix {i}", "", Scenario(((str(i), 0.0),))) for i in range(len(saved))]
    if cause:
        tried = [replace(candidate, fix="do_not_wait") for candidate in tried]

    def saves(scenario: Scenario) -> int:
        targets = [target for target, _ in scenario.scale]
        if len(targets) > 1:
            return both if isinstance(both, int) else both[tuple(targets)]
        return cause if targets[0] == "cause:host_operators" else saved[int(targets[0])]

    # Each fix removes the wait of a different call.
    fixes = judged(
        *(tried, saves, lambda scenario: waits_of({hash(scenario): 1}), lambda _: None, 10_000),
        "host_operators" if cause else None,
    )
    return [(fix.same_place, fix.same_cause) for fix in fixes]


def test_most_of_the_smaller_saving_is_in_the_larger_one() -> None:
    same, apart = BOTH["same_stretch_percent"]
    assert of_savings(1000, 600, both=same) == [(None, None), (0, None)]
    assert of_savings(1000, 600, both=apart) == [(None, None), (None, None)]
    assert of_savings(1000, both=same, cause=600) == [(None, "host_operators")]
    assert of_savings(1000, both=apart, cause=600) == [(None, None)]


def test_savings_that_are_no_alternatives_add_up_to_at_most_the_window() -> None:
    """If savings add up to more than the window of 10,000, the smaller fix is an alternative to the larger one.

    This is so although both fixes together save 9,900.
    """
    assert of_savings(6000, 4000, both=9900) == [(None, None), (None, None)]
    assert of_savings(6000, 4001, both=9900) == [(None, None), (0, None)]


@pytest.mark.parametrize(("third", "larger"), [(4500, 1), (5000, 0), (5100, 0)])
def test_what_exceeds_the_window_is_an_alternative_to_that_with_which_it_shares_most(third: int, larger: int) -> None:
    """Three fixes save 11,000 of the 10,000 in the window, so the third is an alternative to another fix.

    This is the fix with which it shares more: it shares 100 with the first and 500 with the second. If it shares
    nothing with either, it is an alternative to the largest.
    """
    with_first = 7900 if third == 4500 else 8100
    both = {("0", "1"): 9000, ("0", "2"): with_first, ("1", "2"): third}
    assert [place for place, _ in of_savings(6000, 3000, 2000, both=both)] == [None, None, larger]
    assert [place for place, _ in of_savings(*[1600] * 8, both=3200)] == [None] * 6 + [0, 0]


def test_two_fixes_are_retimed_together_once() -> None:
    counts: dict[tuple[str, ...], int] = {}

    class Counted(dict[tuple[str, ...], int]):
        def __missing__(self, targets: tuple[str, ...]) -> int:
            counts[targets] = counts.get(targets, 0) + 1
            return 8000

    of_savings(6000, 4001, both=Counted())
    assert counts == {("0", "1"): 1}


@pytest.mark.parametrize("name", sorted(QUICK))
def test_of_a_trace_what_is_no_alternative_adds_up_to_at_most_the_window(
    name: str, all_fixes: dict[str, Fixes]
) -> None:
    alone = [retimed.saves_percent for retimed in all_fixes[name].values() if retimed.same_stretch_as is None]
    assert sum(alone) <= 100 + 1e-6


CALLS = {
    "*": {1: 900, 2: 100, 3: 900},
    "item": {1: 900},
    "step": {1: 900, 2: 100},
    "a step": {1: 900, 2: 100},
    "short": {1: 900, 2: 50},
    "two": {1: 900, 3: 900},
}
"""Wait time of the calls that no longer wait, by fix and by number of the call."""


def merged(saved: dict[str, int]) -> set[str]:
    """Judge `do_not_wait` fixes with these savings in a window of 10,000, and return the names that remain."""
    tried = [Candidate("do_not_wait", name, Scenario(((f"wait:{name}", 0.0),))) for name in saved]

    def saves(scenario: Scenario) -> int:
        return max(saved[target.removeprefix("wait:")] for target, _ in scenario.scale)

    def removes(scenario: Scenario) -> Removed:
        return waits_of(CALLS[scenario.targets[0].removeprefix("wait:")])

    return {fix.name for fix in judged(tried, saves, removes, lambda _: None, 10_000, None)}


def test_of_the_same_change_what_removes_more_remains_if_it_saves_a_percent_more_else_the_other() -> None:
    assert merged({"step": 1100, "item": 1000}) == {"step"}
    assert merged({"step": 1099, "item": 1000}) == {"item"}
    assert merged({"two": 1000, "item": 1000}) == {"two", "item"}


def test_names_and_steps_of_less_than_a_percent_decide_nothing() -> None:
    for outer in ("step", "a step"):
        assert merged({outer: 1000, "item": 1000}) == {"item"}
    assert merged({"step": 1150, "short": 1075, "item": 1000}) == {"step"}


def test_single_waits_remain_beside_all_waits_that_save_more() -> None:
    assert merged({"*": 1100, "item": 1000}) == {"*", "item"}
    assert merged({"*": 1099, "item": 1000}) == {"item"}


def test_waits_in_a_function_or_call_are_beside_those_in_its_operators(all_fixes: dict[str, Fixes]) -> None:
    """The waits of a function or call, and the waits of an operator in it, are separate fixes.

    If a function waits mostly in one operator, both are a single fix.
    """
    for trace, outer in (
        ("waits in a function and its operators", WAITS_IN),
        ("waits in operators and beside", "cudaStreamSynchronize"),
    ):
        same = {name: row.same_stretch_as for (fix, name), row in all_fixes[trace].items() if fix == "do_not_wait"}
        assert [*same] == [outer, "aten::item"] and outer in (same["aten::item"] or "")
    mostly = all_fixes["waits in a function, mostly in an operator"]
    assert [name for fix, name in mostly if fix == "do_not_wait"] == [WAITS_IN]


def test_only_what_a_screen_shows_is_compared() -> None:
    assert [place for place, _ in of_savings(*range(1000, 993, -1), both=1000)] == [None, 0, 0, 0, 0, None, None]


def test_all_waits_are_a_fix_where_they_save_more_than_one_of_them(hand_made: dict[str, Saved]) -> None:
    """If the second of two waits is at the end of the trace, removing both is not a separate fix."""
    twice, at_the_end = hand_made["waits twice"], hand_made["waits at the end"]
    assert twice["do_not_wait", "*"] > max(twice["do_not_wait", "aten::item"], twice["do_not_wait", "aten::nonzero"])
    assert ("do_not_wait", "aten::item") in at_the_end and ("do_not_wait", "*") not in at_the_end


def test_a_wait_behind_an_operator_is_not_in_it(hand_made: dict[str, Saved]) -> None:
    saved = hand_made["waits behind an operator"]
    assert {name for fix, name in saved if fix == "do_not_wait"} == {"cudaDeviceSynchronize"}


@pytest.mark.parametrize("name", PRECISIONS)
def test_float32_products_gain_what_the_fastest_units_of_the_device_give(
    name: str, all_fixes: dict[str, Fixes]
) -> None:
    kernel, _, factor = PRECISIONS[name]
    options = [retimed.options for (fix, _), retimed in all_fixes[name].items() if fix == "lower_precision"]
    assert options == ([] if factor is None else [f"--scale kernel:{kernel}={round(factor, 4)}"])


def test_a_wait_outside_operators_is_named_after_the_function_around_it(all_fixes: dict[str, Fixes]) -> None:
    """A wait outside operators has the name of its call if the trace has no stacks.

    This is also so if the stacks contain only functions of PyTorch and Python.
    """
    in_function, in_libraries, without = (
        {name: retimed for (fix, name), retimed in all_fixes[trace].items() if fix == "do_not_wait"}
        for trace in ("waits in a function", "waits in functions of libraries", "waits behind an operator")
    )
    assert [*in_function] == [WAITS_IN] and [*in_libraries] == [*without] == ["cudaDeviceSynchronize"]
    assert in_function[WAITS_IN].options == f"--remove 'wait:{WAITS_IN}'"
    assert in_function[WAITS_IN].saves_ns == in_libraries["cudaDeviceSynchronize"].saves_ns  # of equal windows


@pytest.mark.slow  # 2 s
def test_the_command_of_a_function_that_waits_gives_its_number() -> None:
    with asked([*FUNCTIONS, *waiting_behind()]) as subject:
        (fix,) = [row for row in subject.why(without_profiler=False).fixes if row["name"] == WAITS_IN]
        assert subject.saves_us(f"tracelake what-if {TRACE} {fix['options']}") == pytest.approx(fix["saves_ns"] / 1000)


@MORE
def test_what_takes_longer_ahead_saves_the_rest(more_made: dict[str, Saved]) -> None:
    assert more_made["loads longer"]["load_ahead", "dataloader"] == 2_220_000 - 1_400_000


@MORE
def test_memory_that_is_not_freed_waits_for_nothing(more_made: dict[str, Saved]) -> None:
    """If the memory is not freed, the kernel overlaps the host work after the call.

    Only 100 us belong to the call itself.
    """
    assert more_made["frees"]["no_empty_cache", ""] == 539_000
    assert "do_not_wait" not in kinds(more_made["frees"])


@pytest.mark.slow  # 2 s: tests/critical_path/whatif/test_inclusive.py
def test_operators_that_are_gone_leave_the_wait_for_their_results() -> None:
    """If the operators are removed, the host still waits for their results.

    In each of four steps, the GPU takes 500 us, and then the host takes 420 us.
    """
    with asked(synchronized_steps(530)) as subject:
        saves_us = subject.saves_us(f"tracelake what-if {TRACE} --remove cause:host_operators")
    assert 0 < saves_us < 4010 - 4 * (500 + 420)


def test_a_fix_of_gpu_work_says_that_streams_overlap(all_fixes: dict[str, Fixes]) -> None:
    """The caveat of a fix of GPU work reports overlapping streams; a fix of host work has no such caveat.

    The what-if side is tested in tests/critical_path/whatif/test_shared_gpu.py.
    """
    caveats = {row["fix"]: row["caveat"] for row in rule_rows("fix_kinds")}
    shared = "GPU work of several streams overlaps for 0.30 ms ("
    overlapping, alone = (
        all_fixes[name]["copy_ahead", PAGEABLE].caveat for name in ("copies with overlap", "copy_ahead has")
    )
    assert alone == caveats["copy_ahead"] and (overlapping or "").startswith(f"{alone}; {shared}")
    assert all_fixes["collection with overlap"]["no_gc", ""].caveat is None


def test_a_trace_that_lacks_a_side_has_only_fixes_of_the_other(hand_made: dict[str, Saved]) -> None:
    host, gpu = hand_made["host only"], hand_made["gpu only"]
    assert host["move_host_work", "prepare"] == 800_000 and ("move_host_work", "train") not in host
    assert not kinds(host) & {"do_not_wait", "copy_ahead", "overlap_communication", "lower_precision"}
    assert not kinds(host) & {"graph_or_compile", "fused_optimizer"}  # its operators compute, and launch nothing
    assert kinds(gpu) <= {"copy_ahead", "lower_precision"}
    assert all(saves > 0 for saved in hand_made.values() for saves in saved.values())


@MORE
def test_an_amd_trace_has_fixes_but_no_other_precision(shared: Path, more_made: dict[str, Saved]) -> None:
    saved = more_made["AMD"]
    assert saved and "lower_precision" not in kinds(saved)
    assert all(saves > 0 for saved in more_made.values() for saves in saved.values())


BY_NAME = {"load_ahead", "fused_optimizer", "no_gc", "asynchronous_checkpoint", "compile_once", "move_host_work"}
"""Kinds of fixes that need the names of host work."""


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("cut", {"do_not_wait"}),  # the awaited kernel is outside of the window
        ("Nsight", BY_NAME),  # the export contains only calls and kernels
        pytest.param("XPlane", {"do_not_wait"}, marks=MORE),  # the trace contains no calls, so none waits
    ],
)
def test_fixes_that_cannot_be_judged_are_absent_and_never_zero(
    name: str, absent: set[str], shared: Path, request: pytest.FixtureRequest
) -> None:
    saved = request.getfixturevalue("hand_made" if name in QUICK else "more_made")[name]
    assert saved or name == "Nsight", "no fix at all"  # the Nsight trace is one percent of a run and has no fixes
    assert all(saves > 0 for saves in saved.values()) and not kinds(saved) & absent
    assert name != "cut" or saved["no_gc", ""] == pytest.approx(300_000, abs=1)


@pytest.mark.slow  # 2 s
def test_a_window_with_a_cycle_has_no_fixes() -> None:
    """No known trace has a cyclic graph, so the test deletes the longest path, which a cyclic graph does not have."""
    con, _ = connect_all([synchronized_steps(530)])
    with con:
        run_models(con, load_catalog(), ["_longest_path"])
        con.execute("DELETE FROM _longest_path")
        run_models(con, load_catalog(), ["fixes"], frozenset({"_longest_path"}))
        assert con.execute("SELECT count(*) FROM fixes").fetchall() == [(0,)]


@MORE
def test_a_window_of_another_profile_has_no_fixes(more_fixes: dict[str, Fixes]) -> None:
    assert more_fixes["copies of a byte"] and not more_fixes["HTA"]
