"""What the user tells about ranks: `roles.csv` in the lake's folder, with columns rank, role, group and optionally job."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pipelines.base.errors import TracelakeError
from pipelines.fleet.captures.grouping import Role
from pipelines.lake.publish.user_tables import Row, WrongTable, read_told
from pipelines.models.catalog import Catalog

ROLES = "roles.csv"
_NEEDED = ("rank", "role", "group")
_STAGED = "_staged_capture_roles"


class RolesError(TracelakeError):
    """The table of roles cannot be read; the message names file, line and what to do."""


def read_roles(path: Path) -> list[Role]:
    """Returns the rows of a table of roles; none if there is no file. Raises RolesError."""
    try:
        return [_role(path, line, row) for line, row in read_told(path, (*_NEEDED, "job"), _NEEDED)]
    except WrongTable as error:
        raise RolesError(str(error)) from None


def need_roles(catalog: Catalog, tables: Iterable[str]) -> bool:
    """Some of the tables cannot be computed without the table of roles."""
    return any(_STAGED in catalog.models[name].dependencies for name in catalog.closure(tables))


def _role(path: Path, line: int, row: Row) -> Role:
    rank, role, group = (row[name] for name in _NEEDED)
    if rank is None or role is None or group is None:
        empty = next(name for name in _NEEDED if row[name] is None)
        raise RolesError(f"{path}:{line}: {empty!r} is empty; every row has a rank, a role (dp, tp, pp) and a group")
    if not rank.isdecimal():
        raise RolesError(f"{path}:{line}: rank {rank!r} is not a whole number")
    return Role(row["job"], int(rank), role, group)
