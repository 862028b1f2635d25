"""Alerts about new findings. Each finding is posted to a webhook once, and again only if the message did not arrive."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import duckdb
import pytest

from assets.checks import findings_checks
from assets.metadata import Span, today
from assets.today import today_page
from dagster_project import alerts
from dagster_project.alerts import FORMAT, WEBHOOK, alert_sensors, notify_new
from pipelines.fleet.trends.findings import Finding, NotificationFailed, findings, post
from pipelines.fleet.trends.fleet_today import MOST, Fleet, fleet_today
from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import publish
from pipelines.lake.publish.contents import no_row
from pipelines.lake.status import status
from pipelines.models.questions import rejected_files
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_capture import materialize_captures
from pipelines.runs.store import open_store
from pipelines.synthetic import CaptureSpec, write_capture
from tests.dagster.tiny import write_trace
from tests.lake import world


class Hook:
    """A webhook on this machine.

    `takes`: how many messages it accepts before it answers 503. `refuses`: messages with this text are answered with
    400. `redirects`: the status with which messages are redirected to another path of the webhook, 0 for none.
    """

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.takes, self.refuses, self.redirects = 1000, "\0", 0
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.takes -= 1
                status = 503 if hook.takes < 0 else 400 if hook.refuses.encode() in body else 200
                if status == 200:
                    hook.got.append(json.loads(body))
                self.send_response(hook.redirects or status)
                if hook.redirects:
                    self.send_header("Location", "/services/moved")
                self.end_headers()

            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/services/secret"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def hook() -> Iterator[Hook]:
    hook = Hook()
    yield hook
    hook.server.shutdown()
    hook.server.server_close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a published `lake`, which has a capture and a rejected file."""
    folder = tmp_path_factory.mktemp("whole")
    lake = Lake(folder / "lake")
    (folder / "old.json").write_text("{<")
    files = write_capture(CaptureSpec(ranks=1, steps=1), folder / "capture").paths
    ingest([*files, folder / "old.json"], lake)
    publish(lake)
    return folder


@pytest.fixture
def lake(whole: Path) -> Iterator[Lake]:
    """Yield the lake of `whole`, and restore it afterwards."""
    with world.kept(whole) as lake:
        yield lake


def reject(lake: Lake, folder: Path, *names: str) -> None:
    files = [folder / f"{name}.json" for name in names]
    for file in files:
        file.write_text("{<")
    ingest(files, lake)


def test_new_findings_are_told_once(hook: Hook, lake: Lake, tmp_path: Path) -> None:
    first = notify_new(open_store(lake), None, hook.url)
    # the file that was rejected before is a known finding
    assert (first.posted, hook.got, len(first.keys)) == (0, [], 1)
    reject(lake, tmp_path, "new")
    second = notify_new(open_store(lake), first.keys, hook.url)
    (message,) = hook.got
    assert message["kind"] == "rejected" and message["says"].startswith("new.json was not read: ")
    assert notify_new(open_store(lake), second.keys, hook.url) == (second.keys, 0, "") and len(hook.got) == 1


def put_summary(lake: Lake) -> None:
    """Store an empty `capture_summary`, which takes less time than computing one."""
    batch = lake.batches("captures")[-1]
    staged = lake.staging(batch) / "summary.parquet"
    duckdb.sql(f"{no_row(lake.catalog(), 'capture_summary')} WHERE false").write_parquet(str(staged))
    lake.put("capture_summary", batch, staged)


@pytest.mark.slow  # 4 s
def test_after_an_upgrade_findings_are_kept_until_they_are_known_again(hook: Hook, lake: Lake) -> None:
    """Known findings are kept after an upgrade until the tables that contain findings are computed.

    Other findings are posted in the meantime.
    """
    materialize_captures(lake, ["captures"])
    first = notify_new(open_store(lake), {"of a regression"}, hook.url)
    assert "of a regression" in first.keys and (first.posted, len(first.keys)) == (1, 2)
    assert [message["kind"] for message in hook.got] == ["rejected"]
    put_summary(lake)
    second = notify_new(open_store(lake), first.keys, hook.url)
    assert (second.keys, second.posted) == (first.keys - {"of a regression"}, 0)


def test_what_did_not_arrive_is_told_the_next_time(hook: Hook, lake: Lake, tmp_path: Path) -> None:
    reject(lake, tmp_path, "a", "b", "c")
    hook.takes = 2
    delivery = notify_new(open_store(lake), set(), hook.url)
    assert (delivery.posted, len(delivery.keys)) == (2, 2)
    assert "127.0.0.1" in delivery.failed and "HTTP 503" in delivery.failed
    assert "secret" not in delivery.failed  # anyone who knows the address can post
    hook.takes = 1000
    again = notify_new(open_store(lake), delivery.keys, hook.url)
    assert again.posted == 2 and len({message["says"] for message in hook.got}) == 4 == len(hook.got)


@pytest.mark.slow  # 4 s; tests/lake/test_superseded.py has the row in `rejects`
def test_a_truncated_file_whose_whole_came_is_no_file_that_was_not_read(hook: Hook, lake: Lake, tmp_path: Path) -> None:
    """A truncated file is not reported as unread once the complete file was ingested.

    The truncated file has a row in `rejects`, which names the file that superseded it.
    """
    whole = world.write_trace(tmp_path / "job" / "rank0.json", 1, n=12, distributedInfo={"rank": 0, "world_size": 1})
    content = whole.read_bytes()
    whole.write_bytes(content[: len(content) * 3 // 5])
    assert ingest([whole], lake).rows[0].status == "partial"
    whole.write_bytes(content)
    assert ingest([whole], lake).rows[0].status == "ok"
    notify_new(open_store(lake), set(), hook.url)
    (message,) = hook.got
    assert message["says"].startswith("old.json was not read: ")
    with open_store(lake).analyst() as con:
        assert con.execute("SELECT count(*) FROM rejects").fetchall() == [(2,)]
        assert fleet_today(con).n_rejects == 1
    (evaluate,) = (evaluate for spec, evaluate in findings_checks() if spec.name == "nothing_rejected")
    store = open_store(lake)
    with store.rows() as rows:
        assert evaluate(rows, Span(frozenset(), ""), store).metadata["rejected"].value == 1


def test_a_file_that_was_ingested_since_is_not_rejected(tmp_path: Path) -> None:
    """A rejected file that was ingested later is not reported.

    It was still being copied when it was rejected, or its unit failed. Of two failed attempts the reason of the newer
    one counts.
    """
    (evaluate,) = (evaluate for spec, evaluate in findings_checks() if spec.name == "nothing_rejected")
    lake, file = Lake(tmp_path / "lake"), tmp_path / "rank0.json"
    store, reasons = open_store(lake), []

    def open_rejects() -> list[str]:
        with lake.connect(["traces", "rejects"]) as con, store.rows() as rows:
            files = con.execute(f"SELECT reason FROM {rejected_files(con)}").fetchall()
            checked = evaluate(rows, Span(frozenset({today()}), ""), store).metadata["rejected"].value
        assert status(lake, None).rejected_last_day == checked == len(files)
        return [reason for (reason,) in files]

    for content in (b"\0" * 4096, b"no trace at all"):
        file.write_bytes(content)
        reasons += [[row.reason for row in ingest([file, tmp_path / "away.json"], lake).rejected]]
    assert reasons[0] != reasons[1] and sorted(open_rejects()) == sorted(reasons[1])
    write_trace(file)
    ingest([file], lake)
    assert open_rejects() == [reason for reason in reasons[1] if reason in reasons[0]]
    file.write_bytes(b"[1, 2, 3]")  # the trace that was read before the file broke does not count
    (broken,) = ingest([file], lake).rejected
    assert broken.reason in open_rejects()
    write_trace(file, 1)
    ingest([file], lake)
    assert broken.reason not in open_rejects()
    file.write_bytes(b"[1, 2, 3]")
    for _ in range(2):  # rejected for the same reason, however often: one more row
        ingest([file], lake)
        assert broken.reason in open_rejects()
    with lake.connect(["rejects"]) as con:
        assert con.execute("SELECT count(*) FROM rejects WHERE reason = ?", [broken.reason]).fetchall() == [(2,)]


@pytest.mark.slow  # failed deliveries are tested above
def test_a_message_that_is_refused_does_not_hold_up_the_others(hook: Hook, lake: Lake, tmp_path: Path) -> None:
    """A message that the webhook refuses does not hold up the other messages.

    Other failures, such as a webhook that is down, do stop the delivery. They are tested above.
    """
    reject(lake, tmp_path, "a", "b")
    hook.refuses = "b.json"  # the middle finding
    delivery = notify_new(open_store(lake), set(), hook.url)
    assert (delivery.posted, len(delivery.keys), len(hook.got)) == (2, 2, 2) and "HTTP 400" in delivery.failed


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_webhook_that_redirects_has_not_taken_the_message(hook: Hook, status: int) -> None:
    """A message that the webhook redirects counts as not delivered.

    A client that follows 301, 302 or 303 turns the POST into a GET without the message.
    """
    hook.redirects = status
    with pytest.raises(NotificationFailed) as failed:
        post(hook.url, Finding("rejected", "a", "a"))
    assert str(failed.value) == (
        f"the webhook at 127.0.0.1 did not accept the message: HTTP {status}: it redirects, and the address has to be the one "
        "it redirects to"
    )


def test_many_findings_are_told_over_several_ticks_each_once(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many findings are posted over several ticks, each once.

    There are more findings than a page lists, and the webhook takes a second for each. Dagster aborts a tick after 60
    s.
    """
    staged = tmp_path / "rejects.parquet"  # because ingesting as many files takes seconds
    empty_row = f"({no_row(lake.catalog(), 'rejects')}) AS r"
    rows = duckdb.sql(
        f"SELECT r.* REPLACE ('/in/' || n AS path, 'cut' AS reason) FROM {empty_row}, range({MOST + 5}) AS t(n)"
    )
    rows.write_parquet(str(staged))
    lake.put("rejects", lake.new_batch(), staged)
    clock, got = count(), list[Finding]()
    monkeypatch.setattr(alerts, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(alerts, "post", lambda url, finding, form: got.append(finding))
    keys, posted, n_ticks = set[str](), 0, 0
    while (delivery := notify_new(open_store(lake), keys, "http://127.0.0.1")).posted:
        assert delivery.posted <= 20
        keys, posted, n_ticks = delivery.keys, posted + delivery.posted, n_ticks + 1
    assert posted == len(got) == len({finding.about for finding in got}) == MOST + 6 and n_ticks == 3


def test_a_model_that_fails_on_a_trace_is_one_finding() -> None:
    """A model that fails on a trace is one finding, however many tables need the model."""
    tables = [{"table_name": name, "model": "kernels", "trace_id": "3f", "reason": "odd"} for name in ("a", "b")]
    other = {"table_name": "a", "model": "kernels", "trace_id": "4a", "reason": "odd"}
    fleet = Fleet(**{**dict.fromkeys(Fleet.__dataclass_fields__, ()), "failures": [*tables, other]})
    assert [finding.says for finding in findings(fleet)] == [
        f"tables lack a trace: the model kernels failed on {trace}: odd" for trace in ("3f", "4a")
    ]


def test_slack_takes_text(hook: Hook) -> None:
    post(hook.url, Finding("rejected", "a<b>&c \x1b[2J", "a"), "slack")
    assert (
        hook.got[0].keys() == {"text"}
        and "a&lt;b&gt;&amp;c" in hook.got[0]["text"]
        and "\x1b" not in hook.got[0]["text"]
    )
    with pytest.raises(NotificationFailed, match="the webhook at an address without a host"):
        post("nonsense", Finding("rejected", "a", "a"))


def test_the_sensor(hook: Hook, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sensor = alert_sensors(str(lake.root))[0]
    monkeypatch.delenv(WEBHOOK, raising=False)
    skipped = sensor(dg.build_sensor_context())
    assert isinstance(skipped, dg.SkipReason) and WEBHOOK in (skipped.skip_message or "")
    monkeypatch.setenv(WEBHOOK, hook.url)
    first = sensor(dg.build_sensor_context())
    assert isinstance(first, dg.SensorResult) and first.cursor is not None
    reject(lake, tmp_path, "new")
    second = sensor(dg.build_sensor_context(cursor=first.cursor))
    assert isinstance(second, dg.SensorResult) and len(hook.got) == 1
    monkeypatch.setenv(FORMAT, "teams")
    with pytest.raises(ValueError, match="set it to json or slack"):
        sensor(dg.build_sensor_context(cursor=second.cursor))


def test_the_first_files_of_a_new_lake_are_told_if_they_are_rejected(
    hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejected files are posted although the lake has no traces yet."""
    monkeypatch.setenv(WEBHOOK, hook.url)
    lake = Lake(tmp_path / "lake")
    sensor = alert_sensors(str(lake.root))[0]
    empty = sensor(dg.build_sensor_context())
    assert isinstance(empty, dg.SensorResult) and empty.cursor == "[]"
    away = sensor(dg.build_sensor_context(cursor='["a finding"]'))  # the disk of the lake is not mounted
    assert isinstance(away, dg.SensorResult) and away.cursor == '["a finding"]'
    reject(lake, tmp_path, "new")
    assert isinstance(sensor(dg.build_sensor_context(cursor=empty.cursor)), dg.SensorResult)
    (message,) = hook.got
    assert message["says"].startswith("new.json was not read: ")
    page = today_page(lake=lake, store=open_store(lake))
    assert isinstance(page, dg.MaterializeResult) and page.metadata and page.metadata["files_not_read"] == 1


def test_a_failed_run_is_told(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WEBHOOK, hook.url)

    @dg.op
    def fails() -> None:
        raise RuntimeError("disk full")

    @dg.job
    def doomed() -> None:
        fails()

    with dg.DagsterInstance.ephemeral() as instance:
        result = doomed.execute_in_process(instance=instance, raise_on_error=False)
        context = dg.build_run_status_sensor_context(
            sensor_name="tell_failed_runs", dagster_event=result.get_run_failure_event(), dagster_instance=instance,
            dagster_run=result.dagster_run,
        ).for_run_failure()  # fmt: skip
        alert_sensors()[1](context)
    (message,) = hook.got
    assert message["kind"] == "failed_run" and result.run_id in message["says"] and "doomed" in message["says"]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://x/secret a", "it is not an http:// or https:// address"),
        ("http://[bad/secret", "it is not an http:// or https:// address"),
        ("http://127.0.0.1:1/secret", "Connection refused"),
        ("ftp://x/secret", ""),
    ],
)
def test_an_address_that_does_not_work_is_not_shown(url: str, reason: str) -> None:
    with pytest.raises(NotificationFailed, match="the webhook at") as failed:
        post(url, Finding("rejected", "a", "a"))
    assert "secret" not in str(failed.value) and reason in str(failed.value)
