"""Lines about files in a run's log: each file if there are few, some of many, and every file that is not whole."""

from assets.traces import row_logger
from pipelines.readers.inputs.kinds import TraceRow


def test_of_many_files_some_are_logged_and_all_that_are_not_whole() -> None:
    lines: list[str] = []
    tell = row_logger(lines.append)
    for number in range(1, 201):
        tell(TraceRow(f"{number}.json", {60: "rejected", 61: "partial"}.get(number, "ok")))
    assert lines[:50] == [f"ok {number}.json" for number in range(1, 51)]
    assert lines[50:] == [
        "rejected 60.json (60 files)",
        "partial 61.json (61 files)",
        *(f"ok {number}.json ({number} files)" for number in (100, 150, 200)),
    ]
