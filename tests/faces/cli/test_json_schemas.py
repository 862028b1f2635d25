"""The schemas in docs/json, which describe the output of `--json`."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from pipelines.faces.cli.app import COMMANDS as OF_THE_APP
from tests.faces.cli import json_schemas
from tests.faces.cli.json_schemas import COMMANDS, DOCS, answers, breaks, schema_of, schemas


@pytest.mark.slow  # 46 commands
def test_the_schemas_are_those_of_what_is_printed(tmp_path: Path) -> None:
    for name, schema in schemas(answers(tmp_path)).items():
        written = json.loads((DOCS / f"{name}.json").read_text())
        assert written.pop("version") >= 1 and written == schema, f"{name}: python -m {json_schemas.__name__}"


def test_each_command_with_json_has_a_schema() -> None:
    page = (DOCS.parent / "json.md").read_text()
    assert {path.stem for path in DOCS.glob("*.json")} == set(COMMANDS)
    assert all(f"(json/{name}.json)" in page for name in COMMANDS)
    with_json = set()
    for command, (target, _) in OF_THE_APP.items():
        module = (
            Path(json_schemas.__file__).parents[3]
            / "pipelines/faces/cli"
            / (target.partition(":")[0].replace(".", "/") + ".py")
        )
        if "JsonOption" in module.read_text() or "json" in module.stem:
            with_json.add(command)
    described = {line.split()[0] for lines in COMMANDS.values() for line in lines}
    assert with_json - described == {"metrics"}  # it prints OpenMetrics text, in the module of a command with JSON


def test_a_key_that_goes_or_changes_breaks_a_schema_and_a_new_one_does_not() -> None:
    old = schema_of([{"a": 1, "b": [{"c": "x"}], "ranks": {"0": 1.5}}])
    assert not breaks(old, old) and not breaks(
        old, schema_of([{"a": 2, "b": [{"c": "y", "d": 1}], "ranks": {"7": None}, "e": 1}])
    )
    for changed in ({"b": [{"c": "x"}], "ranks": {"0": 1}}, {"a": "1", "b": [{"c": "x"}], "ranks": {"0": 1}},
                    {"a": 1, "b": [{}], "ranks": {"0": 1}}, {"a": 1, "b": [{"c": "x"}], "ranks": {"0": "1"}}):  # fmt: skip
        assert breaks(copy.deepcopy(old), schema_of([changed])), changed


def test_keys_from_the_data_are_not_promised() -> None:
    assert schema_of([{"summary": {"cpu_bound": 1.5}}])["properties"]["summary"] == {
        "type": "object",
        "additionalProperties": {"type": ["number", "null"]},
    }
    assert schema_of([{"cpu_bound": 1.5}])["required"] == ["cpu_bound"]
    assert schema_of([{"main": "3f2a"}], "baseline")["additionalProperties"] == {"type": ["string", "null"]}


def test_what_is_null_in_all_answers_may_be_anything() -> None:
    assert schema_of([{"job": None}]) == {"type": "object", "properties": {"job": {}}, "required": ["job"]}
    assert schema_of([None, "nightly"]) == {"type": ["string", "null"]}
    assert schema_of([None, {}])["anyOf"][1] == {"type": "null"}
    assert schema_of([{"summary": {}}])["properties"]["summary"] == {"type": "object", "additionalProperties": {}}
    assert not breaks({}, {"type": ["string", "null"]}) and not breaks({"type": ["string", "null"]}, {})


def test_an_answer_may_be_a_list_of_answers() -> None:
    schema = schema_of([{"a": 1}, [{"a": 2, "name": "cpu"}]])
    answer = schema_of([{"a": 1}, {"a": 2, "name": "cpu"}])
    assert schema == {"anyOf": [answer, {"type": "array", "items": answer}]} and answer["required"] == ["a"]
    assert not breaks(schema, schema_of([{"a": 1, "b": 1}, [{"a": 2}]]))
    assert breaks(schema, schema_of([{"a": "1"}, [{"a": "2"}]])) and breaks(answer, schema) and breaks(schema, answer)
