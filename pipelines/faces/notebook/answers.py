"""Queries in a notebook: SQL or a saved question over the analysis's traces, as a table or a data frame.

They do not import Ibis, which takes two seconds, so the first answer from a published lake takes less than one second.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING, Any

from pipelines.base.errors import WrongValue
from pipelines.faces.cells import shown
from pipelines.faces.limiting_findings import findings_of_captures_of
from pipelines.faces.notebook.sources import RankTrace, rank_caveats
from pipelines.lake.commit.model_failures import left_out, sentences
from pipelines.lake.lake import Lake
from pipelines.lake.publish.analyst_file import analyst
from pipelines.lake.read.query_tables import tables_read
from pipelines.lake.read.query_tree import named_in
from pipelines.lake.read.sandbox import connect_parser
from pipelines.models.sqltext import distinct, quoted
from pipelines.runs.store.requested_tables import requested_tables

if TYPE_CHECKING:
    import pyarrow as pa

_LIMITS = ("capture_quality", "capture_ranks")  # tables with the findings that limit a capture
_READ_BY_TEXT = {"query", "query_table"}  # functions whose argument is a query or the name of a table
_QUALIFIED = re.compile(r'\banalyst"?\s*\.', re.IGNORECASE)
SHOWN = 20
"""Maximum number of rows of an answer that a notebook shows."""


class Answer:
    """The rows of a query, in memory. A notebook shows the first SHOWN rows."""

    def __init__(self, rows: pa.Table, query: str, reading: str = "", caveats: Sequence[str] = ()) -> None:
        """Wrap `rows`.

        `query`: the SQL of the answer. `reading`: how to read it, shown below the rows. `caveats`: of all rows.
        """
        self.rows, self.query, self.reading, self.caveats = rows, query, reading, list(caveats)

    def __len__(self) -> int:
        return self.rows.num_rows

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns."""
        return self.rows.column_names

    def to_pyarrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self.rows

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries by column."""
        return self.rows.to_pylist()

    def to_pandas(self) -> Any:
        """Return a pandas data frame. Raise ImportError if pandas is not installed."""
        return self.rows.to_pandas()

    def to_polars(self) -> Any:
        """Return a polars data frame. Raise ImportError if polars is not installed."""
        import polars  # pyright: ignore[reportMissingImports]

        return polars.from_arrow(self.rows)

    def __repr__(self) -> str:
        first = self.rows.slice(0, SHOWN).to_pylist()
        lines = [self.columns, *([shown(row[name]) for name in self.columns] for row in first)]
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        text = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        ]
        return "\n".join([*(f"caveat: {caveat}" for caveat in self.caveats), *text, self._count()])

    def _repr_html_(self) -> str:
        import pyarrow as pa

        right = {
            field.name
            for field in self.rows.schema
            if pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
        }
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "".join(
            f"<tr>{''.join(_cell(row[name], name in right) for name in self.columns)}</tr>"
            for row in self.rows.slice(0, SHOWN).to_pylist()
        )
        reading = f"<p>{escape(self.reading)}</p>" if self.reading else ""
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        caveats = "".join(f"<p><b>caveat:</b> {escape(caveat)}</p>" for caveat in self.caveats)
        return f"{caveats}{table}<p>{escape(self._count())}</p>{reading}"

    def _count(self) -> str:
        n = len(self)
        return f"{n} row{'' if n == 1 else 's'}" if n <= SHOWN else f"the first {SHOWN} of {n:,} rows"


def _cell(value: Any, is_number: bool) -> str:
    return f'<td style="text-align: {"right" if is_number else "left"}">{escape(shown(value))}</td>'


def answer(
    lake: Lake, query: str, traces: Sequence[RankTrace], reading: str = "", caveats: Sequence[str] = ()
) -> Answer:
    """Return the answer to a SELECT over the lake's tables.

    Tables with a trace_id have only the rows of `traces`, and table `traces` has their ranks. Tables in the query are
    computed first if they are missing or outdated. The caveats name the traces that are missing from these tables
    because a model failed on them. If the query reads a table of captures, the caveats include the findings about the
    captures of `traces`, such as a missing rank. Duplicate column names get a number: `name_1`. Raise duckdb.Error for
    an invalid query, WrongValue if the statement is not a query, or if it names a table as `analyst.…` although the
    lake also has other traces.
    """
    with connect_parser() as parser:
        tables = tables_read(query, parser)
        named = named_in(parser, query)
    requested = requested_tables(lake, tables)
    if requested.of_captures:
        requested = requested_tables(lake, [*tables, *_LIMITS])
    caveats = [*caveats, *requested.bring_up(), *requested.reduced, *rank_caveats(traces, tables)]
    ids = {trace.trace_id for trace in traces}
    with analyst(lake, requested.stored) as con:
        # Before _only, which hides rows of other traces.
        caveats += sentences([failure for failure in left_out(con, requested.read) if failure.trace_id in ids])
        if requested.of_captures and traces:
            findings = findings_of_captures_of(con, ids)
            caveats += [finding.sentence for finding in findings]
        # None: the text does not show which tables are read.
        tables_in_text = None if named is None or named.functions & _READ_BY_TEXT else named.tables
        _only(con, query, tables_in_text, traces)
        relation = con.sql(query)
        if relation is None:
            raise WrongValue(f"the query has no answer: give a SELECT, not {query!r}")
        rows = relation.to_arrow_table()
        return Answer(_with_integers(rows.rename_columns(distinct(rows.column_names))), query, reading, caveats)


def _with_integers(rows: pa.Table) -> pa.Table:
    """Return the rows with DuckDB's sums of integers (decimals) as 64-bit integers, if all values of a column fit."""
    import pyarrow as pa

    for index, field in enumerate(rows.schema):
        if field.type == pa.decimal128(38, 0):
            with suppress(pa.ArrowInvalid):  # a value does not fit
                rows = rows.set_column(index, field.name, rows.column(index).cast(pa.int64()))
    return rows


def _only(con: Any, query: str, tables: Iterable[str] | None, traces: Sequence[RankTrace]) -> None:
    """Create temporary views that hide the rows of other traces and show the assigned ranks.

    They take precedence over tables of the same name. `tables`: the tables that the query reads (None: all, which costs
    0.3 s). Raise WrongValue for a name that views cannot replace.
    """
    ids = {trace.trace_id for trace in traces}
    has_all = con.execute("SELECT count(*) FROM analyst.main.traces").fetchall()[0][0] == len(ids)
    if has_all and not any(trace.has_other_rank for trace in traces):
        return
    if _QUALIFIED.search(query):
        raise WrongValue(
            "a table named with `analyst.` has rows of other traces, too: write its name alone, as in FROM kernels"
        )
    con.execute(
        "CREATE TEMP TABLE _of_analysis AS SELECT unnest(?) AS trace_id, unnest(?::BIGINT[]) AS rank",
        [[trace.trace_id for trace in traces], [trace.rank for trace in traces]],
    )
    has_trace = (
        "SELECT table_name FROM duckdb_columns() "
        "WHERE database_name = 'analyst' AND schema_name = 'main' AND column_name = 'trace_id'"
    )
    tables_with_trace_id = {name for (name,) in con.execute(has_trace).fetchall()}
    for name in sorted(tables_with_trace_id if tables is None else tables_with_trace_id.intersection(tables)):
        rows = f'SELECT * FROM analyst.main."{name}" SEMI JOIN _of_analysis USING (trace_id)'
        if name == "traces":
            rows = (
                "SELECT t.* REPLACE (a.rank AS rank) FROM analyst.main.traces AS t "
                "JOIN _of_analysis AS a ON a.trace_id = t.trace_id"
            )
        con.execute(f'CREATE TEMP VIEW "{name}" AS {rows}')


def question(name: str, top: int, **limits: str | int | None) -> tuple[str, str]:
    """Return the SQL of a saved question and how to read its answer.

    Raise KeyError if the question is unknown, NotAsked for a limit that it does not have.
    """
    from pipelines.models.questions import load_questions

    questions = load_questions()
    if name not in questions:
        raise KeyError(f"no question {quoted(name)}; there are {', '.join(sorted(questions))}")
    return questions[name].asked(top, **limits), questions[name].reading
