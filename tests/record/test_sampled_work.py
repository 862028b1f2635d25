"""The work of sampled spans: equal to the counts of PyTorch's own counter, and with utilisations known by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import publish
from pipelines.readers.ingest import ingest
from pipelines.record.folder import Recording

torch = pytest.importorskip("torch")

from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from pipelines.record.spans import record_spans  # noqa: E402
from tests.effort import first_of  # noqa: E402


def asked(folder: Path, query: str) -> list[tuple]:
    lake = Lake(folder.parent / f"{folder.name}-lake")
    assert [row.status for row in ingest([folder], lake).rows] == ["ok"]
    with duckdb.connect(str(publish(lake)), read_only=True) as con:
        return con.execute(query).fetchall()


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16, bias=False)

    def forward(self, x: Any) -> Any:
        q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.into(x).chunk(3, -1))
        return self.out(torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Again(torch.nn.Module):
    """A module that recomputes its forward in the backward pass."""

    def __init__(self, inside: Any, use_reentrant: bool) -> None:
        super().__init__()
        self.inside, self.use_reentrant = inside, use_reentrant

    def forward(self, x: Any) -> Any:
        return checkpoint(self.inside, x, use_reentrant=self.use_reentrant)


def transformer() -> tuple[Any, Any]:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(2, 5, 16)


def images() -> tuple[Any, Any]:
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.BatchNorm2d(8), torch.nn.ReLU(inplace=True),
        torch.nn.ConvTranspose2d(8, 4, 3), torch.nn.Flatten(), torch.nn.LazyLinear(5),
    )  # fmt: skip
    data = torch.randn(2, 3, 9, 9)
    net(data)
    return net, data


def attention() -> tuple[Any, Any]:
    return Attention(), torch.randn(2, 6, 16)


def shared_module() -> tuple[Any, Any]:
    linear = torch.nn.Linear(8, 8)
    return torch.nn.Sequential(linear, torch.nn.Tanh(), linear), torch.randn(3, 8)


@pytest.mark.parametrize(
    "made", first_of([transformer, images, attention, shared_module], 1), ids=lambda made: made.__name__
)
def test_matrix_operations_of_every_module_are_those_of_torch_s_counter(made: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, data = made()
    with FlopCounterMode(display=False, depth=9) as counter:
        net(data).sum().backward()
    counted = {
        name.removeprefix(type(net).__name__ + "."): sum(of.values()) for name, of in counter.get_flop_counts().items()
    }
    with record_spans(net, tmp_path / "in", 1) as spans:
        for _ in range(2):
            with spans.step():
                net(data).sum().backward()
    query = """
        SELECT u.name, sum(w.flops_uncausal * w.n_calls)
        FROM span_sample_operators w JOIN span_samples u USING (recording_id, step, span_id)
        WHERE NOT w.op LIKE '%attention%for_cpu%' GROUP BY u.name"""
    ours = {name: int(n or 0) for name, n in asked(tmp_path / "in", query)}
    in_names = {name: n for name, n in counted.items() if name in ours}
    assert ours["step"] == counted["Global"] > 0
    assert {name: n for name, n in ours.items() if name in in_names} == in_names
    assert len(in_names) >= 2 and ours[type(net).__name__] == counted["Global"]


@pytest.mark.slow  # 1 s
def test_attention_on_a_cpu_is_modelled(tmp_path: Path) -> None:
    q = torch.randn(2, 3, 6, 8, requires_grad=True)
    k = torch.randn(2, 3, 6, 8, requires_grad=True)
    with record_spans(torch.nn.Identity(), tmp_path / "in", 1) as spans, spans.step():
        torch.nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True).sum().backward()
    query = "SELECT flops_matrix, flops_uncausal FROM span_sample_operators WHERE family = 'attention' ORDER BY 1"
    product = 2 * 2 * 3 * 6 * 6 * 8
    assert asked(tmp_path / "in", query) == [(product, 2 * product), (5 * product // 2, 5 * product)]


@pytest.mark.slow  # 1 s each; test_spans.py checks that such spans have their own phase
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_what_a_checkpoint_computes_again_is_told_apart(use_reentrant: bool, tmp_path: Path) -> None:
    inside = torch.nn.Sequential(torch.nn.Linear(8, 16, bias=False), torch.nn.Linear(16, 4, bias=False))
    net = torch.nn.Sequential(torch.nn.Linear(8, 8, bias=False), Again(inside, use_reentrant))
    with record_spans(net, tmp_path / "in", 1) as spans:
        for _ in range(2):
            with spans.step():
                net(torch.randn(3, 8)).sum().backward()
    query = "SELECT name, phase, flops_matrix, flops_recompute FROM span_sample_utilization"
    flops_by_span = {(name, phase): flops for name, phase, *flops in asked(tmp_path / "in", query)}
    first, inner = 2 * 3 * 8 * 8, 2 * 3 * (8 * 16 + 16 * 4)
    assert flops_by_span["1.inside", "forward"] == [inner, 0]
    assert flops_by_span["1.inside.0", "recompute"] == [2 * 3 * 8 * 16, 2 * 3 * 8 * 16]
    assert flops_by_span["0", "backward"] == [first, 0]  # its input needs no gradient
    # A recomputed forward ends when backward has all it needs, so the last product may not run.
    again = flops_by_span["step", "step"][1]
    assert again in (inner, inner - 2 * 3 * 16 * 4)
    assert flops_by_span["step", "step"][0] == first * 2 + inner * 3 + again


def test_utilisation_of_a_span_whose_answer_is_known(tmp_path: Path) -> None:
    """A product of 2^30 · 2 operations in bf16 and 6 MiB takes 2.17 us at an H100's 989.4 TFLOP/s."""
    recording = Recording(tmp_path / "in", "spans", "r", 1, 3)
    a_span = {"span_id": 0, "depth": 0, "name": "step", "class": "step", "phase": "step", "is_failed": False}
    recording.add("span_samples", [{**a_span, "step": at, "duration_ns": dur, "is_census": at == 0} for at, dur in ((0, 99), (7, 4341), (9, 2000))])  # fmt: skip
    types = '["c10::BFloat16", "c10::BFloat16"]'
    product = {"op": "aten::mm", "dims": "[[1024, 1024], [1024, 1024]]", "types": types, "concrete": '["", ""]'}
    other = {"op": "aten::cat", "dims": "[]", "types": "[]", "concrete": "[]"}
    counts = {"step": 0, "span_id": 0, "n_calls": 1, "n_calls_own": 1, "n_calls_recompute": 0}
    recording.add("span_sample_operators", [{**product, **counts}, {**other, **counts}])
    recording.close(source="cuda", device="cuda:0", device_name="NVIDIA H100 80GB HBM3", device_sms=132, device_memory_bytes=85 << 30)  # fmt: skip
    columns = "step, device_key, peak_kind, n_ops, n_ops_not_modelled, flops_matrix, bytes, mfu_wall, bandwidth_utilization, bound_by, suspect, not_measured, tflops"
    slow, fast = asked(tmp_path / "in", f"SELECT {columns} FROM span_sample_utilization ORDER BY step")
    assert slow[:7] == (7, "H100-SXM", "datasheet", 2, 1, 2 * 1024**3, 6 << 20)
    assert slow[7] == pytest.approx(2 * 1024**3 / 989_400 / 4341) == pytest.approx(0.5, rel=1e-3)
    assert slow[8] == pytest.approx((6 << 20) / 3350 / 4341) and slow[9:11] == ("compute", False)
    assert slow[11] is None and slow[12] == pytest.approx(2 * 1024**3 / 4341 / 1000)
    # Shorter than the work takes at peak, so the work ran at another time and the ratio is meaningless.
    assert fast[:7] == (9, *slow[1:7]) and fast[7:] == (None, None, "compute", True, "too_short", None)


def test_a_span_has_no_bytes_if_those_of_a_modelled_operator_are_unknown(tmp_path: Path) -> None:
    """A span has no bytes if the bytes of a modelled operator are unknown.

    Each span has a product of known size. Two also have a product of unknown size or a multiplication of an unknown
    type.
    """
    recording = Recording(tmp_path / "in", "spans", "r", 1, 3)
    a_span = {"class": "Linear", "phase": "forward", "depth": 0, "is_failed": False, "duration_ns": 10_000}
    names = ("plain", "same type", "other type")
    recording.add("span_samples", [{**a_span, "step": step, "is_census": step == 0, "span_id": place, "name": name} for step in (0, 7) for place, name in enumerate(names)])  # fmt: skip
    call = {
        "dims": "[[1024, 1024], [1024, 1024]]",
        "concrete": '["", ""]',
        "n_calls": 1,
        "n_calls_own": 1,
        "n_calls_recompute": 0,
    }
    known = {**call, "op": "aten::mm", "types": '["c10::BFloat16", "c10::BFloat16"]'}
    half_known = {**known, "types": '["c10::BFloat16", "c10::complex<float>"]'}
    complex_product = {**call, "op": "aten::mul", "types": '["c10::complex<float>", "c10::complex<float>"]'}
    operators = [(0, known), (1, known), (1, half_known), (2, known), (2, complex_product)]
    recording.add("span_sample_operators", [{**op, "step": 0, "span_id": place} for place, op in operators])
    recording.close(source="cuda", device="cuda:0", device_name="NVIDIA H100 80GB HBM3", device_sms=132, device_memory_bytes=85 << 30)  # fmt: skip
    columns = (
        "flops_matrix, ideal_ns > 0, bytes, memory_ns, bandwidth_utilization, intensity, bound_by, roofline_utilization"
    )
    rows = asked(tmp_path / "in", f"SELECT {columns} FROM span_sample_utilization ORDER BY span_id")
    flops, moved = 2 * 1024**3, 3 * 2 * 1024**2
    assert rows == [
        (flops, True, moved, pytest.approx(moved / 3350), pytest.approx(moved / 3350 / 10_000), pytest.approx(flops / moved), "compute", pytest.approx(flops / 989.4e3 / 10_000)),
        (2 * flops, True, *[None] * 6),
        (flops, True, *[None] * 6),
    ]  # fmt: skip


@pytest.mark.slow  # 2 s
def test_the_page_s_queries_lead_from_the_worst_step_to_its_operators(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "modelling.md").read_text()
    (block,) = [block for block in re.findall(r"```sql\n(.*?)```", page, re.DOTALL) if "span_sample_operators" in block]
    worst, inside, operators = (query.strip() for query in block.split(";")[:3])
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4))
    with record_spans(net, tmp_path / "in", 1) as spans:
        for _ in range(3):
            with spans.step():
                net(torch.randn(3, 8)).sum().backward()
    ((step, _, _),) = asked(tmp_path / "in", worst)
    with duckdb.connect(str(tmp_path / "in-lake" / "analyst.duckdb"), read_only=True) as con:
        inner_spans = con.execute(inside.replace("40", str(step))).fetchall()
        assert {(name, phase) for name, phase, *_ in inner_spans} >= {("0", "forward"), ("1", "backward")}
        assert len(inner_spans) == 6
        rows = con.execute(operators.replace("layers.3.mlp", "1")).fetchall()
    assert [(op, flops) for op, _, flops in rows if flops] == [("aten::mm", 2 * 3 * 16 * 4)] * 2


@pytest.mark.slow  # 2 s
def test_inputs_that_no_census_saw_have_no_work_and_lead_to_rare_censuses(tmp_path: Path) -> None:
    net = torch.nn.Linear(4, 2)
    with record_spans(net, tmp_path / "in", 1) as spans:
        for rows in (1, 2, 1, 3, 2, 2, 1, 4, 5):
            with spans.step():
                net(torch.randn(rows, 4)).sum().backward()
    query = """
        SELECT s.step, s.is_census, u.not_modelled, u.flops_matrix, u.device_key, u.mfu_wall
        FROM span_samples s LEFT JOIN span_sample_utilization u USING (recording_id, step, span_id)
        WHERE s.phase = 'forward' ORDER BY s.step"""
    unknown = (False, "inputs_not_counted", None, None, None)
    assert asked(tmp_path / "in", query) == [
        (0, True, None, None, None, None),
        (1, *unknown),  # new inputs, but no census, because the step before had known inputs
        (2, False, None, 16, None, None),
        (3, *unknown),
        (4, *unknown),
        (5, *unknown),
        (6, False, None, 16, None, None),
        (7, *unknown),  # the eighth step would be a census only if the step before it had new inputs
        (8, *unknown),
    ]


@pytest.mark.slow  # 2 s
def test_without_a_census_times_are_all_there_is(tmp_path: Path) -> None:
    net = torch.nn.Linear(4, 2)
    with record_spans(net, tmp_path / "in", 1, count_operators=False) as spans:
        for _ in range(2):
            with spans.step():
                net(torch.randn(3, 4))
    query = "SELECT DISTINCT is_census, not_modelled, flops_matrix FROM span_samples JOIN span_sample_utilization USING (recording_id, step, span_id)"
    assert asked(tmp_path / "in", query) == [(False, "inputs_not_counted", None)]


@pytest.mark.slow  # tests above check the operators that a census can describe
def test_a_census_leaves_what_it_cannot_describe_alone(tmp_path: Path) -> None:
    """Tensors composed of others are counted by their parts. Higher-order operators run without being described."""
    from torch.testing._internal.two_tensor import TwoTensor

    def parts(net: Any, data: Any, name: str) -> dict[str, int]:
        with record_spans(net, tmp_path / name, 1) as spans, spans.step():
            net(data)
        query = "SELECT op, n_calls FROM span_sample_operators WHERE span_id = 0"
        return dict(asked(tmp_path / name, query))

    linear = torch.nn.Linear(4, 2, bias=False)
    pair = TwoTensor(torch.randn(3, 4), torch.randn(3, 4))
    assert parts(linear, pair, "pair")["aten::mm"] == 2

    class Named(torch.Tensor):
        """A subclass that adds only a name."""

    assert parts(linear, torch.randn(3, 4).as_subclass(Named), "named")["aten::mm"] == 1

    class Branches(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y + 1, (x,))

    assert "cond" in parts(Branches(), torch.ones(3), "branches")


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.linear(x)) + x


@pytest.mark.parametrize("how", first_of(["whole", "inner", "in place"], 1))
def test_compiled_modules_stay_compiled_and_whole(how: str, tmp_path: Path) -> None:
    """Hooks do not split the code of compiled modules. `fullgraph` raises an error if a hook splits it."""
    net: Any = Block() if how == "whole" else torch.nn.Sequential(torch.nn.Linear(4, 4), Block())
    if how == "in place":
        net[1].compile(backend="eager", fullgraph=True)
    elif how == "inner":
        net[1] = torch.compile(net[1], backend="eager", fullgraph=True)
    else:
        net = torch.compile(net, backend="eager", fullgraph=True)
    torch._dynamo.reset()
    data, torch_compiles = torch.randn(3, 4), torch._dynamo.utils.counters["stats"]
    with record_spans(net, tmp_path / "in", 1) as spans:
        for at in range(3):
            before = torch_compiles["calls_captured"]
            with spans.step():
                net(data).sum().backward()
            assert (torch_compiles["calls_captured"] > before) == (
                at == 1
            )  # the census runs uncompiled, the second step compiles, the third reuses the compiled code
    query = "SELECT DISTINCT name, class, phase, flops_matrix FROM span_sample_utilization WHERE phase = 'forward' ORDER BY 1"
    flops = 2 * 3 * 4 * 4
    assert asked(tmp_path / "in", query) == {
        "whole": [("Block", "Block", "forward", flops)],
        "inner": [("0", "Linear", "forward", flops), ("1", "Block", "forward", flops), ("Sequential", "Sequential", "forward", 2 * flops)],
        "in place": [("0", "Linear", "forward", flops), ("Sequential", "Sequential", "forward", 2 * flops)],
    }[how]  # fmt: skip
