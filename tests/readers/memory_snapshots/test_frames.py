"""The user's frame in stacks with C++ frames, with C++ frames only, of Windows, and with mangled names."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from pipelines.readers.flight_recorder.frames import called_frames, frame_text, user_frame
from tests.readers.memory_snapshots.make import MIB, Allocator, snapshot, stack
from tests.readers.memory_snapshots.test_command import answer_of, command

Frame = tuple[str, int, str]
UNWINDER: list[Frame] = [
    ("??", 0, "torch::unwind::unwind()"),
    ("??", 0, "torch::CapturedTraceback::gather(bool, bool, bool)"),
    ("memory_snapshot.cpp", 0, "torch::cuda::(anonymous namespace)::gather_with_cpp()"),
]
ALLOCATOR: list[Frame] = [
    ("CUDACachingAllocator.cpp", 0, "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(unsigned long, CUstream_st*)"),
    ("", 0, "c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate(unsigned long)"),
    ("??", 0, "at::detail::empty_generic(c10::ArrayRef<long>, c10::Allocator*)"),
]  # fmt: skip
MANGLED: list[Frame] = [
    ("??", 0, "_ZN5torch6unwind6unwindEv"),
    ("??", 0, "_ZN5torch17CapturedTraceback6gatherEbbb"),
    ("??", 0, "_ZN5torch4cuda12_GLOBAL__N_115gather_with_cppEv"),
    ("??", 0, "_ZN3c104cuda20CUDACachingAllocator6Native21NativeCachingAllocator8allocateEm"),
    ("??", 0, "_ZN2at6detail13empty_genericEN3c108ArrayRefIlEEPNS1_9AllocatorE"),
]
HIP: list[Frame] = [
    ("", 0, "c10::hip::HIPCachingAllocator::Native::(anonymous namespace)::DeviceCachingAllocator::malloc(int)")
]
OPERATOR: Frame = ("??", 0, "at::_ops::relu::call(at::Tensor const&)")
THREAD: list[Frame] = [("??", 0, "torch::autograd::Engine::thread_main()"), ("??", 0, "__clone")]
PYTHON: list[Frame] = [("??", 0, "_PyEval_EvalFrameDefault"), ("??", 0, "PyEval_EvalCode")]
RELU: Frame = ("/v/lib/python3.12/site-packages/torch/nn/functional.py", 1723, "relu")
OTHERS: Frame = ("/v/lib/python3.12/site-packages/transformers/model.py", 9, "forward")
MINE: Frame = ("/home/me/train.py", 81, "<module>")
WINDOWS: list[Frame] = [
    (r"C:\Users\me\env\Lib\site-packages\torch\nn\functional.py", 7, "relu"),
    (r"C:\Users\me\AppData\Local\Programs\Python\Python312\Lib\contextlib.py", 81, "inner"),
    (r"C:\miniconda3\envs\job\Lib\threading.py", 8, "run"),
]
MY_WINDOWS: Frame = (r"D:\work\Lib\train.py", 5, "main")
INNER = "at::native::relu(at::Tensor const&)"


def of(frames: list[Frame]) -> list[dict[str, object]]:
    return [{"filename": file, "line": line, "name": name} for file, line, name in frames]


CASES = {
    "mixed": ([*UNWINDER, *ALLOCATOR, OPERATOR, RELU, *PYTHON, OTHERS, *PYTHON, MINE, *PYTHON], "/home/me/train.py:81 <module>"),
    "python alone": ([RELU, OTHERS, MINE], "/home/me/train.py:81 <module>"),
    "a package's program": ([*UNWINDER, OPERATOR, RELU, OTHERS, *PYTHON], f"{OTHERS[0]}:9 forward"),
    "C++ alone": ([*UNWINDER, *ALLOCATOR, OPERATOR, *THREAD], OPERATOR[2]),
    "C++ with a file": ([*UNWINDER, *ALLOCATOR, ("Blas.cpp", 0, "at::native::mm()")], "Blas.cpp at::native::mm()"),
    "C++ with a line": ([*UNWINDER, *HIP, ("op.cu", 7, "mine::op()")], "op.cu:7 mine::op()"),
    "mangled": ([*MANGLED, ("??", 0, "_ZN2at6native4reluERKNS_6TensorE")], "_ZN2at6native4reluERKNS_6TensorE"),
    "mangled and not": ([MANGLED[0], UNWINDER[1], MANGLED[2], ALLOCATOR[0], MANGLED[3], OPERATOR], OPERATOR[2]),
    "the allocator alone": ([*UNWINDER, *ALLOCATOR[1:2]], ALLOCATOR[1][2]),
    "the unwinder alone": (UNWINDER, None),
    "none": ([], None),
    "Windows": ([*UNWINDER, *WINDOWS, MY_WINDOWS], r"D:\work\Lib\train.py:5 main"),
    "Windows without a person's": ([*UNWINDER, *WINDOWS], f"{WINDOWS[0][0]}:7 relu"),
    "a checkout of PyTorch": ([("/src/pytorch/torch/nn/functional.py", 3, "relu"), ("/src/pytorch/torch/_jit.py", 4, "f"), MINE], "/home/me/train.py:81 <module>"),
    "compiled code": ([("/tmp/torchinductor_me/ab/cab.py", 3, "call"), ("<eval_with_key>.7", 4, "forward"), MINE], "/home/me/train.py:81 <module>"),
    "a notebook": ([RELU, ("<ipython-input-3>", 4, "<module>")], "<ipython-input-3>:4 <module>"),
    "a person's allocator": ([*UNWINDER, *ALLOCATOR, ("pool.cpp", 8, "mine::CachingAllocator::grow()")], "pool.cpp:8 mine::CachingAllocator::grow()"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_frame_that_a_person_wrote(name: str) -> None:
    frames, expected = CASES[name]
    assert user_frame(of(frames)) == expected


def test_only_the_innermost_frames_are_left_out() -> None:
    """Only the innermost frames of the allocator are omitted.

    Its frames further out remain, for example a call that empties its cache.
    """
    frames = of([*UNWINDER, *ALLOCATOR, OPERATOR, ALLOCATOR[0]])
    assert [frame_text(frame) for frame in called_frames(frames)] == [
        OPERATOR[2],
        f"{ALLOCATOR[0][0]} {ALLOCATOR[0][2]}",
    ]


def test_python_is_neither_the_recorder_nor_the_allocator_whatever_its_name() -> None:
    frames = of([*UNWINDER, ("/v/lib/python3.12/site-packages/torch/cuda/memory.py", 7, "cudaMallocAsync"), OPERATOR])
    assert called_frames(frames) == frames[3:]


def test_the_command_names_what_was_called(tmp_path: Path) -> None:
    """One file contains stacks of several kinds, and most have Python frames."""
    allocator = Allocator()
    for _ in range(9):
        allocator.alloc(MIB, stack(*UNWINDER, *ALLOCATOR, OPERATOR, RELU, *PYTHON, MINE))
    allocator.alloc(4 * MIB, stack(*UNWINDER, *ALLOCATOR, ("??", 0, INNER), *THREAD))
    allocator.alloc(3 * MIB, stack(*MANGLED, OPERATOR, MINE))
    (device,) = answer_of(tmp_path, snapshot(allocator))["devices"]
    assert [(entry["user_frame"], entry["called"], entry["size_bytes"]) for entry in device["alive_at_peak"]] == [
        ("/home/me/train.py:81 <module>", f"{RELU[0]}:1723 relu", 9 * MIB),
        (INNER, INNER, 4 * MIB),
        ("/home/me/train.py:81 <module>", "/home/me/train.py:81 <module>", 3 * MIB),
    ]
    said = command(tmp_path / "rank3_snapshot.pickle").stdout
    assert "unwind" not in said and "??" not in said and "│ at::native::relu " in said


def test_the_real_snapshot(shared: Path) -> None:
    """The sizes in the answer are the requested bytes.

    torch counts 907,215,872 at the peak, because its blocks are multiples of 512 bytes.
    """
    path = shared / "traces" / "h100_files" / "h100_snapshot.pickle"
    if not path.is_file():
        pytest.skip(f"not there: {path}")
    said = command(path, "--json", "--top", "99").stdout
    (device,) = json.loads(said)["devices"]
    stacks = device["alive_at_peak"]
    assert sum(entry["size_bytes"] for entry in stacks) == device["peak_allocated_bytes"]
    assert sum(-(-entry["size_bytes"] // 512) * 512 for entry in stacks) == 907_215_872
    assert device["allocated_bytes"] == 638_844_928
    assert "unwind" not in said and "??" not in said and "CachingAllocator::" not in said
    by_line = Counter[str]()
    for entry in stacks:
        by_line[entry["user_frame"].partition(" ")[0]] += entry["size_bytes"]
    program = "/home/user/programs/others.py"
    assert by_line[f"{program}:78"] == 134_283_264 and by_line[f"{program}:81"] > 600_000_000
    autograd = [entry for entry in stacks if not entry["user_frame"].startswith(program)]
    assert len(autograd) == 5 and not any(".py" in frame for entry in autograd for frame in entry["frames"])
