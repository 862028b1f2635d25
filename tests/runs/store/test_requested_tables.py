"""Messages about a lake without the requested tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.lake import Lake
from pipelines.runs.store.requested_tables import NoTraces, requested_tables


def test_the_command_that_is_printed_works_in_a_folder_with_a_blank(tmp_path: Path) -> None:
    with pytest.raises(NoTraces) as raised:
        requested_tables(Lake(tmp_path / "my lake"), ["kernels"])
    assert raised.value.hint.endswith(f"--lake '{tmp_path}/my lake'")
