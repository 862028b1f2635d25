"""What the assets share: partitions, the batches of a run, and the metadata shown for a table."""

import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg

from assets.groups import group_of
from pipelines.base import database
from pipelines.base.foreign_text import in_markdown
from pipelines.base.paths import DUCKLAKE, UnusablePath
from pipelines.lake import Batch, Lake
from pipelines.lake.commit import manifest
from pipelines.lake.layout import REJECTS, RUN_MARK, batch_of, mark_of, table_files
from pipelines.models.catalog import Catalog, Model, load_catalog

# Code references, observable sources and backfill policies are beta in the Dagster version that pyproject.toml pins.
warnings.filterwarnings("ignore", category=dg.BetaWarning)

LAKE, FILES = "TRACELAKE_LAKE", "TRACELAKE_DAGSTER_FILES"
WHOLE_RANGE = dg.BackfillPolicy.single_run()
TRACE_FILES = dg.AssetKey("trace_files")
OWNERS = [os.environ.get("TRACELAKE_OWNER") or "team:performance"]
"""Who looks after the assets: `team:NAME`, or an e-mail address."""
AGAIN = dg.RetryPolicy(max_retries=1, delay=5)
"""A step that failed goes on where it was, once: what it has stored is not computed again. Then the sensor repeats the run."""
EVERY_DAY = dg.FreshnessPolicy.cron(deadline_cron="0 4 * * *", lower_bound_delta=timedelta(hours=4))
"""Of the first and the last asset of a run: by 04:00 UTC the schedule `daily`, which starts at 00:30, has written them."""
PROCESS_TAG = "tracelake/process"
"""Tag of a run: the process that works on it, so that a killed one is noticed."""
LEFT_OUT_TAG = "tracelake/left_out"
"""Tag of a run: tables lack so many traces, as models failed on them. To repeat the run would not help."""
PREVIEW_ROWS = 5
PREVIEW_WIDTH = 60
_LOGS = 5000  # batches whose logs are read at most; of more files the rows are counted


def today() -> str:
    """Returns today's partition."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def store_address(path: str = "") -> str | None:
    """Returns the address of the lake that `path`, else TRACELAKE_LAKE, names; None for a folder."""
    named = path or os.environ.get(LAKE) or ""
    return named if named.startswith(DUCKLAKE) else None


def lake_folder(path: str = "") -> str:
    """Returns the lake's folder: `path`, else what TRACELAKE_LAKE names, else `lake`. For an address: where Dagster keeps what is
    its own, TRACELAKE_DAGSTER_FILES, by default a folder in DAGSTER_HOME.
    """
    if store_address(path):
        return os.environ.get(FILES) or str(Path(os.environ.get("DAGSTER_HOME") or ".dagster") / "tracelake")
    return path or os.environ.get(LAKE) or "lake"


def first_day(folder: str) -> str:
    """Returns the day of the lake's oldest batch; today if there is none, or if the lake cannot be read."""
    try:
        lake = Lake(folder)
        return min((batch.day for batch in {*lake.all_batches(), *lake.batches(REJECTS)}), default=today())
    except (OSError, UnusablePath):  # the run itself reports why
        return today()


# One partition per ingest day: Dagster works best with few. They begin with the lake, so that a full lake shows as
# full. end_offset: today is a partition before it is over.
DAYS = dg.DailyPartitionsDefinition(start_date=first_day(lake_folder()), timezone="UTC", end_offset=1)


@dataclass(frozen=True)
class Span:
    """Returns the batches of a run: those of its days, and those that arrived since it started (past midnight)."""

    days: frozenset[str]
    since: str

    @classmethod
    def of(cls, context: Any) -> "Span":
        """The time span of a run's partitions; a run without partitions covers the whole lake."""
        run = context.instance.get_run_stats(context.run.run_id)
        started = datetime.fromtimestamp(run.start_time or datetime.now(UTC).timestamp(), UTC)
        days = frozenset(context.partition_keys) if context.has_partition_key_range else frozenset()
        return cls(days, f"{started:%Y%m%dT%H%M%S}" if days else "")

    def holds(self, batch: Batch) -> bool:
        """Whether the batch belongs to the run."""
        return batch.day in self.days or batch.batch_id >= self.since

    def batches(self, lake: Lake) -> list[Batch]:
        """Returns the committed batches of the run, oldest first."""
        return [batch for batch in lake.batches() if self.holds(batch)]

    def files(self, lake: Lake, table: str) -> list[str]:
        """A table's Parquet files of the run; for `rejects` also those of batches in which no file was ingested."""
        committed = lake.all_batches()
        marked = [p for p in table_files(lake.root, table) if table == "rejects" or batch_of(p) in committed]
        return [str(path) for path in marked if self.holds(batch_of(path))]


def upstreams(catalog: Catalog, name: str) -> list[str]:
    """The public tables that a table's SQL reads, directly or through private models; staged files: `trace_files`.

    Who reads the path in numbers reads `longest_path`, which has the same rows with names.
    """
    found: dict[str, None] = {}
    todo, seen = list(catalog.models[name].dependencies), set()
    while todo:
        if (source := todo.pop(0)) in seen:
            continue
        seen.add(source)
        if source in catalog.models:
            model = catalog.models[source]
            if source == "_longest_path" and name != "longest_path":
                found["longest_path"] = None
            elif model.private:
                todo += model.dependencies
            else:
                found[source] = None
        elif reads := catalog.given[source].reads:
            todo += reads
        elif catalog.given[source].layer == "ingest" and mark_of(name) != RUN_MARK:
            found["trace_files"] = None
    return list(found)


def with_tables_behind(names: Iterable[str]) -> list[str]:
    """The given tables, and of views those that they read at last: a run computes no view, so an asset that depends on views
    alone would not wait for the tables behind them.
    """
    models = load_catalog().models
    found, todo = dict.fromkeys(names), list(names)
    while todo:
        if models[name := todo.pop(0)].kind == "view":
            new = [one for one in upstreams(load_catalog(), name) if one not in found and models[one].kind != "rules"]
            found.update(dict.fromkeys(new))
            todo += new
    return list(found)


def table_spec(name: str, kinds: Iterable[str], deps: Iterable[str] = (), **more: Any) -> dg.AssetSpec:
    """Returns the asset spec of a table of the catalog: documentation, columns, version and source file come from its
    SQL file.
    """
    catalog = load_catalog()
    model = catalog.models[name]
    file = dg.LocalFileCodeReference(file_path=str(model.path), line_number=model.line)
    source = dg.CodeReferencesMetadataValue(code_references=[file])
    metadata = {"dagster/column_schema": column_schema(model, {}), "dagster/code_references": source}
    return dg.AssetSpec(
        name,
        deps=sorted({*upstreams(catalog, name), *deps}),
        description=model.doc,
        group_name=group_of(model),
        code_version=catalog.version(name),
        metadata=metadata,
        kinds=set(kinds),
        owners=OWNERS,
        tags={"layer": model.layer, "scope": model.scope},
        **more,
    )


def column_schema(model: Model, types: dict[str, str]) -> dg.TableSchema:
    """Returns columns with their meaning; types are known once there is a file of the table."""
    meaning = {column.name: column.doc for column in model.columns}
    names = list(types) or list(meaning)
    return dg.TableSchema(
        columns=[dg.TableColumn(name, type=types.get(name, ""), description=meaning.get(name)) for name in names]
    )


def shown(lake: Lake, table: str, span: Span) -> dict[str, Any]:
    """Returns metadata of a stored table: rows, bytes, columns with types, the newest file's first rows."""
    return shown_files(table, span.files(lake, table), lake)


def shown_files(table: str, files: list[str], lake: Lake | None = None) -> dict[str, Any]:
    """Returns metadata of a table from its Parquet files, and from the logs of the lake that they are in."""
    if not files:
        return {"dagster/row_count": 0}
    sizes = {file: Path(file).stat().st_size for file in files}
    of = lake if lake and len(files) <= _LOGS else None
    told = {file: _rows_told(of, table, file, size) for file, size in sizes.items()} if of else {}
    untold = [file for file in files if told.get(file) is None]
    with database.scratch() as con:
        count = sum(n or 0 for n in told.values())
        if untold:
            count += con.from_parquet(untold, hive_partitioning=False).aggregate("count(*)").fetchall()[0][0]
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


def _rows_told(lake: Lake, table: str, file: str, size: int) -> int | None:
    """Returns how many rows a file has, as its batch's log says: opening all files of a day takes seconds. None if it was not
    counted, or if the file is not the one that was.
    """
    log = manifest.read(lake.root, batch_of(Path(file)))
    record = log.records.get(table) if log else None
    return record.n_rows if record and record.size == size else None


def markdown_table(columns: list[str], rows: Iterable[Iterable[Any]], width: int = PREVIEW_WIDTH) -> str:
    """Returns a Markdown table; long values are truncated, so that a row stays one line."""
    lines = ["| " + " | ".join(map(in_markdown, columns)) + " |", "|" + "---|" * len(columns)]
    return "\n".join([*lines, *("| " + " | ".join(_cell(value, width) for value in row) + " |" for row in rows)])


def _cell(value: Any, width: int) -> str:
    text = "" if value is None else str(value)
    cut = text if len(text) <= width else text[: width - 1] + "…"
    return in_markdown(cut)
