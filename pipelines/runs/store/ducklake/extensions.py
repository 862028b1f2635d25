"""DuckDB's extensions for DuckLake, from the wheels of `tracelake[lake]`: signed, and not downloaded at run time."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import duckdb

from pipelines.models.sqltext import quoted
from pipelines.runs.store.ducklake.address import Address
from pipelines.runs.store.interface import StoreError

_CATALOG = {"postgres": ["postgres_scanner"], "sqlite": ["sqlite_scanner"], "duckdb": []}


def load_extensions(con: duckdb.DuckDBPyConnection, address: Address, remote: bool) -> None:
    """Load the extensions that an address needs (`remote`: also S3). Raises StoreError naming what to install."""
    for name in [*_CATALOG[address.kind], *(["httpfs"] if remote else []), "ducklake"]:
        wheel = _in_wheel(name)
        try:
            con.execute(f"LOAD {quoted(wheel) if wheel else name}")
        except duckdb.Error as error:
            raise StoreError(_advice(name, str(error).splitlines()[0])) from None


def _in_wheel(name: str) -> Path | None:
    spec = find_spec(f"duckdb_extension_{name}")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    return path if path.exists() else None


def _advice(name: str, reason: str) -> str:
    message = f"DuckDB {duckdb.__version__} cannot load its extension {name}"
    if find_spec(f"duckdb_extension_{name}"):
        message += " (the installed wheel is for another version of DuckDB)"
    return f"{message}: pip install 'tracelake[lake]', or run INSTALL {name} once in DuckDB ({reason})"
