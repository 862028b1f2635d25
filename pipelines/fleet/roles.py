"""What the user tells of ranks: `roles.csv` in the lake's folder, columns rank, role, group and, where needed, job."""

from __future__ import annotations

import csv
from pathlib import Path

from pipelines.fleet.captures import Role

ROLES = "roles.csv"
_NEEDED = ("rank", "role", "group")


class RolesError(Exception):
    """A table of roles that cannot be read; the message names file, line and the way out."""


def read_roles(path: Path) -> list[Role]:
    """The rows of a table of roles; none where there is no file. Raises RolesError."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        missing = [name for name in _NEEDED if name not in (rows.fieldnames or ())]
        if missing:
            raise RolesError(f"{path}:1: no column {missing[0]!r}; write a header `rank,role,group` (and `job`)")
        return [_role(path, number, row) for number, row in enumerate(rows, 2)]


def _role(path: Path, line: int, row: dict[str, str | None]) -> Role:
    values = {name: (row.get(name) or "").strip() for name in ("job", *_NEEDED)}
    empty = [name for name in _NEEDED if not values[name]]
    if empty:
        raise RolesError(f"{path}:{line}: {empty[0]!r} is empty; every row has a rank, a role (dp, tp, pp) and a group")
    if not values["rank"].isdecimal():
        raise RolesError(f"{path}:{line}: rank {values['rank']!r} is no whole number")
    return Role(values["job"] or None, int(values["rank"]), values["role"], values["group"])
