"""Switches of a profile set for one question, checked against `sql/rules/switches.csv`."""

from __future__ import annotations

import csv
from collections.abc import Iterable

from pipelines.models.catalog import load_catalog


def switch_overrides(profile: str, settings: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """(switch, value) as `request_windows` takes them: (profile, switch) → value. Raises ValueError with the names."""
    lines = load_catalog().models["switches"].path.read_text().splitlines()
    known = sorted({row["switch"] for row in csv.DictReader(line for line in lines if not line.startswith("#"))})
    found = {}
    for name, value in settings:
        if name not in known or not value:
            raise ValueError(f"switch {name}={value}: give NAME=VALUE, where NAME is one of {', '.join(known)}")
        found[profile, name] = value
    return found
