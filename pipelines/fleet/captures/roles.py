"""The roles of ranks from the user's `roles.csv` in the lake, with columns rank, role, group and optionally job."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pipelines.base.errors import TracelakeError
from pipelines.fleet.captures.grouping import Role
from pipelines.lake.publish.user_tables import NEEDED, TEXT, Row, UserTable, WrongTable
from pipelines.models.catalog import Catalog

ROLES = "roles.csv"
_TABLE = UserTable({"rank": NEEDED, "role": NEEDED, "group": NEEDED, "job": TEXT})
_STAGED = "_staged_capture_roles"


class RolesError(TracelakeError):
    """A table of roles that cannot be read. The message names file and line, and how to correct it."""


def read_roles(path: Path) -> list[Role]:
    """Return the rows of a table of roles; an empty list if the file does not exist. Raise RolesError."""
    try:
        return [_role(path, line, row) for line, row in _TABLE.rows(path)]
    except WrongTable as error:
        raise RolesError(str(error)) from None


def need_roles(catalog: Catalog, tables: Iterable[str]) -> bool:
    """Return whether any of the tables depends on the table of roles."""
    return any(_STAGED in catalog.models[name].dependencies for name in catalog.closure(tables))


def _role(path: Path, line: int, row: Row) -> Role:
    rank, role, group = (row[name] or "" for name in ("rank", "role", "group"))
    if not rank.isdecimal():
        raise RolesError(f"{path}:{line}: rank {rank!r} is not a whole number")
    return Role(row["job"], int(rank), role, group)
