"""New files start one run; files that are known or still being written start none."""

import dagster as dg

from dagster_project.definitions import defs
from dagster_project.sensors import daily, new_trace_files
from tests.dagster.conftest import age, write_trace


def tick(cursor: str | None = None) -> tuple[list[dg.RunRequest], str | None]:
    context = dg.build_sensor_context(cursor=cursor, definitions=defs)
    answer = new_trace_files(context)
    return (answer.run_requests, answer.cursor) if isinstance(answer, dg.SensorResult) else ([], cursor)


def test_one_run_for_new_files_and_none_the_second_time(inbox) -> None:
    files = [age(write_trace(inbox / f"rank{n}.json", n)) for n in range(2)]
    requests, cursor = tick()
    assert len(requests) == 1
    assert requests[0].run_config["ops"]["ingest"]["config"]["files"] == [str(f) for f in files]
    assert tick(cursor) == ([], cursor)


def test_a_file_that_is_still_written_waits(inbox) -> None:
    write_trace(inbox / "rank0.json")
    assert tick() == ([], None)


def test_later_files_are_another_batch(inbox) -> None:
    age(write_trace(inbox / "rank0.json"))
    first, cursor = tick()
    late = age(write_trace(inbox / "rank1.json", 1))
    second, _ = tick(cursor)
    assert second[0].run_config["ops"]["ingest"]["config"]["files"] == [str(late)]
    assert first[0].run_key != second[0].run_key


def test_a_changed_file_runs_again(inbox) -> None:
    file = age(write_trace(inbox / "rank0.json"))
    first, cursor = tick()
    age(write_trace(file, 7), 30)
    second, _ = tick(cursor)
    assert [r.run_key for r in first] != [r.run_key for r in second]
    assert len(second) == 1


def test_no_inbox(monkeypatch) -> None:
    monkeypatch.delenv("TRACELAKE_INBOX", raising=False)
    assert tick() == ([], None)


def test_daily_schedule_asks_for_the_day() -> None:
    from datetime import UTC, datetime

    context = dg.build_schedule_context(scheduled_execution_time=datetime(2026, 1, 2, 0, 30, tzinfo=UTC))
    request = daily(context)
    assert isinstance(request, dg.RunRequest)
    assert request.partition_key == "2026-01-02"
