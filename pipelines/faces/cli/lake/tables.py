"""`tracelake tables`: the meaning of the tables and their columns."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pipelines.base.close_names import meant
from pipelines.faces.cli.console import fail, out, print_rows, styled
from pipelines.faces.cli.options import DEFAULT_LAKE, JsonOption, LakeOption, ProcessOption
from pipelines.faces.cli.refresh_tables import tell_damage


def tables(
    name: Annotated[
        str | None,
        typer.Argument(help="A table; without one, all tables are listed. With --of: a trace file, or a trace's id."),
    ] = None,
    lake: LakeOption = DEFAULT_LAKE,
    search: Annotated[
        str | None,
        typer.Option(help="Only tables and columns with this in their name or meaning, and questions of `ask`."),
    ] = None,
    of: Annotated[
        str | None,
        typer.Option(
            help="List the models that this table is computed from, in order; for a trace, also the rows and seconds of each model."
        ),
    ] = None,
    process: ProcessOption = None,
    json: JsonOption = False,
) -> None:
    """List the tables and what a row of each is, or one table's columns with types and meanings.

    Example: `tracelake tables kernels`
    """
    from pipelines.lake.publish.contents import column_types
    from pipelines.models.catalog import LAYERS, load_catalog
    from pipelines.runs.store import open_store

    if process is not None and (of is None or name is None):
        raise fail("--process is for --of with a trace file", "Omit it, or pass both.")
    if of is not None:
        from pipelines.faces.cli.lake.lineage import print_lineage

        if search is not None:
            raise fail("--of and --search are two questions", "Ask one of them.")
        print_lineage(of, name, lake, process, json)
        return
    catalog = load_catalog()
    if name is None and search is None:
        layers = (*(layer for layer in LAYERS if layer != "rules"), "rules")
        models = sorted(
            (catalog.models[name] for name in catalog.public), key=lambda m: (layers.index(m.layer), m.name)
        )
        rows = [(m.layer, m.name, m.doc.removeprefix("One row: ").split(" How: ")[0]) for m in models]
        print_rows(("layer", "table", "one row"), rows, json)
        return
    if name is not None and name not in catalog.public:
        raise fail(f"no table {name!r}", meant(name, sorted(catalog.public)))
    if name is None or search is not None:
        rows = _matching_rows(catalog, search or "", name)
        if search and name is None:
            from pipelines.models.questions import questions_about

            rows = [(f"ask {question.name}", "", question.question) for question in questions_about(search)] + rows
        if not rows and not json:
            of_table = f" of table {name}" if name else ""
            raise fail(f"no name or meaning{of_table} has {search!r}", "`tracelake tables` lists all tables.")
        print_rows(("table", "column", "meaning"), rows, json)
        return
    types = dict(column_types(catalog)[name])
    model = catalog.models[name]
    if not json:
        out.print(styled("[bold]{}[/]: {}", name, model.doc))
        out.print()
    tell_damage(open_store(lake).caveats(name))
    columns = [(c.name, types.get(c.name, ""), c.doc) for c in model.columns]
    print_rows(("column", "type", "meaning"), columns, json)


def _matching_rows(catalog: Any, search: str, table: str | None) -> list[tuple[str, str, str]]:
    """Return (table, column, meaning) of all tables and columns whose name or meaning contains a text.

    The row of a table itself has an empty column. `table`: search only this table, or all if None.
    """
    rows = []
    for model in (catalog.models[name] for name in catalog.public if table in (None, name)):
        if search.lower() in f"{model.name} {model.doc}".lower():
            rows.append((model.name, "", model.doc.removeprefix("One row: ")))
        columns = (column for column in model.columns if search.lower() in f"{column.name} {column.doc}".lower())
        rows += [(model.name, column.name, column.doc) for column in columns]
    return rows
