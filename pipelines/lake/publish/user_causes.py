"""The user's cause rules, from `causes.csv` in the lake's folder. They take precedence over the shipped cause_rules.

The file has the columns of cause_rules: `cause` (a cause in cause_kinds), at least one of `annotation_pattern`,
`frame_pattern` and `call_pattern`, and optionally `takes_gpu_work`. The first matching row wins. The rows are part of
the version of the tables of causes. If the file changes, these tables are therefore recomputed.
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
    """Return the models with the rules of `causes.csv`. An unusable file raises only if a table needs the rules."""
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
    """Return the rows of a file as rows of cause_rules, or [] if the file does not exist.

    Raise CatalogError with the file, the line and the remedy.
    """
    return [_rule(path, index, line, fields) for index, (line, fields) in enumerate(_TABLE.rows(path))]


def write_causes(path: Path, content: bytes) -> None:
    """Write the content of a `causes.csv` that was read from another lake, unless it is empty."""
    if content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _rule(path: Path, index: int, line: int, fields: Row) -> tuple[str | None, ...]:
    causes = [row["cause"] for row in rule_rows("cause_kinds")]
    if fields["cause"] not in causes:
        raise CatalogError(f"{path}:{line}: cause {fields['cause']!r} is unknown; choose one of {', '.join(causes)}")
    patterns = [fields[name] for name in PATTERNS]
    if not any(patterns):
        raise CatalogError(f"{path}:{line}: give at least one of {', '.join(PATTERNS)}")
    # Shipped ranks begin at 10. Negative ranks put these rows before them, in the order of the file.
    return (f"{CAUSES}:{line}", fields["cause"], *patterns, fields["takes_gpu_work"], str(index - _TABLE.most))
