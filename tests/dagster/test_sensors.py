"""The sensor of the watched folder.

New files start one run, and files that are known or still being written start none.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest

from dagster_project import sensors
from dagster_project.definitions import defs
from dagster_project.runs_in_progress import PURPOSE_TAG
from dagster_project.sensors import daily, daily_schedule, new_trace_files, trace_file_sensor
from pipelines.lake import Lake
from pipelines.lake.commit.ingested_files import Outcome, settle, state_of
from pipelines.lake.commit.sensor_lists import FOLDER, KEPT_RUNS, ListGone, clean, files_of, put_files
from pipelines.lake.publish.analyst_file import publish
from pipelines.readers.ingest import ingest
from pipelines.runs.store import open_store
from tests.dagster.tiny import age, write_trace


@pytest.fixture(autouse=True)
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Return the lake that the sensor reads."""
    monkeypatch.setenv("TRACELAKE_LAKE", str(tmp_path / "lake"))
    return Lake(tmp_path / "lake")


def files(lake: Lake, request: dg.RunRequest) -> list[Path]:
    return files_of(lake, request.run_config["ops"]["ingest"]["config"]["file_list"])


def tick(cursor: str | None = None) -> tuple[list[dg.RunRequest], str | None]:
    context = dg.build_sensor_context(cursor=cursor, definitions=defs)
    answer = new_trace_files(context)
    return (list(answer.run_requests or []), answer.cursor) if isinstance(answer, dg.SensorResult) else ([], cursor)


def test_one_run_for_new_files_and_none_the_second_time(inbox, lake) -> None:
    written = [age(write_trace(inbox / f"rank{n}.json", n)) for n in range(2)]
    requests, cursor = tick()
    assert len(requests) == 1
    assert files(lake, requests[0]) == written
    assert tick(cursor) == ([], cursor)


def test_a_file_that_is_still_written_waits(inbox) -> None:
    write_trace(inbox / "rank0.json")
    assert tick() == ([], None)


def test_later_files_are_another_batch(inbox, lake) -> None:
    age(write_trace(inbox / "rank0.json"))
    first, cursor = tick()
    late = age(write_trace(inbox / "rank1.json", 1))
    second, _ = tick(cursor)
    assert files(lake, second[0]) == [late]
    assert first[0].run_key != second[0].run_key


def test_a_changed_file_runs_again(inbox) -> None:
    file = age(write_trace(inbox / "rank0.json"))
    first, cursor = tick()
    age(write_trace(file, 7), 30)
    second, _ = tick(cursor)
    assert [r.run_key for r in first] != [r.run_key for r in second]
    assert len(second) == 1


def test_the_watched_folder_is_observed_when_it_changes(inbox) -> None:
    sensor = trace_file_sensor()

    def seen() -> list[int]:
        answer = sensor(dg.build_sensor_context(definitions=defs))
        events = answer.asset_events if isinstance(answer, dg.SensorResult) else []
        return [event.metadata["files"].value for event in events if event.asset_key == dg.AssetKey("trace_files")]

    assert seen() == [0] and seen() == []
    write_trace(inbox / "rank0.json")  # not quiet yet, but present
    assert seen() == [1] and seen() == []


def test_no_inbox(monkeypatch) -> None:
    monkeypatch.delenv("TRACELAKE_INBOX", raising=False)
    assert tick() == ([], None)


def test_daily_schedule_asks_for_the_day() -> None:
    from datetime import UTC, datetime

    context = dg.build_schedule_context(scheduled_execution_time=datetime(2026, 1, 2, 0, 30, tzinfo=UTC))
    request = daily(context)
    assert isinstance(request, dg.RunRequest)
    assert request.partition_key == "2026-01-02"


@dg.job(name="ingest_and_analyse")
def namesake() -> None:
    """Do nothing, under the name of the watched job."""


@pytest.mark.slow  # 3 s; test_for_fleet.py tests the requests of a run
def test_daily_reruns_an_earlier_day_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`daily` also requests a run of an earlier day that failed.

    The run of `daily` covers only its own day, and the sensor may be off.
    """
    from datetime import UTC, datetime

    monkeypatch.setattr(sensors, "DAYS", dg.DailyPartitionsDefinition("2026-01-01", timezone="UTC", end_offset=1))
    at = datetime(2026, 1, 3, 0, 30, tzinfo=UTC)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        for day in ("2026-01-02", "2026-01-03"):
            run = instance.create_run_for_job(namesake, tags={"dagster/partition": day})
            instance.report_run_failed(run)
        later = sensors.time.time() + 60
        monkeypatch.setattr(sensors.time, "time", lambda: later)
        requests = daily(dg.build_schedule_context(instance=instance, scheduled_execution_time=at))
    assert isinstance(requests, list)
    assert [request.partition_key for request in requests] == ["2026-01-03", "2026-01-02"]
    assert requests[0].run_config == {} and requests[1].run_config["ops"]["ingest"]["config"] == {"files": []}


@pytest.mark.slow
def test_daily_asks_for_little_only_if_the_whole_job_would_find_nothing(inbox, lake) -> None:
    """`daily` requests only the page of today if the whole job would find no work.

    It requests the whole job after a new file, a rejected file, a failed run, or with unpublished tables.
    """
    from datetime import UTC, datetime

    at = datetime.now(UTC)
    with dg.DagsterInstance.local_temp(str(lake.root.parent)) as instance:

        def is_whole() -> bool:
            context = dg.build_schedule_context(instance=instance, scheduled_execution_time=at)
            request = daily_schedule(str(lake.root))(context)
            assert isinstance(request, dg.RunRequest)
            if PURPOSE_TAG in request.tags:
                assert "ops" not in request.run_config
                return True
            keys = {key.to_user_string() for key in request.asset_selection or ()}
            assert keys == {"traces", "rejects", "fleet_today"}
            assert request.run_config["ops"]["ingest"]["config"] == {"files": []}
            return False

        assert is_whole()  # nothing was ever published
        ingest([write_trace(inbox / "rank0.json")], lake)
        publish(lake)
        assert not is_whole()
        other = write_trace(inbox / "rank1.json", 1)
        assert is_whole()
        settle(lake, {other: Outcome(state_of(other), "known")})
        assert not is_whole()
        settle(lake, {other: Outcome(state_of(other), "rejected")})
        assert is_whole()
        other.unlink()
        assert not is_whole()
        tags = {"dagster/partition": f"{at:%Y-%m-%d}"}
        failed = instance.create_run_for_job(namesake, status=dg.DagsterRunStatus.FAILURE, tags=tags)
        assert is_whole()
        instance.delete_run(failed.run_id)
        assert not is_whole()
        (lake.root / "analyst.duckdb").unlink()
        assert is_whole()


def test_cursor_and_configuration_stay_small_however_many_files_wait(inbox, lake, monkeypatch) -> None:
    monkeypatch.setattr(sensors, "MAX_FILES", 300)
    folder = inbox / ("a folder with a long name, as jobs have them " * 4)
    folder.mkdir()
    for n in range(700):
        age(write_trace(folder / f"rank{n}.json", n))
    cursor, asked = None, []
    for _ in range(3):
        requests, cursor = tick(cursor)
        assert cursor and len(cursor) < 100 and len(json.dumps(requests[0].run_config)) < 200
        assert sum(map(len, requests[0].tags.values())) < 50
        asked += files(lake, requests[0])
    assert sorted(asked) == sorted(folder.iterdir())
    assert tick(cursor) == ([], cursor)
    names = sorted(path.name.partition("-")[0] for path in (lake.root / FOLDER).iterdir())
    assert names == ["asked", "run", "run", "run"]


def test_a_tick_that_was_killed_leaves_what_was_asked_as_it_was(inbox, lake) -> None:
    age(write_trace(inbox / "rank0.json"))
    _, cursor = tick()
    age(write_trace(inbox / "rank1.json", 1))
    first, _ = tick(cursor)  # Dagster did not store this cursor
    (lake.root / FOLDER / "asked-1.part").write_text("{")
    second, after = tick(cursor)
    assert [r.run_key for r in first] == [r.run_key for r in second]
    assert tick(after)[0] == []
    assert len(list((lake.root / FOLDER).glob("asked-*"))) == 1


@pytest.mark.parametrize("damage", ["", "{}", '{"content": {}, "sum": ""}', None])
def test_what_was_asked_is_lost(inbox, lake, damage: str | None) -> None:
    """If the record of the requested files is lost or damaged, the files are requested again.

    The new request has a key that Dagster has not seen.
    """
    age(write_trace(inbox / "rank0.json"))
    first, cursor = tick()
    (path,) = (lake.root / FOLDER).glob("asked-*")
    path.unlink() if damage is None else path.write_text(damage)
    again, _ = tick(cursor)
    assert files(lake, again[0]) == files(lake, first[0])
    assert again[0].run_key != first[0].run_key


def test_lists_of_old_runs_are_removed(lake) -> None:
    names = [put_files(lake, f"{n}", [Path(f"/{n}")]) for n in range(KEPT_RUNS + 3)]
    clean(lake, None)
    assert files_of(lake, names[-1]) == [Path(f"/{KEPT_RUNS + 2}")]
    assert len(list((lake.root / FOLDER).iterdir())) == KEPT_RUNS
    with pytest.raises(ListGone, match="is missing; start a run without it"):
        files_of(lake, names[0])
    (lake.root / FOLDER / f"{names[-1]}.json").write_text("{")
    with pytest.raises(ListGone, match="damaged"):
        files_of(lake, names[-1])


def test_daily_reads_what_is_new_changed_or_rejected(inbox, lake) -> None:
    """`daily` reads files that are new, changed or rejected.

    It skips files that are in the lake already, because hashing the whole folder takes longer as it grows.
    """
    from assets.traces import _watched

    first, second = write_trace(inbox / "rank0.json"), write_trace(inbox / "rank1.json", 1)
    bad = inbox / "notes.txt"
    bad.write_text("no trace")
    assert sorted(_watched(lake, open_store(lake))) == sorted([first, second, bad])
    ingest([first, second, bad], lake)
    assert _watched(lake, open_store(lake)) == [bad]
    write_trace(second, 77)
    late = write_trace(inbox / "rank2.json", 2)
    assert sorted(_watched(lake, open_store(lake))) == sorted([bad, second, late])


def test_a_watched_folder_that_is_away_is_no_empty_one(
    inbox: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watched folder whose disk is not mounted does not count as empty.

    `daily` requests the whole job, which fails and names the folder.
    """
    from assets.engines import FilesConfig, ingest_units
    from assets.traces import _watched

    store = SimpleNamespace(shows_all=lambda: True, accounted_for=lambda _: set())
    monkeypatch.setattr(sensors, "open_store", lambda _: store)
    with dg.DagsterInstance.ephemeral() as instance:
        assert sensors._is_all_done(instance, str(lake.root))
        inbox.rmdir()
        assert not sensors._is_all_done(instance, str(lake.root))
    store = open_store(lake)
    with pytest.raises(dg.Failure, match=r"TRACELAKE_INBOX=.*/inbox is not a folder on this machine"):
        _watched(lake, store)
    with pytest.raises(dg.Failure, match=r"TRACELAKE_INBOX=.*/inbox is not a folder on this machine"):
        ingest_units(dg.build_op_context(), FilesConfig(), store)
    monkeypatch.delenv("TRACELAKE_INBOX")
    assert _watched(lake, store) == []  # files arrive in other ways
