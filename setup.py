"""What pyproject.toml cannot say: sql/ goes into the wheel as `pipelines/_sql`, beside the code that reads it."""

from setuptools import find_packages, setup

SQL = "pipelines._sql"

setup(
    packages=[*find_packages(include=["tracelake", "pipelines*", "assets*", "dagster_project*"]), SQL],
    package_dir={SQL: "sql"},
    package_data={
        "": ["templates/*", "*.yaml", "plans/*.toml", "page/*", "vendor/*", "skill.md", "py.typed"],
        SQL: ["**/*.sql", "**/*.csv"],
    },
)
