"""Every command on names that act on terminals, markup, HTML, CSV and SQL.

The names are shown whole, and have no effect.
"""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from pipelines.base.foreign_text import visible
from pipelines.faces import cli
from pipelines.faces.cli.app import app
from pipelines.faces.report.pictures.flame_graph import Seen, flame, folded
from pipelines.fleet.heat_map import rank_step_heat_map
from pipelines.record.folder import Recording
from pipelines.schedule.pictures.gantt import gantt
from pipelines.schedule.pictures.timeline import Span, Stall, Timeline
from pipelines.synthetic import CaptureSpec, write_capture
from tests.faces.report.read_page import Page
from tests.harness import call as launch
from tests.harness import kernel, op
from tests.nasty import MARKUP, NASTY, RAW, TERMINAL
from tests.readers.flight_recorder.make import call, waits

FOLDER = "[red]=1+1\x1b[31m\u202eg\n<b>|`["  # a path in this folder contains [/x]
JOB = "[bold]job\x1b]0;t\x07[/x]"
FILES = ("x]rank0\x1b[2J[red].json", "x]rank1 '\"<i>\n.json")
NAMES = tuple(name for name in NASTY if name.strip())


def run(*words: object, code: int = 0) -> Result:
    """Run the command, and return its result.

    Check that it ends with `code`, without an exception or raw control characters.
    """
    result = CliRunner().invoke(app, [*map(str, words)])
    output = result.stdout + result.stderr
    assert result.exit_code == code and isinstance(result.exception, SystemExit | None), (
        words,
        output,
        result.exception,
    )
    assert not RAW.search(output), (words, RAW.search(output), output[-500:])
    return result


def squashed(text: str) -> str:
    """Return the text without the line breaks and frames of narrow cells."""
    return re.sub(r"[\s│┃]", "", text)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Yield a job's folder of two ranks with nasty names, the lake with their traces, and the traces' ids by rank."""
    folder = tmp_path_factory.mktemp("nasty") / FOLDER
    for rank, made in enumerate(write_capture(CaptureSpec(ranks=2, steps=3, straggler=1, seed=5), folder).ranks):
        spoil(json.loads(gzip.decompress(made.path.read_bytes())), folder / FILES[rank])
        made.path.unlink()
    (folder / "x]broken\x1b[2J\n.json").write_text('{"traceEvents": [{"name": "\x1b]0;t\x07[red]')
    (folder / "x]notes.txt").write_text("\x1b[2J[/x] no trace")
    lake = folder.parent / "lake[red]\x1b[2J"
    rows = json.loads(run("ingest", folder, "--lake", lake, "--job", JOB, "--json", code=1).stdout)
    ids = {row["rank"]: row["trace_id"] for row in rows if row["status"] == "ok"}
    assert set(ids) == {0, 1} and any(row["status"] == "rejected" for row in rows)
    yield {"folder": folder, "lake": lake, "ids": ids, "file": folder / FILES[0]}


def spoil(trace: dict[str, Any], target: Path) -> None:
    """Replace the names in a trace by nasty names, and add a launch for each of them."""
    names = iter(NAMES * 50)
    for event in trace["traceEvents"]:
        if event.get("cat") == "user_annotation" and "Step#" not in event["name"]:
            event["name"] = next(names)
        if "Process Group Description" in event.get("args", {}):
            event["args"]["Process Group Description"] = "[red]pg\x1b[2J</title>|"
        if event.get("ph") == "M" and "name" in event.get("args", {}):
            event["args"]["name"] = next(names)
    end = max(event.get("ts", 0) + event.get("dur", 0) for event in trace["traceEvents"])
    for at, name in enumerate(NAMES):
        begin = end + 1000 * at
        more = [
            op(name, begin, 900),
            launch("cudaLaunchKernel", begin + 10, 5, 900_000 + at),
            kernel(name, begin + 20, 800, 900_000 + at),
        ]
        more[0]["args"] = {"Input Dims": [[2, 2], [name]], name: name}
        trace["traceEvents"] += [*more, {"ph": "i", "cat": name, "name": name, "pid": name, "tid": name, "ts": begin}]
    info = trace["distributedInfo"]
    info["hostname"] = "[red]host\x1b[2J"
    for group in info.get("pg_config", []):
        group["pg_desc"] = "[red]pg\x1b[2J</title>|"
    trace["deviceProperties"][0]["name"] = "GPU[/x]\x1b[2J<i>"
    target.write_text(json.dumps(trace))


@pytest.mark.slow  # 3 s; errors that quote names are tested below
def test_sql_shows_and_hands_out_every_name(world: dict[str, Any]) -> None:
    query = "SELECT DISTINCT name FROM kernels WHERE correlation >= 900000"
    ask = ("sql", query, "--lake", world["lake"])
    shown = squashed(run(*ask, "--limit", 0).stdout)
    assert [name for name in NAMES if squashed(visible(name)) not in shown] == []
    rows = json.loads(run(*ask, "--format", "json").stdout)
    assert {row["name"] for row in rows} == set(NAMES)
    result = CliRunner().invoke(app, [*map(str, ask), "--format", "csv"])  # a program gets the names unchanged
    cells = [row[0] for row in csv.reader(io.StringIO(result.stdout_bytes.decode(), newline=""))]
    assert cells[0] == "name" and set(cells[1:]) == set(NAMES)
    result = CliRunner().invoke(app, [*map(str, ask), "--format", "csv", "--for-spreadsheet"])
    cells = [row[0] for row in csv.reader(io.StringIO(result.stdout_bytes.decode(), newline=""))]
    assert {cell.removeprefix("'") for cell in cells[1:]} == {name.removeprefix("'") for name in NAMES}
    assert not [cell for cell in cells if cell.startswith(("=", "@", "\t", "\r", "-r", "+1+"))] and "-5" in cells
    result = CliRunner().invoke(app, [*map(str, ask), "--format", "parquet"])
    assert set(pq.read_table(io.BytesIO(result.stdout_bytes))["name"].to_pylist()) == set(NAMES)
    run("sql", "SELECT * FROM traces, quality, rejects", "--lake", world["lake"])
    columns = [name.replace("\0", "") for name in (*MARKUP[:6], *TERMINAL[:4])]
    quoted = ", ".join('1 AS "' + name.replace('"', '""') + '"' for name in columns)
    shown = squashed(run("sql", f"DESCRIBE SELECT {quoted}", "--lake", world["lake"]).stdout)
    assert [name for name in columns if squashed(visible(name)) not in shown] == []
    run("sql", f"SELECT {quoted}", "--lake", world["lake"])
    run("sql", "SELECT '\x1b[2J[/x]' FROM \"[red]\x1b[2J\"", "--lake", world["lake"], code=1)


WHOLE = (
    ("ingest", "{folder}"),
    ("tables",),
    ("tables", "kernels"),
    ("breakdown",),
    ("breakdown", "{id}", "--profile", "hta"),
    ("critical-path", "{id}", "--alternatives", "3"),
    ("critical-path", "{file}", "--annotation", "[red]"),
    ("what-if", "{id}", "--sensitivity"),
    ("what-if", "{file}", "--scale", "*red*=0.5", "--redraw", "{out}"),
    ("compare", "{id}", "{other}", "--limit", "0"),
    ("capture-path", "{capture}"),
    ("stragglers", "{capture}", "--out", "{out}/heat[red].svg"),
    ("report", "{capture}", "--out", "{out}/all[red].html"),
    ("overlay", "{id}", "--out", "{out}", "--all-events"),
    ("overlay", "{file}", "--out", "{out}/[red]"),
    ("regressions",),
    ("retention", "--keep-days", "1"),
    ("compact", "--older-than", "0"),
    ("materialize", "kernels", "--force"),
)  # fmt: skip


JSON_TOO = ("tables", "compare", "capture-path", "stragglers", "breakdown", "regressions", "retention")


@pytest.mark.slow
def test_every_command_on_nasty_names(world: dict[str, Any], tmp_path: Path) -> None:
    query = "SELECT capture_id FROM captures"
    (capture, *_) = json.loads(run("sql", query, "--lake", world["lake"], "--format", "json").stdout)
    ids = {"id": world["ids"][0], "other": world["ids"][1], "capture": capture["capture_id"]}
    for words in WHOLE:
        arguments = [word.format(out=tmp_path, **ids, folder=world["folder"], file=world["file"]) for word in words]
        needs_lake = words[0] != "tables"
        arguments += ["--lake", str(world["lake"])] if needs_lake else []
        code = 1 if words[0] == "ingest" else 0
        run(*arguments, code=code)
        if words[0] in JSON_TOO:
            json.loads(run(*arguments, "--json", code=code).stdout)
    saved = tmp_path / "[red]\x1b[2J.zip"
    titles = run("critical-path", world["file"], "--save", saved, "--alternatives", 2, "--lake", world["lake"]).stdout
    assert visible(FILES[0]) in titles
    run("critical-path", saved)
    _check_page(tmp_path / "all[red].html")
    ElementTree.parse(tmp_path / "heat[red].svg")
    drawn = [
        path
        for path in tmp_path.rglob("*")
        if "overlaid" in path.name or "what_if" in path.name or path.suffix == ".json"
    ]
    assert len(drawn) >= 3, drawn
    for path in drawn:
        raw = path.read_bytes()
        events = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)["traceEvents"]
        assert {event["name"] for event in events if "name" in event} >= set(NAMES), path


def _check_page(path: Path) -> None:
    html = path.read_text(encoding="utf-8")
    page = Page(html)  # checks that tags balance
    assert not {"script", "img", "i", "b2"} & (page.tags - {"i", "b"}) and not {"onerror", "onload"} & page.attributes
    assert not RAW.search(html)
    for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        ElementTree.fromstring(svg)


WRONG = (
    ("critical-path", "{name}"),
    ("breakdown", "{name}"),
    ("compare", "{name}", "{name}"),
    ("capture-path", "{name}"),
    ("stragglers", "{name}"),
    ("report", "{name}", "--out", "/dev/null"),
    ("gantt", "{name}"),
    ("flame", "{name}"),
    ("sql", "SELECT {name}"),
    ("tables", "{name}"),
    ("materialize", "{name}"),
    ("op-job", "{name}"),
    ("flight-recorder", "{name}"),
    ("memory", "{name}"),
    ("critical-path", "{id}", "--annotation", "{name}-"),
    ("critical-path", "{id}", "--set", "{name}=1"),
    ("what-if", "{id}", "--remove", "{name}-"),
    ("critical-path", "{id}", "--profile", "{name}"),
    ("stragglers", "{folder}", "--metric", "{name}"),
)


@pytest.mark.parametrize("name", ["x[/x]\x1b[2J", pytest.param("[red]\x9b\n\u202e:boom:", marks=pytest.mark.slow)])
def test_errors_quote_what_was_given_as_text(world: dict[str, Any], name: str) -> None:
    for words in WRONG:
        arguments = [word.format(name=name, id=world["ids"][0], folder=world["folder"]) for word in words]
        takes_lake = words[0] not in ("tables", "op-job", "flight-recorder", "memory")
        result = CliRunner().invoke(app, arguments + (["--lake", str(world["lake"])] if takes_lake else []))
        output = result.stderr + result.stdout
        assert result.exit_code in (1, 2) and isinstance(result.exception, SystemExit), (
            words,
            output,
            result.exception,
        )
        assert not RAW.search(output), (words, output)
        assert squashed(visible(name).rstrip("-")) in squashed(output) or words[0] == "sql", (words, output)
    for arguments in (
        [name],
        ["sql", "--" + name],
        ["sql", "SELECT 1", "--format", name],
        ["sql", "x", "--limit", name],
    ):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 2 and not RAW.search(result.stderr + result.stdout), (arguments, result.stderr)


def test_flight_recorder_dumps(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir()
    for rank in (0, 1):
        groups = {"[/x]\x1b[2J": {"name": "[/x]\x1b[2J", "desc": "[red]<b>|\u202e", "ranks": "[0, 1]"}}
        frames = [{"name": "[/x]\x1b[2J", "filename": "\x1b]0;t\x07[red]\n.py", "line": 1}]
        calls = [call(1), waits(2) if rank else call(2)]
        for entry in calls:
            entry.update(
                process_group=["[/x]\x1b[2J", "[red]<b>|\u202e"], frames=frames, profiling_name="nccl:[red]\x1b[2J"
            )
        dump = {"version": "2.10", "pg_config": groups, "entries": [{"record_id": i, **c} for i, c in enumerate(calls)]}
        (folder / f"x]dump_{rank}").write_text(json.dumps(dump))
    (folder / "x]other\x1b[2J").write_text("no dump")
    shown = run("flight-recorder", folder).stdout
    assert squashed(visible("[/x]\x1b[2J")) in squashed(shown) and squashed(visible("[red]<b>|\u202e")) in squashed(
        shown
    )
    assert json.loads(run("flight-recorder", folder, "--json").stdout)["groups"][0]["pg"] == "[/x]\x1b[2J"
    lake = tmp_path / "lake"
    run("ingest", folder, "--lake", lake, code=1)
    run("sql", "SELECT * FROM flight_recorder_verdicts, flight_recorder_entries", "--lake", lake)


@pytest.mark.slow
def test_recordings_and_their_flame_graph(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "in", "stacks", "run[/x]\x1b[2J", 42, 3)
    for at, name in enumerate(NAMES):
        row = {
            "t_unix_ns": at,
            "t_mono_ns": at,
            "thread": name,
            "frames": json.dumps([name, f"{name} (a.py:1)"]),
            "n_samples": 1,
        }
        recording.add("stack_samples", [row])
    recording.close(source="[red]\x1b[2J", interval_ns=1, n_late=0, cost_ns=1, start_ns=1, end_ns=2)
    lake = tmp_path / "lake"
    run("ingest", tmp_path / "in", "--lake", lake)
    run("sql", "SELECT * FROM recordings, stack_samples", "--lake", lake)
    svg = tmp_path / "[red]\x1b[2J.svg"
    assert visible(svg.name) in run("flame", "run[/x]\x1b[2J", "--lake", lake, "--out", svg).stdout
    ElementTree.parse(svg)


@pytest.mark.parametrize("name", NASTY)
def test_pictures_say_the_name(name: str) -> None:
    """The tooltip or text in a chart is exactly the visible name, and the name creates no element."""
    shown = visible(name)
    span = Span(name, 0, name, 0, 5_000, 90_000, (Stall("event", 5_000, name, 0),))
    drawn = {
        "gantt": gantt(Timeline("recorded", [span]), title=f"t{name}t"),
        "flame": flame(f"t{name}t", [Seen(name, [name, name], 5)], "samples"),
        "heat": rank_step_heat_map(f"t{name}t", [{"rank": 0, "step": 0, **dict.fromkeys(HEAT, 5)}], "wait_ns"),
    }
    for kind, svg in drawn.items():
        assert not RAW.search(svg), kind
        root = ElementTree.fromstring(svg)
        texts = ["".join(element.itertext()) for element in root.iter() if element.tag.endswith(("text", "title"))]
        assert any(f"t{shown}t" in text for text in texts), (kind, texts)
        assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
            "svg",
            "style",
            "defs",
            "pattern",
            "rect",
            "line",
            "text",
            "title",
        }
    lines = folded([Seen(name, [name], 5)])
    assert lines.count("\n") == 1 and not RAW.search(lines)


HEAT = ("caused_wait_ns", "wait_ns", "marginal_ns", "compute_ns", "step_ns")


def test_markup_of_ours_is_styled() -> None:
    """Strings are plain text to the CLI's consoles.

    Markup that is not passed to `styled` would be printed literally.
    """
    for path in sorted((Path(cli.__file__).parent).glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        called = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        styled = [
            node
            for node in called
            if (isinstance(node.func, ast.Name) and node.func.id == "styled")
            or (isinstance(node.func, ast.Attribute) and node.func.attr == "line")
        ]
        fine = {inner for node in styled for inner in ast.walk(node)}
        texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        wrong = [
            node.lineno
            for node in texts
            if node not in fine and re.search(r"\[/\w*\]", node.value) and "styled(" not in node.value
        ]
        assert not wrong, f"{path.name}: lines {wrong}"
        assert "rich.markup" not in path.read_text(encoding="utf-8"), path.name
