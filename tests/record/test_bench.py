"""What a recorder costs, as the command measures it."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from pipelines.record.bench import main


def test_one_pair_has_no_quartiles(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--pairs", "1"])
    assert "--pairs must be at least 2" in capsys.readouterr().err
