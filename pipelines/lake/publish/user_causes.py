"""A user's own rules of causes: `causes.csv` in the lake's folder, beside the shipped rows of cause_rules, which they win over.

Columns as there: `cause` (of the vocabulary), and at least one of `annotation_pattern`, `frame_pattern`, `call_pattern`; optionally
`takes_gpu_work`. Of several rows that fit, the first holds. They are part of the version of the tables of causes, so these are computed
again when the file changes.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from pipelines.base.datafiles import rule_rows
from pipelines.lake.publish.user_tables import FLAG, NEEDED, PATTERN, Row, UserTable, content_of
from pipelines.models.catalog import Added, Catalog
from pipelines.models.errors import CatalogError

CAUSES = "causes.csv"
PATTERNS = ("annotation_pattern", "frame_pattern", "call_pattern")
_TABLE = UserTable({"cause": NEEDED, **dict.fromkeys(PATTERNS, PATTERN), "takes_gpu_work": FLAG}, most=1_000)
_RULES = "cause_rules"


def with_causes(catalog: Catalog, path: Path) -> Catalog:
    """Returns the models with the rules of such a file. One that cannot be used fails where a table needs them."""
    content = content_of(path)
    return _with_rules(catalog, path, content) if content else catalog


@lru_cache(maxsize=64)
def _with_rules(catalog: Catalog, path: Path, content: bytes) -> Catalog:
    try:
        added = Added(content, tuple(read_causes(path)))
    except CatalogError as error:
        added = Added(content + b" refused", error=str(error))
    return catalog.with_added({_RULES: added})


def read_causes(path: Path) -> list[tuple[str | None, ...]]:
    """Returns the rows of a file as those of cause_rules; none if there is no file.

    Raises CatalogError with file, line and what to do.
    """
    return [_rule(path, place, line, given) for place, (line, given) in enumerate(_TABLE.rows(path))]


def write_causes(path: Path, content: bytes) -> None:
    """Write the content of such a file that was read elsewhere; nothing if there is none."""
    if content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _rule(path: Path, place: int, line: int, given: Row) -> tuple[str | None, ...]:
    known = [row["cause"] for row in rule_rows("cause_kinds")]
    if given["cause"] not in known:
        raise CatalogError(f"{path}:{line}: cause {given['cause']!r} is not known; known are {', '.join(known)}")
    patterns = [given[name] for name in PATTERNS]
    if not any(patterns):
        raise CatalogError(f"{path}:{line}: give at least one of {', '.join(PATTERNS)}")
    # Shipped ranks begin at 10: these come before them, in the order of the file.
    return (f"{CAUSES}:{line}", given["cause"], *patterns, given["takes_gpu_work"], str(place - _TABLE.most))
