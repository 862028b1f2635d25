"""Overrides of a profile's switches for one request, checked against `sql/rules/path/switches.csv`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pipelines.base.datafiles import rule_rows
from pipelines.base.errors import WrongValue


def switch_overrides(profile: str, settings: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return values by (profile, switch), as `request_windows` accepts them, from (switch, value) pairs.

    Raises WrongValue, which lists the switches or the values that the switch accepts.
    """
    takes = {row["switch"]: row["takes"] for row in rule_rows("switches")}
    overrides = {}
    for name, value in settings:
        if name not in takes or not value:
            raise WrongValue(f"switch {name}={value}: give NAME=VALUE, where NAME is one of {', '.join(sorted(takes))}")
        overrides[profile, name] = _checked(name, takes[name], value)
    return overrides


def _checked(name: str, takes: str, value: str) -> str:
    """Return a switch's value in the form that the models read.

    Raise WrongValue if the switch does not accept the value.

    `takes` is `ns` for a whole number of nanoseconds, or the accepted words separated by `|`.
    """
    if takes == "ns":
        if re.fullmatch(r"-?[0-9]{1,19}", value) and -(2**63) <= int(value) < 2**63:
            return value
        raise WrongValue(f"switch {name}={value}: the value must be a whole number of nanoseconds (64 bits)")
    if value.lower() not in takes.split("|"):
        raise WrongValue(f"switch {name}={value}: the value must be {takes.replace('|', ' or ')}")
    return value.lower()
