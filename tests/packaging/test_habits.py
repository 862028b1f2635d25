"""Duplicated facts that must agree: versions, extras, CI, pages, templates."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from pipelines import __version__
from pipelines.models.catalog import load_catalog
from tests.packaging.installed import PACKAGES, ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
WORKFLOW: dict[Any, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_readme_and_makefile_take_the_pythons_that_the_project_takes() -> None:
    supported = SpecifierSet(PROJECT["requires-python"])
    minors = [minor for minor in range(30) if f"3.{minor}" in supported]
    says = f"Python 3.{minors[0]} to 3.{minors[-1]}"
    assert says in text("README.md") and says in text("docs/installing.md") and says in text("Makefile")
    assert f"(3, {minors[0]}) <= sys.version_info[:2] < (3, {minors[-1] + 1})" in text("Makefile")
    assert PYPROJECT["tool"]["pyright"]["pythonVersion"] == f"3.{minors[0]}"
    assert {*WORKFLOW["jobs"]["test"]["strategy"]["matrix"]["python"]} <= {f"3.{minor}" for minor in minors}


def test_the_workflow_runs_what_ci_runs() -> None:
    steps = [step["run"] for step in WORKFLOW["jobs"]["test"]["steps"] if "run" in step]
    assert steps == [".ci/run"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK) and text(".ci/run").splitlines()[-1].startswith("make test")
    assert "pull_request" in WORKFLOW[True] and WORKFLOW["permissions"] == {
        "contents": "read"
    }  # YAML parses the key `on` as true


@pytest.mark.parametrize(
    ("choice", "slow", "goals"),
    [
        *((0, "1/60", "test"), (9, "10/60", "test"), (59, "60/60", "test")),
        *((60, "0", "test test-ducklake LAKE_SLOW=1/18"), (77, "0", "test test-ducklake LAKE_SLOW=18/18")),
        *((78, "0", "test test-duckdb2"), (79, "0", "test test-duckdb2")),
    ],
)
def test_the_commit_chooses_what_ci_runs_besides_the_quick_tests(
    choice: int, slow: str, goals: str, tmp_path: Path
) -> None:
    for name, line in {"git": f"printf %08x {choice + 80}", "make": 'echo "ran $SLOW: $*"'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    env = {**{k: v for k, v in os.environ.items() if k != "SLOW"}, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    said = subprocess.run([ROOT / ".ci" / "run"], env=env, capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1] == f"ran {slow}: {goals}"


def test_commits_are_checked_with_tools_of_make_test() -> None:
    hooks = yaml.safe_load(text(".pre-commit-config.yaml"))["repos"][0]["hooks"]
    for hook in hooks:
        tool = hook["entry"].removeprefix(".venv/bin/").split()[0]
        assert f"$(BIN)/{tool} " in text("Makefile"), tool
    assert {"ruff", "ruff-format", "sqlfluff", "reference"} == {hook["id"] for hook in hooks}


def test_every_page_is_in_the_site() -> None:
    def pages(nav: Any) -> list[str]:
        if isinstance(nav, str):
            return [nav]
        return [page for item in (nav.values() if isinstance(nav, dict) else nav) for page in pages(item)]

    assert sorted(pages(yaml.safe_load(text("mkdocs.yml"))["nav"])) == sorted(
        p.name for p in (ROOT / "docs").glob("*.md")
    )


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *sorted(p.name for p in (ROOT / "docs").glob("*.md"))]
)
def test_links_lead_somewhere(page: str) -> None:
    file = ROOT / page if (ROOT / page).exists() else ROOT / "docs" / page
    for link in re.findall(r"\]\(([^)\s]+)\)", file.read_text(encoding="utf-8")):
        target, _, _ = link.partition("#")
        assert link.startswith("https://") or (file.parent / target).exists(), link


def test_every_extra_is_described() -> None:
    described = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", text("docs/installing.md"), re.M))))
    assert described == PROJECT["optional-dependencies"].keys()
    core = " ".join(PROJECT["dependencies"])
    assert not re.search(r"dagster|ibis|torch|pandas", core)


def test_the_changelog_has_this_version() -> None:
    assert f"\n## {__version__}\n" in text("CHANGELOG.md")


def test_templates_ask_for_a_traces_metadata() -> None:
    for name in ("wrong-answer.yml", "idea.yml"):
        form = yaml.safe_load(text(f".github/ISSUE_TEMPLATE/{name}"))
        asked = {field["id"]: field for field in form["body"]}
        assert (
            "metadata" in str(asked["metadata"]["attributes"]).lower() and asked["metadata"]["validations"]["required"]
        )
    left_out = re.search(r"EXCLUDE \((.*?)\) FROM (\w+)", text(".github/ISSUE_TEMPLATE/wrong-answer.yml"))
    assert left_out
    assert {*left_out[1].split(", ")} <= {column.name for column in load_catalog().models[left_out[2]].columns}


def test_packages_are_checked_and_copied_everywhere() -> None:
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    assert folders == {*PACKAGES} == {*PYPROJECT["tool"]["pyright"]["include"]}
    assert all((Path(ROOT) / name / "py.typed").exists() for name in ("tracelake", "pipelines"))
