"""Generator of the site's page about all tables, from sql/ (`make docs`)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from pipelines.lake.publish.contents import column_types
from pipelines.models.catalog import LAYERS, Catalog, Model, load_catalog

_HEAD = """# Tables

<!-- Made from sql/ by `make docs`: edit the header and the column comments of the table's statement instead. -->

Every table of a lake: what a row is, its columns, and which tables it is computed from. `tracelake tables NAME` prints
the same. Times end in `_ns`: integer nanoseconds. NULL means "not measured".
"""
_WHERE = {
    "lake": "Written by ingestion.",
    "rules": "Rules: rows of a file, the same in every lake.",
    "view": "A view over the whole lake, computed when it is read.",
}


def reference() -> str:
    """Return the reference of all tables as Markdown. Raise CatalogError if sql/ violates a rule."""
    catalog = load_catalog()
    reads = _reads(catalog)
    parts = [_HEAD]
    for layer in (*(layer for layer in LAYERS if layer != "rules"), "rules"):
        names = sorted(name for name in catalog.public if catalog.models[name].layer == layer)
        if names:
            parts += [
                f"## {layer}\n",
                *("\n".join(_table(catalog, catalog.models[name], reads)) + "\n" for name in names),
            ]
    return "\n".join(parts)


def _table(catalog: Catalog, model: Model, reads: dict[str, set[str]]) -> Iterator[str]:
    types = dict(column_types(catalog)[model.name])
    yield f"### {model.name}\n"
    yield f"{_escaped(model.doc)}\n"
    unit = "capture" if model.name in catalog.of_captures else "trace"
    yield f"- {_WHERE.get(model.kind, f'Computed and stored by {unit}.')}"
    keys = [check for check in model.checks if check.startswith("unique(")]
    if keys:
        yield f"- Key: `{keys[0].removeprefix('unique(').removesuffix(')')}`"
    read_by = {name for name in catalog.public if model.name in reads[name]}
    for title, names in (("Reads", reads[model.name]), ("Read by", read_by)):
        if names:
            links = [f"[{name}](#{name})" for name in sorted(names)]
            yield f"- {title}: {', '.join(links)}"
    yield "\n| column | type | meaning |\n|---|---|---|"
    for column in model.columns:
        yield f"| `{column.name}` | {types[column.name]} | {_escaped(column.doc)} |"


def _reads(catalog: Catalog) -> dict[str, set[str]]:
    """Return the public tables that each model reads, directly or through private models."""
    tables_by_model: dict[str, set[str]] = {}
    for name, model in catalog.models.items():  # ordered: a model follows the models that it reads
        sources = [source for source in model.dependencies if source in catalog.models]
        tables_by_model[name] = set().union(
            *(tables_by_model[s] if catalog.models[s].private else {s} for s in sources)
        )
    return tables_by_model


def _escaped(text: str) -> str:
    """Escape a text for a Markdown table, except code between backticks."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([\\*_\[\]])", r"\\\1", part).replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts).replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference(), encoding="utf-8")
