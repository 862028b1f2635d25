"""Dockerfile and compose.yaml, checked without Docker: paths, users, variables, and whether the commands parse."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import typer
import yaml
from packaging.specifiers import SpecifierSet

from pipelines.faces.cli.app import app
from tests.packaging.installed import PACKAGES, ROOT, SOURCES

DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS = ("code", "webserver", "daemon")
WORKSPACE = yaml.safe_load((ROOT / "dagster_project" / "workspace.yaml").read_text())


def lines(word: str) -> list[str]:
    """Return the arguments of each `word` instruction in the Dockerfile, with continued lines joined."""
    return re.findall(rf"^{word} (.*)$", DOCKERFILE.replace("\\\n", " "), re.M)


def test_the_image_has_all_sources_and_nothing_that_is_not_there() -> None:
    copied = [word for line in lines("COPY") if "--from" not in line for word in line.split()[:-1] if word[0] != "-"]
    assert set(SOURCES) <= set(copied)
    assert all((ROOT / name).exists() for name in copied)
    passed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {name.split("/")[0] for name in copied} == passed


def test_the_image_runs_as_nobody_in_particular_on_a_python_that_is_supported() -> None:
    assert lines("USER") == ["10001:10001"] and DOCKERFILE.index("\nUSER") < DOCKERFILE.index("\nENTRYPOINT")
    assert "PYTHONSAFEPATH=1" in lines("ENV")[0]
    for image in lines("FROM"):
        version = re.match(r"python:(\d+\.\d+)-", image)
        assert version and version[1] in SpecifierSet(PROJECT["requires-python"])
    extras = re.findall(r'"\$1\[([\w,]+)\]"', DOCKERFILE)
    assert extras and set(extras[0].split(",")) <= PROJECT["optional-dependencies"].keys()
    assert 'tracelake = "tracelake.__main__:main"' in (ROOT / "pyproject.toml").read_text()


def test_the_variables_are_those_that_are_read() -> None:
    code = "".join(path.read_text() for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
    settings = (ROOT / "dagster_project" / "dagster-postgres.yaml").read_text()
    variables = {word.partition("=")[0] for line in lines("ENV") for word in line.split() if "=" in word}
    for name in {*variables, *COMPOSE["x-dagster"]["environment"]} - {"PYTHONSAFEPATH", "PYTHONUNBUFFERED"}:
        assert f'"{name}"' in code or f"env: {name} " in settings, name


def test_services_share_the_lake_and_no_secret_is_written_down() -> None:
    services = COMPOSE["services"]
    for name in OURS:
        mounts = [volume.rsplit(":", 2 if volume.endswith(":ro") else 1)[0] for volume in services[name]["volumes"]]
        assert {"lake", "dagster"} <= set(mounts) and services[name]["hostname"] == name
        assert services[name]["volumes"][-1].endswith(":/data/inbox:ro")
    named = {volume.split(":")[0] for service in services.values() for volume in service["volumes"]}
    assert {name for name in named if name[0] != "$"} == COMPOSE["volumes"].keys()
    assert services["webserver"]["ports"] == ["127.0.0.1:3000:3000"]
    for service in services.values():
        assert service["environment"]["POSTGRES_PASSWORD"].startswith("${POSTGRES_PASSWORD:?")


def test_dagsters_settings_differ_in_the_storage_alone() -> None:
    ours, theirs = (
        yaml.safe_load((ROOT / "dagster_project" / name).read_text())
        for name in ("dagster-postgres.yaml", "dagster.yaml")
    )
    assert set(ours.pop("storage")) == {"postgres"}
    assert set(theirs.pop("storage")) == {"custom"}
    assert ours == theirs


def test_the_driver_of_postgres_is_the_one_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database address uses the installed driver. Creating the engine imports it without connecting to a server."""
    utils = pytest.importorskip("dagster_postgres.utils", reason="the extra postgres is not installed")
    import sqlalchemy

    settings = yaml.safe_load((ROOT / "dagster_project" / "dagster-postgres.yaml").read_text())
    database = settings["storage"]["postgres"]["postgres_db"]
    plain = {name: value["env"] if isinstance(value, dict) else value for name, value in database.items()}
    assert set(database) <= set(utils.pg_config()["postgres_db"].config_type.fields)  # pyright: ignore[reportAttributeAccessIssue]
    engine = sqlalchemy.create_engine(utils.pg_url_from_config({"postgres_db": plain}))
    assert engine.dialect.driver == "psycopg2" and engine.url.host == "POSTGRES_HOST"


def test_the_commands_of_the_services_parse() -> None:
    pytest.importorskip("dagster", reason="the extra dagster is not installed")
    from dagster._daemon.cli import create_dagster_daemon_cli
    from dagster_webserver.cli import dagster_webserver

    code, web, daemon = (COMPOSE["services"][name] for name in OURS)
    assert [service["entrypoint"] for service in (code, web, daemon)] == [
        ["python", "-m", "dagster_project.code_server"],
        ["python", "-m", "dagster_project.server_access"],
        ["python", "-m", "dagster._daemon"],
    ]
    (place,) = lines("COPY dagster_project/workspace.yaml")
    ours = str(ROOT / "dagster_project" / "workspace.yaml")  # parsing the option requires an existing file
    asked = dagster_webserver.make_context("guard", [ours if w == place else w for w in web["command"]]).params
    assert (asked["host"], asked["port"]) == ("0.0.0.0", 3000)
    group = create_dagster_daemon_cli()
    name, *words = daemon["command"]
    asked_too = group.commands[name].make_context(name, [ours if w == place else w for w in words]).params
    assert asked["module_name"] == asked_too["module_name"] == ()
    assert asked["workspace"] == asked_too["workspace"] == (ours,)
    program, name, *words = daemon["healthcheck"]["test"][1:]
    command: Any = typer.main.get_command(app)
    assert program == "tracelake" and command.commands[name].make_context(name, words).params["max_lag"] == 120


def test_one_code_server_loads_the_definitions_for_both() -> None:
    """The code server keeps the location name that both services used before, and listens where they connect."""
    pytest.importorskip("dagster", reason="the extra dagster is not installed")
    from dagster._cli.api import grpc_command

    services = COMPOSE["services"]
    (server,) = (entry["grpc_server"] for entry in WORKSPACE["load_from"])
    asked = grpc_command.make_context("code", list(services["code"]["command"])).params
    assert (asked["host"], asked["port"]) == ("0.0.0.0", server["port"]) and server["host"] == "code"
    assert asked["module_name"] == server["location_name"] == "dagster_project.definitions"
    assert f"'localhost', {server['port']}" in services["code"]["healthcheck"]["test"][-1]
    assert all(services[name]["depends_on"]["code"] == {"condition": "service_healthy"} for name in OURS[1:])
    assert "ports" not in services["code"]


@pytest.mark.parametrize("name", ["Dockerfile", "compose.yaml"])
def test_images_have_versions(name: str) -> None:
    images = re.findall(r"^(?:FROM|    image:) (\S+)", (ROOT / name).read_text(), re.M)
    assert images and all(re.search(r":\d", image) for image in images)
