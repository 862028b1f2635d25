"""The page of a report: its numbers match the lake and a simulated machine, and foreign names stay text.

A browser shows it without errors.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
import shutil
import struct
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from markupsafe import escape
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.faces.cli.refresh_tables import open_analyst
from pipelines.faces.report.page import page as page_of
from pipelines.faces.report.subject import CAPTURE_TABLES, TABLES, find_subject
from pipelines.lake import Lake
from pipelines.models.catalog import load_catalog
from pipelines.models.dry_run import types_of_tables
from pipelines.readers.ingest import ingest
from pipelines.synthetic import CaptureSpec, write_capture
from pipelines.synthetic.capture import Capture
from tests.faces.report.read_page import Page, report
from tests.faces.serve.browser import browser as driven
from tests.harness import call, kernel, op, x

SECTIONS = (
    "verdict",
    "steps",
    "kernels",
    "launches",
    "breakdown",
    "path",
    "spans",
    "utilization",
    "memory",
    "collectives",
    "stragglers",
    "quality",
)
CODES = ("gpu_compute_bound", "straggler_wait", "idle_host", "COMPUTATION", "gpu_kernel", "cuda_runtime")
"""Codes in tables that the page must replace by words."""


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Capture]:
    """Yield a capture whose job is named after its folder."""
    folder = tmp_path_factory.mktemp("capture") / "job <7>"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACELAKE_JOB_PATTERN", f"/({folder.name})/")
        yield write_capture(CaptureSpec(ranks=4, steps=4, straggler=2, seed=2), folder)


@pytest.fixture(scope="module")
def world(capture: Capture, tmp_path_factory: pytest.TempPathFactory) -> tuple[Page, Path]:
    """Return the page of a capture in a lake, and the lake."""
    folder = tmp_path_factory.mktemp("world")
    ingest(capture.paths, Lake(folder / "lake"))
    con = open_analyst(folder / "lake", [*TABLES, *CAPTURE_TABLES])
    ((capture_id,),) = con.execute("SELECT capture_id FROM captures").fetchall()
    con.close()
    return report(folder, capture_id[:10], "--lake", folder / "lake"), folder / "lake"


@pytest.mark.slow(together="report page")
def test_every_section_is_there(world: tuple[Page, Path]) -> None:
    page, _ = world
    assert set(SECTIONS) <= set(page.texts)
    assert "job <7>" in page.texts[""] and "4 of 4 ranks" in page.texts[""]
    assert "hangs" not in page.texts  # the job has no dumps
    assert "script" not in page.tags and not {"src", "onload"} & page.attributes
    assert page.links == [f"#{ident}" for ident in page.sections]  # the table of contents, and no link to another page


@pytest.mark.slow(together="report page")
def test_what_it_comes_to_is_on_top(world: tuple[Page, Path], capture: Capture) -> None:
    page, lake = world
    assert page.sections[:3] == ["verdict", "stragglers", "breakdown"]
    said = page.texts["verdict"]
    assert re.search(r"Rank 2 is a straggler: the other 3 ranks together wait [\d.]+ ms for it", said)
    assert said.index("rank 2 holds the others up") < said.index("What to do")
    assert re.search(r"the job would go on [\d.]+ ms sooner if only rank 2 were on time, [\d.]+ % of the span", said)
    # The gain of a finding is the gain that `why` prints for that rank.
    result = CliRunner().invoke(app, ["why", capture.ranks[2].path.name, "--lake", str(lake), "--json"])
    answer = json.loads(result.stdout)
    first = answer["causes"][0]
    before, after = answer["window"]["length_us"] / 1e3, (answer["window"]["length_us"] - first["cause_saves_us"]) / 1e3
    assert f"would take {after:.2f} ms instead of {before:.2f} ms" in said
    assert f"rank 2: {answer['sentence']}" in said
    capture_id = page.answer["capture"]["window"]["capture_id"]
    result = CliRunner().invoke(app, ["why", capture_id, "--lake", str(lake), "--json"])
    assert page.answer["capture"] == json.loads(result.stdout)
    assert said.startswith(f"In short{page.answer['capture']['sentence']}")


def assert_exposed_parts_add_up(page: Page, has_unmatched: bool = False) -> None:
    exposed = sum(int(row["exposed_communication_ns"] or 0) for row in page.rows("temporal_breakdown"))
    parts = {
        what: sum(ns for kind, ns in page.parts["breakdown"] if kind == f"exposed: {what}")
        for what in ("waiting for late ranks", "transfer", "waiting or transfer")
    }
    assert sum(parts.values()) == exposed and (parts["waiting or transfer"] > 0) == has_unmatched
    assert min(parts["waiting for late ranks"], parts["transfer"]) > 0
    costs = {kind: ns for kind, ns in page.parts["breakdown"] if kind in ("straggler_wait", "exposed_communication")}
    assert costs["exposed_communication"] == parts["transfer"]
    assert costs["straggler_wait"] >= parts["waiting for late ranks"]


@pytest.mark.slow(together="report page")
def test_exposed_communication_is_waiting_for_late_ranks_plus_transfer(world: tuple[Page, Path]) -> None:
    assert_exposed_parts_add_up(world[0])


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "has_unmatched"), [("dlrm_8", False), ("torchrec_unequal", True)])
def test_exposed_communication_of_real_captures_has_one_meaning(
    folder: str, has_unmatched: bool, shared: Path, tmp_path: Path
) -> None:
    """Parts of exposed communication add up on the pages of real captures.

    dlrm_8 has 46.9 ms of exposed communication, of which 1.61 ms are transfer. torchrec_unequal has calls without a
    partner.
    """
    assert_exposed_parts_add_up(report(tmp_path, shared / "traces" / "ranks" / folder), has_unmatched)


@pytest.mark.slow(together="report page")
def test_labels_are_words(world: tuple[Page, Path]) -> None:
    page, _ = world
    text = "".join(page.texts.values())
    for name in CODES:
        assert name not in text, name
    assert "waiting for late ranks" in text and "GPU computing" in text


@pytest.mark.slow(together="report page")
def test_times_are_those_of_the_simulated_machine(world: tuple[Page, Path], capture: Capture) -> None:
    page, _ = world
    rows = {int(row["rank"] or -1): row for row in page.rows("temporal_breakdown")}
    for rank in capture.ranks:
        truth, row = rank.truth.breakdown, rows[rank.rank]
        assert (row["span_ns"], row["communication_ns"]) == (str(truth.span_ns), str(truth.communication_ns))
        assert row["exposed_communication_ns"] == str(truth.exposed_communication_ns)
    parts = [value for kind, value in page.parts["breakdown"] if kind == "computing"]
    assert parts == [rank.truth.breakdown.compute_ns for rank in capture.ranks]
    path_parts = {(kind, value) for kind, value in page.parts["path"]}
    for rank in capture.ranks:
        assert {(kind, float(ns)) for kind, ns in rank.truth.full.bound_by.items() if ns} <= path_parts


@pytest.mark.slow(together="report page")
def test_the_straggler_is_named_and_taken_apart(world: tuple[Page, Path], capture: Capture) -> None:
    page, _ = world
    assert "straggler: rank 2" in page.texts["stragglers"]
    assert "Of rank 2, the straggler" in page.texts["spans"]
    ranks = {int(row["rank"] or -1): row for row in page.rows("straggler_ranks")}
    # Durations match the simulated waiting up to the skew with which ranks leave a collective (1 us each).
    for rank in capture.ranks:
        waited = int(ranks[rank.rank]["wait_ns"] or -1)
        assert waited == pytest.approx(rank.truth.collective_wait_ns, abs=1000 * capture.n_collectives)
        assert ranks[rank.rank]["n_last"] == str(rank.truth.arrived_last)


@pytest.mark.slow(together="report page")
@pytest.mark.parametrize(
    ("table", "query"),
    [
        ("step_pipeline", "SELECT step, duration_ns, comp_ns FROM step_pipeline JOIN traces USING (trace_id) WHERE rank = 2"),
        ("step_pipeline", "SELECT step, exposed_wait_ns, exposed_transfer_percent AS exposed_communication_percent FROM step_exposure WHERE rank = 2"),
        ("capture_costs", "SELECT gpu_ns FROM capture_costs WHERE gpu_ns IS NOT NULL"),
        ("straggler_ranks", "SELECT rank, wait_ns, caused_wait_ns, marginal_ns FROM straggler_ranks"),
        ("op_work_coverage", "SELECT n_ops, n_ops_modelled FROM op_work_coverage JOIN traces USING (trace_id) WHERE rank = 2"),
        ("critical_path_by_name", "SELECT p.n_events, duration_ns FROM critical_path_by_name AS p JOIN traces USING (trace_id) "
         "WHERE rank = 2 AND window_id = 'full' ORDER BY duration_ns DESC LIMIT 15"),
    ],
)  # fmt: skip
def test_numbers_are_the_lake_s(world: tuple[Page, Path], table: str, query: str) -> None:
    page, lake = world
    con = open_analyst(lake, [table])
    cursor = con.execute(query)
    names = [column[0] for column in cursor.description or ()]
    expected = sorted(tuple(map(str, row)) for row in cursor.fetchall())
    con.close()
    assert expected
    assert sorted(tuple(str(row[name]) for name in names) for row in page.rows(table)) == expected


@pytest.mark.slow(together="report page")  # tests/critical_path/test_names.py has a rank of a capture
def test_another_rank_can_be_asked_for(world: tuple[Page, Path], tmp_path: Path) -> None:
    _, lake = world
    con = open_analyst(lake, [])
    ((capture_id,),) = con.execute("SELECT capture_id FROM captures").fetchall()
    con.close()
    assert "Of rank 1, the one asked for" in report(tmp_path, capture_id, "--lake", lake, "--rank", 1).texts["spans"]
    result = CliRunner().invoke(app, ["report", capture_id, "--lake", str(lake), "--rank", "9"])
    assert result.exit_code == 1 and "there is no rank 9; the ranks are: rank 0, rank 1" in result.stderr
    result = CliRunner().invoke(app, ["report", "zz", "--lake", str(lake)])
    assert result.exit_code == 1 and "no trace id starts with 'zz'" in result.stderr


@pytest.mark.slow
def test_one_real_trace(shared: Path, tmp_path: Path) -> None:
    page = report(tmp_path, shared / "traces" / "single" / "h100_qwen.json.gz")
    reference = json.loads((shared / "golden" / "modelling" / "spans__h100_qwen.json").read_text())
    (step,) = [span for span in reference["spans"] if span["kind"] == "step"]
    (row,) = [row for row in page.rows("span_names") if row.get("window") is not None]
    assert row["host_ns"] == str(round(step["cpu_dur_us"] * 1000))
    assert row["window"] == str(round(step["window"]["busy_us"] * 1000))
    assert "not measured: there is only one rank" in page.texts["stragglers"]
    assert "Qwen2DecoderLayer_13" in page.texts["spans"] and "svg" in page.tags
    devices = json.loads((shared / "golden" / "modelling" / "memory_events.json").read_text())["h100_qwen"]["devices"]
    peaks = {
        f"({row['device_type']}, {row['device']})": row["peak_allocated_bytes"] for row in page.rows("memory_peaks")
    }
    assert peaks == {device: str(row["max_total_allocated"]) for device, row in devices.items()}
    (attention,) = (row for row in page.rows("op_shape_utilization") if row["gpu_ns"] == "2722705")
    assert (attention["n_ops"], round(float(attention["tflops"] or 0), 3)) == ("24", 90.258)


REAL = (
    *("traces/single/h100_qwen.json.gz", "traces/single/mi300_sglang_decode_graph.json.gz"),
    "traces/single/mi250_minitoy.json.gz",  # one of its steps has no path
)


@pytest.mark.slow  # 6 s each
@pytest.mark.parametrize("of", ["simulated", *REAL])
def test_of_a_file_it_is_that_of_its_trace_in_a_lake(
    of: str, world: tuple[Page, Path], capture: Capture, shared: Path, tmp_path: Path
) -> None:
    """The page of a file equals the page of its trace in a lake.

    Parts about captures, and data that the lake does not have, are empty in both pages.
    """
    file, lake = (capture.ranks[2].path, world[1]) if of == "simulated" else (shared / of, tmp_path / "lake")
    if of != "simulated":
        ingest([file], Lake(lake))
    report(tmp_path, file.name, "--lake", lake)
    of_lake = (tmp_path / "report.html").read_text()
    report(tmp_path, file)
    of_file = (tmp_path / "report.html").read_text()
    # Commands name the trace of the lake by its id.
    (trace_id,) = {*re.findall(r"what-if (\w+) ", of_lake)}
    named = escape(shlex.join(["what-if", str(file)]))
    assert of_file == of_lake.replace(f"what-if {trace_id}", named).replace(f" --lake {lake}", "")


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&lt;\u0000\x1b</svg></style>"


def put(con: duckdb.DuckDBPyConnection, table: str, **values: Any) -> None:
    """Insert a row into a table. Its other numbers are 0, and its other columns NULL."""
    kinds = con.execute(f"SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = '{table}'").fetchall()
    row = {name: 0 for name, kind in kinds if kind in ("BIGINT", "INTEGER", "DOUBLE")} | values
    con.execute(f"INSERT INTO {table} BY NAME SELECT {', '.join(f'? AS {name}' for name in row)}", list(row.values()))


@pytest.mark.slow  # 2 s; tests/runs/test_digest.py tests which tables a digest has
def test_a_page_of_a_digest_claims_nothing_about_what_is_gone() -> None:
    con = duckdb.connect()
    con.execute("; ".join(f"CREATE TABLE {table} ({', '.join(f'{column} {kind}' for column, kind in columns)})"
                          for table, columns in types_of_tables(load_catalog()).items()))  # fmt: skip
    put(con, "captures", capture_id="c0ffee", job="llama", n_ranks=2, is_gone=False)
    put(con, "capture_paths", capture_id="c0ffee", target="last_gpu_end", span_ns=7_980_000, gap_percent=12.3)
    for rank, trace in enumerate(("a", "b")):
        put(con, "traces", trace_id=trace, rank=rank, path=f"/x/{trace}.json", file=f"{trace}.json", status="ok")
        put(con, "findings", trace_id=trace, check_name="reduced_to_digest", severity="info", detail="kept since")
        put(con, "capture_ranks", capture_id="c0ffee", rank=rank, trace_id=trace)
        put(con, "temporal_breakdown", trace_id=trace, busy_ns=5)
        put(con, "straggler_ranks", capture_id="c0ffee", rank=rank, caused_wait_ns=900_000 * rank, caused_percent=100 * rank,
            is_straggler=rank == 1, agreement=1, culprit_uncertain=False)  # fmt: skip
    page = Page(page_of(find_subject(con, "c0ffee"), ["left out: <x>.json"]))
    assert set(page.texts) == {"", "verdict", "stragglers", "breakdown", "steps", "path", "quality"}
    assert "Only a digest is kept, so this page does not show kernels, launches" in page.texts[""]
    assert "left out: <x>.json" in page.texts[""]
    assert "Rank 1 is a straggler" in page.texts["verdict"] and "straggler: rank 1" in page.texts["stragglers"]
    for section in ("stragglers", "path", "quality"):
        assert "only a digest is kept" in page.texts[section]
    for claim in ("has a critical path", "it is attributed", "no collective could", "there are no profiler steps"):
        assert claim not in str(page.texts)
    con.execute("DELETE FROM findings")
    assert not find_subject(con, "c0ffee").is_digest


def hostile_trace() -> list[dict[str, Any]]:
    return [
        x("user_annotation", "ProfilerStep#1", 0, 100),
        x("user_annotation", HOSTILE, 1, 90),
        x("python_function", f"nn.Module: {HOSTILE}_0", 2, 80, **{"Python id": 1, "Python module id": 0}),
        op(HOSTILE, 3, 10),
        call("cudaLaunchKernel", 4, 2, 1),
        kernel(HOSTILE, 20, 30, 1),
    ]


@pytest.mark.slow  # tests/faces/cli/test_nasty.py tests nasty names in every command
def test_foreign_names_stay_text(tmp_path: Path) -> None:
    path = tmp_path / "<u>rank0.json"
    printable = HOSTILE.replace("\0", "")
    info = {"rank": 0, "world_size": 1, "job_name": printable}
    device = [{"id": 0, "name": printable}]
    path.write_text(json.dumps({"distributedInfo": info, "deviceProperties": device, "traceEvents": hostile_trace()}))
    page = report(tmp_path, path)
    assert not {"script", "img", "u"} & page.tags and "onerror" not in page.attributes
    for section in ("path", "spans"):
        assert "<script>alert(1)</script>" in page.texts[section], section


@pytest.mark.slow
def test_a_trace_of_the_cpu_alone_says_what_is_not_measured(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    path.write_text(json.dumps({"traceEvents": [op("aten::mm", 0, 10), op("aten::add", 10, 5)]}))
    page = report(tmp_path, path)
    for section, why in {
        "breakdown": "the traces have no GPU work",
        "kernels": "has no GPU work",
        "launches": "launches no GPU work",
        "steps": "has no profiler steps",
        "spans": "has no profiler steps, annotations, modules or tasks",
        "utilization": "has no GPU work",
        "memory": r"no \[memory\] events .* profile_memory=True",
        "collectives": "ran no communication kernels",
        "stragglers": "there is only one rank",
    }.items():
        assert re.search(f"not measured: .*{why}", page.texts[section]), section
    assert "rank unknown" in page.texts[""] and page.rows("quality")


def browser() -> str:
    program = next((path for name in ("chromium", "chrome", "google-chrome") if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip("neither chromium nor chrome is on the PATH")
    return program


def pixels(png: bytes) -> set[bytes]:
    """Return the distinct filtered rows of a PNG, of which a blank image has few."""
    at, data, width, depth = 8, b"", 0, 0
    while at < len(png):
        (length,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        body = png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, depth = struct.unpack(">I", body[:4])[0], {2: 3, 6: 4}[body[9]]
        data += body if kind == b"IDAT" else b""
        at += 12 + length
    raw, line = zlib.decompress(data), width * depth + 1
    return {raw[i : i + line] for i in range(0, len(raw), line)}


@pytest.mark.slow(together="report page")
def test_a_browser_shows_it_without_complaint(world: tuple[Page, Path], tmp_path: Path) -> None:
    program, (_, lake) = browser(), world
    html, picture = lake.parent / "report.html", tmp_path / "page.png"
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--v=0",
        "--window-size=1280,3600",
    ]
    done = subprocess.run(
        [program, *options, f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={picture}", html.as_uri()],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "CONSOLE" not in done.stderr
    assert len(pixels(picture.read_bytes())) > 500


_STICKS_OUT = """[...document.querySelectorAll('body *')].filter(e => {
  if (e.getBoundingClientRect().right <= innerWidth + 1) return false;
  for (let at = e; at; at = at.parentElement) if (getComputedStyle(at).overflowX != 'visible') return false;
  return true; }).map(e => e.outerHTML.slice(0, 80))"""
_HIGH = """[...document.querySelectorAll('td')].filter(td => (r => (r.selectNodeContents(td),
  new Set([...r.getClientRects()].map(b => Math.round(b.bottom / 10))).size > 4))(document.createRange())).map(td => td.innerText)"""
_TORN = """[...document.querySelectorAll('.legend i')].filter(i => (r => (r.selectNodeContents(i.nextSibling),
  Math.abs(r.getClientRects()[0].top - i.getBoundingClientRect().top) > 12))(document.createRange())).length"""


def assert_fits_a_phone(pages: list[Path]) -> None:
    with driven() as page:
        for dark, path in itertools.product((False, True), pages):
            page.size(390, 844, dark)
            page.open(path.as_uri())
            page.until("document.readyState == 'complete' && document.querySelector('main')")
            assert page.js("document.documentElement.scrollWidth") <= 390, path
            assert (page.js(_STICKS_OUT), page.js(_HIGH), page.js(_TORN)) == ([], [], 0), path
            assert page.messages == []


@pytest.mark.slow(together="report page")  # a browser
def test_it_does_not_scroll_sideways_on_a_phone(world: tuple[Page, Path]) -> None:
    assert_fits_a_phone([world[1].parent / "report.html"])


@pytest.mark.slow(together="report page")  # every other page that tracelake writes
def test_no_page_scrolls_sideways_on_a_phone(world: tuple[Page, Path], tmp_path: Path) -> None:
    lake = ["--lake", str(world[1])]
    traces = [str(path) for path in write_capture(CaptureSpec(ranks=2, steps=4, seed=2), tmp_path / "other").paths]
    spec = CaptureSpec(ranks=1, steps=2, shape="serving", tokens=4, kernel_ns=6000, seed=3, sync_each_step=False)
    (server,) = write_capture(spec, tmp_path / "server").paths
    for words in (
        ["fleet", *lake, "--out", str(tmp_path / "fleet")],
        ["compare", *traces, "--out", str(tmp_path / "compare.html")],
        ["report", str(server), "--out", str(tmp_path / "server.html")],
    ):
        assert CliRunner().invoke(app, words).exit_code == 0, words
    assert_fits_a_phone([tmp_path / "fleet" / "index.html", tmp_path / "compare.html", tmp_path / "server.html"])


@pytest.mark.slow(together="report page")
def test_what_is_wider_than_a_phone_scrolls_in_a_box_of_its_own(world: tuple[Page, Path]) -> None:
    """Each table and chart is in a box that scrolls, and text may break anywhere. This is tested without a browser."""
    html = (world[1].parent / "report.html").read_text()
    assert "body { margin: 0;" in html and "overflow-wrap: anywhere; }" in html.partition("main {")[0]
    body = html.partition("<body>")[2]
    tables, boxed = body.count("<table"), len(re.findall(r'<div class="wide">\s*<table', body))
    assert tables == boxed > 3
    assert body.count("<svg") == len(re.findall(r"<figure[^>]*>\s*<svg", body)) > 0
