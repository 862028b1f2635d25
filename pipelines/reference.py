"""The reference of all tables as Markdown, from sql/: `python -m pipelines.reference docs/tables.md`, or `make reference`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from pipelines.lake.publish import column_types
from pipelines.models.catalog import LAYERS, Catalog, Model, load_catalog

_HEAD = """# Tables

<!-- Made from sql/ by `make reference`: edit the header and the column comments of sql/<layer>/<table>.sql instead. -->

Every table of a lake: what a row is, its columns, and which tables it is computed from. `tracelake tables NAME` prints
the same. Times end in `_ns`: integer nanoseconds. NULL means "not measured".
"""
_WHERE = {
    "lake": "Written by ingestion.",
    "rules": "Rules: rows of a file, the same in every lake.",
    "view": "A view over the whole lake, computed when it is read.",
}


def reference() -> str:
    """The page. Raises CatalogError where sql/ breaks a rule."""
    catalog = load_catalog()
    parts = [_HEAD]
    for layer in (*(layer for layer in LAYERS if layer != "rules"), "rules"):
        names = sorted(name for name in catalog.public if catalog.models[name].layer == layer)
        if names:
            parts += [f"## {layer}\n", *("\n".join(_table(catalog, catalog.models[name])) + "\n" for name in names)]
    return "\n".join(parts)


def _table(catalog: Catalog, model: Model) -> Iterator[str]:
    types = dict(column_types(catalog)[model.name])
    yield f"### {model.name}\n"
    yield f"{_escaped(model.doc)}\n"
    unit = "capture" if model.name in catalog.of_captures else "trace"
    yield f"- {_WHERE.get(model.kind, f'Computed and stored by {unit}.')}"
    keys = [check for check in model.checks if check.startswith("unique(")]
    if keys:
        columns = keys[0].removeprefix("unique(").removesuffix(")")
        yield f"- Key: `{columns}`"
    for title, names in (("Reads", _reads(catalog, model.name)), ("Read by", _read_by(catalog, model.name))):
        if names:
            links = [f"[{name}](#{name})" for name in sorted(names)]
            yield f"- {title}: {', '.join(links)}"
    yield "\n| column | type | meaning |\n|---|---|---|"
    for column in model.columns:
        yield f"| `{column.name}` | {types[column.name]} | {_escaped(column.doc)} |"


def _reads(catalog: Catalog, name: str) -> set[str]:
    """The public tables that a model reads, itself or through private models."""
    direct = {source for source in catalog.models[name].dependencies if source in catalog.models}
    private = {source for source in direct if catalog.models[source].private}
    return (direct - private).union(*(_reads(catalog, source) for source in private))


def _read_by(catalog: Catalog, name: str) -> set[str]:
    return {reader for reader in catalog.public if name in _reads(catalog, reader)}


def _escaped(text: str) -> str:
    """Text that Markdown shows as it stands, code between backticks aside."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([\\*_\[\]])", r"\\\1", part).replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts).replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference(), encoding="utf-8")
