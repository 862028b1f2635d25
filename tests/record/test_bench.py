"""The cost of a recorder, as the command measures it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from pipelines.record.bench import main  # noqa: E402


def test_one_pair_has_no_quartiles(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--pairs", "1"])
    assert "--pairs must be at least 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "what"),
    [
        pytest.param(["--rate", "1"], "recorded, rate 1:", marks=pytest.mark.slow),  # a census imports torch._dynamo
        ([], "recorded, budget 1 %:"),
        (["--stacks", "100"], "recorded, stacks 100 times per second:"),
    ],
)
def test_the_smallest_measurement(options: list[str], what: str, capsys: pytest.CaptureFixture[str]) -> None:
    threads = str(torch.get_num_threads())  # main sets the number for the whole process
    main(["--pairs", "2", "--steps", "1", "--device", "cpu", "--threads", threads, *options])
    printed = capsys.readouterr().out
    assert "2 pairs of blocks of 1 steps" in printed and what in printed and "overhead: " in printed
    assert ("census steps: 1" in printed) == ("--rate" in options)
