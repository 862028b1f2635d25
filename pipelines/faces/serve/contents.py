"""Contents of the left side of the page: tables with their columns, and the saved questions."""

from __future__ import annotations

from typing import Any

from pipelines.lake.publish.contents import column_types
from pipelines.models.catalog import LAYERS, load_catalog
from pipelines.models.questions import load_questions


def tables_by_layer() -> list[dict[str, Any]]:
    """Return the layers in order, rules last, with their tables, and each table's columns with types and meanings."""
    catalog = load_catalog()
    types = column_types(catalog)
    layers = (*(layer for layer in LAYERS if layer != "rules"), "rules")
    contents = []
    for layer in layers:
        models = sorted(
            (catalog.models[n] for n in catalog.public if catalog.models[n].layer == layer), key=lambda m: m.name
        )
        tables = []
        for model in models:
            kinds = dict(types[model.name])
            columns = [{"name": c.name, "type": kinds.get(c.name, ""), "doc": c.doc} for c in model.columns]
            tables.append({"name": model.name, "doc": model.doc, "columns": columns})
        if tables:
            contents.append({"layer": layer, "tables": tables})
    return contents


def questions() -> list[dict[str, Any]]:
    """Return the saved questions in the order of their topics, each with its search terms and the names of its limits."""
    return [
        {
            "name": question.name,
            "topic": question.topic,
            "question": question.question,
            "reading": question.reading,
            "words": question.words,
            "limits": question.limits,
        }
        for question in load_questions().values()
    ]
