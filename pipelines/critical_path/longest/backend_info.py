"""Answers networkx's query about the backend. It comes while networkx is being imported, so nothing is imported here."""

from __future__ import annotations

from typing import Any


def get_info() -> dict[str, Any]:
    """Name, place and functions of the backend."""
    return {
        "backend_name": "tracelake",
        "project": "tracelake",
        "package": "pipelines.critical_path.longest.backend",
        "short_summary": "Longest paths on graphs held as arrays",
        "functions": {"dag_longest_path": {}, "dag_longest_path_length": {}},
    }
