"""Paths from users. A path that is not one on this machine is refused before a folder is created."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pipelines.base.paths import UnusablePath, local_path
from pipelines.faces.cli.app import app
from pipelines.faces.cli.options import lake_option
from pipelines.faces.cli.trace.slice import is_lake
from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.record.folder import Recording
from pipelines.schedule import run as schedule_run
from tests.effort import first_of
from tests.lake.world import write_trace

URLS = (
    "s3://bucket/lake",
    "gs://bucket/lake",
    "az://box/lake",
    "abfss://box@host/lake",
    "file:///data/lake",
    "n1:/lake",
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_trace(tmp_path / "a.json", 1)
    return tmp_path


def tracelake(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def assert_refused(said: Result, name: str) -> None:
    assert said.exit_code != 0
    assert isinstance(said.exception, SystemExit), said.exception  # no traceback
    assert name in said.output.replace("\n", "").replace(" ", "").replace("│", ""), said.output
    assert not [path for path in Path().iterdir() if ":" in path.name]


@pytest.mark.parametrize("url", URLS)
def test_a_lake_is_no_url(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_refused(tracelake("ingest", "a.json", "--lake", url), url)
    assert_refused(tracelake("sql", "SELECT 1", "--lake", url), url)
    monkeypatch.setenv("TRACELAKE_LAKE", url)
    assert_refused(tracelake("ingest", "a.json"), url)
    for address in (url, Path(url)):  # a Path has lost one of the slashes
        with pytest.raises(UnusablePath, match="not supported, only paths on this machine"):
            Lake(address)


def test_the_path_of_a_lake_has_no_question_mark(folder: Path) -> None:
    (folder / "run?1").mkdir()
    (folder / "linked").symlink_to(folder / "run?1")
    for lake in ("run?1/lake", "why?", "linked/lake"):
        assert_refused(tracelake("ingest", "a.json", "--lake", lake), "questionmark;renamethatfolder")
    assert not list((folder / "run?1").iterdir()) and not (folder / "why?").exists()
    assert not is_lake(folder / "run?1")  # a folder of traces may have that name


ADDRESS = "ducklake:sqlite:/data/catalog.sqlite?data=/data/files"


def test_what_needs_a_folder_refuses_a_ducklake_and_says_what_to_use() -> None:
    for words, reason, instead in (
        (("slice", "abc"), "address of a DuckLake", "omit --lake"),
        (("check", "--repair"), "are for a lake in a folder", "tracelake materialize"),
        (("check", "--rebuild"), "are for a lake in a folder", "tracelake materialize"),
    ):
        said = tracelake(*words, "--lake", ADDRESS)
        assert_refused(said, reason.replace(" ", ""))
        assert_refused(said, instead.replace(" ", ""))
    for address in (ADDRESS, Path(ADDRESS)):
        with pytest.raises(UnusablePath, match="open_tables"):
            Lake(address)


@pytest.mark.parametrize("home", ["/data/dagster", None])
def test_the_ui_of_an_address_keeps_dagsters_own_beside_it(
    home: str | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dagster", reason="the extra dagster is not installed")
    started: list[dict[str, str]] = []

    class Server:
        def __init__(self, command: list[str], cwd: Path, env: dict[str, str]) -> None:
            started.append(env)

        def wait(self) -> int:
            return 0

    monkeypatch.setattr("pipelines.faces.cli.lake.demo.subprocess.Popen", Server)
    monkeypatch.setattr("pipelines.faces.cli.lake.demo.signal.signal", lambda *_: None)
    monkeypatch.setenv("DAGSTER_HOME", home or "")
    for lake in (ADDRESS, "lake"):
        assert tracelake("ui", "--lake", lake).exit_code == 0
    assert [env["TRACELAKE_LAKE"] for env in started] == [ADDRESS, str(folder / "lake")]
    homes = [home or str(folder / ".dagster"), str(folder / "lake" / ".dagster")]
    assert [env["DAGSTER_HOME"] for env in started] == homes


def test_a_folder_may_be_called_so(folder: Path) -> None:
    (folder / "s3:").mkdir()
    assert local_path("./s3:/lake") == Path("s3:/lake")
    assert Lake(Path("s3:/lake")).root == folder / "s3:" / "lake"
    assert [local_path(name) for name in ("a:b", "C:/x", "2026-11-21T05:30/x")] == [
        *(Path("a:b"), Path("C:/x"), Path("2026-11-21T05:30/x"))
    ]


OUTPUTS = (
    ("critical-path", "a.json", "--edges"),
    ("critical-path", "a.json", "--save"),
    ("critical-path", "a.json", "--execution-trace"),
    ("overlay", "a.json", "--out"),
    ("report", "a.json", "--out"),
    ("gantt", "x", "--out"),
    ("stragglers", "a.json", "--out"),
    ("stragglers", "a.json", "--roles"),
    ("op-job", "a.json", "--out"),
    ("op-job", "a.json", "--meta"),
    ("what-if", "a.json", "--remove", "x", "--redraw"),
    ("what-if", "a.json", "--scenario"),
    ("demo", "a.json", "--folder"),
)


@pytest.mark.parametrize("words", OUTPUTS, ids=lambda words: f"{words[0]} {words[-1]}")
def test_what_is_read_and_written_is_no_url(words: tuple[str, ...]) -> None:
    assert_refused(tracelake(*words, "s3://bucket/x"), "s3://bucket/x")


def test_a_url_among_files_is_named_and_the_rest_goes_in(folder: Path) -> None:
    report = ingest(["s3://bucket/rank0.json.gz", "a.json"], Lake("lake"))
    assert [row.status for row in report.rows] == ["rejected", "ok"]
    assert "s3:// is not supported" in (report.rejected[0].reason or "")
    assert_refused(tracelake("critical-path", "s3://bucket/rank0.json.gz", "--lake", "lake"), "rank0.json.gz")
    assert_refused(tracelake("flight-recorder", "s3://bucket/x"), "s3://bucket/x")


def test_a_folder_that_contains_the_lake_is_read_without_it(folder: Path) -> None:
    for _ in range(2):
        done = tracelake("ingest", folder, "--lake", "lake", "--json")
        assert [Path(row["path"]).name for row in json.loads(done.stdout)] == ["a.json"] and done.exit_code == 0
    assert tracelake("ingest", "lake/catalog.sqlite", "--lake", "lake").exit_code == 1


def test_recordings_and_runs_go_to_this_machine(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    with pytest.raises(ValueError, match="s3://bucket/x is not a folder on this machine"):
        Recording("s3://bucket/x", "counters", None, 1, None)
    with pytest.raises(SystemExit):
        schedule_run.main(["--plan", "mlp", "--device", "simulated", "--out", "s3://bucket/x"])
    assert "s3://bucket/x is not a folder on this machine" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        schedule_run.main(["--plan", "mlp", "--device", "simulated", "--out", "a.json/x"])
    assert "Not a directory" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["a.json"]


def test_a_lake_is_a_folder(folder: Path) -> None:
    (folder / "link").symlink_to(folder / "unmounted")
    for lake, reason in (("a.json", "a.jsonisafile"), ("link", "unmounted,whichdoesnotexist")):
        for words in (("ingest", "a.json"), ("sql", "SELECT 1"), ("materialize",), ("breakdown",)):
            assert_refused(tracelake(*words, "--lake", lake), reason)
    assert_refused(tracelake("ingest", "a.json", "--lake", "a.json/lake"), "Notadirectory")
    assert not (folder / "unmounted").exists()


def test_a_lake_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refused)
    said = tracelake("ingest", "a.json", "--lake", "lake")
    assert_refused(said, "Permissiondenied")
    assert said.stderr.startswith("error: /") and "Traceback" not in said.stderr


@pytest.mark.parametrize(
    ("command", "option"),
    first_of([("overlay", "--out"), ("critical-path", "--edges"), ("critical-path", "--save")], 1),
)
def test_answers_that_cannot_be_written_name_the_file(command: str, option: str) -> None:
    said = tracelake(command, "a.json", option, "a.json/x")
    assert_refused(said, "a.json/x" if command == "overlay" else "a.json")


@pytest.mark.parametrize("pattern", ["rank(", r"rank\d+"])
def test_a_pattern_for_ranks_that_cannot_be_used(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACELAKE_RANK_PATTERN", pattern)
    assert_refused(tracelake("ingest", "a.json"), f"TRACELAKE_RANK_PATTERN={pattern}")


def test_the_inbox_says_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dagster", reason="the extra dagster is not installed")
    from assets.traces import INBOX, no_inbox

    for value, reason in (("s3://bucket", "is not a folder on this machine"), ("", "is not set")):
        monkeypatch.setenv(INBOX, value)
        assert reason in no_inbox()


def test_json_stays_on_stdout() -> None:
    assert json.loads(tracelake("tables", "kernels", "--json").stdout)


@pytest.mark.parametrize(
    ("of_shell", "lake", "expected"),
    [
        ("", "lake", []),
        ("", "other", ["--lake", "other"]),
        ("/data/lake", "/data/lake", []),
        ("/data/lake", "lake", ["--lake", "lake"]),
    ],
)
def test_printed_commands_name_the_lake_unless_the_shell_does(
    of_shell: str, lake: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACELAKE_LAKE", of_shell)
    assert lake_option(["3f2a"], Path(lake)) == expected
