"""A handler of torch.profiler.

Traces arrive whole in the lake, whichever process is killed, and training never stops.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the handler is torch's")

from pipelines.base.processes import this_process  # noqa: E402
from pipelines.faces.training import deliver  # noqa: E402
from pipelines.faces.training.trace_handler import HIDDEN, TraceHandler, key_file, trace_handler  # noqa: E402
from pipelines.lake import Lake  # noqa: E402


def train(handler: Any, steps: int = 2) -> None:
    model = torch.nn.Linear(4, 4)
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=1, repeat=0)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule, on_trace_ready=handler
    ) as profiler:
        for _ in range(steps):
            model(torch.randn(2, 4)).sum().backward()
            profiler.step()


@pytest.mark.slow  # 7 s
def test_traces_of_a_loop_are_in_the_lake_and_their_files_beside_it(tmp_path: Path) -> None:
    handler = trace_handler(tmp_path / "lake", job="vision 12")
    train(handler, steps=4)
    assert handler.wait(120)
    files = sorted((tmp_path / "lake-traces" / "vision-12").glob("rank*"))
    assert [re.sub(r"\.\d+\..*\.\d+-\d+\.", ".", file.name) for file in files] == [
        "rank0.step2.pt.trace.json.gz",
        "rank0.step4.pt.trace.json.gz",
    ]
    with Lake(tmp_path / "lake").connect(["traces"]) as con:
        rows = con.execute("SELECT file, job, rank, status FROM traces ORDER BY file").fetchall()
    assert rows == [(file.name, "vision 12", 0, "ok") for file in files]
    assert list((files[0].parent / HIDDEN).iterdir()) == []
    assert len(handler.seconds) == 2


def test_an_inbox_gets_whole_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "own"))
    (tmp_path / "own").mkdir()
    handler = trace_handler(inbox=tmp_path / "inbox", job="a/b")
    train(handler)
    assert handler.wait(120)
    (file,) = (path for path in (tmp_path / "inbox").rglob("*") if path.is_file())
    assert file.parent == tmp_path / "inbox" / "a-b"
    assert json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]


@pytest.mark.parametrize("where", ["inbox", pytest.param("lake", marks=pytest.mark.slow)])  # 5 s
def test_packages_of_the_working_folder_are_not_imported(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(deliver.__file__).parents[3])
    for name in ("pipelines", "tracelake"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('not these')")
    monkeypatch.chdir(tmp_path)
    handler = trace_handler(**{where: "there"})
    train(handler)
    assert handler.wait(120)


@pytest.mark.slow  # 3 s; test_a_trace_keeps_its_rank_whoever_delivers_it tests ranks
def test_the_rank_of_the_environment_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    handler = trace_handler(tmp_path / "lake")
    train(handler)
    assert handler.wait(120)
    (file,) = (tmp_path / "lake-traces").glob("rank3.*")
    assert json.loads(gzip.decompress(file.read_bytes()))["distributedInfo"] == {"rank": 3, "world_size": 8}
    with Lake(tmp_path / "lake").connect(["traces"]) as con:
        assert con.execute("SELECT rank, world_size FROM traces").fetchall() == [(3, 8)]


def test_an_error_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "traces").write_text("no folder")
    handler = trace_handler(tmp_path / "lake", traces=tmp_path / "traces")
    with pytest.warns(RuntimeWarning, match="a trace was not written to"):
        train(handler)


def test_half_a_trace_does_not_stay(tmp_path: Path) -> None:
    class Profiler:
        step_num = 1

        def export_chrome_trace(self, path: str) -> None:
            Path(path).write_text("{")
            raise OSError("no space left")

    handler = trace_handler(tmp_path / "lake")
    with pytest.warns(RuntimeWarning, match="no space left"):
        handler(Profiler())
    assert list(handler._hidden.iterdir()) == []


def test_a_failed_delivery_is_a_warning_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("no folder")
    handler = trace_handler(tmp_path / "lake")
    train(handler)
    with pytest.warns(RuntimeWarning, match=r"a trace was not delivered to .*lake: .*\(see .*\.log\)"):
        assert not handler.wait(120)


def test_a_delivery_that_fails_just_after_the_timeout_is_not_forgotten(tmp_path: Path) -> None:
    class Late(subprocess.Popen):
        """A process that ends just after the timeout."""

        def __init__(self) -> None:
            self.returncode = None

        def wait(self, timeout: float | None = None) -> int:
            if timeout is not None:
                raise subprocess.TimeoutExpired("deliver", timeout)
            self.returncode = 1
            return 1

        def poll(self) -> int | None:
            self.returncode = 1
            return 1

        def __del__(self, *_: Any) -> None:
            pass

    handler = trace_handler(tmp_path / "lake")
    handler._deliveries = [(Late(), tmp_path / "log")]
    assert not handler.wait(0)
    with pytest.warns(RuntimeWarning, match="a trace was not delivered"):
        assert not handler.wait()


def leave(handler: TraceHandler, pid: int | str) -> Path:
    """Leave a complete trace of a process that had no time to deliver it, and return its path."""
    handler._hidden.mkdir(parents=True, exist_ok=True)
    file = handler._hidden / f"rank0.step1.1.{os.uname().nodename.replace('.', '-')}.{pid}.json"
    file.write_text(json.dumps({"traceEvents": [{"ph": "X", "name": "f", "cat": "cpu_op", "ts": 1, "dur": 1}]}))
    return file


def test_what_a_killed_process_left_is_delivered_by_the_next(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    first = trace_handler(tmp_path / "lake")
    left, living = leave(first, ended.pid), leave(first, os.getpid())
    half = left.with_name(left.name.replace(".json", ".part.json"))
    half.write_text("{")
    assert trace_handler(tmp_path / "lake").wait(120)
    assert [living.exists(), left.exists(), half.exists()] == [True, False, True]
    assert len(Lake(tmp_path / "lake").known_traces()) == 1


def test_what_a_predecessor_with_this_pid_left_is_delivered(tmp_path: Path) -> None:
    """A trace that an earlier process with the same pid left is delivered.

    A container starts the program with the same pid again.
    """
    now = int(this_process().rpartition(":")[2])
    first = trace_handler(tmp_path / "lake")
    left, own = leave(first, f"{os.getpid()}-{now - 1}"), leave(first, f"{os.getpid()}-{now}")
    commands: list[list[Path]] = []
    second = TraceHandler(str(tmp_path / "lake"), None, first._target)
    second._deliver = commands.append
    second._resume()
    assert commands == [[left]] and own.exists()


def test_old_parts_of_a_trace_whose_process_was_killed_are_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    first = trace_handler(tmp_path / "lake")
    kept, then = [], time.time() - 7200
    for pid, is_kept in ((ended.pid, False), (os.getpid(), True)):
        file = leave(first, pid)
        file.unlink()
        for suffix in ("part.json", "key", "log", "pt.trace.json.gz.part"):
            part = file.with_name(f"{file.stem}.{suffix}")
            part.write_text("{")
            os.utime(part, (then, then))
            kept += [part] if is_kept else []
    (fresh := kept[0].with_name(kept[0].name.replace(f".{os.getpid()}.", f".{ended.pid}."))).write_text("{")
    trace_handler(tmp_path / "lake")
    assert sorted(first._hidden.iterdir()) == sorted([*kept, fresh])


def test_one_process_delivers_all_that_is_left_and_a_bad_one_stops_no_other(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    first = TraceHandler(None, None, str(tmp_path / "inbox"))
    first._hidden = tmp_path / "own"
    leftover = leave(first, ended.pid)
    files = [leftover, *(leftover.with_name(leftover.name.replace("rank0", f"rank{rank}")) for rank in (1, 2))]
    for file in files[1:]:
        file.write_bytes(leftover.read_bytes())
    # so rank 0's trace cannot be moved there
    (tmp_path / "inbox" / f"{files[0].stem}.pt.trace.json.gz").mkdir(parents=True)
    first._resume()
    assert len(first._deliveries) == 1
    with pytest.warns(RuntimeWarning, match="IsADirectoryError"):
        assert not first.wait(120)
    assert [file.exists() for file in files] == [True, False, False]


def test_nfs_locks_files_for_writers_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(file: Any, operation: int) -> None:
        if operation & fcntl.LOCK_EX and fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDWR:
            raise OSError(errno.EBADF, "Bad file descriptor")

    file = leave(TraceHandler("lake", None, str(tmp_path / "traces")), 1)
    monkeypatch.setattr(deliver, "_lower_priority", lambda: None)
    monkeypatch.setattr(deliver.fcntl, "flock", flock)
    assert deliver.main([str(file), str(tmp_path / "traces"), "", ""]) == 0
    assert not file.exists() and len(list((tmp_path / "traces").glob("*.gz"))) == 1


def test_an_inbox_does_not_get_what_another_job_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "own"))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = leave(trace_handler(inbox=tmp_path / "inbox", job="vision"), ended.pid)
    others = [trace_handler(inbox=tmp_path / "inbox", job="text"), trace_handler(inbox=tmp_path / "else", job="vision")]
    assert left.exists() and not any(handler._deliveries for handler in others)
    assert trace_handler(inbox=tmp_path / "inbox", job="vision").wait(120) and not left.exists()


@pytest.mark.parametrize("key", ['"distributedInfo": {"rank": 3, "world_size": 8},', "", None])
def test_a_trace_keeps_its_rank_whoever_delivers_it(
    key: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 delivers the trace that rank 3 left.

    The key file is from rank 3, or empty because torch wrote the key, or missing because rank 3 ran an older version.
    """
    (tmp_path / "own").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "own"))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    file = leave(trace_handler(inbox=tmp_path / "inbox"), ended.pid)
    file = file.rename(file.with_name(file.name.replace("rank0", "rank3")))
    if key is not None:
        key_file(file).write_text(key)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert trace_handler(inbox=tmp_path / "inbox").wait(120)
    (delivered,) = (tmp_path / "inbox").glob("rank3.*")
    content = json.loads(gzip.decompress(delivered.read_bytes()))
    assert content.get("distributedInfo") == ({"rank": 3, "world_size": 8} if key else None)
    assert not file.exists() and not key_file(file).exists()


@pytest.mark.slow  # 6 s
def test_a_delivery_may_be_killed_at_any_step_and_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A delivery can be repeated after a failure at any step.

    Each step fails twice: once before it is done, and once after.
    """
    target = tmp_path / "traces"
    file = leave(TraceHandler("lake", None, str(target)), 1)
    arguments = [str(file), str(target), str(tmp_path / "lake"), ""]
    monkeypatch.setattr(deliver, "_lower_priority", lambda: None)
    for module, name in ((deliver.shutil, "copyfileobj"), (deliver.os, "replace"), (deliver.subprocess, "run")):
        step = getattr(module, name)
        for is_done in (False, True):

            def die(*args: Any, step: Any = step, is_done: bool = is_done, **more: Any) -> None:
                if is_done:
                    step(*args, **more)
                raise KeyboardInterrupt

            monkeypatch.setattr(module, name, die)
            with pytest.raises(KeyboardInterrupt):
                deliver.main(arguments)
            monkeypatch.setattr(module, name, step)
            assert file.exists()
            assert all(gzip.decompress(path.read_bytes()) for path in target.glob("*.gz"))
    assert deliver.main(arguments) == 0 and deliver.main(arguments) == 0
    assert len(list(target.glob("*.gz"))) == len(Lake(tmp_path / "lake").known_traces()) == 1
    assert not file.exists() and list(file.parent.iterdir()) == []


def test_a_process_group_says_the_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch import distributed

    from pipelines.faces.training.trace_handler import _distributed_info, rank_and_world_size

    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        assert (rank_and_world_size(), _distributed_info()) == ((0, 1), "")
    finally:
        distributed.destroy_process_group()
    assert rank_and_world_size() == (3, 8)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"lake": "a", "inbox": "b"},
        {"lake": "ducklake:x", "traces": "s3://b/c"},
        {"lake": "ducklake:postgres:host=db?data=s3://b/lake"},
    ],
)
def test_where_traces_go_must_be_clear(settings: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"set either lake or inbox|name a folder of this machine"):
        trace_handler(**settings)


def test_delivery_has_the_lowest_priority_as_a_process_and_as_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delivery has its own session, and Linux compares sessions first.

    Without the session's priority, steps took four times as long.
    """
    lowered: list[Any] = []
    monkeypatch.setattr(os, "nice", lowered.append)
    monkeypatch.setattr(Path, "write_text", lambda path, text: lowered.append((str(path), text)))
    deliver._lower_priority()
    assert lowered == [19, ("/proc/self/autogroup", "19")]
