"""Caveats of answers: every kind of limiting finding in every command (text and JSON) and every other interface."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.base.datafiles import rule_rows
from pipelines.base.foreign_text import in_markdown
from pipelines.faces import why
from pipelines.faces.cli import caveats
from pipelines.faces.limiting_findings import LimitingFinding, caveats_of_query, findings_of_newest, sentences
from pipelines.faces.mcp_tools.tools import Served, make_tools
from pipelines.faces.notebook import TraceAnalysis
from pipelines.fleet.trends import fleet_today
from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import publish
from pipelines.lake.read.sandbox import LimitReached, Limits, LockedLake, QueryStopped
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_trace import materialize
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.runs.store import open_store
from pipelines.synthetic import CaptureSpec, write_capture
from tests.faces.mcp_tools.test_tools import answer as answer_of
from tests.harness import call, kernel, op, x

from .test_early_ends import OF_A_TRACE, cut, run
from .test_lost_kernels import steps as lost_steps

Event = dict[str, Any]


def steps(length: float = 40) -> list[Event]:
    events: list[Event] = []
    for i in range(6):
        at = 100.0 * i
        events += [op("aten::mm", at + 1, 20), call("cudaLaunchKernel", at + 5, 10, i + 1)]
        events.append(kernel("gemm", at + 30, length, i + 1))
    return [*events, call("cudaDeviceSynchronize", 610, 10, 99)]


def without_links() -> list[Event]:
    """Return events whose third kernel has correlation id 0."""
    events = steps()
    events[8]["args"]["correlation"] = 0
    return events


def of_two_ranks() -> list[Event]:
    """Return events of two processes that have the same 25 correlation ids."""
    calls = [call("cudaLaunchKernel", 0.5 * i, 0.2, i + 1) for i in range(25)]
    return [*steps(), *calls, *({**event, "pid": 200} for event in calls)]


def of_a_device_without_categories() -> list[Event]:
    events = [event for event in steps() if event["cat"] == "cpu_op"]
    device = {"ph": "M", "name": "process_name", "pid": 3, "tid": 0, "args": {"name": "Ascend Hardware"}}
    return [*events, device, *({**event, "cat": None, "pid": 3, "name": "MatMul"} for event in events)]


TRACES: dict[str, tuple[list[Event], str]] = {
    "lost_kernels": (lost_steps((1, 2, 3, 5)), "4 of 6 launches have no GPU work"),
    "unlinked_launches": (without_links(), "1 launch and 1 kernel are not linked"),
    "merged_processes": (of_two_ranks(), "calls of 2 processes have 25 correlation ids in common"),
    "unread_events": (
        of_a_device_without_categories(),
        "no GPU work is read, but 6 events have no category (6 of Ascend Hardware)",
    ),
    "repeated_gpu_rows": (steps() * 2, "6 of 12 rows of GPU work repeat another one"),
    "zero_length_work": (steps(0), "6 of 6 rows of GPU work have length 0"),
    "overlapping_work": (steps(130), "GPU work overlaps on its own stream for 150.0 us of 780.0 us"),
    "negative_duration": ([*steps(), x("cpu_op", "aten::add", 50, -3)], "events with a negative duration"),
}
"""For each finding a trace that has it, and the text of the caveat."""


def write(folder: Path, check: str) -> tuple[Path, str]:
    path = folder / f"{check}.json"
    if check == "truncated":
        whole = json.dumps({"traceEvents": steps()}).encode()
        return cut(whole, path), "is truncated"
    events, sentence = TRACES[check]
    path.write_text(json.dumps({"traceEvents": events}))
    return path, sentence


def rank_2(folder: Path) -> dict[str, Any]:
    return json.loads(gzip.decompress(next(folder.glob("*rank2*")).read_bytes()))


def without_rank_2(folder: Path) -> str:
    next(folder.glob("*rank2*")).unlink()
    return "1 of 4 ranks is missing (2): who the others wait for is unknown"


def rank_2_twice(folder: Path) -> str:
    trace = rank_2(folder)
    (folder / "again_rank2.json").write_text(json.dumps(trace | {"traceEvents": trace["traceEvents"][:-4]}))
    return "two files for one rank: the one with a date and more events is used"


def rank_of_another_world(folder: Path) -> str:
    trace = rank_2(folder)
    trace["distributedInfo"] |= {"rank": 1, "world_size": 2}
    (folder / "other_rank1.json").write_text(json.dumps(trace))
    return "rank of another job: its world size or rank does not match"


def file_without_rank(folder: Path) -> str:
    trace = rank_2(folder)
    trace["distributedInfo"].pop("rank")
    (folder / "nobody.json").write_text(json.dumps(trace | {"traceEvents": trace["traceEvents"][:-4]}))
    return "neither metadata nor file name gives the rank"


CAPTURES: dict[str, Callable[[Path], str]] = {
    "missing_ranks": without_rank_2,
    "rank_twice": rank_2_twice,
    "other_job": rank_of_another_world,
    "no_rank": file_without_rank,
}
OF_A_CAPTURE = {
    "why": [],
    "stragglers": [],
    "capture-path": [],
    "what-if": ["--scale", "*=0.5"],
    "timeline": ["--out", "OUT/timeline.json"],
    "report": ["--out", "OUT/report.html"],
    "compare": ["WHOLE"],
}


def test_every_limiting_finding_is_tried() -> None:
    scopes = {rule["check_name"]: rule["scope"] for rule in rule_rows("limiting_findings")}
    of_traces = {check for check, scope in scopes.items() if scope == "trace"}
    assert of_traces == {"truncated", "reduced_to_digest", *TRACES}  # tests/runs/test_digest.py tests a digest
    # Only a lake knows which other jobs a folder contains.
    assert scopes.keys() - of_traces == {"other_jobs_in_folder", *CAPTURES}


STORED = ("why", "breakdown", "graphs")
"""The commands that accept the id of a trace whose tables the lake has.

tests/faces/cli/test_early_ends.py tests files.
"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake with all traces, and the tables that STORED read."""
    folder = tmp_path_factory.mktemp("limited")
    ingest([write(folder, check)[0] for check in (*TRACES, "truncated")], Lake(folder / "lake"))
    materialize(Lake(folder / "lake"), [*why.TABLES, "temporal_breakdown", "graph_kernels", "kernels"])
    return folder / "lake"


NOT_ASKED = {("slice", "unread_events")}
"""Excluded, because `slice` cuts out kernels and this trace has none."""
PAIRS = [(command, check) for check in (*TRACES, "truncated") for command in OF_A_TRACE if command != "capture-path"]
PAIRS = [pair for pair in PAIRS if pair not in NOT_ASKED]
CAPTURE_PAIRS = [(command, check) for check in CAPTURES for command in OF_A_CAPTURE]


@pytest.mark.parametrize("check", ["repeated_gpu_rows", "negative_duration", "unread_events"])
def test_what_limits_a_file_is_said_beside_its_breakdown(check: str, tmp_path: Path) -> None:
    path, sentence = write(tmp_path, check)
    text = run("breakdown", path).stdout
    assert sum(sentence in line for line in text.splitlines()) == 1, text
    (answer,) = json.loads(run("breakdown", path, "--json").stdout)
    assert [caveat["caveat"] for caveat in answer["caveats"]].count(check) == 1


def test_an_answer_has_the_caveats_of_the_trace_that_captured_its_graphs() -> None:
    """An answer has the caveats of its trace and of the trace that captured its graphs.

    Three traces are open. An answer that names none of them has the caveats of all.
    """
    caveats.add(LimitingFinding(trace, f"{trace}.json", "lost_kernels", "warning", "few") for trace in "abc")
    for answer, expected in (
        ({"trace_id": "a", "capture_trace_id": "b"}, ["a", "b"]),
        ({"trace_id": "a", "capture_trace_id": None}, ["a"]),
        ({"trace_id": "c"}, ["c"]),
        ({}, ["a", "b", "c"]),
    ):
        details = [caveat["detail"] for caveat in caveats.with_caveats(answer)["caveats"]]
        assert details == [f"{trace}.json: few" for trace in expected]


def test_the_error_of_a_trace_without_any_known_event_has_its_caveat(tmp_path: Path) -> None:
    event = {"ph": "X", "name": "dot.1", "pid": 1, "tid": 7, "ts": 10, "dur": 5}
    name = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "/device:GPU:0"}}
    (tmp_path / "jax.trace.json").write_text(json.dumps({"traceEvents": [name, event]}))
    text = " ".join(run("why", tmp_path / "jax.trace.json", code=1).output.split())
    assert "none of its events is read as GPU work" in text
    assert "1 event has no category (1 of /device:GPU:0)" in text and "give the *.xplane.pb next to it" in text


@pytest.mark.slow  # a lake with many tables; a file is tested above
@pytest.mark.parametrize("command, check", PAIRS)
def test_what_limits_a_trace_is_said_by_every_command(command: str, check: str, lake: Path, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole.json", tmp_path / "out"
    whole.write_text(json.dumps({"traceEvents": steps()}))
    path, sentence = write(tmp_path, check)
    out.mkdir()
    more = [word.replace("OUT", str(out)).replace("WHOLE", str(whole)) for word in OF_A_TRACE[command]]
    subject, more = (path.name, ["--lake", str(lake)]) if command in STORED else (path, more)
    text = run(command, subject, *more).stdout
    assert sum(sentence in line for line in text.splitlines()) == 1, text
    assert all(sentence in page.read_text() for page in out.glob("*.html"))
    assert [caveat["caveat"] for caveat in as_json(command, subject, more, out)["caveats"]].count(check) == 1


@pytest.mark.slow  # 5 s each
@pytest.mark.parametrize("command, check", CAPTURE_PAIRS)
def test_what_limits_a_capture_is_said_by_every_command(command: str, check: str, tmp_path: Path) -> None:
    folder, whole, out = (tmp_path / name for name in ("ranks", "whole", "out"))
    for made in (folder, whole):
        write_capture(CaptureSpec(ranks=4, steps=3, straggler=2, seed=7), made)
    out.mkdir()
    sentence = CAPTURES[check](folder)
    more = [word.replace("OUT", str(out)).replace("WHOLE", str(whole)) for word in OF_A_CAPTURE[command]]
    text = run(command, folder, *more).stdout
    assert any(line.startswith("caveat:") and sentence in line for line in text.splitlines()), text
    assert all(sentence in page.read_text() for page in out.glob("*.html"))
    assert check in [caveat.get("caveat") for caveat in as_json(command, folder, more, out)["caveats"]]


def as_json(command: str, subject: str | Path, more: list[str], out: Path) -> dict[str, Any]:
    shutil.rmtree(out)
    out.mkdir()
    answer = json.loads(run(command, subject, *more, "--json").stdout)
    return answer if isinstance(answer, dict) else answer[0]


@pytest.mark.slow  # 20 s
def test_files_without_ranks_have_no_path_for_a_reason_with_a_remedy(tmp_path: Path) -> None:
    write_capture(CaptureSpec(ranks=2, steps=2, seed=7), tmp_path / "whole")
    (tmp_path / "ranks").mkdir()
    for number, path in enumerate(sorted((tmp_path / "whole").glob("*rank*"))):
        content = json.loads(gzip.decompress(path.read_bytes()))
        content.pop("distributedInfo")
        (tmp_path / "ranks" / f"{'ab'[number]}.json").write_text(json.dumps(content))
    for command, code in (("why", 0), ("capture-path", 1)):
        said = " ".join(run(command, tmp_path / "ranks", code=code).output.split())
        assert "2 of its files do not say which rank they are" in said and "name them rank0.json.gz" in said
        assert "None" not in said


def test_what_tables_lack_is_a_caveat_of_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    """Caveats about missing tables are in JSON and in the answers of MCP. Programs and models do not read stderr."""
    assert caveats.with_caveats({"a": 1}) == {"a": 1}
    caveats.print_caveat("out of date", "kernels: of an older model")
    assert "out of date: kernels: of an older model" in capsys.readouterr().err
    notice = {"caveat": "out_of_date", "severity": "warning", "detail": "kernels: of an older model"}
    assert caveats.with_caveats({"a": 1}) == {"a": 1, "caveats": [notice]}
    assert caveats.with_caveats([{"a": 1}]) == [{"a": 1}]  # rows of no trace
    caveats.add([])
    assert caveats.with_caveats([{"a": 1}]) == [{"a": 1, "caveats": [notice]}]
    caveats.begin()
    assert caveats.with_caveats({"a": 1}) == {"a": 1}


@pytest.mark.parametrize(("n", "more"), [(5, ""), (6, "1 more file"), (7, "2 more files")])
def test_files_beyond_the_fifth_are_counted(n: int, more: str) -> None:
    findings = [
        LimitingFinding(str(i), f"{i}.json", "unread_events", "warning", "an event is unread") for i in range(n)
    ]
    printed = [line.plain for line in caveats.lines_of(findings)]
    assert printed[5:] == ([f"caveat: the same applies to {more}"] if more else [])
    caveats.add(findings)
    caveats.print_caveat("left out", "a trace")
    assert caveats.lines() == [*(text.removeprefix("caveat: ") for text in printed), "left out: a trace"]


# ---- interfaces other than commands of a trace or a capture


def through_a_tool(tool: str, **arguments: str) -> Callable[[Path], str]:
    def caveats_of(lake: Path) -> str:
        said = answer_of(make_tools(Served(lake, Limits()))[tool], **arguments)
        return json.dumps((said[0] if isinstance(said, list) else said)["caveats"], ensure_ascii=False)

    return caveats_of


def in_the_console(page: str, query: str) -> Callable[[Path], str]:
    def caveats_of(lake: Path) -> str:
        pytest.importorskip("starlette", reason="the extra serve is not installed")
        pytest.importorskip("uvicorn", reason="the extra serve is not installed")
        from tests.faces.serve.world import serving

        with serving(lake) as server:
            said = server.ask(page, {"sql": query, "format": "csv"})
        assert said.status == 200, said.body
        header = json.loads(said.headers["tracelake-caveats"]) if page == "/download" else said.json["caveats"]
        return "\n".join(header)

    return caveats_of


def in_a_notebook(ask: Callable[[TraceAnalysis], Any]) -> Callable[[Path], str]:
    def caveats_of(lake: Path) -> str:
        with TraceAnalysis(lake=lake) as analysis:
            return str(ask(analysis).caveats)

    return caveats_of


def in_dagster(lake: Path) -> str:
    pytest.importorskip("dagster", reason="the extra dagster is not installed")
    from assets.pictures import pictures

    return str(pictures(Lake(lake), "causes")["why"].value)


def on_todays_page(lake: Path) -> str:
    dg = pytest.importorskip("dagster", reason="the extra dagster is not installed")
    from assets.today import today_page

    publish(Lake(lake))
    result = dg.materialize([today_page], resources={"lake": Lake(lake), "store": open_store(lake)})
    (event,) = result.get_asset_materialization_events()
    return str(event.step_materialization_data.materialization.metadata["caveats"].value)


def of_query(query: str) -> dict[str, Callable[[Path], str]]:
    """Return a function for each interface, which asks the query and returns the caveats of the answer."""
    return {
        "sql": lambda lake: run("sql", query, "--lake", lake).stderr,
        "MCP's sql": through_a_tool("sql", query=query),
        "/query": in_the_console("/query", query),
        "/download": in_the_console("/download", query),
    }


def of_trace(trace_id: str) -> dict[str, Callable[[Path], str]]:
    """Return a function for each interface, which asks about one trace and returns the caveats of the answer."""
    return {
        **of_query(f"SELECT count(*) FROM kernels WHERE trace_id = '{trace_id}'"),
        "sql, by a subquery": of_query(
            f"SELECT count(*) FROM kernels WHERE trace_id = (SELECT trace_id FROM traces WHERE trace_id = '{trace_id}')"
        )["sql"],
        "ask": lambda lake: run("ask", "top-kernels", "--trace", trace_id, "--lake", lake).stderr,
        "MCP's ask": through_a_tool("ask", name="top-kernels", trace=trace_id),
        "MCP's why": through_a_tool("why", trace=trace_id),
        "MCP's fixes": through_a_tool("fixes", trace=trace_id),
        "notebook's sql": in_a_notebook(lambda analysis: analysis.sql("SELECT count(*) FROM kernels")),
        "notebook's ask": in_a_notebook(lambda analysis: analysis.ask("top-kernels")),
        "notebook's why": in_a_notebook(lambda analysis: analysis.why(trace_id)),
        "Dagster": in_dagster,
    }


OF_THE_LAKE: dict[str, Callable[[Path], str]] = {
    **of_query("SELECT count(*) FROM kernels"),
    "ask": lambda lake: run("ask", "top-kernels", "--lake", lake).stderr,
    "MCP's ask": through_a_tool("ask", name="top-kernels"),
}
"""The interfaces that count the traces."""
OF_CAPTURES: dict[str, Callable[[Path], str]] = {
    **of_query("SELECT count(*) FROM straggler_ranks"),
    "ask": lambda lake: run("ask", "captures", "--lake", lake).stderr,
    "MCP's ask": through_a_tool("ask", name="captures"),
}
"""The interfaces that count the captures."""
OF_JOBS: dict[str, Callable[[Path], str]] = {
    "fleet": lambda lake: run("fleet", "--lake", lake).stdout,
    "fleet as JSON": lambda lake: str(json.loads(run("fleet", "--lake", lake, "--json").stdout)["caveats"]),
    "Dagster": on_todays_page,
}
"""The interfaces that name the newest capture of a job."""
MEANING = {rule["check_name"]: rule["meaning"] for rule in rule_rows("limiting_findings")}


@pytest.fixture(scope="module")
def ids(lake: Path) -> dict[str, str]:
    """Return the trace ids by the name of the trace's finding."""
    with Lake(lake).connect(["traces"]) as con:
        return {Path(file).stem: trace for file, trace in con.execute("SELECT file, trace_id FROM traces").fetchall()}


@pytest.mark.slow  # the lake of the commands
@pytest.mark.filterwarnings("ignore::UserWarning")  # a notebook warns, too
@pytest.mark.parametrize("check", (*TRACES, "truncated"))
@pytest.mark.parametrize("face", of_trace(""))
def test_what_limits_a_trace_is_said_by_every_face(face: str, check: str, lake: Path, ids: dict[str, str]) -> None:
    sentence = TRACES[check][1] if check in TRACES else "is truncated"
    text = of_trace(ids[check])[face](lake)
    assert sentence in text or in_markdown(sentence) in text, text


@pytest.mark.slow
@pytest.mark.parametrize("face", OF_THE_LAKE)
def test_answers_from_all_traces_count_those_that_are_limited(face: str, lake: Path, ids: dict[str, str]) -> None:
    text = OF_THE_LAKE[face](lake)
    for check in ids:
        assert re.search(rf"\d of {len(ids)} traces (has|have) {re.escape(MEANING[check])}: SELECT \* FROM", text), text


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake with a capture for each finding, whose job has the finding's name, and a whole capture."""
    folder = tmp_path_factory.mktemp("jobs")
    for seed, check in enumerate((*CAPTURES, "whole")):
        write_capture(CaptureSpec(ranks=4, steps=2, layers=1, seed=seed), folder / check)
        if check in CAPTURES:
            CAPTURES[check](folder / check)
        ingest([folder / check], Lake(folder / "lake"), job=check)
    materialize_all(Lake(folder / "lake"), fleet_today.TABLES)
    return folder / "lake"


@pytest.mark.slow
@pytest.mark.parametrize("face", OF_CAPTURES)
def test_answers_about_captures_count_those_that_are_limited(face: str, jobs: Path) -> None:
    text = OF_CAPTURES[face](jobs)
    for check in CAPTURES:
        assert re.search(rf"\d captures? (has|have) {re.escape(MEANING[check])}: SELECT \* FROM", text), text


@pytest.mark.slow
@pytest.mark.parametrize("face", OF_JOBS)
def test_the_fleet_says_what_limits_the_newest_capture_of_each_job(face: str, jobs: Path, tmp_path: Path) -> None:
    text = OF_JOBS[face](jobs).replace("\\", "")  # of Markdown
    for check, change in CAPTURES.items():
        write_capture(CaptureSpec(ranks=4, steps=1, layers=1), tmp_path / check)
        assert re.search(rf"job {check}: .*{re.escape(change(tmp_path / check))}", text), text
    assert "job whole: " not in text


# ---- rows written by hand

EARLY = "has a truncated file: SELECT * FROM findings WHERE check_name = 'truncated'"
LOST = "have launches whose GPU work was lost: SELECT * FROM findings WHERE check_name = 'lost_kernels'"
MISSING = "1 capture has missing ranks: SELECT * FROM capture_quality WHERE check_name = 'missing_ranks'"


@pytest.fixture
def con() -> duckdb.DuckDBPyConnection:
    """Return traces a and b of a capture ab, in which a rank is missing, and c and d of a whole capture.

    Trace a is truncated, and a and c lost kernels.
    """
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE traces AS SELECT id AS trace_id, id || '.json' AS file, capture_id FROM (VALUES ('a', 'ab'), ('b', 'ab'), "
        "('c', 'cd'), ('d', 'cd')) AS t(id, capture_id);"
        "CREATE TABLE captures AS SELECT DISTINCT capture_id FROM traces;"
        "CREATE TABLE capture_ranks AS SELECT capture_id, trace_id FROM traces;"
        "CREATE TABLE findings AS SELECT * FROM (VALUES ('a', 'truncated', 'error', 'cut at byte 9'), "
        "('a', 'lost_kernels', 'warning', '1 of 2'), ('c', 'lost_kernels', 'warning', '2 of 2'), "
        "('c', 'lost_kernels', 'warning', '3 of 3'), ('d', 'reduced_to_digest', 'info', 'reduced'), "
        "('d', 'launches_at_end', 'info', 'limits nothing')) AS f(trace_id, check_name, severity, detail);"
        "CREATE TABLE capture_quality AS SELECT * FROM (VALUES ('ab', 'missing_ranks', 'warning', '1 of 3 ranks is missing'), "
        "('cd', 'refused_lane', 'info', 'limits little')) AS q(capture_id, check_name, severity, detail)"
    )
    return con


@pytest.fixture
def locked(con: duckdb.DuckDBPyConnection) -> Iterator[LockedLake]:
    """Yield the tables of `con` in a connection for untrusted queries, with its limits."""
    with LockedLake(lambda _: con) as locked:
        yield locked


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT count(*) FROM kernels", [f"1 of 4 traces {EARLY}", f"2 of 4 traces {LOST}"]),
        ("FROM straggler_ranks", [f"1 of 4 traces {EARLY}", f"2 of 4 traces {LOST}", MISSING]),
        # Views of stored tables, and the captures of traces.
        ("SELECT rank FROM persistent_stragglers", [f"1 of 4 traces {EARLY}", f"2 of 4 traces {LOST}", MISSING]),
        ("SELECT job FROM jobs", [f"1 of 4 traces {EARLY}", f"2 of 4 traces {LOST}", MISSING]),
        ("SELECT capture_id FROM traces", [f"1 of 4 traces {EARLY}", f"2 of 4 traces {LOST}", MISSING]),
        ("SELECT file FROM traces", [f"1 of 4 traces {EARLY}", f"2 of 4 traces {LOST}"]),
        # Caveats of the ids that the query names.
        ("FROM kernels WHERE trace_id = 'a'", ["a.json is truncated: all numbers cover only the part that was read, not the whole run", "a.json: 1 of 2"]),
        ("FROM kernels WHERE trace_id IN ('a', 'b')", [f"1 of 2 traces {EARLY}", f"1 of 2 traces {LOST.replace('have', 'has', 1)}"]),
        ("FROM kernels JOIN traces USING (trace_id) WHERE trace_id = 'b' AND rank = 1", []),
        ("FROM straggler_ranks WHERE capture_id = 'ab'", [f"1 of 2 traces {EARLY}", f"1 of 2 traces {LOST.replace('have', 'has', 1)}", "1 of 3 ranks is missing"]),
        ("FROM straggler_ranks JOIN captures USING (capture_id) WHERE capture_id = 'cd'", [f"1 of 2 traces {LOST.replace('have', 'has', 1)}"]),
        ("FROM capture_ranks WHERE trace_id = 'b'", ["1 of 3 ranks is missing"]),
        # The rows of other traces count.
        ("FROM kernels WHERE trace_id <> 'b'", [f"1 of 4 traces {EARLY}", f"2 of 4 traces {LOST}"]),
        ("SELECT 1 FROM kernels WHERE trace_id = 'b' AND 1 < (SELECT count(*) FROM ops)", [f"1 of 4 traces {EARLY}", f"2 of 4 traces {LOST}"]),
        # These tables are the findings, or have no findings.
        ("FROM findings", []),
        ("FROM quality JOIN traces USING (trace_id)", []),
        ("FROM captures JOIN capture_quality USING (capture_id)", [f"1 of 4 traces {EARLY}", f"2 of 4 traces {LOST}"]),
        ("FROM cause_kinds", []),
        ("FROM model_failures", []),
        ("FROM range(3)", []),
        ("SELEC", []),
    ],
)  # fmt: skip
def test_a_query_has_what_limits_the_traces_and_captures_that_it_reads(
    query: str, said: list[str], locked: LockedLake
) -> None:
    assert caveats_of_query(locked, query) == said
    locked.con.execute("DELETE FROM findings; DELETE FROM capture_quality")
    assert caveats_of_query(locked, query) == []  # the lake is intact now


def test_damaged_findings_do_not_stop_a_query(locked: LockedLake) -> None:
    locked.con.execute(
        "DROP TABLE findings; CREATE VIEW findings AS SELECT *, error('findings.parquet is missing') AS trace_id "
        "FROM (VALUES ('truncated', 'cut')) AS f(check_name, detail)"
    )
    (caveat,) = caveats_of_query(locked, "FROM kernels")
    assert caveat == "the caveats of the answer are unknown: Invalid Input Error: findings.parquet is missing"


def test_the_limits_of_a_query_hold_for_its_caveats(locked: LockedLake) -> None:
    locked.limits = Limits(seconds=60, rows=1)
    assert len(caveats_of_query(locked, "FROM straggler_ranks")) == 3  # caveats are not rows of the user's answer
    locked.con.execute(
        "ALTER TABLE findings RENAME TO few; CREATE VIEW findings AS SELECT few.* FROM few, range(1000000000000) AS t(i) "
        "WHERE hash(i) = 1"
    )
    locked.limits = Limits(seconds=0.1)
    with pytest.raises(LimitReached, match=r"stopped after 0\.1 s"):
        caveats_of_query(locked, "FROM kernels")
    locked.limits = Limits(seconds=60)
    locked.stop()
    with pytest.raises(QueryStopped):
        caveats_of_query(locked, "FROM kernels")


def test_findings_about_the_newest_captures_name_the_job(con: duckdb.DuckDBPyConnection) -> None:
    jobs = [{"job": "day", "capture_id": "ab"}, {"job": None, "capture_id": "cd"}]
    assert list(sentences(findings_of_newest(con, jobs))) == [
        "job day: 1 of 3 ranks is missing",
        "a.json of job day: 1 of 2",
        "c.json of capture cd: 3 of 3",
        "a.json of job day is truncated: all numbers cover only the part that was read, not the whole run",
        "d.json of capture cd: reduced",
    ]
    assert findings_of_newest(con, jobs[1:])[0].file == "c.json of capture cd"
    assert findings_of_newest(con, []) == []


@pytest.mark.parametrize(
    ("n", "more"), [(5, []), (6, ["the same applies 1 more time"]), (7, ["the same applies 2 more times"])]
)
def test_jobs_beyond_the_fifth_are_counted(n: int, more: list[str]) -> None:
    findings = [LimitingFinding(None, f"job {i}", "missing_ranks", "warning", "1 of 2") for i in range(n)]
    assert list(sentences(findings))[5:] == more
    caveats.add(findings)  # the findings differ only in their jobs
    assert len(caveats.noted()) == n
