"""Today's state of the fleet as an asset: the page of `tracelake fleet`, and its list of jobs in the UI."""

from datetime import UTC, datetime

import dagster as dg

from assets.metadata import EVERY_DAY, OWNERS, WHOLE, markdown_table, with_tables_behind
from pipelines.base.whole_file import write_whole
from pipelines.faces.limiting_findings import findings_of_newest, sentences
from pipelines.faces.report.fleet import fleet_page
from pipelines.fleet.trends.findings import findings
from pipelines.fleet.trends.fleet_today import TABLES
from pipelines.fleet.trends.fleet_today import fleet_today as read_fleet
from pipelines.lake import Lake
from pipelines.lake.names import PAGES, REJECTS
from pipelines.runs.store import Store

_SHOWN = 30
_FIX_COLUMNS = ("top_change", "n_traces", "gpu_hours", "percent", "top_job")


def is_empty(store: Store) -> bool:
    """Return whether the store has neither traces nor, if it is a folder, rejected files."""
    return not (store.exists or (store.lake and store.lake.batches(REJECTS)))


@dg.asset(
    name="fleet_today",
    deps=with_tables_behind(
        [
            "jobs",
            "job_days",
            "regression_samples",
            "persistent_stragglers",
            "rejects",
            "model_failures",
            "traces",
            "findings",
            *TABLES,
        ]
    ),
    group_name="fleet",
    kinds={"html"},
    owners=OWNERS,
    freshness_policy=EVERY_DAY,
)
def today_page(lake: dg.ResourceParam[Lake], store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """Write the page of the fleet: each job's newest capture, fixes, regressions, stragglers, and rejected files.

    The metadata contains the findings, the fixes and the newest captures.

    The page is `pages/fleet.html` in the lake; `tracelake fleet --out FOLDER` also writes a report of each capture.
    """
    if is_empty(store):
        return dg.MaterializeResult(metadata={"jobs": 0})
    with store.analyst() as con:
        fleet = read_fleet(con)
        limits = findings_of_newest(con, fleet.jobs)
    file = lake.root / PAGES / "fleet.html"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, fleet_page(fleet, {}, f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", limits))
    columns = list(fleet.jobs[0]) if fleet.jobs else []
    rows = [[job[name] for name in columns] for job in fleet.jobs[:_SHOWN]]
    fixes = [[fix[name] for name in _FIX_COLUMNS] for fix in fleet.fixes]
    finding_rows = [(finding.kind, finding.says) for finding in findings(fleet)]
    caveats = [[sentence] for sentence in sentences(limits)]
    return dg.MaterializeResult(
        metadata={
            "page": dg.MetadataValue.path(file),
            "jobs": len(fleet.jobs),
            "captures": fleet.n_captures,
            "traces": fleet.n_traces,
            "got_worse": len(fleet.worse),
            "files_not_read": fleet.n_rejects,
            "findings": len(finding_rows),
            "what": dg.MetadataValue.md(markdown_table(["kind", "finding"], finding_rows[:_SHOWN], width=400)),
            **({"caveats": dg.MetadataValue.md(markdown_table(["caveat"], caveats, WHOLE))} if caveats else {}),
            "what_would_help": dg.MetadataValue.md(markdown_table([*_FIX_COLUMNS], fixes)),
            "newest_captures": dg.MetadataValue.md(markdown_table(columns, rows)),
        }
    )
