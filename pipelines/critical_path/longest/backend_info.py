"""Metadata of the backend for networkx.

networkx calls `get_info` while networkx is being imported, so this module imports nothing.
"""

from __future__ import annotations

from typing import Any


def get_info() -> dict[str, Any]:
    """Return the name, module and functions of the backend."""
    return {
        "backend_name": "tracelake",
        "project": "tracelake",
        "package": "pipelines.critical_path.longest.backend",
        "short_summary": "Longest paths on graphs held as arrays",
        "functions": {"dag_longest_path": {}, "dag_longest_path_length": {}},
    }
