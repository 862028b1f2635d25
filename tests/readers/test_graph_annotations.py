"""PyTorch's annotation files: names as PyTorch itself writes them into a trace, and files of other kinds."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.readers.graph_annotations import AnnotationsError, annotations_beside, read_annotations
from tests.effort import examples
from tests.modelling.graph_traces import replay

ANNOTATIONS: dict[int, Any] = {
    (5 << 32) + 0: [{"str": "phase_A"}],
    (5 << 32) + 1: [{"name": "all_gather", "dtype": "bf16", "stream": 60}],
    (5 << 32) + 2: [{"str": "outer"}, {"name": "inner"}],
    (5 << 32) + 3: [{"name": "first"}, {"name": "last", "size": 8}],
    (5 << 32) + 4: ["plain text"],
    (5 << 32) + 5: [{"size": 4}],
}
NAMES = ["phase_A", "all_gather", "inner", "last", "plain text"]


def written(folder: Path, content: bytes, name: str = "kernel_annotations_rank0_fwd.pkl") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_names_of_a_pickle(tmp_path: Path, protocol: int) -> None:
    names = read_annotations(written(tmp_path, pickle.dumps(ANNOTATIONS, protocol)))
    assert names == dict(zip(ANNOTATIONS, NAMES, strict=False))


def test_a_dict_for_each_node_and_json(tmp_path: Path) -> None:
    """Later versions store a dict for each node. In JSON, the keys of the nodes are texts."""
    later = {node: entries[0] for node, entries in ANNOTATIONS.items()}
    expected = {
        node: name
        for node, name in zip(ANNOTATIONS, ["phase_A", "all_gather", "outer", "first", "plain text"], strict=False)
    }
    assert read_annotations(written(tmp_path, pickle.dumps(later))) == expected
    assert read_annotations(written(tmp_path, json.dumps(later).encode(), "a.json")) == expected
    assert read_annotations(written(tmp_path, b"{}", "a.json")) == {}


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_names_are_what_pytorch_writes_into_the_trace(tmp_path: Path) -> None:
    annotate = pytest.importorskip("torch.cuda._annotate_cuda_graph_trace").annotate_trace
    events = replay("abcdef", 0, 1, nodes=range(6))
    annotate({"traceEvents": events}, ANNOTATIONS)
    args = [event["args"] for event in events if event["cat"] == "kernel"]
    # graph_kernels reads the name from these arguments, in this order.
    theirs = [arg.get("name") or arg.get("str") or arg.get("annotation") for arg in args]
    ours = read_annotations(written(tmp_path, pickle.dumps(ANNOTATIONS)))
    assert theirs == [ours.get(node) for node in ANNOTATIONS]


class Code:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("echo this must not run",)


BAD = {
    "names posix.system|names nt.system": pickle.dumps({1: [Code()]}),
    "names collections.defaultdict": pickle.dumps(defaultdict(list, {1: ["a"]})),
    "refers to something outside itself, so it is not loaded": b"\x80\x04\x8c\x01xQ.",
    "broken pickle": pickle.dumps(ANNOTATIONS)[:-9],
    "broken pickle: byte": b"\x80\x04r\xff\xff\xff\x7f.",
    "broken JSON": b'{"1": [',
    "holds a list": pickle.dumps([1, 2]),
    "is not the id of a node": pickle.dumps({(1, 2): ["a"]}),
    "'graph' is not the id of a node": b'{"graph": ["a"]}',
    "is not the id": pickle.dumps({1 << 70: ["a"]}),
    "neither text nor number": pickle.dumps({1: [{"name": ["a", "list"]}]}),
    "broken pickle ": b"",
}


@pytest.mark.parametrize("why", BAD)
def test_what_is_not_annotations_is_refused(tmp_path: Path, why: str, capfd: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, BAD[why])
    with pytest.raises(AnnotationsError, match=why.strip()) as refused:
        read_annotations(path)
    assert str(refused.value).startswith(str(path)) and "this must not run" not in capfd.readouterr().out


@settings(max_examples=examples(400), deadline=None)
@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 255))
def test_no_bytes_break_it(tmp_path_factory: pytest.TempPathFactory, noise: bytes, place: int, byte: int) -> None:
    """Random bytes, and a real file with a changed byte, give names or an error with a remedy."""
    folder = tmp_path_factory.mktemp("noise")
    genuine = bytearray(pickle.dumps(ANNOTATIONS))
    genuine[place % len(genuine)] = byte
    for content in (noise, b"{" + noise, b"\x80\x04" + noise + b".", bytes(genuine)):
        try:
            names = read_annotations(written(folder, content))
        except AnnotationsError:
            continue
        assert all(isinstance(node, int) and isinstance(name, str) for node, name in names.items())


def test_the_file_beside_a_trace(tmp_path: Path) -> None:
    """The file is searched in the trace's folder, then one folder up.

    It must have the trace's rank, which may be only in the trace's name, and a known suffix.
    """
    steps = tmp_path / "traces" / "step_14"
    steps.mkdir(parents=True)
    trace = steps / "000001.abc.pt.trace.json.gz"
    for name in ("kernel_annotations_rank0_x.pkl", "kernel_annotations_rank11_x.pkl", "kernel_annotations_rank1_x.txt"):
        written(tmp_path / "traces", b"", name)
    assert annotations_beside(trace, 1) is None
    above = written(tmp_path / "traces", b"", "kernel_annotations_rank1_y.pkl")
    assert annotations_beside(trace, 1) == above == annotations_beside(trace, None)
    beside = written(steps, b"", "kernel_annotations_rank1_z.json")
    assert annotations_beside(trace, 1) == beside
    assert annotations_beside(steps / "decode.json", None) is None
