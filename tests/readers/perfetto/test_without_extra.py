"""If the package is not installed, a Perfetto trace is rejected with the command that installs it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from pipelines.base import extras
from pipelines.readers.inputs.single_trace import load_trace
from pipelines.readers.kineto import TraceRejected
from tests.harness import memory


@pytest.mark.parametrize("name", ["a.pftrace", "a.pftrace.gz", "a.perfetto-trace"])
def test_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    (path := tmp_path / name).write_bytes(gzip.compress(b"\x0a\x02\x08\x01"))
    with pytest.raises(TraceRejected, match=r"needs perfetto.*-m pip install -e '/.*\[perfetto\]'$"):
        load_trace(memory(), path)
