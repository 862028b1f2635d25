"""Code shared by the assets: partitions, the batches of a run, and the metadata that the UI shows for a table."""

import os
import warnings
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import dagster as dg

from assets.groups import group_of
from pipelines.base import database
from pipelines.base.foreign_text import in_markdown
from pipelines.base.paths import UnusablePath
from pipelines.lake import Batch, Lake
from pipelines.lake.commit import manifest
from pipelines.lake.names import MARK, REJECTS, RUN_MARK, batch_of, mark_of
from pipelines.models.catalog import Catalog, Model, load_catalog
from pipelines.runs.store import is_folder_address
from pipelines.runs.store.committed_rows import files_of, replaced_rows
from pipelines.runs.store.interface import BatchSpan
from pipelines.runs.store.unit_batches import NEWEST

# Code references, observable sources and backfill policies are beta in the Dagster version that pyproject.toml pins.
warnings.filterwarnings("ignore", category=dg.BetaWarning)

LAKE, FILES = "TRACELAKE_LAKE", "TRACELAKE_DAGSTER_FILES"
CONSOLE, CONSOLE_ADDRESS = "TRACELAKE_CONSOLE", "http://127.0.0.1:8050"
"""Environment variable with the address of `tracelake serve`, and its default."""
WHOLE_RANGE = dg.BackfillPolicy.single_run()
TRACE_FILES = dg.AssetKey("trace_files")
OWNERS = [os.environ.get("TRACELAKE_OWNER") or "team:performance"]
"""Owners of the assets: `team:NAME`, or an e-mail address."""
AGAIN = dg.RetryPolicy(max_retries=1, delay=5)
"""Retry a failed step once. It continues where it stopped, because it skips the stored tables. After that, the sensor repeats the run."""
EVERY_DAY = dg.FreshnessPolicy.cron(deadline_cron="0 4 * * *", lower_bound_delta=timedelta(hours=4))
"""Freshness policy of a run's first and last asset. The schedule `daily` starts at 00:30 UTC and must have written them by 04:00."""
PROCESS_TAG = "tracelake/process"
"""Tag of a run: the process that works on it, so that a killed process is detected."""
LEFT_OUT_TAG = "tracelake/left_out"
"""Tag of a run: number of traces missing from tables because a model failed on them. Repeating the run would not help."""
PUBLISHED = {
    "_edges": "critical_path_edges",
    "_event_waits": "event_waits",
    "_kernel_class": "event_classes",
    "_longest_path": "longest_path",
}
"""The public table that shows the rows of a private model. Tables that read the model are downstream of that table."""
PREVIEW_ROWS = 5
PREVIEW_WIDTH = 60
WHOLE = 4_000  # characters of a cell with caveats, enough to truncate none
_LOGS = 5000  # files; if there are more, count their rows in Parquet instead of reading the logs of their batches


def today() -> str:
    """Return the partition of today, its date in UTC."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def lake_address(path: str = "") -> str:
    """Return the lake's folder or address: `path`, else TRACELAKE_LAKE, else `lake`."""
    return path or os.environ.get(LAKE) or "lake"


def lake_folder(path: str = "") -> str:
    """Return the folder of Dagster's own files: the lake's, if it is a folder.

    If the lake is at an address: TRACELAKE_DAGSTER_FILES, by default a folder in DAGSTER_HOME.
    """
    address = lake_address(path)
    if is_folder_address(address):
        return address
    return os.environ.get(FILES) or str(Path(os.environ.get("DAGSTER_HOME") or ".dagster") / "tracelake")


def first_day(folder: str) -> str:
    """Return the day of the lake's oldest batch.

    Return today if the lake has no batch, if that day is in the future, or if the lake cannot be read.
    """
    try:
        lake = Lake(folder)
        # If a clock was ahead, batches have future days. Today must still be a partition.
        return min([today(), *(batch.day for batch in {*lake.all_batches(), *lake.batches(REJECTS)})])
    except (OSError, UnusablePath):  # the run itself reports why
        return today()


# One partition per ingest day, because Dagster works best with few partitions. The first is the lake's first day, so
# that Dagster shows a complete lake as complete. end_offset=1 makes today a partition before it is over.
DAYS = dg.DailyPartitionsDefinition(start_date=first_day(lake_folder()), timezone="UTC", end_offset=1)


class Span(BatchSpan):
    """Time span of a run: the batches of its days, and those committed since it started (possibly past midnight)."""

    @classmethod
    def of(cls, context: Any) -> "Span":
        """Return the span of a run's partitions. A run without partitions covers the whole lake."""
        run = context.instance.get_run_stats(context.run.run_id)
        started = datetime.fromtimestamp(run.start_time or datetime.now(UTC).timestamp(), UTC)
        is_of_days = context.has_partition_key or context.has_partition_key_range  # the latter only for several days
        days = frozenset(context.partition_keys) if is_of_days else frozenset()
        return cls(days, f"{started:%Y%m%dT%H%M%S}" if days else "")

    def batches(self, lake: Lake, mark: str = MARK) -> list[Batch]:
        """Return the run's committed batches of traces (or of another marker table), oldest first."""
        return [batch for batch in lake.batches(mark) if self.holds(batch)]

    def files(self, lake: Lake, table: str) -> list[str]:
        """Return the run's Parquet files of a table. For `rejects`, include batches in which no file was ingested."""
        return files_of(lake, table, self.holds)


def upstreams(catalog: Catalog, name: str) -> list[str]:
    """Return the public tables that a table reads, directly or through private models.

    Staged files count as `trace_files`.
    """
    tables: dict[str, None] = {}
    todo, visited = list(catalog.models[name].dependencies), set()
    while todo:
        if (source := todo.pop(0)) in visited:
            continue
        visited.add(source)
        if source in catalog.models:
            model = catalog.models[source]
            public = PUBLISHED.get(source, "") if model.private else source
            if public not in ("", name):
                tables[public] = None
            else:
                todo += model.dependencies
        elif reads := catalog.inputs[source].reads:
            todo += reads
        elif catalog.inputs[source].layer == "ingest" and mark_of(name) != RUN_MARK:
            tables["trace_files"] = None
    return list(tables)


def with_tables_behind(names: Iterable[str]) -> list[str]:
    """Return the named tables and, for each view, the tables that it reads, directly or through other views.

    A run does not compute views, so an asset that depends on views alone would not wait for the tables behind them.
    """
    models = load_catalog().models
    tables, todo = dict.fromkeys(names), list(names)
    while todo:
        if models[name := todo.pop(0)].kind == "view":
            new = [
                table
                for table in upstreams(load_catalog(), name)
                if table not in tables and models[table].kind != "rules"
            ]
            tables.update(dict.fromkeys(new))
            todo += new
    return list(tables)


def table_spec(name: str, kinds: Iterable[str], **more: Any) -> dg.AssetSpec:
    """Return the asset spec of a table of the catalog. Documentation, columns, version and source come from its SQL file."""
    catalog = load_catalog()
    model = catalog.models[name]
    file = dg.LocalFileCodeReference(file_path=str(model.path), line_number=model.line)
    source = dg.CodeReferencesMetadataValue(code_references=[file])
    metadata = {
        "dagster/column_schema": column_schema(model, {}),
        "dagster/code_references": source,
        "console": dg.MetadataValue.url(console_link(name)),
    }
    return dg.AssetSpec(
        name,
        deps=sorted(upstreams(catalog, name)),
        description=model.doc,
        group_name=group_of(model),
        code_version=catalog.version(name),
        metadata=metadata,
        kinds=set(kinds),
        owners=OWNERS,
        tags={"layer": model.layer, "scope": model.scope},
        **more,
    )


def console_link(table: str) -> str:
    """Return a link to the console with a query of the table's first rows. `tracelake serve` answers it."""
    address = os.environ.get(CONSOLE) or CONSOLE_ADDRESS
    return f"{address.rstrip('/')}/#{urlencode({'sql': f'SELECT * FROM {table} LIMIT 100'})}"


def column_schema(model: Model, types: dict[str, str]) -> dg.TableSchema:
    """Return the columns with their meaning. `types` is empty until the table has a file."""
    meaning = {column.name: column.doc for column in model.columns}
    names = list(types) or list(meaning)
    return dg.TableSchema(
        columns=[dg.TableColumn(name, type=types.get(name, ""), description=meaning.get(name)) for name in names]
    )


def shown(lake: Lake, table: str, span: Span) -> dict[str, Any]:
    """Return metadata of a stored table: rows, bytes, columns with types, the newest file's first rows."""
    metadata = shown_files(table, span.files(lake, table), lake)
    if (mark := mark_of(table)) in NEWEST:
        metadata["dagster/row_count"] -= replaced_rows(mark, span.files(lake, mark), span.files(lake, table))
    return metadata


def shown_files(table: str, files: list[str], lake: Lake | None = None) -> dict[str, Any]:
    """Return metadata of a table from its Parquet files and, if `lake` is passed, from the logs of its batches."""
    if not files:
        return {"dagster/row_count": 0}
    sizes = {file: Path(file).stat().st_size for file in files}
    logged_in = lake if lake and len(files) <= _LOGS else None
    n_rows_by_file = (
        {file: _recorded_rows(logged_in, table, file, size) for file, size in sizes.items()} if logged_in else {}
    )
    uncounted = [file for file in files if n_rows_by_file.get(file) is None]
    with database.scratch() as con:
        count = sum(n or 0 for n in n_rows_by_file.values())
        if uncounted:
            count += con.from_parquet(uncounted, hive_partitioning=False).aggregate("count(*)").fetchall()[0][0]
        newest = con.from_parquet([files[-1]], hive_partitioning=False)
        types = {name: str(kind) for name, kind in zip(newest.columns, newest.types, strict=True)}
        first = newest.limit(PREVIEW_ROWS).fetchall()
    return {
        "dagster/row_count": count,
        "bytes": sum(sizes.values()),
        "files": len(files),
        "dagster/column_schema": column_schema(load_catalog().models[table], types),
        "preview": dg.MetadataValue.md(markdown_table(list(types), first)),
    }


def _recorded_rows(lake: Lake, table: str, file: str, size: int) -> int | None:
    """Return the number of rows of a file from its batch's log, because opening all files of a day takes seconds.

    None if the log has no record of the table, or if the file's size in bytes differs from the record.
    """
    batch_log = manifest.read(lake.root, batch_of(Path(file)))
    record = batch_log.records.get(table) if batch_log else None
    return record.n_rows if record and record.size == size else None


def markdown_table(columns: list[str], rows: Iterable[Iterable[Any]], width: int = PREVIEW_WIDTH) -> str:
    """Return a Markdown table. Values longer than `width` characters are truncated, so that a row stays one line."""
    lines = ["| " + " | ".join(map(in_markdown, columns)) + " |", "|" + "---|" * len(columns)]
    return "\n".join([*lines, *("| " + " | ".join(_cell(value, width) for value in row) + " |" for row in rows)])


def _cell(value: Any, width: int) -> str:
    text = "" if value is None else str(value)
    cut = text if len(text) <= width else text[: width - 1] + "…"
    return in_markdown(cut)
