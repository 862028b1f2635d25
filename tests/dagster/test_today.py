"""The fleet in the UI: the page of today, and charts that name their capture."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import dagster as dg
import pytest

from assets.pictures import pictures
from assets.today import today_page
from pipelines.faces.limiting_findings import LimitingFinding
from pipelines.faces.why import TABLES
from pipelines.lake import Batch, Lake
from pipelines.lake.read.damage import Broken, BrokenFiles
from pipelines.readers.ingest import ingest
from pipelines.record.folder import Recording
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.runs.store import open_store
from pipelines.synthetic import CaptureSpec, write_capture
from tests.faces.cli.test_pull_requests import trace
from tests.faces.report.test_pictures import drawn


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Return a lake with two captures and a rejected file.

    In the first capture one rank is late, in the newest no rank is.
    """
    folder = tmp_path_factory.mktemp("today")
    lake = Lake(folder / "lake")
    for seed, (job, straggler) in enumerate((("late", 1), ("even", None))):
        spec = CaptureSpec(ranks=2, steps=3, straggler=straggler, seed=seed)
        ingest(write_capture(spec, folder / job).paths, lake, job)
    (folder / "notes.txt").write_text("no trace")
    ingest([folder / "notes.txt"], lake)
    materialize_all(lake, ["rank_steps", "straggler_ranks"])
    return lake


def test_the_page_of_today(lake: Lake) -> None:
    result = dg.materialize([today_page], resources={"lake": lake, "store": open_store(lake)})
    (event,) = result.get_asset_materialization_events()
    metadata = {name: value.value for name, value in event.step_materialization_data.materialization.metadata.items()}
    assert (metadata["jobs"], metadata["captures"], metadata["files_not_read"]) == (2, 2, 1)
    assert "notes.txt was not read" in metadata["what"]
    page = Path(str(metadata["page"])).read_text()
    assert "late" in page and "even" in page and "notes.txt" in page
    assert [path.name for path in (lake.root / "pages").iterdir()] == ["fleet.html"]


def test_what_limits_the_newest_captures_stands_on_the_page_and_beside_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Findings that limit the newest captures are on the page and in its metadata.

    tests/faces/cli/test_limiting_findings.py tests which captures' findings are shown.
    """
    missing = LimitingFinding(None, "job late", "missing_ranks", "warning", "a rank is missing")
    for findings, n in (([], 0), ([missing], 1)):
        monkeypatch.setattr("assets.today.findings_of_newest", lambda *_, findings=findings: findings)
        result = dg.materialize([today_page], resources={"lake": lake, "store": open_store(lake)})
        (event,) = result.get_asset_materialization_events()
        metadata = event.step_materialization_data.materialization.metadata
        assert ("caveats" in metadata) == bool(n)
        for text in (str(metadata.get("caveats")), Path(str(metadata["page"].value)).read_text()):
            assert text.count("job late: a rank is missing") == n


def test_pictures_are_of_the_newest_and_the_worst_capture_by_name(lake: Lake) -> None:
    newest, worst = pictures(lake, "rank_steps")
    assert newest.startswith("ranks by steps of the newest capture, even ")
    assert worst.startswith("ranks by steps of the worst capture, late ")


def test_a_damaged_file_of_another_day_is_named_in_place_of_the_picture(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged file of another day is named in place of the chart.

    Large tables that the chart does not show, such as `events`, are not opened.
    """
    opened: list[str] = []

    def connect(_: Lake, tables: tuple[str, ...]) -> NoReturn:
        opened.extend(tables)
        raise BrokenFiles([Broken("causes", Batch("20260101T000000"), Path("causes.parquet"), "is missing")])

    monkeypatch.setattr(Lake, "connect", connect)
    monkeypatch.setattr(Lake, "committed_files", lambda *_: ["causes.parquet"])
    for table in ("critical_path", "span_utilization"):
        (entry,) = pictures(lake, table).values()
        assert str(entry.value).startswith("causes.parquet: is missing")
    assert {*opened} == {"traces", "spans", "span_utilization", *TABLES}


@pytest.mark.slow  # 5 s
def test_what_limits_the_answer_to_why_stands_beside_it(tmp_path: Path) -> None:
    path = trace(tmp_path, "twice.json", 100)
    path.write_text(json.dumps({"traceEvents": json.loads(path.read_text())["traceEvents"] * 2}))
    lake = Lake(tmp_path / "lake")
    ingest([path], lake)
    materialize_all(lake, [*TABLES, "critical_path"])
    (row,) = str(pictures(lake, "critical_path")["why"].value).splitlines()[2:]
    assert "twice.json" in row and "the GPU computes" in row and "rows of GPU work repeat another one" in row


@pytest.mark.slow  # a run; tests/faces/report/test_without_time.py tests the charts themselves
def test_modules_of_recordings_are_drawn_where_they_are_ingested(
    run: Callable[..., dg.ExecuteInProcessResult], tmp_path: Path
) -> None:
    """Charts of a recording's modules are in the metadata of its ingestion.

    Each module computes one product of 2^31 operations in 4.341 us, which is half of the peak. The first step is a
    census.
    """
    for rank in (0, 1):
        recording = Recording(tmp_path / "in", "spans", "r", 1, rank)
        places = [(step, place, name) for step in (0, 7) for place, name in enumerate("abc")]
        recording.add("span_samples", [{"step": step, "span_id": place, "depth": 1, "name": name, "class": "Linear", "phase": "forward", "is_failed": False, "clock": "cuda", "duration_ns": 4341, "is_census": step == 0} for step, place, name in places])  # fmt: skip
        types = '["c10::BFloat16", "c10::BFloat16"]'
        call = {"op": "aten::mm", "dims": "[[1024, 1024], [1024, 1024]]", "types": types, "concrete": '["", ""]'}
        counts = {"step": 0, "n_calls": 1, "n_calls_own": 1, "n_calls_recompute": 0}
        recording.add("span_sample_operators", [{**call, **counts, "span_id": place} for place in range(3)])
        recording.close(source="cuda", device="cuda:0", device_name="NVIDIA H100 80GB HBM3", device_sms=132, device_memory_bytes=85 << 30)  # fmt: skip
    result = run([tmp_path / "in"], only=())
    (event,) = (e for e in result.asset_materializations_for_node("ingest") if e.asset_key == dg.AssetKey("span_samples"))  # fmt: skip
    cells, utilization = (name for name in event.metadata if "of modules" in name)
    assert (cells, utilization) == (
        "time of modules by rank, run r",
        "utilization of modules in forward, run r, rank 0",
    )
    titles = drawn(event.metadata[cells])
    assert titles == [f"rank {rank}, {name}: 0.004 ms per sampled step" for rank in (0, 1) for name in "abc"]
    lake = Lake(tmp_path / "lake")
    (file,) = lake.committed_files("span_sample_operators")
    file.unlink()
    assert [*pictures(lake, "span_samples")] == ["not_drawn"]
