"""Steps of servers: names read by hand, GPU work counted piece by piece, and kernels that identify a phase."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.models.catalog import load_catalog
from pipelines.models.questions import load_questions
from pipelines.models.run import run_models
from tests.effort import LISTS, named
from tests.harness import call, connect_all, each, kernel, only, rows_of, x

PHASE_COLUMNS = "phase, n_requests, n_prefill_requests, n_prefill_tokens, n_decode_requests, n_decode_tokens, n_tokens"
PAGED = "void paged_attention_ll4mi_QKV_mfma16_kernel<0, __hip_bfloat16>"
CONTEXT = "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext"
FLASH = "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>>"
VLLM_FRAME = "vllm/v1/worker/gpu_model_runner.py(2907): execute_model"
SGLANG_FRAME = "/sgl-workspace/sglang/python/sglang/srt/model_executor/model_runner.py(3123): forward"

LARGEST = 2**63 - 1

# The meaning of step names, read by hand. Most are examples in TraceLens' annotation_utils.py. Others follow from lines
# of vLLM, SGLang and TensorRT-LLM that sql/rules/serving/serving_phases.csv quotes.
NAMES = {
    "execute_context_2(14721)_generation_0(0)": ("prefill", 2, 2, 14721, 0, 0, 14721),
    "execute_context_0(0)_generation_64(64)": ("decode", 64, 0, 0, 64, 64, 64),
    "execute_context_2(6144)_generation_3(12)": ("mixed", 5, 2, 6144, 3, 12, 6156),
    "execute_context_1(7)_generation_1(1)": ("mixed", 2, 1, 7, 1, 1, 8),
    "execute_context_0(0)_generation_0(0)": ("idle", 0, 0, 0, 0, 0, 0),
    "execute_context_1(888_788544)_generation_0(0)": ("prefill", 1, 1, 888, 0, 0, 888),
    "execute_6147_context_2(sq6144sk7144sqsq20971520sqsk23019520)_generation_3(sq3sk6144sqsq3sqsk6144)": (
        *("mixed", 5, 2, 6144, 3, 3, 6147),
    ),
    "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)": (
        *("decode", 32, 0, 0, 32, 32, 32),
    ),
    "step[EXTEND bs=2 toks=14721]": ("prefill", 2, 2, 14721, None, None, 14721),
    "step[EXTEND bs=2 toks=14721 c_sq=14721 c_sqsq=108745533 c_sqsk=108745533 c_sk=14721]": (
        *("prefill", 2, 2, 14721, None, None, 14721),
    ),
    "step[DECODE bs=64]": ("decode", 64, None, None, 64, 64, 64),
    "step[DECODE bs=64 g_sqsq=64 g_sqsk=262144 g_sk=131072]": ("decode", 64, None, None, 64, 64, 64),
    "step[DECODE bs=64 g_sq=128 g_sqsq=256 g_sqsk=262144 g_sk=131072]": ("decode", 64, None, None, 64, 128, 128),
    "step[TARGET_VERIFY bs=8]": ("decode", 8, None, None, 8, None, None),
    "step[TARGET_VERIFY bs=8 g_sq=32 g_sqsq=128 g_sqsk=9000 g_sk=2250]": ("decode", 8, None, None, 8, 32, 32),
    "step[MIXED bs=2]": ("mixed", 2, None, None, None, None, None),
    "step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 c_sqsq=25 c_sqsk=40 g_sq=1 g_sk=12 g_sqsq=1 g_sqsk=12]": (
        *("mixed", 2, 1, 5, 1, 1, 6),
    ),
    "step[IDLE bs=0]": ("idle", 0, None, None, None, None, None),
    "step[DRAFT_EXTEND_V2 bs=4]": ("unknown", 4, None, None, None, None, None),
    "prefill[bs=2 tok=14721 ctx=[7803, 6918]]": ("prefill", 2, 2, 14721, None, None, 14721),
    "decode[bs=117/128 tok=117 d=117]": ("decode", 117, None, None, 117, None, 117),
    "decode[bs=128 tok=384 p=2 d=126 sqsq=132612 sqsk=1114112 sk=258048 tbo=1]": (
        "mixed",
        128,
        2,
        None,
        126,
        None,
        384,
    ),
    "[Executor] _forward_step 17: 2 ctx reqs, 5 gen reqs": ("mixed", 7, 2, None, 5, None, None),
    "[Executor] _forward_step: 0 ctx reqs, 5 gen reqs": ("decode", 5, 0, None, 5, None, None),
    # sums equal to the largest number, and larger by one
    f"execute_context_{LARGEST - 5}(1)_generation_5(5)": ("mixed", LARGEST, LARGEST - 5, 1, 5, 5, 6),
    f"execute_context_{LARGEST - 4}(1)_generation_5(5)": ("mixed", None, LARGEST - 4, 1, 5, 5, 6),
    f"execute_context_1({LARGEST - 5})_generation_5(5)": ("mixed", 6, 1, LARGEST - 5, 5, 5, LARGEST),
    f"execute_context_1({LARGEST - 4})_generation_5(5)": ("mixed", 6, 1, LARGEST - 4, 5, 5, None),
}
OTHERS = ("step[1]", "decode", "execute_context_1", "nccl:all_reduce", "prefill", "step[bs=2]", "ProfilerStep#3")


def annotation(name: str, ts: float, dur: float, tid: int = 1) -> dict[str, Any]:
    return x("user_annotation", name, ts, dur, tid)


def launched(name: str, at: float, start: float, dur: float, number: int, tid: int = 1) -> list[dict[str, Any]]:
    """Return a call at `at` and the kernel that it launches."""
    return [call("cudaLaunchKernel", at, 1, number, tid), kernel(name, start, dur, number)]


TRACES: dict[str, list[dict[str, Any]]] = {}
"""Handwritten traces, each added above its test."""

Shown = Callable[[str], duckdb.DuckDBPyConnection]


@pytest.fixture(scope="module")
def shown() -> Shown:
    """Return a function that shows `serving_steps` of one of TRACES. The models run once over all of them."""
    con, trace_ids = connect_all(TRACES.values())
    run_models(con, load_catalog(), ["serving_steps"])

    def of(name: str) -> duckdb.DuckDBPyConnection:
        only(con, trace_ids[[*TRACES].index(name)], ["serving_steps"])
        return con

    return of


def rows(con: duckdb.DuckDBPyConnection, columns: str, order: str = "step_number") -> list[tuple]:
    return con.execute(f"SELECT {columns} FROM serving_steps ORDER BY {order}").fetchall()


TRACES["names"] = [annotation(name, 100 * place, 50) for place, name in enumerate([*NAMES, *OTHERS])]


def test_each_name_says_what_its_server_meant(shown: Shown) -> None:
    steps = rows(shown("names"), f"name, phase_source, {PHASE_COLUMNS}", "start_ns")
    assert {name: meaning for name, _, *meaning in steps} == {name: list(meaning) for name, meaning in NAMES.items()}
    assert {source for name, source, *_ in steps if NAMES[name][0] != "unknown"} == {"annotation"}
    assert {source for name, source, *_ in steps if NAMES[name][0] == "unknown"} == {None}


def steps_of(seed: int) -> list[tuple[int, ...]]:
    """Return 22 steps of four numbers each.

    One step has only 0, one only 2^40, and 20 have random numbers of at most 1 to 40 bits.
    """
    dice = random.Random(seed)
    lengths = [[dice.randint(1, 40) for _ in range(4)] for _ in range(20)]
    return [(0,) * 4, (2**40,) * 4, *(tuple(dice.randrange(2**n) for n in step) for step in lengths)]


FORMATS = (
    "execute_context_{}({})_generation_{}({})",
    "execute_9_context_{}(sq{}sk1sqsq1sqsk1)_generation_{}(sq{}sk1sqsq1sqsk1)",
    "step[MIXED bs=7 c={0} g={2} c_sq={1} c_sk=8 c_sqsq=25 c_sqsk=40 g_sq={3} g_sk=12 g_sqsq=1 g_sqsk=12]",
)
for _seed in range(LISTS):
    _names = [text.format(*step) for step in steps_of(_seed) for text in FORMATS]
    TRACES[f"numbers {_seed}"] = [annotation(name, 100 * place, 50) for place, name in enumerate(_names)]


@pytest.mark.parametrize("seed", range(LISTS))
def test_numbers_come_back_out_of_names(shown: Shown, seed: int) -> None:
    columns = "n_prefill_requests, n_prefill_tokens, n_decode_requests, n_decode_tokens"
    assert rows(shown(f"numbers {seed}"), columns, "start_ns") == [step for step in steps_of(seed) for _ in FORMATS]


# GPU work -------------------------------------------------------------------------------------------------------------


def expected(events: list[dict[str, Any]]) -> list[tuple]:
    """Return name, process, n_gpu_pieces, gpu_ns, gpu_busy_ns, step_ns and latency_ns of each step.

    All launches and all ns are inspected.
    """
    marks = [(e["ts"], -e["dur"], place, e) for place, e in enumerate(events) if e["cat"] == "user_annotation"]
    steps = []
    for ts, minus, place, e in sorted(marks, key=lambda mark: mark[:3]):
        before = [o for *o, other in marks if tuple(o) < (ts, minus, place) and whose(other) == whose(e)]
        if all(ts >= o[0] - o[1] for o in before):
            steps.append((ts, place, e))
    steps.sort(key=lambda step: step[:2])
    owned: dict[int, list[dict[str, Any]]] = {place: [] for _, place, _ in steps}
    launches = {e["args"]["correlation"]: e for e in events if e["cat"] == "cuda_runtime"}
    for k in (e for e in events if e["cat"] == "kernel"):
        launch = launches[k["args"]["correlation"]]
        begun = [step for step in steps if step[0] <= launch["ts"] and step[2]["pid"] == launch["pid"]]
        own = [step for step in begun if step[2]["tid"] == launch["tid"]][-1:]
        owner = [step for step in (*own, *begun[-1:]) if launch["ts"] < step[0] + step[2]["dur"]][:1]
        for _, place, _ in owner:
            owned[place].append(k)
    sums = []
    for ts, place, e in steps:
        work = owned[place]
        busy = {ns for k in work for ns in range(k["ts"], k["ts"] + k["dur"])}
        done = max([ts + e["dur"], *(k["ts"] + k["dur"] for k in work)]) - ts
        after = [s[0] - ts for s in steps if s[:2] > (ts, place) and whose(s[2]) == whose(e)][:1]
        times = (sum(k["dur"] for k in work), len(busy), min([done, *after]), done)
        sums.append((e["name"], str(e["pid"]), len(work), *(1000 * us for us in times)))
    return sums


def whose(event: dict[str, Any]) -> tuple[Any, Any]:
    return event["pid"], event["tid"]


def servers(seed: int) -> list[dict[str, Any]]:
    """Return many processes in one trace, each with a few steps on two threads and launches on three."""
    dice = random.Random(seed)
    events, number = [], 0
    for pid in range(150):
        for _ in range(dice.randrange(5)):
            name = dice.choice(["step[DECODE bs=4]", "step[EXTEND bs=1 toks=9]"])
            events.append(annotation(name, dice.randrange(20), dice.randrange(12), dice.randrange(2)) | {"pid": pid})
        for _ in range(dice.randrange(6)):
            number, at = number + 1, dice.randrange(25)
            made = launched("gemm", at, at + dice.randrange(9), dice.randrange(9), number, dice.randrange(3))
            events += [made[0] | {"pid": pid}, made[1]]
    dice.shuffle(events)
    return [*events, *launched("gemm", 0, 0, 1, number + 1, 9)]


TRACES |= {f"servers {seed}": servers(seed) for seed in range(LISTS)}


@pytest.mark.parametrize("seed", range(LISTS))
def test_work_belongs_to_the_step_that_launched_it(shown: Shown, seed: int) -> None:
    columns = "name, pid, n_gpu_pieces, gpu_ns, gpu_busy_ns, step_ns, latency_ns"
    assert rows(shown(f"servers {seed}"), columns) == expected(TRACES[f"servers {seed}"])


# Kernels --------------------------------------------------------------------------------------------------------------


PHASES = [
    ([PAGED], "decode", "kernels"),
    ([CONTEXT], "prefill", "kernels"),
    ([PAGED, FLASH, CONTEXT], "mixed", "kernels"),
    ([FLASH], "unknown", None),
]
FRAMES = {"vLLM": VLLM_FRAME, "SGLang": SGLANG_FRAME}
for _server, _frame in FRAMES.items():
    TRACES[f"{_server}, no work"] = [x("python_function", _frame, 0, 50)]
    TRACES[_server] = [x("python_function", _frame, 100 * n, 50) for n in range(len(PHASES))]
    for _n, (_names, *_) in enumerate(PHASES):
        for _place, _name in enumerate(_names, 1):
            TRACES[_server] += launched(_name, 100 * _n + _place, 100 * _n + 10 * _place, 5, 10 * _n + _place)


@pytest.mark.parametrize("server", FRAMES)
def test_without_a_name_the_kernels_tell_the_phase(shown: Shown, server: str) -> None:
    columns = "phase, phase_source, n_requests, n_tokens, n_gpu_pieces"
    expected = [(phase, source, None, None, len(names)) for names, phase, source in PHASES]
    assert rows(shown(server), columns) == expected
    assert rows(shown(f"{server}, no work"), columns) == [("unknown", None, None, None, None)]


TRACES["profiler steps"] = [
    *(annotation(f"ProfilerStep#{n}", 100 * n, 50) for n in range(3)),
    *launched(PAGED, 101, 110, 5, 1),
    *launched(FLASH, 201, 210, 5, 2),
]


def test_a_profiler_step_is_a_server_s_only_with_its_kernels(shown: Shown) -> None:
    assert rows(shown("profiler steps"), "name, phase") == [("ProfilerStep#1", "decode")]


TRACES["names and frames"] = [
    *(x("python_function", SGLANG_FRAME, 0, 90), annotation("ProfilerStep#1", 0, 100)),
    *(annotation("execute_context_0(0)_generation_2(2)", 1, 80), annotation("step[DECODE bs=2]", 2, 70)),
    *launched(CONTEXT, 10, 20, 5, 1),
]


def test_names_count_and_frames_then_do_not(shown: Shown) -> None:
    """If a step is named, neither the frame around it nor the step around it is a separate step.

    Their work belongs to the named step.
    """
    steps = rows(shown("names and frames"), "rule_id, phase, phase_source, kernel_phase, n_gpu_pieces")
    assert steps == [("vllm", "decode", "annotation", "prefill", 1)]


def attention(ts: float, rows: int) -> dict[str, Any]:
    return x("cpu_op", "vllm::unified_attention_with_output", ts, 5, **{"Input Dims": [[rows, 8, 64], [rows, 1, 64]]})


TRACES["shapes"] = [
    *(x("python_function", VLLM_FRAME, 100 * n, 50) for n in range(3)),
    *(attention(ts, rows) for ts, rows in ((1, 7), (10, 7), (101, 7), (110, 8), (151, 9))),
]


def test_shapes_tell_tokens_where_they_agree(shown: Shown) -> None:
    assert rows(shown("shapes"), "n_tokens, tokens_source") == [(7, "shapes"), (None, None), (None, None)]


# Real traces ----------------------------------------------------------------------------------------------------------

REAL = {
    "mi300_sglang_decode_graph": ("decode", 32, 32, "decode"),
    "b200_eager_71_process_groups": ("prefill", 1, 888, "prefill"),
}
BY_FRAMES = {"mi300_sglang_decode_graph": ("decode", None), "b200_eager_71_process_groups": ("prefill", 888)}


@pytest.mark.slow
@pytest.mark.parametrize("name", named(REAL))
def test_real_servers(shared: Path, name: str) -> None:
    """The name and the kernels independently yield the same phase. The busy time is computed from the JSON."""
    trace = json.loads(gzip.decompress((shared / "traces" / "single" / f"{name}.json.gz").read_bytes()))
    columns = "phase, n_requests, n_tokens, kernel_phase, n_gpu_pieces, gpu_busy_ns, start_ns, end_ns"
    ((*meaning, n_pieces, busy_ns, start_ns, end_ns),) = rows_of(trace, "serving_steps", columns)
    assert tuple(meaning) == REAL[name]
    works = [e for e in trace["traceEvents"] if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    calls = {
        e["args"]["correlation"]: e for e in trace["traceEvents"] if e.get("cat") in ("cuda_runtime", "cuda_driver")
    }
    base = trace.get("baseTimeNanoseconds", 0)
    ours = [
        (round(e["ts"] * 1000), round(e["ts"] * 1000) + round(e["dur"] * 1000))
        for e in works
        if (c := calls.get(e["args"]["correlation"])) and start_ns <= base + round(c["ts"] * 1000) < end_ns
    ]
    busy, until = 0, 0
    for start, end in sorted(ours):
        busy, until = busy + max(0, end - max(start, until)), max(end, until)
    assert (n_pieces, busy_ns) == (len(ours), busy) and n_pieces > 500

    nameless = [e for e in trace["traceEvents"] if "user_annotation" not in str(e.get("cat"))]
    steps = rows_of(trace | {"traceEvents": nameless}, "serving_steps", "phase, n_tokens, phase_source")
    assert steps == [(*BY_FRAMES[name], "kernels")]


@pytest.mark.slow
def test_traces_of_training_have_no_serving_steps(shared: Path) -> None:
    paths = [shared / "traces" / name for name in ("ranks/torchrec_4/0.json.gz", "critical_path/alexnet.json.gz")]
    for con in each(paths, "serving_steps"):
        assert con.execute("SELECT * FROM serving_steps").fetchall() == []


TRACES["rates"] = [
    *(annotation("step[DECODE bs=2]", 10_000 * ms * 2, 1000 * ms) for ms in (1, 2, 3, 4)),
    annotation("step[MIXED bs=2]", 200_000, 5000),
]


def test_rates_are_over_the_time_of_the_steps(shown: Shown) -> None:
    """Rates of tokens are over the time of the steps without the pauses between them.

    Four decodes of 1, 2, 3 and 4 ms, with pauses of 10 ms between them, have two tokens each.
    """
    rates = shown("rates").execute(load_questions()["serving-steps"].sql).fetchall()
    assert [row[2:] for row in rates] == [
        ("decode", 2, 4, 2.0, 4.0, 400.0, 800.0, None, 0, None, None),
        ("mixed", 2, 1, 5.0, 5.0, 200.0, None, None, 0, None, None),
    ]
