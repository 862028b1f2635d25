"""Inference of the JSON schemas in docs/json, which `python -m tests.faces.cli.json_schemas` writes.

The commands run on the files of the README's test, and on a few more (`make_more`) whose answers have keys that the
answers of those files do not have. Any number, text or boolean may be null, because null means not measured. A value
that is null in all answers may have any type. The version of a schema grows when a key disappears or changes its type,
but not when a key is added.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.synthetic import CaptureSpec, write_capture
from tests.faces.cli.test_readme import make_world, write_dump
from tests.readers.memory_snapshots import make as snapshots

DOCS = Path(__file__).parents[3] / "docs" / "json"
COMMANDS: dict[str, list[str]] = {
    "ingest": ["ingest fleet --lake lake", "ingest before.json.gz bad.json --job nightly --lake lake"],
    "tables": ["tables --lake lake"],
    "tables-table": ["tables kernels --lake lake"],
    "why": ["why rank0.json.gz", "why rank0.json.gz --step 1", "why rank0.json.gz --step all"],
    "why-capture": ["why fleet"],
    "breakdown": ["breakdown rank0.json.gz"],
    "critical-path": [
        "critical-path rank0.json.gz",
        "critical-path rank0.json.gz --alternatives 3",
        "critical-path rank0.json.gz --profile hta",
        "critical-path rank0.json.gz --dependencies data",
        "critical-path pathless.json",
    ],
    "what-if": [
        "what-if rank0.json.gz --remove cpu",
        "what-if rank0.json.gz --remove computation",
        "what-if rank0.json.gz --scenario scenarios.toml",
    ],
    "what-if-sensitivity": ["what-if rank0.json.gz --sensitivity"],
    "what-if-capture": ["what-if fleet --remove cpu", "what-if fleet --scenario scenarios.toml"],
    "capture-path": ["capture-path fleet"],
    "stragglers": ["stragglers fleet"],
    "compare": [
        "compare before.json.gz after.json.gz",
        "compare fleet fleet",
        "compare before.json.gz after.json.gz --by cause",
    ],
    "graphs": [
        "graphs demo/graphs/decoder.json.gz",
        "graphs replays.json.gz --capture-trace demo/graphs/decoder.json.gz",
    ],
    "overlay": ["overlay rank0.json.gz --out out"],
    "slice": ["slice rank0.json.gz --step 1 --out out/slice.json"],
    "timeline": ["timeline fleet --out out/timeline.json"],
    "report": [
        "report fleet --out out/report.html",
        "report rank0.json.gz --out out/report.html",
        "report pathless.json --out out/report.html",
    ],
    "memory": ["memory rank3_snapshot.pickle", "memory no_segments.pickle"],
    "flight-recorder": ["flight-recorder dumps/nccl_trace_rank_0 dumps/nccl_trace_rank_1", "flight-recorder healthy"],
    "op-job": ["op-job trace-ST.parquet"],
    "materialize": ["materialize kernels --lake lake --force"],
    "fleet": ["fleet --lake lake"],
    "regressions": ["regressions --lake lake"],
    "status": ["status --lake lake", "status --lake lake --inbox inbox"],
    "check": ["check --lake lake"],
    "baseline": [
        "baseline set main TRACE --lake lake",
        "baseline list --lake lake",
        "baseline remove main --lake lake",
    ],
    "compact": ["compact --lake lake"],
    "retention": ["retention --keep-days 900 --dry-run --lake lake"],
    "forget": ["forget TRACE --lake lake"],
}
"""Command lines for each schema.

They run in this order, in a folder with the files of the README's test. TRACE is replaced by the id of a trace in the
lake.
"""
_TYPES = {str: "string", bool: "boolean", int: "number", float: "number"}
MAPS = {
    *("baseline", "edges_by_type", "frames", "ideal_seconds", "kind_percent", "kind_us", "last_calls", "matched_by"),
    *("owner_us", "passed_over", "summary"),
}
"""Keys, or schemas, of objects that map names from the data to values.

An object whose keys are all numbers is treated the same.
"""


def schema_of(values: list[Any], key: str = "") -> dict[str, Any]:
    """Return one schema that all values of a key fit.

    If some values are objects and others lists, the objects have the schema of the lists' entries.
    """
    scalars = sorted({_TYPES[type(value)] for value in values if type(value) in _TYPES})
    schemas: list[dict[str, Any]] = [{"type": [*scalars, "null"]}] if scalars else []
    objects = [value for value in values if isinstance(value, dict)]
    lists = [value for value in values if isinstance(value, list)]
    entries = [entry for value in lists for entry in value]
    if objects and lists:
        objects = entries = [*objects, *entries]
    if objects:
        schemas.append(_of_objects(objects, key))
    if lists:
        schemas.append({"type": "array", **({"items": schema_of(entries)} if entries else {})})
    if schemas and not scalars and None in values:
        schemas.append({"type": "null"})
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas} if schemas else {}


def _of_objects(objects: list[dict[str, Any]], name: str) -> dict[str, Any]:
    keys = dict.fromkeys(key for value in objects for key in value)
    if name in MAPS or (keys and all(key.lstrip("-").isdigit() for key in keys)):
        return {
            "type": "object",
            "additionalProperties": schema_of([entry for value in objects for entry in value.values()]),
        }
    properties = {key: schema_of([value[key] for value in objects if key in value], key) for key in keys}
    return {
        "type": "object",
        "properties": properties,
        "required": [key for key in keys if all(key in value for value in objects)],
    }


def make_more(folder: Path) -> None:
    """Write files whose answers have parts that the README's files do not produce.

    These are a trace without a path, replays of a graph, a snapshot without segments, and healthy ranks.
    """
    (folder / "bad.json").write_text('{"traceEvents": [}')
    frame = {"ph": "X", "cat": "python_function", "name": "main", "pid": 1, "tid": 1, "ts": 1, "dur": 9}
    (folder / "pathless.json").write_text(json.dumps({"traceEvents": [frame]}))
    (folder / "scenarios.toml").write_text(
        "".join(f'[[scenario]]\nremove = ["{name}"]\n' for name in ("cpu", "memory"))
    )
    (replays,) = write_capture(
        CaptureSpec(1, 1, 4, shape="inference_graph", tokens=2, kernel_ns=6000), folder / "replays"
    ).paths
    replays.rename(folder / "replays.json.gz")
    without_segments = {**snapshots.snapshot(snapshots.training()), "segments": []}
    snapshots.write(folder / "no_segments.pickle", without_segments)
    for rank in range(2):
        write_dump(folder / "healthy" / f"nccl_trace_rank_{rank}", n_calls=2, state="completed")
    (folder / "inbox").mkdir()
    shutil.copy(folder / "after.json.gz", folder / "inbox")


def answers(folder: Path) -> dict[str, list[Any]]:
    """Return the output of the commands, by schema."""
    make_world(folder)
    make_more(folder)
    printed: dict[str, list[Any]] = {}
    ids: list[str] = []
    with contextlib.chdir(folder):
        for name, lines in COMMANDS.items():
            for line in lines:
                words = [ids[0] if word == "TRACE" else word for word in line.split()]
                done = CliRunner().invoke(app, [*words, "--json"])
                if done.exit_code not in (0, 1) or not done.stdout:
                    raise RuntimeError(f"{line}: {done.output}")
                printed.setdefault(name, []).append(json.loads(done.stdout))
                if name == "ingest":
                    ids += [row["trace_id"] for row in printed[name][-1]]
    return printed


def schemas(printed: dict[str, list[Any]]) -> dict[str, dict[str, Any]]:
    """Return the schema of each command's answers, without a version."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {
        name: {**head, "title": f"tracelake {COMMANDS[name][0].split()[0]} --json", **schema_of(values, name)}
        for name, values in printed.items()
    }


def breaks(old: Any, new: Any) -> bool:
    """Return whether a document that fits the new schema may lack a key or type that the old schema promises."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return old != new
    if not old or not new:
        return False  # the type of a value that is null in all answers is unknown
    one_of = [schema.get("anyOf", []) for schema in (old, new)]
    if len(one_of[0]) != len(one_of[1]):
        return True
    if set(old.get("required", ())) - set(new.get("required", ())) or _types(new) - _types(old):
        return True
    shared_keys = (old.get("properties") or {}).keys() & (new.get("properties") or {}).keys()
    nested = [(old["properties"][key], new["properties"][key]) for key in shared_keys]
    nested += [(old[key], new[key]) for key in ("items", "additionalProperties") if key in old and key in new]
    return any(breaks(*pair) for pair in [*nested, *zip(*one_of, strict=True)])


def _types(schema: dict[str, Any]) -> set[str]:
    types = schema.get("type", [])
    return {types} if isinstance(types, str) else set(types)


def write(folder: Path) -> None:
    """Write the schemas into docs/json. The version grows if the new schema breaks a promise of the old one."""
    DOCS.mkdir(exist_ok=True)
    for name, schema in schemas(answers(folder)).items():
        path = DOCS / f"{name}.json"
        old = json.loads(path.read_text()) if path.exists() else {"version": 1, **schema}
        version = old["version"] + (1 if breaks(old, schema) else 0)
        head = {key: schema.pop(key) for key in ("$schema", "title")}
        path.write_text(json.dumps({**head, "version": version, **schema}, indent=1) + "\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        write(Path(made))
